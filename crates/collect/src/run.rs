//! Runs probes, each in a process of its own, and puts their answers together.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_node::{Node, Outcome, Part, SCHEMA};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::probes::{self, Probe, Trouble};
use crate::request::Request;
use crate::sysfs::{names, text};
use crate::tasks;

/// Largest answer of one probe, bytes.
const MAX_ANSWER: u64 = 256 << 20;

/// The process of one probe: reads the request from standard input, prints the part's outcome.
///
/// # Errors
/// If standard input or output fail; bad input is the caller's bug and is an error of kind `InvalidData`.
pub fn answer(probe: &Probe, input: &mut dyn Read, output: &mut dyn Write) -> io::Result<()> {
    let request: Request = serde_json::from_reader(input)?;
    if probe.name == tasks::BYTES_OF {
        return tasks::pour(&request, output);
    }
    let outcome = match (probe.take)(&request) {
        Ok(value) => Outcome::Seen(value),
        Err(Trouble::Absent(why)) => Outcome::Absent(why),
        Err(Trouble::Failed(why)) => Outcome::Failed(why),
    };
    serde_json::to_writer(&mut *output, &outcome)?;
    output.flush()
}

/// Takes a snapshot: starts `program probe NAME` for each of `names` at once and waits for each as long as `patience` says,
/// in milliseconds.
pub fn take(
    program: &Path,
    names: &[&str],
    request: &Request,
    patience: impl Fn(&Probe) -> u64 + Sync,
    tool_version: &str,
) -> Node {
    let patience = &patience;
    let started = Instant::now();
    let mut node = Node {
        schema: SCHEMA.to_owned(),
        tool_version: tool_version.to_owned(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        at_ns: now_ns(),
        ..Node::default()
    };
    let answers: Vec<(&'static str, Part<serde_json::Value>)> = thread::scope(|scope| {
        let threads: Vec<_> = names
            .iter()
            .filter_map(|name| probes::by_name(name))
            .map(|probe| {
                let thread = scope.spawn(move || {
                    let request = Request { deadline_ms: patience(probe), ..request.clone() };
                    run_one(program, probe, &request)
                });
                (probe.name, thread)
            })
            .collect();
        threads
            .into_iter()
            .map(|(name, thread)| {
                let failed = || Part {
                    outcome: Outcome::Failed(
                        "the thread that ran it panicked: a bug of ringleader".to_owned(),
                    ),
                    ..Part::default()
                };
                (name, thread.join().unwrap_or_else(|_| failed()))
            })
            .collect()
    });
    for (name, part) in answers {
        place(&mut node, name, part);
    }
    node.took_ms = started.elapsed().as_millis() as u64;
    node
}

/// Puts a part where it belongs.
fn place(node: &mut Node, name: &str, part: Part<serde_json::Value>) {
    match name {
        "system" => node.system = typed(part),
        "gpus" => node.gpus = typed(part),
        "pci" => node.pci = typed(part),
        "kernel-log" => node.kernel_log = typed(part),
        "services" => node.services = typed(part),
        "rdma" => node.rdma = typed(part),
        "network" => node.net = typed(part),
        "reach" => node.reach = typed(part),
        "shm" => node.shm = typed(part),
        "mounts" => node.mounts = typed(part),
        "jobs" => node.jobs = typed(part),
        "libraries" => node.libraries = typed(part),
        _ => {}
    }
}

fn typed<T: DeserializeOwned>(part: Part<serde_json::Value>) -> Part<T> {
    let outcome = match part.outcome {
        Outcome::Seen(value) => match serde_json::from_value(value) {
            Ok(value) => Outcome::Seen(value),
            Err(error) => Outcome::Failed(format!("its answer is not understood: {error}")),
        },
        Outcome::Absent(why) => Outcome::Absent(why),
        Outcome::Failed(why) => Outcome::Failed(why),
        Outcome::TimedOut { limit_ms, stuck_in } => Outcome::TimedOut { limit_ms, stuck_in },
        Outcome::NotAsked => Outcome::NotAsked,
    };
    Part { at_ns: part.at_ns, took_ms: part.took_ms, outcome }
}

pub(crate) fn run_one(program: &Path, probe: &Probe, request: &Request) -> Part<serde_json::Value> {
    let (at_ns, started) = (now_ns(), Instant::now());
    let outcome =
        ask(program, probe, request).unwrap_or_else(|error| Outcome::Failed(format!("start it: {error}")));
    Part { at_ns, took_ms: started.elapsed().as_millis() as u64, outcome }
}

fn ask(program: &Path, probe: &Probe, request: &Request) -> io::Result<Outcome<serde_json::Value>> {
    let mut child = Command::new(program)
        .args(["probe", probe.name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // A probe that dies before it has read the request is told by its answer.
        let _ = serde_json::to_writer(&mut input, request);
    }
    let (sender, receiver) = mpsc::channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    thread::spawn(move || {
        // The answer ends where its JSON ends: a process of which one thread hangs in the kernel keeps its output open
        // long after it has said what it knows.
        let answer: Option<Outcome<serde_json::Value>> = output.and_then(|output| {
            let mut values = serde_json::Deserializer::from_reader(BufReader::new(output.take(MAX_ANSWER)));
            Deserialize::deserialize(&mut values).ok()
        });
        let mut said = String::new();
        if answer.is_none() {
            let _ = errors.map_or(Ok(0), |errors| errors.take(4096).read_to_string(&mut said));
        }
        // The caller may have given up.
        let _ = sender.send((answer, said));
    });
    match receiver.recv_timeout(Duration::from_millis(request.deadline_ms)) {
        Ok((Some(answer), _)) => {
            // Nobody waits for the end of it.
            thread::spawn(move || child.wait());
            Ok(answer)
        }
        Ok((None, said)) => {
            let status = child.wait()?;
            Ok(Outcome::Failed(format!("its process ended with {status}: {}", said.trim())))
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Ok(give_up(child, request.deadline_ms))
        }
    }
}

/// Leaves a process behind that does not answer, and says what it hangs in. It is our own child and is killed; one in
/// an uninterruptible wait dies when the kernel lets it, and nobody waits for that.
fn give_up(mut child: Child, limit_ms: u64) -> Outcome<serde_json::Value> {
    let stuck_in = stuck_in(child.id());
    // Fails only if it has just ended.
    let _ = child.kill();
    thread::spawn(move || child.wait());
    Outcome::TimedOut { limit_ms, stuck_in }
}

/// What the threads of a process stand in, as far as the kernel tells; those that merely wait for another are left out.
pub(crate) fn stuck_in(pid: u32) -> String {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let mut places: Vec<(bool, String)> = names(&tasks)
        .into_iter()
        .filter_map(|tid| {
            let task = tasks.join(&tid);
            let stat = text(&task.join("stat"))?;
            let (before, after) = stat.rsplit_once(") ")?;
            let state = after.chars().next()?;
            let name = before.split_once(" (")?.1;
            let place = text(&task.join("wchan")).filter(|w| !w.is_empty() && w != "0");
            let waits = place.as_deref().is_some_and(|w| w.starts_with("futex"));
            let place = place.as_deref().unwrap_or("user code");
            Some((waits, format!("{name} (pid {tid}), state {state}, in {place}")))
        })
        .collect();
    if places.iter().any(|(waits, _)| !waits) {
        places.retain(|(waits, _)| !waits);
    }
    places.into_iter().map(|(_, place)| place).collect::<Vec<_>>().join("; ")
}

pub(crate) fn now_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}
