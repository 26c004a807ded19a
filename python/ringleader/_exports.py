"""Settings that make the next failure diagnosable. Made by `cargo xtask gen`; do not edit."""

# name, reader, first release, first release that no longer counts, value ({dir}: the folder for evidence)
EXPORTS = [
    ("TORCH_FR_BUFFER_SIZE", "PyTorch", (2, 8, 0), None, "20000"),
    ("TORCH_NCCL_TRACE_BUFFER_SIZE", "PyTorch", (2, 2, 0), (2, 8, 0), "20000"),
    ("TORCH_NCCL_DUMP_ON_TIMEOUT", "PyTorch", (2, 2, 0), None, "1"),
    ("TORCH_FR_DUMP_TEMP_FILE", "PyTorch", (2, 8, 0), None, "{dir}/fr_rank_"),
    ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "PyTorch", (2, 2, 0), (2, 8, 0), "{dir}/fr_rank_"),
    ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "PyTorch", (2, 2, 0), None, "3"),
    ("PYTHONFAULTHANDLER", "Python", None, None, "1"),
    ("NCCL_DEBUG", "NCCL", None, None, "INFO"),
    ("NCCL_DEBUG_SUBSYS", "NCCL", None, None, "INIT,BOOTSTRAP,ENV,NET,GRAPH"),
    ("NCCL_DEBUG_FILE", "NCCL", None, None, "{dir}/nccl_%h_%p.log"),
    ("NCCL_DEBUG_TIMESTAMP_LEVELS", "NCCL", (2, 26, 0), None, "ALL"),
]
