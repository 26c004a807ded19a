// Error handling of CUDA and NCCL calls in the zoo: prints the failed call and exits at once, without waiting for library
// threads.
#pragma once
#include <cstdio>
#include <cstdlib>

#define CUDA(call)                                                                  \
  do {                                                                              \
    cudaError_t e = (call);                                                         \
    if (e != cudaSuccess) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e));               \
      std::_Exit(1);                                                                \
    }                                                                               \
  } while (0)
#define NCCL(call)                                                                  \
  do {                                                                              \
    ncclResult_t r = (call);                                                        \
    if (r != ncclSuccess) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(r));               \
      std::_Exit(1);                                                                \
    }                                                                               \
  } while (0)
