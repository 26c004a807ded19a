//! Messages that repeat word for word, as in floods: what they say was read before.
//!
//! Kept only are statements that follow from the text alone, and which report they open; the second time a text comes it
//! is kept, so that floods of texts which all differ cost a hash each and nothing more.

use ringleader_model::{KernelEventKind, PciAddress};

use super::pcie::Speaker;
use crate::ground::intern::hash_of;

/// Texts that are kept at a time. A power of two.
const N_SLOTS: usize = 64;

/// What a text says.
pub(super) struct KnownText {
    text: Box<str>,
    pub(super) device: Option<PciAddress>,
    pub(super) kind: KernelEventKind,
    /// Whose report it opens.
    pub(super) opens: Option<Speaker>,
}

#[derive(Default)]
struct TextSlot {
    /// Of the text that came last.
    hash: u64,
    known: Option<KnownText>,
}

/// Texts that came lately.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<TextSlot>,
    #[cfg(test)]
    pub(super) is_off: bool,
}

/// Where a text belongs.
#[derive(Clone, Copy)]
pub(super) struct MemoKey {
    hash: u64,
}

impl Memo {
    /// Where this text belongs.
    pub(super) fn place(text: &str) -> MemoKey {
        MemoKey { hash: hash_of(text.as_bytes()) }
    }

    /// What it said before, if that is known.
    pub(super) fn get(&self, place: MemoKey, text: &str) -> Option<&KnownText> {
        #[cfg(test)]
        if self.is_off {
            return None;
        }
        let slot = self.slots.get(place.hash as usize % N_SLOTS)?;
        slot.known.as_ref().filter(|known| slot.hash == place.hash && *known.text == *text)
    }

    /// Takes note of what a text says.
    pub(super) fn put(
        &mut self,
        place: MemoKey,
        text: &str,
        device: Option<PciAddress>,
        kind: &KernelEventKind,
        opens: Option<Speaker>,
    ) {
        if !is_of_text_alone(kind, text) {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(N_SLOTS, TextSlot::default);
        }
        let Some(slot) = self.slots.get_mut(place.hash as usize % N_SLOTS) else { return };
        let came_before = std::mem::replace(&mut slot.hash, place.hash) == place.hash;
        slot.known = came_before.then(|| KnownText { text: text.into(), device, kind: kind.clone(), opens });
    }
}

/// Whether a statement of this kind follows from its own text, whatever came before.
fn is_of_text_alone(kind: &KernelEventKind, text: &str) -> bool {
    use KernelEventKind as Kind;
    match kind {
        Kind::Xid(_)
        | Kind::Sxid(_)
        | Kind::GpuInitFailed { .. }
        | Kind::GspSilent
        | Kind::PcieError(_)
        | Kind::PcieLinkDown
        | Kind::IommuFault
        | Kind::MachineCheck { .. }
        | Kind::MemoryErrors { .. }
        | Kind::MemoryFailure { .. }
        | Kind::NicTrouble { .. }
        | Kind::Link { .. }
        | Kind::Crash { .. }
        | Kind::HungTask { .. }
        | Kind::Lockup { .. }
        | Kind::Storage { .. }
        | Kind::Throttled
        | Kind::Panic
        | Kind::FileLimit => true,
        // It may go on with a mismatch of versions.
        Kind::DriverAssertion => !text.contains("has the version "),
        // These take up what lines before them said, or leave something for lines to come.
        Kind::GpuLost
        | Kind::DriverMismatch { .. }
        | Kind::DriverLoaded { .. }
        | Kind::OomKill(_)
        | Kind::Covers(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::log::Log;
    use super::super::statements::Record;
    use super::super::tests::{OTHERS, XIDS};
    use crate::Extract;
    use crate::ground::{Limits, Sink};

    /// What is said of these messages, a second apart.
    fn told(messages: &[&str], is_off: bool, limits: &Limits) -> String {
        let mut log = Log::default();
        log.memo.is_off = is_off;
        for (message, line) in messages.iter().zip(1_u32..) {
            let taken = log.take(
                &Record {
                    line,
                    start: u64::from(line) * 1_000,
                    end: u64::from(line) * 1_000 + message.len() as u64,
                    uptime_us: Some(u64::from(line) * 1_000_000),
                    at: None,
                    host: None,
                    raw: message.as_bytes(),
                    text: message.as_bytes(),
                    // Of every third it is not known.
                    is_kernel: line % 3 != 0,
                    is_cut: false,
                },
                limits.max_observations,
            );
            assert!(taken || line % 3 == 0, "{message}");
        }
        let mut extract = Extract::default();
        let mut sink = Sink::open("dmesg.txt", limits, &mut extract);
        log.finish(&mut sink);
        sink.close(0);
        format!("{:#?}\n{:#?}", extract.observations, extract.notes)
    }

    const MORE: &str = "Lustre: a-OST0: Connection to a-OST0 was lost
blk_update_request: I/O error, dev sda, sector 1
mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
br77: port 3(vh2) entered disabled state
EDAC MC1: 262 CE memory read error on CPU_SrcID#0_MC#1 (channel:1)
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=python3,pid=19289,uid=0
Memory cgroup out of memory: Killed process 19289 (python3) total-vm:2676kB, anon-rss:84kB
NVRM: nvAssertFailed: Assertion failed: x
python3[77]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2[7f+d3]
CPU3: Core temperature above threshold, cpu clock throttled
docker0: nothing";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn messages_that_come_again_say_what_they_said(
            picks in prop::collection::vec((any::<prop::sample::Index>(), 1_usize..5), 1..24),
            n_kinds in 1_usize..12,
            n_turns in 1_usize..60,
            max_observations in prop::sample::select(vec![3_usize, 200_000]),
        ) {
            let all: Vec<&str> = XIDS.lines().chain(OTHERS.lines()).chain(MORE.lines()).collect();
            // Few texts, and so each of them often.
            let few: Vec<&str> = picks.iter().take(n_kinds).map(|(at, _)| *at.get(&all)).collect();
            let turn = picks.iter().flat_map(|(at, n)| std::iter::repeat_n(*at.get(&few), *n));
            let messages: Vec<&str> = std::iter::repeat_n((), n_turns).flat_map(|()| turn.clone()).collect();
            let limits = Limits { max_observations, ..Limits::default() };
            let (on, off) = (told(&messages, false, &limits), told(&messages, true, &limits));
            prop_assert!(on == off, "{messages:#?}");
        }
    }
}
