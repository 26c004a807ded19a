//! `cargo xtask site [--run | --run-some] [DIR]`: a site from the tables, the documentation of rules and checks, the commands' help and `docs/`. Plain
//! HTML that opens from a disk; its search needs no server.

mod lines;
mod markdown;
mod page;
mod topics;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use page::{Page, escape};

/// Set where this program is to be `ringleader`.
pub(crate) const AS_PROGRAM: &str = "XTASK_IS_RINGLEADER";

/// Kinds of pages, in the order of the front page.
const SECTIONS: [(&str, &str, &str); 16] = [
    ("docs", "Guides", "how to use it, and how well it does"),
    ("command", "Commands", "what each command does, with all options"),
    ("symptom", "Symptoms", "failures in plain words, and what to run next"),
    ("cause", "Causes", "what a verdict names"),
    ("check", "Checks of a node", "what `ringleader check` examines"),
    ("xid", "Xids", "faults that NVIDIA's driver prints to the kernel log"),
    ("message", "Messages", "what programs, frameworks and launchers print when a job fails"),
    ("nccl-message", "NCCL warnings", "what NCCL prints"),
    ("nccl-result", "NCCL results", "codes of NCCL's functions"),
    ("cuda-error", "CUDA errors", "codes of CUDA's functions"),
    (
        "status",
        "Statuses",
        "of cuBLAS, cuDNN, verbs, libfabric, UCX, MPI, Slurm, Kubernetes and others, and errno",
    ),
    ("variable", "Variables", "of NCCL, PyTorch and CUDA"),
    ("unread-variable", "Names that nothing reads", "and what is meant instead"),
    ("value-trap", "Values that are misread", "settings that do not mean what they say"),
    ("sxid", "SXids", "faults that NVSwitches print to the kernel log"),
    ("other", "More", "rules without a cause of their own, rates, bandwidth"),
];

const STYLE: &str = include_str!("../site/style.css");
const SEARCH: &str = include_str!("../site/search.js");

/// With `--run`, runs the command lines on the pages; with `--run-some`, one in [`lines::STEP`] of those that only ask `explain`.
pub(crate) fn run(root: &Path, mut args: impl Iterator<Item = String>) -> Result<()> {
    let mut first = args.next();
    let step = match first.as_deref() {
        Some("--run") => Some(1),
        Some("--run-some") => Some(lines::STEP),
        _ => None,
    };
    if step.is_some() {
        if let Some(done) = lines::apart() {
            return done;
        }
        first = args.next();
    }
    let out = first.map_or_else(|| root.join("target/site"), Into::into);
    let pages = write(root, &out)?;
    crate::dist::say(&format!("{} pages in {}", pages.len(), out.display()));
    let Some(step) = step else { return Ok(()) };
    let folder = std::env::temp_dir().join(format!("ringleader-site-{}", std::process::id()));
    let done = lines::run_all(&pages, root, &folder, step);
    fs::remove_dir_all(&folder)?;
    done
}

/// All pages, written below `out`.
pub(crate) fn write(root: &Path, out: &Path) -> Result<Vec<Page>> {
    let mut pages = topics::commands();
    pages.extend(topics::checks());
    pages.extend(topics::topics());
    pages.extend(topics::messages());
    let mut docs = markdown::documents(root)?;
    docs.append(&mut pages);
    let mut pages = docs;
    apart(&mut pages);
    // Names that pages point at, to their places.
    let places: BTreeMap<String, String> =
        pages.iter().rev().map(|page| (page.name.to_lowercase(), page.path())).collect();
    let names = Names { places };
    for (section, ..) in SECTIONS {
        fs::create_dir_all(out.join(section))?;
    }
    fs::write(out.join("style.css"), STYLE)?;
    fs::write(out.join("search.js"), SEARCH)?;
    fs::write(out.join("search-index.js"), index(&pages))?;
    for page in &pages {
        let path = out.join(page.path());
        fs::write(&path, page.html("../", &names)).with_context(|| path.display().to_string())?;
    }
    for (section, title, about) in SECTIONS {
        let own: Vec<&Page> = pages.iter().filter(|page| page.section == section).collect();
        fs::write(out.join(section).join("index.html"), list(section, title, about, &own, &names))?;
    }
    fs::write(out.join("index.html"), front(&pages, &names))?;
    // Pictures and schemas that the guides point at.
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|ending| ending != "md") {
            fs::copy(&path, out.join("docs").join(path.file_name().unwrap_or_default()))?;
        }
    }
    Ok(pages)
}

/// Where a name leads to.
pub(crate) struct Names {
    places: BTreeMap<String, String>,
}

impl Names {
    /// The page of this name, from the root of the site.
    fn of(&self, name: &str) -> Option<&str> {
        self.places.get(&name.to_lowercase()).map(String::as_str)
    }
}

/// No two pages at one place.
fn apart(pages: &mut [Page]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for page in pages {
        let n = seen.entry(page.path()).or_default();
        *n += 1;
        if *n > 1 {
            page.slug = format!("{}-{n}", page.slug);
        }
    }
}

/// The index that the browser searches: title, place, kind, the words of the text, and phrases that ask for it.
fn index(pages: &[Page]) -> String {
    let rows: Vec<serde_json::Value> = pages
        .iter()
        .map(|page| {
            let kind = SECTIONS.iter().find(|(section, ..)| *section == page.section).map_or("", |row| row.1);
            serde_json::json!([page.title, page.path(), kind, page.words(), page.asked])
        })
        .collect();
    format!("window.RINGLEADER_INDEX = {};\n", serde_json::Value::from(rows))
}

fn list(section: &str, title: &str, about: &str, pages: &[&Page], names: &Names) -> String {
    let mut body = format!(
        "<h1>{}</h1>\n<p>{} {}.</p>\n<ul class=\"list\">\n",
        escape(title),
        pages.len(),
        escape(about)
    );
    for page in pages {
        let _ = writeln!(body, "<li><a href=\"{}.html\">{}</a></li>", page.slug, escape(&page.title));
    }
    body.push_str("</ul>\n");
    let page = Page::new(section, "index", "", title, about, body);
    page.html("../", names)
}

fn front(pages: &[Page], names: &Names) -> String {
    let mut body = String::from(
        "<h1>ringleader</h1>\n<p>Finds the rank that stalls, breaks or poisons a multi-GPU training job, says why, and proves \
         it. Search for a number, a name or the text of an error: <em>Xid 79</em>, <em>unhandled system error</em>, \
         <em>NCCL_IB_TIMEOUT</em>.</p>\n<ul class=\"sections\">\n",
    );
    for (section, title, about) in SECTIONS {
        let n = pages.iter().filter(|page| page.section == section).count();
        let _ = writeln!(
            body,
            "<li><a href=\"{section}/index.html\">{}</a> <span>{n}</span><br>{}</li>",
            escape(title),
            markdown::inline(about)
        );
    }
    body.push_str("</ul>\n");
    Page::new("", "index", "", "ringleader", "Finds the rank that stalls a multi-GPU training job", body)
        .html("", names)
}
