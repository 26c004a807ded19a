//! `run` and the scheduler's commands for a node that it excludes. Several supervisors of one machine meet in a folder; kubectl is
//! the real one, where there is one, and talks to a stand-in of the API server (zoo/kube_api.py); scontrol is a script.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POLICY: &str = "version = 1\n[budget]\nnode = { max = 9, per = \"1h\" }\n[backoff]\nfirst = \"0s\"\ncap = \"1s\"\n\
                      [preflight]\ncheck = false\n[exclude]\n";
/// Every attempt but the last fails on the first node; each time the next verdict is planted.
const SCRIPT: &str = "echo \"$RINGLEADER_GENERATION $NODE\" >> started; test -e verdict-$RINGLEADER_GENERATION || exit 0; \
                      sleep 2; test $NODE = a || exec sleep 60; mv verdict-$RINGLEADER_GENERATION verdict; exit 1";

struct Site {
    folder: tempfile::TempDir,
    api: Option<Child>,
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(api) = &mut self.api {
            api.kill().and_then(|()| api.wait()).unwrap();
        }
    }
}

impl Site {
    /// Nodes that are blamed one after the other, with certainty.
    fn new(policy: &str, blamed: &[&str]) -> Self {
        let site = Self { folder: tempfile::tempdir().unwrap(), api: None };
        fs::write(site.path("policy.toml"), format!("{POLICY}{policy}")).unwrap();
        fs::create_dir(site.path("bin")).unwrap();
        for (at, node) in blamed.iter().enumerate() {
            let verdict = serde_json::json!({"cause": "gpu-fallen-off-bus", "class": "node", "confidence": "high",
                                             "summary": "planted", "culprits": [{"host": node}]});
            fs::write(site.path(&format!("verdict-{}", at + 1)), verdict.to_string()).unwrap();
        }
        site
    }

    /// The stand-in of the API server; false where there is no kubectl.
    #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
    fn serve(&mut self) -> bool {
        if !Command::new("kubectl")
            .args(["version", "--client"])
            .output()
            .is_ok_and(|out| out.status.success())
        {
            eprintln!("NOT TESTED: needs kubectl");
            return false;
        }
        let api = Command::new("python3")
            .arg(crate::root().join("zoo/kube_api.py"))
            .args([self.folder.path().as_os_str(), "true".as_ref()])
            .spawn()
            .unwrap();
        self.api = Some(api);
        self.wait("kubeconfig", "server");
        true
    }

    fn program(&self, name: &str, text: &str) {
        fs::write(self.path("bin").join(name), text).unwrap();
        fs::set_permissions(self.path("bin").join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn wait(&self, name: &str, words: &str) {
        let until = Instant::now() + Duration::from_mins(1);
        while !self.text(name).contains(words) {
            assert!(Instant::now() < until, "{words}: {}", self.text(name));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs all nodes to their end; node `a` decides. `path`: the search path. Returns what the nodes said, the decider's first.
    fn run(&self, nodes: &[&str], environment: &[(&str, &str)], path: &str) -> String {
        let start = |node: &&str| {
            let said = fs::File::create(self.path(&format!("said-{node}"))).unwrap();
            let n = nodes.len().to_string();
            Command::new(env!("CARGO_BIN_EXE_ringleader"))
                .args([
                    "run",
                    "--policy",
                    "policy.toml",
                    "--no-history",
                    "--no-ras",
                    "--end-grace",
                    "1",
                    "--job",
                    "train",
                ])
                .args([
                    "--hub",
                    &format!("dir:{}", self.path("hub").display()),
                    "--node",
                    node,
                    "--nodes",
                    &n,
                ])
                .args(["--state", &format!("st-{node}"), "--min-nodes", "1", "--unstable-verdict", "verdict"])
                .args(["--", "/bin/sh", "-c", SCRIPT])
                .envs(environment.iter().copied())
                .env("PATH", path)
                .env("NODE", node)
                .env("KUBECONFIG", self.path("kubeconfig"))
                .current_dir(self.folder.path())
                .stdin(Stdio::null())
                .stdout(said.try_clone().unwrap())
                .stderr(said)
                .spawn()
                .unwrap()
        };
        let runs: Vec<Child> = nodes.iter().map(start).collect();
        for mut run in runs {
            assert_eq!(run.wait().unwrap().code(), Some(0), "{}", self.text("said-a"));
        }
        nodes.iter().map(|node| self.text(&format!("said-{node}"))).collect()
    }

    /// The programs of this test before those of the machine.
    fn programs(&self) -> String {
        format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap_or_default())
    }

    /// The nodes of an attempt.
    fn nodes_of(&self, attempt: u32) -> Vec<String> {
        let started = self.text("started");
        let of = |line: &str| line.strip_prefix(&format!("{attempt} ")).map(str::to_owned);
        let mut nodes: Vec<String> = started.lines().filter_map(of).collect();
        nodes.sort_unstable();
        nodes
    }
}

const KUBERNETES: [(&str, &str); 2] = [("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("POD_NAMESPACE", "ml")];

#[test]
fn an_excluded_node_is_cordoned_and_its_pod_deleted() {
    for (mode, is_called) in [("", false), ("mode = \"act\"\n", true)] {
        let mut site = Site::new(&format!("{mode}max_share = 0.5\n"), &["n1"]);
        if !site.serve() {
            return;
        }
        let said = site.run(&["a", "n1"], &KUBERNETES, &site.programs());
        assert_eq!(
            (site.nodes_of(1), site.nodes_of(2)),
            (vec!["a".to_owned(), "n1".to_owned()], vec!["a".to_owned()]),
            "{said}"
        );
        let calls = site.text("calls");
        if is_called {
            assert!(
                calls.contains("PATCH n1 {\"spec\":{\"unschedulable\":true}}\nDELETE ml/train-n1 "),
                "{calls}{said}"
            );
            assert_eq!(said.matches("cordon n1: done").count(), 1, "{said}");
            assert_eq!(said.matches("--wait=false: done").count(), 1, "{said}");
        } else {
            assert!(calls.is_empty(), "{calls}");
            let would = "would run (patch nodes; [exclude] mode = \"act\" runs it): kubectl --request-timeout=20s cordon n1";
            assert_eq!(said.matches(would).count(), 1, "{said}");
        }
    }
}

#[test]
fn a_scheduler_that_refuses_or_hangs_does_not_hold_up_the_job() {
    for (node, words) in [
        ("locked-1", "is forbidden: User"),
        ("gone-1", "not found"),
        ("slow-1", "Unable to connect to the server"),
    ] {
        let mut site = Site::new("mode = \"act\"\nmax_share = 0.5\n", &[node]);
        if !site.serve() {
            return;
        }
        let began = Instant::now();
        let said = site.run(&["a", node], &KUBERNETES, &site.programs());
        assert!(said.contains(words) && said.contains("the command needs: patch nodes"), "{said}");
        // Without a cordon the pod would come back to the node.
        assert!(
            said.contains("not run, since the command before it failed: kubectl")
                && site.text("calls").is_empty(),
            "{said}"
        );
        assert_eq!(site.nodes_of(2), ["a"], "{said}");
        // The second attempt started before kubectl gave up.
        let (next, told) = (said.find("attempt 2 runs"), said.find(words));
        assert!(node != "slow-1" || next < told && began.elapsed() < Duration::from_mins(1), "{said}");
    }
}

#[test]
fn without_kubectl_the_user_is_told() {
    let site = Site::new("mode = \"act\"\nmax_share = 0.5\n", &["n1"]);
    let bin = site.path("bin");
    for name in ["sleep", "mv", "test"] {
        let found = ["/bin", "/usr/bin"]
            .map(|folder| PathBuf::from(folder).join(name))
            .into_iter()
            .find(|path| path.exists());
        std::os::unix::fs::symlink(found.unwrap(), bin.join(name)).unwrap();
    }
    let said = site.run(&["a", "n1"], &KUBERNETES, &bin.display().to_string());
    assert!(
        said.contains("cordon n1: kubectl is not in the PATH; the job goes on without the node"),
        "{said}"
    );
    assert_eq!(site.nodes_of(2), ["a"], "{said}");
}

#[test]
fn a_circuit_breaker_limits_what_is_drained() {
    let site = Site::new("mode = \"act\"\nmax_share = 0.25\n", &["n1", "n2"]);
    site.program("scontrol", "#!/bin/sh\necho \"$*\" >> calls\n");
    let said = site.run(&["a", "n1", "n2", "n3"], &[("SLURM_JOB_ID", "7")], &site.programs());
    let calls = site.text("calls");
    assert!(
        calls.starts_with("update NodeName=n1 State=DRAIN Reason=ringleader: gpu-fallen-off-bus on n1"),
        "{calls}{said}"
    );
    assert_eq!(calls.lines().count(), 1, "{calls}");
    assert!(
        said.contains("at most 1 of 4 nodes may be excluded ([exclude] max_share = 0.25) and 1 already are"),
        "{said}"
    );
    assert_eq!(
        (site.nodes_of(2), site.nodes_of(3)),
        (vec!["a".to_owned(), "n2".to_owned(), "n3".to_owned()], site.nodes_of(2)),
        "{said}"
    );
}

#[test]
fn a_drain_that_slurm_refuses_is_told() {
    let site = Site::new("mode = \"act\"\nmax_share = 0.5\n", &["n1"]);
    site.program("scontrol", "#!/bin/sh\necho 'slurm_update error: Invalid user id' >&2; exit 1\n");
    let said = site.run(&["a", "n1"], &[("SLURM_JOB_ID", "7")], &site.programs());
    assert!(
        said.contains("ended with 1: slurm_update error: Invalid user id; the job goes on without the node"),
        "{said}"
    );
    assert!(said.contains("the command needs: administrator of Slurm"), "{said}");
    assert_eq!(site.nodes_of(2), ["a"], "{said}");
}

/// The fault is on node a; the verdict blames n1, which is innocent. What the policy does costs one restart; only a certain verdict
/// costs the node as well.
#[test]
fn a_wrong_verdict_on_an_innocent_node_costs_one_restart() {
    for (confidence, class, stays) in [
        ("low", "node", true),
        ("medium", "node", true),
        ("high", "node", false),
        ("medium", "program", true),
        ("high", "program", true),
    ] {
        let site = Site::new("max_share = 0.5\n", &["n1"]);
        let planted = site
            .text("verdict-1")
            .replace("\"high\"", &format!("\"{confidence}\""))
            .replace("\"node\"", &format!("\"{class}\""));
        fs::write(site.path("verdict-1"), planted).unwrap();
        let said = site.run(&["a", "n1"], &[], &site.programs());
        let second: &[&str] = if stays { &["a", "n1"] } else { &["a"] };
        assert_eq!(site.nodes_of(1), ["a", "n1"], "{confidence} {class}: {said}");
        assert_eq!(site.nodes_of(2), second, "{confidence} {class}: {said}");
        assert!(
            site.nodes_of(3).is_empty() && said.contains("done: 2 attempts, 1 failed"),
            "{confidence} {class}: {said}"
        );
        if confidence != "high" {
            assert!(said.contains(&format!("the confidence of the verdict is {confidence}")), "{said}");
        }
    }
}
