//! Baselines on disk: `--save-baseline`, `--against`.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use ringleader_check::NodeReport;
use ringleader_check::baseline::{Baseline, SCHEMA};

use super::output::Out;
use crate::failure::Failure;

/// Reads one.
pub(crate) fn load(path: Option<&Path>) -> Result<Option<Baseline>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = File::open(path).map_err(|source| Failure::NoSuchFile { path: path.to_owned(), source })?;
    let failed = |why: String| Failure::Baseline { path: path.to_owned(), why };
    let baseline: Baseline =
        serde_json::from_reader(BufReader::new(file)).map_err(|error| failed(error.to_string()))?;
    if baseline.schema != SCHEMA {
        return Err(failed(format!("its schema is '{}', not {SCHEMA}", baseline.schema)));
    }
    Ok(Some(baseline))
}

/// One in the making.
pub(crate) struct Saved {
    to: Option<(PathBuf, Baseline)>,
}

impl Saved {
    pub(crate) fn new(path: Option<&Path>) -> Self {
        Self { to: path.map(|path| (path.to_owned(), Baseline::new(env!("CARGO_PKG_VERSION")))) }
    }

    pub(crate) fn add(&mut self, report: &NodeReport) {
        if let Some((_, baseline)) = &mut self.to {
            baseline.add(report);
        }
    }

    /// Writes it, and says on standard error what is in it.
    pub(crate) fn write(self) -> Result<(), Failure> {
        let Some((path, baseline)) = self.to else { return Ok(()) };
        let mut out = Out::new(Some(&path))?;
        out.write(&(serde_json::to_string(&baseline).map_err(Failure::Json)? + "\n"))?;
        out.finish()?;
        let n_bad = baseline
            .nodes
            .values()
            .filter(|moment| {
                moment.verdicts.values().any(|verdict| *verdict == ringleader_check::CheckState::Fail)
            })
            .count();
        let bad = if n_bad == 0 {
            String::new()
        } else {
            format!("; a check failed on {n_bad} of them: take it again when all is well")
        };
        // Nobody is left to tell if standard error is gone.
        let _ = writeln!(
            std::io::stderr().lock(),
            "baseline of {} saved to {}{bad}",
            match baseline.nodes.len() {
                1 => "1 node".to_owned(),
                n => format!("{n} nodes"),
            },
            path.display()
        );
        Ok(())
    }
}
