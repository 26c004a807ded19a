# from ext/OceananigansNCCLExt/nccl_distributed.jl (installed version)
function _nccl_send_recv_dual!(comm, stream, west, east, west_rank, east_rank)
    NCCL.groupStart()
    NCCL.Send(west.send, comm; dest   = west_rank, stream)
    NCCL.Send(east.send, comm; dest   = east_rank, stream)
    NCCL.Recv!(west.recv, comm; source = west_rank, stream)
    NCCL.Recv!(east.recv, comm; source = east_rank, stream)
    NCCL.groupEnd()
end
