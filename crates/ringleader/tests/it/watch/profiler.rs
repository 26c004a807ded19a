//! Timelines of ranks that PyTorch's profiler would record: pretended ranks ask as it does, and write recorded ones.

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::Job;
use crate::cli::ringleader;

/// Bytes before the body of a datagram.
const HEAD_BYTES: usize = 40;

/// Asks as the profiler of a rank does, in a thread: for a context once, then repeatedly what to do; writes the
/// timeline where it is asked to. `KINETO_IPC_SOCKET_DIR` holds the sockets.
pub(super) fn pretend(rank: u32, timeline: PathBuf) {
    thread::spawn(move || {
        let folder = PathBuf::from(std::env::var_os("KINETO_IPC_SOCKET_DIR").unwrap());
        let socket = UnixDatagram::bind(folder.join(format!("rank-{rank}"))).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let pid = std::process::id() as i32;
        let ask = |kind: &[u8], numbers: &[i32]| -> Option<Vec<u8>> {
            let body: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            let mut datagram = (body.len() as u64).to_le_bytes().to_vec();
            datagram.extend_from_slice(kind);
            datagram.resize(HEAD_BYTES, 0);
            datagram.extend(body);
            // Nobody may listen yet.
            socket.send_to(&datagram, folder.join("dynolog")).ok()?;
            let mut bytes = vec![0; 8192];
            let n = socket.recv(&mut bytes).ok()?;
            assert_eq!(&bytes[8..8 + kind.len()], kind, "an answer is of the question's type");
            Some(bytes[HEAD_BYTES..n].to_vec())
        };
        while ask(b"ctxt", &[rank as i32, pid, 0, 0]).is_none() {
            thread::sleep(Duration::from_millis(50));
        }
        loop {
            let told = ask(b"req", &[2, 2, 0, 0, pid, 1]).unwrap_or_default();
            let told = String::from_utf8(told).unwrap();
            if let Some(path) = told.lines().find_map(|line| line.strip_prefix("ACTIVITIES_LOG_FILE=")) {
                assert!(
                    told.contains("DURATION_MSECS=") || told.contains("ACTIVITIES_ITERATIONS="),
                    "{told}"
                );
                std::fs::copy(&timeline, path).unwrap();
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
}

/// Two ranks; rank 0 is late; both can be recorded, with the timelines of a case.
fn job() -> (Job, tempfile::TempDir) {
    let sockets = tempfile::tempdir().unwrap();
    let folder = sockets.path().to_str().unwrap().to_owned();
    let evidence = crate::root().join("cases/trace-slow-gpu/evidence").display().to_string();
    let more = [
        ("PRETENDED_LATE", "0:15"),
        ("PRETENDED_TIMELINES", evidence.as_str()),
        ("KINETO_IPC_SOCKET_DIR", folder.as_str()),
    ];
    (Job::start_with(2, u64::MAX, &more), sockets)
}

fn is_timeline(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.len() > 1_000)
}

#[test]
fn ranks_that_ask_are_recorded_and_told_apart() {
    let (job, sockets) = job();
    let out = job.folder.path().join("out/timelines");
    let output = ringleader()
        .args(["trace", "record", "--pid", &job.pids(), "--timeout", "60", "-o"])
        .arg(&out)
        .env("KINETO_IPC_SOCKET_DIR", sockets.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text} {}", String::from_utf8_lossy(&output.stderr));
    for rank in &job.ranks {
        assert!(is_timeline(&out.join(format!("pid-{}.json", rank.id()))), "{text}");
    }
    assert!(text.contains(" MB in all.\n") && text.contains("Now: ringleader trace "), "{text}");
}

#[test]
fn a_straggler_that_persists_is_recorded_and_the_timelines_agree() {
    let (job, sockets) = job();
    let (rings, out, pids) = (job.rings(), job.out(), job.pids());
    let child = ringleader()
        .args(["watch", "--json", "--interval", "0.1", "--rings", &rings, "--out", &out, "--pid", &pids])
        .args(["--record-late", "500", "--for", "100"])
        .env("KINETO_IPC_SOCKET_DIR", sockets.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut watcher = super::Watcher::of(child);
    let until = Instant::now() + Duration::from_secs(100);
    let said = loop {
        let text = watcher.until("note")["text"].as_str().unwrap().to_owned();
        assert!(!text.starts_with("no timelines") && Instant::now() < until, "{text}");
        if text.starts_with("timelines:") {
            break text;
        }
    };
    assert!(said.starts_with("timelines: straggler: rank 0 is late"), "{said}");
    assert!(said.contains("the rank that was late live (rank 0)"), "{said}");
}
