// one communicator, one stream and one thread for each gradient channel; 16 ranks, 1 GPU a rank
struct Channel {
  int id; ncclComm_t comm; cudaStream_t stream; float *buf; std::thread th; Queue<int> q;

  void allreduceAndWait(size_t n) {                                    // line 84
    NCCLCHECK(ncclAllReduce(buf, buf, n, ncclFloat, ncclSum, comm, stream));
    CUDACHECK(cudaStreamSynchronize(stream));                          // line 88
    done[id].fetch_add(1);
  }
  void loop() { while (int n = q.pop()) allreduceAndWait(n); }         // line 103
};
...
  for (int c = 0; c < nChannels; c++) {        // nChannels = 128, an ncclUniqueId for each, broadcast by MPI
    if (rank == 0) ncclGetUniqueId(&id[c]);
    MPI_Bcast(&id[c], sizeof id[c], MPI_BYTE, 0, MPI_COMM_WORLD);
    NCCLCHECK(ncclCommInitRank(&ch[c].comm, nranks, id[c], rank));
    cudaStreamCreateWithFlags(&ch[c].stream, cudaStreamNonBlocking);
    ch[c].th = std::thread(&Channel::loop, &ch[c]);
  }
  for (int it = 0; it < iters; it++) for (int c = 0; c < nChannels; c++) ch[c].q.push(1 << 20);
