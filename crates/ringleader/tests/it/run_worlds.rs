//! `run` with checkpoints that only the number of ranks that wrote them can load. Two supervisors of one machine meet in a folder;
//! a small program stands for torchrun: two ranks on each node, and each node saves what the test puts into `saves`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLICY: &str = "version = 1\n[backoff]\nfirst = \"0s\"\ncap = \"1s\"\n[exclude]\nmax_share = 0.5\n\
                      [preflight]\ncheck = false\ncommand = \"test ! -e bad-$NODE\"\n";
const TORCHRUN: &str = "#!/bin/sh\necho \"$RINGLEADER_GENERATION $NODE from ${RINGLEADER_CHECKPOINT_STEP:-0}\" >> started\n\
                        test \"$RINGLEADER_GENERATION\" = 2 && exit 0\n\
                        cp saves/* ckpt/; echo step 25 loss 1\n\
                        RANK=$NODE_RANK LOCAL_RANK=0 WORLD_SIZE=4 sleep 4; test ! -e bad-a || exec sleep 60; exit 1\n";

struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    fn new(saves: &[&str]) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["bin", "ckpt", "saves"] {
            fs::create_dir(site.path(name)).unwrap();
        }
        fs::write(site.path("policy.toml"), POLICY).unwrap();
        fs::write(site.path("bin/torchrun"), TORCHRUN).unwrap();
        fs::set_permissions(site.path("bin/torchrun"), fs::Permissions::from_mode(0o755)).unwrap();
        let header = "{\"w\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}";
        let saved = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[1; 8]].concat();
        for name in saves {
            fs::write(site.path("saves").join(format!("{name}.safetensors")), &saved).unwrap();
        }
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// A certain verdict on node a.
    fn blame(&self) {
        let verdict = serde_json::json!({"cause": "nvlink-error", "class": "node", "confidence": "high", "summary": "planted",
                                         "culprits": [{"host": "a"}]});
        fs::write(self.path("verdict"), verdict.to_string()).unwrap();
    }

    fn start(&self, node: &str, rank: &str, options: &[&str]) -> Child {
        let said = fs::File::create(self.path(&format!("said-{node}"))).unwrap();
        Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .args([
                "run",
                "--policy",
                "policy.toml",
                "--no-history",
                "--no-ras",
                "--end-grace",
                "1",
                "--checkpoints",
                "ckpt",
            ])
            .args([
                "--hub",
                &format!("dir:{}", self.path("hub").display()),
                "--node",
                node,
                "--unstable-verdict",
                "verdict",
            ])
            .args(options)
            .args(["--", "bin/torchrun", "--nnodes", "1:2", "--rdzv-endpoint", "a:29400", "t.py"])
            .env("NODE", node)
            .env("NODE_RANK", rank)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap()
    }

    /// Runs both nodes to their end: what was started, sorted, and what node b said.
    fn run(&self, options: &[&str]) -> (Vec<String>, String) {
        let mut runs = [self.start("a", "0", options), self.start("b", "2", options)];
        let codes: Vec<Option<i32>> = runs.iter_mut().map(|run| run.wait().unwrap().code()).collect();
        let said = self.text("said-b");
        assert_eq!(codes, [Some(0), Some(0)], "{said}{}", self.text("said-a"));
        (self.started(), said)
    }

    fn started(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.text("started").lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }

    fn wait(&self, name: &str, words: &str) {
        let until = Instant::now() + Duration::from_mins(1);
        while !self.text(name).contains(words) {
            assert!(Instant::now() < until, "{words}: {}", self.text(name));
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

const RANKS: [&str; 4] = ["step_20-rank0", "step_20-rank1", "step_20-rank2", "step_20-rank3"];

#[test]
fn a_checkpoint_of_more_ranks_is_passed_over() {
    let site = Site::new(&[&RANKS[..], &["step_10"]].concat());
    site.blame();
    let (started, said) = site.run(&[]);
    assert_eq!(started, ["1 a from 0", "1 b from 0", "2 b from 10"], "{said}");
    let skipped =
        "checkpoint skipped: ckpt/step_20-rank0.safetensors: only 4 ranks can load it, as many as wrote it";
    assert!(said.contains(skipped) && said.contains("15 steps to repeat"), "{said}");
    let journal: Vec<String> = site
        .text("ringleader-run-b/journal.jsonl")
        .lines()
        .filter(|line| line.contains(skipped_words()))
        .map(str::to_owned)
        .collect();
    assert!(!journal.is_empty(), "{}", site.text("ringleader-run-b/journal.jsonl"));
}

fn skipped_words() -> &'static str {
    "only 4 ranks can load it"
}

#[test]
fn one_file_for_all_ranks_is_loaded_by_fewer() {
    let site = Site::new(&["step_20", "step_10"]);
    site.blame();
    let (started, said) = site.run(&[]);
    assert_eq!(started, ["1 a from 0", "1 b from 0", "2 b from 20"], "{said}");
    assert!(!said.contains("checkpoint skipped"), "{said}");
}

#[test]
fn a_node_stays_where_the_others_could_load_nothing() {
    let site = Site::new(&RANKS);
    site.blame();
    let (started, said) = site.run(&[]);
    assert_eq!(started, ["1 a from 0", "1 b from 0", "2 a from 20", "2 b from 20"], "{said}");
    assert!(said.contains("it stays, since 1 nodes would remain and the job needs 2"), "{said}");
    assert!(
        said.contains("1 to 1 nodes can load no checkpoint; the newest is ckpt/step_20-rank0.safetensors"),
        "{said}"
    );
}

#[test]
fn the_policy_may_begin_anew_or_leave_it_to_the_program() {
    for (word, from) in [("begin", "0"), ("use", "20")] {
        let site = Site::new(&RANKS);
        site.blame();
        let (started, said) = site.run(&["--set", &format!("checkpoint.other_world={word}")]);
        assert_eq!(
            started,
            ["1 a from 0".to_owned(), "1 b from 0".to_owned(), format!("2 b from {from}")],
            "{said}"
        );
    }
}

/// Node a fails its preflight check after the first attempt. Its return is waited for: node b alone could load nothing.
#[test]
fn a_missing_node_is_waited_for() {
    let site = Site::new(&RANKS);
    let mut runs = [site.start("a", "0", &[]), site.start("b", "2", &[])];
    site.wait("started", "1 b");
    site.wait("started", "1 a");
    fs::write(site.path("bad-a"), "").unwrap();
    // The supervisor has seen both ranks before one of them is ended.
    std::thread::sleep(Duration::from_secs(5));
    let launcher: serde_json::Value =
        serde_json::from_str(&site.text("ringleader-run-b/holder.json")).unwrap();
    let pid = launcher["launched"]["pid"].as_u64().unwrap();
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    site.wait("said-a", "waiting for further nodes: no checkpoint can be loaded by 2 ranks on 1 nodes; the newest is ckpt/step_20");
    fs::remove_file(site.path("bad-a")).unwrap();
    let codes: Vec<Option<i32>> = runs.iter_mut().map(|run| run.wait().unwrap().code()).collect();
    assert_eq!(codes, [Some(0), Some(0)], "{}", site.text("said-a"));
    assert_eq!(
        site.started(),
        ["1 a from 0", "1 b from 0", "2 a from 20", "2 b from 20"],
        "{}",
        site.text("said-a")
    );
}

/// A file of `torch.save`: stored entries, directory, end record; its checksums are not read.
fn saved() -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    let entries: [(&str, &[u8]); 2] = [("a/data.pkl", b"\x80\x02}q\x00."), ("a/version", b"3\n")];
    for (name, body) in entries {
        let mut fields = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        fields.extend((body.len() as u32).to_le_bytes());
        fields.extend((body.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0, 0]);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend((out.len() as u32).to_le_bytes());
        directory.extend(name.as_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&fields);
        out.extend([name.as_bytes(), body].concat());
    }
    let at = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// ZeRO's optimizer of four ranks; the command states how many ranks the first attempt has.
#[test]
fn a_first_attempt_that_can_load_nothing_is_refused() {
    let site = Site::new(&[]);
    let tag = site.path("ckpt/global_step20");
    fs::create_dir(&tag).unwrap();
    fs::write(tag.join("mp_rank_00_model_states.pt"), saved()).unwrap();
    for rank in 0..4 {
        fs::write(tag.join(format!("zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")), saved()).unwrap();
    }
    let run = |nproc: &str, options: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .args(["run", "--policy", "policy.toml", "--no-history", "--no-ras", "--checkpoints", "ckpt"])
            .args(options)
            .args(["--", "bin/torchrun", "--nproc-per-node", nproc, "t.py"])
            .env("NODE", "a")
            .env("NODE_RANK", "0")
            .current_dir(site.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run("2", &[]);
    assert_eq!((code, site.started().len()), (Some(6), 0), "{said}");
    assert!(said.contains("no checkpoint can be loaded by 2 ranks on 1 nodes"), "{said}");
    fs::write(site.path("bin/torchrun"), "#!/bin/sh\necho \"from $RINGLEADER_CHECKPOINT\" >> started\n")
        .unwrap();
    let (code, said) = run("4", &[]);
    assert_eq!((code, site.started()), (Some(0), vec!["from ckpt/global_step20".to_owned()]), "{said}");
    let (code, said) = run("2", &["--set", "checkpoint.other_world=begin"]);
    assert_eq!((code, site.started()[0].as_str()), (Some(0), "from "), "{said}");
}
