// What a program of the zoo does with a call of CUDA or NCCL that fails: says which, and ends at once, without waiting for
// threads of libraries.
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
