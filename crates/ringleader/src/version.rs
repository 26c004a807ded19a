//! `ringleader version`: which build this is, what it can do, and which formats it reads and writes.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::command::{Subcommand, print};
use crate::exit::Code;
use crate::failure::Failure;
use crate::{config, plugin};

/// Print the version; with --verbose also the build, its features, and the formats
#[derive(Debug, Args)]
pub(crate) struct VersionArgs {
    /// Also the build, its features, formats, the plugin and the files of configuration
    #[arg(long, short, value_parser = FalseyValueParser::new())]
    verbose: bool,
}

impl Subcommand for VersionArgs {
    fn run(&self) -> Result<ExitCode, Failure> {
        let mut out = format!("ringleader {}\n", env!("CARGO_PKG_VERSION"));
        if self.verbose {
            for (name, value) in facts() {
                let _ = writeln!(out, "{name:<12}{value}");
            }
        }
        print(&out)?;
        Ok(Code::NothingFound.into())
    }
}

/// What this program was built from. `cargo xtask dist` names the commit.
fn facts() -> Vec<(&'static str, String)> {
    let libc = if cfg!(target_env = "musl") {
        "static (musl): loads no libraries; GPU facts come from nvidia-smi"
    } else if cfg!(target_env = "gnu") {
        "full (glibc)"
    } else {
        "full"
    };
    let features: Vec<&str> = FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect();
    let lacks: Vec<&str> = FEATURES.iter().filter(|(_, is_on)| !*is_on).map(|(name, _)| *name).collect();
    let listed = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let plugin = plugin::find();
    let files: Vec<String> = config::places().iter().map(|path| path.display().to_string()).collect();
    let mut out = vec![
        ("build", libc.to_owned()),
        ("target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)),
        ("profile", if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned()),
        ("features", listed(&features)),
        ("without", listed(&lacks)),
        ("formats", FORMATS.join(", ")),
        (
            "plugin",
            plugin.map_or_else(
                || format!("not found: {}", plugin::where_from()),
                |path| path.display().to_string(),
            ),
        ),
        ("config", if files.is_empty() { "no file".to_owned() } else { files.join(", ") }),
    ];
    if let Some(commit) = option_env!("RINGLEADER_COMMIT") {
        out.insert(0, ("commit", commit.to_owned()));
    }
    out
}

/// Optional parts, and whether they are in.
const FEATURES: [(&str, bool); 3] = [
    ("history", cfg!(feature = "history")),
    ("mcp", cfg!(feature = "mcp")),
    ("kube", cfg!(feature = "kube")),
];

/// Formats that are written and read, as `docs/` describes them.
const FORMATS: [&str; 22] = [
    "ringleader.report.v1",
    "ringleader.check.v1",
    "ringleader.fleet.v1",
    "ringleader.silent.v1",
    "ringleader.explain.v1",
    "ringleader.env.v1",
    "ringleader.trace-comparison.v1",
    "ringleader.trace.v1",
    "ringleader.lint.v1",
    "ringleader.bench.v1",
    "ringleader.verify.v1",
    "ringleader.verify-proof.v1",
    "ringleader.watch.v1",
    "ringleader.watch-state.v1",
    "ringleader.digest.v1",
    "ringleader.run.v1",
    "ringleader.history.v1",
    "ringleader.event.v1",
    "ringleader.node.v1",
    "ringleader.baseline.v1",
    "ringleader.bundle.v1",
    "ring 1.1",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Names of formats in the code of a folder, tests left out.
    fn named(folder: &Path, out: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("it is there").flatten() {
            let path = entry.path();
            if path.is_dir() && !path.ends_with("tests") && !path.ends_with("target") {
                named(&path, out);
            }
            if path.extension().is_none_or(|extension| extension != "rs") || path.ends_with("tests.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("it is text");
            let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
            let quoted = text.split('"').filter(|word| word.starts_with("ringleader."));
            out.extend(quoted.filter(|word| word.ends_with(|c: char| c.is_ascii_digit())).map(str::to_owned));
        }
    }

    #[test]
    fn every_format_is_listed() {
        let mut found = BTreeSet::new();
        for folder in
            std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).expect("it is there")
        {
            named(&folder.expect("it is there").path().join("src"), &mut found);
        }
        let listed: BTreeSet<String> = super::FORMATS
            .iter()
            .filter(|name| name.starts_with("ringleader."))
            .map(|s| (*s).to_owned())
            .collect();
        assert_eq!(found, listed, "left: in the code; right: FORMATS");
    }
}
