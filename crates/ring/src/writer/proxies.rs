//! Proxy operations, their steps, and the events of the network plugin for them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{RegionEntry, Writer};
use crate::clock::mono_ns;
use crate::handle::{Handle, HandleKind};
use crate::layout::{OPS, WAITS, comm, head, op, wait};
use crate::progress::{self, ChannelProgress, StepResult};
use crate::slot;
use crate::state::Phase;

impl Writer {
    /// Begins a proxy operation for an operation of this process, or of the process `foreign` (PXN).
    pub fn proxy_starts(
        &self,
        parent: Handle,
        foreign: Option<u32>,
        peer: u32,
        channel: u8,
        steps: u32,
        is_send: bool,
    ) -> Handle {
        let mut reference = 0;
        let mut parent_entry = None;
        if foreign.is_none() {
            if parent.kind() != Some(HandleKind::Op) {
                return Handle::NONE;
            }
            let Some((entry, generation)) = self.live(&OPS, parent) else { return Handle::NONE };
            if progress::step(entry.at(op::CONTROL), generation, ChannelProgress::proxy_started)
                != StepResult::Goes
            {
                return Handle::NONE;
            }
            reference = slot::reference(parent.index(), generation);
            parent_entry = Some((entry, generation));
        }
        let Some((index, generation)) = self.take(&WAITS, &self.waits, Self::may_take_wait) else {
            self.head(head::LOST_WAITS).fetch_add(1, Relaxed);
            if let Some((entry, generation)) = parent_entry {
                self.child_stops(
                    parent.index(),
                    entry,
                    generation,
                    mono_ns(),
                    ChannelProgress::proxy_stopped,
                );
            }
            return Handle::NONE;
        };
        let entry = self.entry(&WAITS, index);
        entry.set(wait::OP, reference);
        entry.set(wait::WHAT, u64::from(peer) | u64::from(channel) << 32 | u64::from(is_send) << 40);
        entry.set(wait::PID, u64::from(foreign.unwrap_or(0)));
        entry.set(wait::STEPS, u64::from(steps));
        entry.set(wait::STARTED, mono_ns());
        entry.set(wait::DONE, 0);
        entry.set(wait::LONGEST, 0);
        for word in wait::PHASES..wait::PHASES + wait::PHASES_WORDS {
            entry.set(word, 0);
        }
        slot::publish(entry.tag(), generation);
        self.handle(HandleKind::Wait, index, generation, 0)
    }

    /// Ends a proxy operation.
    pub fn proxy_stops(&self, handle: Handle) {
        if handle.kind() != Some(HandleKind::Wait) {
            return;
        }
        let Some((entry, generation)) = self.live(&WAITS, handle) else { return };
        let (reference, what, longest) =
            (entry.get(wait::OP), entry.get(wait::WHAT), entry.get(wait::LONGEST));
        if !slot::free(entry.tag(), generation) {
            return;
        }
        self.waits.near.store(handle.index() as u64, Relaxed);
        let Some((index, generation)) = slot::referred(reference) else { return };
        let parent = self.entry(&OPS, index);
        let tag = parent.tag().load(Acquire);
        if !slot::is_live(tag) || !slot::same_generation(tag, generation) {
            return;
        }
        let now = mono_ns();
        parent.set(op::STOPPED, now);
        let (phase, duration) = (longest & 0xf, longest >> 4);
        if duration > 0 {
            let packed = duration.min((1 << 42) - 1) << 22 | phase << 18 | what & 0x3_ffff;
            parent.at(op::LONGEST).fetch_max(packed, Relaxed);
        }
        self.child_stops(index, parent, slot::generation(tag), now, ChannelProgress::proxy_stopped);
    }

    /// Begins a step of a proxy operation.
    pub fn step_starts(&self, parent: Handle, step: u32) -> Handle {
        if parent.kind() != Some(HandleKind::Wait) || self.live(&WAITS, parent).is_none() {
            return Handle::NONE;
        }
        Handle((HandleKind::Step as u64) << 60 | parent.0 & 0x0fff_ffff_ffff_0000 | u64::from(step) & 0xffff)
    }

    /// Records what a step waits for now. NCCL repeats this while it polls: only a change counts.
    pub fn step_waits(&self, handle: Handle, phase: Phase) {
        let Some((entry, word)) = self.step_of(handle) else { return };
        let step = handle.extra() & 31;
        let before = word.load(Relaxed);
        if before >> 56 == (phase as u64) << 5 | step {
            return;
        }
        let since = mono_ns().saturating_sub(self.base_ns);
        Self::close_phase(entry, before, step, since);
        word.store((phase as u64) << 61 | step << 56 | since & ((1 << 56) - 1), Relaxed);
    }

    /// Records that a step is done.
    pub fn step_stops(&self, handle: Handle) {
        let Some((entry, word)) = self.step_of(handle) else { return };
        let step = handle.extra() & 31;
        let now = mono_ns();
        let since = now.saturating_sub(self.base_ns);
        Self::close_phase(entry, word.load(Relaxed), step, since);
        word.store(step << 56 | since & ((1 << 56) - 1), Relaxed);
        // The handle has the low 16 bits of the step; the rest follows from the number of steps done.
        let before = entry.get(wait::DONE);
        let ahead = (handle.extra() as u16).wrapping_add(1).wrapping_sub(before as u16) as i16;
        if ahead > 0 {
            entry.set(wait::DONE, before + ahead as u64);
        }
        if let Some((index, _)) = slot::referred(entry.get(wait::OP))
            && let Some(comm) = self.comm_by(self.entry(&OPS, index).get(op::COMM))
        {
            comm.set(comm::PROGRESS, now);
        }
    }

    /// Begins an event of the network plugin for a step.
    pub fn net_starts(&self, parent: Handle) -> Handle {
        if parent.kind() != Some(HandleKind::Step) {
            return Handle::NONE;
        }
        let Some((entry, _)) = self.live(&WAITS, parent) else { return Handle::NONE };
        entry.at(wait::STEPS).fetch_add(1 << 32, Relaxed);
        Handle((HandleKind::Net as u64) << 60 | parent.0 & 0x0fff_ffff_ffff_ffff)
    }

    /// Ends an event of the network plugin.
    pub fn net_stops(&self, handle: Handle) {
        if handle.kind() == Some(HandleKind::Net)
            && let Some((entry, _)) = self.live(&WAITS, handle)
            && entry.get(wait::STEPS) >> 32 != 0
        {
            entry.at(wait::STEPS).fetch_sub(1 << 32, Relaxed);
        }
    }

    fn step_of(&self, handle: Handle) -> Option<(RegionEntry<'_>, &AtomicU64)> {
        if handle.kind() != Some(HandleKind::Step) {
            return None;
        }
        let (entry, _) = self.live(&WAITS, handle)?;
        Some((entry, entry.at(wait::PHASES + handle.extra() as usize % wait::PHASES_WORDS)))
    }

    /// Keeps the longest time that one step spent in one phase.
    fn close_phase(entry: RegionEntry<'_>, word: u64, step: u64, now: u64) {
        let (phase, its_step, since) = (word >> 61, word >> 56 & 31, word & ((1 << 56) - 1));
        if phase == 0 || its_step != step {
            return;
        }
        let packed = now.saturating_sub(since) << 4 | phase;
        if packed > entry.get(wait::LONGEST) {
            entry.set(wait::LONGEST, packed);
        }
    }
}
