//! # What it shows
//!
//! /dev/shm is full, or not writable for all users, as df and ls show.
//!
//! # Why it happens
//!
//! A container has 64 MB by default; segments of jobs that were killed fill it; a mount with the wrong mode.
//!
//! # Evidence
//!
//! df's row of /dev/shm; the segments that ls lists there, which make most of what is used and which no running
//! process of the job can have made; the mode of the folder. A process that died of SIGBUS or a failure to write there
//! ties it to the job.
//!
//! # What looks like it but is not
//!
//! Half full is not full. NCCL's segments exist briefly while a job starts. Without a failure a full mount is a
//! warning, a wrong mode or a left-over segment a remark. A mount of a host on which no rank runs does not matter.
//!
//! # What to do
//!
//! Give it more room, and remove segments that no process has open.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/shmutils.cc (segments are unlinked once both sides have them); tmpfs(5); docker run --shm-size.

use ringleader_knowledge::claim;
use ringleader_knowledge::signal::SIGBUS;
use ringleader_model::{
    Cause, Confidence, Culprit, Finding, Impact, ListedFile, Listing, Mount, Observation, Severity,
    SourceKind, SystemFact, Weight,
};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::tools::{is_full, is_small, shown};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "shm-state",
    title: "/dev/shm is full or not writable",
    since: "0.1",
    doc: include_str!("shm_state.rs"),
    check,
};

/// How to get rid of segments that a dead job left.
const LEFT_OVER: &claim::ClaimRow = claim::at(claim::place("shm-stale"));

fn check(scene: &Scene<'_>) -> Outcome {
    let mut findings: Vec<Finding> = Vec::new();
    let mounts = scene.system().filter_map(|(o, fact)| match fact {
        SystemFact::Mount(mount) if mount.at.ends_with("/shm") => Some((o, mount)),
        _ => None,
    });
    let listings: Vec<(&Observation, &Listing)> = scene
        .system()
        .filter_map(|(o, fact)| match fact {
            SystemFact::Listing(listing) => Some((o, listing)),
            _ => None,
        })
        .collect();
    let is_elsewhere = |o: &Observation| scene.is_elsewhere(scene.host_of(o).as_ref());
    let mut of_job = mounts.filter(|(o, _)| !is_elsewhere(o));
    findings.extend(of_job.find_map(|(observation, mount)| full(scene, observation, mount, &listings)));
    for (observation, listing) in listings.iter().filter(|(o, _)| !is_elsewhere(o)) {
        findings.extend(closed(scene, observation, listing));
        if findings.is_empty() {
            findings.extend(left_over(observation, listing));
        }
    }
    Outcome::from_findings(findings)
}

fn is_segment(file: &ListedFile) -> bool {
    let name = file.name.strip_prefix("/dev/shm/").unwrap_or(&file.name);
    name.starts_with("nccl-")
}

/// Ranks that died of SIGBUS.
fn bus_errors<'s>(scene: &'s Scene<'_>) -> Vec<(Culprit, &'s ringleader_model::Evidence)> {
    scene
        .fates()
        .all()
        .filter_map(|(rank, fate)| {
            // What a write into a full tmpfs ends with.
            let exit = fate.ended_by(SIGBUS)?;
            Some((scene.roster().culprit_rank(rank), &exit.evidence))
        })
        .collect()
}

fn full(
    scene: &Scene<'_>,
    observation: &Observation,
    mount: &Mount,
    listings: &[(&Observation, &Listing)],
) -> Option<Finding> {
    let host = scene.host_of(observation);
    let on_host = |c: &Culprit| scene.may_be_on(host.as_ref(), c.host.as_ref());
    let dead: Vec<_> = bus_errors(scene).into_iter().filter(|(c, _)| on_host(c)).collect();
    let (is_full, is_small) = (is_full(mount), is_small(mount));
    if !is_full && (!is_small || dead.is_empty()) {
        return None;
    }
    // Segments of dead jobs: most of what is used, while none of a running one stays.
    let segments: Vec<(&Observation, &ListedFile)> = listings
        .iter()
        .filter(|(o, _)| scene.may_be_on(host.as_ref(), scene.host_of(o).as_ref()))
        .flat_map(|(o, l)| l.files.iter().filter(|f| is_segment(f)).map(move |f| (*o, f)))
        .collect();
    let held: u64 = segments.iter().map(|(_, f)| f.size).fold(0, u64::saturating_add);
    let is_stale = is_full && !mount.is_inodes && held > mount.used / 2;
    let failed = scene.has_failed();
    let size = mount.size >> 20;
    let (cause, title) = if is_stale {
        (Cause::ShmStale, format!("{} left-over segments of NCCL fill /dev/shm ({size} MiB)", segments.len()))
    } else if mount.is_inodes {
        (Cause::ShmFull, "/dev/shm has no room for another file".to_owned())
    } else if is_full {
        (Cause::ShmFull, format!("/dev/shm is full ({size} MiB)"))
    } else {
        (Cause::ShmFull, format!("/dev/shm has {size} MiB, and a rank died of SIGBUS"))
    };
    let row = format!("{} of {} MiB used at {}", mount.used >> 20, size, mount.at);
    // Once its communicators are up a job has what NCCL needs; a data loader that then lacks room dies of SIGBUS.
    let is_past = dead.is_empty() && scene.got_going([]);
    let tied = failed && (is_full || !dead.is_empty()) && !is_past;
    let mut draft = Draft::new(RULE.id, cause, title)
        .severity(match (tied, is_past) {
            (true, _) => Severity::Error,
            (false, false) => Severity::Warning,
            (false, true) => Severity::Info,
        })
        .weight(if dead.is_empty() { Weight::Derived } else { Weight::Stated })
        .confidence(Confidence::Medium)
        .culprits(dead.iter().map(|(c, _)| c.clone()))
        .evidence([shown(
            observation,
            None,
            SourceKind::System,
            if mount.is_inodes { String::new() } else { row },
        )])
        .evidence(dead.iter().map(|(_, e)| (*e).clone()))
        .evidence(segments.iter().take(3).map(|(o, f)| segment(o, f)));
    if let (true, Some(host)) = (dead.is_empty(), host) {
        draft = draft.culprit(Culprit { host: Some(host), ..Culprit::default() });
    }
    if is_stale {
        draft = draft.advise_all(LEFT_OVER.advice);
    }
    draft
        .advise_command(Impact::Harmless, "check what fills it", "df -h /dev/shm; ls -laS /dev/shm | head -30")
        .advise_command(
            Impact::Harmless,
            "start the container with more shared memory, or with that of the host (--ipc=host); in Kubernetes mount an emptyDir with medium: Memory at /dev/shm",
            "docker run --shm-size=16g …",
        )
        .build()
}

fn segment(observation: &Observation, file: &ListedFile) -> ringleader_model::Evidence {
    let text = format!("{} {} {} bytes, {}", file.owner, file.name, file.size, file.when);
    shown(observation, Some(file.line), SourceKind::System, text)
}

/// The folder is not writable for all users, and something failed.
fn closed(scene: &Scene<'_>, observation: &Observation, listing: &Listing) -> Option<Finding> {
    let (mode, owner) = listing.own.as_ref()?;
    let is_shm = listing.folder.as_deref().is_some_and(|f| f.ends_with("/shm"));
    if !is_shm || mode.chars().nth(8) == Some('w') {
        return None;
    }
    // The job's own words about it make it the cause.
    let told = scene.claims().of(Cause::ShmPermission).next();
    let host = scene.host_of(observation);
    Draft::new(RULE.id, Cause::ShmPermission, format!("only {owner} may write to /dev/shm ({mode})"))
        .severity(match (told, scene.has_failed()) {
            (Some(_), _) => Severity::Error,
            (None, true) => Severity::Warning,
            (None, false) => Severity::Info,
        })
        .confidence(if told.is_some() { Confidence::Medium } else { Confidence::Low })
        .culprits(told.map(|claim| scene.culprit(&claim.who)))
        .culprits(host.filter(|_| told.is_none()).map(|h| Culprit { host: Some(h), ..Culprit::default() }))
        .evidence([shown(observation, None, SourceKind::System, format!("{mode} {owner} /dev/shm"))])
        .evidence(told.map(ringleader_correlate::Claim::evidence))
        .advise_command(
            Impact::Disruptive,
            "mount it writable for all users",
            "mount -o remount,rw,mode=1777 /dev/shm",
        )
        .build()
}

/// Segments that lie there: worth a word.
fn left_over(observation: &Observation, listing: &Listing) -> Option<Finding> {
    let segments: Vec<&ListedFile> = listing.files.iter().filter(|f| is_segment(f)).collect();
    if segments.is_empty() {
        return None;
    }
    let title =
        format!("{} segments of NCCL are in /dev/shm: a job is starting, or one was killed", segments.len());
    let draft = Draft::new(RULE.id, Cause::ShmStale, title)
        .severity(Severity::Info)
        .confidence(Confidence::Low)
        .evidence(segments.iter().take(3).map(|f| segment(observation, f)));
    draft.advise_all(LEFT_OVER.advice).build()
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, ListedFile, Listing, Mount, Severity, SystemFact};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const MB: u64 = 1 << 20;

    fn mount(size: u64, used: u64) -> SystemFact {
        let at = "/dev/shm".into();
        SystemFact::Mount(Mount {
            device: "tmpfs".into(),
            at,
            size,
            used,
            available: size - used,
            is_inodes: false,
        })
    }

    fn listing(mode: &str, sizes: &[u64]) -> SystemFact {
        let files = sizes
            .iter()
            .map(|size| ListedFile {
                line: 4,
                owner: "alice".into(),
                size: *size,
                name: "nccl-AbCdEf".into(),
                ..ListedFile::default()
            })
            .collect();
        let own = Some((mode.into(), "root".into()));
        SystemFact::Listing(Listing { folder: Some("/dev/shm".into()), own, files })
    }

    #[test]
    fn full_and_a_rank_died_of_it() {
        StagedCase::new()
            .failed(1, -7, true)
            .system("", mount(64 * MB, 64 * MB))
            .concludes(&RULE, "shm-full 1, high");
        StagedCase::new()
            .failed(1, 135, true)
            .system("", mount(64 * MB, 8 * MB))
            .concludes(&RULE, "shm-full 1, high");
    }

    #[test]
    fn full_alone_is_a_warning() {
        let finding = StagedCase::new().system("", mount(64 * MB, 64 * MB)).finding(&RULE);
        assert_eq!((finding.cause, finding.severity), (Cause::ShmFull, Severity::Warning));
    }

    #[test]
    fn room_enough() {
        StagedCase::new().failed(1, -7, true).system("", mount(512 * MB, 300 * MB)).silent(&RULE);
        StagedCase::new().failed(1, -9, true).system("", mount(64 * MB, 8 * MB)).silent(&RULE);
        StagedCase::new().system("", mount(0, 0)).silent(&RULE);
    }

    #[test]
    fn segments_of_dead_jobs_fill_it() {
        StagedCase::new()
            .failed(1, 1, true)
            .system("", mount(64 * MB, 64 * MB))
            .system("", listing("drwxrwxrwt", &[30 * MB, 30 * MB]))
            .expect(&RULE, &["shm-stale"]);
        let finding = StagedCase::new().system("", listing("drwxrwxrwt", &[9 * MB])).finding(&RULE);
        assert_eq!(finding.severity, Severity::Info);
        StagedCase::new().system("", listing("drwxrwxrwt", &[])).silent(&RULE);
    }

    #[test]
    fn a_folder_that_is_not_for_everybody() {
        StagedCase::new()
            .process("n", 1, Some(1))
            .warn("misc/shmutils.cc:71", "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: Permission denied (13)")
            .system("", listing("drwxr-xr-x", &[]))
            .concludes(&RULE, "shm-permission 1, high");
        let finding = StagedCase::new().system("", listing("drwxr-xr-x", &[])).finding(&RULE);
        assert_eq!(finding.severity, Severity::Info);
    }
}
