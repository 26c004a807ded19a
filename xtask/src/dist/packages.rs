//! Packages of distributions (by nfpm) and of Python (by maturin).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use ringleader_model::Date;

use super::{Places, Target, VERSION, done};

/// `deb` or `rpm`.
pub(super) fn make(places: &Places, target: Target, kind: &str) -> Result<PathBuf> {
    let arch = if kind == "deb" { target.deb } else { target.rpm };
    let file = match kind {
        "deb" => format!("ringleader_{VERSION}_{arch}.deb"),
        _ => format!("ringleader-{VERSION}-1.{arch}.rpm"),
    };
    let path = places.out.join(file);
    let config = places.out.join(format!("nfpm-{}.yaml", target.name));
    fs::write(&config, description(places, target)?)?;
    done(places.tool("nfpm").arg("package").arg("-f").arg(&config).args(["-p", kind, "-t"]).arg(&path))?;
    fs::remove_file(config)?;
    Ok(path)
}

fn description(places: &Places, target: Target) -> Result<String> {
    let quoted = |path: &Path| serde_json::Value::from(path.display().to_string()).to_string();
    let mut contents = String::new();
    let mut add = |from: &Path, to: &str, mode: &str| {
        let _ = write!(
            contents,
            "  - src: {}\n    dst: {to}\n    file_info:\n      mode: {mode}\n",
            quoted(from)
        );
    };
    add(&places.program(target)?, "/usr/bin/ringleader", "0755");
    if let Some(plugin) = places.plugin(target)? {
        add(&plugin, "/usr/lib/ringleader/libringleader_nccl.so", "0755");
    }
    let extras = places.extras();
    for (from, to) in [
        ("completions/ringleader.bash", "/usr/share/bash-completion/completions/ringleader"),
        ("completions/_ringleader", "/usr/share/zsh/vendor-completions/_ringleader"),
        ("completions/ringleader.fish", "/usr/share/fish/vendor_completions.d/ringleader.fish"),
        ("THIRD-PARTY.md", "/usr/share/doc/ringleader/THIRD-PARTY.md"),
    ] {
        add(&extras.join(from), to, "0644");
    }
    let mut pages: Vec<PathBuf> =
        fs::read_dir(extras.join("man"))?.flatten().map(|entry| entry.path()).collect();
    pages.sort();
    ensure!(!pages.is_empty(), "no manual pages: cargo xtask dist extras");
    for page in pages {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        add(&page, &format!("/usr/share/man/man1/{name}"), "0644");
    }
    for name in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        add(&places.root.join(name), &format!("/usr/share/doc/ringleader/{name}"), "0644");
    }
    // Folders of our own: an rpm removes only those that it says it has.
    let mut folders = vec!["/usr/share/doc/ringleader"];
    folders.extend((!target.is_static).then_some("/usr/lib/ringleader"));
    // Installed and not started: whoever wants it enables it.
    add(&places.root.join("deploy/ringleader.service"), "/usr/lib/systemd/system/ringleader.service", "0644");
    // Rules, dashboards, prologs: README.md sends readers there.
    let _ = write!(
        contents,
        "  - src: {}\n    dst: /usr/share/doc/ringleader/deploy\n    type: tree\n",
        quoted(&places.root.join("deploy"))
    );
    for folder in folders {
        let _ = write!(contents, "  - dst: {folder}\n    type: dir\n    file_info:\n      mode: 0755\n");
    }
    // Needs nothing but the C library: zig links the rest.
    let needs = if target.is_static {
        String::new()
    } else {
        "overrides:\n  deb:\n    depends: [\"libc6 (>= 2.28)\"]\n  rpm:\n    depends: [\"glibc >= 2.28\"]\n"
            .to_owned()
    };
    Ok(format!(
        "name: ringleader\narch: {}\nplatform: linux\nversion: {VERSION}\nmtime: \"{}\"\nsection: admin\n\
         maintainer: ringleader <ringleader@localhost>\nlicense: MIT OR Apache-2.0\n\
         description: |\n  Finds the rank that stalls, breaks or poisons a multi-GPU training job.\n{needs}contents:\n{contents}",
        target.deb,
        date(places.time)
    ))
}

/// Seconds since 1970 as RFC 3339.
fn date(time: u64) -> String {
    let Date { year, month, day } = Date::from_days((time / 86_400) as i64);
    let second = time % 86_400;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Compiles the program, and packs it with the plugin and the Python package.
pub(super) fn wheel(places: &Places, target: Target, plugin: &Path) -> Result<PathBuf> {
    let lib = places.root.join("python/ringleader/lib");
    fs::create_dir_all(&lib)?;
    fs::copy(plugin, lib.join("libringleader_nccl.so"))?;
    let made = done(
        places
            .tool("maturin")
            .args(["build", "--release", "--locked", "--zig", "--target", target.triple])
            .args(["--compatibility", &promise(), "--out"])
            .arg(&places.out),
    );
    fs::remove_dir_all(&lib)?;
    made?;
    wheel_of(places, target)
}

/// The tag of the oldest glibc that wheels are for.
fn promise() -> String {
    format!("manylinux_{}_{}", super::GLIBC.0, super::GLIBC.1)
}

fn wheel_of(places: &Places, target: Target) -> Result<PathBuf> {
    let machine = target.triple.split('-').next().unwrap_or_default();
    let path = places.out.join(format!("ringleader-{VERSION}-py3-none-{}_{machine}.whl", promise()));
    ensure!(path.is_file(), "there is no {}", path.display());
    Ok(path)
}

/// maturin looks at the program alone: auditwheel looks at the plugin as well.
pub(super) fn audit(places: &Places, target: Target) -> Result<()> {
    let path = wheel_of(places, target)?;
    let output = places.tool("auditwheel").arg("show").arg(&path).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let tag = said
        .split("consistent with the following platform tag: \"manylinux_")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .with_context(|| {
            format!("auditwheel names no tag: {said} {}", String::from_utf8_lossy(&output.stderr))
        })?;
    let mut numbers = tag.split('_').map_while(|part| part.parse().ok());
    let needed = super::Glibc(numbers.next().unwrap_or(u32::MAX), numbers.next().unwrap_or(u32::MAX));
    ensure!(needed <= super::GLIBC, "the wheel does not keep its promise: {said}");
    super::say(&format!("audit: {} is manylinux_{tag}", path.display()));
    Ok(())
}

pub(super) fn sdist(places: &Places) -> Result<PathBuf> {
    done(places.tool("maturin").args(["sdist", "--out"]).arg(&places.out))?;
    let path = places.out.join(format!("ringleader-{VERSION}.tar.gz"));
    ensure!(path.is_file(), "maturin made no {}", path.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates() {
        assert_eq!(super::date(0), "1970-01-01T00:00:00Z");
        assert_eq!(super::date(1_709_164_799), "2024-02-28T23:59:59Z");
        assert_eq!(super::date(1_709_251_199), "2024-02-29T23:59:59Z");
    }
}
