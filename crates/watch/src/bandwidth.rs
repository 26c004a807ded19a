//! Bus bandwidth by the factors of NCCL's tests.
