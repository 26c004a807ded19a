//! A slow link between hosts: network namespaces with a switch between them (`zoo/netns.py`), pretended ranks that send each
//! other real bytes, and a watcher outside.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Job, rank_command};

const RANKS: u32 = 4;
/// The link that is slowed down, and what it carries then.
const SLOW: usize = 2;
const BYTES_PER_S: u64 = 3_000_000;
/// What a rank hands on in a collective, in so many parts.
const BYTES: usize = 512 << 10;
const PORT: u16 = 5000;

/// A rank's neighbours: it hands bytes to the one and takes as many from the other.
pub(super) struct Neighbours {
    to: TcpStream,
    from: TcpStream,
}

impl Neighbours {
    /// `own next`: addresses.
    pub(super) fn meet(addresses: &str) -> Self {
        let (own, next) = addresses.split_once(' ').unwrap();
        let listener = TcpListener::bind((own, PORT)).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        let to = loop {
            match TcpStream::connect((next, PORT)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            thread::sleep(Duration::from_millis(50));
        };
        Self { to, from: listener.accept().unwrap().0 }
    }

    /// What a ring algorithm sends: of each part, twice to all but one.
    pub(super) fn reduce(&mut self, size: u32) {
        let part = vec![7; BYTES / size as usize];
        let mut taken = vec![0; part.len()];
        for _ in 0..2 * (size - 1) {
            thread::scope(|scope| {
                let to = &mut self.to;
                let part = &part;
                scope.spawn(move || to.write_all(part).unwrap());
                self.from.read_exact(&mut taken).unwrap();
            });
        }
    }
}

/// Namespaces and the switch, which end with this.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        // It ends with its standard input; waiting fails only if it has ended.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The namespaces' files; none where such cannot be made.
fn switch(control: &Path) -> Option<(Switch, Vec<String>)> {
    let mut child = Command::new("python3")
        .arg(crate::root().join("zoo/netns.py"))
        .arg(RANKS.to_string())
        .arg(control)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take()?).read_line(&mut line);
    let switch = Switch(child);
    let said: Value = serde_json::from_str(&line).ok().filter(|_| read.is_ok())?;
    let nodes = said["nodes"].as_array()?.iter().map(|node| node.as_str().unwrap().to_owned()).collect();
    Some((switch, nodes))
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn the_rank_whose_link_is_slow_is_named_and_the_bundle_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for inner in ["rings", "out"] {
        std::fs::create_dir(folder.path().join(inner)).unwrap();
    }
    let control = folder.path().join("control");
    let Some((_switch, nodes)) = switch(&control) else {
        println!("SKIPPED: no network namespaces with TAP, or no python3, here");
        return;
    };
    let address = |rank: u32| format!("10.77.0.{}", 10 + rank % RANKS);
    let mut ranks = Vec::new();
    for (rank, node) in (0..RANKS).zip(&nodes) {
        let inner = rank_command(folder.path(), rank, RANKS, u64::MAX);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={node}")).arg(inner.get_program()).args(inner.get_args());
        command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PRETENDED_NET", format!("{} {}", address(rank), address(rank + 1)));
        ranks.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }
    let job = Job { folder, ranks };
    let mut watcher = job.watch(&["--pid", &job.pids(), "--until-verdict", "--for", "120"]);
    // It learns what is usual.
    while watcher.until("progress")["comms"][0]["ops_done"].as_u64().is_none_or(|n| n < 60) {}
    let order = serde_json::json!({"node": SLOW, "bytes_per_s": BYTES_PER_S}).to_string();
    UnixDatagram::unbound().unwrap().send_to(order.as_bytes(), &control).unwrap();
    let late = loop {
        let late = watcher.until("straggler");
        if late["of"] == "network" {
            break late;
        }
    };
    assert_eq!((&late["rank"], &late["peer"]), (&SLOW.into(), &Value::Null), "{late}");
    assert!(late["text"].as_str().unwrap().contains("10.77.0.12"), "{late}");
    // Something stalls, and the bundle tells of the link too.
    job.signal(0, "-STOP");
    let (_, events) = watcher.end();
    let report = &events.iter().find(|event| event["event"] == "verdict").unwrap()["report"];
    let findings = report["findings"].as_array().unwrap();
    let link = findings.iter().find(|finding| finding["cause"] == "slow-link");
    assert_eq!(link.unwrap()["culprits"][0]["rank"], SLOW, "{findings:#?}");
}
