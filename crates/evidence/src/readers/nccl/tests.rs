#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read recordings and may panic")]

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ringleader_model::{Fact, NcclComm, NcclLog, nccl_datatype_name};

use crate::Extract;
use crate::ground::{Limits, Sink};

mod forms;
mod laws;

/// Reads text through the pump and all line readers, and hands out what NCCL's said.
fn read(bytes: &[u8]) -> NcclLog {
    read_within(bytes, &Limits::default()).0
}

fn read_within(mut bytes: &[u8], limits: &Limits) -> (NcclLog, Extract) {
    let mut extract = Extract::default();
    let mut sink = Sink::open("log", limits, &mut extract);
    let size = crate::text::read_text(b"", &mut bytes, &mut crate::text::Room::default(), &mut sink);
    sink.close(size);
    let mut log = None;
    for observation in &extract.observations {
        if let Fact::Nccl(found) = &observation.fact {
            assert!(log.is_none(), "one NcclLog per source");
            log = Some((**found).clone());
        }
    }
    (log.unwrap_or_default(), extract)
}

fn opt<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or("-".into(), |v| v.to_string())
}

/// What an expert would note down of a log.
fn summary(log: &NcclLog) -> String {
    let mut out = format!("{} lines, {} calls", log.n_lines, log.calls.len());
    if log.n_calls_dropped > 0 {
        write!(out, ", {} dropped {:?}", log.n_calls_dropped, log.dropped_of_comm).unwrap();
    }
    for (id, p) in log.processes.iter().enumerate() {
        let who = &p.who;
        write!(out, "\nprocess {id}: {}/{}", opt(who.host.as_deref()), opt(who.pid.map(|p| p.0))).unwrap();
        let said = [
            ("rank", who.rank.map(|r| r.0.to_string())),
            ("local", who.local_rank.map(|r| r.0.to_string())),
            ("nccl", p.nccl_version.as_deref().map(str::to_owned)),
            ("driver", p.cuda_driver_version.map(|v| v.to_string())),
            ("bootstrap", p.bootstrap.as_deref().map(str::to_owned)),
            ("network", p.network.as_deref().map(str::to_owned)),
            ("ib", p.ib_devices.as_deref().map(str::to_owned)),
            ("socket", p.socket_devices.as_deref().map(str::to_owned)),
        ];
        for (name, value) in said {
            if let Some(value) = value {
                write!(out, " {name}={value}").unwrap();
            }
        }
        write!(out, " lines {}-{}", opt(p.first.map(|c| c.line)), opt(p.last.map(|c| c.line))).unwrap();
    }
    for (id, comm) in log.comms.iter().enumerate() {
        write!(out, "\n{}", comm_summary(log, id as u32, comm)).unwrap();
    }
    for (at, s) in log.strangers.iter().enumerate() {
        let n = log.calls.iter().filter(|c| c.comm == u32::MAX - at as u32).count();
        write!(out, "\nstranger {at}: process {} nranks {} calls {n}", s.process, s.n_ranks).unwrap();
    }
    let mut links: Vec<(u32, &str, Option<bool>, usize, u32)> = Vec::new();
    for link in &log.links {
        match links.iter_mut().find(|l| (l.0, l.1, l.2) == (link.process, &*link.transport, link.is_send)) {
            Some(l) => (l.3, l.4) = (l.3 + 1, l.4 + link.n_channels),
            None => links.push((link.process, &link.transport, link.is_send, 1, link.n_channels)),
        }
    }
    for (process, transport, is_send, n_pairs, n_channels) in links {
        let way = is_send.map_or("", |s| if s { " send" } else { " receive" });
        write!(out, "\nlink {process}: {transport}{way}, {n_pairs} pairs, {n_channels} channels").unwrap();
    }
    for s in &log.settings {
        write!(out, "\nset {}: {}={}", s.process, s.name, s.value).unwrap();
    }
    let mut last = String::new();
    let mut n_same = 0;
    for m in &log.messages {
        let level = if m.is_warn { "WARN" } else { "INFO" };
        let process = if m.process == u32::MAX { "?".into() } else { m.process.to_string() };
        let text = format!("{level} {process}: {} {} => {}", opt(m.origin.as_deref()), m.text, opt(m.result));
        let shape: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if shape == last {
            n_same += 1;
            continue;
        }
        if n_same > 0 {
            write!(out, " (and {n_same} like it)").unwrap();
        }
        (last, n_same) = (shape, 0);
        write!(out, "\n{text} [line {}]", m.cite.line).unwrap();
    }
    if n_same > 0 {
        write!(out, " (and {n_same} like it)").unwrap();
    }
    if let (Some(first), Some(last)) = (log.backtraces.first(), log.backtraces.last()) {
        let n = log.backtraces.len();
        write!(
            out,
            "\nback-traces {n}: {} -> {} … {} -> {}",
            first.origin, first.result, last.origin, last.result
        )
        .unwrap();
    }
    out
}

fn comm_summary(log: &NcclLog, id: u32, comm: &NcclComm) -> String {
    let line = |c: Option<ringleader_model::Cite>| opt(c.map(|c| c.line));
    let mut out = format!(
        "comm {id}: process {} rank {}/{} dev {}/{}",
        comm.process,
        comm.rank.0,
        comm.n_ranks,
        opt(comm.cuda_dev),
        opt(comm.nvml_dev)
    );
    write!(out, " gpu {}", opt(comm.gpu)).unwrap();
    if let Some(id) = comm.comm_id {
        write!(out, " id {id:x}").unwrap();
    }
    if let Some(parent) = comm.parent {
        let at = log.comms.iter().position(|c| c.process == comm.process && c.ptr == parent);
        write!(out, " parent {} color {}", opt(at), opt(comm.color)).unwrap();
    }
    write!(out, " {}", comm.api.as_deref().unwrap_or("?")).unwrap();
    write!(out, " start {} complete {}", line(comm.started), line(comm.completed)).unwrap();
    write!(out, " destroyed {} aborted {}", line(comm.destroyed), line(comm.aborted)).unwrap();
    let calls: Vec<_> = log.calls.iter().filter(|c| c.comm == id).collect();
    if let Some(last) = calls.last() {
        let kind = last.kind.name();
        let datatype = nccl_datatype_name(last.datatype);
        write!(
            out,
            "\n  calls {}, last {kind} opCount {} count {} {datatype} op {} root {} line {} at {}",
            calls.len(),
            last.op_count,
            last.count,
            last.redop,
            last.root,
            last.line,
            last.at_s
        )
        .unwrap();
    }
    out
}

fn evidence(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases").join(case).join("evidence")
}

fn load(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        let mut plain = Vec::new();
        flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        return plain;
    }
    bytes
}

/// Every file of a case that holds NCCL lines.
fn case(name: &str) -> String {
    let mut paths: Vec<_> = std::fs::read_dir(evidence(name)).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut out = String::new();
    for path in paths.iter().filter(|p| !p.file_name().unwrap().to_string_lossy().contains("trace_rank")) {
        let log = read(&load(path));
        if log.n_lines > 0 {
            writeln!(out, "== {}\n{}", path.file_name().unwrap().to_string_lossy(), summary(&log)).unwrap();
        }
    }
    out
}

#[test]
fn recorded_cases_read_as_an_expert_would() {
    let names = [
        "healthy",
        "skipped-allreduce",
        "mesh-stuck",
        "p2p-missing-send",
        "fsdp-extra-collective",
        "illegal-access",
        "duplicate-gpu",
        "missing-rank",
        "nodes-healthy",
        "nodes-link-down",
        "nodes-wrong-ifname",
        "horovod-3929",
        "nccl-1412",
        "nccl-2013",
        "nccl-342",
        "nccl-426",
        "nccl-554",
        "nccl-905",
        "nccl-976",
        "nccl-tests-183",
        "nccl-tests-206",
        "spd-957",
        "cuda-oom",
    ];
    for name in names {
        insta::assert_snapshot!(name, case(name));
    }
}
