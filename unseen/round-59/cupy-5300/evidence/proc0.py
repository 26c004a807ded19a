import pickle
import cupy as cp
import cupy.cuda.nccl

rank = 0
uid = cp.cuda.nccl.get_unique_id()
with open('uid.pkl', 'wb') as f:
    pickle.dump(uid, f)
comm = cp.cuda.nccl.NcclCommunicator(2, uid, rank)     # <- fails here
# with cp.cuda.Device(rank):
#     a = cp.arange(3, dtype=cp.float32)
#     comm.send(a.data.ptr, a.size, cp.cuda.nccl.NCCL_FLOAT32, 1, cp.cuda.Stream.null.ptr)
