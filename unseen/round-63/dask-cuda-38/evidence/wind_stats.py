import dask.array as da, numpy as np, xarray as xr
from dask.distributed import Client
from dask_cuda import LocalCUDACluster

if __name__ == '__main__':
    cluster = LocalCUDACluster()
    client = Client(cluster)
    ds = xr.open_mfdataset('wind_*.nc', chunks={'time': 500})
    out = np.sqrt(ds.u ** 2 + ds.v ** 2).groupby('time.month').mean()
    out.to_netcdf('stats.nc')
