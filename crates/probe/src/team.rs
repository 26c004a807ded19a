//! A thread for each GPU of this process, and how they and the other processes meet.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::sys::{CommHandle, LibraryError, Nccl, Stream, UniqueId, Wish};
use crate::world::Wire;

/// How often a wait checks whether another participant failed.
const LOOK: Duration = Duration::from_millis(200);
/// Turns of a spin before it lets other threads run.
const SPINS: u32 = 2_000;

/// What one thread knows of all.
#[derive(Clone, Copy)]
pub struct TeamMember<'a> {
    /// Rank in the whole run.
    pub rank: usize,
    /// Ranks of the whole run.
    pub n_ranks: usize,
    /// Number of its GPU among those visible to this process.
    pub device: usize,
    meeting: &'a Meeting,
}

/// Where the threads of a process meet, and through one of them the processes.
struct Meeting {
    n_local: usize,
    /// Rank of the first thread of this process.
    first: usize,
    state: Mutex<MeetingState>,
    changed: Condvar,
    is_broken: AtomicBool,
    arrived: AtomicUsize,
    released: AtomicUsize,
}

struct MeetingState {
    wire: Wire,
    given: Vec<Option<Vec<u8>>>,
    /// What the last round brought, until all have taken it.
    brought: Option<Vec<Vec<u8>>>,
    n_taken: usize,
}

/// Marks a run as broken if its thread ends by a panic or an error.
struct Watch<'a>(&'a Meeting, bool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.is_broken.store(true, Ordering::SeqCst);
            self.0.changed.notify_all();
        }
    }
}

/// Runs `work` once for each of these GPUs, each in a thread of its own. `first` is the rank of the first.
///
/// # Errors
/// The first error that is not a consequence of another's.
pub fn run<T: Send>(
    wire: Wire,
    (first, n_ranks): (usize, usize),
    devices: &[usize],
    work: impl Fn(TeamMember<'_>) -> Result<T, LibraryError> + Sync,
) -> Result<Vec<T>, LibraryError> {
    let meeting = Meeting {
        n_local: devices.len(),
        first,
        state: Mutex::new(MeetingState { wire, given: vec![None; devices.len()], brought: None, n_taken: 0 }),
        changed: Condvar::new(),
        is_broken: AtomicBool::new(false),
        arrived: AtomicUsize::new(0),
        released: AtomicUsize::new(0),
    };
    let (meeting, work) = (&meeting, &work);
    let ended: Vec<Result<T, LibraryError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = devices
            .iter()
            .enumerate()
            .map(|(n, device)| {
                scope.spawn(move || {
                    let mut watch = Watch(meeting, false);
                    let done = work(TeamMember { rank: first + n, n_ranks, device: *device, meeting });
                    watch.1 = done.is_ok();
                    done
                })
            })
            .collect();
        let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
        joined
            .map(|one| {
                one.unwrap_or_else(|_| Err(LibraryError::World("a thread of ringleader panicked".to_owned())))
            })
            .collect()
    });
    let mut aborted = None;
    let mut all = Vec::new();
    for one in ended {
        match one {
            Ok(value) => all.push(value),
            Err(LibraryError::Aborted) => aborted = Some(LibraryError::Aborted),
            Err(error) => return Err(error),
        }
    }
    aborted.map_or(Ok(all), Err)
}

impl TeamMember<'_> {
    /// Gives what this rank has, and gets what each has, by rank. Every rank must call it equally often.
    ///
    /// # Errors
    /// If another rank failed.
    pub fn exchange(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, LibraryError> {
        self.meeting.exchange(self.rank, own)
    }

    /// As [`TeamMember::exchange`], of numbers.
    ///
    /// # Errors
    /// If another rank failed, or gave another count of numbers.
    pub fn exchange_numbers(&self, own: &[f64]) -> Result<Vec<Vec<f64>>, LibraryError> {
        let bytes = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.exchange(bytes)?;
        Ok(all
            .iter()
            .map(|one| {
                one.chunks_exact(8).filter_map(|word| word.try_into().ok().map(f64::from_le_bytes)).collect()
            })
            .collect())
    }

    /// As [`TeamMember::exchange`], of whole numbers.
    ///
    /// # Errors
    /// If another rank failed.
    pub fn exchange_words(&self, own: &[u64]) -> Result<Vec<Vec<u64>>, LibraryError> {
        let bytes = own.iter().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.exchange(bytes)?;
        Ok(all
            .iter()
            .map(|one| {
                one.chunks_exact(8).filter_map(|word| word.try_into().ok().map(u64::from_le_bytes)).collect()
            })
            .collect())
    }

    /// Returns in all ranks at about the same moment: to the microsecond within a process.
    ///
    /// # Errors
    /// If another rank failed.
    pub fn line_up(&self) -> Result<(), LibraryError> {
        if self.meeting.n_local < self.n_ranks {
            self.exchange(Vec::new())?;
        }
        self.meeting.line_up()
    }

    /// Becomes a rank of a communicator of all.
    ///
    /// # Errors
    /// If NCCL cannot connect them, or another rank failed.
    pub fn communicator(&self, nccl: Nccl, wish: Wish) -> Result<CommHandle, LibraryError> {
        let everyone: Vec<usize> = (0..self.n_ranks).collect();
        let comm = self.group(nccl, &[everyone], wish)?;
        comm.ok_or_else(|| LibraryError::World("this rank is in no group".to_owned()))
    }

    /// Becomes a rank of the group of ranks that it is in, if any. All ranks call it with the same groups.
    ///
    /// # Errors
    /// If NCCL cannot connect them, or another rank failed.
    pub fn group(
        &self,
        nccl: Nccl,
        groups: &[Vec<usize>],
        wish: Wish,
    ) -> Result<Option<CommHandle>, LibraryError> {
        let leads = groups.iter().any(|group| group.first() == Some(&self.rank));
        let own = if leads { nccl.unique_id()?.bytes() } else { Vec::new() };
        let ids = self.exchange(own)?;
        let Some(group) = groups.iter().find(|group| group.contains(&self.rank)) else { return Ok(None) };
        let id = group.first().and_then(|lead| ids.get(*lead)).and_then(|bytes| UniqueId::from_bytes(bytes));
        let id = id.ok_or_else(|| LibraryError::World("the first rank of a group gave no id".to_owned()))?;
        let rank = group.iter().position(|rank| *rank == self.rank).unwrap_or_default();
        nccl.init(group.len(), id, rank, wish).map(Some)
    }

    /// Whether another rank of this process failed.
    pub fn is_broken(&self) -> bool {
        self.meeting.is_broken.load(Ordering::SeqCst)
    }

    /// Waits for a stream without ever waiting forever: NCCL's own errors and the deadline end it, and abort the
    /// communicator.
    ///
    /// # Errors
    /// What NCCL or the GPU says, or that the deadline passed.
    pub fn wait(&self, stream: &Stream, comm: &mut CommHandle, within: Duration) -> Result<(), LibraryError> {
        let start = Instant::now();
        let mut turns = 0u32;
        loop {
            if stream.is_done()? {
                return Ok(());
            }
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(SPINS) {
                let state = comm.check();
                let trouble = if state.is_err() {
                    state
                } else if self.is_broken() {
                    Err(LibraryError::Aborted)
                } else if start.elapsed() > within {
                    Err(LibraryError::Timeout { what: "a collective".to_owned(), seconds: within.as_secs() })
                } else {
                    std::thread::yield_now();
                    continue;
                };
                comm.abort();
                return trouble;
            }
            std::hint::spin_loop();
        }
    }
}

impl Meeting {
    fn exchange(&self, rank: usize, own: Vec<u8>) -> Result<Vec<Vec<u8>>, LibraryError> {
        let broken = || self.is_broken.load(Ordering::SeqCst);
        let lock = || self.state.lock().map_err(|_| LibraryError::Aborted);
        let mut state = lock()?;
        // The last round is over when all have taken what it brought.
        while state.brought.is_some() {
            if broken() {
                return Err(LibraryError::Aborted);
            }
            state = self.changed.wait_timeout(state, LOOK).map_err(|_| LibraryError::Aborted)?.0;
        }
        if let Some(slot) = state.given.get_mut(rank - self.first) {
            *slot = Some(own);
        }
        if state.given.iter().all(Option::is_some) {
            let mut joined = Vec::new();
            for one in state.given.iter_mut().filter_map(Option::take) {
                joined.extend((one.len() as u64).to_le_bytes());
                joined.extend(one);
            }
            let all = state.wire.exchange(&joined)?;
            let mut brought = Vec::new();
            for process in &all {
                let mut rest = &process[..];
                while let Some((length, after)) = rest.split_first_chunk::<8>() {
                    let length = u64::from_le_bytes(*length) as usize;
                    let (one, after) = after.split_at_checked(length).unwrap_or((after, &[]));
                    brought.push(one.to_vec());
                    rest = after;
                }
            }
            state.brought = Some(brought);
            self.changed.notify_all();
        }
        loop {
            if let Some(brought) = &state.brought {
                let out = brought.clone();
                state.n_taken += 1;
                if state.n_taken == self.n_local {
                    state.n_taken = 0;
                    state.brought = None;
                    self.changed.notify_all();
                }
                return Ok(out);
            }
            if broken() {
                return Err(LibraryError::Aborted);
            }
            state = self.changed.wait_timeout(state, LOOK).map_err(|_| LibraryError::Aborted)?.0;
        }
    }

    fn line_up(&self) -> Result<(), LibraryError> {
        let round = self.released.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 == self.n_local {
            self.arrived.store(0, Ordering::SeqCst);
            self.released.fetch_add(1, Ordering::SeqCst);
            return Ok(());
        }
        let mut turns = 0u32;
        while self.released.load(Ordering::SeqCst) == round {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(SPINS) {
                if self.is_broken.load(Ordering::SeqCst) {
                    return Err(LibraryError::Aborted);
                }
                std::thread::yield_now();
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_meet_again_and_again() {
        let sums = run(Wire::Alone, (0, 5), &[0, 1, 2, 3, 4], |member| {
            let mut sum = 0;
            for round in 0..100u64 {
                member.line_up()?;
                let all = member.exchange_words(&[member.rank as u64 * 1000 + round])?;
                assert_eq!(all.len(), 5);
                sum += all.iter().enumerate().map(|(n, one)| one[0] - n as u64 * 1000).sum::<u64>();
            }
            Ok(sum)
        });
        assert_eq!(sums.unwrap(), vec![5 * 4950; 5]);
    }

    #[test]
    fn one_that_fails_ends_all_with_its_own_error() {
        let ended: Result<Vec<()>, _> = run(Wire::Alone, (0, 3), &[0, 1, 2], |member| {
            member.exchange(vec![1])?;
            if member.rank == 1 {
                return Err(LibraryError::World("mine".to_owned()));
            }
            member.exchange(vec![2]).map(drop)
        });
        assert_eq!(ended, Err(LibraryError::World("mine".to_owned())));
        let ended: Result<Vec<()>, _> = run(Wire::Alone, (0, 2), &[0, 1], |member| {
            assert!(member.rank == 0, "planted");
            member.line_up()
        });
        assert!(ended.unwrap_err().to_string().contains("panicked"));
    }
}
