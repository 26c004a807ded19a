//! A running job followed: digests joined, rhythm, states of ranks, who is late. Pure: time comes in as an argument.

pub mod digest;
