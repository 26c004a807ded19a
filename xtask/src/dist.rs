//! `cargo xtask dist`: what is given away, made on one Linux machine for both architectures and both C libraries.
//!
//! Compilers, zig's linker and packagers come from `tools/dist-tools.sh`, which installs nothing on the machine. Times and
//! owners in archives are those of the commit and of root, so that two runs give the same bytes.

mod archive;
mod audit;
mod bill;
mod image;
mod packages;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use audit::Glibc;

pub(crate) const USAGE: &str = "usage: cargo xtask dist [--tools DIR] [--out DIR] [--target-dir DIR] STEP…
steps, in this order:
  extras            completions, manual pages, licences, bill of materials
  build=TARGET      program; plugin and wheel, too, where the target is full
  archive=TARGET    .tar.gz
  deb=TARGET rpm=TARGET
  sdist
  image=TARGET      OCI image, static targets alone
  sums              SHA256SUMS of all
  test=TARGET[:PACKAGE,…]  tests of the workspace or of packages, by QEMU for another machine; full targets alone
  audit=TARGET      which libraries and which glibc program and plugin need; auditwheel on the wheel
  all               all of them but test, for all targets
targets: full-x86_64 full-aarch64 static-x86_64 static-aarch64";

/// Oldest glibc that full builds run on.
const GLIBC: Glibc = Glibc(2, 28);

/// Oldest glibc that the plugin loads with. It is loaded into a process of others, in a container of theirs, so it asks for no more
/// than NCCL, whose wheels are for 2.17 (manylinux2014) and 2.18.
const PLUGIN_GLIBC: Glibc = Glibc(2, 17);

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
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
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
        tools: std::path::absolute(tools)?,
        out: out.canonicalize()?,
        target_dir: std::path::absolute(target_dir)?,
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
            ("audit", None),
            ("archive", None),
            ("deb", Some(false)),
            ("rpm", Some(false)),
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
    let (target, packages) = target.split_once(':').unwrap_or((target, ""));
    let target = || {
        let found = TARGETS.into_iter().find(|one| one.name == target);
        found.with_context(|| format!("no target `{target}`\n{USAGE}"))
    };
    match name {
        "extras" => bill::extras(places),
        "build" => build(places, target()?),
        "archive" => archive::make(places, target()?).map(|path| vec![path]),
        "deb" | "rpm" => packages::make(places, target()?, name).map(|path| vec![path]),
        "test" => test(places, target()?, packages).map(|()| Vec::new()),
        "sdist" => packages::sdist(places).map(|path| vec![path]),
        "image" => {
            let target = target()?;
            ensure!(target.is_static, "an image holds nothing but the program, so the program is static");
            image::make(places, target).map(|path| vec![path])
        }
        "sums" => archive::sums(places).map(|path| vec![path]),
        "audit" => {
            let target = target()?;
            audit::run(places, target)?;
            if !target.is_static {
                packages::audit(places, target)?;
            }
            Ok(Vec::new())
        }
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
    let zigbuild = |package: &str, triple: &str| {
        let mut command = places.tool("cargo-zigbuild");
        command.args(["zigbuild", "--release", "--locked", "-p", package, "--target", triple]);
        command
    };
    if target.is_static {
        // Debian has no standard library for musl: it is compiled from its source. rcrt1.o and its kin are zig's.
        let mut command = zigbuild("ringleader", target.triple);
        command
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-C link-self-contained=no")
            .args(["-Z", "build-std=std,panic_unwind"]);
        done(&mut command)?;
        return Ok(vec![places.program(target)?]);
    }
    done(&mut zigbuild("ringleader-plugin", &format!("{}.{PLUGIN_GLIBC}", target.triple)))?;
    let plugin = places.plugin(target)?.context("a full target has a plugin")?;
    // maturin compiles the program on its way to the wheel, so nobody else has to.
    let wheel = packages::wheel(places, target, &plugin)?;
    Ok(vec![places.program(target)?, plugin, wheel])
}

/// Tests as they are built for the target, unoptimised as ever, without debug information for the sake of the disk.
/// Tests of the program that emulation cannot run, by the beginning of their names, and why.
const NOT_EMULATED: [(&str, &str); 16] = [
    ("run::", "QEMU 7.2 has no PR_SET_CHILD_SUBREAPER, without which `run` does not start"),
    ("run_nodes::", "the same"),
    ("run_sites::", "the same"),
    ("run_worlds::", "the same"),
    ("live::", "processes of the job are QEMU's: /proc shows its program, arguments and registers"),
    ("whose::", "the same"),
    ("watch::", "the same"),
    ("stub::one_gpu_that_hangs", "the same"),
    ("fix::a_fix_runs_if", "a probe needs more than its five seconds"),
    ("explain::an_answer_takes_less_than_20_ms", "it measures the time"),
    ("hostile::a_gigabyte_of_one_line", "it measures the memory, QEMU's included"),
    ("hostile::what_may_not_be_read", "it needs a second user, and the namespace of the emulation has one"),
    ("cli::a_machine_without_proc", "it mounts over the /proc that the emulation is registered in"),
    ("fleet::real_sshds", "what sshd starts has no library path of the emulation"),
    ("collect_nodes::over_real_sshds", "the same"),
    ("settings::", "commands without environment have no library path of the emulation"),
];
/// The same of its library, whose module `run` has tests that start nothing.
const NOT_EMULATED_ALONE: [(&str, &str); 2] = [
    ("check::act::tests::only_what_is_an_orphan", "the pid of a process is another under emulation"),
    ("run::scheduler::tests::a_command_that_fails", "what cannot be started ends with 127 there"),
];

fn test(places: &Places, target: Target, packages: &str) -> Result<()> {
    ensure!(!target.is_static, "tests load libraries; take a full target");
    let is_emulated = target.triple.split('-').next() != Some(std::env::consts::ARCH);
    let mut wanted: Vec<&str> = packages.split(',').filter(|package| !package.is_empty()).collect();
    let has_program = wanted.is_empty() || wanted.contains(&PROGRAM);
    let mut runs: Vec<Vec<&str>> = Vec::new();
    if !is_emulated || !has_program {
        runs.push(if wanted.is_empty() { vec!["--workspace"] } else { of_packages(&wanted) });
    } else if wanted.is_empty() {
        runs.push(vec!["--workspace", "--exclude", PROGRAM]);
    } else {
        wanted.retain(|package| *package != PROGRAM);
        runs.extend((!wanted.is_empty()).then(|| of_packages(&wanted)));
    }
    if is_emulated && has_program {
        for (what, skipped) in
            [(vec!["--lib"], &NOT_EMULATED_ALONE[..]), (vec!["--test", "it"], &NOT_EMULATED)]
        {
            let skips = skipped.iter().flat_map(|(name, _)| ["--skip", *name]);
            runs.push(["-p", PROGRAM].into_iter().chain(what).chain(["--"]).chain(skips).collect());
            for (name, why) in skipped {
                say(&format!("xtask: not run by emulation: {name}…: {why}"));
            }
        }
    }
    for arguments in runs {
        let mut command = places.tool("cargo-zigbuild");
        let triple = format!("{}.{GLIBC}", target.triple);
        command.args(["test", "--locked", "--no-fail-fast", "--target", &triple]).args(arguments);
        if is_emulated {
            let variable = target.triple.to_uppercase().replace('-', "_");
            command
                .env(format!("CARGO_TARGET_{variable}_RUNNER"), places.root.join("tools/arm64.sh"))
                .env("DIST_TOOLS", &places.tools);
        }
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0").env("INSTA_UPDATE", "no");
        done(&mut command)?;
    }
    Ok(())
}

/// The package of the program, whose tests start it.
const PROGRAM: &str = "ringleader";

fn of_packages<'p>(packages: &[&'p str]) -> Vec<&'p str> {
    packages.iter().flat_map(|package| ["-p", package]).collect()
}
