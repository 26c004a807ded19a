// two processes, one V100 each
if (rank == 0) {
  NCCLCHECK(ncclSend(x0, N, ncclFloat, 1, comm, s));
  NCCLCHECK(ncclRecv(y0, N, ncclFloat, 1, comm, s));
} else {
  NCCLCHECK(ncclSend(x1, N, ncclFloat, 0, comm, s));
  NCCLCHECK(ncclRecv(y1, N, ncclFloat, 0, comm, s));
}
CUDACHECK(cudaStreamSynchronize(s));
printf("[%d] exchanged\n", rank);
