//! Runs probes, each in a process of its own, and puts their answers together.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_node::{Node, Outcome, Part, SCHEMA};
use serde::Deserialize;

use crate::probe::Probe;
use crate::procfs::Stat;
use crate::request::{ReadingError, Request};
use crate::sysfs::{names, text};
use crate::{probes, tasks};

/// Largest answer of one probe, bytes.
const MAX_ANSWER: u64 = 256 << 20;

/// A probe that merely lacks a processor is waited for so much longer than its deadline, milliseconds: a busy node is no
/// sick one.
const STARVED_MS: u64 = 4_000;
/// Between two looks at such a one.
const LOOK: Duration = Duration::from_millis(50);
/// What a look is repeated after.
const MOMENT: Duration = Duration::from_millis(10);

/// The probe of that name, or the task of `collect`.
pub fn by_name(name: &str) -> Option<&'static Probe> {
    probes::ALL.iter().chain(tasks::ALL).find(|probe| probe.name == name)
}

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
        Err(ReadingError::Absent(why)) => Outcome::Absent(why),
        Err(ReadingError::Failed(why)) => Outcome::Failed(why),
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
            .filter_map(|name| by_name(name))
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
        probes::place(&mut node, name, part);
    }
    node.took_ms = started.elapsed().as_millis() as u64;
    node
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
        // A probe that dies before it has read the request is recognised by its answer.
        let _ = serde_json::to_writer(&mut input, request);
    }
    listen(child, request)
}

/// Waits for the answer.
fn listen(mut child: Child, request: &Request) -> io::Result<Outcome<serde_json::Value>> {
    let (sender, receiver) = mpsc::channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    thread::spawn(move || {
        // The answer ends where its JSON ends: a process with a thread that hangs in the kernel keeps its output open
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
    let mut waited_ms = request.deadline_ms;
    let mut heard = receiver.recv_timeout(Duration::from_millis(request.deadline_ms));
    if matches!(heard, Err(RecvTimeoutError::Timeout)) {
        let since = Instant::now();
        let longest_ms = request.longest_ms.map_or(u64::MAX, |longest| longest.max(request.deadline_ms));
        let more = Duration::from_millis(STARVED_MS.min(longest_ms - request.deadline_ms));
        while matches!(heard, Err(RecvTimeoutError::Timeout))
            && since.elapsed() < more
            && is_starved(child.id())
        {
            heard = receiver.recv_timeout(LOOK.min(more.saturating_sub(since.elapsed())));
            waited_ms = request.deadline_ms + since.elapsed().as_millis() as u64;
        }
    }
    match heard {
        Ok((Some(answer), _)) => {
            // Nobody waits for the end of it.
            thread::spawn(move || child.wait());
            Ok(answer)
        }
        Ok((None, said)) => {
            let status = child.wait()?;
            Ok(Outcome::Failed(format!("its process ended with {status}: {}", said.trim())))
        }
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(give_up(child, waited_ms)),
    }
}

/// Whether a process lacks nothing but a processor, or has ended and its answer is on the way. Two looks: who reads a disk
/// waits for a moment.
fn is_starved(pid: u32) -> bool {
    let look = || {
        let tasks = Path::new("/proc").join(pid.to_string()).join("task");
        let states: Vec<String> = names(&tasks)
            .into_iter()
            .filter_map(|tid| Some(Stat::parse(&text(&tasks.join(tid).join("stat"))?)?.state))
            .collect();
        let has_ended = states.iter().all(|state| matches!(state.as_str(), "Z" | "X"));
        let any = |wanted: &str| states.iter().any(|state| state == wanted);
        has_ended || (any("R") && !any("D"))
    };
    look() || {
        thread::sleep(MOMENT);
        look()
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

/// Where the threads of a process are, as far as the kernel reports; those that merely wait for another are left out.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that says what a probe says, in its own way.
    fn child(script: &str) -> Child {
        Command::new("/bin/sh")
            .args(["-c", script])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Is busy for this many hundredths of a second, without waiting for anything.
    fn busy(hundredths: u32) -> String {
        format!(
            "at() {{ read up rest </proc/uptime; now=${{up%.*}}${{up#*.}}; }}; at; end=$((now + {hundredths})); \
             while [ $now -lt $end ]; do at; done; echo '{{\"seen\":7}}'"
        )
    }

    fn request(deadline_ms: u64, longest_ms: Option<u64>) -> Request {
        Request { deadline_ms, longest_ms, ..Request::default() }
    }

    #[test]
    fn a_probe_that_lacks_a_processor_is_waited_for() {
        let answer = listen(child(&busy(60)), &request(200, None)).unwrap();
        assert_eq!(answer, Outcome::Seen(serde_json::json!(7)));
    }

    #[test]
    fn no_longer_than_whoever_asks_allows() {
        let answer = listen(child(&busy(1_000)), &request(200, Some(300))).unwrap();
        let Outcome::TimedOut { limit_ms, stuck_in } = answer else { panic!("{answer:?}") };
        assert!((200..2_000).contains(&limit_ms), "{limit_ms}");
        assert!(stuck_in.contains("state R"), "{stuck_in}");
    }

    #[test]
    fn a_probe_that_waits_is_given_up_at_its_deadline() {
        let sleeper = child("exec sleep 60");
        let command = Path::new("/proc").join(sleeper.id().to_string()).join("comm");
        while text(&command).as_deref() != Some("sleep") || is_starved(sleeper.id()) {
            thread::sleep(MOMENT);
        }
        let answer = listen(sleeper, &request(100, None)).unwrap();
        let Outcome::TimedOut { limit_ms, stuck_in } = answer else { panic!("{answer:?}") };
        assert_eq!(limit_ms, 100, "{stuck_in}");
    }
}
