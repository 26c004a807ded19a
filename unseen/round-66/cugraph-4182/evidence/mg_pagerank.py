import time
from dask_cuda import LocalCUDACluster
from dask.distributed import Client
import dask_cudf, cugraph
import cugraph.dask as dcg
import cugraph.dask.comms.comms as Comms

if __name__ == "__main__":
    cluster = LocalCUDACluster()
    client = Client(cluster)
    Comms.initialize(p2p=True)
    w = list(client.scheduler_info()["workers"])
    print("workers:", len(w), w)
    e = dask_cudf.read_csv("/data/edges.csv", chunksize="512MB", delimiter=" ",
                           names=["src", "dst"], dtype=["int32", "int32"])
    print("edges", len(e))
    g = cugraph.Graph(directed=True)
    g.from_dask_cudf_edgelist(e, source="src", destination="dst")
    t = time.time()
    pr = dcg.pagerank(g).compute()
    print("pagerank %.2f s" % (time.time() - t))
    print("sum of ranks %.7f" % pr["pagerank"].sum())
    top = pr.nlargest(1, "pagerank")
    print("largest", int(top["vertex"].iloc[0]), "%.7f" % top["pagerank"].iloc[0])
    Comms.destroy()
    client.close()
    cluster.close()
