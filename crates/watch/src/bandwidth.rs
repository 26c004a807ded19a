//! Bus bandwidth by the factors of NCCL's tests, so that the number compares with what the hardware can do.
//!
//! Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md. What NCCL's profiler calls the count is that of one rank's call: for an
//! AllGather what each rank sends, for a ReduceScatter what each receives.

/// Bytes that cross a rank's slowest link for each byte of a rank's call.
pub fn factor(function: &str, n_ranks: u32) -> Option<f64> {
    let n = f64::from(n_ranks);
    if n_ranks < 2 {
        return None;
    }
    Some(match function {
        "AllReduce" => 2.0 * (n - 1.0) / n,
        // The whole is n times the call, of which a rank has one part already.
        "AllGather" | "ReduceScatter" | "Gather" | "Scatter" | "AlltoAll" | "AllToAll" => n - 1.0,
        "Broadcast" | "Reduce" | "Send" | "Recv" => 1.0,
        _ => return None,
    })
}

/// GB/s of a call of `bytes` that ran for `ns`.
pub fn bus_gbs(function: &str, n_ranks: u32, bytes: u64, ns: u64) -> Option<f64> {
    // Bytes a nanosecond are GB/s.
    factor(function, n_ranks).filter(|_| ns > 0).map(|f| f * bytes as f64 / ns as f64)
}

#[cfg(test)]
mod tests {
    use super::bus_gbs;

    #[test]
    fn as_the_tests_of_nccl_print_it() {
        // all_reduce_perf, 8 ranks, 1 GB in 4.2 ms: algbw 256, busbw 447.
        let all_reduce = bus_gbs("AllReduce", 8, 1 << 30, 4_200_000).unwrap();
        assert!((all_reduce - 447.4).abs() < 0.5, "{all_reduce}");
        // all_gather_perf of 1 GB in all: each of 8 ranks sends an eighth.
        let all_gather = bus_gbs("AllGather", 8, 1 << 27, 2_400_000).unwrap();
        assert!((all_gather - 391.5).abs() < 0.5, "{all_gather}");
        assert_eq!(bus_gbs("AllReduce", 1, 1, 1), None);
        assert_eq!(bus_gbs("AllReduce", 2, 1, 0), None);
    }
}
