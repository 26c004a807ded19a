//! From events in Chrome's format to timelines.

use std::collections::BTreeMap;

use ringleader_model::{
    CommCall, DeviceWork, Fact, HostSpan, Pid, Rank, Recorder, SpanKind, StepMark, Timeline, TimelineGroup,
    Who, WorkKind,
};
use serde_json::Value;

use super::feed::TraceEvent;
use super::kinds;
use super::names::InternedNames;
use super::reach;
use super::scan;
use crate::ground::Sink;
use crate::ground::intern::LookupMap;

/// Most events of one file that are kept.
const MAX_EVENTS: usize = 100_000_000;

/// Times beyond this are damage; within it, no difference of two overflows.
const MAX_TIME_NS: i64 = 1 << 61;
/// Longest event, ns: some four months.
const MAX_DURATION_NS: i64 = 1 << 53;

/// What is being read.
#[derive(Default)]
pub(super) struct Builder {
    names: InternedNames,
    work: Vec<DeviceWork>,
    /// Device of each work.
    devices: Vec<u32>,
    host_spans: Vec<HostSpan>,
    steps: Vec<StepMark>,
    calls: Vec<CommCall>,
    /// External ids of operators that communicate, and the index of their arguments plus 1.
    operators: LookupMap<u32, u32>,
    /// The same operators by when they ended: thread, end, index of the arguments plus 1.
    communicated: Vec<(u32, i64, u32)>,
    /// Correlation of a launch to the external id of its operator.
    externals: Vec<(u32, u32)>,
    meta: Meta,
    n_events: u64,
    /// What recorded it; PyTorch's profiler if unknown.
    pub(super) recorder: Option<Recorder>,
    /// Operations of NCCL's example profiler that have begun, by id: places in `work`.
    begun: LookupMap<u32, usize>,
}

/// What the document says beside its events.
#[derive(Default)]
struct Meta {
    base_ns: i64,
    rank: Option<u32>,
    world_size: Option<u32>,
    nccl_version: Option<Box<str>>,
    groups: Vec<TimelineGroup>,
    devices: BTreeMap<u32, (Box<str>, Option<u32>)>,
    host: Option<Box<str>>,
    pid: Option<u32>,
}

/// Whether the name is one of the marks that PyTorch's profiler puts around steps, data loading and the optimizer.
fn is_mark(name: &[u8]) -> bool {
    [&b"ProfilerStep#"[..], b"enumerate(DataLoader)#", b"Optimizer."]
        .iter()
        .any(|start| name.starts_with(start))
}

impl Builder {
    /// Takes an event.
    pub(super) fn event(&mut self, event: &TraceEvent<'_>) {
        self.n_events += 1;
        if matches!(event.phase, b'b' | b'e') && matches!(event.category, b"COLL" | b"P2P") {
            return self.nccl_example(event);
        }
        if event.phase != b'X' || self.work.len() + self.host_spans.len() >= MAX_EVENTS {
            return;
        }
        let Some(start_ns) = scan::micros(event.start).filter(|ns| ns.abs() < MAX_TIME_NS) else { return };
        let duration_ns = scan::micros(event.duration).unwrap_or(0).clamp(0, MAX_DURATION_NS);
        let end_ns = start_ns + duration_ns;
        let kind = match event.category {
            // Releases up to 1.10 give the profiler's own marks the category of operators.
            b"cpu_op" | b"Operator" if is_mark(event.name) => SpanKind::Annotation,
            b"cpu_op" | b"Operator" => SpanKind::Operator,
            b"cuda_runtime"
            | b"cuda_driver"
            | b"Runtime"
            | b"hip_runtime"
            | b"xpu_runtime"
            | b"privateuse1_runtime"
            | b"privateuse1_driver"
            | b"mtia_runtime" => {
                return self.runtime(event, start_ns, end_ns);
            }
            b"kernel" | b"Kernel" | b"gpu_memcpy" | b"Memcpy" | b"gpu_memset" | b"Memset"
            | b"concurrent_kernel" => {
                return self.device(event, start_ns, end_ns);
            }
            b"user_annotation" => SpanKind::Annotation,
            b"python_function" => SpanKind::Python,
            b"overhead" => SpanKind::Overhead,
            _ => return,
        };
        self.span(event, start_ns, end_ns, kind);
    }

    /// An operation of NCCL's example profiler: a begin and an end with one id. From the call to its end, so it includes the
    /// time in which the operation is queued.
    fn nccl_example(&mut self, event: &TraceEvent<'_>) {
        let Some(at_ns) = scan::micros(event.start).filter(|ns| ns.abs() < MAX_TIME_NS) else { return };
        let id = scan::integer(event.id).unwrap_or(0) as u32;
        if event.phase == b'e' {
            let open = self.begun.remove(&id).and_then(|place| self.work.get_mut(place));
            if let Some(work) = open {
                work.end_ns = at_ns.clamp(work.start_ns, work.start_ns.saturating_add(MAX_DURATION_NS));
            }
            return;
        }
        if self.work.len() >= MAX_EVENTS {
            return;
        }
        self.recorder = Some(Recorder::NcclExample);
        let name = self.names.of(event.name);
        let mut call = CommCall { kind: kinds::op_kind(self.names.name(name)), ..CommCall::default() };
        for (key, value) in scan::entries(event.args, event.is_mended) {
            let number = || scan::integer(value).unwrap_or(0).max(0) as u64;
            match key {
                b"SeqNum" => call.seq = Some(number()),
                b"CommHash" => call.group = crate::ground::lossy(value).into(),
                b"Rank" => self.meta.rank = self.meta.rank.or(u32::try_from(number()).ok()),
                b"Peer" => call.peer = u32::try_from(number()).ok(),
                b"Count" => (call.in_elements, call.out_elements) = (number(), number()),
                b"Datatype" => call.element_bytes = kinds::nccl_element_bytes(value),
                _ => {}
            }
        }
        self.calls.push(call);
        self.begun.insert(id, self.work.len());
        self.work.push(DeviceWork {
            start_ns: at_ns,
            end_ns: at_ns,
            name,
            stream: 0,
            kind: WorkKind::Comm,
            correlation: 0,
            call: self.calls.len() as u32,
            size_bytes: 0,
            n_blocks: 0,
        });
        self.devices.push(0);
    }

    fn span(&mut self, event: &TraceEvent<'_>, start_ns: i64, end_ns: i64, kind: SpanKind) {
        let mut link = 0;
        if kind == SpanKind::Operator {
            if event.name == b"record_param_comms" {
                link = external(event);
                let call = comm_call(event);
                self.add_call(call, link);
                self.communicated.push((thread(event.tid), end_ns, self.calls.len() as u32));
            }
        } else if let (SpanKind::Annotation, Some(number)) =
            (kind, event.name.strip_prefix(b"ProfilerStep#").and_then(scan::integer))
        {
            self.steps.push(StepMark { number: number as u64, start_ns, end_ns, bytes: event.bytes });
        }
        let name = self.names.of(event.name);
        self.host_spans.push(HostSpan { start_ns, end_ns, name, thread: thread(event.tid), kind, link });
    }

    fn add_call(&mut self, call: CommCall, external: u32) {
        self.calls.push(call);
        if external != 0 {
            self.operators.insert(external, self.calls.len() as u32);
        }
    }

    fn runtime(&mut self, event: &TraceEvent<'_>, start_ns: i64, end_ns: i64) {
        let name = self.names.of(event.name);
        let (mut link, mut external) = (0, 0);
        for (key, value) in scan::entries(event.args, event.is_mended) {
            match key {
                b"correlation" => link = scan::integer(value).unwrap_or(0) as u32,
                b"External id" | b"external id" => external = scan::integer(value).unwrap_or(0) as u32,
                _ => {}
            }
        }
        if external != 0 && link != 0 {
            self.externals.push((link, external));
        }
        if self.meta.pid.is_none() {
            self.meta.pid = scan::integer(event.pid).and_then(|pid| u32::try_from(pid).ok());
        }
        let kind = SpanKind::Runtime(self.names.meaning(name).runtime);
        self.host_spans.push(HostSpan { start_ns, end_ns, name, thread: thread(event.tid), kind, link });
    }

    fn device(&mut self, event: &TraceEvent<'_>, start_ns: i64, end_ns: i64) {
        let name = self.names.of(event.name);
        let meaning = self.names.meaning(name);
        let is_kernel = event.category.ends_with(b"ernel");
        let kind = match (is_kernel, meaning.is_comm) {
            (true, true) => WorkKind::Comm,
            (true, false) => WorkKind::Compute,
            (false, _) => meaning.copy,
        };
        let mut work = DeviceWork {
            start_ns,
            end_ns,
            name,
            stream: scan::integer(event.tid).unwrap_or(0) as u32,
            kind,
            correlation: 0,
            call: 0,
            size_bytes: 0,
            n_blocks: 0,
        };
        let mut device = scan::integer(event.pid).unwrap_or(0) as u32;
        let mut is_called = false;
        for (key, value) in scan::entries(event.args, event.is_mended) {
            match key {
                b"correlation" => work.correlation = scan::integer(value).unwrap_or(0) as u32,
                b"stream" => work.stream = scan::integer(value).map_or(work.stream, |n| n as u32),
                b"device" => device = scan::integer(value).map_or(device, |n| n as u32),
                b"bytes" => work.size_bytes = scan::integer(value).unwrap_or(0).max(0) as u64,
                b"grid" => work.n_blocks = scan::product(value).unwrap_or(0),
                b"Collective name" => is_called = true,
                _ => {}
            }
        }
        if is_called && kind == WorkKind::Comm {
            self.calls.push(comm_call(event));
            work.call = self.calls.len() as u32;
        }
        self.work.push(work);
        self.devices.push(device);
    }

    /// Takes a value of the document.
    pub(super) fn value(&mut self, key: &[u8], value: &[u8]) {
        let parsed = || serde_json::from_slice::<Value>(value).unwrap_or(Value::Null);
        match key {
            b"baseTimeNanoseconds" => {
                self.meta.base_ns =
                    scan::integer(scan::unquoted(value)).filter(|ns| ns.abs() < MAX_TIME_NS).unwrap_or(0);
            }
            b"host_name" | b"hostname" => self.meta.host = parsed().as_str().map(Into::into),
            b"distributedInfo" => self.distributed(&parsed()),
            b"deviceProperties" => {
                for device in parsed().as_array().into_iter().flatten() {
                    let number = |key: &str| device.get(key).and_then(Value::as_u64).map(|n| n as u32);
                    let name = device.get("name").and_then(Value::as_str).unwrap_or_default();
                    if let Some(id) = number("id") {
                        self.meta.devices.insert(id, (name.into(), number("numSms")));
                    }
                }
            }
            _ => {}
        }
    }

    fn distributed(&mut self, info: &Value) {
        // A number, or a number as text.
        let number = |value: Option<&Value>| -> Option<u32> {
            let value = value?;
            value.as_u64().map(|n| n as u32).or_else(|| value.as_str()?.parse().ok())
        };
        self.meta.rank = number(info.get("rank"));
        self.meta.world_size = number(info.get("world_size"));
        self.meta.nccl_version = info.get("nccl_version").and_then(Value::as_str).map(Into::into);
        for group in info.get("pg_config").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str| group.get(key).and_then(Value::as_str).unwrap_or_default().into();
            let ranks = match group.get("ranks") {
                Some(Value::Array(ranks)) => {
                    ranks.iter().filter_map(|r| r.as_u64().map(|n| n as u32)).collect()
                }
                Some(Value::String(ranks)) => scan::list(ranks.as_bytes()),
                _ => Vec::new(),
            };
            self.meta.groups.push(TimelineGroup {
                name: text("pg_name"),
                description: text("pg_desc"),
                ranks,
            });
        }
    }

    /// The timelines, one for each device.
    pub(super) fn finish(mut self, is_damaged: bool, size_bytes: u64, sink: &mut Sink<'_>) {
        self.link_calls();
        let names = std::mem::take(&mut self.names);
        let base = self.meta.base_ns;
        for work in &mut self.work {
            (work.start_ns, work.end_ns) =
                (work.start_ns.saturating_add(base), work.end_ns.saturating_add(base));
        }
        for span in &mut self.host_spans {
            (span.start_ns, span.end_ns) =
                (span.start_ns.saturating_add(base), span.end_ns.saturating_add(base));
        }
        for step in &mut self.steps {
            (step.start_ns, step.end_ns) =
                (step.start_ns.saturating_add(base), step.end_ns.saturating_add(base));
        }
        self.host_spans.sort_by_key(|s| (s.start_ns, std::cmp::Reverse(s.end_ns), s.thread));
        self.steps.sort_by_key(|s| (s.start_ns, s.number));
        let recorder = self.recorder.unwrap_or(Recorder::Torch);
        let mut of_device: BTreeMap<u32, Vec<DeviceWork>> = BTreeMap::new();
        for (work, device) in self.work.iter().zip(&self.devices) {
            of_device.entry(*device).or_default().push(*work);
        }
        drop(std::mem::take(&mut self.work));
        let n_devices = of_device.len();
        if n_devices == 0 {
            of_device.insert(0, Vec::new());
        }
        let mut whole = Timeline {
            rank: self.meta.rank.map(Rank),
            world_size: self.meta.world_size,
            host: self.meta.host.as_deref().map(crate::ground::host_of),
            pid: self.meta.pid.map(Pid),
            nccl_version: self.meta.nccl_version.take(),
            groups: std::mem::take(&mut self.meta.groups),
            names: names.into_names(),
            host_spans: std::mem::take(&mut self.host_spans),
            calls: std::mem::take(&mut self.calls),
            steps: std::mem::take(&mut self.steps),
            n_events: self.n_events,
            is_damaged,
            ..Timeline::new(recorder)
        };
        let last = of_device.keys().next_back().copied();
        for (device, mut work) in of_device {
            work.sort_by_key(|w| (w.start_ns, w.end_ns, w.stream));
            let mut timeline = if Some(device) == last {
                std::mem::replace(&mut whole, Timeline::new(recorder))
            } else {
                whole.clone()
            };
            timeline.device = (!work.is_empty()).then_some(device);
            timeline.work = work;
            if let Some((name, n_sms)) = self.meta.devices.get(&device) {
                timeline.device_name = Some(name.clone());
                timeline.n_sms = *n_sms;
            }
            if n_devices > 1 {
                // One process drives several GPUs: each is a rank of what it computes together.
                timeline.rank = None;
            }
            reach::within(&mut timeline);
            let who =
                Who { rank: timeline.rank, host: timeline.host.clone(), pid: timeline.pid, ..Who::default() };
            let cite = sink.cite(0, 0, size_bytes);
            sink.push(cite, who, None, Fact::Timeline(Box::new(timeline)), b"");
        }
    }

    /// Calls that are gathered (`batch_isend_irecv`) are launched behind the last of them: for the correlation of each
    /// launch of communication the operators since the launch before it in its thread, as indices plus 1.
    fn gathered(&mut self) -> LookupMap<u32, Vec<u32>> {
        let is_comm = |w: &&DeviceWork| w.kind == WorkKind::Comm && w.correlation != 0;
        let wanted: LookupMap<u32, bool> =
            self.work.iter().filter(is_comm).map(|w| (w.correlation, w.call == 0)).collect();
        let mut launches: Vec<(u32, i64, u32)> = self
            .host_spans
            .iter()
            .filter(|s| s.link != 0 && matches!(s.kind, SpanKind::Runtime(_)) && wanted.contains_key(&s.link))
            .map(|s| (s.thread, s.start_ns, s.link))
            .collect();
        launches.sort_unstable();
        self.communicated.sort_unstable();
        let mut gathered = LookupMap::default();
        let mut before = (0, i64::MIN);
        for (thread, start, link) in launches {
            let from = if before.0 == thread { before.1 } else { i64::MIN };
            let from = from.max(start.saturating_sub(GATHERED_NS));
            before = (thread, start);
            if wanted.get(&link) != Some(&true) {
                continue;
            }
            let first = self.communicated.partition_point(|c| (c.0, c.1) <= (thread, from));
            let of_launch = self.communicated.iter().skip(first).take(MAX_GATHERED);
            let list: Vec<u32> =
                of_launch.take_while(|c| (c.0, c.1) <= (thread, start)).map(|c| c.2).collect();
            if !list.is_empty() {
                gathered.insert(link, list);
            }
        }
        gathered
    }

    /// Several calls as one: the peer and the kind stay only if they are of all.
    fn together(&self, list: &[u32]) -> CommCall {
        let mut calls = list.iter().filter_map(|at| self.calls.get((*at as usize).checked_sub(1)?));
        let Some(mut whole) = calls.next().cloned() else { return CommCall::default() };
        for call in calls {
            whole.in_elements = whole.in_elements.saturating_add(call.in_elements);
            whole.out_elements = whole.out_elements.saturating_add(call.out_elements);
            whole.kind = whole.kind.filter(|kind| Some(*kind) == call.kind);
            whole.peer = whole.peer.filter(|peer| Some(*peer) == call.peer);
            whole.seq = None;
        }
        whole
    }

    /// Gives kernels without arguments those of the operator that launched them.
    fn link_calls(&mut self) {
        let lacks = |w: &DeviceWork| w.kind == WorkKind::Comm && w.call == 0;
        if !self.work.iter().any(lacks) {
            return;
        }
        let external_of: LookupMap<u32, u32> = self.externals.iter().copied().collect();
        let gathered = self.gathered();
        for at in 0..self.work.len() {
            let Some(work) = self.work.get(at).copied().filter(lacks) else { continue };
            let found = external_of.get(&work.correlation).and_then(|e| self.operators.get(e)).copied();
            let call = found.unwrap_or_else(|| {
                // The name of the kernel tells the kind at least.
                let kind = kinds::op_kind(self.names.name(work.name));
                let unknown = || CommCall { kind, ..CommCall::default() };
                let call = gathered.get(&work.correlation).map_or_else(unknown, |list| self.together(list));
                self.calls.push(call);
                self.calls.len() as u32
            });
            if let Some(work) = self.work.get_mut(at) {
                work.call = call;
            }
        }
    }
}

/// A call may launch what was called before it within this time.
const GATHERED_NS: i64 = 100_000_000;
/// Calls that one launch gathers.
const MAX_GATHERED: usize = 256;

/// A thread as a number; names of threads become one by their bytes.
fn thread(tid: &[u8]) -> u32 {
    scan::integer(tid).map_or_else(|| crate::ground::intern::hash_of(tid) as u32, |n| n as u32)
}

fn external(event: &TraceEvent<'_>) -> u32 {
    let mut entries = scan::entries(event.args, event.is_mended);
    let found = entries.find(|(key, _)| key.eq_ignore_ascii_case(b"External id"));
    found.and_then(|(_, value)| scan::integer(value)).unwrap_or(0) as u32
}

/// The arguments of a communication operation.
fn comm_call(event: &TraceEvent<'_>) -> CommCall {
    let mut call = CommCall::default();
    let text = |value: &[u8]| crate::ground::lossy(value).into_owned();
    let mut is_sent = None;
    for (key, value) in scan::entries(event.args, event.is_mended) {
        let number = || scan::integer(value).unwrap_or(0).max(0) as u64;
        match key {
            b"Collective name" => call.kind = kinds::op_kind(&text(value)),
            b"In msg nelems" => call.in_elements = number(),
            b"Out msg nelems" => call.out_elements = number(),
            b"Group size" => call.group_size = number() as u32,
            b"dtype" => call.element_bytes = kinds::element_bytes(value),
            b"Process Group Name" => call.group = text(value).into(),
            b"Process Group Description" => call.description = text(value).into(),
            b"Process Group Ranks" => call.ranks = scan::list(value),
            b"Seq" | b"Collective seq" => call.seq = scan::integer(value).map(|n| n as u64),
            b"In split size" | b"Out split size" => {
                call.has_splits |= scan::list(value).windows(2).any(|pair| pair.first() != pair.last());
            }
            b"Dst Rank" => is_sent = scan::integer(value).filter(|n| *n >= 0).map(|n| n as u32).or(is_sent),
            b"Src Rank" => is_sent = is_sent.or(scan::integer(value).filter(|n| *n >= 0).map(|n| n as u32)),
            _ => {}
        }
    }
    if call.kind.is_some_and(ringleader_model::OpKind::is_p2p) {
        call.peer = is_sent;
    }
    call
}
