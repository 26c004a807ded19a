//! Where a report goes: standard output, or a file that appears whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// An open report.
pub(crate) struct Out {
    writer: BufWriter<Box<dyn Write>>,
    /// What is written, and what it is called when it is whole.
    file: Option<(PathBuf, PathBuf)>,
}

impl Out {
    /// Opens it.
    pub(crate) fn new(path: Option<&Path>) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self { writer: BufWriter::new(Box::new(io::stdout())), file: None });
        };
        // Node exporters and CI read what lies there at any moment.
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let new = path.with_file_name(format!(".{name}.new.{}", std::process::id()));
        let file =
            File::create(&new).map_err(|source| Failure::CannotWrite { path: path.to_owned(), source })?;
        Ok(Self { writer: BufWriter::new(Box::new(file)), file: Some((new, path.to_owned())) })
    }

    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.writer.write_all(text.as_bytes()).map_err(Failure::Write)
    }

    /// Hands on what has come so far.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(Failure::Write)
    }

    /// The report is whole.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush()?;
        if let Some((new, path)) = self.file.take() {
            std::fs::rename(&new, &path).map_err(|source| Failure::CannotWrite { path, source })?;
        }
        Ok(())
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        if let Some((new, _)) = &self.file {
            // A half of a report is worse than the one of yesterday.
            let _ = std::fs::remove_file(new);
        }
    }
}
