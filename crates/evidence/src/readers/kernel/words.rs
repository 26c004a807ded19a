//! The texts without which a line says nothing, and the search for all of them at once.

use std::sync::LazyLock;

use aho_corasick::packed::Searcher;
use aho_corasick::{AhoCorasick, MatchKind};

/// Who knows a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KernelFamily {
    Nvidia,
    Pcie,
    Memory,
    Process,
    Network,
    System,
}

/// Texts without which a line says nothing here.
pub(super) const WORDS: [(&str, KernelFamily); 57] = [
    ("NVRM: ", KernelFamily::Nvidia),
    ("SXid (", KernelFamily::Nvidia),
    ("Xid (PCI:", KernelFamily::Nvidia),
    ("AER: ", KernelFamily::Pcie),
    ("PCIe Bus Error", KernelFamily::Pcie),
    ("DPC: ", KernelFamily::Pcie),
    ("pciehp", KernelFamily::Pcie),
    ("[Hardware Error]", KernelFamily::Pcie),
    ("DMAR: ", KernelFamily::Pcie),
    ("AMD-Vi: ", KernelFamily::Pcie),
    ("arm-smmu", KernelFamily::Pcie),
    ("oom-kill:", KernelFamily::Memory),
    ("oom-killer", KernelFamily::Memory),
    ("Killed process", KernelFamily::Memory),
    ("Kill process ", KernelFamily::Memory),
    ("EDAC ", KernelFamily::Memory),
    ("Memory failure: ", KernelFamily::Memory),
    ("Machine Check", KernelFamily::Memory),
    ("hardware memory error", KernelFamily::Memory),
    ("segfault at ", KernelFamily::Process),
    ("traps: ", KernelFamily::Process),
    ("general protection", KernelFamily::Process),
    ("blocked for more than", KernelFamily::Process),
    ("soft lockup", KernelFamily::Process),
    ("hard LOCKUP", KernelFamily::Process),
    ("mlx5", KernelFamily::Network),
    ("bnxt_en", KernelFamily::Network),
    ("efa ", KernelFamily::Network),
    ("infiniband ", KernelFamily::Network),
    ("ink is ", KernelFamily::Network),
    (": Link ", KernelFamily::Network),
    (": link ", KernelFamily::Network),
    ("ink becomes ready", KernelFamily::Network),
    ("ink status ", KernelFamily::Network),
    ("NETDEV WATCHDOG", KernelFamily::Network),
    ("without any active interface", KernelFamily::Network),
    ("the new active one", KernelFamily::Network),
    ("entered disabled state", KernelFamily::Network),
    ("entered forwarding state", KernelFamily::Network),
    ("left promiscuous mode", KernelFamily::Network),
    ("Port module event", KernelFamily::Network),
    ("I/O error", KernelFamily::System),
    ("read-only", KernelFamily::System),
    ("hutting down filesystem", KernelFamily::System),
    ("controller is down", KernelFamily::System),
    ("not responding", KernelFamily::System),
    ("Lustre: ", KernelFamily::System),
    ("LustreError", KernelFamily::System),
    ("file-max limit", KernelFamily::System),
    ("Kernel panic", KernelFamily::System),
    ("BUG: unable to handle", KernelFamily::System),
    ("Oops: ", KernelFamily::System),
    ("clock throttled", KernelFamily::System),
    ("Linux version ", KernelFamily::System),
    ("setting system clock to", KernelFamily::System),
    ("audit: type=2000 audit(", KernelFamily::System),
    ("fatal machine check", KernelFamily::System),
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
pub(super) fn families(text: &str) -> impl Iterator<Item = KernelFamily> {
    let found = WHICH.iter().flat_map(move |search| search.find_iter(text));
    found.filter_map(|found| WORDS.get(found.pattern().as_usize()).map(|(_, family)| *family))
}
