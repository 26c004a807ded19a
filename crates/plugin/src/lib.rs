//! NCCL's profiler plugin: a guest in somebody's job.
