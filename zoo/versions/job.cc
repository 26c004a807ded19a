// One rank of a short job of two with typical NCCL calls, for `zoo/versions.py`.
//
//   job RANK DEVICE DIR all COMMUNICATORS | many COMMUNICATORS | flood | uneven | abort | late | several
//
// It prints JSON lines: the next step (`step`), its completion (`done`), and every call (`call`) in NCCL's names. Both ranks
// share DIR: NCCL's id, and the marker files by which the ranks and the checker wait for each other. It uses only functions
// that NCCL has had since 2.18, so one program runs with every version.
#include <cuda_runtime.h>
#include <nccl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "../must.h"

static const size_t kBytes = 64 << 20;
static int rank;
static std::string folder;
static thread_local char *from, *to;
static thread_local cudaStream_t stream;

struct Comm {
  ncclComm_t comm;
  int number;  // in order of creation
  int rank;
};
static int comms;

static void step(const char *name) {
  std::printf("{\"step\": \"%s\"}\n", name);
  std::fflush(stdout);
}

static void done(const char *name) {
  std::printf("{\"done\": \"%s\"}\n", name);
  std::fflush(stdout);
}

// 0 runs: recorded and never run.
static void call(const Comm &c, const char *function, size_t count, const char *type, int root, int peer, int runs) {
  std::printf("{\"call\": \"%s\", \"comm\": %d, \"count\": %zu, \"datatype\": \"%s\", \"root\": %d, \"peer\": %d, \"runs\": %d}\n",
              function, c.number, count, type, root, peer, runs);
}

static void mark(const std::string &name) {
  std::FILE *file = std::fopen((folder + "/" + name).c_str(), "w");
  if (file) std::fclose(file);
}

static void wait_for(const std::string &name) {
  while (access((folder + "/" + name).c_str(), F_OK) != 0) usleep(1000);
}

// Selects this GPU for the current thread.
static void use(int device) {
  static struct {
    char *from, *to;
    cudaStream_t stream;
  } gpus[16];
  auto &gpu = gpus[device % 16];
  CUDA(cudaSetDevice(device));
  if (!gpu.from) {
    CUDA(cudaMalloc(&gpu.from, kBytes));
    CUDA(cudaMalloc(&gpu.to, kBytes));
    CUDA(cudaMemset(gpu.from, 0, kBytes));
    CUDA(cudaStreamCreate(&gpu.stream));
  }
  from = gpu.from, to = gpu.to, stream = gpu.stream;
}

static Comm init(const char *name) {
  ncclUniqueId id;
  std::string path = folder + "/" + name;
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    std::FILE *file = std::fopen((path + ".new").c_str(), "w");
    if (!file || std::fwrite(&id, sizeof id, 1, file) != 1 || std::fclose(file) != 0) std::_Exit(1);
    if (std::rename((path + ".new").c_str(), path.c_str()) != 0) std::_Exit(1);
  } else {
    wait_for(name);
    std::FILE *file = std::fopen(path.c_str(), "r");
    if (!file || std::fread(&id, sizeof id, 1, file) != 1) std::_Exit(1);
    std::fclose(file);
  }
  Comm made{nullptr, comms++, rank};
  NCCL(ncclCommInitRank(&made.comm, 2, id, rank));
  return made;
}

// The new communicator has the ranks reversed.
static Comm split(const Comm &of) {
  Comm made{nullptr, comms++, 1 - of.rank};
  NCCL(ncclCommSplit(of.comm, 0, made.rank, &made.comm, nullptr));
  return made;
}

static void all_reduce(const Comm &c, size_t count, int runs = 1) {
  call(c, "AllReduce", count, "ncclFloat32", -1, -1, runs);
  NCCL(ncclAllReduce(from, to, count, ncclFloat, ncclSum, c.comm, stream));
}

static void exchange(const Comm &c, size_t count, int runs = 1) {
  int peer = 1 - c.rank;
  NCCL(ncclGroupStart());
  call(c, "Send", count, "ncclUint8", -1, peer, runs);
  NCCL(ncclSend(from, count, ncclUint8, peer, c.comm, stream));
  call(c, "Recv", count, "ncclUint8", -1, peer, runs);
  NCCL(ncclRecv(to, count, ncclUint8, peer, c.comm, stream));
  NCCL(ncclGroupEnd());
}

static void finish() { CUDA(cudaStreamSynchronize(stream)); }

static void all_gather(const Comm &c) {
  call(c, "AllGather", 307, "ncclInt64", -1, -1, 1);
  NCCL(ncclAllGather(from, to, 307, ncclInt64, c.comm, stream));
}

static void broadcast(const Comm &c, size_t count, int root) {
  call(c, "Broadcast", count, "ncclBfloat16", root, -1, 1);
  NCCL(ncclBroadcast(from, to, count, ncclBfloat16, root, c.comm, stream));
}

static void operations(const Comm &c) {
  all_reduce(c, 1003);
  finish();
  broadcast(c, 2005, 1);
  finish();
  all_gather(c);
  finish();
  call(c, "ReduceScatter", 411, "ncclFloat32", -1, -1, 1);
  NCCL(ncclReduceScatter(from, to, 411, ncclFloat, ncclSum, c.comm, stream));
  finish();
  exchange(c, 5009);
  finish();
  all_reduce(c, 4 << 20);
  finish();
}

static void in_a_row(const Comm &c) {
  for (int i = 0; i < 300; i++) all_reduce(c, 51);
  finish();
}

// Recorded once, run `runs` times.
static void graph(const Comm &c, int runs) {
  cudaGraph_t recorded;
  cudaGraphExec_t ready;
  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  all_reduce(c, 21, runs);
  exchange(c, 23, runs);
  CUDA(cudaStreamEndCapture(stream, &recorded));
  CUDA(cudaGraphInstantiate(&ready, recorded, 0));
  for (int run = 0; run < runs; run++) CUDA(cudaGraphLaunch(ready, stream));
  finish();
  CUDA(cudaGraphExecDestroy(ready));
  CUDA(cudaGraphDestroy(recorded));
}

static void come_and_go(const Comm &world, int communicators) {
  step("communicators");
  for (int made = 0; made < communicators; made++) {
    Comm one = made % 5 ? split(world) : init(("id-" + std::to_string(made)).c_str());
    all_reduce(one, 41 + made);
    finish();
    NCCL(ncclCommDestroy(one.comm));
  }
  done("communicators");
}

static void many(int communicators) {
  step("init");
  Comm world = init("world");
  all_reduce(world, 1003);
  finish();
  done("init");
  come_and_go(world, communicators);
  step("destroy");
  NCCL(ncclCommDestroy(world.comm));
  done("destroy");
}

static void all(int communicators) {
  step("init");
  Comm world = init("world");
  done("init");

  step("operations");
  operations(world);
  done("operations");

  step("split");
  Comm turned = split(world);
  all_reduce(turned, 31);
  exchange(turned, 33);
  finish();
  done("split");

  come_and_go(world, communicators);

  step("row");
  in_a_row(world);
  done("row");

  // The plugin pays for following from a credit: wait until it has some again.
  step("pause");
  usleep(300000);
  all_reduce(world, 53);
  finish();
  usleep(10000);
  done("pause");

  step("graph");
  graph(world, 5);
  graph(world, 0);
  graph(turned, 3);
  done("graph");

  step("after");
  operations(turned);
  operations(world);
  done("after");

  step("destroy");
  NCCL(ncclCommDestroy(turned.comm));
  NCCL(ncclCommDestroy(world.comm));
  done("destroy");
}

// A graph that is recorded while the plugin follows nothing.
static void flood() {
  step("init");
  Comm world = init("world");
  done("init");
  step("row");
  in_a_row(world);
  for (int i = 0; i < 10; i++) graph(world, 0);
  graph(world, 5);
  in_a_row(world);
  operations(world);
  done("row");
  step("destroy");
  NCCL(ncclCommDestroy(world.comm));
  done("destroy");
}

// Gathers parts of unequal size by a group of broadcasts, one from each rank, like PyTorch.
static void uneven() {
  step("init");
  Comm world = init("world");
  done("init");
  step("operations");
  for (int i = 0; i < 3; i++) {
    all_reduce(world, 1003);
    finish();
  }
  done("operations");
  step("uneven");
  for (int i = 0; i < 3; i++) {
    NCCL(ncclGroupStart());
    broadcast(world, 300000, 0);
    broadcast(world, 2005, 1);
    NCCL(ncclGroupEnd());
    finish();
    for (int j = 0; j < 4; j++) {
      all_reduce(world, 411 + j);
      finish();
    }
    all_reduce(world, 4 << 20);
    finish();
  }
  done("uneven");
  step("destroy");
  NCCL(ncclCommDestroy(world.comm));
  done("destroy");
}

static void warm_up(const Comm &world) {
  for (int i = 0; i < 20; i++) {  // a rhythm
    all_reduce(world, 61);
    finish();
    usleep(10000);
  }
}

static void abort_one() {
  step("init");
  Comm world = init("world");
  warm_up(world);
  done("init");
  step("abort");
  if (rank == 0) {
    all_reduce(world, 71);
    sleep(1);
    NCCL(ncclCommAbort(world.comm));
    finish();
    mark("aborted");
  } else {
    wait_for("aborted");
    NCCL(ncclCommAbort(world.comm));
  }
  done("abort");
}

static void late() {
  step("init");
  Comm world = init("world");
  warm_up(world);
  mark("ready-" + std::to_string(rank));
  done("init");
  step("late");
  if (rank == 1) wait_for("enter");
  all_reduce(world, 81);
  finish();
  done("late");
  exchange(world, 83);
  finish();
  mark("over-" + std::to_string(rank));
  step("kill");
  if (rank == 1) wait_for("never");
  all_reduce(world, 91);
  finish();
}

// Both ranks in one process; the other process is idle. First one thread, in groups, then one thread per GPU; one of them
// comes late.
static void several() {
  if (rank == 1) return;
  step("init");
  const int devices[2] = {0, 1};
  ncclComm_t made[2];
  NCCL(ncclCommInitAll(made, 2, devices));
  const Comm ranks[2] = {{made[0], 0, 0}, {made[1], 1, 1}};
  auto together = [&](auto operation) {
    NCCL(ncclGroupStart());
    for (const Comm &c : ranks) use(c.rank), operation(c);
    NCCL(ncclGroupEnd());
    for (const Comm &c : ranks) use(c.rank), finish();
  };
  done("init");

  step("operations");
  together([](const Comm &c) { all_reduce(c, 1003); });
  together([](const Comm &c) { all_gather(c); });
  together([](const Comm &c) { exchange(c, 5009); });
  together([](const Comm &c) { all_reduce(c, 4 << 20); });
  done("operations");

  step("row");
  for (int i = 0; i < 20; i++) {  // a rhythm
    together([](const Comm &c) { all_reduce(c, 61); });
    usleep(10000);
  }
  done("row");

  step("late");
  std::vector<std::thread> threads;
  for (const Comm &c : ranks) {
    threads.emplace_back([&c] {
      use(c.rank);
      mark("ready-" + std::to_string(c.rank));
      if (c.rank == 1) wait_for("enter");
      all_reduce(c, 81);
      finish();
    });
  }
  for (auto &thread : threads) thread.join();
  done("late");

  step("destroy");
  for (const Comm &c : ranks) NCCL(ncclCommDestroy(c.comm));
  done("destroy");
}

int main(int argc, char **argv) {
  if (argc < 5) return 2;
  rank = std::atoi(argv[1]);
  folder = argv[3];
  std::string mode = argv[4];
  use(std::atoi(argv[2]));
  int version = 0;
  NCCL(ncclGetVersion(&version));
  std::printf("{\"nccl\": %d}\n", version);
  if (mode == "all") all(argc > 5 ? std::atoi(argv[5]) : 50);
  if (mode == "many") many(argc > 5 ? std::atoi(argv[5]) : 50);
  if (mode == "flood") flood();
  if (mode == "abort") abort_one();
  if (mode == "uneven") uneven();
  if (mode == "late") late();
  if (mode == "several") several();
  return 0;
}
