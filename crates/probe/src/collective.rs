//! The collectives of nccl-tests: how much each rank sends and receives for a size, and what its bus bandwidth is.
//!
//! Source: NVIDIA/nccl-tests 2.19, doc/PERFORMANCE.md and the *GetCollByteCount functions.

use crate::sys::{CommHandle, DataType, LibraryError, Stream};

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Collective {
    /// Every rank gets the combination of all.
    AllReduce,
    /// Every rank gets what each has.
    AllGather,
    /// Every rank gets a piece of the combination of all.
    ReduceScatter,
    /// Every rank gets what the root has.
    Broadcast,
    /// The root gets the combination of all.
    Reduce,
    /// Every rank sends a piece to each.
    AllToAll,
    /// The root gets what each has.
    Gather,
    /// Every rank gets a piece of what the root has.
    Scatter,
    /// Every rank sends to the next and receives from the one before.
    SendRecv,
    /// An all_gather by pairs, over the bits of the rank.
    HyperCube,
    /// Every rank sends a piece to each, the more the farther: nccl-tests' default pattern.
    AllToAllV,
}

/// How much one call moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// The count of the call, elements.
    pub param: usize,
    /// What a rank sends, elements.
    pub send: usize,
    /// What a rank receives, elements.
    pub recv: usize,
    /// What nccl-tests prints as the size, bytes: the larger of the two.
    pub size_bytes: usize,
    /// Elements of 16 bytes.
    pub unit: usize,
}

impl Counts {
    /// What each rank sends to the one that comes so many ranks after it in an uneven all-to-all, elements.
    pub fn uneven(self, distance: usize, n_ranks: usize) -> usize {
        uneven(self.param, self.unit, distance, n_ranks)
    }
}

/// As [`Counts::uneven`]: the share is in proportion to the distance, cut to 16 bytes; a single rank sends all to itself.
fn uneven(param: usize, unit: usize, distance: usize, n_ranks: usize) -> usize {
    let all = param * n_ranks;
    let distances = n_ranks * n_ranks.saturating_sub(1) / 2;
    let part = (all * distance).checked_div(distances).unwrap_or(all);
    part / unit * unit
}

impl Collective {
    /// All.
    pub const ALL: [Self; 11] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::SendRecv,
        Self::HyperCube,
        Self::AllToAllV,
    ];

    /// nccl-tests' name, without `_perf`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllToAll => "alltoall",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendRecv => "sendrecv",
            Self::HyperCube => "hypercube",
            Self::AllToAllV => "alltoallv",
        }
    }

    /// By its name, with or without underscores and `_perf`, in any case.
    pub fn by_name(name: &str) -> Option<Self> {
        let plain = |name: &str| {
            let name: String =
                name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
            name.strip_suffix("perf").map(str::to_owned).unwrap_or(name)
        };
        let name = plain(name);
        Self::ALL.into_iter().find(|collective| plain(collective.name()) == name)
    }

    /// Whether values are combined.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::ReduceScatter | Self::Reduce)
    }

    /// Whether there is a root.
    pub fn has_root(self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce | Self::Gather | Self::Scatter)
    }

    /// Whether a call in place leaves the right result. nccl-tests times the others in place all the same.
    pub fn is_right_in_place(self) -> bool {
        !matches!(self, Self::AllToAll | Self::AllToAllV | Self::SendRecv)
    }

    /// Whether this many ranks can do it.
    pub fn fits(self, n_ranks: usize) -> bool {
        self != Self::HyperCube || n_ranks.is_power_of_two()
    }

    /// What a call of this size moves. Pieces of a rank are cut to 16 bytes, as nccl-tests does.
    pub fn counts(self, size_bytes: usize, dtype: DataType, n_ranks: usize) -> Counts {
        let n = n_ranks.max(1);
        let total = size_bytes / dtype.size();
        let unit = 16 / dtype.size();
        let piece = total / n / unit * unit;
        let (param, send, recv) = match self {
            Self::AllReduce | Self::Broadcast | Self::Reduce | Self::SendRecv => (total, total, total),
            Self::AllGather | Self::Gather | Self::HyperCube => (piece, piece, piece * n),
            Self::ReduceScatter | Self::Scatter => (piece, piece * n, piece),
            Self::AllToAll => (piece, piece * n, piece * n),
            Self::AllToAllV => {
                let all = (0..n).map(|distance| uneven(piece, unit, distance, n)).sum();
                (piece, all, all)
            }
        };
        Counts { param, send, recv, size_bytes: send.max(recv) * dtype.size(), unit }
    }

    /// Bus bandwidth over algorithm bandwidth.
    pub fn bus_factor(self, n_ranks: usize) -> f64 {
        let n = n_ranks.max(1) as f64;
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::AllToAllV
            | Self::Gather
            | Self::Scatter => (n - 1.0) / n,
            Self::Broadcast | Self::Reduce | Self::SendRecv | Self::HyperCube => 1.0,
        }
    }

    /// Bytes that the algorithm bandwidth counts for a call.
    pub fn counted_bytes(self, counts: Counts, dtype: DataType, n_ranks: usize) -> usize {
        match self {
            Self::HyperCube => counts.param * dtype.size() * n_ranks.saturating_sub(1),
            Self::AllReduce | Self::Broadcast | Self::Reduce | Self::SendRecv => counts.param * dtype.size(),
            Self::AllToAllV => counts.send * dtype.size(),
            _ => counts.param * n_ranks * dtype.size(),
        }
    }

    /// Where the sent buffer starts within the received one in a call in place, elements; the other way round for
    /// [`Collective::ReduceScatter`] and [`Collective::Scatter`], whose larger buffer is the sent one.
    pub fn in_place_offset(self, counts: Counts, rank: usize) -> usize {
        match self {
            Self::AllGather | Self::ReduceScatter | Self::Gather | Self::Scatter | Self::HyperCube => {
                counts.param * rank
            }
            _ => 0,
        }
    }
}

/// One call of a rank, without its addresses.
#[derive(Clone, Copy, Debug)]
pub struct CollectiveCall {
    /// Which.
    pub collective: Collective,
    /// Count of the call, elements.
    pub n: usize,
    /// Type of the elements.
    pub dtype: DataType,
    /// Number of the operation in this communicator.
    pub op: i32,
    /// The root, where there is one.
    pub root: usize,
    /// This rank.
    pub rank: usize,
    /// Ranks.
    pub n_ranks: usize,
}

impl CollectiveCall {
    /// Queues it.
    ///
    /// # Errors
    /// If NCCL refuses.
    pub fn queue(&self, comm: &CommHandle, from: u64, to: u64, on: &Stream) -> Result<(), LibraryError> {
        let Self { n, dtype, op, root, rank, n_ranks, .. } = *self;
        let bytes = (n * dtype.size()) as u64;
        match self.collective {
            Collective::AllReduce => comm.all_reduce(from, to, n, dtype, op, on),
            Collective::AllGather => comm.all_gather(from, to, n, dtype, on),
            Collective::ReduceScatter => comm.reduce_scatter(from, to, n, dtype, op, on),
            Collective::Broadcast => comm.broadcast(from, to, n, dtype, root, on),
            Collective::Reduce => comm.reduce(from, to, n, dtype, op, root, on),
            Collective::AllToAll => match comm.all_to_all(from, to, n, dtype, on) {
                Some(done) => done,
                None => group(comm, || {
                    (0..n_ranks).try_for_each(|peer| {
                        comm.send(from + peer as u64 * bytes, n, dtype, peer, on)?;
                        comm.recv(to + peer as u64 * bytes, n, dtype, peer, on)
                    })
                }),
            },
            Collective::Gather => match comm.gather(from, to, n, dtype, root, on) {
                Some(done) => done,
                None => group(comm, || {
                    comm.send(from, n, dtype, root, on)?;
                    let peers = if rank == root { n_ranks } else { 0 };
                    (0..peers).try_for_each(|peer| comm.recv(to + peer as u64 * bytes, n, dtype, peer, on))
                }),
            },
            Collective::Scatter => match comm.scatter(from, to, n, dtype, root, on) {
                Some(done) => done,
                None => group(comm, || {
                    let peers = if rank == root { n_ranks } else { 0 };
                    (0..peers)
                        .try_for_each(|peer| comm.send(from + peer as u64 * bytes, n, dtype, peer, on))?;
                    comm.recv(to, n, dtype, root, on)
                }),
            },
            Collective::SendRecv => group(comm, || {
                comm.send(from, n, dtype, (rank + 1) % n_ranks, on)?;
                comm.recv(to, n, dtype, (rank + n_ranks - 1) % n_ranks, on)
            }),
            Collective::HyperCube => {
                // Its own piece first, then what it has by pairs.
                if from != to + rank as u64 * bytes {
                    on.copy(to + rank as u64 * bytes, from, n * dtype.size())?;
                }
                let mut mask = 1;
                while mask < n_ranks {
                    let peer = rank ^ mask;
                    let start = |rank: usize| (rank & !(mask - 1)) as u64 * bytes;
                    group(comm, || {
                        comm.send(to + start(rank), n * mask, dtype, peer, on)?;
                        comm.recv(to + start(peer), n * mask, dtype, peer, on)
                    })?;
                    mask <<= 1;
                }
                Ok(())
            }
            Collective::AllToAllV => self.uneven(comm, (from, to), on),
        }
    }

    fn uneven(
        &self,
        comm: &CommHandle,
        (mut from, mut to): (u64, u64),
        on: &Stream,
    ) -> Result<(), LibraryError> {
        let Self { n, dtype, rank, n_ranks, .. } = *self;
        let part = |distance| uneven(n, 16 / dtype.size(), distance % n_ranks, n_ranks);
        group(comm, || {
            for peer in 0..n_ranks {
                let (sent, received) = (part(peer + n_ranks - rank), part(rank + n_ranks - peer));
                if sent > 0 {
                    comm.send(from, sent, dtype, peer, on)?;
                    from += (sent * dtype.size()) as u64;
                }
                if received > 0 {
                    comm.recv(to, received, dtype, peer, on)?;
                    to += (received * dtype.size()) as u64;
                }
            }
            Ok(())
        })
    }
}

fn group(comm: &CommHandle, calls: impl FnOnce() -> Result<(), LibraryError>) -> Result<(), LibraryError> {
    comm.nccl().group_start()?;
    let queued = calls();
    let ended = comm.nccl().group_end();
    queued.and(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_bandwidth_is_nccl_tests_own() {
        let check = |collective: Collective, n, factor: f64| {
            assert!((collective.bus_factor(n) - factor).abs() < 1e-12, "{collective:?}");
        };
        check(Collective::AllReduce, 8, 1.75);
        check(Collective::AllReduce, 2, 1.0);
        check(Collective::AllGather, 4, 0.75);
        check(Collective::ReduceScatter, 4, 0.75);
        check(Collective::AllToAll, 2, 0.5);
        check(Collective::Broadcast, 8, 1.0);
        check(Collective::SendRecv, 8, 1.0);
    }

    #[test]
    fn pieces_are_cut_to_16_bytes() {
        let counts = Collective::AllGather.counts(100, DataType::F32, 2);
        assert_eq!(counts, Counts { param: 12, send: 12, recv: 24, size_bytes: 96, unit: 4 });
        let counts = Collective::AllToAll.counts(16, DataType::F32, 2);
        assert_eq!(counts, Counts { param: 0, send: 0, recv: 0, size_bytes: 0, unit: 4 });
        let counts = Collective::AllReduce.counts(100, DataType::F32, 3);
        assert_eq!((counts.param, counts.size_bytes), (25, 100));
        let counts = Collective::HyperCube.counts(1 << 20, DataType::F32, 4);
        assert_eq!(Collective::HyperCube.counted_bytes(counts, DataType::F32, 4), 3 << 18);
    }

    #[test]
    fn farther_ranks_get_more() {
        let counts = Collective::AllToAllV.counts(24 << 10, DataType::F32, 4);
        let parts: Vec<usize> = (0..4).map(|distance| counts.uneven(distance, 4)).collect();
        assert_eq!(parts, [0, 1024, 2048, 3072]);
        assert_eq!((counts.send, counts.recv, counts.size_bytes), (6144, 6144, 24 << 10));
        assert_eq!(Collective::AllToAllV.counts(1000, DataType::F32, 1).send, 248);
        assert_eq!(Collective::AllToAllV.counted_bytes(counts, DataType::F32, 4), 24 << 10);
    }

    #[test]
    fn names_are_forgiving() {
        for name in ["all_reduce", "AllReduce", "all-reduce", "all_reduce_perf"] {
            assert_eq!(Collective::by_name(name), Some(Collective::AllReduce), "{name}");
        }
        assert_eq!(Collective::by_name("alltoall_perf"), Some(Collective::AllToAll));
        assert_eq!(Collective::by_name("all"), None);
    }
}
