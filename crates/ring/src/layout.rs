//! The layout of the file. Everything is in little-endian words of eight bytes; positions are counted in words.
//!
//! Format 1.2. The header contains size and position of every region, and readers use the header. So a region may
//! grow, or its entries may get additional words at their end, with a new minor version only.

/// First word of a finished file, written last: `RLRING1` and a line feed.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RLRING1\n");
/// Readers refuse another major version.
pub(crate) const MAJOR: u64 = 1;
/// Newer minor versions only add.
pub(crate) const MINOR: u64 = 2;

/// One region: entries of equal size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region {
    /// Position of its first entry.
    pub(crate) at: usize,
    /// Words of one entry, including the tag.
    pub(crate) words: usize,
    /// Number of entries.
    pub(crate) entries: usize,
}

impl Region {
    const fn after(before: Self, words: usize, entries: usize) -> Self {
        Self { at: before.at + before.words * before.entries, words, entries }
    }

    /// Position of an entry; of the last one if the index is too large, so that no caller can leave the region.
    pub(crate) const fn entry(&self, index: usize) -> usize {
        let index = if index < self.entries { index } else { self.entries - 1 };
        self.at + index * self.words
    }
}

/// The header has two pages; the second one holds what changes often.
pub(crate) const HEADER: Region = Region { at: 0, words: 1024, entries: 1 };
/// Names that are missing from the lists of `names`: the tag and 31 bytes of text.
pub(crate) const NAMES: Region = Region::after(HEADER, 8, 64);
/// Communicators. Jobs with thousands of them create and end them in turn; few hold more than a hundred at once.
pub(crate) const COMMS: Region = Region::after(NAMES, 48, 512);
/// Words of one of its entries in format 1.0.
pub(crate) const COMM_WORDS_1_0: usize = 32;
/// Operations in flight: CUDA queues about a thousand launches, and a launch may hold many sends and receives.
pub(crate) const OPS: Region = Region::after(COMMS, 20, 4096);
/// Proxy operations in flight: one for each channel and direction of an operation that uses the network.
pub(crate) const WAITS: Region = Region::after(OPS, 16, 8192);
/// The journal of ended operations.
pub(crate) const JOURNAL: Region = Region::after(WAITS, 16, 8192);
/// Calls that are not followed: a ring like the journal, one cache line per call. Since format 1.1.
pub(crate) const CALLS: Region = Region::after(JOURNAL, 8, 8192);
/// Size of the file in words.
pub(crate) const FILE_WORDS: usize = CALLS.at + CALLS.words * CALLS.entries;
/// Size of the file in bytes. Small, because a container's /dev/shm has 64 MiB for all of its ranks.
pub const FILE_BYTES: usize = FILE_WORDS * 8;

/// Regions of every ring, in the order in which the header describes them; `CALLS` has header words of its own.
pub(crate) const REGIONS: [Region; 5] = [NAMES, COMMS, OPS, WAITS, JOURNAL];

/// Words of the header's first page.
pub(crate) mod head {
    pub(crate) const MAGIC: usize = 0;
    /// Major in the high half, minor in the low.
    pub(crate) const VERSION: usize = 1;
    pub(crate) const FILE_BYTES: usize = 2;
    /// Three words for each region: position, words of an entry, number of entries.
    pub(crate) const REGIONS: usize = 3;
    pub(crate) const PID: usize = 18;
    pub(crate) const START_TICKS: usize = 19;
    /// One more than the number, 0 if there is none; the same for the next two.
    pub(crate) const RANK: usize = 20;
    pub(crate) const LOCAL_RANK: usize = 21;
    pub(crate) const WORLD_SIZE: usize = 22;
    pub(crate) const INTERFACE: usize = 23;
    /// CLOCK_MONOTONIC and CLOCK_REALTIME at the moment when the file was made.
    pub(crate) const MADE_MONO: usize = 24;
    pub(crate) const MADE_UNIX: usize = 25;
    /// Added to the generation in every handle, so that handles of other processes are invalid here.
    pub(crate) const SEED: usize = 26;
    /// 32 hexadecimal digits.
    pub(crate) const BOOT_ID: usize = 32;
    pub(crate) const BOOT_ID_WORDS: usize = 4;
    pub(crate) const HOST: usize = 40;
    pub(crate) const HOST_WORDS: usize = 8;
    /// Only in an image: the time of the reading, and how many entries were torn.
    pub(crate) const TAKEN_MONO: usize = 48;
    pub(crate) const TAKEN_UNIX: usize = 49;
    pub(crate) const TORN: usize = 50;
    /// 1 if the ring's process did not hold it when it was read, 2 if it did.
    pub(crate) const HELD: usize = 51;
    /// Position, words of an entry and number of entries of the calls that are not followed; 0 in format 1.0.
    pub(crate) const CALLS: usize = 52;

    // The second page: one cache line each, because several threads write them.
    /// Entries ever added to the journal.
    pub(crate) const JOURNAL_HEAD: usize = 512;
    /// Communicators ever made.
    pub(crate) const COMMS_MADE: usize = 520;
    /// Live communicators.
    pub(crate) const COMMS_LIVE: usize = 528;
    /// Losses: communicators, operations, proxy operations, journal entries, faults.
    pub(crate) const LOST_COMMS: usize = 536;
    pub(crate) const LOST_OPS: usize = 537;
    pub(crate) const LOST_WAITS: usize = 538;
    pub(crate) const LOST_RECORDS: usize = 539;
    pub(crate) const FAULTS: usize = 540;
    /// When NCCL's reports of kernels were given up; 0 if they were not.
    pub(crate) const KERNELS_ENDED: usize = 541;
    /// Since format 1.2: one more than the exit code of the process, and when it called `exit`.
    pub(crate) const EXIT_CODE: usize = 542;
    pub(crate) const EXITED: usize = 543;
    /// Calls and groups of calls ever written that are not followed: on one line, because the same threads write
    /// both.
    pub(crate) const CALLS_HEAD: usize = 544;
    pub(crate) const CALL_GROUPS: usize = 545;
}

/// Words of a communicator after the tag. From `COLLECTIVES` on they change during its life.
pub(crate) mod comm {
    pub(crate) const ID: usize = 1;
    pub(crate) const NAME: usize = 2;
    pub(crate) const NAME_WORDS: usize = 8;
    /// Ranks in the low half, nodes in the high half.
    pub(crate) const SIZE: usize = 10;
    pub(crate) const RANK: usize = 11;
    pub(crate) const CREATED: usize = 12;
    /// 0 while it is live.
    pub(crate) const ENDED: usize = 13;
    /// Its number in the order of creation.
    pub(crate) const ORDER: usize = 14;
    /// See `Sight`.
    pub(crate) const SIGHT: usize = 15;
    pub(crate) const COLLECTIVES: usize = 16;
    pub(crate) const COLLECTIVES_DONE: usize = 17;
    pub(crate) const P2P: usize = 18;
    pub(crate) const P2P_DONE: usize = 19;
    pub(crate) const BYTES_DONE: usize = 20;
    pub(crate) const PROGRESS: usize = 21;
    /// Launches so far, and the newest launch with a kernel that was seen to start.
    pub(crate) const PLANS: usize = 22;
    pub(crate) const PLAN_STARTED: usize = 23;
    /// Handles of the newest operations whose end may never be reported.
    pub(crate) const UNSEEN: usize = 24;
    pub(crate) const UNSEEN_WORDS: usize = 7;
    /// Newest time of a call with a kernel that was seen to start.
    pub(crate) const STARTED_CALL: usize = 31;
    /// Since format 1.1: collectives that are not followed, sends and receives, and their bytes. Only the calling
    /// thread writes them.
    pub(crate) const PASSED: usize = 32;
    pub(crate) const PASSED_P2P: usize = 33;
    pub(crate) const PASSED_BYTES: usize = 34;
    /// One more than the place of the newest such call, and of the newest one whose group has ended.
    pub(crate) const LAST_PLACE: usize = 35;
    pub(crate) const LAST_HANDED: usize = 36;
    /// The newest such call, from `call::NUMBER` to `call::ENQUEUED`; it remains after its entry was overwritten.
    pub(crate) const LAST: usize = 40;
    /// As `LAST_PLACE`, but written before the words of the newest call: if the two differ, the words are
    /// inconsistent.
    pub(crate) const LAST_BEGUN: usize = 45;
}

/// Words of an operation after the tag.
pub(crate) mod op {
    /// Reference to its communicator: see `slot::reference`.
    pub(crate) const COMM: usize = 1;
    /// Number; the highest bit is set for point-to-point.
    pub(crate) const NUMBER: usize = 2;
    pub(crate) const CODES: usize = 3;
    pub(crate) const SEQUENCE: usize = 4;
    pub(crate) const COUNT: usize = 5;
    /// Root in the low half, peer in the high half; each is one more than the number.
    pub(crate) const RANKS: usize = 6;
    pub(crate) const ENQUEUED: usize = 7;
    pub(crate) const HANDED_OVER: usize = 8;
    pub(crate) const STARTED: usize = 9;
    /// See `progress`.
    pub(crate) const CONTROL: usize = 10;
    pub(crate) const OPEN: usize = 11;
    pub(crate) const GPU_STARTED: usize = 12;
    pub(crate) const GPU_ENDED: usize = 13;
    pub(crate) const LONGEST: usize = 14;
    pub(crate) const PLAN: usize = 15;
    /// Newest stop time of a channel or proxy.
    pub(crate) const STOPPED: usize = 16;
    /// Handle of the previous broadcast in the same group: for the writer only.
    pub(crate) const BEFORE: usize = 17;
}

/// Words of a proxy operation after the tag.
pub(crate) mod wait {
    /// Reference to its operation; 0 if the operation belongs to another process.
    pub(crate) const OP: usize = 1;
    /// Peer in the low half; bits 32 to 39 channel, bit 40 send.
    pub(crate) const WHAT: usize = 2;
    pub(crate) const PID: usize = 3;
    /// Wanted steps in the low half; open events of the network plugin in the high half.
    pub(crate) const STEPS: usize = 4;
    pub(crate) const DONE: usize = 5;
    pub(crate) const LONGEST: usize = 6;
    pub(crate) const STARTED: usize = 7;
    /// What each of the newest eight steps waits for: NCCL has at most eight open at once.
    pub(crate) const PHASES: usize = 8;
    pub(crate) const PHASES_WORDS: usize = 8;
}

/// Words of an ended operation after its sequence.
pub(crate) mod done {
    pub(crate) const COMM: usize = 1;
    pub(crate) const NUMBER: usize = 2;
    pub(crate) const CODES: usize = 3;
    pub(crate) const SEQUENCE: usize = 4;
    pub(crate) const COUNT: usize = 5;
    pub(crate) const RANKS: usize = 6;
    pub(crate) const ENQUEUED: usize = 7;
    pub(crate) const STARTED: usize = 8;
    pub(crate) const ENDED: usize = 9;
    pub(crate) const GPU_STARTED: usize = 10;
    pub(crate) const GPU_NS: usize = 11;
    pub(crate) const LONGEST: usize = 12;
    pub(crate) const FLAGS: usize = 13;
}

/// Words of a call that is not followed, after its sequence, which is as in the journal.
pub(crate) mod call {
    pub(crate) const COMM: usize = 1;
    pub(crate) const NUMBER: usize = 2;
    pub(crate) const CODES: usize = 3;
    pub(crate) const COUNT: usize = 4;
    /// Root in the low half, one more than the number; the group in the high half.
    pub(crate) const ROOT: usize = 5;
    pub(crate) const ENQUEUED: usize = 6;
    /// Whether its group has ended: see `journal::mark`.
    pub(crate) const STATE: usize = 7;
}

/// Highest bit of a number: a send or receive.
pub(crate) const P2P_BIT: u64 = 1 << 63;
/// Bit of the codes of an operation whose kernels and proxies NCCL was not asked to report.
pub(crate) const PASSED_OVER: u64 = 1 << 49;
/// `done::FLAGS`: the end was seen.
pub(crate) const END_SEEN: u64 = 1;

#[cfg(test)]
mod tests {
    use super::{CALLS, COMMS, FILE_BYTES, HEADER, JOURNAL, NAMES, OPS, WAITS};

    #[test]
    fn the_file_stays_small_and_tables_start_on_a_cache_line() {
        assert_eq!(FILE_BYTES, 8192 + 4096 + 196_608 + 655_360 + 1_048_576 + 1_048_576 + 524_288);
        for region in [HEADER, NAMES, COMMS, OPS, WAITS, JOURNAL, CALLS] {
            assert_eq!(region.at * 8 % 64, 0, "{region:?}");
        }
    }
}
