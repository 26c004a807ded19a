//! What a program or a library needs of the machine: shared libraries and the newest of glibc's symbols. What packs wheels looks at
//! the program alone; this looks at the plugin as well.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use goblin::elf::Elf;

use super::{Places, Target, say};

/// Major and minor version of glibc.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Glibc(pub(super) u32, pub(super) u32);

impl Glibc {
    /// From a symbol's version, such as `GLIBC_2.17` or `GLIBC_2.2.5`.
    fn of(version: &str) -> Option<Self> {
        let mut parts = version.strip_prefix("GLIBC_")?.split('.').map(str::parse);
        Some(Self(parts.next()?.ok()?, parts.next()?.ok()?))
    }
}

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Requirements of a file before it starts.
#[derive(Debug)]
struct Needs {
    /// Names of shared libraries, and the loader's.
    libraries: BTreeSet<String>,
    /// The newest version of a symbol of glibc's.
    glibc: Option<Glibc>,
}

impl Needs {
    fn of(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let elf = Elf::parse(&bytes).with_context(|| path.display().to_string())?;
        let mut glibc = None;
        for library in elf.verneed.iter().flatten() {
            for symbol in &library {
                glibc = glibc.max(elf.dynstrtab.get_at(symbol.vna_name).and_then(Glibc::of));
            }
        }
        let libraries = elf.libraries.iter().chain(&elf.interpreter).map(|&name| name.to_owned()).collect();
        Ok(Self { libraries, glibc })
    }

    /// Nothing but parts of glibc, no newer than `limit`. `also`: further libraries that are everywhere.
    fn keeps_to(&self, limit: Glibc, also: &[&str]) -> Result<()> {
        let strangers: Vec<&String> = self
            .libraries
            .iter()
            .filter(|name| {
                let name = name.rsplit('/').next().unwrap_or(name);
                let is_glibc =
                    ["libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "ld-linux-"]
                        .iter()
                        .any(|part| name.starts_with(part));
                !is_glibc && !also.contains(&name)
            })
            .collect();
        ensure!(strangers.is_empty(), "it needs {strangers:?}");
        let glibc = self.glibc.context("it names no version of glibc's symbols")?;
        ensure!(glibc <= limit, "it needs glibc {glibc}, above {limit}");
        Ok(())
    }
}

/// Full targets: the program and the plugin keep the promised versions of glibc and need no other library. Static targets need
/// nothing.
pub(super) fn run(places: &Places, target: Target) -> Result<()> {
    let program = places.program(target)?;
    if target.is_static {
        let needs = Needs::of(&program)?;
        ensure!(needs.libraries.is_empty(), "{} needs {:?}", program.display(), needs.libraries);
        say(&format!("audit: {} is static", program.display()));
        return Ok(());
    }
    let plugin = places.plugin(target)?.map(|path| (path, super::PLUGIN_GLIBC));
    for (path, limit) in [Some((program, super::GLIBC)), plugin].into_iter().flatten() {
        let needs = Needs::of(&path)?;
        needs.keeps_to(limit, &[]).with_context(|| path.display().to_string())?;
        let libraries: Vec<&str> = needs.libraries.iter().map(String::as_str).collect();
        let glibc = needs.glibc.map(|glibc| glibc.to_string()).unwrap_or_default();
        say(&format!("audit: {} needs glibc {glibc}: {}", path.display(), libraries.join(", ")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Nothing that the program or the plugin calls is younger than glibc 2.34: builds on any later machine run there. A build by
    /// `dist` runs on older ones, and `audit` holds it to that.
    const NATIVE: Glibc = Glibc(2, 34);

    /// This test, and beside it what the same `cargo test` or `cargo build` made.
    fn built() -> Vec<PathBuf> {
        let own = std::env::current_exe().expect("this test's file");
        let deps = own.parent().expect("deps");
        let folder = deps.parent().expect("debug");
        let there = [
            deps.join("libringleader_nccl.so"),
            folder.join("libringleader_nccl.so"),
            folder.join("ringleader"),
        ];
        [own].into_iter().chain(there.into_iter().filter(|path| path.is_file())).collect()
    }

    #[test]
    fn what_is_built_here_needs_nothing_but_an_old_glibc() {
        for path in built() {
            let needs = Needs::of(&path).expect("an ELF file");
            // A compiler's own runtime, which Rust links where it does not link it statically.
            let kept = needs.keeps_to(NATIVE, &["libgcc_s.so.1"]);
            assert!(kept.is_ok(), "{}: {:#} {needs:?}", path.display(), kept.expect_err("checked"));
        }
    }

    #[test]
    fn an_audit_refuses_what_is_too_new_and_what_is_not_everywhere() {
        let needs = |libraries: &[&str], glibc| Needs {
            libraries: libraries.iter().map(|&name| name.to_owned()).collect(),
            glibc,
        };
        let usual = ["libc.so.6", "libdl.so.2", "/lib64/ld-linux-x86-64.so.2"];
        assert!(needs(&usual, Glibc::of("GLIBC_2.2.5")).keeps_to(super::super::PLUGIN_GLIBC, &[]).is_ok());
        assert!(needs(&usual, Glibc::of("GLIBC_2.28")).keeps_to(super::super::PLUGIN_GLIBC, &[]).is_err());
        assert!(needs(&usual, None).keeps_to(NATIVE, &[]).is_err());
        assert!(needs(&["libc.so.6", "libssl.so.3"], Glibc::of("GLIBC_2.17")).keeps_to(NATIVE, &[]).is_err());
        assert!(Glibc::of("GLIBC_2.9") < Glibc::of("GLIBC_2.17"));
        assert_eq!(Glibc::of("GCC_3.0"), None);
    }
}
