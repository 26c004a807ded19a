//! Messages that come again word for word, as in floods: what they say was read before.
//!
//! Kept only are statements that follow from the text alone, and which report they open; the second time a text comes it
//! is kept, so that floods of texts which all differ cost a hash each and nothing more.

use ringleader_model::{KernelEventKind, PciAddress};

use super::pcie::Speaker;
use crate::intern::hash_of;

/// Texts that are kept at a time. A power of two.
const N_SLOTS: usize = 64;

/// What a text says.
pub(super) struct Known {
    text: Box<str>,
    pub(super) device: Option<PciAddress>,
    pub(super) kind: KernelEventKind,
    /// Whose report it opens.
    pub(super) opens: Option<Speaker>,
}

#[derive(Default)]
struct Slot {
    /// Of the text that came last.
    hash: u64,
    known: Option<Known>,
}

/// Texts that came lately.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<Slot>,
    #[cfg(test)]
    pub(super) is_off: bool,
}

/// Where a text belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    hash: u64,
}

impl Memo {
    /// Where this text belongs.
    pub(super) fn place(text: &str) -> Place {
        Place { hash: hash_of(text.as_bytes()) }
    }

    /// What it said before, if that is known.
    pub(super) fn get(&self, place: Place, text: &str) -> Option<&Known> {
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
        place: Place,
        text: &str,
        device: Option<PciAddress>,
        kind: &KernelEventKind,
        opens: Option<Speaker>,
    ) {
        if !is_of_text_alone(kind, text) {
            return;
        }
        if self.slots.is_empty() {
            self.slots.resize_with(N_SLOTS, Slot::default);
        }
        let Some(slot) = self.slots.get_mut(place.hash as usize % N_SLOTS) else { return };
        let came_before = std::mem::replace(&mut slot.hash, place.hash) == place.hash;
        slot.known = came_before.then(|| Known { text: text.into(), device, kind: kind.clone(), opens });
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
