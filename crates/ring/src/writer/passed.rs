//! Calls that are not followed: written when they are called, one cache line each, and marked when their group ends. In
//! a flood of small operations this is all that the plugin does, so it uses few lines of memory and one clock reading.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use super::{CallDescriptor, RegionEntry, Writer, one_more};
use crate::handle::{Handle, HandleKind};
use crate::journal;
use crate::layout::{CALLS, P2P_BIT, PASSED_OVER, call, comm, head};
use crate::names;
use crate::slot;

impl Writer {
    /// Begins a group of calls that are not followed.
    pub fn passing_begins(&self) -> Handle {
        let group = self.head(head::CALL_GROUPS).fetch_add(1, Relaxed);
        Handle::passing(group, self.head(head::CALLS_HEAD).load(Relaxed))
    }

    /// Records a call from the program within such a group, at `now_ns`. NCCL requires that calls on one communicator
    /// are made one after the other.
    pub fn passing_call(&self, comm: Handle, group: Handle, told: &CallDescriptor, now_ns: u64) -> Handle {
        let Some((comm_entry, generation)) = self.comm_of(comm) else { return Handle::NONE };
        let (counter, passed) =
            if told.is_p2p { (comm::P2P, comm::PASSED_P2P) } else { (comm::COLLECTIVES, comm::PASSED) };
        // Atomic, because graphs launch from a thread of CUDA's.
        let number = comm_entry.at(counter).fetch_add(1, Relaxed);
        let bytes = names::element_bytes(told.datatype).saturating_mul(told.count);
        comm_entry.set(passed, comm_entry.get(passed).wrapping_add(1));
        comm_entry.set(comm::PASSED_BYTES, comm_entry.get(comm::PASSED_BYTES).wrapping_add(bytes));
        comm_entry.set(comm::PROGRESS, now_ns);

        let place = self.head(head::CALLS_HEAD).fetch_add(1, Relaxed);
        let entry = self.call_entry(place);
        let has_entry = journal::begin(entry.tag(), place);
        comm_entry.set(comm::LAST_BEGUN, place + 1);
        fence(Release);
        for (word, value) in [
            (call::NUMBER, number | if told.is_p2p { P2P_BIT } else { 0 }),
            (call::CODES, told.codes() | PASSED_OVER),
            (call::COUNT, told.count),
            (call::ROOT, one_more(told.root) | group.passing_group() << 32),
            (call::ENQUEUED, now_ns),
        ] {
            comm_entry.set(comm::LAST + word - call::NUMBER, value);
            if has_entry {
                entry.set(word, value);
            }
        }
        comm_entry.at(comm::LAST_PLACE).store(place + 1, Release);
        if has_entry {
            entry.set(call::COMM, slot::reference(comm.index(), generation));
            entry.set(call::STATE, journal::unmarked(place));
            journal::end(entry.tag(), place);
        } else {
            self.head(head::LOST_RECORDS).fetch_add(1, Relaxed);
        }
        self.call_entry(place + 1).expect();
        Handle::PASSED
    }

    /// Ends such a group: its calls have been passed to the stream.
    pub fn passing_ends(&self, group: Handle) {
        if group.kind() != Some(HandleKind::Passing) {
            return;
        }
        let head = self.head(head::CALLS_HEAD).load(Relaxed);
        let calls = (head as u32).wrapping_sub(group.passing_place());
        let calls = u64::from(calls).min(CALLS.entries as u64).min(head);
        // Calls of other threads may be in between.
        for place in head - calls..head {
            let entry = self.call_entry(place);
            if journal::place(entry.tag().load(Acquire)) == Some(place)
                && entry.get(call::ROOT) >> 32 == group.passing_group()
                && journal::mark(entry.at(call::STATE), place)
                && let Some(comm) = self.comm_by(entry.get(call::COMM))
            {
                comm.set(comm::LAST_HANDED, place + 1);
            }
        }
    }

    fn call_entry(&self, place: u64) -> RegionEntry<'_> {
        self.entry(&CALLS, (place % CALLS.entries as u64) as usize)
    }
}
