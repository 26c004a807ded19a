//! Lines that are passed over in runs give what they give one by one.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Read;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::super::{prefix, words};
use super::*;
use crate::Extract;
use crate::ground::{Limits, Sink};
use crate::readers::kernel;
use crate::tell::recordings;
use crate::text::{Pace, Room, read_at};

fn is_text_file(name: &str) -> bool {
    !matches!(name.rsplit('.').next(), Some("json" | "gz"))
}

/// What recorded kernel logs say, without what preceded it.
static MESSAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let is_log = |name: &str| {
        is_text_file(name)
            && ["dmesg", "kern.log", "journal", "kmsg"].iter().any(|start| name.starts_with(start))
    };
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for (_, bytes) in recordings(is_log) {
        let mut stamps = prefix::Stamps::default();
        messages.extend(bytes.split(|b| *b == b'\n').map(|line| {
            let iso = stamp::date_time(line, b'T').and_then(|(_, r)| stamp::after_zone(r).strip_prefix(b" "));
            stamps.read(iso.unwrap_or(line)).text.to_vec()
        }));
    }
    messages.sort_unstable();
    messages.dedup();
    messages
});

/// Lines of NCCL's, recorded.
static OF_NCCL: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let logs = recordings(|name| name == "nccl_a.log");
    logs.iter().flat_map(|(_, bytes)| bytes.split(|b| *b == b'\n').take(40).map(<[u8]>::to_vec)).collect()
});

/// What looks like another part of a prefix, or goes on with a statement.
const ODD: [&str; 38] = [
    "",
    " ",
    "kernel: x",
    "kernel: kernel: x",
    "node7 kernel: x",
    "node9 kernel: [    1.000000] x",
    "kernel - - - x",
    "node7 kernel - - x",
    "node7 kernel[12]: x",
    "Nov 20 08:21:34 node9 kernel: x",
    "Nov 20 08:21:34 x",
    "Thu 2026-11-20 08:21:34 UTC x",
    "2026-11-20T08:21:34+00:00 node7 kernel: x",
    "[2026-04-22T21:27:51.288830314Z]: x",
    "[T12] [T13] x",
    "[T12]x",
    "[   C3] node7 kernel: x",
    "[    9.000000] x",
    "[Fri Aug 30 11:43:09 2024] x",
    "[drm] x]: y",
    "[UFW BLOCK] IN=eth0",
    "[drm",
    "<6>[    1.000000] x",
    "<6>x",
    "6,1234,567890,-;x",
    "6,1234,567890,c;x",
    "8021q: x",
    "info: x",
    "kern  :warn  : x",
    "foo[123]: bar]: x",
    "stdout F x",
    "pcieport 0000:00:03.0:   device [8086:6f08] error status/mask=00004020/00000000",
    "pcieport 0000:00:03.0:    [14] CmpltTO                (First)",
    " pcieport 0000:00:03.0:    [ 5] SDES",
    "PCI 0000:00:1f.0: x",
    "CPU 3: x",
    "caf\u{e9} \u{2028} x",
    "{\"log\":\"[    1.000000] x\\n\",\"stream\":\"stderr\",\"time\":\"2026-11-20T08:21:34.5Z\"}",
];

const HOSTS: [&str; 9] =
    ["node7", "node8.example.com", "Node9", "localhost", "local1", "n-1_2", "7up", "kern", "node9"];

/// Number of forms of [`stamped`].
const N_FORMS: usize = 21;

/// A line as one tool or another prints it.
fn stamped(form: usize, us: u64, host: &str, message: &[u8]) -> Vec<u8> {
    let (s, us) = (us / 1_000_000, us % 1_000_000);
    let (day, clock) =
        (1 + s / 86_400 % 28, format!("{:02}:{:02}:{:02}", s / 3_600 % 24, s / 60 % 60, s % 60));
    let prefix = match form {
        0 => format!("[{s:>5}.{us:06}] "),
        1 => format!("[{s:>5}.{us:06}] [{:>7}] ", "T194"),
        2 => format!("[Fri Nov {day:>2} {clock} 2026] "),
        3 => format!("kern  :info  : [{s:>5}.{us:06}] "),
        4 => format!("kern  :notice: [Fri Nov {day:>2} {clock} 2026] "),
        5 => format!("Nov {day:>2} {clock} {host} kernel: "),
        6 => format!("Nov {day:>2} {clock}.{us:06} {host} kernel: "),
        7 => format!("Nov {day:>2} {clock} {host} kernel: [{s:>5}.{us:06}] "),
        8 => format!("2026-11-{day:02}T{clock}+0000 {host} kernel: "),
        9 => format!("2026-11-{day:02}T{clock}.{us:06}+00:00 {host} kernel: [{s:>5}.{us:06}] "),
        10 => format!("[{s:>5}.{us:06}] {host} kernel: "),
        11 => format!("6,1234,{},-;", s * 1_000_000 + us),
        // From here on left to the other path.
        12 => format!("<6>[{s:>5}.{us:06}] "),
        13 => format!("daemon:err   : [{s:>5}.{us:06}] "),
        14 => format!("Nov {day:>2} {clock} {host} systemd[1]: "),
        15 => format!("<6>1 2026-11-{day:02}T{clock}.{us:06}Z {host} kernel - - - "),
        16 => format!("[rank3]: [{s:>5}.{us:06}] "),
        17 => format!("{host}: [{s:>5}.{us:06}] "),
        18 => format!("3: [{s:>5}.{us:06}] "),
        19 => "kernel: ".to_owned(),
        _ => String::new(),
    };
    [prefix.as_bytes(), message].concat()
}

/// Gives its bytes a few at a time.
struct Sips<'a>(&'a [u8], usize);

impl Read for Sips<'_> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        let n = self.1.min(room.len());
        self.0.read(room.get_mut(..n).unwrap_or_default())
    }
}

/// All that is read at a pace.
fn told(pace: Pace, bytes: &[u8], sip: usize, limits: &Limits) -> String {
    let mut extract = Extract::default();
    let mut sink = Sink::open("dmesg.txt", limits, &mut extract);
    let size = read_at(pace, &[], &mut Sips(bytes, sip), &mut Room::default(), &mut sink);
    sink.close(size);
    let Extract { sources, observations, notes } = extract;
    format!("{sources:?}\n{observations:#?}\n{notes:#?}")
}

fn check(bytes: &[u8], sip: usize, limits: &Limits) {
    let (runs, lines) = (told(Pace::Runs, bytes, sip, limits), told(Pace::LineByLine, bytes, sip, limits));
    if runs != lines {
        let at = runs.lines().zip(lines.lines()).position(|(a, b)| a != b).unwrap_or(0);
        let near =
            |told: &str| told.lines().skip(at.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n");
        panic!(
            "in runs:\n{}\nline by line:\n{}\nof:\n{}",
            near(&runs),
            near(&lines),
            String::from_utf8_lossy(bytes)
        );
    }
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => prop::sample::select(&**MESSAGES),
        2 => prop::sample::select(&ODD[..]).prop_map(|m| m.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>().prop_filter("a line", |b| *b != b'\n'), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn runs_of_quiet_lines_give_what_the_lines_give(
        lines in prop::collection::vec(
            (message(), prop::option::weighted(0.08, 0..N_FORMS), 0..20_000_000_u64, 0..100_u32),
            1..160,
        ),
        main_form in 0..N_FORMS,
        main_host in prop::sample::select(&HOSTS[..]),
        other_host in prop::sample::select(&HOSTS[..]),
        sip in prop::sample::select(vec![7_usize, 300, 1 << 20]),
        is_crlf in prop::bool::weighted(0.2),
        is_ended in any::<bool>(),
        max_line_bytes in prop::sample::select(vec![40_usize, 1 << 20]),
    ) {
        let mut bytes = Vec::new();
        let mut us = 86_399_000_000_u64;
        for (at, (message, form, gap, dice)) in lines.iter().enumerate() {
            // Time goes on, and seldom back: another boot.
            us = if *dice == 0 { 1_000_000 } else { us + gap / 16 };
            let host = if *dice < 5 { other_host } else { main_host };
            let line = match dice {
                80..=84 => OF_NCCL.get(at % OF_NCCL.len()).unwrap().clone(),
                _ => stamped(form.unwrap_or(main_form), us, host, message),
            };
            bytes.extend_from_slice(&line);
            bytes.extend_from_slice(if is_crlf { b"\r\n" } else { b"\n" });
        }
        if !is_ended {
            while bytes.last().is_some_and(|b| matches!(b, b'\r' | b'\n')) {
                bytes.pop();
            }
        }
        check(&bytes, sip, &Limits { max_line_bytes, ..Limits::default() });
    }
}

#[test]
fn recorded_logs_give_the_same_in_runs() {
    for (_, bytes) in recordings(is_text_file) {
        // Whole runs of all ranks prove nothing more here.
        check(bytes.get(..80_000).unwrap_or(&bytes), 64 << 10, &Limits::default());
    }
}

#[test]
fn quiet_lines_of_the_usual_forms_are_passed_over() {
    for form in 0..12 {
        let mut stamps = Stamps::default();
        for message in
            ["docker0: port 1(veth12ab) entered blocking state", "x", "[drm] Initialized i915", "TCP: x y"]
        {
            let line = stamped(form, 12_345_678, "node7", message.as_bytes());
            let stamp = stamps.read(&line);
            let text = stamp.map(|s| String::from_utf8_lossy(s.text).into_owned());
            assert_eq!(text.as_deref(), Some(message), "{form}: {}", String::from_utf8_lossy(&line));
        }
    }
}

#[test]
fn lines_with_a_word_are_never_passed_over() {
    for (word, _) in words::WORDS {
        for pad in 0..40 {
            let text = format!("{:pad$}{word}{:pad$}", "", "");
            assert_eq!(kernel::next_word(text.as_bytes()).map(|at| at <= pad), Some(true), "{word}");
            assert!(words::next(text.as_bytes()).is_some(), "{word}");
        }
    }
    assert_eq!(kernel::next_word(b"vm:916:972 [0] NCCL INFO x"), Some(15));
    assert_eq!(kernel::next_word(b"docker0: port 1(veth12ab) entered blocking state"), None);
}
