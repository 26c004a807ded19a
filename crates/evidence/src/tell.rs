//! For tests: what was read, in few words a line, for goldens that people review.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use ringleader_model::{Fact, GpuTable, OpKind, RasPeer, RasReport};

use crate::{Extract, Limits, Scratch};

/// Reads bytes as a file of this name: what the readers of formats find. Statements and signs of progress, which any text
/// holds, have tests of their own ([`read_all`]).
pub(crate) fn read(path: &str, bytes: &[u8]) -> Extract {
    let mut extract = read_all(path, bytes);
    extract.observations.retain(|o| !matches!(o.fact, Fact::Said(_) | Fact::Progress(_)));
    extract
}

/// The same with statements and signs of progress, without words, signs and tables of any text.
pub(crate) fn read_all(path: &str, bytes: &[u8]) -> Extract {
    let mut extract = crate::read(path, &mut &*bytes, &mut Scratch::default(), &Limits::default());
    extract.observations.retain(|o| {
        !matches!(
            o.fact,
            Fact::Sign(_)
                | Fact::StepTimes(_)
                | Fact::Pace(_)
                | Fact::Outlier(_)
                | Fact::Apart(_)
                | Fact::Words(_)
                | Fact::Hosts(_)
        )
    });
    extract
}

/// All that was read, one statement a line.
pub(crate) fn tell(extract: &Extract) -> String {
    let mut out = String::new();
    for (at, source) in extract.sources.iter().enumerate() {
        let kinds: Vec<&str> = source.kinds.iter().map(|k| k.name()).collect();
        writeln!(out, "{} [{}] {} B", source.path, kinds.join(" "), source.size_bytes).unwrap();
        for o in extract.observations.iter().filter(|o| o.cite.source.0 as usize == at && is_block(&o.fact)) {
            let pid = o.who.pid.map_or(String::new(), |p| format!(" pid {}", p.0));
            write!(out, "  line {}{pid}: ", o.cite.line).unwrap();
            fact(&mut out, &o.fact);
        }
        for n in extract.notes.iter().filter(|n| n.cite.source.0 as usize == at) {
            writeln!(out, "  note {:?} line {}: {}", n.kind, n.cite.line, n.text).unwrap();
        }
    }
    out
}

/// Facts of other readers have goldens of their own.
fn is_block(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Ras(_)
            | Fact::Stacks(_)
            | Fact::Samples(_)
            | Fact::Processes(_)
            | Fact::Gpus(_)
            | Fact::GpuTests(_)
            | Fact::GpuService(_)
            | Fact::Limits(_)
            | Fact::Bench(_)
            | Fact::Copy(_)
            | Fact::Net(_)
            | Fact::System(_)
            | Fact::Watch(_)
            | Fact::Guard(_)
    )
}

fn fact(out: &mut String, fact: &Fact) {
    match fact {
        Fact::Ras(report) => ras(out, report),
        Fact::Stacks(s) => {
            writeln!(out, "{:?} {:?} command {:?} failure {:?}", s.tool, s.pid, s.command, s.failure)
                .unwrap();
            for t in &s.threads {
                let name = t.name.as_deref().unwrap_or("-");
                let gil = if t.holds_gil { " gil" } else { "" };
                let current = if t.current { " current" } else { "" };
                write!(out, "    {:?} {name} active {:?}{gil}{current}: ", t.tid, t.active).unwrap();
                let frames: Vec<String> = t
                    .frames
                    .iter()
                    .take(4)
                    .map(|f| format!("{} ({}:{})", f.function, f.file, f.line))
                    .collect();
                writeln!(out, "{} frames: {}", t.frames.len(), frames.join(" < ")).unwrap();
            }
        }
        Fact::Samples(s) => {
            writeln!(out, "samples of {:?}", s.pid).unwrap();
            for stack in &s.stacks {
                let frames: Vec<String> = stack
                    .frames
                    .iter()
                    .take(4)
                    .map(|f| format!("{} ({}:{})", f.function, f.file, f.line))
                    .collect();
                writeln!(out, "    {} x {} frames: {}", stack.n, stack.frames.len(), frames.join(" < "))
                    .unwrap();
            }
        }
        Fact::Processes(t) => {
            writeln!(out, "{} processes", t.rows.len()).unwrap();
            for r in &t.rows {
                let (pid, ppid) = (r.pid.map_or(0, |p| p.0), r.ppid.map_or(0, |p| p.0));
                let command: String = r.command.chars().take(40).collect();
                writeln!(
                    out,
                    "    {}: {pid} < {ppid} {} wchan '{}' {:?}s {:?}% {command}",
                    r.line, r.state, r.wchan, r.elapsed_s, r.cpu_pct
                )
                .unwrap();
            }
        }
        Fact::Gpus(table) => gpus(out, table),
        Fact::GpuTests(tests) => {
            writeln!(out, "dcgm {:?} driver {:?}", tests.dcgm_version, tests.driver_version).unwrap();
            for t in &tests.results {
                writeln!(out, "    {}: {} GPU {:?} {:?} {:?}", t.line, t.name, t.gpu, t.status, t.warnings)
                    .unwrap();
            }
        }
        Fact::GpuService(s) => {
            writeln!(
                out,
                "{} {:?} ({}) version {:?} driver {:?}",
                s.name, s.active, s.detail, s.version, s.driver_version
            )
            .unwrap();
            for (line, at, text) in &s.errors {
                writeln!(out, "    {line}: {:?} {text}", at.map(|a| a.ns / 1_000_000_000)).unwrap();
            }
        }
        Fact::Limits(list) => {
            let list: Vec<String> =
                list.iter().map(|l| format!("{}: {:?} {:?}/{:?}", l.line, l.kind, l.soft, l.hard)).collect();
            writeln!(out, "{}", list.join(", ")).unwrap();
        }
        Fact::Bench(run) => bench(out, run),
        Fact::Copy(c) => {
            let answer = if c.is_right { "right" } else { "WRONG" };
            writeln!(out, "copy {:?} -> {:?} {answer}: {}", c.from, c.to, c.compared).unwrap();
        }
        Fact::Net(net) => writeln!(out, "{}", debugged(net)).unwrap(),
        Fact::System(system) => writeln!(out, "{}", debugged(system)).unwrap(),
        _ => {}
    }
}

fn gpus(out: &mut String, t: &GpuTable) {
    let at = t.at.map(|a| a.ns / 1_000_000_000);
    let attached = t.attached.map_or(String::new(), |n| format!(" attached {n}"));
    writeln!(
        out,
        "{:?} at {at:?} driver {:?} cuda {:?}{attached} failures {:?}",
        t.form, t.driver_version, t.cuda_version, t.failures
    )
    .unwrap();
    for g in &t.gpus {
        let pci = g.pci.map_or("?".into(), |p| p.to_string());
        let mut row = format!("{}: GPU {} {pci}", g.line, g.index.map_or("?".into(), |i| i.to_string()));
        macro_rules! tell {
            ($($name:literal $value:expr),* $(,)?) => { $(
                if let Some(value) = &$value { write!(row, " {} {value}", $name).unwrap(); }
            )* };
        }
        tell!(
            "uuid" g.uuid, "name" g.name, "C" g.temperature_c, "C memory" g.memory_temperature_c,
            "C left" g.temperature_left_c, "W" g.power_w, "of" g.power_limit_w, "by default" g.power_default_w,
            "MiB" g.memory_used_mib, "of" g.memory_total_mib, "%" g.utilization_pct, "MHz" g.sm_clock_mhz,
            "of" g.sm_clock_max_mhz, "memory MHz" g.memory_clock_mhz, "P" g.performance_state,
            "errors" g.uncorrected_errors, "fabric" g.fabric_state, "status" g.fabric_status,
            "action" g.recovery_action, "compute" g.compute_mode, "persistent" g.persistence, "mig" g.mig,
            "sram exceeded" g.sram_threshold_exceeded, "unrepairable" g.unrepairable_memory,
        );
        if let Some(reasons) = g.clock_reasons {
            write!(row, " reasons {:#x}", reasons.0).unwrap();
        }
        // Structs of counters: `Some` and names of what is absent would drown what is there.
        let brief =
            |text: String| text.split(", ").filter(|p| !p.contains("None")).collect::<Vec<_>>().join(", ");
        for (name, text) in [
            ("held", format!("{:?}", g.held_down)),
            ("volatile", format!("{:?}", g.volatile)),
            ("aggregate", format!("{:?}", g.aggregate)),
            ("rows", format!("{:?}", g.rows)),
            ("pages", format!("{:?}", g.pages)),
            ("pcie", format!("{:?}", g.pcie)),
        ] {
            let inner = text.split_once('{').map_or("", |(_, t)| t).trim_matches(['{', '}', ' ']).to_owned();
            let told = brief(inner).replace("Some(", "").replace(')', "");
            if !told.is_empty() {
                write!(row, " {name} [{told}]").unwrap();
            }
        }
        if !g.fabric_health.is_empty() {
            write!(row, " health {:?}", g.fabric_health).unwrap();
        }
        let error = if g.has_error { " ERR!" } else { "" };
        writeln!(out, "    {row}{error}").unwrap();
        // Links with the same state are grouped.
        let mut told: Vec<(String, Vec<u32>)> = Vec::new();
        for l in &g.links {
            let says = format!(
                "up {:?} GB/s {:?} replays {:?} recoveries {:?} failed {:?} crc {:?} {:?}",
                l.active, l.speed_gb_s, l.replays, l.recoveries, l.failed_recoveries, l.crc_errors, l.others
            );
            match told.iter_mut().find(|(t, _)| *t == says) {
                Some((_, numbers)) => numbers.push(l.number),
                None => told.push((says, vec![l.number])),
            }
        }
        for (says, numbers) in told {
            writeln!(out, "        {} links {numbers:?}: {says}", numbers.len()).unwrap();
        }
    }
    for p in &t.paths {
        writeln!(out, "    {}: {} to {} {}", p.line, p.from, p.to, p.kind).unwrap();
    }
    for p in &t.card_paths {
        writeln!(out, "    {}: {} to {} {}", p.line, p.gpu, p.card, p.kind).unwrap();
    }
    let pairs: Vec<String> = t.processes.iter().map(|(g, p)| format!("{g}:{}", p.0)).collect();
    if !pairs.is_empty() {
        writeln!(out, "    processes {}", pairs.join(" ")).unwrap();
    }
}

/// Plain structures, without the fields that are empty.
fn debugged(value: &impl std::fmt::Debug) -> String {
    let mut text = format!("{value:?}").replace("Some(", "(");
    for empty in ["None", "\"\"", "[]", "false"] {
        for end in [",", " }"] {
            let wanted = format!(": {empty}{end}");
            while let Some(at) = text.find(&wanted) {
                let from = text.get(..at).and_then(|t| t.rfind([',', '{'])).unwrap_or(0);
                let to = at + wanted.len() - end.len();
                let mark = if text.get(from..=from) == Some("{") { "{" } else { "" };
                text.replace_range(from..to, mark);
            }
        }
    }
    text.replace("{,", "{").chars().take(900).collect()
}

fn bench(out: &mut String, run: &ringleader_model::BenchRun) {
    let devices: Vec<String> = run
        .devices
        .iter()
        .map(|d| {
            let pci = d.pci.map_or("?".into(), |p| p.to_string());
            format!(
                "{}:{}/{}/{}/{pci}/{}",
                d.line,
                d.rank.map_or(0, |r| r.0),
                d.host.as_deref().unwrap_or("?"),
                d.pid.map_or(0, |p| p.0),
                d.name
            )
        })
        .collect();
    writeln!(
        out,
        "{:?} NCCL {:?} command {:?} settings {:?} out of bounds {:?} average {:?} exit {:?}",
        run.collective,
        run.nccl_version,
        run.command,
        run.settings,
        run.out_of_bounds,
        run.avg_busbw_gbs,
        run.exit_status
    )
    .unwrap();
    writeln!(out, "    {} GPUs: {}", run.devices.len(), devices.join(" ")).unwrap();
    for row in &run.rows {
        let half = |f: Option<ringleader_model::BenchFigure>| {
            f.map_or("-".into(), |f| {
                format!("{} us {}/{} GB/s wrong {:?}", f.time_us, f.algbw_gbs, f.busbw_gbs, f.n_wrong)
            })
        };
        writeln!(
            out,
            "    {}: {} B {}, {}",
            row.line,
            row.size_bytes,
            half(row.out_of_place),
            half(row.in_place)
        )
        .unwrap();
    }
}

fn ras(out: &mut String, r: &RasReport) {
    let version = r.nccl_version.as_deref().unwrap_or("?");
    let at = r.at.map(|a| a.ns / 1_000_000_000);
    writeln!(
        out,
        "RAS of NCCL {version} at {at:?}, {} timeouts, unavailable {:?}",
        r.n_timeouts, r.unavailable
    )
    .unwrap();
    for g in &r.groups {
        writeln!(
            out,
            "    group {} line {}: {} comms of {} ranks, {} answered: {} {}",
            g.number, g.line, g.n_comms, g.comm_size, g.n_ranks, g.status, g.errors
        )
        .unwrap();
    }
    for p in &r.missing_processes {
        writeln!(out, "    process {}", peer(p)).unwrap();
    }
    for c in &r.comms {
        let all = if c.listed_all { " all listed" } else { "" };
        writeln!(out, "    comm {:x} of {} {:?} {:?}{all}", c.hash, c.size, c.status, c.errors).unwrap();
        for (kind, n, count) in &c.majority_counts {
            writeln!(out, "      {n} ranks: {} {count}", kind_name(*kind)).unwrap();
        }
        for (what, n) in c.status_counts.iter().chain(&c.reported) {
            writeln!(out, "      {n} ranks: {what}").unwrap();
        }
        for rank in &c.ranks {
            let counts: Vec<String> = rank
                .counts
                .iter()
                .filter(|(_, n)| *n > 0 || !c.listed_all)
                .map(|(k, n)| format!("{} {n}", kind_name(*k)))
                .collect();
            let flags = format!(
                "{}{}",
                if rank.aborting { " aborting" } else { "" },
                if rank.finalizing { " finalizing" } else { "" }
            );
            writeln!(
                out,
                "      {} {} init {:?} async {:?} {:?}{flags}",
                peer(&rank.peer),
                counts.join(" "),
                rank.init_state,
                rank.async_error,
                rank.status
            )
            .unwrap();
        }
        for p in &c.missing {
            writeln!(out, "      missing {}", peer(p)).unwrap();
        }
    }
}

fn kind_name(kind: OpKind) -> &'static str {
    if kind == OpKind::Other { "all operations" } else { kind.name() }
}

fn peer(p: &RasPeer) -> String {
    let rank = p.rank.map_or(String::new(), |r| format!("rank {} ", r.0));
    let unresponsive = if p.unresponsive { " unresponsive" } else { "" };
    let dead = if p.dead { " dead" } else { "" };
    format!(
        "{rank}line {} {:?} pid {:?} gpu {:?}{unresponsive}{dead}",
        p.line,
        p.host.as_deref().unwrap_or("?"),
        p.pid.map(|p| p.0),
        p.cuda_dev
    )
}

/// Recorded files whose name passes, sorted, with their path below `cases`.
#[expect(clippy::disallowed_methods, reason = "tests read recordings")]
pub(crate) fn recordings(wanted: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut files: Vec<PathBuf> = fs::read_dir(&cases)
        .unwrap()
        .filter_map(|case| fs::read_dir(case.unwrap().path().join("evidence")).ok())
        .flatten()
        .map(|file| file.unwrap().path())
        .filter(|path| wanted(&path.file_name().unwrap().to_string_lossy()))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no recording fits");
    let named = |path: PathBuf| {
        let name = path.strip_prefix(&cases).unwrap().to_string_lossy().replace("/evidence/", "/");
        (name, fs::read(&path).unwrap())
    };
    files.into_iter().map(named).collect()
}

/// What is read from all recorded files of these names.
pub(crate) fn tell_recordings(wanted: impl Fn(&str) -> bool) -> String {
    recordings(wanted).iter().map(|(name, bytes)| tell(&read(name, bytes))).collect()
}
