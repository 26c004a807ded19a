//! Native frames of threads that are blocked, without stopping them.
//!
//! `/proc/PID/task/TID/syscall` shows where a thread left its program: the stack's register and the code's, exact as
//! long as it does not come back. That it did not is shown by a second look: the same registers, and no switch of
//! contexts between. A thread that runs has no native stack here, and that is said. The kernel asks for the same as for
//! ptrace; nothing is attached to and nothing waits.

mod calls;
mod memory;
mod modules;
mod symbols;
mod unwind;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use self::memory::Memory;
use self::modules::Modules;
use self::unwind::{CodeAddress, UnwindEnd};
use crate::procfs::{Stat, status};
use crate::sysfs::{names, text};

/// Threads of one process that are looked into.
const MAX_THREADS: usize = 64;
/// Looks at a thread that moves while its stack is read.
const TRIES: usize = 3;

/// One native frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NativeFrame {
    /// Name of the function, or the address in the file where no symbol has it.
    pub(crate) function: String,
    /// File without its folders; empty if it is of none.
    pub(crate) file: String,
}

impl NativeFrame {
    /// Of the interpreter's own code.
    pub(crate) fn is_interpreter(&self) -> bool {
        self.file.starts_with("python") || self.file.starts_with("libpython")
    }

    /// The loop that runs Python code.
    pub(crate) fn is_evaluation(&self) -> bool {
        self.is_interpreter()
            && (self.function.starts_with("_PyEval_EvalFrameDefault")
                || self.function == "PyEval_EvalFrameEx")
    }
}

/// What is known of one thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Number in this process's eyes, and in that of the thread's own namespace.
    pub(crate) tid: u32,
    pub(crate) own_tid: u32,
    pub(crate) name: String,
    /// Innermost first.
    pub(crate) frames: Vec<NativeFrame>,
    /// Up to the thread's first function.
    pub(crate) is_whole: bool,
    /// It has not moved since the first look.
    pub(crate) is_still: bool,
    /// Why there are no frames, or no more.
    pub(crate) why: Option<String>,
}

/// Where a thread is, as the kernel reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Runs,
    /// Stack, code, and how often it was switched away from.
    Blocked(u64, u64, u64),
}

/// A first look at the threads of a process.
pub(crate) struct ThreadsLook {
    of: PathBuf,
    threads: Vec<(u32, Option<Mark>)>,
    n_left_out: usize,
}

impl ThreadsLook {
    /// Looks at a process's threads: the main one first, then those that are asked for, then the oldest.
    ///
    /// # Errors
    /// If it has ended, or may not be looked into.
    pub(crate) fn take(proc: &Path, pid: u32, first: &BTreeSet<u32>) -> io::Result<Self> {
        let of = proc.join(pid.to_string());
        // What may not be inspected is reported here.
        fs::read(of.join("task").join(pid.to_string()).join("syscall"))?;
        let mut tids: Vec<u32> =
            names(&of.join("task")).iter().filter_map(|name| name.parse().ok()).collect();
        tids.sort_by_key(|tid| (*tid != pid, !first.contains(tid), *tid));
        let n_left_out = tids.len().saturating_sub(MAX_THREADS);
        tids.truncate(MAX_THREADS);
        let threads = tids.into_iter().map(|tid| (tid, mark(&of, tid))).collect();
        Ok(Self { of, threads, n_left_out })
    }

    /// Frames of the threads, and how many threads were left out. What is not done by `until` says so.
    ///
    /// # Errors
    /// If its memory cannot be read.
    pub(crate) fn frames(self, until: Instant) -> io::Result<(Vec<Thread>, usize)> {
        let memory = Memory::open(&self.of)?;
        let mut modules = Modules::new(&fs::read_to_string(self.of.join("maps"))?);
        let mut threads = Vec::new();
        let mut places: Vec<Vec<CodeAddress>> = Vec::new();
        for (tid, first) in self.threads {
            let Some((mut thread, own)) = named(&self.of, tid) else { continue };
            let late = Instant::now() > until;
            let (found, end) =
                if late { None } else { blocked(&self.of, tid, first, &mut modules, &memory, &mut thread) }
                    .unwrap_or_default();
            if late {
                thread.why = Some("no time was left for it".to_owned());
            } else if let Some(end) = end {
                thread.is_whole = end == UnwindEnd::Whole;
                thread.why = why(&end, &found, &modules);
            }
            thread.own_tid = own;
            threads.push(thread);
            places.push(found);
        }
        let named = name_all(&self.of, &modules, &memory, &places, until);
        for (thread, places) in threads.iter_mut().zip(&places) {
            thread.frames = places.iter().map(|place| frame(*place, &modules, &named)).collect();
        }
        Ok((threads, self.n_left_out))
    }
}

/// Stack of a thread that did not move while it was read.
fn blocked(
    of: &Path,
    tid: u32,
    first: Option<Mark>,
    modules: &mut Modules,
    memory: &Memory,
    thread: &mut Thread,
) -> Option<(Vec<CodeAddress>, Option<UnwindEnd>)> {
    let mut at = first;
    for _ in 0..TRIES {
        let (stack, code) = match at {
            Some(Mark::Blocked(stack, code, _)) => (stack, code),
            Some(Mark::Runs) => {
                thread.why = Some("it runs: frames can only be taken of a blocked thread".to_owned());
                at = mark(of, tid);
                if at == Some(Mark::Runs) {
                    return None;
                }
                continue;
            }
            None => {
                thread.why = Some("it has ended".to_owned());
                return None;
            }
        };
        let (places, end) = unwind::unwind(modules, memory, stack, code);
        let again = mark(of, tid);
        if again == at {
            thread.why = None;
            thread.is_still = at == first;
            return Some((places, Some(end)));
        }
        thread.why = Some("it moved while they were read".to_owned());
        at = again;
    }
    None
}

/// None if it has ended.
fn mark(of: &Path, tid: u32) -> Option<Mark> {
    let at = of.join("task").join(tid.to_string());
    let line = text(&at.join("syscall"))?;
    let facts = text(&at.join("status"))?;
    let count = |name| status(&facts, name)?.parse::<u64>().ok();
    let switches = count("voluntary_ctxt_switches")?.wrapping_add(count("nonvoluntary_ctxt_switches")?);
    Some(registers(&line).map_or(Mark::Runs, |(stack, code)| Mark::Blocked(stack, code, switches)))
}

/// `202 0x7f… 0x80 0x0 0x0 0x0 0xffffffff 0x7ffd… 0x7f…`: the last two; `running` has none. `-1 SP PC`: blocked outside of
/// a system call, for a page of memory say. Source: Linux fs/proc/base.c, proc_pid_syscall.
fn registers(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace().rev();
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (code, stack) = (hex()?, hex()?);
    (stack != 0 && code != 0).then_some((stack, code))
}

/// A thread without its frames, and its number in its own namespace.
fn named(of: &Path, tid: u32) -> Option<(Thread, u32)> {
    let at = of.join("task").join(tid.to_string());
    let name = Stat::parse(&text(&at.join("stat"))?)?.command;
    let facts = text(&at.join("status"))?;
    let own = status(&facts, "NSpid").and_then(|list| list.split_whitespace().last()?.parse().ok());
    Some((Thread { tid, name, ..Thread::default() }, own.unwrap_or(tid)))
}

type SymbolNames = BTreeMap<(usize, u64), String>;

fn name_all(
    of: &Path,
    modules: &Modules,
    memory: &Memory,
    places: &[Vec<CodeAddress>],
    until: Instant,
) -> SymbolNames {
    let mut wanted: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    for (module, address) in places.iter().flatten().filter_map(|place| place.at) {
        wanted.entry(module).or_default().insert(address);
    }
    let mut all = SymbolNames::new();
    for (index, addresses) in wanted {
        let Some(module) = modules.get(index) else { continue };
        let addresses: Vec<u64> = addresses.into_iter().collect();
        let names = symbols::names(of, module, memory, &addresses, until);
        all.extend(addresses.iter().zip(names).filter_map(|(at, name)| Some(((index, *at), name?))));
    }
    all
}

fn frame(place: CodeAddress, modules: &Modules, names: &SymbolNames) -> NativeFrame {
    let Some((index, address)) = place.at else {
        return NativeFrame { function: format!("{:#x}", place.address), file: String::new() };
    };
    let file = modules.get(index).map(|module| module.name().chars().map(tame).collect());
    let function = names.get(&(index, address)).cloned().unwrap_or_else(|| format!("{address:#x}"));
    NativeFrame { function, file: file.unwrap_or_default() }
}

/// A path may hold anything.
fn tame(c: char) -> char {
    if c.is_control() || matches!(c, '(' | ')' | ' ' | ':') { '_' } else { c }
}

fn why(end: &UnwindEnd, places: &[CodeAddress], modules: &Modules) -> Option<String> {
    let last = || {
        let at = places.last().and_then(|place| modules.get(place.at?.0));
        at.map_or_else(|| "the code".to_owned(), |module| module.name().chars().map(tame).collect())
    };
    match end {
        UnwindEnd::Whole => None,
        UnwindEnd::NoFile => Some("cut: code that belongs to no file".to_owned()),
        UnwindEnd::NoTable => Some(format!("cut: {} has no unwind table there", last())),
        UnwindEnd::Unknown(register) => Some(format!(
            "cut: in {} the next frame needs register {}, which the kernel does not report",
            last(),
            unwind::name_of(*register)
        )),
        UnwindEnd::Broken => Some("cut: the stack is inconsistent there, or cannot be read".to_owned()),
        UnwindEnd::Many => Some("cut: more frames than are shown".to_owned()),
    }
}

#[cfg(test)]
mod tests;
