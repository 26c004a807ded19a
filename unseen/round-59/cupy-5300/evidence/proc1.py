import pickle
import cupy as cp
import cupy.cuda.nccl

rank = 1
with open('uid.pkl', 'rb') as f:
    uid = pickle.load(f)
comm = cp.cuda.nccl.NcclCommunicator(2, uid, rank)     # <- fails here
# with cp.cuda.Device(rank):
#     b = cp.zeros(3, dtype=cp.float32)
#     comm.recv(b.data.ptr, b.size, cp.cuda.nccl.NCCL_FLOAT32, 0, cp.cuda.Stream.null.ptr)
