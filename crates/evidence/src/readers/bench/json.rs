//! nccl-tests' JSON (`-J FILE`, since 2.17): `{"version":1,"start_time":…,"args":[…],"env":[…],"nccl_version":22809,
//! "config":{…,"devices":[{"rank":0,…}]},"results":[{"size":8,…,"out_of_place":{"time":…,"alg_bw":…,"bus_bw":…,
//! "nwrong":0.0},…}],"out_of_bounds":{"count":0,…},"average_bus_bandwidth":{"bandwidth":…}}`.
//! NVIDIA/nccl-tests src/util.cu.

use std::sync::Arc;

use ringleader_model::{
    BenchDevice, BenchFigure, BenchRow, BenchRun, Fact, PciAddress, Pid, Rank, SourceKind, Who,
};
use serde_json::Value;

use super::{MAX_ROWS, collective, setting};
use crate::ground::{Document, Sink};

/// Reads a document, if it is one of nccl-tests.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let value = document.value;
    let Some(results) = value.get("results").and_then(Value::as_array) else { return false };
    if value.get("nccl_version").is_none() || value.get("config").is_none() {
        return false;
    }
    let words = |key: &str| -> Vec<&str> {
        value
            .get(key)
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).take(MAX_ROWS).collect())
            .unwrap_or_default()
    };
    let args = words("args");
    let line = document.line;
    let run = BenchRun {
        command: (!args.is_empty()).then(|| args.join(" ").into()),
        collective: args.first().and_then(|program| collective(program)),
        nccl_version: value.get("nccl_version").and_then(Value::as_u64).map(version),
        settings: words("env").into_iter().filter_map(setting).collect(),
        devices: devices(value, line),
        rows: results.iter().take(MAX_ROWS).filter_map(|r| row(r, line)).collect(),
        out_of_bounds: value.pointer("/out_of_bounds/count").and_then(Value::as_u64).map(|n| (line, n)),
        avg_busbw_gbs: value
            .pointer("/average_bus_bandwidth/bandwidth")
            .and_then(Value::as_f64)
            .map(|v| (line, v)),
        exit_status: None,
    };
    sink.saw(SourceKind::NcclTests);
    sink.push(document.cite(sink), Who::default(), None, Fact::Bench(Box::new(run)), document.bytes);
    true
}

/// 22809 is 2.28.9; up to 2.8 the number had one digit less.
fn version(code: u64) -> Box<str> {
    if code < 10_000 {
        format!("{}.{}.{}", code / 1000, code / 100 % 10, code % 100).into()
    } else {
        format!("{}.{}.{}", code / 10_000, code / 100 % 100, code % 100).into()
    }
}

fn devices(value: &Value, line: u32) -> Vec<BenchDevice> {
    let list = value.pointer("/config/devices").or_else(|| value.get("devices")).and_then(Value::as_array);
    let number =
        |v: &Value, key: &str| v.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    list.into_iter()
        .flatten()
        .take(MAX_ROWS)
        .map(|v| BenchDevice {
            line,
            rank: number(v, "rank").map(Rank),
            pid: number(v, "pid").map(Pid),
            host: v.get("hostname").and_then(Value::as_str).map(|h| Arc::from(h.trim())),
            device: number(v, "device"),
            pci: v.get("device_hex").and_then(Value::as_str).and_then(PciAddress::parse),
            name: v.get("device_info").and_then(Value::as_str).unwrap_or_default().trim().into(),
        })
        .collect()
}

fn row(value: &Value, line: u32) -> Option<BenchRow> {
    Some(BenchRow {
        line,
        size_bytes: value.get("size")?.as_u64()?,
        out_of_place: value.get("out_of_place").and_then(figure),
        in_place: value.get("in_place").and_then(figure),
    })
}

fn figure(value: &Value) -> Option<BenchFigure> {
    let number = |key: &str| value.get(key).and_then(Value::as_f64).filter(|v| *v >= 0.0);
    Some(BenchFigure {
        time_us: number("time").or_else(|| number("cpu_time"))?,
        algbw_gbs: number("alg_bw")?,
        busbw_gbs: number("bus_bw")?,
        n_wrong: number("nwrong").map(|n| n as u64),
    })
}
