//! Tasks of this repository: `cargo xtask gen` regenerates generated files, `cargo xtask dist` makes what is given away,
//! `cargo xtask site` makes the site,
//! `cargo xtask likeness` learns the weights of words, `cargo xtask blind` judges cases without what was learnt from them,
//! `cargo xtask weighing` learns how much what is known of a candidate cause counts.

mod blind;
mod dist;
mod likeness;
mod site;
mod weighing;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ringleader_report::{Detail, TextStyle, text};

fn main() -> ExitCode {
    // The program itself, for the command lines of the site. By the environment, since `run` starts itself again.
    if std::env::var_os(site::AS_PROGRAM).is_some() {
        return ringleader::run(std::env::args_os());
    }
    let mut args = std::env::args().skip(1);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let root = root.canonicalize().unwrap_or(root);
    let done = match args.next().as_deref() {
        Some("gen") => generate().map_err(anyhow::Error::from),
        Some("blind") => blind::run(&root, &args.collect::<Vec<_>>()),
        Some("dist") => dist::run(&root, args),
        Some("likeness") => likeness::run(&args.collect::<Vec<_>>()).map_err(anyhow::Error::from),
        Some("weighing") => weighing::run(&args.collect::<Vec<_>>()),
        Some("site") => site::run(&root, args),
        _ => Err(anyhow::anyhow!(
            "usage: cargo xtask gen | dist … | site [--run | --run-some] [DIR] | likeness [--check] DIR… | blind [--rows] DIR… | weighing ROWS"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Writes every generated file. Tests of the face fail if this changes anything.
fn generate() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::write(root.join("docs/report-v1.schema.json"), ringleader_report::json::schema())?;
    std::fs::write(root.join("docs/trace-v1.schema.json"), ringleader_report::trace::schema())?;
    std::fs::write(
        root.join("docs/trace-comparison-v1.schema.json"),
        ringleader_report::trace::compare::schema(),
    )?;
    std::fs::write(root.join("docs/explain-v1.schema.json"), ringleader::explain::answer::schema())?;
    std::fs::write(root.join("docs/check-v1.schema.json"), ringleader::check::schema::check())?;
    std::fs::write(root.join("docs/fleet-v1.schema.json"), ringleader::check::schema::fleet())?;
    std::fs::write(root.join("docs/env-v1.schema.json"), ringleader::env::answer::schema())?;
    std::fs::write(root.join("docs/silent-v1.schema.json"), ringleader::check::schema::silent())?;
    std::fs::write(root.join("docs/bench-v1.schema.json"), ringleader::probe_schema::bench())?;
    std::fs::write(root.join("docs/verify-v1.schema.json"), ringleader::probe_schema::verify())?;
    let python = root.join("python/ringleader");
    if python.is_dir() {
        std::fs::write(python.join("_exports.py"), ringleader::env::python_table())?;
    }
    let readme = std::fs::read_to_string(root.join("README.md"))?;
    std::fs::write(root.join("README.md"), with_output(&root, &readme)?)
}

/// The README with the output of its example command between the two marks.
fn with_output(root: &Path, readme: &str) -> io::Result<String> {
    const START: &str = "<!-- output -->\n";
    const END: &str = "<!-- /output -->";
    let marks = || io::Error::other("README.md lacks its output marks");
    let (before, rest) = readme.split_once(START).ok_or_else(marks)?;
    let (_, after) = rest.split_once(END).ok_or_else(marks)?;
    let report =
        ringleader::report(root.join("cases/skipped-allreduce/evidence")).map_err(io::Error::other)?;
    let look = TextStyle { width: 80, color: false, detail: Detail::Usual };
    let shown = text::render(&report, &look);
    Ok(format!("{before}{START}```text\n{shown}```\n{END}{after}"))
}
