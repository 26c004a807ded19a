//! Folders and streams that mean harm, or are just very large.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::cli::{err, ringleader};

fn report(output: &Output) -> serde_json::Value {
    assert!(matches!(output.status.code(), Some(0 | 3..=5)), "{:?} {}", output.status, err(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn diagnose(folder: &std::path::Path) -> serde_json::Value {
    report(&ringleader().args(["diagnose", "--format", "json"]).arg(folder).output().unwrap())
}

/// What the report says about one source.
#[track_caller]
fn told(report: &serde_json::Value, source: &str) -> String {
    let entries = report["looked_at"].as_array().unwrap();
    let entry = entries
        .iter()
        .find(|entry| entry["source"] == source)
        .unwrap_or_else(|| panic!("no {source}: {entries:?}"));
    let texts = entry["notes"].as_array().unwrap().iter().map(|note| note["text"].as_str().unwrap());
    std::iter::once(entry["kind"].as_str().unwrap()).chain(texts).collect::<Vec<_>>().join(" | ")
}

#[cfg(unix)]
#[test]
fn links_are_not_followed() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("passwd"), "secret\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/a.log"), "hello\n").unwrap();
    symlink("..", folder.path().join("sub/loop")).unwrap();
    symlink("sub/a.log", folder.path().join("latest")).unwrap();
    symlink("gone", folder.path().join("dangling")).unwrap();
    symlink(outside.path().join("passwd"), folder.path().join("out")).unwrap();
    symlink("../../../../../../../../etc", folder.path().join("up")).unwrap();
    let report = diagnose(folder.path());
    assert_eq!(told(&report, "sub/a.log"), "text");
    assert_eq!(told(&report, "sub/loop"), "not-read | link not followed: .. is read at its own place");
    assert_eq!(told(&report, "latest"), "not-read | link not followed: sub/a.log is read at its own place");
    assert_eq!(told(&report, "dangling"), "not-read | link not followed: there is nothing at gone");
    assert!(told(&report, "out").starts_with("not-read | link not followed: it leaves the folder"));
    assert!(told(&report, "up").starts_with("not-read | link not followed: it leaves the folder"));
    assert_eq!(report["looked_at"].as_array().unwrap().len(), 6);

    // The folder that is named may be a link itself.
    let link = outside.path().join("job");
    symlink(folder.path(), &link).unwrap();
    assert_eq!(diagnose(&link)["looked_at"], report["looked_at"]);
}

#[cfg(unix)]
#[test]
fn pipes_and_sockets_are_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    fs::write(folder.path().join(".hidden"), "hello\n").unwrap();
    let report = diagnose(folder.path());
    assert!(told(&report, "pipe").contains("not opened: it is a pipe, socket or device"));
    assert!(told(&report, "socket").contains("not opened: it is a pipe, socket or device"));
    assert_eq!(told(&report, ".hidden"), "text");

    // A pipe that is named is meant to be read.
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::write(pipe, "hello\n").unwrap()
    });
    let report = diagnose(&pipe);
    writer.join().unwrap();
    assert_eq!(told(&report, pipe.to_str().unwrap()), "text");
}

#[cfg(unix)]
#[test]
fn what_may_not_be_read_is_told() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let folder = tempfile::tempdir().unwrap();
    let allow =
        |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    allow(folder.path(), 0o755);
    let job = folder.path().join("job");
    fs::create_dir_all(job.join("closed")).unwrap();
    fs::write(job.join("good.log"), "hello\n").unwrap();
    fs::write(job.join("secret.log"), "secret\n").unwrap();
    allow(&job.join("secret.log"), 0o000);
    allow(&job.join("closed"), 0o000);
    let mut command = ringleader();
    if fs::read(job.join("secret.log")).is_ok() {
        // Permissions do not hold for root: run as nobody, from where nobody may run it.
        let program = folder.path().join("ringleader");
        fs::copy(env!("CARGO_BIN_EXE_ringleader"), &program).unwrap();
        command = Command::new(program);
        command.uid(65534).gid(65534);
    }
    let report = report(&command.args(["diagnose", "--format", "json"]).arg(&job).output().unwrap());
    let expected = "not-read | not read: Permission denied (os error 13); run as its owner or as root, or have its owner grant access: setfacl -R -m u:USER:rX PATH";
    assert_eq!(told(&report, "secret.log"), expected);
    assert_eq!(told(&report, "closed"), expected);
    assert_eq!(told(&report, "good.log"), "text");
    allow(&job.join("closed"), 0o755);
}

#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_text_stay_apart() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let folder = tempfile::tempdir().unwrap();
    for name in [&b"a\xff.log"[..], b"a\xfe.log", b"esc\x1b[2J.log"] {
        fs::write(folder.path().join(OsStr::from_bytes(name)), "hello\n").unwrap();
    }
    let report = diagnose(folder.path());
    assert_eq!(told(&report, "a\\xff.log"), "text");
    assert_eq!(told(&report, "a\\xfe.log"), "text");
    assert_eq!(told(&report, "esc\u{1b}[2J.log"), "text");
    let shown = ringleader().args(["diagnose", "--verbose"]).arg(folder.path()).output().unwrap();
    assert!(!shown.stdout.contains(&0x1b));
}

#[test]
fn folders_have_a_bottom() {
    let folder = tempfile::tempdir().unwrap();
    let deep = "d/".repeat(70);
    fs::create_dir_all(folder.path().join(&deep)).unwrap();
    fs::write(folder.path().join(&deep).join("a.log"), "hello\n").unwrap();
    let report = diagnose(folder.path());
    let entries = report["looked_at"].as_array().unwrap();
    assert_eq!(entries.len(), 1, "{entries:?}");
    assert_eq!(entries[0]["notes"][0]["kind"], "limit-reached");
}

#[test]
fn many_small_files() {
    const N_FILES: usize = 20_000;
    let folder = tempfile::tempdir().unwrap();
    for n in 0..N_FILES {
        let path = folder.path().join(format!("{:02}", n % 50));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(format!("{n}.log")), "0: hello\n").unwrap();
    }
    let started = Instant::now();
    let report = diagnose(folder.path());
    // 1 s on an idle machine; the bound is for something that grows with the square of the number.
    assert!(started.elapsed() < Duration::from_mins(1), "{:?}", started.elapsed());
    assert_eq!(report["looked_at"].as_array().unwrap().len(), N_FILES);
}

#[cfg(target_os = "linux")]
#[test]
fn a_gigabyte_of_one_line_takes_no_memory() {
    const CHUNK_BYTES: usize = 1 << 20;
    let mut child = ringleader()
        .args(["diagnose", "--format", "json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let chunk = vec![b'x'; CHUNK_BYTES];
    for _ in 0..1024 {
        input.write_all(&chunk).unwrap();
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak_kib: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    // Pages of an unoptimised program are more than half of it.
    assert!(peak_kib < 96 << 10, "{peak_kib} KiB");
    let told = told(&report(&output), "stdin");
    assert!(told.contains("longer than 1048576 bytes"), "{told}");
}

/// Numbers that no program of this field prints, at one place of twelve.
#[test]
fn numbers_of_any_size_panic_nowhere() {
    const NUMBERS: [&str; 12] = [
        "0",
        "-1",
        "00",
        "4294967295",
        "9223372036854775807",
        "18446744073709551615",
        "-9223372036854775808",
        "99999999999999999999999",
        "20260809",
        "1e400",
        "0.0000000001",
        "NaN",
    ];
    let mut state = 1_u64;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let mut changed = |bytes: &[u8]| {
        let mut out = Vec::new();
        for run in bytes.chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit()) {
            let is_number = run.first().is_some_and(u8::is_ascii_digit);
            if is_number && below(12) == 0 {
                let at = below(NUMBERS.len() as u64) as usize;
                out.extend_from_slice(NUMBERS[at].as_bytes());
            } else {
                out.extend_from_slice(run);
            }
        }
        out
    };
    let cases = crate::recorded::all();
    assert!(cases.len() > 200, "{} cases", cases.len());
    for case in cases.iter().chain(&cases) {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in case.files.iter().filter(|(_, bytes)| bytes.len() < 300_000) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, changed(bytes)).unwrap();
        }
        let report = ringleader::report(folder.path()).unwrap_or_else(|e| panic!("{}: {e:?}", case.name));
        let printed = serde_json::to_string(&report).unwrap();
        assert!(!printed.contains("bug of ringleader"), "{}: {printed}", case.name);
    }
}
