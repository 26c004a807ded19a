//! `cargo xtask dist`: what is given away, made on one Linux machine for both architectures and both C libraries.
//!
//! Compilers, zig's linker and packagers come from `tools/dist-tools.sh`, which installs nothing on the machine. Times and
//! owners in archives are those of the commit and of root, so that two runs give the same bytes.

mod archive;
mod bill;
mod image;
mod packages;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) const USAGE: &str = "usage: cargo xtask dist [--tools DIR] [--out DIR] [--target-dir DIR] STEP…
steps, in this order:
  extras            completions, manual pages, licences, bill of materials
  build=TARGET      program, and plugin where the target is full
  archive=TARGET    .tar.gz
  deb=TARGET rpm=TARGET
  wheel=TARGET      full targets alone
  sdist
  image=TARGET      OCI image, static targets alone
  sums              SHA256SUMS of all
  audit=TARGET      which glibc the files of a full target need
  all               all of them for all targets
targets: full-x86_64 full-aarch64 static-x86_64 static-aarch64";

/// Oldest glibc that full builds run on.
const GLIBC: &str = "2.28";

/// One build.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// As the steps name it.
    name: &'static str,
    /// As Rust names it.
    triple: &'static str,
    /// As Debian names the machine.
    deb: &'static str,
    /// As RPM names the machine.
    rpm: &'static str,
    /// As OCI names the machine.
    oci: &'static str,
    is_static: bool,
}

const TARGETS: [Target; 4] = [
    Target {
        name: "full-x86_64",
        triple: "x86_64-unknown-linux-gnu",
        deb: "amd64",
        rpm: "x86_64",
        oci: "amd64",
        is_static: false,
    },
    Target {
        name: "full-aarch64",
        triple: "aarch64-unknown-linux-gnu",
        deb: "arm64",
        rpm: "aarch64",
        oci: "arm64",
        is_static: false,
    },
    Target {
        name: "static-x86_64",
        triple: "x86_64-unknown-linux-musl",
        deb: "amd64",
        rpm: "x86_64",
        oci: "amd64",
        is_static: true,
    },
    Target {
        name: "static-aarch64",
        triple: "aarch64-unknown-linux-musl",
        deb: "arm64",
        rpm: "aarch64",
        oci: "arm64",
        is_static: true,
    },
];

/// Where things are.
pub(crate) struct Places {
    root: PathBuf,
    tools: PathBuf,
    out: PathBuf,
    target_dir: PathBuf,
    /// Seconds since 1970 of the commit.
    time: u64,
    commit: String,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Places {
    /// Folder of what `build` made.
    fn built(&self, target: Target) -> PathBuf {
        self.target_dir.join(target.triple).join("release")
    }

    fn program(&self, target: Target) -> Result<PathBuf> {
        let path = self.built(target).join("ringleader");
        ensure!(path.is_file(), "{} is not built: cargo xtask dist build={}", path.display(), target.name);
        Ok(path)
    }

    /// The plugin, where the target has one.
    fn plugin(&self, target: Target) -> Result<Option<PathBuf>> {
        let path = self.built(target).join("libringleader_nccl.so");
        ensure!(
            target.is_static || path.is_file(),
            "{} is not built: cargo xtask dist build={}",
            path.display(),
            target.name
        );
        Ok((!target.is_static).then_some(path))
    }

    fn extras(&self) -> PathBuf {
        self.out.join("extras")
    }

    /// A program of the tools' virtual environment, with the compilers first on the path.
    fn tool(&self, name: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(self.tools.join("venv/bin").join(name.as_ref()));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.tools.join("bin"), self.tools.join("venv/bin")];
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path))).unwrap_or(path);
        command
            .env("PATH", path)
            .env("RUSTC", self.tools.join("bin/rustc"))
            .env("CARGO", self.tools.join("bin/cargo"))
            .env("CARGO_TARGET_DIR", &self.target_dir)
            .env("RINGLEADER_COMMIT", &self.commit)
            .env("SOURCE_DATE_EPOCH", self.time.to_string())
            // `cargo xtask` sets these for itself.
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTFLAGS")
            .current_dir(&self.root);
        command
    }
}

pub(crate) fn run(root: &Path, mut args: impl Iterator<Item = String>) -> Result<()> {
    let mut tools = root.join("target/dist-tools");
    let mut out = root.join("target/dist");
    let mut target_dir = root.join("target/dist-build");
    let mut steps = Vec::new();
    while let Some(arg) = args.next() {
        let mut value = || args.next().map(PathBuf::from).context(USAGE);
        match arg.as_str() {
            "--tools" => tools = value()?,
            "--out" => out = value()?,
            "--target-dir" => target_dir = value()?,
            step => steps.push(step.to_owned()),
        }
    }
    ensure!(!steps.is_empty(), USAGE);
    fs::create_dir_all(&out)?;
    let git = |args: &[&str]| -> Result<String> {
        let output = Command::new("git").args(args).current_dir(root).output().context("git")?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let places = Places {
        tools,
        out: out.canonicalize()?,
        target_dir,
        time: git(&["log", "-1", "--format=%ct"])?.parse().unwrap_or(0),
        commit: git(&["rev-parse", "--short", "HEAD"])?,
        root: root.to_owned(),
    };
    if steps == ["all"] {
        let of = |what: &str, is_static: Option<bool>| {
            let targets =
                TARGETS.iter().filter(move |target| is_static.is_none_or(|one| one == target.is_static));
            targets.map(|target| format!("{what}={}", target.name)).collect::<Vec<_>>()
        };
        steps = vec!["extras".to_owned()];
        for (what, is_static) in [
            ("build", None),
            ("audit", Some(false)),
            ("archive", None),
            ("deb", Some(false)),
            ("rpm", Some(false)),
            ("wheel", Some(false)),
            ("image", Some(true)),
        ] {
            steps.extend(of(what, is_static));
        }
        steps.extend(["sdist".to_owned(), "sums".to_owned()]);
    }
    for text in &steps {
        let started = std::time::Instant::now();
        let made = step(&places, text).with_context(|| format!("step {text}"))?;
        for path in made {
            let size = fs::metadata(&path).map_or(0, |data| data.len());
            say(&format!(
                "{text}: {} ({:.1} MB, {:.1} s)",
                path.display(),
                size as f64 / 1e6,
                started.elapsed().as_secs_f64()
            ));
        }
    }
    Ok(())
}

pub(crate) fn say(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn step(places: &Places, text: &str) -> Result<Vec<PathBuf>> {
    let (name, target) = text.split_once('=').unwrap_or((text, ""));
    let target = || {
        let found = TARGETS.into_iter().find(|one| one.name == target);
        found.with_context(|| format!("no target `{target}`\n{USAGE}"))
    };
    let full = || {
        let target = target()?;
        ensure!(!target.is_static, "{} has no plugin; take a full target", target.name);
        Ok(target)
    };
    match name {
        "extras" => bill::extras(places),
        "build" => build(places, target()?),
        "archive" => archive::make(places, target()?).map(|path| vec![path]),
        "deb" | "rpm" => packages::make(places, target()?, name).map(|path| vec![path]),
        "wheel" => packages::wheel(places, full()?).map(|path| vec![path]),
        "sdist" => packages::sdist(places).map(|path| vec![path]),
        "image" => {
            let target = target()?;
            ensure!(target.is_static, "an image holds nothing but the program, so the program is static");
            image::make(places, target).map(|path| vec![path])
        }
        "sums" => archive::sums(places).map(|path| vec![path]),
        "audit" => audit(places, full()?).map(|()| Vec::new()),
        _ => bail!("no step `{name}`\n{USAGE}"),
    }
}

/// Runs it to its end.
fn done(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("start {}", command.get_program().display()))?;
    ensure!(status.success(), "{} ended with {status}", command.get_program().display());
    Ok(())
}

fn build(places: &Places, target: Target) -> Result<Vec<PathBuf>> {
    let mut command = places.tool("cargo-zigbuild");
    command.args(["zigbuild", "--release", "--locked", "-p", "ringleader"]);
    if target.is_static {
        // Debian has no standard library for musl: it is compiled from its source. rcrt1.o and its kin are zig's.
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-C link-self-contained=no").args([
            "-Z",
            "build-std=std,panic_unwind",
            "--target",
            target.triple,
        ]);
    } else {
        command.args(["-p", "ringleader-plugin", "--target", &format!("{}.{GLIBC}", target.triple)]);
    }
    done(&mut command)?;
    let program = places.program(target)?;
    let plugin = places.plugin(target)?;
    for path in [Some(&program), plugin.as_ref()].into_iter().flatten() {
        // zig brings an objcopy that knows every machine, and Rust's own strip does not.
        let bare = path.with_extension("bare");
        let stripped = places
            .tool("python")
            .args(["-m", "ziglang", "objcopy", "--strip-all"])
            .args([path, &bare])
            .status()
            .is_ok_and(|status| status.success());
        if stripped && fs::metadata(&bare).is_ok_and(|data| data.len() > 0) {
            fs::set_permissions(&bare, fs::metadata(path)?.permissions())?;
            fs::rename(&bare, path)?;
        }
    }
    Ok([Some(program), plugin].into_iter().flatten().collect())
}

/// The highest version of glibc's symbols that a file needs must not be above the promise, for the plugin as for the program:
/// what packs wheels looks at the program alone.
fn audit(places: &Places, target: Target) -> Result<()> {
    let limit = version(GLIBC).context("a version")?;
    for path in [Some(places.program(target)?), places.plugin(target)?].into_iter().flatten() {
        let output = Command::new("objdump").arg("-T").arg(&path).output();
        let output = match output {
            Ok(output) if output.status.success() => output,
            // The machine's own objdump may know its own machine alone.
            _ => places.tool("python").args(["-c", READ_VERSIONS]).arg(&path).output()?,
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = text.split("GLIBC_").skip(1).filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            version(rest.get(..end)?)
        });
        let highest = found.max().context("no version of a symbol was found")?;
        say(&format!("audit: {} needs glibc {}.{}", path.display(), highest.0, highest.1));
        ensure!(
            highest <= limit,
            "{} needs glibc {}.{}, above {GLIBC}",
            path.display(),
            highest.0,
            highest.1
        );
    }
    Ok(())
}

/// With pyelftools, which auditwheel brings.
const READ_VERSIONS: &str = "
import sys
from elftools.elf.elffile import ELFFile
f = ELFFile(open(sys.argv[1], 'rb'))
for _, names in f.get_section_by_name('.gnu.version_r').iter_versions():
    for one in names:
        print(one.name)
";

fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next().flatten().unwrap_or(0)))
}
