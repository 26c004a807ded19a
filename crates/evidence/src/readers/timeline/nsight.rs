//! Exports of Nsight Systems to SQLite. Tables and columns come and go between versions: each is looked for by name.

use std::collections::BTreeMap;

use ringleader_model::{
    CommCall, DeviceWork, Fact, Host, HostSpan, NoteKind, OpKind, Pid, Recorder, SourceKind, SpanKind,
    StepMark, Timeline, Who, WorkKind,
};

use super::kinds;
use super::names::InternedNames;
use super::reach;
use super::sqlite::{Database, MAGIC, SqlValue};
use crate::ground::Sink;

/// Largest export that is read: it is held in memory.
pub(crate) const MAX_BYTES: u64 = 4 << 30;
/// Rows of one table.
const MAX_ROWS: usize = 50_000_000;

/// Whether a file is an SQLite database.
pub(crate) fn is_database(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// Kinds of NVTX events that have a start and an end: push and pop, start and end.
const RANGES: [i64; 2] = [59, 60];
/// NVTX events that name a domain.
const DOMAIN: i64 = 75;
/// NVTX payloads of NCCL: schema ids count from here.
const NCCL_SCHEMAS: i64 = 1 << 24;

/// What the tables of one process and GPU hold.
#[derive(Default)]
struct GpuPart {
    work: Vec<DeviceWork>,
}

/// Reads an export.
pub(crate) fn read(bytes: &[u8], sink: &mut Sink<'_>) {
    let whole = sink.cite(0, 0, bytes.len() as u64);
    let Some(database) = Database::open(bytes) else {
        return sink.note(
            whole,
            NoteKind::Malformed,
            "an SQLite database whose schema cannot be read".to_owned(),
        );
    };
    if database.table("StringIds").is_none()
        || database.table("META_DATA_EXPORT").is_none() && database.table("EXPORT_META_DATA").is_none()
    {
        sink.saw(SourceKind::Unknown);
        let text = "an SQLite database that is no export of Nsight Systems: not read".to_owned();
        return sink.note(whole, NoteKind::Unrecognised, text);
    }
    sink.saw(SourceKind::Timeline);
    let mut reader = NsightReader { strings: strings(&database), ..NsightReader::default() };
    reader.read(&database);
    if reader.is_damaged {
        sink.note(
            whole,
            NoteKind::Truncated,
            "tables of this export are incomplete; what could be read was".to_owned(),
        );
    }
    reader.finish(whole, sink);
}

/// The table of strings. Ids are dense but for a few.
fn strings(database: &Database<'_>) -> BTreeMap<i64, String> {
    let mut strings = BTreeMap::new();
    if let Some(table) = database.table("StringIds") {
        table.rows(["id", "value"], |[id, value]| {
            if let (Some(id), Some(value)) = (id.integer(), value.text()) {
                strings.insert(id, value);
            }
        });
    }
    strings
}

#[derive(Default)]
struct NsightReader {
    strings: BTreeMap<i64, String>,
    names: InternedNames,
    /// By process and device.
    parts: BTreeMap<(u32, u32), GpuPart>,
    /// By process.
    spans: BTreeMap<u32, Vec<HostSpan>>,
    steps: BTreeMap<u32, Vec<StepMark>>,
    /// Calls into NCCL by process: start, end, arguments.
    calls: BTreeMap<u32, Vec<(i64, i64, CommCall)>>,
    epoch_ns: i64,
    host: Option<Host>,
    devices: BTreeMap<u32, (Box<str>, Option<u32>)>,
    n_rows: usize,
    is_damaged: bool,
}

/// The process of a global thread id.
fn pid_of(global: i64) -> u32 {
    ((global / 0x100_0000) % 0x100_0000) as u32
}

impl NsightReader {
    fn name(&mut self, id: SqlValue<'_>) -> u32 {
        match id {
            SqlValue::Text(text) => self.names.of(text),
            other => {
                let text = other.integer().and_then(|id| self.strings.get(&id)).map_or("", String::as_str);
                self.names.of(text.as_bytes())
            }
        }
    }

    fn read(&mut self, database: &Database<'_>) {
        if let Some(table) = database.table("TARGET_INFO_SESSION_START_TIME") {
            table.rows(["utcEpochNs"], |[at]| self.epoch_ns = at.integer().unwrap_or(0));
        }
        if let Some(table) = database.table("TARGET_INFO_SYSTEM_ENV") {
            table.rows(["name", "value"], |[name, value]| {
                if name.text().as_deref() == Some("Hostname") {
                    self.host = value.text().map(|host| crate::ground::host_of(&host));
                }
            });
        }
        if let Some(table) = database.table("TARGET_INFO_GPU") {
            let id = if table.has("cuDevice") { "cuDevice" } else { "id" };
            table.rows([id, "name", "smCount"], |[id, name, sms]| {
                if let (Some(id), Some(name)) = (id.integer(), name.text()) {
                    self.devices.insert(id as u32, (name.into(), sms.integer().map(|n| n as u32)));
                }
            });
        }
        self.kernels(database);
        self.graphs(database);
        self.copies(database, "CUPTI_ACTIVITY_KIND_MEMCPY");
        self.copies(database, "CUPTI_ACTIVITY_KIND_MEMSET");
        self.runtime(database);
        self.nvtx(database);
    }

    fn add(&mut self, [global, device]: [SqlValue<'_>; 2], work: DeviceWork) {
        self.n_rows += 1;
        let fits = work.start_ns.abs() < 1 << 60
            && (0..1 << 53).contains(&(work.end_ns.saturating_sub(work.start_ns)));
        if self.n_rows > MAX_ROWS || !fits {
            self.is_damaged = true;
            return;
        }
        let key = (pid_of(global.integer().unwrap_or(0)), device.integer().unwrap_or(0) as u32);
        self.parts.entry(key).or_default().work.push(work);
    }

    fn kernels(&mut self, database: &Database<'_>) {
        let Some(table) = database.table("CUPTI_ACTIVITY_KIND_KERNEL") else { return };
        let label = if table.has("demangledName") { "demangledName" } else { "shortName" };
        let columns = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            label,
            "gridX",
            "gridY",
            "gridZ",
        ];
        let whole = table.rows(columns, |[start, end, device, stream, link, pid, label, x, y, z]| {
            let (Some(start_ns), Some(end_ns)) = (start.integer(), end.integer()) else { return };
            let name = self.name(label);
            let kind = if self.names.meaning(name).is_comm { WorkKind::Comm } else { WorkKind::Compute };
            let blocks = [x, y, z].map(|n| n.integer().unwrap_or(1).clamp(1, 1 << 31) as u32);
            self.add(
                [pid, device],
                DeviceWork {
                    start_ns,
                    end_ns,
                    name,
                    stream: stream.integer().unwrap_or(0) as u32,
                    kind,
                    correlation: link.integer().unwrap_or(0) as u32,
                    call: 0,
                    size_bytes: 0,
                    n_blocks: blocks.into_iter().fold(1, u32::saturating_mul),
                },
            );
        });
        self.is_damaged |= !whole;
    }

    /// Whole CUDA graphs, as nsys records them unless told `--cuda-graph-trace=node`: what runs within one, communication too,
    /// is not in the file.
    fn graphs(&mut self, database: &Database<'_>) {
        let Some(table) = database.table("CUPTI_ACTIVITY_KIND_GRAPH_TRACE") else { return };
        let columns = ["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId"];
        let whole = table.rows(columns, |[start, end, device, stream, link, pid, graph]| {
            let (Some(start_ns), Some(end_ns)) = (start.integer(), end.integer()) else { return };
            let name = self.names.of(format!("CUDA graph {}", graph.integer().unwrap_or(0)).as_bytes());
            self.add(
                [pid, device],
                DeviceWork {
                    start_ns,
                    end_ns,
                    name,
                    stream: stream.integer().unwrap_or(0) as u32,
                    kind: WorkKind::Compute,
                    correlation: link.integer().unwrap_or(0) as u32,
                    call: 0,
                    size_bytes: 0,
                    n_blocks: 0,
                },
            );
        });
        self.is_damaged |= !whole;
    }

    fn copies(&mut self, database: &Database<'_>, name: &str) {
        let Some(table) = database.table(name) else { return };
        let is_fill = !table.has("copyKind");
        let columns = [
            "start",
            "end",
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "bytes",
            "copyKind",
            "srcKind",
            "dstKind",
        ];
        let whole = table.rows(columns, |[start, end, device, stream, link, pid, bytes, kind, from, to]| {
            let (Some(start_ns), Some(end_ns)) = (start.integer(), end.integer()) else { return };
            // CUPTI's numbers: copies 1 and 2 are with the host, memory of kind 1 is pageable.
            let with_host = matches!(kind.integer(), Some(1 | 2));
            let pageable = with_host && [from, to].iter().any(|kind| kind.integer() == Some(1));
            let kind = if is_fill { WorkKind::Fill } else { WorkKind::Copy { with_host, pageable } };
            let name = self.names.of(if is_fill { b"Memset" } else { b"Memcpy" });
            self.add(
                [pid, device],
                DeviceWork {
                    start_ns,
                    end_ns,
                    name,
                    stream: stream.integer().unwrap_or(0) as u32,
                    kind,
                    correlation: link.integer().unwrap_or(0) as u32,
                    call: 0,
                    size_bytes: bytes.integer().unwrap_or(0).max(0) as u64,
                    n_blocks: 0,
                },
            );
        });
        self.is_damaged |= !whole;
    }

    fn runtime(&mut self, database: &Database<'_>) {
        let Some(table) = database.table("CUPTI_ACTIVITY_KIND_RUNTIME") else { return };
        let whole = table.rows(
            ["start", "end", "globalTid", "correlationId", "nameId"],
            |[start, end, thread, link, name]| {
                let (Some(start_ns), Some(end_ns), Some(global)) =
                    (start.integer(), end.integer(), thread.integer())
                else {
                    return;
                };
                let name = self.name(name);
                let kind = SpanKind::Runtime(self.names.meaning(name).runtime);
                self.span(
                    global,
                    HostSpan {
                        start_ns,
                        end_ns,
                        name,
                        thread: 0,
                        kind,
                        link: link.integer().unwrap_or(0) as u32,
                    },
                );
            },
        );
        self.is_damaged |= !whole;
    }

    fn span(&mut self, global: i64, mut span: HostSpan) {
        self.n_rows += 1;
        let fits = span.start_ns.abs() < 1 << 60
            && (0..1 << 53).contains(&(span.end_ns.saturating_sub(span.start_ns)));
        if self.n_rows > MAX_ROWS || !fits {
            self.is_damaged = true;
            return;
        }
        span.thread = (global % 0x100_0000) as u32;
        self.spans.entry(pid_of(global)).or_default().push(span);
    }

    fn nvtx(&mut self, database: &Database<'_>) {
        let Some(table) = database.table("NVTX_EVENTS") else { return };
        let mut nccl = None;
        table.rows(["eventType", "domainId", "text"], |[kind, domain, text]| {
            if kind.integer() == Some(DOMAIN) && text.text().as_deref() == Some("NCCL") {
                nccl = domain.integer();
            }
        });
        let columns = ["start", "end", "eventType", "text", "textId", "globalTid", "domainId", "binaryData"];
        table.rows(columns, |[start, end, kind, text, id, thread, domain, payload]| {
            let (Some(start_ns), Some(end_ns), Some(global)) =
                (start.integer(), end.integer(), thread.integer())
            else {
                return;
            };
            if !kind.integer().is_some_and(|kind| RANGES.contains(&kind)) {
                return;
            }
            let name = if text == SqlValue::Null { self.name(id) } else { self.name(text) };
            let label = self.names.name(name).to_owned();
            if nccl.is_some() && domain.integer() == nccl {
                let call = payload_call(&label, payload);
                self.calls.entry(pid_of(global)).or_default().push((start_ns, end_ns, call));
                return;
            }
            if let Some(number) = step_number(&label) {
                self.steps.entry(pid_of(global)).or_default().push(StepMark {
                    number,
                    start_ns,
                    end_ns,
                    bytes: (0, 0),
                });
            }
            self.span(
                global,
                HostSpan { start_ns, end_ns, name, thread: 0, kind: SpanKind::Annotation, link: 0 },
            );
        });
    }

    fn finish(mut self, cite: ringleader_model::Cite, sink: &mut Sink<'_>) {
        let names = std::mem::take(&mut self.names).into_names();
        let parts = std::mem::take(&mut self.parts);
        for ((pid, device), part) in parts {
            let mut timeline = Timeline::new(Recorder::Nsight);
            timeline.names.clone_from(&names);
            timeline.work = part.work;
            timeline.host_spans = self.spans.get(&pid).cloned().unwrap_or_default();
            timeline.steps = self.steps.get(&pid).cloned().unwrap_or_default();
            timeline.pid = Some(Pid(pid));
            timeline.host.clone_from(&self.host);
            timeline.device = Some(device);
            if let Some((name, n_sms)) = self.devices.get(&device) {
                timeline.device_name = Some(name.clone());
                timeline.n_sms = *n_sms;
            }
            timeline.n_events = self.n_rows as u64;
            timeline.is_damaged = self.is_damaged;
            link(&mut timeline, self.calls.get(&pid).map_or(&[][..], Vec::as_slice));
            shift(&mut timeline, self.epoch_ns);
            reach::within(&mut timeline);
            let who = Who { host: timeline.host.clone(), pid: timeline.pid, ..Who::default() };
            sink.push(cite, who, None, Fact::Timeline(Box::new(timeline)), b"");
        }
    }
}

/// `step 12`, `train_step_12`, `ProfilerStep#12`, `iteration12`.
fn step_number(label: &str) -> Option<u64> {
    let lower = label.to_ascii_lowercase();
    let words = ["profilerstep", "step", "iteration", "iter"];
    let digits_at = lower.find(|c: char| c.is_ascii_digit())?;
    let (before, digits) = lower.split_at(digits_at);
    let word = before.trim_end_matches([' ', '_', '#', ':', '-', '=']);
    let is_step = words.iter().any(|w| word.ends_with(w));
    is_step.then(|| digits.parse().ok()).flatten()
}

/// Arguments of a call of NCCL out of the payload of its range: the communicator, then the message in bytes.
fn payload_call(label: &str, payload: SqlValue<'_>) -> CommCall {
    let kind = kinds::op_kind(label.strip_prefix("nccl").unwrap_or(label));
    let mut call = CommCall { kind, element_bytes: 1, ..CommCall::default() };
    let SqlValue::Blob(bytes) = payload else { return call };
    let word = |at: usize, n: usize| -> Option<u64> {
        let bytes = bytes.get(at..at + n)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    // Header of 32 bytes: domain, -, schema, -, size, total.
    let schema = word(8, 4).unwrap_or(0) as i64;
    if schema < NCCL_SCHEMAS {
        return call;
    }
    call.group = word(32, 8).map_or_else(String::new, |comm| format!("{comm:#x}")).into();
    let size = word(40, 8).unwrap_or(0);
    (call.in_elements, call.out_elements) = (size, size);
    if matches!(kind, Some(OpKind::Send | OpKind::Recv)) {
        call.peer = word(48, 4).map(|peer| peer as u32);
    }
    call
}

/// Gives communication kernels the arguments of the NCCL call within which they were launched; sorts all rows.
fn link(timeline: &mut Timeline, calls: &[(i64, i64, CommCall)]) {
    timeline.work.sort_by_key(|w| (w.start_ns, w.end_ns, w.stream));
    timeline.host_spans.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns), s.thread));
    timeline.steps.sort_by_key(|s| (s.start_ns, s.number));
    let mut calls = calls.to_vec();
    calls.sort_by_key(|(start, end, _)| (*start, *end));
    let launches: BTreeMap<u32, i64> = timeline
        .host_spans
        .iter()
        .filter(|s| s.link != 0 && matches!(s.kind, SpanKind::Runtime(_)))
        .map(|s| (s.link, s.start_ns))
        .collect();
    for at in 0..timeline.work.len() {
        let Some(work) = timeline.work.get(at).filter(|w| w.kind == WorkKind::Comm).copied() else {
            continue;
        };
        let launched = launches.get(&work.correlation).copied();
        let of_range = launched.and_then(|launched| {
            let until = calls.partition_point(|(start, _, _)| *start <= launched);
            let (_, _, call) = calls.get(until.checked_sub(1)?)?;
            Some(call.clone())
        });
        let by_name = || CommCall { kind: kinds::op_kind(timeline.name(work.name)), ..CommCall::default() };
        let call = of_range.unwrap_or_else(by_name);
        timeline.calls.push(call);
        let place = timeline.calls.len() as u32;
        if let Some(work) = timeline.work.get_mut(at) {
            work.call = place;
        }
    }
}

fn shift(timeline: &mut Timeline, by: i64) {
    let by = by.clamp(-(1 << 61), 1 << 61);
    for work in &mut timeline.work {
        (work.start_ns, work.end_ns) = (work.start_ns + by, work.end_ns + by);
    }
    for span in &mut timeline.host_spans {
        (span.start_ns, span.end_ns) = (span.start_ns + by, span.end_ns + by);
    }
    for step in &mut timeline.steps {
        (step.start_ns, step.end_ns) = (step.start_ns + by, step.end_ns + by);
    }
}
