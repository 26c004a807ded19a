//! Archives and checksums.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

use super::{Places, Target, VERSION};

/// Files and their places, in the order of their names.
pub(super) struct Tree<W: Write> {
    tar: tar::Builder<W>,
    time: u64,
}

impl<W: Write> Tree<W> {
    pub(super) fn new(out: W, time: u64) -> Self {
        let mut tar = tar::Builder::new(out);
        tar.mode(tar::HeaderMode::Deterministic);
        Self { tar, time }
    }

    fn header(&self, mode: u32, size: u64, kind: tar::EntryType) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(size);
        header.set_entry_type(kind);
        header.set_mtime(self.time);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    pub(super) fn folder(&mut self, name: &str, mode: u32) -> Result<()> {
        let mut header = self.header(mode, 0, tar::EntryType::Directory);
        Ok(self.tar.append_data(&mut header, format!("{name}/"), io::empty())?)
    }

    pub(super) fn file(&mut self, path: &Path, name: &str, mode: u32) -> Result<()> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let mut header = self.header(mode, bytes.len() as u64, tar::EntryType::Regular);
        Ok(self.tar.append_data(&mut header, name, bytes.as_slice())?)
    }

    /// All files of a folder and below it.
    pub(super) fn all(&mut self, folder: &Path, name: &str) -> Result<()> {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        entries.sort();
        for path in entries {
            let name = format!("{name}/{}", path.file_name().unwrap_or_default().to_string_lossy());
            if path.is_dir() {
                self.all(&path, &name)?;
            } else {
                self.file(&path, &name, 0o644)?;
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<W> {
        Ok(self.tar.into_inner()?)
    }
}

/// The documents that go with the program everywhere.
pub(super) fn documents(places: &Places) -> [PathBuf; 3] {
    ["README.md", "LICENSE-MIT", "LICENSE-APACHE"].map(|name| places.root.join(name))
}

pub(super) fn make(places: &Places, target: Target) -> Result<PathBuf> {
    let name = format!("ringleader-{VERSION}-{}", target.triple);
    let path = places.out.join(format!("{name}.tar.gz"));
    let mut tree = Tree::new(GzEncoder::new(File::create(&path)?, Compression::new(6)), places.time);
    tree.file(&places.program(target)?, &format!("{name}/ringleader"), 0o755)?;
    if let Some(plugin) = places.plugin(target)? {
        tree.file(&plugin, &format!("{name}/libringleader_nccl.so"), 0o755)?;
    }
    for document in documents(places) {
        let file = document.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tree.file(&document, &format!("{name}/{file}"), 0o644)?;
    }
    tree.all(&places.extras(), &name)?;
    tree.all(&places.root.join("deploy"), &format!("{name}/deploy"))?;
    tree.finish()?.finish()?;
    Ok(path)
}

/// Checksums of every file that is given away.
pub(super) fn sums(places: &Places) -> Result<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(&places.out)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.is_file() && path.file_name().is_some_and(|name| name != "SHA256SUMS"));
    paths.sort();
    let mut text = String::new();
    for path in paths {
        let sum = sum(&fs::read(&path)?);
        let _ = writeln!(text, "{sum}  {}", path.file_name().unwrap_or_default().to_string_lossy());
    }
    let path = places.out.join("SHA256SUMS");
    fs::write(&path, text)?;
    Ok(path)
}

/// As `sha256sum` prints it.
pub(super) fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
