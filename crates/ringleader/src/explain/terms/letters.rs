//! Letters by which the kernel, `ps` and a report tell the state of a process. Their case counts: `T` is not `t`.

use super::Term;

/// What `ps` adds behind the letter.
const FLAGS: &str = "<NLsl+";
/// Of these, those that make no word of capitals.
const FLAGS_ALONE: &str = "<sl+";

const fn letter(
    name: &'static str,
    also: &'static [&'static str],
    title: &'static str,
    means: &'static str,
    see: &'static [&'static str],
) -> Term {
    Term { name, also, title, means, is_not: "", see, source: "proc(5), ps(1)" }
}

pub(super) const TERMS: &[Term] = &[
    letter(
        "state R",
        &[],
        "the process runs, or waits for a processor",
        "it computes. A rank that waits for others inside NCCL runs too, as its thread asks the GPU again and again",
        &["state", "waiting"],
    ),
    letter(
        "state S",
        &["sleeping", "interruptible sleep"],
        "the process sleeps until something wakes it",
        "it waits for data, a lock, a timer or a child. That is the usual state of a launcher, and of a rank that waits in Gloo, in a \
         store or in Python; its stack says for what",
        &["state", "stacks"],
    ),
    letter(
        "state D",
        &["disk sleep", "uninterruptible sleep"],
        "the process waits in the kernel and cannot be ended, not even by SIGKILL",
        "mostly for storage (NFS, Lustre) or a driver. A moment of it is normal; minutes are a fault of what it waits for. \
         `/proc/PID/wchan` names the function of the kernel",
        &["state", "blocked", "process-uninterruptible"],
    ),
    letter(
        "state T",
        &[],
        "the process is stopped",
        "by SIGSTOP or SIGTSTP (Ctrl-Z); `kill -CONT PID` resumes it",
        &["state", "stopped", "process-stopped"],
    ),
    letter(
        "tracing stop",
        &["traced"],
        "state t: the process is stopped by a debugger",
        "gdb, strace or a profiler holds it; TracerPid in /proc/PID/status names who. It goes on when that lets it go",
        &["state", "stopped", "process-stopped"],
    ),
    letter(
        "state Z",
        &["zombie", "zombie process", "defunct", "defunct process"],
        "the process has ended, and its parent has not asked how",
        "it holds no memory and no GPU, and cannot be ended again; its exit code is in /proc/PID/stat. A rank in this state has ended \
         before the others",
        &["state", "gone"],
    ),
    letter(
        "state X",
        &[],
        "the process is dead",
        "it is being removed and is seen for a moment at most",
        &["state", "gone"],
    ),
    letter(
        "state I",
        &[],
        "an idle thread of the kernel",
        "it is no process of a program and needs no attention",
        &["state"],
    ),
];

/// The letter that is asked for: `D`, `Dl+`, `state D`, `process state Z`, `t`.
pub(super) fn asked(name: &str) -> Option<&'static Term> {
    let mut words: Vec<&str> = name.split_whitespace().collect();
    let is_noun = |word: &str| {
        ["state", "stat", "process", "proc", "linux"].contains(&&*word.trim_end_matches(':').to_lowercase())
    };
    let n_all = words.len();
    words.retain(|word| !is_noun(word));
    let is_named = words.len() < n_all;
    let [word] = words[..] else { return None };
    let word = word.trim_matches(['(', ')', '"', '\'', '=', ':']);
    let mut chars = word.chars();
    let first = chars.next()?;
    let flags = if is_named { FLAGS } else { FLAGS_ALONE };
    if !chars.all(|c| flags.contains(c)) {
        return None;
    }
    let find = |letter: char| {
        let name = if letter == 't' { "tracing stop".to_owned() } else { format!("state {letter}") };
        TERMS.iter().find(|term| term.name == name)
    };
    // Of a letter that stands alone the case must be that of `ps`.
    find(first).or_else(|| is_named.then(|| find(first.to_ascii_uppercase())).flatten())
}
