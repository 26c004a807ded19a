template<typename xpu, typename DType>
void GlobalBNOp<xpu, DType>::InitComm(int devid) {
  // every BN layer owns a communicator over the 4 threads of this process
  commFor = (ncclComm_t*)malloc(sizeof(ncclComm_t));
  NCCLCHECK(ncclCommInitRank(commFor, param_.nGPUs, commUid, devid));
}
~GlobalBNOp() {
  ncclCommDestroy(*commFor);
  free(commFor);
}
