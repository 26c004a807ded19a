//! Xids: the numbers of faults that NVIDIA's driver reports in the kernel log (`NVRM: Xid (PCI:0000:3b:00): 79, …`).
//!
//! Source: `nverror.h` of NVIDIA/open-gpu-kernel-modules 595.45.04 and NVIDIA's Xid Catalog of 2025-10-29;
//! `data/xid.toml` names other sources in each row.

pub use crate::remedy::{Class, Exclude, Grade, Kills, Move};
pub use crate::tables::investigations;
use crate::tables::{CHAINS, NVLINK5_RULES, RECOVERY_ACTIONS, XID_GROUPS, XID74_BITS, XIDS};

/// An uncorrectable memory error that was contained to the one process that it names.
pub const CONTAINED: u16 = 94;

/// One code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// Number.
    pub code: u16,
    /// Name in the catalogue, including `ROBUST_CHANNEL_`.
    pub mnemonic: &'static str,
    /// Other names in the driver's header.
    pub header_names: &'static [&'static str],
    /// Short name.
    pub name: &'static str,
    /// Its meaning, in a sentence or two.
    pub meaning: &'static str,
    /// Where the fault usually is.
    pub class: Class,
    /// Its severity.
    pub severity: Grade,
    /// The recommended action.
    pub action: Move,
    /// The action if it recurs, or if the first one did not help.
    pub then: Move,
    /// Whether it ends a job on the GPU.
    pub kills_job: Kills,
    /// Whether the node must be excluded.
    pub exclude_node: Exclude,
    /// NVIDIA's own bucket for the immediate action; empty if none was published.
    pub nvidia_immediate: &'static str,
    /// NVIDIA's own bucket for the investigation; empty if none was published.
    pub nvidia_investigate: &'static str,
    /// NVIDIA's last matrix of possible causes (`hardware`, `driver`, `application`, `system_memory`, `bus`, `thermal`,
    /// `framebuffer`); empty if none was published.
    pub may_be: &'static [&'static str],
    /// Whether Ampere and newer GPUs do not use it.
    pub unused: bool,
    /// Id of the rule that handles this code; empty if none does.
    pub rule: &'static str,
    /// The format of the line's body and the meaning of its fields; may be empty.
    pub message: &'static str,
    /// Further remarks; may be empty.
    pub note: &'static str,
    /// NVIDIA's workflow in short; may be empty.
    pub workflow: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// A predefined set of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidSet {
    /// `application`, `never_root_cause`, `memory_ecc`, …
    pub id: &'static str,
    /// Its codes, ascending.
    pub codes: &'static [u16],
}

/// The action that a GPU needs now according to the driver (Xid 154, NVML's and nvidia-smi's "GPU Recovery Action").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryAction {
    /// Number.
    pub value: u8,
    /// Its name as printed.
    pub name: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
    /// The recommended action.
    pub action: Move,
    /// Whether new work must not start on the GPU.
    pub blocks_new_jobs: bool,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// Bits of one register word of Xid 74 (`detected on link N(r0, r1, …, r6)`), NVLink 4 and older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkBits {
    /// Index of the word, 0 to 6.
    pub word: u8,
    /// The bits, as a mask.
    pub mask: u32,
    /// `ignore`, `sympathetic` (alone: report), `hw_if_repeated` (twice on a link in 24 h), `check_mechanical`,
    /// `signal_integrity`, `report_if_repeated`, `field_diag_if_repeated`, `fabric_reset`.
    pub verdict: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// One row of the decode sheet of Xids 144 to 150 (NVLink 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvlinkRule {
    /// Code.
    pub xid: u16,
    /// Names of the unit.
    pub units: &'static [&'static str],
    /// Sub-code, bits 20 to 25 of the first word.
    pub subcode: u8,
    /// Mask and value of the first word before R575.
    pub first_v1: (u32, u32),
    /// Mask and value of the first word since R575.
    pub first_v2: (u32, u32),
    /// Value of the second word.
    pub error_status: u32,
    /// `IGNORE`, `RESET_GPU`, `XID_154_EVAL` (follow the recovery action that comes next).
    pub resolution: &'static str,
    /// The resolution if the line says `Fatal`; empty if it is the same.
    pub resolution_if_fatal: &'static str,
    /// NVIDIA's bucket for the investigation.
    pub investigate: &'static str,
    /// `nonfatal`, `fatal`, `link_fatal`.
    pub severity: &'static str,
    /// `HW`, `SW`, `HW/SW`, `FW`, `NA`.
    pub side: &'static str,
    /// Effects on the GPU that reports it: `none`, `ecc48`, `app_crash45`, `packet_loss`, `poison94`, `fatal`, joined
    /// by `+`; `?` = possible.
    pub local: &'static str,
    /// Effects on its peer, in the same words.
    pub remote: &'static str,
    /// Further remarks; may be empty.
    pub note: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// A series of codes that follow from one root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name.
    pub name: &'static str,
    /// The root or roots, `xid:48`; empty if nothing is wrong.
    pub root: &'static [&'static str],
    /// The codes that follow, in order.
    pub sequence: &'static [&'static str],
    /// Longest duration of the series, seconds.
    pub window_s: u32,
    /// Further remarks; may be empty.
    pub note: &'static str,
    /// Sources.
    pub cite: &'static [&'static str],
}

/// All codes, ascending.
pub fn all() -> &'static [Xid] {
    XIDS
}

/// The code with this number.
pub fn get(code: u16) -> Option<&'static Xid> {
    XIDS.binary_search_by_key(&code, |x| x.code).ok().and_then(|i| XIDS.get(i))
}

/// All sets.
pub fn groups() -> &'static [XidSet] {
    XID_GROUPS
}

/// The codes of a set; empty for an unknown set.
pub fn group(id: &str) -> &'static [u16] {
    XID_GROUPS.iter().find(|g| g.id == id).map_or(&[], |g| g.codes)
}

/// All recovery actions.
pub fn recovery_actions() -> &'static [RecoveryAction] {
    RECOVERY_ACTIONS
}

/// The recovery action with this number.
pub fn recovery_action(value: u8) -> Option<&'static RecoveryAction> {
    RECOVERY_ACTIONS.iter().find(|a| a.value == value)
}

/// All bits of Xid 74 with a known meaning.
pub fn link_bits() -> &'static [LinkBits] {
    XID74_BITS
}

/// The known bits in the register words of an Xid 74, in the order of the table. Unknown bits are ignored.
pub fn link_bits_of(registers: &[u32]) -> Vec<&'static LinkBits> {
    XID74_BITS.iter().filter(|b| registers.get(b.word as usize).is_some_and(|r| r & b.mask != 0)).collect()
}

/// All rows for NVLink 5.
pub fn nvlink_rules() -> &'static [NvlinkRule] {
    NVLINK5_RULES
}

/// The row for a line of Xids 144 to 150: by unit, then the first word, then the second.
pub fn nvlink_rule(xid: u16, unit: &str, first: u32, error_status: u32) -> Option<&'static NvlinkRule> {
    let fits = |(mask, value): (u32, u32)| first & mask == value;
    NVLINK5_RULES.iter().find(|r| {
        r.xid == xid
            && r.units.contains(&unit)
            && r.error_status == error_status
            && (fits(r.first_v1) || fits(r.first_v2))
    })
}

/// All known series.
pub fn chains() -> &'static [Chain] {
    CHAINS
}

impl Xid {
    /// Whether the code is in this set.
    pub fn is_in(&self, group: &str) -> bool {
        self::group(group).contains(&self.code)
    }

    /// Whether the code is always a consequence of something else.
    pub fn is_never_root(&self) -> bool {
        self.is_in("never_root_cause")
    }
}
