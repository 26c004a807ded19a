//! nccl-tests: its table, its JSON, and known-answer copies between GPUs.
//!
//! ```text
//! # Collective test starting: all_reduce_perf
//! #  Rank  0 Group  0 Pid   4242 on         vm device  0 [0000:00:06] NVIDIA H200
//!   1073741824     268435456     float     sum      -1  4551.76  235.90  353.84       0  4550.80  235.95  353.92       0
//! # Out of bounds values : 0 OK
//! # Avg bus bandwidth    : 138.187
//! ```
//! Written by NVIDIA/nccl-tests src/util.cu (before 2.17 src/common.cu). Old releases print no root for collectives
//! without one, a bus number in place of the address, and the largest error where newer ones count wrong elements.

mod copy;
mod json;

use std::sync::Arc;

use ringleader_model::{
    BenchDevice, BenchFigure, BenchRow, BenchRun, Fact, Host, PciAddress, Pid, Rank, SourceKind,
};

use crate::ground::{Line, LineReader, Sink, TableSpan, Wants, shell};

pub(crate) use json::read_json;

/// Rows and devices of one run that are kept; a run has tens of sizes.
const MAX_ROWS: usize = 10_000;
/// Lines between the heading of rows and the first of them.
const MAX_HEAD_LINES: u32 = 8;
/// Longest line that can be ours.
const MAX_LINE: usize = 1_000;

/// Types as nccl-tests prints them.
const TYPES: [&str; 14] = [
    "float", "int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "double", "bfloat16", "fp8_e4m3",
    "fp8_e5m2", "f8e4m3", "f8e5m2",
];

/// What a test, a shell that starts one, and a comparison of copies print.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        vec![
            "_perf",
            "echo $?",
            "NCCL version ",
            ">>> ",
            "Enabling peer access between GPU",
            "Test passed",
            "Verification error",
        ]
    },
    begins: |line| {
        let line = line.trim_ascii();
        let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
        let is_number = |word: Option<&[u8]>| word.is_some_and(|w| w.iter().all(u8::is_ascii_digit));
        line.first() == Some(&b'#')
            || is_number(words.next())
                && is_number(words.next())
                && words.next().is_some_and(|kind| kind.first().is_some_and(u8::is_ascii_lowercase))
    },
};

/// Runs of nccl-tests in a text file.
#[derive(Default)]
pub(crate) struct BenchReader {
    open: Option<OpenRun>,
    /// The last command that starts a test: line and words.
    command: Option<(u32, Box<str>)>,
    /// The last heading of rows: its line, and whether its last columns are errors, not counts.
    headed: Option<(u32, bool)>,
    /// `echo $?` was on this line.
    asked_status: Option<u32>,
    copies: copy::Copies,
    is_cut: bool,
}

struct OpenRun {
    run: BenchRun,
    span: TableSpan,
    /// The last column of a half is the largest error, not a count.
    counts_errors: bool,
}

impl LineReader for BenchReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body.trim_ascii();
        let Some(&first) = body.first() else { return false };
        if self.is_cut || body.len() > MAX_LINE {
            return false;
        }
        match first {
            b'#' | b'0'..=b'9' | b'$' | b'+' => {}
            // Releases before 2.0 print their sums without a mark.
            b'N' | b'O' | b'A' if self.open.is_some() => {}
            b'>' | b'(' | b'T' | b'F' | b't' | b'E' | b'V' => {
                return std::str::from_utf8(body).is_ok_and(|text| self.copies.line(text, line, sink));
            }
            // A command after a prompt.
            _ if memchr::memmem::find(body, b"_perf").is_some() => {}
            _ => return false,
        }
        let Ok(text) = std::str::from_utf8(body) else { return false };
        match first {
            b'#' => self.heading(text, line, sink) || self.shell(text, line, sink),
            b'0'..=b'9' => self.row(text, line, sink) || self.status(text, line, sink),
            b'N' => self.version(text, line, sink),
            b'O' | b'A' => self.heading(text, line, sink) || self.shell(text, line, sink),
            _ => self.shell(text, line, sink),
        }
    }

    fn awake_until(&self) -> u32 {
        let of_status = self.asked_status.map_or(0, |at| at.saturating_add(1));
        of_status.max(self.copies.awake_until())
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
    }
}

impl BenchReader {
    fn heading(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let rest = text.trim_start_matches('#').trim_start();
        if rest.starts_with("nccl-tests version ") {
            self.begin(line, sink);
        } else if let Some(name) = rest.strip_prefix("Collective test starting: ") {
            let open = self.opened(line, sink, |run| {
                run.collective.is_none() && run.devices.is_empty() && run.rows.is_empty()
            });
            open.run.collective = collective(name);
        } else if rest.starts_with("nThread ") && rest.contains(" nGpus ") || rest == "Using devices" {
            self.opened(line, sink, |run| run.devices.is_empty() && run.rows.is_empty());
        } else if let Some(device) = device(rest, line.number) {
            let open = self.opened(line, sink, |run| run.rows.is_empty());
            if open.run.devices.len() < MAX_ROWS {
                open.run.devices.push(device);
            }
        } else if let Some(rest) = rest.strip_prefix("Out of bounds values : ") {
            let Some(n) = rest.split(' ').next().and_then(|n| n.parse().ok()) else { return false };
            let open = self.opened(line, sink, |run| run.out_of_bounds.is_none());
            open.run.out_of_bounds = Some((line.number, n));
        } else if let Some(rest) = rest.strip_prefix("Avg bus bandwidth").map(str::trim_start) {
            let value = rest.strip_prefix(':').and_then(|r| r.split_ascii_whitespace().next()?.parse().ok());
            let Some(value) = value.filter(|v: &f64| v.is_finite()) else { return false };
            let open = self.opened(line, sink, |run| run.avg_busbw_gbs.is_none());
            open.run.avg_busbw_gbs = Some((line.number, value));
            // Below NCCL_TESTS_MIN_BW: a statement of failure, which the message table knows.
            return !rest.ends_with("FAILED");
        } else {
            let words: Vec<&str> = rest.split_ascii_whitespace().collect();
            // The heading of the rows, where the head above it is gone: rows may begin a run.
            if let ["size", "count", "type", ..] = words.as_slice() {
                self.headed = Some((line.number, words.contains(&"error")));
            }
            let Some(open) = &mut self.open else { return false };
            match words.as_slice() {
                ["size", "count", "type", ..] => open.counts_errors = words.contains(&"error"),
                [] | ["(B)", ..] => {}
                _ if rest.contains("out-of-place") || rest.starts_with("Collective test concluded") => {}
                _ => return false,
            }
            if !rest.is_empty() {
                open.span.add(line, sink);
            }
        }
        true
    }

    /// The run that is open, if it `fits` what the line says; else a new one.
    fn opened(
        &mut self,
        line: &Line<'_>,
        sink: &mut Sink<'_>,
        fits: impl Fn(&BenchRun) -> bool,
    ) -> &mut OpenRun {
        if self.open.as_ref().is_some_and(|open| fits(&open.run)) {
            if let Some(open) = &mut self.open {
                open.span.add(line, sink);
            }
        } else {
            self.begin(line, sink);
        }
        self.open.get_or_insert_with(|| OpenRun {
            run: BenchRun::default(),
            span: TableSpan::begin(line, sink),
            counts_errors: false,
        })
    }

    fn begin(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.close(sink);
        let mut run = BenchRun::default();
        if let Some((_, command)) = self.command.take() {
            run.collective = command.split_ascii_whitespace().find_map(collective);
            run.settings = command.split_ascii_whitespace().filter_map(setting).collect();
            run.command = Some(command);
        }
        self.open = Some(OpenRun { run, span: TableSpan::begin(line, sink), counts_errors: false });
    }

    fn close(&mut self, sink: &mut Sink<'_>) {
        self.asked_status = None;
        let Some(OpenRun { run, span, .. }) = self.open.take() else { return };
        span.push(SourceKind::NcclTests, Fact::Bench(Box::new(run)), sink);
    }

    fn row(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let headed = self.headed.filter(|(at, _)| line.number <= at.saturating_add(MAX_HEAD_LINES));
        let counts_errors =
            self.open.as_ref().map_or(headed.is_some_and(|(_, errors)| errors), |open| open.counts_errors);
        let Some(row) = row(text, line.number, counts_errors) else { return false };
        // Rows alone, without the head: nothing else prints such.
        match &mut self.open {
            Some(open) => open.span.add(line, sink),
            None => self.begin(line, sink),
        }
        let Some(open) = &mut self.open else { return false };
        open.counts_errors = counts_errors;
        if open.run.rows.len() < MAX_ROWS {
            open.run.rows.push(row);
        }
        true
    }

    fn version(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let (Some(open), Some(version)) = (&mut self.open, text.strip_prefix("NCCL version ")) else {
            return false;
        };
        open.run.nccl_version = Some(version.split(' ').next().unwrap_or(version).into());
        open.span.add(line, sink);
        true
    }

    /// A command that starts a test, or asks how the last one ended.
    fn shell(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(command) = shell::command(text) else { return false };
        if command.contains("_perf") && command.split_ascii_whitespace().any(|w| collective(w).is_some()) {
            self.close(sink);
            self.command = Some((line.number, command.into()));
            return true;
        }
        if command == "echo $?" && self.open.is_some() {
            self.asked_status = Some(line.number);
            return true;
        }
        false
    }

    fn status(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if self.asked_status.take().map(|n| n.saturating_add(1)) != Some(line.number) {
            return false;
        }
        let (Some(open), Ok(status)) = (&mut self.open, text.parse()) else { return false };
        open.run.exit_status = Some((line.number, status));
        open.span.add(line, sink);
        self.close(sink);
        true
    }
}

/// `all_reduce` of `./build/all_reduce_perf`.
fn collective(word: &str) -> Option<Box<str>> {
    let name = word.rsplit('/').next()?.trim_end_matches("_mpi").strip_suffix("_perf")?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    is_name.then(|| name.into())
}

/// `NCCL_P2P_DISABLE=1`, before the program or as an argument of a launcher.
fn setting(word: &str) -> Option<(Box<str>, Box<str>)> {
    let (name, value) = word.trim_matches(['"', '\'']).split_once('=')?;
    let is_name = name.starts_with("NCCL_") && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then(|| (name.into(), value.into()))
}

/// `Rank  0 Group  0 Pid   4242 on         vm device  0 [0000:00:06] NVIDIA H200`; `Group` is newer.
fn device(rest: &str, line: u32) -> Option<BenchDevice> {
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ["Rank", rank, tail @ ..] = words.as_slice() else { return None };
    let tail = match tail {
        ["Group", _, tail @ ..] => tail,
        tail => tail,
    };
    let ["Pid", pid, "on", host, "device", number, pci, name @ ..] = tail else { return None };
    let pci = pci.strip_prefix('[')?.strip_suffix(']')?;
    let pci = match pci.strip_prefix("0x") {
        Some(bus) => {
            u8::from_str_radix(bus, 16).ok().map(|bus| PciAddress { domain: 0, bus, device: 0, function: 0 })
        }
        None => PciAddress::parse(pci),
    };
    Some(BenchDevice {
        line,
        rank: Some(Rank(rank.parse().ok()?)),
        pid: pid.parse().ok().map(Pid),
        host: Some(short_host(host)),
        device: number.parse().ok(),
        pci,
        name: name.join(" ").into(),
    })
}

/// A host's name up to the first dot.
fn short_host(name: &str) -> Host {
    Arc::from(name.split('.').next().unwrap_or(name))
}

fn row(text: &str, line: u32, counts_errors: bool) -> Option<BenchRow> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [size, count, kind, rest @ ..] = words.as_slice() else { return None };
    count.parse::<u64>().ok()?;
    if !TYPES.contains(kind) {
        return None;
    }
    // The operation, and the root where it is printed: what comes next is a time, which may be a whole number, too, but
    // each half has four columns.
    let [_, rest @ ..] = rest else { return None };
    let rest = match rest {
        [root, halves @ ..]
            if rest.len() % 4 != 0 && !root.contains(['.', 'e']) && root.parse::<i32>().is_ok() =>
        {
            halves
        }
        rest => rest,
    };
    let mut halves = rest.chunks_exact(4).map(|half| figure(half, counts_errors));
    let first = halves.next()??;
    Some(BenchRow {
        line,
        size_bytes: size.parse().ok()?,
        out_of_place: Some(first),
        in_place: halves.next().flatten(),
    })
}

fn figure(half: &[&str], counts_errors: bool) -> Option<BenchFigure> {
    let [time, algbw, busbw, wrong] = half else { return None };
    let number = |word: &str| word.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0);
    let is_error = counts_errors || wrong.contains("e-") || *wrong == "0e+00";
    let n_wrong = number(wrong).filter(|_| !is_error).map(|n| n as u64);
    if n_wrong.is_none() && *wrong != "N/A" && !is_error {
        return None;
    }
    Some(BenchFigure {
        time_us: number(time)?,
        algbw_gbs: number(algbw)?,
        busbw_gbs: number(busbw)?,
        n_wrong,
    })
}

#[cfg(test)]
mod tests;
