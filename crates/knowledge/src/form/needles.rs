//! What a line must hold to speak of failure: the needles of a search over whole blocks.
//!
//! Case does not count. Every needle has five bytes or more, so a search that looks at every second place of a text, four
//! bytes at a time, meets each of them.

/// What to look for, in lower case, beside the heads of glog. A line without any of these has no form of failure.
pub const NEEDLES: &[&str] = &[
    "error",
    "failed",
    "failur",
    "failing",
    "fails",
    " fail",
    "fatal",
    "except",
    "abort",
    "killed",
    "killing",
    "panic",
    "signal",
    "sigkil",
    "sigseg",
    "sigabr",
    "sigbus",
    "sigter",
    "sigill",
    "sigfpe",
    "crash",
    "traceb",
    "timed o",
    "timeout at",
    "timeout a",
    "timeout:",
    "unable",
    "cannot",
    "could no",
    "couldn'",
    "refuse",
    "denied",
    "died ",
    "unreac",
    "unheal",
    "evicte",
    "preemp",
    "cancel",
    "corrup",
    "uncaug",
    "unhand",
    "mismat",
    "hung ",
    "hangin",
    "stuck",
    "deadlo",
    "segfau",
    "segmen",
    "core dump",
    "bus er",
    "exit c",
    "exitco",
    "exit s",
    "exited",
    "exit_c",
    "return c",
    "returnc",
    "code=",
    "errno",
    "etimed",
    "econn",
    "ehost",
    "eaddr",
    "out of mem",
    "oom-k",
    "oom_k",
    "oomki",
    "critic",
    "severe",
    "emerg",
    "alert",
    "nccl warn",
    "terminat",
    "lost ",
    "no such ",
    "not permitted",
    "reset by",
    "broken p",
    "no route",
    "no space",
    "too many",
    "in use",
    "bad addr",
    "bad fi",
    "not supp",
    "not respond",
    "unavail",
    "insuffi",
    "exhaus",
    "exceed",
    "invalid",
    "illegal",
    "term_",
    "time limit",
    "back-off",
    "backoff",
    "node_f",
    "nodenot",
    "notread",
    "mpi_ab",
    ": nan",
    "=nan ",
    "=nan,",
    "=nan)",
    "=nan}",
    "=nan\n",
    " nan ",
    " nan,",
    " nan\n",
    " nan|",
    " nan}",
    "nan or",
    "'nan'",
    ": inf",
    "=inf ",
    "=inf,",
    "=inf\n",
    " inf ",
    "#wrong",
    "wrong ",
    "incorrect",
    "out of bou",
    "unrecov",
    "uncorr",
    "[e pr",
    "[e so",
    "[e tc",
    "]:[e ",
    "host is d",
    "stale f",
    "not found",
    "unexpe",
    "missing",
    "does not exist",
    "enetu",
    "enetd",
    "enomem",
    "einval",
    "emfile",
    "eperm",
    "eacces",
    "enospc",
    "estale",
    " lost",
    " died",
    " hung",
    "timing o",
    "on timeo",
    "[e nc",
    "[e cu",
    "[e re",
    "[e lo",
    "]: e ",
    "[fatal",
    "not av",
    " oom ",
    " oom\n",
    "_fail",
    "can't ",
    "abnorm",
    "dead ",
    "dead\n",
    "dead.",
    "incompa",
    "nxdomain",
    "reject",
    "stall",
    "unsucc",
    "double free",
    "blocked for",
    "packet loss",
    "is down",
    "tly down",
    "link down",
    "went down",
    "_timeou",
    "_err ",
    "_err(",
    "_err\n",
    "_err,",
    "_err:",
    "_err_",
    "_status_",
    "test ti",
];

const BITS: usize = 15;
const GRAM: usize = 4;

static MARKS: [u64; 1 << (BITS - 6)] = marks();

const fn folded(bytes: &[u8], at: usize) -> u32 {
    let mut gram = 0u32;
    let mut i = 0;
    while i < GRAM {
        gram |= ((bytes[at + i] | 0x20) as u32) << (8 * i);
        i += 1;
    }
    gram
}

const fn place(gram: u32) -> usize {
    (gram.wrapping_mul(0x9E37_79B1) >> (32 - BITS as u32)) as usize
}

const fn marks() -> [u64; 1 << (BITS - 6)] {
    let mut marks = [0u64; 1 << (BITS - 6)];
    let mut n = 0;
    while n < NEEDLES.len() {
        let bytes = NEEDLES[n].as_bytes();
        let mut at = 0;
        while at < 2 {
            marks = with(marks, folded(bytes, at));
            at += 1;
        }
        n += 1;
    }
    // Heads of glog, `E1120 …` and `F0101 …`, at a line's start, in brackets or behind a prefix.
    let mut day = 0;
    while day < 12 * 4 {
        let (month, tens) = (day / 4 + 1, day % 4);
        let digits = [b'0' + month / 10, b'0' + month % 10, b'0' + tens];
        let letters = [b'e', b'f'];
        let before = [b'\n', b'[', b' '];
        let mut i = 0;
        while i < letters.len() {
            let letter = letters[i];
            marks = with(marks, folded(&[letter, digits[0], digits[1], digits[2]], 0));
            let mut j = 0;
            while j < before.len() {
                marks = with(marks, folded(&[before[j], letter, digits[0], digits[1]], 0));
                j += 1;
            }
            i += 1;
        }
        day += 1;
    }
    marks
}

const fn with(mut marks: [u64; 1 << (BITS - 6)], gram: u32) -> [u64; 1 << (BITS - 6)] {
    let bit = place(gram);
    marks[bit >> 6] |= 1 << (bit & 63);
    marks
}

/// The first place at or after `from` near which a needle may stand: within a line or a block of many lines. None if the
/// rest holds none. Text beside the needles may be met, too: [`super::of`] decides.
pub fn wanted(block: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(Ok(bytes)) = block.get(at..at + 8).map(<[u8; 8]>::try_from) {
        let text = u64::from_le_bytes(bytes) | 0x2020_2020_2020_2020;
        if marked(text as u32) || marked((text >> 16) as u32) {
            return Some(at);
        }
        at += 4;
    }
    while let Some(Ok(bytes)) = block.get(at..at + GRAM).map(<[u8; GRAM]>::try_from) {
        if marked(u32::from_le_bytes(bytes) | 0x2020_2020) {
            return Some(at);
        }
        at += 2;
    }
    None
}

#[inline]
fn marked(gram: u32) -> bool {
    let bit = place(gram);
    MARKS[bit >> 6] >> (bit & 63) & 1 == 1
}
