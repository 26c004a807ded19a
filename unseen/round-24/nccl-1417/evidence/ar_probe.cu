// fill: rank 0 has 1.0f everywhere, rank 1 has 2.0f; both buffers 8 MiB
struct { size_t c0, c1; } cases[] = {
    {4096, 4096}, {8192, 8192}, {100000, 60000}, {100000, 99999}, {1048576, 524288},
};
for (auto &c : cases) {
    size_t n = rank == 0 ? c.c0 : c.c1;
    NCCLCHECK(ncclAllReduce(send, recv, n, ncclFloat, ncclSum, comm, stream));
    CUDACHECK(cudaStreamSynchronize(stream));
    NCCLCHECK(ncclCommGetAsyncError(comm, &async));
    report(rank, recv, c.c0);
}
