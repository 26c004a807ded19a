"""Faults of a rank's GPU program. NVRTC, which PyTorch installs, compiles the kernels."""

import ctypes
import glob
import os

SOURCE = b"""
extern "C" __global__ void spin(unsigned long long ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - begin < ns);
}
extern "C" __global__ void scatter(unsigned long long at) { ((int *)at)[threadIdx.x] = 1; }
"""

# An endless kernel, which ends after ten minutes as a last resort.
ENDLESS_NS = 600 * 10**9


class Kernels:
    """Compiled and loaded at the start, because loading a module may wait for running kernels."""

    def __init__(self):
        import torch

        torch.cuda.current_stream().synchronize()
        nvrtc = ctypes.CDLL(find("libnvrtc.so"))
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        major, minor = torch.cuda.get_device_capability()
        option = f"--gpu-architecture=compute_{major}{minor}".encode()
        said = nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"step.cu", 0, None, None)
        said = said or nvrtc.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(option))
        said = said or nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
        ptx = ctypes.create_string_buffer(max(size.value, 1))
        said = said or nvrtc.nvrtcGetPTX(program, ptx)
        if said:
            raise RuntimeError(f"NVRTC says {said}")
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.module = ctypes.c_void_p()
        self.must(self.cuda.cuModuleLoadData(ctypes.byref(self.module), ptx))
        self.functions = {}
        for name in ("spin", "scatter"):
            function = ctypes.c_void_p()
            self.must(self.cuda.cuModuleGetFunction(ctypes.byref(function), self.module, name.encode()))
            self.functions[name] = function
        # Otherwise it would be loaded at the first launch.
        self.launch("spin", 1000)
        torch.cuda.current_stream().synchronize()

    def must(self, said):
        if said:
            raise RuntimeError(f"CUDA's driver says {said}")

    def launch(self, name, number, stream=None):
        import torch

        stream = stream or torch.cuda.current_stream()
        value = ctypes.c_uint64(number)
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(value), ctypes.c_void_p))
        handle = ctypes.c_void_p(stream.cuda_stream)
        self.must(self.cuda.cuLaunchKernel(self.functions[name], 1, 1, 1, 32, 1, 1, 0, handle, arguments, None))


def find(name):
    """A CUDA library from PyTorch's installation, else the system's."""
    import torch

    here = os.path.dirname(torch.__file__)
    folders = [f"{here}/lib", *glob.glob(f"{os.path.dirname(here)}/nvidia/*/lib"), "/usr/local/cuda/lib64"]
    found = [path for folder in folders for path in sorted(glob.glob(os.path.join(folder, name + "*")))]
    plain = [path for path in found if "builtins" not in path and "alt" not in path]
    return plain[0] if plain else name


NEEDS_KERNELS = ("illegal-access", "endless-kernel", "cuda-call", "slow-gpu")


def grow_cache(job, step):
    import torch

    job.cache = torch.empty(1 << 42, dtype=torch.uint8, device=job.device)


def gather_rows(job, step):
    """Writes to an unmapped address; the error appears at the host's next synchronisation."""
    job.kernels.launch("scatter", 0x1000)


def embed(job, step):
    """An index out of range: PyTorch's own kernel asserts."""
    import torch

    table = torch.zeros(16, device=job.device)
    job.cache = table[torch.tensor([3, 99], device=job.device)]


def fused_step(job, step):
    """An endless kernel in the stream of the step. The host continues and launches the collectives."""
    job.kernels.launch("spin", ENDLESS_NS)


def prefetch(job, step):
    """The same in a separate stream, for which the host waits."""
    import torch

    job.side = torch.cuda.Stream()
    job.kernels.launch("spin", ENDLESS_NS, job.side)
    job.side.synchronize()


def slow_step(job, step):
    job.kernels.launch("spin", 250 * 10**6)


MISFORTUNES = {
    "cuda-oom": grow_cache,
    "illegal-access": gather_rows,
    "device-assert": embed,
    "endless-kernel": fused_step,
    "cuda-call": prefetch,
    "slow-gpu": slow_step,
}
