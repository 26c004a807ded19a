// One rank of an all_reduce bench: what an operation costs, with whatever profiler NCCL has been told to load.
//
//   ops RANK RANKS DEVICE ID_FILE BATCHES SIZE[:ITERATIONS] ...
//
// Prints one line for each size on rank 0: `SIZE throughput T1 T2 ...` and `SIZE latency T1 T2 ...`, microseconds an
// operation, one number for each batch. Throughput: operations one after another, one synchronisation at the end.
// Latency: a synchronisation after each.
#include <cuda_runtime.h>
#include <nccl.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>
#include <vector>

#define CUDA(call)                                                                  \
  do {                                                                              \
    cudaError_t e = (call);                                                         \
    if (e != cudaSuccess) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e));               \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)
#define NCCL(call)                                                                  \
  do {                                                                              \
    ncclResult_t r = (call);                                                        \
    if (r != ncclSuccess) {                                                         \
      std::fprintf(stderr, "%s: %s\n", #call, ncclGetErrorString(r));               \
      std::exit(1);                                                                 \
    }                                                                               \
  } while (0)

static double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

int main(int argc, char **argv) {
  if (argc < 7) {
    std::fprintf(stderr, "usage: ops RANK RANKS DEVICE ID_FILE BATCHES SIZE[:ITERATIONS] ...\n");
    return 2;
  }
  int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]), device = std::atoi(argv[3]), batches = std::atoi(argv[5]);
  std::string id_file = argv[4];
  ncclUniqueId id;
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    std::string part = id_file + ".part";
    FILE *f = std::fopen(part.c_str(), "wb");
    if (!f || std::fwrite(&id, sizeof id, 1, f) != 1) return 1;
    std::fclose(f);
    std::rename(part.c_str(), id_file.c_str());
  } else {
    FILE *f = nullptr;
    for (int i = 0; i < 6000 && !(f = std::fopen(id_file.c_str(), "rb")); i++) usleep(5000);
    if (!f || std::fread(&id, sizeof id, 1, f) != 1) return 1;
    std::fclose(f);
  }
  CUDA(cudaSetDevice(device));
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  cudaStream_t stream;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  size_t largest = 0;
  struct Size {
    size_t bytes;
    int iterations;
  };
  std::vector<Size> sizes;
  for (int i = 6; i < argc; i++) {
    char *end = nullptr;
    size_t bytes = std::strtoull(argv[i], &end, 10);
    sizes.push_back({bytes, *end == ':' ? std::atoi(end + 1) : 100});
    if (bytes > largest) largest = bytes;
  }
  float *data;
  CUDA(cudaMalloc(&data, largest));
  CUDA(cudaMemset(data, 0, largest));
  for (const Size &size : sizes) {
    size_t count = size.bytes / sizeof(float);
    for (int mode = 0; mode < 2; mode++) {
      int iterations = mode == 0 ? size.iterations : (size.iterations + 3) / 4;
      std::string line;
      for (int batch = -1; batch < batches; batch++) {  // batch -1 warms up
        CUDA(cudaStreamSynchronize(stream));
        double start = now_us();
        for (int i = 0; i < iterations; i++) {
          NCCL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream));
          if (mode == 1) CUDA(cudaStreamSynchronize(stream));
        }
        CUDA(cudaStreamSynchronize(stream));
        char number[32];
        std::snprintf(number, sizeof number, " %.4f", (now_us() - start) / iterations);
        if (batch >= 0) line += number;
      }
      if (rank == 0) std::printf("%zu %s%s\n", size.bytes, mode == 0 ? "throughput" : "latency", line.c_str());
    }
  }
  NCCL(ncclCommDestroy(comm));
  return 0;
}
