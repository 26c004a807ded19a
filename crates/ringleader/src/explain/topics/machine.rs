//! Xids and SXids.

use ringleader_knowledge::remedy::{Exclude, Kills, Move};
use ringleader_knowledge::sxid::{Guide, Print, Sxid};
use ringleader_knowledge::xid::{self, Xid};
use ringleader_model::{Cause, Impact};
use ringleader_report::json::Action;

use crate::explain::answer::{Kind, Topic};
use crate::explain::topics::{action, sentence};

/// What a move costs, and what to type for it.
fn step(step: Move, before: &str) -> Action {
    let (command, impact) = match step {
        Move::Ignore => ("", Impact::Harmless),
        Move::RestartApp => ("", Impact::Disruptive),
        Move::ResetGpu => ("nvidia-smi --gpu-reset -i INDEX", Impact::Destructive),
        Move::RebootNode => ("", Impact::Destructive),
        Move::Diagnose => ("dcgmi diag -r 3", Impact::Disruptive),
        Move::ContactSupport => ("nvidia-bug-report.sh", Impact::Harmless),
        Move::CheckFabric => (
            "nvidia-smi nvlink -s; nvidia-smi nvlink -e; systemctl status nvidia-fabricmanager",
            Impact::Harmless,
        ),
        Move::UpdateDriver => ("", Impact::Disruptive),
    };
    action(format!("{before}{}", step.sentence()), command, impact)
}

fn kills(kills: Kills) -> &'static str {
    match kills {
        Kills::Yes => "dies",
        Kills::No => "goes on",
        Kills::Maybe => "may die",
        Kills::Symptom => "was dead already: this follows",
        Kills::Decode => "depends on the sub-code",
    }
}

fn exclude(exclude: Exclude) -> &'static str {
    match exclude {
        Exclude::No => "stays",
        Exclude::IfRepeated => "leaves if it recurs",
        Exclude::UntilReset => "must not take new work until the GPU has been reset",
        Exclude::Yes => "leaves now",
        Exclude::Decode => "depends on the sub-code",
    }
}

/// Causes that an Xid may show.
fn causes(x: &Xid) -> Vec<Cause> {
    let sets: [(&str, Cause); 6] = [
        ("lost_gpu", Cause::GpuFallenOffBus),
        ("gsp", Cause::GspTimeout),
        ("memory_ecc", Cause::EccUncorrectable),
        ("nvlink_pre_blackwell", Cause::NvlinkError),
        ("nvlink5", Cause::NvlinkError),
        ("application", Cause::IllegalMemoryAccess),
    ];
    let mut causes: Vec<Cause> =
        sets.iter().filter(|(set, _)| x.is_in(set)).map(|(_, cause)| *cause).collect();
    if x.code == 64 {
        causes.insert(0, Cause::RowRemapFailure);
    }
    causes.dedup();
    causes
}

/// Whether a step of a series (`63|64`, `48 per channel`) is about this code.
fn names(step: &str, code: u16) -> bool {
    let first = step.split(' ').next().unwrap_or_default();
    first.split('|').any(|word| word.parse() == Ok(code))
}

pub(in crate::explain) fn xid(x: &Xid) -> Topic {
    let mut topic = Topic::new(Kind::Xid, format!("xid {}", x.code), x.name);
    topic.meaning = sentence(x.meaning);
    if x.unused {
        topic.meaning.push_str(" GPUs since Ampere do not use it.");
    }
    topic.shows.extend((!x.message.is_empty()).then(|| sentence(x.message)));
    if x.is_in("application") {
        topic
            .is_not
            .push("Mostly the program's own doing: the GPU and the node are healthy and stay.".to_owned());
    }
    if x.is_never_root() {
        topic
            .is_not
            .push("Never the root: it follows another event, look for what came before it.".to_owned());
    }
    if x.is_in("k8s_device_plugin_ignores") {
        topic.is_not.push(
            "NVIDIA's device plugin for Kubernetes does not mark a GPU unhealthy because of it.".to_owned(),
        );
    }
    topic.notes.extend((!x.note.is_empty()).then(|| sentence(x.note)));
    topic.detail("class", x.class.name());
    topic.detail("severity", x.severity.name());
    topic.detail("the job", kills(x.kills_job));
    topic.detail("the node", exclude(x.exclude_node));
    topic.detail("may be", x.may_be.join(", ").replace('_', " "));
    topic.detail("NVIDIA's first move", x.nvidia_immediate);
    topic.detail("NVIDIA's inquiry", x.nvidia_investigate);
    topic.detail("workflow", x.workflow);
    topic.detail("name in the catalogue", x.mnemonic);
    topic.actions.push(step(x.action, ""));
    if x.then != x.action && x.then != Move::Ignore {
        topic.actions.push(step(x.then, "if it recurs or that does not help: "));
    }
    for chain in xid::chains() {
        if chain.sequence.iter().any(|step| names(step, x.code)) {
            topic.detail(
                "seen in the series",
                format!("{}: {}", chain.name.replace('_', " "), chain.sequence.join(", then ")),
            );
            for root in chain.root.iter().filter_map(|r| r.strip_prefix("xid:")) {
                topic.see(format!("xid {root}"));
            }
        }
    }
    for cause in causes(x) {
        topic.see(cause.id());
    }
    topic.sources.extend(x.cite.iter().map(|c| (*c).to_owned()));
    topic
}

fn print(chip: &str, print: Option<Print>) -> Option<String> {
    print.map(|p| {
        let device = if p.device { ", the whole switch is taken down" } else { "" };
        format!("{} on {chip}{device}", if p.fatal { "Fatal" } else { "Non-fatal" })
    })
}

pub(in crate::explain) fn sxid(s: &Sxid) -> Topic {
    let mut topic = Topic::new(Kind::Sxid, format!("sxid {}", s.code), format!("NVSwitch: {}", s.unit));
    let guide = match s.guide {
        // What it does to the job is in its own row.
        Guide::NonFatal if s.kills_job == Kills::Yes => "the switch goes on; the traffic that met it is lost",
        Guide::NonFatal => "nothing stops",
        Guide::PotentiallyFatal => {
            "on a port towards a GPU, only that GPU is affected and its Xid 74 follows; on a port between switches, the whole fabric is"
        }
        Guide::AlwaysFatal => "the fabric is down: all GPUs and switches must be reset together",
        Guide::Notable => "informational; it stops nothing by itself",
        Guide::Unlisted => "NVIDIA's guide does not list it",
    };
    let what = if s.texts.is_empty() { s.symbol.to_owned() } else { s.texts.join(", ") };
    topic.meaning = format!("A fault in the switch's {}: {what}. Effect: {guide}.", s.unit);
    topic.notes.extend((!s.note.is_empty()).then(|| sentence(s.note)));
    topic.is_not.push("The link number is the port of the switch, not the link of a GPU.".to_owned());
    topic.detail("name in the driver", s.symbol);
    let prints: Vec<String> =
        [print("A100 (LR10)", s.lr10), print("H100, H200 (LS10)", s.ls10)].into_iter().flatten().collect();
    topic.detail("printed as", prints.join("; "));
    topic.detail("the job", kills(s.kills_job));
    topic.detail("the node", exclude(s.exclude_node));
    topic.actions.push(step(s.action, ""));
    topic.see("nvswitch-error");
    topic.see("xid 74");
    topic.sources.extend(s.cite.iter().map(|c| (*c).to_owned()));
    topic
}

/// A code that no public catalogue lists.
pub(in crate::explain) fn unknown_code(family: &str, code: u32) -> Topic {
    let kind = if family == "Xid" { Kind::Xid } else { Kind::Sxid };
    let mut topic =
        Topic::new(kind, format!("{} {code}", family.to_lowercase()), "not in any public catalogue");
    topic.meaning = format!(
        "No such {family} is known: {code} is in no public catalogue. Compare the number with the line of the kernel log; if it \
                 is right, treat it as an error of unknown kind."
    );
    topic.actions.push(step(Move::ContactSupport, ""));
    topic.sources.push("NVIDIA documentation, Analyzing Xid Errors with the Xid Catalog".to_owned());
    topic
}

/// The line itself says what to do: that comes before what is known about the code in general.
pub(in crate::explain) fn instead(topic: &mut Topic, first: Move) {
    topic.actions.retain(|action| !action.text.ends_with(first.sentence()));
    topic.actions.insert(0, step(first, "as this line says: "));
}
