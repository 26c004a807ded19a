//! Looks at folders as `ringleader lint` does, without the command: prints findings, and how long each folder took.
//!
//! `cargo run --release -p ringleader-lint --example scan -- [--low] FOLDER...`; tests are left out.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that reads folders and prints"
)]

use std::path::Path;

use ringleader_lint::{Confidence, LintOptions, SourceFile, lint};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Folders that hold no working code.
const LEFT_OUT: &[&str] = &["tests", "test", "testing", ".git"];

fn walk(at: &Path, root: &Path, sources: &mut Vec<SourceFile>) {
    for entry in std::fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if !LEFT_OUT.contains(&name.as_str()) {
                walk(&path, root, sources);
            }
        } else if !name.starts_with("test_")
            && !name.ends_with("_test.py")
            && let Ok(text) = std::fs::read_to_string(&path)
        {
            let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            sources.push(SourceFile { path, text });
        }
    }
}

fn main() {
    let is_low = std::env::args().any(|argument| argument == "--low");
    let least = if is_low { Confidence::Low } else { Confidence::Medium };
    let options = LintOptions { least, ..LintOptions::default() };
    for folder in std::env::args().skip(1).filter(|argument| !argument.starts_with("--")) {
        let mut sources = Vec::new();
        walk(Path::new(&folder), Path::new(&folder), &mut sources);
        let n_bytes: usize = sources.iter().map(|source| source.text.len()).sum();
        let start = std::time::Instant::now();
        let report = lint(&sources, &options);
        let seconds = start.elapsed().as_secs_f64();
        for finding in &report.findings {
            let place = &finding.place;
            let (path, line, rule) = (&place.path, place.line, finding.rule);
            println!("{folder}\t{rule}\t{path}:{line}\t{}\t{}", finding.confidence, finding.title);
        }
        let (n_files, n_findings) = (report.n_files, report.findings.len());
        eprintln!("{folder}: {n_files} files, {n_bytes} bytes, {seconds:.2} s, {n_findings} findings");
    }
}
