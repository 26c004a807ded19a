//! GPUs: every output of nvidia-smi, the table of rocm-smi, dcgmi's diagnostics, the driver's services, and the report that joins them all.
//!
//! Written by NVIDIA's closed tools; their layouts are all there is. Each output is identified by its first line and
//! read by the names in it, anywhere in a file: `nvidia-bug-report.sh` writes dozens of them one after another, with a
//! line of 44 underscores between two, and so do people's own scripts.

use std::sync::Arc;

use ringleader_model::{Fact, GpuForm, GpuRow, GpuTable, Host, NoteKind, SourceKind, WallTime};

use crate::ground::{Line, LineReader, Sink, TableSpan, Wants, clock, shell};

mod csv;
mod diag;
mod field;
mod links;
mod monitor;
mod query;
mod rocm;
mod service;
mod table;
mod topology;
mod xml;

pub(crate) use diag::read_json;

/// GPUs of one output: no machine has more; a longer list is not kept.
const MAX_GPUS: usize = 4_096;
/// Processes, paths and failures of one output.
const MAX_ROWS: usize = 100_000;
const MAX_FAILURES: usize = 1_000;
/// Longest prompt with its command.
const MAX_PROMPT: usize = 1_000;

/// What the tool prints in place of a table, or of one GPU.
const FAILURES: [&str; 7] = [
    "NVIDIA-SMI has failed because",
    "Unable to determine the device handle for",
    "Failed to initialize NVML",
    "No devices were found",
    "No devices found",
    "GPU is lost",
    "Failed to get GPU count",
];

/// First lines of outputs, dates above them, and the words of services.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        let mut words = vec![
            "NVSMI LOG",
            "nvidia_smi_log",
            "<gpu id=\"",
            "____________________________________________",
            "Start of NVIDIA bug report log file",
            "(UUID: ",
            ".service",
            "] [tid ",
            " nv-fabricmanager[",
            " nvidia-persistenced[",
            "nvidia-smi",
            "dcgmi",
            "systemctl",
        ];
        words.extend(FAILURES);
        words
    },
    begins: may_begin,
};

fn may_begin(line: &[u8]) -> bool {
    let body = line.trim_ascii_start();
    match body {
        [b'|' | b'+' | b'#', ..]
        | [b'G', b'P', b'U', b' ' | b'0', ..]
        | [b'D', b'e', b'v', b'i', b'c', b'e', b' ', ..] => true,
        // `[Nov 20 2026 08:15:01] [INFO] …` of Fabric Manager.
        [b'[', rest @ ..] => clock::begins_month(rest),
        [0x1b, ..] => memchr::memmem::find(body, b"GPU0").is_some(),
        [b'M' | b'T' | b'W' | b'F' | b'S', ..] => line.len() < 64 && clock::begins_ctime(body),
        [b'a'..=b'z' | b'0'..=b'9', ..] => {
            std::str::from_utf8(line).is_ok_and(|text| csv::Csv::begin(text).is_some())
        }
        _ => false,
    }
}

/// Reads what is said of GPUs.
#[derive(Default)]
pub(crate) struct GpuReader {
    open: Option<OpenOutput>,
    diag: Option<diag::DiagTable>,
    service: Option<service::Service>,
    /// The last line that was a date, which nvidia-smi prints before its table.
    date: Option<(u32, WallTime)>,
    /// Host of the last prompt of a shell.
    host: Option<Host>,
    /// Columns that the command in this line asks for.
    asked: Option<(u32, Vec<String>)>,
    /// The line of a command that queries everything, or some sections.
    queried: Option<u32>,
    /// The line that comes may lack its end.
    is_cut: bool,
}

/// An output that is being read.
struct OpenOutput {
    fact: GpuTable,
    span: TableSpan,
    form: GpuOutputForm,
}

/// What is needed to go on reading it.
enum GpuOutputForm {
    Table(table::SmiTable),
    Query(query::Query),
    Xml(xml::Xml),
    Csv(csv::Csv),
    Links(links::Links),
    Topology(topology::Topology),
    Monitor(monitor::Monitor),
    Rocm,
    /// Nothing but failures so far.
    Failures,
}

impl GpuOutputForm {
    /// Lines after its last one within which an output may go on.
    fn max_gap_lines(&self) -> u32 {
        match self {
            Self::Csv(_) | Self::Monitor(_) => 1,
            Self::Xml(_) => 2_000,
            _ => 8,
        }
    }
}

impl OpenOutput {
    fn begin(form: GpuForm, state: GpuOutputForm, line: &Line<'_>, sink: &Sink<'_>) -> Self {
        let fact = GpuTable { form, ..GpuTable::default() };
        Self { fact, span: TableSpan::begin(line, sink), form: state }
    }

    /// Whether the line is of this output.
    fn take(&mut self, line: &Line<'_>, text: &str) -> bool {
        match &mut self.form {
            GpuOutputForm::Table(table) => table.line(&mut self.fact, text, line.number),
            GpuOutputForm::Query(query) => query.line(&mut self.fact, text, line.number),
            GpuOutputForm::Xml(xml) => xml.line(&mut self.fact, text, line.number),
            GpuOutputForm::Csv(csv) => csv.line(&mut self.fact, text, line.number),
            GpuOutputForm::Links(links::Links) => links::Links::line(&mut self.fact, text, line.number),
            GpuOutputForm::Topology(topology) => topology.line(&mut self.fact, text, line.number),
            GpuOutputForm::Monitor(monitor) => monitor.line(&mut self.fact, text, line.number),
            GpuOutputForm::Rocm => rocm::line(&mut self.fact, text, line.number),
            GpuOutputForm::Failures => false,
        }
    }

    fn close(mut self, sink: &mut Sink<'_>) {
        match &self.form {
            GpuOutputForm::Xml(xml) if !xml.is_complete() => {
                let cite = sink.cite(self.span.last_line, self.span.end, self.span.end);
                let text = "nvidia-smi's XML ends early; the GPUs before it were read".into();
                sink.note(cite, NoteKind::Truncated, text);
            }
            GpuOutputForm::Monitor(monitor) => monitor.finish(&mut self.fact),
            _ => {}
        }
        let lacks_end = match &self.form {
            GpuOutputForm::Table(table) => !table.is_closed(),
            GpuOutputForm::Xml(xml) => !xml.is_complete(),
            GpuOutputForm::Query(_) => self.fact.attached.is_some_and(|n| n as usize > self.fact.gpus.len()),
            _ => false,
        };
        let ends_within_a_line = self.fact.is_cut;
        self.fact.is_cut |= lacks_end;
        if ends_within_a_line {
            let cite = sink.cite(self.span.last_line, self.span.end, self.span.end);
            let text = "nvidia-smi's output ends within a line; GPUs may have followed".into();
            sink.note(cite, NoteKind::Truncated, text);
        }
        field::number_gpus(&mut self.fact);
        self.span.push(SourceKind::NvidiaSmi, Fact::Gpus(self.fact.into()), sink);
    }
}

impl LineReader for GpuReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(&first) = line.body.trim_ascii_start().first() else { return false };
        // A cut line's last word may be part of one.
        if std::mem::take(&mut self.is_cut) {
            if let Some(open) = &mut self.open {
                open.fact.is_cut = true;
            }
            return false;
        }
        if self.go_on(line, sink) || self.answer(line, sink) || self.begin(line, first, sink) {
            if let Some(open) = &mut self.open {
                open.span.on(self.host.as_ref());
            }
            return true;
        }
        self.prompt(line);
        false
    }

    fn awake_until(&self) -> u32 {
        let is_open = self.open.is_some() || self.service.as_ref().is_some_and(service::Service::is_status);
        let asked = self.asked.as_ref().map(|(number, _)| *number).max(self.queried);
        if is_open { u32::MAX } else { asked.map_or(0, |number| number.saturating_add(1)) }
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
        self.close_diag(sink);
        self.close_service(sink);
    }
}

impl GpuReader {
    fn go_on(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(open) = &mut self.open else { return false };
        if line.number > open.span.last_line.saturating_add(open.form.max_gap_lines()) {
            self.close(sink);
            return false;
        }
        let Ok(text) = std::str::from_utf8(line.body) else { return false };
        if open.take(line, text) {
            open.span.add(line, sink);
            return true;
        }
        false
    }

    /// The first row below a command that names the columns, or that queries: people cut off the heading of the only GPU.
    fn answer(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let below = |number: u32| line.number == number.saturating_add(1);
        if self.queried.take().is_some_and(below)
            && let Some(text) = std::str::from_utf8(line.body).ok().filter(|text| query::is_section(text))
        {
            self.open(GpuForm::Query, GpuOutputForm::Query(query::Query::default()), line, sink);
            if let Some(open) = &mut self.open {
                open.fact.gpus.push(GpuRow { line: line.number, ..GpuRow::default() });
            }
            self.go_on_same(line, text);
            return true;
        }
        let Some((number, columns)) = self.asked.take() else { return false };
        let text = std::str::from_utf8(line.body).ok().filter(|_| line.number == number.saturating_add(1));
        let Some((text, csv)) = text.and_then(|text| Some((text, csv::Csv::below(&columns, text)?))) else {
            return false;
        };
        self.open(GpuForm::Csv, GpuOutputForm::Csv(csv), line, sink);
        self.go_on_same(line, text);
        true
    }

    fn begin(&mut self, line: &Line<'_>, first: u8, sink: &mut Sink<'_>) -> bool {
        if line.body.len() > 8_192 && first != b'<' {
            return false;
        }
        if matches!(first, b'M' | b'T' | b'W' | b'F' | b'S') && line.body.len() < 64 {
            let at = std::str::from_utf8(line.body).ok().and_then(clock::ctime);
            self.date = at.map(|at| (line.number, at)).or(self.date);
        }
        let Ok(text) = std::str::from_utf8(line.body) else { return false };
        match first {
            b'|' | b'+' => self.begin_table(line, text, sink) || self.diag_line(line, text, sink),
            b'=' if text.contains("NVSMI LOG") => {
                self.open(GpuForm::Query, GpuOutputForm::Query(query::Query::default()), line, sink)
            }
            b'<' => match xml::Xml::begin(text) {
                Some(xml) => {
                    self.open(GpuForm::Xml, GpuOutputForm::Xml(xml), line, sink);
                    self.go_on_same(line, text);
                    true
                }
                None => false,
            },
            b'#' => match monitor::Monitor::begin(text) {
                Some(monitor) => {
                    let form = monitor.form();
                    self.open(form, GpuOutputForm::Monitor(monitor), line, sink)
                }
                None => false,
            },
            b'_' if text.starts_with("____________________________________________") => {
                self.close(sink);
                self.close_diag(sink);
                self.close_service(sink);
                false
            }
            b'S' if text.starts_with("Start of NVIDIA bug report log file") => {
                sink.saw(SourceKind::BugReport);
                true
            }
            b'G' | b'D' if rocm::begins(text) => self.open(GpuForm::RocmSmi, GpuOutputForm::Rocm, line, sink),
            b'N' | b'U' | b'F' | b'G' if self.failure(line, text, sink) => true,
            b'G' => self.begin_gpu(line, text, sink),
            0x1b => self.begin_topology(line, text, sink),
            _ if first.is_ascii_lowercase() || first.is_ascii_digit() => match csv::Csv::begin(text) {
                Some(csv) => {
                    let is_data = csv.is_data();
                    self.open(GpuForm::Csv, GpuOutputForm::Csv(csv), line, sink);
                    if is_data {
                        self.go_on_same(line, text);
                    }
                    true
                }
                None => self.service_line(line, text, sink),
            },
            _ => self.service_line(line, text, sink),
        }
    }

    /// `root@node0:~# nvidia-smi`: what follows is of that host.
    fn prompt(&mut self, line: &Line<'_>) {
        if line.body.len() > MAX_PROMPT {
            return;
        }
        let Ok(text) = std::str::from_utf8(line.body) else { return };
        self.asked = csv::asked(text).map(|columns| (line.number, columns));
        self.queried = shell::command(text).filter(|c| query::is_asked(c)).map(|_| line.number);
        if memchr::memchr(b'@', line.body).is_none() {
            return;
        }
        if shell::command(text)
            .is_some_and(|c| ["nvidia-smi", "dcgmi", "systemctl"].iter().any(|t| c.contains(t)))
        {
            self.host = shell::host(text).map(Arc::from);
        }
    }

    /// The line that opened an output holds content too.
    fn go_on_same(&mut self, line: &Line<'_>, text: &str) {
        if let Some(open) = &mut self.open {
            open.take(line, text);
        }
    }

    fn open(&mut self, form: GpuForm, state: GpuOutputForm, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        self.close(sink);
        let mut open = OpenOutput::begin(form, state, line, sink);
        open.fact.at = line.tag.at;
        self.open = Some(open);
        true
    }

    fn begin_table(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink<'_>) -> bool {
        let Some(versions) = table::versions(text) else { return false };
        let date = self.date.filter(|(n, _)| line.number <= n.saturating_add(3)).map(|(_, at)| at);
        self.open(GpuForm::Table, GpuOutputForm::Table(table::SmiTable::default()), line, sink);
        if let Some(open) = &mut self.open {
            (open.fact.driver_version, open.fact.cuda_version) = versions;
            open.fact.at = date.or(open.fact.at);
            open.span.at = open.fact.at;
        }
        true
    }

    /// `GPU 0: NVIDIA H200 (UUID: …)` of a list, `GPU 00000000:00:06.0` of a query without its heading, or the heading
    /// of a topology without its colour.
    fn begin_gpu(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink<'_>) -> bool {
        if links::heading(text).is_some() {
            self.open(GpuForm::List, GpuOutputForm::Links(links::Links), line, sink);
        } else if query::gpu_heading(text).is_some() {
            self.open(GpuForm::Query, GpuOutputForm::Query(query::Query::default()), line, sink);
        } else {
            return self.begin_topology(line, text, sink);
        }
        self.go_on_same(line, text);
        true
    }

    fn begin_topology(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink<'_>) -> bool {
        match topology::Topology::begin(text) {
            Some(topology) => self.open(GpuForm::Topology, GpuOutputForm::Topology(topology), line, sink),
            None => false,
        }
    }

    fn failure(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink<'_>) -> bool {
        if !FAILURES.iter().any(|f| text.trim_ascii_start().starts_with(f)) {
            return false;
        }
        let said = crate::ground::bounded_text(line.body, 300).into_boxed_str();
        let open = self
            .open
            .get_or_insert_with(|| OpenOutput::begin(GpuForm::Table, GpuOutputForm::Failures, line, sink));
        if open.fact.failures.len() < MAX_FAILURES {
            open.fact.failures.push((line.number, said));
        }
        open.span.last_line = line.number;
        open.span.end = open.span.end.max(line.end());
        true
    }

    fn close(&mut self, sink: &mut Sink<'_>) {
        if let Some(open) = self.open.take() {
            open.close(sink);
        }
    }
}

#[cfg(test)]
mod tests;
