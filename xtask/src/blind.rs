//! Estimates the accuracy on unseen cases: `cargo xtask blind [--rows] [--rest DIR]… DIR…`.
//!
//! Each set is judged by a process of its own, with weights of likeness that were learnt without it; with `--rows` also
//! without the rows of the tables that are younger than the set. Rules and readers stay as they are, so the numbers are
//! better than blind ones. Cases below `--rest` teach and are not judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::Context as _;
use ringleader_knowledge::{likeness, withheld};
use ringleader_model::Finding;
use ringleader_rules::{GoodSign, good_signs, resembles, weighed};
use serde_json::{Value, json};

use crate::likeness::Corpus;

/// Tables whose rows `--rows` withholds.
const TABLES: [&str; 2] = ["crates/knowledge/data/messages", "crates/knowledge/data/signs.toml"];
/// Processes at a time.
const AT_ONCE: usize = 2;

/// Options of the command line.
#[derive(Default)]
struct Wish {
    dirs: Vec<String>,
    rest: Vec<String>,
    withholds: bool,
    is_verbose: bool,
    /// The set that this process judges.
    one: Option<usize>,
}

impl Wish {
    fn of(args: &[String]) -> anyhow::Result<Self> {
        let mut wish = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().cloned().with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--rows" => wish.withholds = true,
                "--verbose" => wish.is_verbose = true,
                "--rest" => wish.rest.push(value()?),
                "--one" => wish.one = Some(value()?.parse()?),
                _ => wish.dirs.push(arg.clone()),
            }
        }
        Ok(wish)
    }
}

/// Judges every set and prints the tables, or judges one and prints a line a case.
pub(crate) fn run(root: &Path, args: &[String]) -> anyhow::Result<()> {
    let wish = Wish::of(args)?;
    match wish.one {
        Some(set) => judge(root, &wish, set),
        None => collect(&wish, args),
    }
}

#[expect(clippy::print_stdout, reason = "its output")]
fn judge(root: &Path, wish: &Wish, set: usize) -> anyhow::Result<()> {
    let dir = wish.dirs.get(set).context("no such set")?;
    let mut corpus = Corpus::default();
    for (number, dir) in wish.dirs.iter().chain(&wish.rest).enumerate() {
        corpus.add_cases(Path::new(dir), number)?;
    }
    let hidden = if wish.withholds { younger(root, dir)? } else { BTreeSet::new() };
    corpus.add_rows(usize::MAX, &hidden);
    let table = corpus.table_without(set);
    likeness::replace(&table).map_err(anyhow::Error::msg)?;
    withheld::withhold(hidden).map_err(|_| anyhow::anyhow!("rows are withheld already"))?;
    let mut folders: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
    folders.sort();
    for folder in folders {
        let Ok(truth) = fs::read_to_string(folder.join("case.toml")) else { continue };
        let truth: toml::Table = truth.parse().with_context(|| format!("{}", folder.display()))?;
        println!("{}", row(dir, &folder, &truth)?);
    }
    Ok(())
}

/// Ids of rows that did not exist when the set was added.
fn younger(root: &Path, dir: &str) -> anyhow::Result<BTreeSet<String>> {
    let git = |args: &[&str]| -> anyhow::Result<String> {
        let output = Command::new("git").arg("-C").arg(root).args(args).stderr(Stdio::inherit()).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let path = fs::canonicalize(dir)?;
    let path = path.to_string_lossy();
    let added = git(&["log", "--diff-filter=A", "--format=%H", "--", &path])?;
    let added = added.lines().next().with_context(|| format!("{dir} is not in the history"))?.to_owned();
    let ids = |commit: &str| -> anyhow::Result<BTreeSet<String>> {
        let found = git(&[&["grep", "-h", "-o", "^id = \"[^\"]*\"", commit, "--"], &TABLES[..]].concat())?;
        let id = |line: &str| line.split('"').nth(1).map(str::to_owned);
        Ok(found.lines().filter_map(id).collect())
    };
    let then = ids(&added)?;
    Ok(ids("HEAD")?.into_iter().filter(|id| !then.contains(id)).collect())
}

/// The verdict on a case, beside its truth.
fn row(set: &str, folder: &Path, truth: &toml::Table) -> anyhow::Result<Value> {
    let text = |key: &str| truth.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned();
    let list = |key: &str| truth.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let mut right = vec![text("cause")];
    right.extend(list("also_right").iter().filter_map(|v| v.as_str().map(str::to_owned)));
    let ranks_of = |values: &[toml::Value]| -> BTreeSet<i64> {
        values.iter().filter_map(toml::Value::as_integer).collect()
    };
    let mut culprits = vec![ranks_of(&list("culprit_ranks"))];
    culprits.extend(list("culprit_also").iter().filter_map(|v| Some(ranks_of(v.as_array()?))));
    let told =
        ringleader::diagnose(&[folder.join("evidence")], false).map_err(|e| anyhow::anyhow!(e.message()))?;
    let verdict = &told.verdict;
    let cause = verdict.cause.id();
    let named: BTreeSet<i64> =
        verdict.culprits.iter().filter_map(|c| c.rank).map(|rank| i64::from(rank.0)).collect();
    let has_culprit = culprits.first().is_some_and(|ranks| !ranks.is_empty());
    let place = told.picture.candidates.iter().position(|c| right.iter().any(|id| id == c.cause.id()));
    let signs: Vec<&str> = good_signs(&told.case).into_iter().map(GoodSign::name).collect();
    let ranked = resembles(&told.case);
    let health = ranked.iter().find(|(cause, _)| cause.id() == "none").map(|(_, score)| *score);
    let alike: Vec<(&str, f32)> = ranked
        .iter()
        .map(|(cause, score)| (cause.id(), *score))
        .filter(|(id, _)| !matches!(*id, "none" | "undecided"))
        .collect();
    let findings: Vec<Value> = verdict.findings.iter().map(finding).collect();
    let weighed: Vec<Value> = weighed(&told.case)
        .iter()
        .map(|of| {
            let features: Vec<(&str, f32)> =
                of.features.iter().map(|(feature, size)| (feature.name(), *size)).collect();
            json!({"cause": of.cause.id(), "probability": of.probability(), "features": features})
        })
        .collect();
    Ok(json!({
        "set": set,
        "case": folder.file_name().map(|n| n.to_string_lossy()),
        "want": text("cause"),
        "got": cause,
        "right": right.iter().any(|id| id == cause),
        "confidence": verdict.confidence.to_string(),
        "rule": verdict.findings.first().map_or("", |f| f.rule),
        "named": named,
        "culprit": has_culprit.then(|| culprits.contains(&named)),
        "place": place,
        "candidates": told.picture.candidates.iter().map(|c| c.cause.id()).collect::<Vec<_>>(),
        "signs": signs,
        "health": health,
        "alike": alike,
        "findings": findings,
        "weighed": weighed,
        "also": right,
        "summary": &*verdict.summary,
    }))
}

/// A finding of a rule, without its words.
fn finding(finding: &Finding) -> Value {
    json!({
        "cause": finding.cause.id(),
        "rule": finding.rule,
        "confidence": finding.confidence.to_string(),
        "weight": format!("{:?}", finding.weight),
        "severity": format!("{:?}", finding.severity),
        "kinds": finding.evidence.iter().map(|e| format!("{:?}", e.kind)).collect::<BTreeSet<_>>(),
        "has_rank": finding.culprits.iter().any(|c| c.rank.is_some()),
    })
}

fn collect(wish: &Wish, args: &[String]) -> anyhow::Result<()> {
    let program = std::env::current_exe()?;
    let mut rows: Vec<Value> = Vec::new();
    let sets: Vec<usize> = (0..wish.dirs.len()).collect();
    for some in sets.chunks(AT_ONCE) {
        let start = |set: &usize| {
            let mut command = Command::new(&program);
            command.arg("blind").args(["--one", &set.to_string()]).args(args).stdout(Stdio::piped()).spawn()
        };
        let children = some.iter().map(start).collect::<io::Result<Vec<_>>>()?;
        for child in children {
            let output = child.wait_with_output()?;
            anyhow::ensure!(output.status.success(), "a set could not be judged");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                rows.push(serde_json::from_str(line)?);
            }
        }
    }
    print(&rows, wish.is_verbose);
    Ok(())
}

fn text<'v>(row: &'v Value, key: &str) -> &'v str {
    row[key].as_str().unwrap_or_default()
}

fn is_right(row: &Value) -> bool {
    row["right"] == true
}

fn is_fault(row: &Value) -> bool {
    text(row, "want") != "none"
}

/// `12 of 20 (60 %)`.
fn share(part: usize, all: usize) -> String {
    let pct = (part * 100 + all / 2).checked_div(all).unwrap_or_default();
    format!("{part} of {all} ({pct} %)")
}

#[expect(clippy::print_stdout, reason = "its output")]
fn print(rows: &[Value], is_verbose: bool) {
    let mut out = String::new();
    if is_verbose {
        for row in rows {
            let _ = writeln!(out, "{row}");
        }
    }
    by_set(&mut out, rows);
    by_confidence(&mut out, rows);
    by_sign(&mut out, rows);
    let open: Vec<&Value> = rows.iter().filter(|r| is_fault(r) && text(r, "got") == "undecided").collect();
    let among = |n: u64| open.iter().filter(|r| r["place"].as_u64().is_some_and(|place| place < n)).count();
    let _ = writeln!(
        out,
        "\nundecided on a fault: the true cause is the first candidate in {}, among three in {}",
        share(among(1), open.len()),
        share(among(3), open.len())
    );
    print!("{out}");
}

fn by_set(out: &mut String, rows: &[Value]) {
    let mut sets: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in rows {
        sets.entry(text(row, "set")).or_default().push(row);
    }
    sets.insert("all", rows.iter().collect());
    let _ = writeln!(out, "| set | right | culprit | wrong none | accused |\n|---|---|---|---|---|");
    for (set, rows) in sets {
        let count = |is: &dyn Fn(&Value) -> bool| rows.iter().filter(|r| is(r)).count();
        let right = share(count(&is_right), rows.len());
        let culprit = share(count(&|r| r["culprit"] == true), count(&|r| !r["culprit"].is_null()));
        let wrong_none = count(&|r| !is_right(r) && text(r, "got") == "none");
        let accused = count(&|r| !is_fault(r) && !is_right(r) && text(r, "got") != "undecided");
        let _ = writeln!(out, "| {set} | {right} | {culprit} | {wrong_none} | {accused} |");
    }
}

fn by_confidence(out: &mut String, rows: &[Value]) {
    let mut groups: BTreeMap<(String, String), Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let got = text(row, "got");
        let level = if matches!(got, "none" | "undecided") { got } else { text(row, "confidence") };
        groups.entry((level.to_owned(), String::new())).or_default().push(row);
        if level != got {
            groups.entry((level.to_owned(), text(row, "rule").to_owned())).or_default().push(row);
        }
    }
    let _ = writeln!(out, "\n| confidence | rule | cause right | and culprit |\n|---|---|---|---|");
    for ((level, rule), rows) in groups {
        let right = rows.iter().filter(|r| is_right(r)).count();
        let both = rows.iter().filter(|r| is_right(r) && r["culprit"] != false).count();
        let _ = writeln!(
            out,
            "| {level} | {rule} | {} | {} |",
            share(right, rows.len()),
            share(both, rows.len())
        );
    }
}

/// Signs of health behind clean bills, and how often the bill was true.
fn by_sign(out: &mut String, rows: &[Value]) {
    let mut groups: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for row in rows {
        let signs: Vec<&str> =
            row["signs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let name = if signs.is_empty() { "nothing".to_owned() } else { signs.join(", ") };
        groups.entry(name).or_default().push(row);
    }
    let _ = writeln!(
        out,
        "\n| signs of health | healthy: none | healthy: undecided | faults: none | faults |\n|---|---|---|---|---|"
    );
    for (signs, rows) in groups {
        let count = |is_faulty: bool, got: &str| {
            rows.iter()
                .filter(|r| is_fault(r) == is_faulty && (got.is_empty() || text(r, "got") == got))
                .count()
        };
        let _ = writeln!(
            out,
            "| {signs} | {} | {} | {} | {} |",
            count(false, "none"),
            count(false, "undecided"),
            count(true, "none"),
            count(true, "")
        );
    }
}
