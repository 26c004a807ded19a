from dask_mpi import initialize
initialize(worker_class="dask_cuda.CUDAWorker", protocol="ucx",
           worker_options={"rmm_managed_memory": True}, local_directory="dask_tmp")
