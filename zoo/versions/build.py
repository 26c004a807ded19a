"""Turns the given NCCL sources and libraries into folders with `libnccl.so.2`: finds, unpacks, builds."""

import lzma
import os
import re
import shutil
import subprocess
import tarfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Kernels of the ring for the functions and types that `job.cc` calls.
FUNCTIONS = (
    "AllReduce Sum f32 RING (LL|SIMPLE)|(Broadcast|AllGather|AllGatherV) RING (LL|SIMPLE)|"
    "ReduceScatter Sum f32 RING (LL|SIMPLE)|SendRecv"
)
# For a quick build: little optimisation, no symmetric kernels. File, pattern, replacement.
QUICK = [
    ("makefiles/common.mk", r"-O3 -g", "-O1"),
    ("makefiles/common.mk", r"NVCUFLAGS \+= -O3", "NVCUFLAGS += -O1"),
    ("src/device/symmetric/generate.py", r"(?m)^def enumerate_kernels\(\):$", "def enumerate_kernels():\n  return"),
]
# NCCL before 2.27 predates CUDA 13: C++17, versioned names only, edge data everywhere.
CUDA_13 = [
    ("makefiles/common.mk", r"-std=c\+\+11", "-std=c++17"),
    ("makefiles/common.mk", r"-I \$\(CUDA_INC\) ", "-I $(CUDA_INC) -I $(CUDA_INC)/cccl "),
    ("src/include/cudawrap.h", r"extern PFN_##symbol pfn_##symbol", "extern decltype(&symbol) pfn_##symbol"),
    ("src/misc/cudawrap.cc", r"\) PFN_##symbol pfn_##symbol", ") decltype(&symbol) pfn_##symbol"),
    ("src/misc/cudawrap.cc", r"cudaGetDriverEntryPoint\((#symbol, [^,]+), cudaEnableDefault, &driverStatus",
     r"cudaGetDriverEntryPointByVersion(\1, CUDART_VERSION, cudaEnableDefault, &driverStatus"),
    ("src/proxy.cc", r"NULL, 0, CU_CTX_SCHED", "NULL, CU_CTX_SCHED"),
    ("src/misc/strongstream.cc", r"cudaStreamGetCaptureInfo_v2\((.*), ([^,()]+)\)", r"cudaStreamGetCaptureInfo(\1, nullptr, \2)"),
    ("src/misc/strongstream.cc", r"cudaStreamUpdateCaptureDependencies\(([^,]+), ([^,]+),",
     r"cudaStreamUpdateCaptureDependencies(\1, \2, nullptr,"),
    ("src/misc/strongstream.cc", r"cudaGraphAddDependencies\((.*), 1\)", r"cudaGraphAddDependencies(\1, nullptr, 1)"),
    ("src/misc/strongstream.cc", r"(cudaGraphAddDependencies|cudaStreamUpdateCaptureDependencies)_v2\(", r"\1("),
    ("src/misc/strongstream.cc", r"cudaStreamGetCaptureInfo_v3\(", "cudaStreamGetCaptureInfo("),
]  # fmt: skip


def cuda_home():
    nvcc = shutil.which("nvcc")
    return Path(os.environ.get("CUDA_HOME") or (Path(nvcc).resolve().parent.parent if nvcc else "/usr/local/cuda"))


def cuda_major():
    said = subprocess.run([str(cuda_home() / "bin/nvcc"), "--version"], capture_output=True, text=True).stdout
    found = re.search(r"release (\d+)", said)
    return int(found.group(1)) if found else 0


def architecture():
    """Compute capability of the first GPU, e.g. 90."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        said = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout
    except OSError:
        said = ""
    return said.split()[0].replace(".", "") if said.split() else "90"


def is_source(folder):
    return (folder / "src/nccl.h.in").exists()


def library_in(folder):
    return next((path for path in (folder / "libnccl.so.2", folder / "lib/libnccl.so.2") if path.exists()), None)


def find(given, scratch):
    """Sources and libraries; unpacks archives."""
    sources, libraries = [], []
    for number, path in enumerate(given):
        path = path.resolve()
        if path.is_dir():
            if is_source(path):
                sources.append(path)
            elif library_in(path):
                libraries.append(library_in(path))
            else:
                inside = [one for one in sorted(path.iterdir()) if one.is_dir() or ".so" in one.name or ".tar" in one.name]
                more = find(inside, scratch / f"given-{number}")
                sources += more[0]
                libraries += more[1]
        elif ".tar" in path.name:
            target = scratch / f"given-{number}" / path.name.split(".tar")[0]
            target.mkdir(parents=True)
            with tarfile.open(path) as archive:
                archive.extractall(target)  # noqa: S202 - the caller's own archive
            more = find([target], target / "inside")
            sources += more[0]
            libraries += more[1]
        elif path.name.endswith(".xz"):
            target = scratch / f"given-{number}" / path.name.removesuffix(".xz") / "libnccl.so.2"
            target.parent.mkdir(parents=True)
            with lzma.open(path) as packed, open(target, "wb") as to:
                shutil.copyfileobj(packed, to, 1 << 20)
            libraries.append(target)
        elif ".so" in path.name:
            libraries.append(path)
    return sources, libraries


def version_of(library):
    """The version from the library itself, in a separate process, since two libraries cannot share one."""
    code = f"import ctypes; v = ctypes.c_int(); ctypes.CDLL({str(library)!r}).ncclGetVersion(ctypes.byref(v)); print(v.value)"
    said = subprocess.run(["python3", "-c", code], capture_output=True, text=True, timeout=60)
    number = int(said.stdout or 0)
    return (number // 10000, number // 100 % 100, number % 100) if number else None


def version_of_source(folder):
    text = (folder / "makefiles/version.mk").read_text()
    return tuple(int(re.search(rf"NCCL_{part}\s*:=\s*(\d+)", text).group(1)) for part in ("MAJOR", "MINOR", "PATCH"))


def adapt(folder, version, cuda):
    for name, pattern, replacement in QUICK + (CUDA_13 if cuda >= 13 and version < (2, 27) else []):
        path = folder / name
        if path.exists():
            path.write_text(re.sub(pattern, replacement, path.read_text()))


def make(folder, log, gpu, jobs, seconds):
    """Builds the library from a patched source; returns the reason if that fails."""
    home = cuda_home()
    libraries = home / "lib64" if (home / "lib64").is_dir() else home / "lib"
    command = ["make", f"-j{jobs}", "-C", str(folder / "src"), "lib", f"BUILDDIR={folder / 'build'}", f"CUDA_HOME={home}", f"CUDA_LIB={libraries}",
               f"NVCC_GENCODE=-gencode=arch=compute_{gpu},code=sm_{gpu}", f"ONLY_FUNCS={FUNCTIONS}"]  # fmt: skip
    with open(log, "wb") as to:
        process = subprocess.Popen(command, stdout=to, stderr=to, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # its own session: make and its children
            process.wait()
            return "out of time"
    if code == 0:
        return None
    lines = [line for line in log.read_text(errors="replace").splitlines() if "error" in line.lower()]
    return (lines or ["?"])[0][-300:]


def all_of(given, scratch, seconds, only=None):
    """Folders of libraries by version, a folder with `nccl.h`, and failed builds with the reason."""
    sources, found = find(given, scratch)
    libraries, failed, header = {}, {}, None
    for library in found:
        version = version_of(library)
        if version is None:
            failed[str(library)] = "it does not tell its version"
        else:
            libraries.setdefault(version, library.parent)
            include = library.parent.parent / "include"
            header = header or (include if (include / "nccl.h").exists() else None)
    wanted = [(version_of_source(source), source) for source in sources]
    wanted = {version: source for version, source in wanted if version not in libraries}
    if only:
        wanted = {version: source for version, source in wanted.items() if ".".join(map(str, version)) in only}
        libraries = {version: folder for version, folder in libraries.items() if ".".join(map(str, version)) in only}
    cuda, gpu, end = cuda_major() if wanted else 0, architecture() if wanted else "", time.monotonic() + seconds
    jobs = max(1, (os.cpu_count() or 1) * 3 // 2 // max(1, len(wanted)))

    def one(version, source):
        name = ".".join(map(str, version))
        folder = scratch / f"nccl-{name}"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("build", ".git"))
        adapt(folder, version, cuda)
        why = make(folder, scratch / f"build-{name}.log", gpu, jobs, max(1.0, end - time.monotonic()))
        if why:
            failed[name] = why
        else:
            libraries[version] = folder / "build/lib"
            print(f"built {name}", flush=True)

    threads = [threading.Thread(target=one, args=both) for both in wanted.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for version in wanted:
        if version in libraries:
            header = header or libraries[version].parent / "include"
    return libraries, header, failed


def job(scratch, include, library):
    """Builds `job.cc`. Any version's header works: all versions have these functions."""
    cuda, target = cuda_home(), scratch / "job"
    here = next(library.glob("libnccl.so.2"))
    command = ["g++", "-O1", str(HERE / "job.cc"), "-o", str(target), f"-I{cuda / 'include'}", f"-I{include}",
               f"-L{cuda / 'lib64'}", "-lcudart_static", str(here), "-ldl", "-lrt", "-lpthread"]  # fmt: skip
    subprocess.run(command, check=True, timeout=120)
    return target


