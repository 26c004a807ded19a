//! Signals and exit codes: the meaning of a number that a launcher prints.
//!
//! Source: signal(7) of Linux; POSIX shells and container runtimes (128 + signal), Python and torchrun (the negative
//! signal), sysexits.h, the exit codes that Open MPI, Slurm and Kubernetes document.

/// One signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Number on x86-64 and arm64.
    pub number: u8,
    /// `SIGKILL`.
    pub name: &'static str,
    /// The text of shells and `strsignal`.
    pub text: &'static str,
    /// What it means for a rank.
    pub means: &'static str,
}

/// The number of a signal that is given as number, name or text: `9`, `SIGKILL`, `Killed`.
pub fn number_of(text: &str) -> Option<u8> {
    let text = text.trim().trim_end_matches('.');
    let by_text = || ALL.iter().find(|s| s.text == text);
    text.parse().ok().or_else(|| named(text).or_else(by_text).map(|s| s.number))
}

/// How a process ended, by its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// 0.
    Normal,
    /// A signal ended it.
    Signal(&'static Signal),
    /// It ended by itself with a code that the shell or the launcher defines.
    Known(i64, &'static str),
    /// It ended by itself with a code of its own.
    Code(i64),
}

/// An instruction that the processor does not know: built for another processor, or damaged code.
pub const SIGILL: u8 = 4;
/// `abort()`: a process ended itself, or its watchdog did.
pub const SIGABRT: u8 = 6;
/// A mapped page was missing.
pub const SIGBUS: u8 = 7;
/// A division by zero in native code.
pub const SIGFPE: u8 = 8;
/// Ends a process at once; it cannot be caught.
pub const SIGKILL: u8 = 9;
/// A bad pointer in native code.
pub const SIGSEGV: u8 = 11;
/// Asks a process to end.
pub const SIGTERM: u8 = 15;

impl Signal {
    /// Whether the process caused it: by an instruction of its own, or by its own abort. Other signals come from
    /// outside.
    pub fn is_own(&self) -> bool {
        matches!(self.number, SIGILL | SIGABRT | SIGBUS | SIGFPE | SIGSEGV)
    }

    /// The first word of a crash report about it: programs differ in the words that follow.
    pub fn first_word(&self) -> &'static str {
        self.text.split(' ').next().unwrap_or(self.text)
    }
}

/// Codes below 128 with a defined meaning.
const KNOWN: &[(i64, &str)] = &[
    (1, "the program ended by itself: an exception nobody caught, or its own exit(1)"),
    (2, "the program ended by itself: mostly wrong arguments"),
    (124, "timeout(1) ended it: its time was over"),
    (125, "the container or the command could not be started"),
    (126, "the command is there and cannot be executed"),
    (127, "the command was not found"),
    (255, "ssh or the launcher failed, or the program ended with -1"),
];

static ALL: &[Signal] = &[
    Signal { number: 1, name: "SIGHUP", text: "Hangup", means: "its terminal or session ended" },
    Signal {
        number: 2,
        name: "SIGINT",
        text: "Interrupt",
        means: "a user pressed Ctrl-C, or the launcher forwarded it",
    },
    Signal { number: 3, name: "SIGQUIT", text: "Quit", means: "it was asked to leave a core" },
    Signal {
        number: 4,
        name: "SIGILL",
        text: "Illegal instruction",
        means: "it crashed: code for another processor, or damaged code",
    },
    Signal {
        number: 5,
        name: "SIGTRAP",
        text: "Trace/breakpoint trap",
        means: "a check in native code failed, or a debugger left it",
    },
    Signal {
        number: 6,
        name: "SIGABRT",
        text: "Aborted",
        means: "it aborted itself: an assertion, an uncaught C++ exception, or a watchdog",
    },
    Signal {
        number: 7,
        name: "SIGBUS",
        text: "Bus error",
        means: "a mapped page was not there: full /dev/shm, a truncated file, or bad memory",
    },
    Signal {
        number: 8,
        name: "SIGFPE",
        text: "Floating point exception",
        means: "it crashed: a division by zero in native code",
    },
    Signal {
        number: 9,
        name: "SIGKILL",
        text: "Killed",
        means: "it was killed: out of memory, the launcher's clean-up, or somebody",
    },
    Signal {
        number: 10,
        name: "SIGUSR1",
        text: "User defined signal 1",
        means: "a scheduler's warning before the end, or a request to save",
    },
    Signal { number: 11, name: "SIGSEGV", text: "Segmentation fault", means: "it crashed in native code" },
    Signal {
        number: 12,
        name: "SIGUSR2",
        text: "User defined signal 2",
        means: "a scheduler's warning before the end",
    },
    Signal {
        number: 13,
        name: "SIGPIPE",
        text: "Broken pipe",
        means: "who read its output or its socket was gone",
    },
    Signal { number: 14, name: "SIGALRM", text: "Alarm clock", means: "its own timer ran out" },
    Signal {
        number: 15,
        name: "SIGTERM",
        text: "Terminated",
        means: "a request to end: from the launcher's clean-up, the scheduler, or a user",
    },
    Signal { number: 16, name: "SIGSTKFLT", text: "Stack fault", means: "rarely used" },
    Signal { number: 17, name: "SIGCHLD", text: "Child exited", means: "a child ended" },
    Signal { number: 18, name: "SIGCONT", text: "Continued", means: "it goes on after a stop" },
    Signal { number: 19, name: "SIGSTOP", text: "Stopped (signal)", means: "it was stopped and lives" },
    Signal {
        number: 20,
        name: "SIGTSTP",
        text: "Stopped",
        means: "it was stopped from its terminal and lives",
    },
    Signal {
        number: 21,
        name: "SIGTTIN",
        text: "Stopped (tty input)",
        means: "in the background, it read from its terminal",
    },
    Signal {
        number: 22,
        name: "SIGTTOU",
        text: "Stopped (tty output)",
        means: "in the background, it wrote to its terminal",
    },
    Signal {
        number: 23,
        name: "SIGURG",
        text: "Urgent I/O condition",
        means: "ignored by nearly all programs",
    },
    Signal {
        number: 24,
        name: "SIGXCPU",
        text: "CPU time limit exceeded",
        means: "its limit of processor time was reached",
    },
    Signal {
        number: 25,
        name: "SIGXFSZ",
        text: "File size limit exceeded",
        means: "its limit of file size was reached",
    },
    Signal { number: 26, name: "SIGVTALRM", text: "Virtual timer expired", means: "its own timer ran out" },
    Signal {
        number: 27,
        name: "SIGPROF",
        text: "Profiling timer expired",
        means: "a profiler's timer ran out",
    },
    Signal { number: 28, name: "SIGWINCH", text: "Window changed", means: "its terminal changed its size" },
    Signal { number: 29, name: "SIGIO", text: "I/O possible", means: "rarely used" },
    Signal { number: 30, name: "SIGPWR", text: "Power failure", means: "the machine lost its power supply" },
    Signal {
        number: 31,
        name: "SIGSYS",
        text: "Bad system call",
        means: "a seccomp filter forbade a system call",
    },
];

/// All signals, by number.
pub fn all() -> &'static [Signal] {
    ALL
}

/// The signal with this number.
pub fn get(number: i64) -> Option<&'static Signal> {
    ALL.iter().find(|s| i64::from(s.number) == number)
}

/// The signal with this name, with or without `SIG`.
pub fn named(name: &str) -> Option<&'static Signal> {
    ALL.iter().find(|s| s.name == name || s.name.strip_prefix("SIG") == Some(name))
}

/// The meaning of an exit code: `-9` of Python and torchrun, `137` of shells and containers, `35072` of `wait`.
pub fn exit(code: i64) -> ExitStatus {
    let known = |number| get(number).map(ExitStatus::Signal);
    let own = || {
        KNOWN
            .iter()
            .find(|(c, _)| *c == code)
            .map_or(ExitStatus::Code(code), |&(c, means)| ExitStatus::Known(c, means))
    };
    match code {
        0 => ExitStatus::Normal,
        -64..0 => known(-code).unwrap_or(ExitStatus::Code(code)),
        129..=192 => known(code - 128).unwrap_or_else(own),
        // The unshifted status of `wait`.
        256..=65535 if code % 256 == 0 => exit(code / 256),
        _ => own(),
    }
}

/// The signal that an exit code indicates.
pub fn of_exit(code: i64) -> Option<&'static Signal> {
    match exit(code) {
        ExitStatus::Signal(signal) => Some(signal),
        ExitStatus::Normal | ExitStatus::Known(..) | ExitStatus::Code(_) => None,
    }
}

/// Whether an exit code indicates the signal with this number.
pub fn is_exit_by(code: i64, number: u8) -> bool {
    of_exit(code).is_some_and(|signal| signal.number == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_all_conventions_are_signals() {
        for (code, name) in [
            (137, "SIGKILL"),
            (-9, "SIGKILL"),
            (139, "SIGSEGV"),
            (134, "SIGABRT"),
            (143, "SIGTERM"),
            (35072, "SIGKILL"),
        ] {
            assert_eq!(exit(code), ExitStatus::Signal(named(name).expect("it is in the table")), "{code}");
        }
        assert_eq!(exit(0), ExitStatus::Normal);
        assert!(matches!(exit(1), ExitStatus::Known(1, _)));
        assert_eq!(exit(42), ExitStatus::Code(42));
        assert_eq!(named("KILL").map(|s| s.number), Some(9));
    }
}
