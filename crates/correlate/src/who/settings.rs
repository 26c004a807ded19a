//! What each process and each listing had set, and which NCCL they run.

use ringleader_knowledge::variable;
use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{Case, Cite, EnvironmentForm, Evidence, Fact, NcclLog, SourceKind, Who};

/// One variable as it was set.
#[derive(Clone, Copy)]
pub struct Set<'a> {
    /// The name that its reader gives it today.
    pub name: &'a str,
    /// The name as it was written.
    pub written: &'a str,
    /// The value; of NCCL's log the one that was read, else the text.
    pub value: &'a str,
    /// Its place in the evidence.
    pub cite: Cite,
}

/// What one process, or one listing, had set.
pub struct Settings<'a> {
    /// The process, or the host of the listing.
    pub who: &'a Who,
    /// NCCL's log, or a listing.
    pub kind: SourceKind,
    /// In their order.
    pub sets: Vec<Set<'a>>,
    /// What is not there was not set.
    pub is_whole: bool,
    /// A configuration file of NCCL: the environment goes before it.
    pub is_conf: bool,
    /// NCCL of the process, if it said so.
    pub version: Option<NcclVersion>,
}

impl<'a> Settings<'a> {
    /// The value of a variable by its name of today.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.sets.iter().find(|s| s.name == name).map(|s| s.value)
    }

    /// The value of a variable as a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.trim().parse().ok()
    }

    /// One of its variables as cited evidence.
    pub fn evidence(&self, set: &Set<'_>) -> Evidence {
        let text = match self.kind {
            SourceKind::NcclLog => format!("{} set by environment to {}", set.written, set.value),
            _ => format!("{}={}", set.written, set.value),
        };
        Evidence { cite: set.cite, text, kind: self.kind }
    }
}

/// All settings of a case, one entry for each process of a log and each listing.
pub fn of<'a>(case: &'a Case) -> Vec<Settings<'a>> {
    let mut all = Vec::new();
    let today = |written: &'a str| variable::get(written).map_or(written, |v| v.name);
    for log in nccl_logs(case) {
        for (index, process) in log.processes.iter().enumerate() {
            let own = log.settings.iter().filter(|s| s.process as usize == index);
            let sets: Vec<Set<'_>> = own
                .map(|s| Set {
                    name: today(&s.name),
                    written: &s.name,
                    value: s.value.trim_end_matches('.'),
                    cite: s.cite,
                })
                .collect();
            if !sets.is_empty() {
                let version = process.nccl_version.as_deref().and_then(NcclVersion::parse);
                let kind = SourceKind::NcclLog;
                all.push(Settings {
                    who: &process.who,
                    kind,
                    sets,
                    is_whole: false,
                    is_conf: false,
                    version,
                });
            }
        }
    }
    for observation in &case.observations {
        let Fact::Environment(listing) = &observation.fact else { continue };
        let own = listing.settings.iter();
        let sets = own.map(|s| Set { name: today(&s.name), written: &s.name, value: &s.value, cite: s.cite });
        all.push(Settings {
            who: &observation.who,
            kind: SourceKind::Environment,
            sets: sets.collect(),
            is_whole: listing.is_whole,
            is_conf: listing.form == EnvironmentForm::ConfFile,
            version: None,
        });
    }
    all
}

fn nccl_logs(case: &Case) -> impl Iterator<Item = &NcclLog> {
    case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Nccl(log) => Some(&**log),
        _ => None,
    })
}

/// The oldest NCCL release that a process of the case says it runs.
pub fn nccl_version(case: &Case) -> Option<NcclVersion> {
    let processes = nccl_logs(case).flat_map(|log| &log.processes);
    processes.filter_map(|p| p.nccl_version.as_deref().and_then(NcclVersion::parse)).min()
}
