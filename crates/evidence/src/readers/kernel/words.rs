//! The texts without which a line says nothing, and the search for all of them at once.

use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, MatchKind};

/// Who knows a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Nvidia,
    Pcie,
    Memory,
    Process,
    Network,
    System,
}

/// Texts without which a line says nothing here.
pub(super) const WORDS: [(&str, Family); 57] = [
    ("NVRM: ", Family::Nvidia),
    ("SXid (", Family::Nvidia),
    ("Xid (PCI:", Family::Nvidia),
    ("AER: ", Family::Pcie),
    ("PCIe Bus Error", Family::Pcie),
    ("DPC: ", Family::Pcie),
    ("pciehp", Family::Pcie),
    ("[Hardware Error]", Family::Pcie),
    ("DMAR: ", Family::Pcie),
    ("AMD-Vi: ", Family::Pcie),
    ("arm-smmu", Family::Pcie),
    ("oom-kill:", Family::Memory),
    ("oom-killer", Family::Memory),
    ("Killed process", Family::Memory),
    ("Kill process ", Family::Memory),
    ("EDAC ", Family::Memory),
    ("Memory failure: ", Family::Memory),
    ("Machine Check", Family::Memory),
    ("hardware memory error", Family::Memory),
    ("segfault at ", Family::Process),
    ("traps: ", Family::Process),
    ("general protection", Family::Process),
    ("blocked for more than", Family::Process),
    ("soft lockup", Family::Process),
    ("hard LOCKUP", Family::Process),
    ("mlx5", Family::Network),
    ("bnxt_en", Family::Network),
    ("efa ", Family::Network),
    ("infiniband ", Family::Network),
    ("ink is ", Family::Network),
    (": Link ", Family::Network),
    (": link ", Family::Network),
    ("ink becomes ready", Family::Network),
    ("ink status ", Family::Network),
    ("NETDEV WATCHDOG", Family::Network),
    ("without any active interface", Family::Network),
    ("the new active one", Family::Network),
    ("entered disabled state", Family::Network),
    ("entered forwarding state", Family::Network),
    ("left promiscuous mode", Family::Network),
    ("Port module event", Family::Network),
    ("I/O error", Family::System),
    ("read-only", Family::System),
    ("hutting down filesystem", Family::System),
    ("controller is down", Family::System),
    ("not responding", Family::System),
    ("Lustre: ", Family::System),
    ("LustreError", Family::System),
    ("file-max limit", Family::System),
    ("Kernel panic", Family::System),
    ("BUG: unable to handle", Family::System),
    ("Oops: ", Family::System),
    ("clock throttled", Family::System),
    ("Linux version ", Family::System),
    ("setting system clock to", Family::System),
    ("audit: type=2000 audit(", Family::System),
    ("fatal machine check", Family::System),
];

/// What a line holds that the kernel's reader may take.
pub(super) fn all() -> Vec<&'static str> {
    let stamps = ["kern", "__REALTIME_TIMESTAMP", ".000000]"];
    WORDS.iter().map(|(word, _)| *word).chain(stamps).collect()
}

/// What NCCL's reader looks for in lines that do not begin like its own.
const NCCL: &str = "NCCL ";

/// Which word it is.
static WHICH: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(WORDS.iter().map(|(word, _)| *word)).ok());

/// Whether there is one, several times as fast: by vectors where the processor has them.
static WHETHER: LazyLock<Fast> = LazyLock::new(|| Fast::new(WORDS.iter().map(|(word, _)| *word)));

/// The same, NCCL's mark too.
static WHETHER_ANY: LazyLock<Fast> =
    LazyLock::new(|| Fast::new(WORDS.iter().map(|(word, _)| *word).chain([NCCL])));

enum Fast {
    Vectors(Searcher),
    Plain(Option<AhoCorasick>),
}

impl Fast {
    fn new(words: impl Iterator<Item = &'static str> + Clone) -> Self {
        match Searcher::new(words.clone()) {
            Some(searcher) => Self::Vectors(searcher),
            None => {
                Self::Plain(AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(words).ok())
            }
        }
    }

    fn find(&self, text: &[u8]) -> Option<usize> {
        match self {
            Self::Vectors(searcher) => searcher.find(text).map(|found| found.start()),
            Self::Plain(search) => search.as_ref()?.find(text).map(|found| found.start()),
        }
    }
}

/// Where the first of the words begins.
pub(super) fn next(text: &[u8]) -> Option<usize> {
    WHETHER.find(text)
}

/// Where the first of the words, or of what NCCL's reader looks for, begins.
pub(super) fn next_of_any_reader(text: &[u8]) -> Option<usize> {
    WHETHER_ANY.find(text)
}

/// Who knows the words of a text, in their order.
pub(super) fn families(text: &str) -> impl Iterator<Item = Family> {
    let found = WHICH.iter().flat_map(move |search| search.find_iter(text));
    found.filter_map(|found| WORDS.get(found.pattern().as_usize()).map(|(_, family)| *family))
}
