//! The site as its readers meet it: links lead somewhere, commands are commands, and the search finds what people type.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use super::*;

struct Site {
    out: PathBuf,
    pages: Vec<Page>,
    _folder: tempfile::TempDir,
}

fn site() -> &'static Site {
    static SITE: LazyLock<Site> = LazyLock::new(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let pages = write(&root, folder.path()).expect("the site");
        Site { out: folder.path().to_owned(), pages, _folder: folder }
    });
    &SITE
}

fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(move |rest| rest.split(end).next())
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it is there").flatten() {
        if entry.path().is_dir() {
            files(&entry.path(), out);
        } else {
            out.push(entry.path());
        }
    }
}

fn cleaned(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

#[test]
fn every_link_leads_somewhere() {
    let site = site();
    let mut all = Vec::new();
    files(&site.out, &mut all);
    let known: BTreeSet<&PathBuf> = all.iter().collect();
    let mut n_links = 0;
    for path in all.iter().filter(|path| path.extension().is_some_and(|ending| ending == "html")) {
        let text = fs::read_to_string(path).expect("it was written");
        for link in between(&text, "href=\"", "\"").chain(between(&text, "src=\"", "\"")) {
            if link.contains("://") || link.starts_with('#') {
                continue;
            }
            let target =
                cleaned(&path.parent().expect("a folder").join(link.split('#').next().unwrap_or(link)));
            assert!(known.contains(&target), "{}: {link}", path.display());
            n_links += 1;
        }
    }
    assert!(n_links > 10_000, "{n_links} links");
}

/// Each command of ours on a page is one that the program accepts, and what is asked of `explain` is known.
#[test]
fn every_command_of_ours_is_accepted() {
    let (mut n_commands, mut seen) = (0, BTreeSet::new());
    // Lines of `docs/` run, in `tests/it.rs`.
    for page in site().pages.iter().filter(|page| page.section != "docs") {
        for block in between(&page.body, "<pre><code", "</code></pre>") {
            for line in block.split('>').nth(1).unwrap_or(block).lines() {
                let marks = [("&quot;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&#123;", "{"), ("&amp;", "&")];
                let line = marks.iter().fold(line.to_owned(), |line, (mark, c)| line.replace(mark, c));
                let line = line.trim().trim_start_matches("$ ");
                if !line.starts_with("ringleader ") || line.contains('…') {
                    continue;
                }
                if !seen.insert(line.to_owned()) {
                    continue;
                }
                accepted(line).unwrap_or_else(|why| panic!("{}: {line}: {why}", page.path()));
                n_commands += 1;
            }
        }
    }
    assert!(n_commands > 1_000, "{n_commands} commands");
}

/// Whether the program takes a line as a shell splits it.
fn accepted(line: &str) -> Result<(), String> {
    // What is not a part of the command; between quotes it is. `$!` and `<pid>` are processes that a shell here does not have.
    let mut line = line.replace("$!", "1").replace("<pid>", "1");
    if !line.contains('\'') {
        for end in [" # ", " | ", " > "] {
            line = line.split(end).next().unwrap_or_default().to_owned();
        }
    }
    // Most are plain words, for which no shell needs to start.
    let is_plain = line.chars().all(|c| c.is_ascii_alphanumeric() || " -_./:=,".contains(c));
    let text = if is_plain { line.split_whitespace().collect::<Vec<_>>().join("\0") } else { split(&line)? };
    let words: Vec<&str> = text.split_terminator('\0').collect();
    // Plain words after `explain` are its query, which needs no parser of options: there are thousands.
    let is_query = matches!(&words[..], ["ringleader", "explain", rest @ ..] if is_plain && rest.iter().all(|word| !word.starts_with('-')));
    if !is_query {
        parsed(&words)?;
    }
    // The program's own list of kinds takes what follows `--list`.
    if let ["ringleader", "explain", rest @ ..] = &words[..]
        && !rest.contains(&"--list")
    {
        // `NCCL_VARIABLE` stands for a name of the reader's.
        let is_asked = |word: &&&str| !word.starts_with('-') && **word != "NCCL_VARIABLE";
        let query = rest.iter().filter(is_asked).copied().collect::<Vec<_>>().join(" ");
        if !query.is_empty() && ringleader::explain::explain(&query).topics.is_empty() {
            return Err("nothing is known by that name".to_owned());
        }
    }
    Ok(())
}

/// Whether the command line takes these words.
fn parsed(words: &[&str]) -> Result<(), String> {
    // Words that stand for something are numbers where a number is wanted.
    let numbered = |word: &&str| {
        if matches!(*word, "PID" | "PIDS") { "1".to_owned() } else { (*word).to_owned() }
    };
    let error = ringleader::command().try_get_matches_from(words.iter().map(numbered)).err();
    match error {
        Some(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// The words of a line as a shell makes them, with a zero between them.
fn split(line: &str) -> Result<String, String> {
    let script = format!("set -f; set -- {line}\nfor word; do printf '%s\\0' \"$word\"; done");
    let output = Command::new("sh").arg("-c").arg(&script).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What people search for: the page that answers comes first. The ranking is the browser's own file, run by Node.js where it is.
#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn the_search_finds_what_people_type() {
    let Ok(node) = Command::new("node").arg("--version").output() else {
        println!("skipped: Node.js is not here");
        return;
    };
    assert!(node.status.success());
    let asked = [
        ("Xid 79", "xid/79.html"),
        ("79", "xid/79.html"),
        ("unhandled system error", "nccl-result/ncclsystemerror.html"),
        ("NCCL_IB_TIMEOUT", "variable/nccl_ib_timeout.html"),
        ("nccl_timeout", "unread-variable/nccl_timeout.html"),
        ("ringleader watch", "command/watch.html"),
        ("skipped collective", "cause/skipped-collective.html"),
        ("illegal memory access", "cause/illegal-memory-access.html"),
        ("shm-space", "check/shm-space.html"),
        ("my job hangs", "symptom/symptom-hang.html"),
        ("timeout", "symptom/symptom-timeout.html"),
        ("error 12", "status/ibv_wc_retry_exc_err.html"),
        ("port already in use", "symptom/symptom-port-taken.html"),
        ("hangs at init_process_group", "symptom/symptom-init-hang.html"),
        ("init_process_group is hanging", "symptom/symptom-init-hang.html"),
        ("loss spikes", "symptom/symptom-nan.html"),
        ("ucx -25", "status/ucs_err_connection_reset.html"),
        ("errno 98", "status/eaddrinuse.html"),
    ];
    let script = site().out.join("ask.js");
    let queries: Vec<&str> = asked.iter().map(|(query, _)| *query).collect();
    let text = format!(
        "globalThis.window = globalThis; require('./search-index.js'); const {{ search }} = require('./search.js');\n\
         for (const q of {}) console.log((search(window.RINGLEADER_INDEX, q)[0] || [,''])[1]);\n",
        serde_json::Value::from(queries)
    );
    fs::write(&script, text).expect("written");
    let output = Command::new("node").arg(&script).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    for ((query, want), found) in asked.iter().zip(&found) {
        assert!(found.starts_with(want), "{query}: {found} in place of {want}");
    }
    fs::remove_file(script).expect("removed");
}

#[test]
fn evidence_and_tables_stay_text() {
    for page in &site().pages {
        assert!(!page.body.contains("<script") && !page.body.contains("javascript:"), "{}", page.path());
    }
}
