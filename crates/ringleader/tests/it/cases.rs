//! Every recorded case, from its folder to its report.

use std::collections::BTreeMap;

use ringleader::diagnose;
use ringleader_report::json::Report;
use ringleader_report::{Detail, TextStyle, markdown, text};

use crate::Judged;
use crate::report::{fits, valid};

#[test]
fn every_report_fits_the_schema_and_the_page() {
    for Judged { name, diagnosis, .. } in crate::judged() {
        let report = diagnosis.report();
        valid(&report);
        let shown = text::render(&report, &TextStyle { width: 80, color: false, detail: Detail::Usual });
        fits(&shown, 80);
        // Even commands of one long word: ours are chosen to fit.
        let wide: Vec<&str> = shown.lines().filter(|row| row.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
        assert!(shown.lines().next().is_some_and(|first| !first.is_empty()), "{name}");
        assert!(markdown::render(&report, Detail::Usual).starts_with("## ringleader: "), "{name}");
        assert!(report.looked_at.len() >= diagnosis.case.sources.len(), "{name}");
        let advice = report.verdict.actions.iter().chain(report.findings.iter().flat_map(|f| &f.actions));
        let commands = advice.filter_map(|a| a.command.as_deref());
        let needed = report.undecided.iter().map(|u| u.command.as_str());
        for command in commands.chain(needed) {
            // A command can be typed: remarks about it are beside it.
            assert!(!command.contains("  (") && !command.contains("PID"), "{name}: {command}");
        }
        for finding in &report.findings {
            assert!(!finding.evidence.is_empty(), "{name}: {} has no proof", finding.id);
            for cited in &finding.evidence {
                assert!(
                    report.looked_at.iter().any(|entry| entry.source == cited.source),
                    "{name}: {}",
                    cited.source
                );
            }
        }
    }
}

/// What must not depend on how files are called: the verdict without its citations.
fn answer(report: &Report) -> serde_json::Value {
    serde_json::to_value(&report.verdict).unwrap()
}

#[test]
fn names_and_order_of_files_do_not_matter() {
    for name in ["skipped-allreduce", "segfault", "missing-rank", "healthy"] {
        let evidence = crate::root().join("cases").join(name).join("evidence");
        let expected = diagnose(std::slice::from_ref(&evidence), false).unwrap().report();

        // Made in reverse order, so that the directory lists them differently: the same bytes come out.
        let mut files: Vec<_> =
            std::fs::read_dir(&evidence).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.reverse();
        let same = tempfile::tempdir().unwrap();
        for file in &files {
            std::fs::copy(file, same.path().join(file.file_name().unwrap())).unwrap();
        }
        let report = diagnose(&[same.path().to_owned()], false).unwrap().report();
        assert!(expected.to_json().unwrap() == report.to_json().unwrap(), "{name}");

        // Other names, in the opposite order, some deeper: the same verdict. Which ranks wait with the others may be
        // shown by the name of a file alone (`stack_rank0.txt`); who is accused may not.
        let other = tempfile::tempdir().unwrap();
        std::fs::create_dir(other.path().join("deep")).unwrap();
        for (n, file) in files.iter().enumerate() {
            let folder = if n % 2 == 0 { "deep" } else { "." };
            std::fs::copy(file, other.path().join(folder).join(format!("{n:03}.dat"))).unwrap();
        }
        let report = diagnose(&[other.path().to_owned()], false).unwrap().report();
        let without_victims = |report: &Report| {
            let mut answer = answer(report);
            answer.as_object_mut().unwrap().remove("victims");
            answer
        };
        assert_eq!(without_victims(&expected), without_victims(&report), "{name}");
    }
}

#[test]
fn verdicts_of_all_cases() {
    let mut table: BTreeMap<String, String> = BTreeMap::new();
    for Judged { name, diagnosis, .. } in crate::judged() {
        let verdict = diagnosis.report().verdict;
        let ranks: Vec<String> =
            verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.to_string())).collect();
        let place = verdict.culprits.iter().find_map(|c| c.place.as_ref().and_then(|p| p.function.clone()));
        let row = format!(
            "{:<28} {:<6} rank {:<8} {}",
            verdict.cause,
            verdict.confidence.name(),
            ranks.join(","),
            place.unwrap_or_default()
        );
        table.insert(name.clone(), row.trim_end().to_owned());
    }
    let table: Vec<String> = table.iter().map(|(name, row)| format!("{name:<28} {row}")).collect();
    insta::assert_snapshot!(table.join("\n"));
}

/// Of a job that was killed as a whole only the rings are left.
#[test]
fn rings_tell_what_each_rank_was_killed_in() {
    let evidence = crate::root().join("cases/live-sigkill/evidence");
    let report = diagnose(&[evidence], false).unwrap().report();
    let told: Vec<&str> =
        report.findings.iter().flat_map(|f| f.evidence.iter().map(|e| e.text.as_str())).collect();
    for (rank, expected) in [
        (0, "all_reduce #81 of communicator "),
        (1, "all_reduce #81 of communicator "),
        (2, "all_reduce #81 of communicator "),
        (3, "nothing in flight; last was all_reduce #80 of "),
    ] {
        let expected = format!("rank {rank}: {expected}");
        assert_eq!(told.iter().filter(|text| text.starts_with(&expected)).count(), 1, "{told:#?}");
    }
}

/// The thread that a case is written from, `owner/repository#number`.
fn thread(case: &std::path::Path) -> Option<String> {
    let text = std::fs::read_to_string(case.join("case.toml")).ok()?;
    let origin = text.lines().find(|line| line.starts_with("origin"))?;
    let words = origin.split(|c: char| c.is_whitespace() || matches!(c, '"' | '(' | ')' | ',' | ';'));
    let mut threads = words.filter(|word| {
        word.split_once('#').is_some_and(|(repository, number)| {
            repository.contains('/') && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
        })
    });
    threads.next().map(str::to_ascii_lowercase)
}

/// A round counts as unseen only where its threads are not those of the cases that rules are written with.
#[test]
fn threads_of_cases_are_not_unseen() {
    /// Those of rounds 83 and later are not counted in docs/unseen.md; a new one must not be either.
    const KNOWN: [&str; 7] = [
        "round-32/nccl-2013",
        "round-32/vllm-5222",
        "round-83/ms-swift-9443",
        "round-83/nccl-905",
        "round-83/pytorch-150916",
        "round-84/bert-roce-4",
        "round-84/ib-only-a07",
    ];
    let below = |folder: std::path::PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let root = crate::root();
    let own: std::collections::BTreeSet<String> =
        below(root.join("cases")).iter().filter_map(|case| thread(case)).collect();
    assert!(own.len() > 20, "{} threads", own.len());
    let name = |path: &std::path::Path| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut again = Vec::new();
    for round in below(root.join("unseen")).iter().filter(|path| name(path).starts_with("round-")) {
        for case in below(round.clone()) {
            if thread(&case).is_some_and(|thread| own.contains(&thread)) {
                again.push(format!("{}/{}", name(round), name(&case)));
            }
        }
    }
    again.sort();
    assert_eq!(again, KNOWN);
}
