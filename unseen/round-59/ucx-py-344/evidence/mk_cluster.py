from dask_cuda import LocalCUDACluster

if __name__ == "__main__":
    cluster = LocalCUDACluster(protocol="ucx", enable_nvlink=True, enable_tcp_over_ucx=True)
    print(cluster)
