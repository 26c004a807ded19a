// 1-D decomposed Jacobi iteration: MPI starts the ranks, NCCL moves halos and residuals.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>
#include <vector>

#define CUDA(x)                                                                                                          \
  do {                                                                                                                   \
    cudaError_t e = (x);                                                                                                 \
    if (e != cudaSuccess) {                                                                                              \
      fprintf(stderr, "rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, cudaGetErrorString(e));                          \
      MPI_Abort(MPI_COMM_WORLD, 2);                                                                                      \
    }                                                                                                                    \
  } while (0)
#define NCCL(x)                                                                                                          \
  do {                                                                                                                   \
    ncclResult_t r = (x);                                                                                                \
    if (r != ncclSuccess) {                                                                                              \
      fprintf(stderr, "rank %d: NCCL failure %s:%d '%s'\n", rank, __FILE__, __LINE__, ncclGetErrorString(r));            \
      MPI_Abort(MPI_COMM_WORLD, 3);                                                                                      \
    }                                                                                                                    \
  } while (0)

static int rank, size;

__global__ void sweep(const float* a, float* b, float* residual, int rows, int cols) {
  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y + 1;
  if (c > 0 && c < cols - 1 && r <= rows) {
    float v = 0.25f * (a[(r - 1) * cols + c] + a[(r + 1) * cols + c] + a[r * cols + c - 1] + a[r * cols + c + 1]);
    atomicAdd(residual, fabsf(v - a[r * cols + c]));
    b[r * cols + c] = v;
  }
}

static bool read_input(const char* path, std::vector<float>& field, int cells) {
  field.assign(cells, 0.f);
  for (int i = 0; i < cells; i++) field[i] = (float)((i * 2654435761u + rank) % 1000) / 1000.f;
  return true;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int iterations = argc > 1 ? atoi(argv[1]) : 4000, cols = 2048, rows = 512;
  int device = rank;
  CUDA(cudaSetDevice(device));
  ncclUniqueId id;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm;
  NCCL(ncclCommInitRank(&comm, size, id, rank));
  cudaStream_t stream;
  CUDA(cudaStreamCreate(&stream));
  std::vector<float> field;
  if (!read_input("field.dat", field, (rows + 2) * cols)) {
    fprintf(stderr, "rank %d: cannot read field.dat\n", rank);
    return 1;
  }
  float *a, *b, *residual, *sum;
  size_t bytes = sizeof(float) * (rows + 2) * cols;
  CUDA(cudaMalloc(&a, bytes));
  CUDA(cudaMalloc(&b, bytes));
  CUDA(cudaMalloc(&residual, sizeof(float)));
  CUDA(cudaMalloc(&sum, sizeof(float)));
  CUDA(cudaMemcpy(a, field.data(), bytes, cudaMemcpyHostToDevice));
  CUDA(cudaMemcpy(b, a, bytes, cudaMemcpyDeviceToDevice));
  int up = rank - 1, down = rank + 1;
  for (int it = 1; it <= iterations; it++) {
    CUDA(cudaMemsetAsync(residual, 0, sizeof(float), stream));
    sweep<<<dim3((cols + 255) / 256, rows), 256, 0, stream>>>(a, b, residual, rows, cols);
    NCCL(ncclGroupStart());
    if (up >= 0) {
      NCCL(ncclSend(b + cols, cols, ncclFloat, up, comm, stream));
      NCCL(ncclRecv(b, cols, ncclFloat, up, comm, stream));
    }
    if (down < size) {
      NCCL(ncclSend(b + rows * cols, cols, ncclFloat, down, comm, stream));
      NCCL(ncclRecv(b + (rows + 1) * cols, cols, ncclFloat, down, comm, stream));
    }
    NCCL(ncclGroupEnd());
    if (it % 100 == 0) {
      NCCL(ncclAllReduce(residual, sum, 1, ncclFloat, ncclSum, comm, stream));
      float value = 0;
      CUDA(cudaMemcpyAsync(&value, sum, sizeof value, cudaMemcpyDeviceToHost, stream));
      CUDA(cudaStreamSynchronize(stream));
      if (rank == 0 && it % 500 == 0) {
        printf("iteration %d residual %.3f\n", it, value);
        fflush(stdout);
      }
      usleep(20000);
    }
    float* t = a;
    a = b;
    b = t;
  }
  CUDA(cudaStreamSynchronize(stream));
  ncclCommDestroy(comm);
  if (rank == 0) printf("converged run finished after %d iterations on %d ranks\n", iterations, size);
  MPI_Finalize();
  return 0;
}
