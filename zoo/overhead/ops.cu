// One rank of an all_reduce bench: the cost of an operation with the profiler that NCCL loads.
//
//   ops RANK RANKS DEVICE ID_FILE ROUNDS SEED SIZE[:ITERATIONS] ...
//
// Prints lines on rank 0: `SIZE throughput VARIANT T1 T2 ...` and `SIZE latency VARIANT T1 T2 ...`, microseconds per
// operation, one number per round. Throughput: operations one after another, one synchronisation at the end. Latency: a
// synchronisation after each. With `switch.cc` as the profiler every round runs all of its variants, in an order that SEED
// gives and all ranks share; otherwise there is one variant, 0. OPS_CORE: the core of the calling thread once NCCL has
// created its own threads, which use the other cores of the process.
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <nccl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "../must.h"

static double now_us() {
  using namespace std::chrono;
  return duration<double, std::micro>(steady_clock::now().time_since_epoch()).count();
}

using Use = int (*)(int);

// `overhead_use` of the loaded profiler, if it is the switch.
static Use find_switch() {
  const char *path = std::getenv("NCCL_PROFILER_PLUGIN");
  void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  return library ? reinterpret_cast<Use>(dlsym(library, "overhead_use")) : nullptr;
}

static void keep_to_core() {
  const char *core = std::getenv("OPS_CORE");
  if (!core) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(std::atoi(core), &one);
  if (sched_setaffinity(0, sizeof one, &one) != 0) std::perror("sched_setaffinity");
}

int main(int argc, char **argv) {
  if (argc < 8) {
    std::fprintf(stderr, "usage: ops RANK RANKS DEVICE ID_FILE ROUNDS SEED SIZE[:ITERATIONS] ...\n");
    return 2;
  }
  int rank = std::atoi(argv[1]), ranks = std::atoi(argv[2]), device = std::atoi(argv[3]), rounds = std::atoi(argv[5]);
  uint64_t random = std::strtoull(argv[6], nullptr, 10) * 2 + 1;
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
  for (int i = 7; i < argc; i++) {
    char *end = nullptr;
    size_t bytes = std::strtoull(argv[i], &end, 10);
    sizes.push_back({bytes, *end == ':' ? std::atoi(end + 1) : 100});
    if (bytes > largest) largest = bytes;
  }
  float *data;
  CUDA(cudaMalloc(&data, largest));
  CUDA(cudaMemset(data, 0, largest));
  auto run = [&](size_t count, int iterations, bool each) {
    for (int i = 0; i < iterations; i++) {
      NCCL(ncclAllReduce(data, data, count, ncclFloat, ncclSum, comm, stream));
      if (each) CUDA(cudaStreamSynchronize(stream));
    }
    CUDA(cudaStreamSynchronize(stream));
  };
  run(2, 20, false);  // connections are made with the first
  keep_to_core();
  Use use = find_switch();
  int variants = use ? use(0) : 1;
  for (const Size &size : sizes) {
    size_t count = size.bytes / sizeof(float);
    for (int mode = 0; mode < 2; mode++) {
      bool each = mode == 1;
      int iterations = each ? (size.iterations + 2) / 3 : size.iterations;
      run(count, iterations, each);
      std::vector<std::string> lines(variants);
      std::vector<int> order(variants);
      std::iota(order.begin(), order.end(), 0);
      for (int round = 0; round < rounds; round++) {
        for (int i = variants - 1; i > 0; i--) {
          random = random * 6364136223846793005u + 1442695040888963407u;
          std::swap(order[i], order[(random >> 33) % (i + 1)]);
        }
        for (int variant : order) {
          if (use) {
            usleep(2000);  // late proxy events belong to the previous variant
            use(variant);
          }
          // Warms up caches and clocks, and spends the credit that a plugin has saved up.
          run(count, std::max(2, iterations / 8), each);
          double start = now_us();
          run(count, iterations, each);
          char number[32];
          std::snprintf(number, sizeof number, " %.4f", (now_us() - start) / iterations);
          lines[variant] += number;
        }
      }
      const char *name = each ? "latency" : "throughput";
      for (int variant = 0; rank == 0 && variant < variants; variant++)
        std::printf("%zu %s %d%s\n", size.bytes, name, variant, lines[variant].c_str());
      std::fflush(stdout);
    }
  }
  NCCL(ncclCommDestroy(comm));
  return 0;
}
