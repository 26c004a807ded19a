//! `collect` of many nodes: a stub in place of ssh that plays bundles, and real sshds.

use std::path::Path;
use std::process::Output;

use ringleader_bundle::MANIFEST;
use serde_json::Value;

use crate::bundles;
use crate::cli::{err, out, ringleader};
use crate::fleet::{Zoo, player, script, small};

fn collect(folder: &Path, args: &[&str]) -> Output {
    let to = folder.join("got");
    let mut command = ringleader();
    command.args(["collect", "--unstable-ssh"]).arg(folder.join("ssh")).arg("-o").arg(to);
    command.args(args).output().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Cause and culprits.
fn verdict(path: &Path) -> (Value, Value) {
    let diagnosis = ringleader::diagnose(&[path.to_owned()], false).unwrap();
    let report: Value = serde_json::from_str(&diagnosis.report().to_json().unwrap()).unwrap();
    (report["verdict"]["cause"].clone(), report["verdict"]["culprits"].clone())
}

/// The evidence of one recorded job, dealt out to two nodes.
#[test]
fn bundles_of_many_nodes_are_read_as_one_job() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    let evidence = crate::root().join("cases/skipped-allreduce/evidence");
    for (n, (name, path)) in bundles::files(&evidence).into_iter().enumerate() {
        let part = folder.join(format!("part{}", n % 2)).join(name);
        std::fs::create_dir_all(part.parent().unwrap()).unwrap();
        std::fs::copy(path, part).unwrap();
    }
    for n in 0..2 {
        let (part, to) = (folder.join(format!("part{n}")), folder.join(format!("b{n}.zst")));
        bundles::bundle(&part, &to);
        let asked = folder.join(format!("asked{n}"));
        let play = format!("echo \"$2\" > {}; echo welcome; cat {}", asked.display(), to.display());
        script(folder, &format!("node{n}"), &play);
    }
    // A node may say more than its name in ours.
    script(folder, "off", "echo 'ssh: connect to host off port 22: Connection refused' >&2; exit 255");
    let output = collect(folder, &["--hosts", "node[0-1],off", "--no-stacks", "--job", "17", "/var/log/x y"]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    let text = out(&output);
    assert!(
        text.contains("bundles of 2 of 3 nodes") && text.contains("Connection refused, 1 node: off"),
        "{text}"
    );
    assert!(
        text.contains("logs are as the job wrote them") && text.contains("next: ringleader diagnose"),
        "{text}"
    );
    let got = folder.join("got");
    assert_eq!(names(&got), ["node0.tar.zst", "node1.tar.zst", "silent.jsonl"]);
    assert_eq!(verdict(&got), verdict(&evidence));
    assert_ne!(verdict(&got).0, "none");
    for n in 0..2 {
        let name = format!("node{n}.tar.zst");
        let sent = std::fs::read(folder.join(format!("b{n}.zst"))).unwrap();
        assert_eq!(std::fs::read(got.join(name)).unwrap(), sent, "not a byte of the greeting");
    }
    let silent: Value =
        serde_json::from_str(&std::fs::read_to_string(got.join("silent.jsonl")).unwrap()).unwrap();
    assert_eq!((&silent["schema"], &silent["target"]), (&"ringleader.silent.v1".into(), &"off".into()));
    // The second run may not mix with the first.
    let again = collect(folder, &["--hosts", "node[0-1]"]);
    assert_eq!(again.status.code(), Some(2), "{}", err(&again));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&got), mode(&got.join("node0.tar.zst"))), (0o700, 0o600));
    }
}

#[test]
fn what_a_node_sent_before_it_fell_silent_is_kept_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    let (loose, whole) = (folder.join("loose"), folder.join("whole.zst"));
    std::fs::create_dir(&loose).unwrap();
    let evidence = crate::root().join("cases/sigstop/evidence/ras_verbose.txt");
    std::fs::copy(evidence, loose.join("a_ras.txt")).unwrap();
    // Noise does not compress: the cut goes through it.
    let mut state = 1_u32;
    let noise: Vec<u8> = (0..2_000_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    std::fs::write(loose.join("b_noise"), noise).unwrap();
    bundles::bundle(&loose, &whole);
    let half = std::fs::metadata(&whole).unwrap().len() / 2;
    script(folder, "slow", &format!("head -c {half} {}; exec sleep 60", whole.display()));
    script(folder, "dies", &format!("head -c {half} {}; echo out of room >&2; exit 7", whole.display()));
    script(folder, "liar", "echo hello");
    script(folder, "huge", &format!("cat {}; yes", whole.display()));
    let args = ["--hosts", "slow,dies,liar,huge", "--node-deadline-secs", "6", "--max-mib", "1"];
    let output = collect(folder, &args);
    let text = out(&output);
    assert_eq!(output.status.code(), Some(5), "{text}{}", err(&output));
    for part in [
        "bundles of 0 of 4 nodes",
        "no answer within 6 s, 1 node: slow",
        "exit status 7: out of room, 1 node: dies",
        "exit status 0, and no bundle in its output, 1 node: liar",
        "larger than the 1 MiB accepted, 1 node: huge",
        "in part: dies.part.tar.zst, huge.part.tar.zst, slow.part.tar.zst;",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let got = folder.join("got");
    assert_eq!(names(&got), ["dies.part.tar.zst", "huge.part.tar.zst", "silent.jsonl", "slow.part.tar.zst"]);
    assert_eq!(verdict(&got.join("dies.part.tar.zst")), verdict(&loose));
}

#[test]
fn a_bundle_goes_to_standard_output() {
    let output = ringleader()
        .args(["collect", "--no-logs", "--no-stacks", "--no-ras", "--pid"])
        .arg(std::process::id().to_string())
        .args(["-o", "-"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("wrote a bundle: ") && !err(&output).contains("next:"), "{}", err(&output));
    let mut names = Vec::new();
    let mut archive = tar::Archive::new(zstd::Decoder::new(&output.stdout[..]).unwrap());
    for member in archive.entries().unwrap() {
        names.push(member.unwrap().path().unwrap().display().to_string());
    }
    assert_eq!(names.last().map(String::as_str), Some(MANIFEST));
    assert!(names.iter().any(|name| name.ends_with("/node.json")), "{names:?}");
    for args in [&["--pid", "1"][..], &["--slurm", "1"], &["--parallel", "0"]] {
        let output = ringleader().args(["collect", "--hosts", "a"]).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn over_real_sshds() {
    let scratch = tempfile::tempdir().unwrap();
    let program = small(scratch.path());
    let Some(zoo) = Zoo::start("ssh.sh", &[program.to_str().unwrap()]) else { return };
    let folder = zoo.folder.path();
    let (log, config, got) = (folder.join("job.log"), folder.join("ssh_config"), folder.join("got"));
    std::fs::write(&log, "a line\n").unwrap();
    let output = std::process::Command::new(&program)
        .args([
            "collect",
            "--hosts",
            "n[1-6]",
            "--no-stacks",
            "--no-ras",
            "--copy",
            "--node-deadline-secs",
            "25",
        ])
        .arg("--ssh-config")
        .arg(&config)
        .arg("-o")
        .args([&got, &log])
        .output()
        .unwrap();
    let text = out(&output);
    assert_eq!(output.status.code(), Some(5), "{text}{}", err(&output));
    assert_eq!(names(&got), ["n1.tar.zst", "n2.tar.zst", "n5.tar.zst", "silent.jsonl"], "{text}");
    for part in ["bundles of 3 of 6 nodes", "1 node: n3", "1 node: n4", "1 node: n6"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    for name in ["n1", "n2", "n5"] {
        let bundle = std::fs::read(got.join(format!("{name}.tar.zst"))).unwrap();
        let mut archive = tar::Archive::new(zstd::Decoder::new(&bundle[..]).unwrap());
        let names: Vec<String> =
            archive.entries().unwrap().map(|m| m.unwrap().path().unwrap().display().to_string()).collect();
        assert!(names.iter().any(|name| name.ends_with("files/job.log")), "{names:?}");
        assert_eq!(names.last().map(String::as_str), Some(MANIFEST));
    }
    let diagnosis = ringleader::diagnose(std::slice::from_ref(&got), false).unwrap();
    let is_snapshot = |path: &str| path.ends_with("/node.json");
    assert_eq!(diagnosis.case.sources.iter().filter(|source| is_snapshot(&source.path)).count(), 3);
}

/// A pod with the program, one without that gets it, one that may not be entered and one that is slow.
#[cfg(feature = "kube")]
#[test]
fn from_pods_through_the_api() {
    let api = crate::fleet::Api::start();
    let got = api.folder.path().join("got");
    let program = small(api.folder.path());
    let output = std::process::Command::new(&program)
        .env("KUBECONFIG", api.config())
        .args(["collect", "--kube", "app=ringleader", "--no-logs", "--no-stacks", "--no-ras"])
        .args(["--copy", "--node-deadline-secs", "45", "-o"])
        .arg(&got)
        .output()
        .unwrap();
    let text = out(&output);
    assert_eq!(output.status.code(), Some(5), "{text}{}", err(&output));
    assert_eq!(names(&got), ["bare.tar.zst", "silent.jsonl", "well.tar.zst"], "{text}");
    for part in ["bundles of 2 of 4 nodes", "1 node: forbidden", "1 node: slow"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    for name in ["well", "bare"] {
        let bundle = std::fs::read(got.join(format!("{name}.tar.zst"))).unwrap();
        let mut archive = tar::Archive::new(zstd::Decoder::new(&bundle[..]).unwrap());
        let names: Vec<String> =
            archive.entries().unwrap().map(|m| m.unwrap().path().unwrap().display().to_string()).collect();
        assert_eq!(names.last().map(String::as_str), Some(MANIFEST));
    }
    // The very file that runs here, whole.
    let copies = api.folder.path().join("bare/.cache/ringleader");
    let folders: Vec<_> = std::fs::read_dir(copies).unwrap().map(|entry| entry.unwrap().path()).collect();
    let copy = std::fs::metadata(folders[0].join("ringleader")).unwrap();
    assert_eq!(copy.len(), std::fs::metadata(&program).unwrap().len());
}
