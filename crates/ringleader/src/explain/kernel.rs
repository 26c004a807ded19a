//! Lines of the kernel's log, with sub-codes of Xids decoded.

use ringleader_knowledge::{sxid, xid};
use ringleader_model::{
    KernelEvent, KernelEventKind, LinkState, OomKill, PcieError, PcieSeverity, Sxid, Xid,
};

use crate::explain::answer::{Detail, Topic};
use crate::explain::topics;

/// What a statement of the kernel's log says; None for what says nothing by itself.
pub(super) fn explained(event: &KernelEvent) -> Option<Topic> {
    let mut topic = of_kind(&event.kind)?;
    if let Some(device) = event.device {
        topic.read.insert(0, Detail { name: "device".to_owned(), value: device.to_string() });
    }
    Some(topic)
}

fn of_kind(kind: &KernelEventKind) -> Option<Topic> {
    use KernelEventKind as Kind;
    let word = |text: Option<&str>| text.unwrap_or_default().to_owned();
    match kind {
        Kind::Xid(xid) => Some(of_xid(xid)),
        Kind::Sxid(event) => Some(of_sxid(event)),
        Kind::GpuLost => event("gpu-lost", []),
        Kind::GpuInitFailed { code } => event("gpu-init-failed", [("code", word(code.as_deref()))]),
        Kind::GspSilent => event("gsp-silent", []),
        Kind::DriverAssertion => event("driver-assertion", []),
        Kind::DriverMismatch { client, module, .. } => event(
            "driver-mismatch",
            [("library", word(client.as_deref())), ("module", word(module.as_deref()))],
        ),
        Kind::DriverLoaded { version } => event("driver-loaded", [("version", version.to_string())]),
        Kind::PcieError(error) => of_pcie(error),
        Kind::PcieLinkDown => event("pcie-link-down", []),
        Kind::IommuFault => event("iommu-fault", []),
        Kind::MachineCheck { uncorrected } => {
            event("machine-check", [("corrected", if *uncorrected { "no" } else { "yes" }.to_owned())])
        }
        Kind::MemoryErrors { count, uncorrected, place } => {
            let what = if *uncorrected { "not corrected" } else { "corrected" };
            event("memory-errors", [("errors", format!("{count}, {what}")), ("place", place.to_string())])
        }
        Kind::MemoryFailure { name, .. } => event("memory-failure", [("program", name.to_string())]),
        Kind::OomKill(kill) => {
            let mut topic = event("oom-kill", [])?;
            oom(&mut topic, kill);
            Some(topic)
        }
        Kind::NicTrouble { driver, interface, trouble } => event(
            "nic-trouble",
            [
                ("driver", driver.to_string()),
                ("interface", word(interface.as_deref())),
                ("trouble", format!("{trouble:?}")),
            ],
        ),
        Kind::Link { interface, state, .. } => {
            let became = match state {
                LinkState::Up => "up",
                LinkState::Down => "down",
                LinkState::Removed => "removed",
            };
            event("link-change", [("interface", interface.to_string()), ("became", became.to_owned())])
        }
        Kind::HungTask { name, seconds, .. } => {
            event("hung-task", [("program", name.to_string()), ("for", format!("{seconds} s"))])
        }
        Kind::Lockup { name, seconds, .. } => {
            let seconds = seconds.map(|s| format!("{s} s")).unwrap_or_default();
            event("lockup", [("program", name.to_string()), ("for", seconds)])
        }
        Kind::Crash { name, what, object, .. } => event(
            "segfault",
            [("program", name.to_string()), ("what", what.to_string()), ("in", word(object.as_deref()))],
        ),
        Kind::Storage { name, trouble } => {
            event("storage-trouble", [("device", name.to_string()), ("trouble", format!("{trouble:?}"))])
        }
        Kind::FileLimit => event("file-limit", []),
        Kind::Throttled => event("processor-throttled", []),
        Kind::Panic => event("kernel-panic", []),
        Kind::Covers(_) => None,
    }
}

/// An event of the table with what was read of it in the line.
fn event<const N: usize>(id: &str, read: [(&str, String); N]) -> Option<Topic> {
    let mut topic = topics::of_event(id)?;
    for (name, value) in read {
        topic.read(name, value);
    }
    Some(topic)
}

fn of_sxid(event: &Sxid) -> Topic {
    let mut topic =
        sxid::get(event.code).map_or_else(|| topics::unknown_code("SXid", event.code), topics::sxid);
    topic.read("text", &*event.text);
    topic.read("switch", event.switch.to_string());
    topic.read("port", event.link.map(|l| l.to_string()).unwrap_or_default());
    topic.read("severity", event.fatal.map(|f| if f { "Fatal" } else { "Non-fatal" }).unwrap_or_default());
    if event.first {
        topic.read("first", "the first of its burst: trust it more than those that follow");
    }
    topic
}

fn of_pcie(error: &PcieError) -> Option<Topic> {
    let severity = match error.severity {
        PcieSeverity::Corrected => "corrected: sent again, nothing was lost",
        PcieSeverity::NonFatal => "not fatal: a transaction was lost",
        PcieSeverity::Fatal => "fatal: the link can no longer be trusted",
    };
    let mut topic = event("pcie-report", [("severity", severity.to_owned())])?;
    topic.read("reported by", &*error.driver);
    topic.read("layer", &*error.layer);
    topic.read("bits", error.bits.join(", "));
    if error.unrecovered {
        topic.read("recovery", "failed");
    }
    Some(topic)
}

fn oom(topic: &mut Topic, kill: &OomKill) {
    topic.read("victim", &*kill.name);
    topic.read("process", kill.pid.map(|p| p.0.to_string()).unwrap_or_default());
    let mib = |kib: Option<u64>| kib.map(|k| format!("{} MiB", k / 1024)).unwrap_or_default();
    topic.read("its own memory", mib(kill.anon_rss_kib));
    topic.read("its shared memory", mib(kill.shmem_rss_kib));
    topic.read(
        "limit",
        match kill.cgroup_limit {
            Some(true) => "of the cgroup",
            Some(false) => "of the whole machine",
            None => "",
        },
    );
    topic.read("cgroup", kill.limited_cgroup.as_deref().unwrap_or_default());
}

fn of_xid(event: &Xid) -> Topic {
    let mut topic =
        xid::get(event.code).map_or_else(|| topics::unknown_code("Xid", event.code.into()), topics::xid);
    topic.read("program", event.name.as_deref().unwrap_or_default());
    topic.read("process", event.pid.map(|p| p.0.to_string()).unwrap_or_default());
    topic.read("text", &*event.body);
    topic.read(
        "NVLink",
        event
            .link
            .map(|l| if l < 0 { "the whole port".to_owned() } else { l.to_string() })
            .unwrap_or_default(),
    );
    topic
        .read("caused by", event.caused_by.map(|code| format!("Xid {code}: look there")).unwrap_or_default());
    if let Some(code) = event.caused_by {
        topic.see(format!("xid {code}"));
    }
    if let Some(action) = event.recovery_action.and_then(xid::recovery_action) {
        topic.details.retain(|d| !matches!(&*d.value, "decode" | "depends on the sub-code"));
        topic.read("the GPU now needs", format!("{}: {}", action.name, action.meaning));
        topics::instead(&mut topic, action.action);
    }
    if event.needs_reset == Some(true) {
        topic.read("reset", "needed before the GPU can be used again");
    }
    if event.code == 74 {
        bits(&mut topic, &event.registers);
    }
    if let (Some(unit), [first, second, ..]) = (event.unit.as_deref(), &event.registers[..]) {
        sub_code(&mut topic, event, unit, *first, *second);
    }
    topic
}

/// What the register words of Xid 74 say.
fn bits(topic: &mut Topic, registers: &[u32]) {
    for row in xid::link_bits_of(registers) {
        let word = registers.get(row.word as usize).copied().unwrap_or_default();
        let set: Vec<String> =
            (0..32).filter(|bit| word & row.mask & (1 << bit) != 0).map(|b| b.to_string()).collect();
        let verdict = match row.verdict {
            "ignore" => "means nothing",
            "sympathetic" => "follows a fault elsewhere; report it if it occurs alone",
            "hw_if_repeated" => "hardware, if it occurs twice on this link within 24 hours",
            "check_mechanical" => "check seating, bridge or cable of the link",
            "signal_integrity" => "the signal on the link is bad: check seating, bridge or cable",
            "report_if_repeated" => "report it if it recurs",
            "field_diag_if_repeated" => "run field diagnostics if it recurs",
            "fabric_reset" => "reset the fabric: all GPUs and switches together",
            other => other,
        };
        topic.read(&format!("r{} bit {}", row.word, set.join(", ")), verdict);
    }
}

/// The decode sheet of Xids 144 to 150.
fn sub_code(topic: &mut Topic, event: &Xid, unit: &str, first: u32, second: u32) {
    topic.read("unit", unit);
    topic.read("sub-code", ((first >> 20) & 0x3f).to_string());
    let Some(rule) = xid::nvlink_rule(event.code, unit, first, second) else {
        topic.read("decoded", "NVIDIA's sheet has no row for this unit, sub-code and status");
        return;
    };
    // What depended on the sub-code is now known.
    topic.details.retain(|d| !matches!(&*d.value, "decode" | "depends on the sub-code"));
    let fatal = event.fatal == Some(true) && !rule.resolution_if_fatal.is_empty();
    let resolution = if fatal { rule.resolution_if_fatal } else { rule.resolution };
    topic.read("severity", rule.severity.replace('_', " "));
    topic.read(
        "NVIDIA's answer",
        match resolution {
            "IGNORE" => "ignore it: the job goes on, or something else ended it",
            "RESET_GPU" => "reset the GPU",
            "XID_154_EVAL" => "do what the Xid 154 that follows says",
            other => other,
        },
    );
    topic.read("this GPU suffers", effects(rule.local));
    topic.read("its peer suffers", effects(rule.remote));
    topic.notes.extend((!rule.note.is_empty()).then(|| topics::sentence(rule.note)));
    if resolution == "XID_154_EVAL" {
        topic.see("xid 154");
    }
    match resolution {
        "IGNORE" => topics::instead(topic, xid::Move::Ignore),
        "RESET_GPU" => topics::instead(topic, xid::Move::ResetGpu),
        _ => {}
    }
}

/// `ecc48+poison94?` in words.
fn effects(code: &str) -> String {
    let words: Vec<String> = code
        .split('+')
        .map(|effect| {
            let (effect, maybe) = effect.strip_suffix('?').map_or((effect, ""), |e| (e, " (possibly)"));
            let word = match effect {
                "none" => "nothing",
                "ecc48" => "an Xid 48",
                "app_crash45" => "its program ends, with an Xid 45",
                "packet_loss" => "packets are lost",
                "poison94" => "poisoned data, an Xid 94",
                "fatal" => "the GPU is unusable",
                other => other,
            };
            format!("{word}{maybe}")
        })
        .collect();
    words.join(", ")
}
