//! On processes of these tests' own.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::*;
use crate::by_name;
use crate::request::{ReadingError, Request, Target};

#[test]
fn the_registers_of_a_thread_that_is_blocked() {
    let line = "230 0x0 0x0 0x7ffcacb497a0 0x7ffcacb497e0 0x0 0x0 0x7ffcacb49788 0x7f6b9afcd503\n";
    assert_eq!(registers(line), Some((0x7ffc_acb4_9788, 0x7f6b_9afc_d503)));
    assert_eq!(registers("-1 0x7ffcacb49788 0x7f6b9afcd503"), Some((0x7ffc_acb4_9788, 0x7f6b_9afc_d503)));
    // A thread of the kernel has none.
    for none in ["running", "-1 0x0 0x0", "", "230"] {
        assert_eq!(registers(none), None, "{none}");
    }
}

/// Waits in a read below two functions, one of them without an exported name; for a lock that nobody gives back; and in a
/// function with a frame pointer that its caller reaches through one which ends by jumping there.
const LIBRARY: &str = r#"
#include <pthread.h>
#include <unistd.h>
static __attribute__((noinline)) int hidden_wait(int fd) { char c[64]; int n = read(fd, c, 1); return n + c[0]; }
__attribute__((noinline)) int waits_in_read(int fd) { volatile int n = hidden_wait(fd); return n + 1; }
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define FRAMED __attribute__((noipa, optimize("O2", "no-omit-frame-pointer")))
static FRAMED int framed_wait(int fd, long a) { char c[64]; long n = read(fd, c, 1); return n + c[a & 7]; }
static FRAMED int jumps_there(int fd) { return framed_wait(fd, 7); }
FRAMED int waits_framed(int fd) { volatile int n = jumps_there(fd); return n + 1; }
int waits_for_lock(void) { pthread_mutex_lock(&lock); pthread_mutex_lock(&lock); return 1; }
"#;
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
int waits_in_read(int), waits_framed(int), waits_for_lock(void);
static void *locker(void *none) { waits_for_lock(); return none; }
static void *framed(void *fd) { waits_framed((int)(long)fd); return fd; }
static void *spinner(void *none) { for (volatile unsigned long n = 0;; n++) {} return none; }
int main(int n, char **arguments) {
    int ends[2];
    pthread_t thread;
    pipe(ends);
    pthread_create(&thread, 0, locker, 0);
    pthread_create(&thread, 0, framed, (void *)(long)ends[0]);
    if (n > 1) { pthread_create(&thread, 0, spinner, 0); pthread_setname_np(thread, "spinner"); }
    puts("ready");
    fflush(stdout);
    return waits_in_read(ends[0]) + (int)(long)arguments;
}
"#;
const PYTHON: &str = r#"
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1])
def step():
    print("ready", flush=True)
    library.waits_in_read(os.pipe()[0])
step()
"#;

/// Ends with the test.
struct Own(Child);

impl Drop for Own {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Own {
    /// Started, and past its first words; None if it ended before.
    fn start(command: &mut Command) -> Option<Self> {
        let mut own = Self(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?);
        let mut line = String::new();
        BufReader::new(own.0.stdout.as_mut()?).read_line(&mut line).ok()?;
        (line == "ready\n").then_some(own)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its stacks once they hold a word: it may not have come there yet.
    fn stacks_with(&self, word: &str) -> String {
        self.stacks_when(word, false)
    }

    /// The same once no thread runs, too.
    fn stacks_at_rest(&self, word: &str) -> String {
        self.stacks_when(word, true)
    }

    fn stacks_when(&self, word: &str, at_rest: bool) -> String {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let said = stacks(self.pid());
            match said {
                Ok(text) if text.contains(word) && !(at_rest && text.contains("it runs:")) => return text,
                other => assert!(Instant::now() < until, "no {word} in {other:?}"),
            }
            thread::yield_now();
        }
    }
}

fn stacks(pid: u32) -> Result<String, ReadingError> {
    let request = Request {
        target: Target { pids: vec![pid], ..Target::default() },
        deadline_ms: 6_000,
        native_frames: true,
        ..Request::default()
    };
    Ok((by_name("stacks-of").unwrap().take)(&request)?.as_str().unwrap().to_owned())
}

/// A folder with `program` and `libslow.so`; None where there is no compiler, and under QEMU, where the kernel knows only QEMU's
/// registers.
fn built(options: &[&str]) -> Option<tempfile::TempDir> {
    if crate::is_emulated() {
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("slow.c"), LIBRARY).unwrap();
    std::fs::write(folder.path().join("program.c"), PROGRAM).unwrap();
    let cc = |arguments: &[&str]| {
        let status = Command::new("cc").args(options).args(arguments).current_dir(folder.path()).status();
        status.ok().map(|status| assert!(status.success()))
    };
    cc(&["-shared", "-fPIC", "slow.c", "-o", "libslow.so", "-pthread"])?;
    cc(&["program.c", "./libslow.so", "-o", "program", "-pthread"])?;
    Some(folder)
}

/// Each is in the text, in this order.
fn assert_order(text: &str, words: &[&str]) {
    let mut from = 0;
    for word in words {
        let at = text.get(from..).unwrap().find(word);
        from += at.unwrap_or_else(|| panic!("no {word} behind byte {from} of\n{text}")) + word.len();
    }
}

/// With a frame pointer in every function, and without: the kernel does not report the first pointer.
#[test]
fn functions_that_a_blocked_thread_stands_in() {
    for options in [["-O0"], ["-O2"]] {
        let Some(folder) = built(&options) else { return };
        let own = Own::start(Command::new("./program").current_dir(folder.path())).unwrap();
        let text = own.stacks_at_rest("    hidden_wait (libslow.so)");
        assert_order(
            &text,
            &[
                &format!("Process {}: program\n\nThread {0} (idle): \"program\"\n", own.pid()),
                "    hidden_wait (libslow.so)\n    waits_in_read (libslow.so)\n    main (program)\n",
                "    waits_for_lock (libslow.so)\n    locker (program)\n",
                "    framed_wait (libslow.so)\n    waits_framed (libslow.so)\n    framed (program)\n",
            ],
        );
        assert!(!text.contains("native frames:"), "{text}");
    }
}

#[test]
fn what_has_no_symbol_has_its_address_in_the_file() {
    let Some(folder) = built(&["-O2", "-s"]) else { return };
    let own = Own::start(Command::new("./program").current_dir(folder.path())).unwrap();
    let text = own.stacks_with("    waits_in_read (libslow.so)");
    assert!(!text.contains("hidden_wait") && !text.contains(" main ("), "{text}");
    let main = own.stacks_with("(libslow.so)\n    waits_in_read (libslow.so)\n    0x");
    assert!(main.contains(" (program)\n"), "{main}");
}

#[test]
fn a_thread_that_runs_has_none_and_that_is_said() {
    let Some(folder) = built(&["-O2"]) else { return };
    let own = Own::start(Command::new("./program").arg("spin").current_dir(folder.path())).unwrap();
    let text = own.stacks_with("\"spinner\"\n        native frames: it ");
    assert_order(&own.stacks_with("hidden_wait"), &["main (program)"]);
    assert!(text.contains("(active): \"spinner\""), "{text}");
}

#[test]
fn a_process_that_ends_meanwhile() {
    let Some(folder) = built(&["-O2"]) else { return };
    let mut own = Own::start(Command::new("./program").current_dir(folder.path())).unwrap();
    let pid = own.pid();
    own.stacks_with("hidden_wait");
    let look = ThreadsLook::take(Path::new("/proc"), pid, &BTreeSet::new()).unwrap();
    own.0.kill().unwrap();
    own.0.wait().unwrap();
    let left = look.frames(Instant::now() + Duration::from_secs(5));
    assert!(left.is_err() || left.is_ok_and(|(threads, _)| threads.iter().all(|t| t.frames.is_empty())));
    assert!(ThreadsLook::take(Path::new("/proc"), pid, &BTreeSet::new()).is_err());
    assert!(matches!(stacks(pid), Err(ReadingError::Failed(_) | ReadingError::Absent(_))));
}

/// A program of Python that waits in a library of C; None without Python or a compiler.
fn python() -> Option<(tempfile::TempDir, Own)> {
    let folder = built(&["-O0"])?;
    std::fs::write(folder.path().join("train.py"), PYTHON).unwrap();
    let mut command = Command::new("python3");
    command.args(["train.py", "./libslow.so"]).current_dir(folder.path());
    Some((folder, Own::start(&mut command)?))
}

#[test]
fn native_frames_stand_below_pythons() {
    let Some((_folder, own)) = python() else { return };
    let text = own.stacks_with("    hidden_wait (libslow.so)");
    assert_order(
        &text,
        &[
            "\"MainThread\"\n",
            "    hidden_wait (libslow.so)\n    waits_in_read (libslow.so)\n",
            "    step (train.py:6)\n    <module> (train.py:7)\n",
        ],
    );
    // The interpreter's own way into the program is not shown.
    assert!(!text.contains("_PyEval") && !text.contains("__libc_start_main"), "{text}");
}

/// No thread of it is ever stopped or traced while its stacks are taken, over and over.
#[test]
fn nothing_is_stopped() {
    let Some((_folder, own)) = python() else { return };
    own.stacks_with("hidden_wait");
    let of = Path::new("/proc").join(own.pid().to_string());
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let n_looks = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let stat = Stat::parse(&text(&of.join("stat")).unwrap()).unwrap();
                assert!(!matches!(stat.state.as_str(), "T" | "t"), "{stat:?}");
                assert_eq!(status(&text(&of.join("status")).unwrap(), "TracerPid"), Some("0"));
                n += 1;
            }
            n
        });
        for _ in 0..20 {
            assert!(stacks(own.pid()).unwrap().contains("hidden_wait"));
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.join().unwrap()
    });
    assert!(n_looks > 100, "{n_looks}");
}

#[test]
fn without_the_capability_it_is_named() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Some(folder) = built(&["-O2"]) else { return };
    let own = Own::start(Command::new("./program").current_dir(folder.path())).unwrap();
    // Rights are a thread's own: only this one gives them up.
    let said = thread::scope(|scope| {
        let without = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            if !sets.effective.contains(CapabilitySet::SYS_PTRACE) {
                return stacks(1);
            }
            sets.effective.remove(CapabilitySet::SYS_PTRACE);
            sets.permitted.remove(CapabilitySet::SYS_PTRACE);
            set_capabilities(None, sets).unwrap();
            stacks(own.pid())
        });
        without.join().unwrap()
    });
    let Err(ReadingError::Failed(why)) = said else { panic!("{said:?}") };
    assert!(why.contains("needs CAP_SYS_PTRACE, which is missing"), "{why}");
}

/// Its files are on a file system that only its own mount namespace has.
#[test]
fn files_of_another_mount_namespace() {
    let Some(folder) = built(&["-O2"]) else { return };
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let script = "mount -t tmpfs none inside && cp program libslow.so inside/ && cd inside && exec ./program";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).current_dir(folder.path());
    // A machine that lets nobody mount.
    let Some(own) = Own::start(&mut command) else { return };
    assert!(!inside.join("program").exists());
    own.stacks_with("    hidden_wait (libslow.so)\n    waits_in_read (libslow.so)\n    main (program)\n");
}
