//! What goes with the program: completions, manual pages, licences of what is in it, and a bill of materials.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap_complete::Shell;
use serde_json::{Value, json};

use super::{Places, VERSION};

pub(super) fn extras(places: &Places) -> Result<Vec<PathBuf>> {
    let out = places.extras();
    let shells = out.join("completions");
    let man = out.join("man");
    fs::create_dir_all(&shells)?;
    fs::create_dir_all(&man)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut ringleader::command(), "ringleader", &shells)?;
    }
    pages(&ringleader::command(), &man)?;
    let packages = packages(&places.root)?;
    let licences = out.join("THIRD-PARTY.md");
    fs::write(&licences, texts(&packages)?)?;
    let bill = places.out.join("ringleader.cdx.json");
    fs::write(&bill, serde_json::to_string_pretty(&bill_of(&packages, &places.commit))?)?;
    Ok(vec![shells, man, licences, bill])
}

/// A page for the program and one for each command that is no secret.
fn pages(command: &clap::Command, man: &Path) -> Result<()> {
    let mut command = command.clone().disable_help_subcommand(true);
    command.build();
    let write = |command: clap::Command, name: String| -> Result<()> {
        let mut page = Vec::new();
        // A manual page is set by its reader, so the text needs no width of its own.
        clap_mangen::Man::new(command.display_name(name.clone())).render(&mut page)?;
        Ok(fs::write(man.join(format!("{name}.1")), page)?)
    };
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write(sub.clone(), format!("ringleader-{}", sub.get_name()))?;
    }
    write(command.clone(), "ringleader".to_owned())
}

/// A package that is linked into the program or the plugin.
struct Package {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
    checksum: Option<String>,
}

/// Packages of all Linux targets, without those of tests and builds alone.
fn packages(root: &Path) -> Result<Vec<Package>> {
    let mut names: BTreeSet<(String, String)> = BTreeSet::new();
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let output = Command::new("cargo")
            .args([
                "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}", "--target",
                target,
            ])
            .args(["-p", "ringleader", "-p", "ringleader-plugin"])
            .current_dir(root)
            .output()?;
        ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
        for line in String::from_utf8(output.stdout)?.lines() {
            let mut words = line.split(' ');
            let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
            names.insert((name.to_owned(), version.trim_start_matches('v').to_owned()));
        }
    }
    let output = Command::new("cargo")
        .args(["metadata", "--locked", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let lock: toml::Table = fs::read_to_string(root.join("Cargo.lock"))?.parse()?;
    let sums: BTreeMap<(String, String), String> = lock
        .get("package")
        .and_then(toml::Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|row| {
            let text = |key: &str| row.get(key).and_then(toml::Value::as_str).map(str::to_owned);
            Some(((text("name")?, text("version")?), text("checksum")?))
        })
        .collect();
    let mut out = Vec::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
        let key = (text("name"), text("version"));
        if !names.contains(&key) || package["source"].is_null() {
            continue;
        }
        let folder = Path::new(&text("manifest_path")).parent().map(Path::to_owned).unwrap_or_default();
        let checksum = sums.get(&key).cloned();
        out.push(Package { name: key.0, version: key.1, licence: text("license"), folder, checksum });
    }
    out.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    ensure!(out.len() > 50, "only {} packages are known", out.len());
    Ok(out)
}

/// Every package with its licence, and the texts of the licences, each once.
fn texts(packages: &[Package]) -> Result<String> {
    let mut list = String::from(
        "# Licences of what is in ringleader\n\n| package | version | licence |\n|---|---|---|\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        ensure!(!package.licence.is_empty(), "{} names no licence", package.name);
        let _ = writeln!(list, "| {} | {} | {} |", package.name, package.version, package.licence);
        let mut files: Vec<PathBuf> =
            fs::read_dir(&package.folder)?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for path in files.into_iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            if ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
                .iter()
                .any(|head| name.starts_with(head))
            {
                let text = String::from_utf8_lossy(&fs::read(&path)?).replace('\r', "");
                texts.entry(text.trim().to_owned()).or_default().push(package.name.clone());
            }
        }
    }
    for (text, mut of) in texts {
        of.dedup();
        let _ = write!(list, "\n## {}\n\n```text\n{}\n```\n", of.join(", "), text.replace("```", "'''"));
    }
    Ok(list)
}

/// CycloneDX 1.5.
fn bill_of(packages: &[Package], commit: &str) -> Value {
    let components: Vec<Value> = packages
        .iter()
        .map(|package| {
            let purl = format!("pkg:cargo/{}@{}", package.name, package.version);
            let mut component = json!({
                "type": "library",
                "bom-ref": purl,
                "name": package.name,
                "version": package.version,
                "licenses": [{ "expression": package.licence.replace('/', " OR ") }],
                "purl": purl,
            });
            if let Some(sum) = &package.checksum {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
            }
            component
        })
        .collect();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": {
            "type": "application",
            "bom-ref": "ringleader",
            "name": "ringleader",
            "version": VERSION,
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            "properties": [{ "name": "commit", "value": commit }],
        }},
        "components": components,
    })
}
