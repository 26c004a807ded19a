//! The citations inside facts, in one place.
//!
//! Sources are renumbered when the observations of several files are merged. A citation that this walk misses would
//! then silently refer to another file. So each match names all variants and each pattern all fields (no `..`): the
//! compiler requires an entry here for a new one. A test finds types that contain a citation but are missing here.

use crate::{
    Cite, Environment, Fact, NcclBacktrace, NcclComm, NcclLink, NcclLog, NcclMessage, NcclProcess,
    NcclSetting, Progress, Said, Setting, WordAt,
};

impl Fact {
    /// Calls `visit` with every citation in the fact.
    pub fn cites_mut(&mut self, visit: &mut impl FnMut(&mut Cite)) {
        match self {
            Self::Nccl(log) => of_nccl(log, visit),
            Self::Environment(environment) => of_environment(environment, visit),
            Self::Said(said) => of_said(said, visit),
            Self::Progress(progress) => of_progress(progress, visit),
            Self::Words(words) => words.iter_mut().for_each(|word| of_word(word, visit)),
            // These contain lines of their own source, but no citation.
            Self::Flight(_)
            | Self::Ras(_)
            | Self::Ring(_)
            | Self::Stacks(_)
            | Self::Samples(_)
            | Self::Processes(_)
            | Self::Gpus(_)
            | Self::GpuTests(_)
            | Self::GpuService(_)
            | Self::Limits(_)
            | Self::Torch(_)
            | Self::Kernel(_)
            | Self::Bench(_)
            | Self::Copy(_)
            | Self::Net(_)
            | Self::System(_)
            | Self::Watch(_)
            | Self::Guard(_)
            | Self::Timeline(_)
            | Self::Sign(_)
            | Self::StepTimes(_)
            | Self::Pace(_)
            | Self::Outlier(_)
            | Self::Apart(_)
            | Self::Hosts(_)
            | Self::Owner(_) => {}
        }
    }
}

fn of_said(said: &mut Said, visit: &mut impl FnMut(&mut Cite)) {
    let Said { last, template: _, count: _, last_at: _, form: _, rows: _, named: _, is_read: _ } = said;
    visit(last);
}

fn of_word(word: &mut WordAt, visit: &mut impl FnMut(&mut Cite)) {
    let WordAt { cite, word: _ } = word;
    visit(cite);
}

fn of_progress(progress: &mut Progress, visit: &mut impl FnMut(&mut Cite)) {
    let Progress { before_last, last, ended, n_lines: _, n_steps: _, last_at: _, total: _ } = progress;
    before_last.iter_mut().chain(last).chain(ended).for_each(visit);
}

fn of_environment(environment: &mut Environment, visit: &mut impl FnMut(&mut Cite)) {
    let Environment { settings, form: _, n_left_out: _, is_whole: _ } = environment;
    for Setting { cite, name: _, value: _ } in settings {
        visit(cite);
    }
}

fn of_nccl(log: &mut NcclLog, visit: &mut impl FnMut(&mut Cite)) {
    let NcclLog {
        processes,
        comms,
        messages,
        backtraces,
        settings,
        links,
        calls: _,
        n_lines: _,
        n_calls_dropped: _,
        truncated: _,
        dropped_of_comm: _,
        strangers: _,
    } = log;
    for process in processes {
        let NcclProcess {
            first,
            last,
            version_at,
            devices_at,
            who: _,
            nccl_version: _,
            cuda_driver_version: _,
            bootstrap: _,
            network: _,
            ib_devices: _,
            socket_devices: _,
            last_at: _,
        } = process;
        first.iter_mut().chain(last).chain(version_at).chain(devices_at).for_each(&mut *visit);
    }
    for comm in comms {
        let NcclComm {
            started,
            completed,
            destroyed,
            aborted,
            process: _,
            ptr: _,
            rank: _,
            n_ranks: _,
            cuda_dev: _,
            nvml_dev: _,
            gpu: _,
            comm_id: _,
            parent: _,
            color: _,
            api: _,
            at: _,
        } = comm;
        [started, completed, destroyed, aborted].into_iter().flatten().for_each(&mut *visit);
    }
    for message in messages {
        let NcclMessage { cite, process: _, at: _, cuda_dev: _, is_warn: _, origin: _, text: _, result: _ } =
            message;
        visit(cite);
    }
    for NcclBacktrace { cite, process: _, origin: _, result: _ } in backtraces {
        visit(cite);
    }
    for NcclSetting { cite, process: _, name: _, value: _ } in settings {
        visit(cite);
    }
    for link in links {
        let NcclLink { cite, process: _, from: _, to: _, transport: _, over: _, is_send: _, n_channels: _ } =
            link;
        visit(cite);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    #![expect(clippy::disallowed_methods, reason = "the test reads this crate's own source")]

    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{EnvironmentForm, SourceId};

    #[test]
    fn every_citation_of_a_fact_is_visited() {
        let at = |line| Cite { source: SourceId(0), line, start: 0, end: 0 };
        let setting = |line| Setting { cite: at(line), name: "NCCL_DEBUG".into(), value: "INFO".into() };
        let mut fact = Fact::Environment(Box::new(Environment {
            form: EnvironmentForm::Listed,
            settings: vec![setting(1), setting(2)],
            n_left_out: 0,
            is_whole: false,
        }));
        let mut lines = Vec::new();
        fact.cites_mut(&mut |cite| {
            cite.source.0 += 7;
            lines.push(cite.line);
        });
        assert_eq!(lines, [1, 2]);
        let Fact::Environment(environment) = fact else { panic!("the fact changed") };
        assert!(environment.settings.iter().all(|setting| setting.cite.source == SourceId(7)));
    }

    /// Types of this crate by name, with the text in their braces.
    fn types() -> BTreeMap<String, String> {
        let mut types = BTreeMap::new();
        for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let mut open: Option<(String, String)> = None;
            for line in text.lines() {
                let code = line.split("//").next().unwrap_or_default();
                if let Some((name, body)) = &mut open {
                    body.push_str(code);
                    body.push('\n');
                    if line == "}" {
                        types.insert(std::mem::take(name), std::mem::take(body));
                        open = None;
                    }
                } else if let Some(rest) =
                    code.strip_prefix("pub struct ").or_else(|| code.strip_prefix("pub enum "))
                {
                    let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
                    if code.trim_end().ends_with('{') {
                        open = Some((name, String::new()));
                    } else {
                        types.insert(name, rest.to_owned());
                    }
                }
            }
        }
        types
    }

    fn names(body: &str, name: &str) -> bool {
        body.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
    }

    #[test]
    fn every_type_with_a_citation_stands_here() {
        let types = types();
        assert!(types.len() > 100, "the scan is blind: {}", types.len());
        // All types that a fact can contain.
        let mut held: BTreeSet<&str> = BTreeSet::from(["Fact"]);
        loop {
            let more: Vec<&str> = types
                .keys()
                .filter(|name| !held.contains(name.as_str()))
                .filter(|name| held.iter().any(|holder| names(&types[*holder], name)))
                .map(String::as_str)
                .collect();
            if more.is_empty() {
                break;
            }
            held.extend(more);
        }
        assert!(held.contains("Cite"));
        let here = include_str!("cites.rs").split("#[cfg(test)]").next().unwrap();
        // Those of them that contain a citation.
        let mut cited: BTreeSet<&str> = BTreeSet::from(["Cite"]);
        loop {
            let more: Vec<&str> = held
                .iter()
                .filter(|name| !cited.contains(*name))
                .filter(|name| cited.iter().any(|part| names(&types[**name], part)))
                .copied()
                .collect();
            if more.is_empty() {
                break;
            }
            cited.extend(more);
        }
        assert!(cited.contains("NcclLink"), "the scan is blind: {cited:?}");
        for name in cited {
            assert!(names(here, name), "{name} holds a citation that `Fact::cites_mut` does not visit");
        }
    }
}
