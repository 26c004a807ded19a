//! What is wrong with a setting by itself: a value that is read as something else, a name that nothing reads, settings
//! that cancel each other. None of it is a cause by itself.

use std::collections::BTreeMap;

use ringleader_correlate::Scene;
use ringleader_correlate::who::culprits::add_culprit;
use ringleader_correlate::who::settings::{self, Set, Settings};
use ringleader_knowledge::conflict;
use ringleader_knowledge::variable::{self, Status, misread};
use ringleader_knowledge::version::NcclVersion;
use ringleader_model::{Culprit, Evidence, SourceKind, plain_word};

/// Citations of one remark.
const CITATIONS: usize = 4;
/// Sockets of one connection that NCCL allows: user guide, NCCL_NSOCKS_PERTHREAD.
const MAX_SOCKETS: i64 = 64;
/// Remarks of one case.
const MAX_REMARKS: usize = 40;

/// Something about settings that is worth a word.
pub(super) struct Remark {
    /// One line.
    pub(super) title: String,
    /// What to do.
    pub(super) advice: String,
    /// It makes the job slow, or takes a guard away that was asked for; else it is merely without effect.
    pub(super) hurts: bool,
    /// Who has it so.
    pub(super) culprits: Vec<Culprit>,
    /// The lines that show the setting.
    pub(super) evidence: Vec<Evidence>,
}

/// All remarks on a case: one for each thing, however many processes have it so.
pub(super) fn remarks(scene: &Scene<'_>) -> Vec<Remark> {
    let all = settings::of(scene.case());
    // A listing names no release: the job's own logs do.
    let version = scene.nccl_version();
    let mut found: BTreeMap<String, Remark> = BTreeMap::new();
    for settings in &all {
        let version = settings.version.or(version);
        for set in &settings.sets {
            if let Some((title, advice, hurts)) = by_itself(settings, set, version) {
                note(scene, &mut found, settings, &[set], title, advice, hurts);
            }
        }
        for (row, names) in conflict::found(|name| settings.get(name)) {
            let sets: Vec<&Set<'_>> =
                names.iter().filter_map(|name| settings.sets.iter().find(|s| s.name == *name)).collect();
            let title = format!("{}: {}", written(&sets), row.means);
            note(scene, &mut found, settings, &sets, title, row.instead.to_owned(), row.hurts);
        }
        for (names, title, advice) in by_number(settings) {
            let sets: Vec<&Set<'_>> =
                names.iter().filter_map(|name| settings.sets.iter().find(|s| s.name == *name)).collect();
            note(scene, &mut found, settings, &sets, title, advice, true);
        }
    }
    for conf in all.iter().filter(|s| s.is_conf) {
        for (set, other, by) in given_way(scene, conf, &all) {
            let title = format!(
                "{}={} from a configuration file is overridden by {} from the environment",
                set.written, set.value, by.value
            );
            let remark = Remark {
                title: title.clone(),
                advice: "keep one of the two: NCCL uses its files only for what the environment does not set"
                    .to_owned(),
                hurts: false,
                culprits: Vec::new(),
                evidence: vec![conf.evidence(set), other.evidence(by)],
            };
            found.entry(title).or_insert(remark);
        }
    }
    found.into_values().take(MAX_REMARKS).collect()
}

/// Variables of a file that a process of its host has otherwise: the file's, whose the other is, the other.
fn given_way<'s, 'a>(
    scene: &Scene<'a>,
    conf: &'s Settings<'a>,
    all: &'s [Settings<'a>],
) -> Vec<(&'s Set<'a>, &'s Settings<'a>, &'s Set<'a>)> {
    let here = |s: &&Settings<'_>| !s.is_conf && scene.may_be_on(conf.who.host.as_ref(), s.who.host.as_ref());
    let other = |set: &Set<'_>| {
        let mut others = all.iter().filter(here).flat_map(|s| s.sets.iter().map(move |by| (s, by)));
        others.find(|(_, by)| by.name == set.name && by.value != set.value)
    };
    conf.sets.iter().filter_map(|set| other(set).map(|(s, by)| (set, s, by))).collect()
}

fn written(sets: &[&Set<'_>]) -> String {
    sets.iter().map(|s| format!("{}={}", s.written, s.value)).collect::<Vec<_>>().join(" with ")
}

fn note(
    scene: &Scene<'_>,
    found: &mut BTreeMap<String, Remark>,
    settings: &Settings<'_>,
    sets: &[&Set<'_>],
    title: String,
    advice: String,
    hurts: bool,
) {
    let remark = found.entry(title.clone()).or_insert_with(|| Remark {
        title,
        advice,
        hurts,
        culprits: Vec::new(),
        evidence: Vec::new(),
    });
    if !settings.who.is_nobody() {
        add_culprit(&mut remark.culprits, scene.culprit(settings.who));
    }
    if remark.evidence.len() < CITATIONS {
        remark.evidence.extend(sets.iter().map(|set| settings.evidence(set)));
    }
}

/// What is wrong with one setting alone: title, advice, whether it hurts.
fn by_itself(
    settings: &Settings<'_>,
    set: &Set<'_>,
    version: Option<NcclVersion>,
) -> Option<(String, String, bool)> {
    let name = set.written;
    if let Some(unread) = variable::get_unread(name) {
        return Some((format!("nothing reads {name}"), format!("use instead: {}", unread.meant), true));
    }
    let Some(known) = variable::get(name) else {
        // Releases newer than the table, plugins and ports read names that the table lacks.
        let is_foreign = variable::is_of_plugin(name)
            || variable::is_label(name)
            || version.is_some_and(|v| v > variable::newest());
        let is_ours = name.starts_with("NCCL_") || name.starts_with("TORCH_NCCL_");
        return (is_ours && !is_foreign && settings.kind == SourceKind::Environment).then(|| {
            (
                format!("no NCCL up to {} and no PyTorch is known to read {name}", variable::newest()),
                plain_word(name).map_or_else(
                    || "check its spelling".to_owned(),
                    |name| format!("check its spelling: ringleader explain {name}"),
                ),
                false,
            )
        });
    };
    if known.reader == "NCCL" && variable::is_read_by(known.name, version) == Some(false) {
        let version = version.map(|v| v.to_string()).unwrap_or_default();
        let instead = match known.replaced_by {
            "" => "unset it".to_owned(),
            successor => format!("use {successor}"),
        };
        return Some((format!("NCCL {version} does not read {name}"), instead, false));
    }
    if known.status == Status::Removed && version.is_none() && settings.kind == SourceKind::Environment {
        return Some((format!("no current release reads {name}"), "unset it".to_owned(), false));
    }
    let misread = misread(known, set.value, version)?;
    Some((format!("{name}={}: {}", set.value, misread.what), misread.trap.instead.to_owned(), true))
}

/// Pairs of numbers that do not fit: names, title, advice.
fn by_number(settings: &Settings<'_>) -> Vec<([&'static str; 2], String, String)> {
    let mut found = Vec::new();
    for [low, high] in [["NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"], ["NCCL_MIN_CTAS", "NCCL_MAX_CTAS"]] {
        if let (Some(least), Some(most)) = (settings.number(low), settings.number(high))
            && least > most
        {
            let title = format!("{low}={least} is more than {high}={most}");
            found.push(([low, high], title, "unset one of the two".to_owned()));
        }
    }
    let names = ["NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"];
    if let (Some(threads), Some(sockets)) = (settings.number(names[0]), settings.number(names[1]))
        && threads.saturating_mul(sockets) > MAX_SOCKETS
    {
        let title = format!("{}={threads} times {}={sockets} is more than {MAX_SOCKETS}", names[0], names[1]);
        found.push((names, title, format!("keep the product at {MAX_SOCKETS} or less")));
    }
    found
}
