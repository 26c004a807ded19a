"""A small job of repeated steps: all_reduce over all ranks if PyTorch and GPUs are available, else an idle loop. Started
by zoo/*.py; ends by itself after `--seconds`."""

import argparse
import os
import sys
import time


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--ready", help="a file that rank 0 makes after its first step")
    parser.add_argument("--illegal-access", type=int, default=-1, help="rank that writes to a foreign address")
    args = parser.parse_args()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    step = None
    if os.environ.get("ZOO_GPUS", "0") != "0":
        import torch
        import torch.distributed as dist

        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
        data = torch.ones(1 << 20, device="cuda")

        def step():
            dist.all_reduce(data)
            data.fill_(1)
            torch.cuda.synchronize()

        if args.illegal_access == rank:
            step()
            import ctypes

            wild_write(torch, ctypes)
    end = time.monotonic() + args.seconds
    first = True
    while time.monotonic() < end:
        if step:
            step()
        if first and rank == 0 and args.ready:
            open(args.ready, "w").close()
        first = False
        time.sleep(0.05)
    # Peers may be stopped or gone: exit without cleanup.
    sys.stdout.flush()
    os._exit(0)


def wild_write(torch, ctypes):
    """A kernel that writes to an unmapped address: the driver logs Xid 31 and ends the context."""
    source = b'extern "C" __global__ void wild(int *p) { p[threadIdx.x] = 1; }'
    nvrtc = ctypes.CDLL(find("libnvrtc.so"))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    major, minor = torch.cuda.get_device_capability()
    option = f"--gpu-architecture=compute_{major}{minor}".encode()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"wild.cu", 0, None, None) == 0
    assert nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option)) == 0
    nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetPTX(program, ptx)
    cuda = ctypes.CDLL("libcuda.so.1")
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"wild") == 0
    address = ctypes.c_void_p(0x1000)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(address), ctypes.c_void_p))
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, None, arguments, None)
    torch.cuda.synchronize()


def find(name):
    """A CUDA library from PyTorch's installation, else the system's."""
    import glob

    import torch

    folders = [os.path.join(os.path.dirname(torch.__file__), "lib"), *glob.glob(
        os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia", "*", "lib")
    ), "/usr/local/cuda/lib64"]
    found = [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, name + "*")))]
    plain = [path for path in found if "builtins" not in path and "alt" not in path]
    return plain[0] if plain else name


if __name__ == "__main__":
    main()
