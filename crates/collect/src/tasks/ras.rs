//! A client of NCCL's RAS service (2.24 and later): text lines over TCP, `src/ras/client_support.cc`.
//!
//! ```text
//! CLIENT PROTOCOL 2      SERVER PROTOCOL 2
//! TIMEOUT 2              OK
//! SET FORMAT json        OK, or an error before 2.28.7
//! VERBOSE STATUS         the report, then the server closes
//! ```
//! A process in a container listens in that container's network: this process enters it first.
//!
//! All processes of one user on a node listen at the same port (`SO_REUSEPORT`, `src/ras/client_support.cc`) and the
//! kernel hands each connection to one of them, a stopped one too, also to one of another job. So several connections
//! greet, one after another, and the first that a rank of this job greets back is asked.
//!
//! Nothing is asked of a port that is not RAS's: [`super::owners`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::owners::Owners;
use crate::request::{ReadingError, Request};

/// Seconds that the service may wait for its peers, twice in a report. Peers that it knows to be slow (five seconds of
/// silence, `src/ras/collectives.cc`) it does not ask.
const SERVER_S: u64 = 2;
const CONNECT: Duration = Duration::from_secs(1);
/// Between one greeting and the next, for the first [`N_PATIENT`]; those before are still listened to.
const GREETING: Duration = Duration::from_millis(250);
/// Between the later ones: who did not answer the first greetings is likely to be stopped.
const LATER_GREETING: Duration = Duration::from_millis(100);
const N_PATIENT: usize = 2;
/// Greetings: with two of three ranks stopped, one question in 400,000 ends at none that runs.
const MAX_GREETINGS: usize = 32;
/// Questions, where one that has greeted back then hangs up.
const MAX_TRIES: u32 = 3;
/// Time left for the report after a service answered the greeting.
const FOR_REPORT: Duration = Duration::from_millis(2_500);
/// Largest report that is taken: a hundred bytes for each of a hundred thousand ranks, several times.
const MAX_BYTES: u64 = 64 << 20;
/// What this process keeps for itself of its deadline.
const RESERVE: Duration = Duration::from_millis(500);

/// What the service answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RasAnswer {
    pub(crate) report: String,
    /// It ended with the connection's end; else why not.
    pub(crate) cut: Option<String>,
}

pub(super) fn take(request: &Request) -> Result<RasAnswer, ReadingError> {
    let owners = Owners::of(request)?;
    if let Some(namespace) = owners.elsewhere() {
        enter(namespace)?;
    }
    let addresses = addresses(request)?;
    owners.may_be_asked(&addresses)?;
    ask(request, &addresses, &|stream| owners.hold(stream))
}

/// Where the service is said to listen.
fn addresses(request: &Request) -> Result<Vec<SocketAddr>, ReadingError> {
    let peer =
        request.peers.first().ok_or_else(|| ReadingError::Failed("no address was named".to_owned()))?;
    let addresses = (peer.host.as_str(), peer.port.unwrap_or(28_028))
        .to_socket_addrs()
        .map_err(|error| ReadingError::Failed(format!("resolve {}: {error}", peer.host)))?;
    Ok(addresses.collect())
}

/// Queries the service that answers the greeting, if it belongs to the job.
fn ask(
    request: &Request,
    addresses: &[SocketAddr],
    is_meant: IsMeant<'_>,
) -> Result<RasAnswer, ReadingError> {
    let patience = Duration::from_millis(request.deadline_ms).saturating_sub(RESERVE);
    let until = Instant::now() + patience;
    // The service waits in two phases: with a longer timeout than ours its answer would be too late.
    let server_s = (patience.as_secs() / 2).clamp(1, SERVER_S);
    let as_json = request.peers.first().is_some_and(|peer| peer.purpose == "json");
    let mut best: Option<RasAnswer> = None;
    let mut n_tries = 0;
    loop {
        n_tries += 1;
        let outcome =
            greet(addresses, until, is_meant).and_then(|stream| talk(&stream, as_json, until, server_s));
        // One that hangs up in the middle may be about to end: another may tell all.
        let may_try = n_tries < MAX_TRIES && until.saturating_duration_since(Instant::now()) > FOR_REPORT;
        match outcome {
            Ok(answer) if answer.cut.is_none() => return Ok(answer),
            Ok(answer) => {
                if best.as_ref().is_none_or(|best| best.report.len() < answer.report.len()) {
                    best = Some(answer);
                }
            }
            Err(trouble) if best.is_none() && (!may_try || matches!(trouble, ReadingError::Absent(_))) => {
                return Err(trouble);
            }
            Err(_) => {}
        }
        if let Some(best) = best.take_if(|_| !may_try) {
            return Ok(best);
        }
    }
}

/// Whether the other end of a connection is of the job.
type IsMeant<'a> = &'a dyn Fn(&TcpStream) -> bool;

/// A connection whose other end has greeted back.
fn greet(addresses: &[SocketAddr], until: Instant, is_meant: IsMeant<'_>) -> Result<TcpStream, ReadingError> {
    let left = until.saturating_duration_since(Instant::now());
    let until = Instant::now() + left.saturating_sub(FOR_REPORT).max(left / 2);
    let mut open: Vec<TcpStream> = Vec::new();
    let (mut refused, mut n_asked) = (String::new(), 0);
    loop {
        if n_asked < MAX_GREETINGS {
            for address in addresses {
                match connect(*address, until).and_then(hello) {
                    Ok(stream) => {
                        open.push(stream);
                        n_asked += 1;
                        break;
                    }
                    Err(error) => refused = format!("connect to {address}: {error}"),
                }
            }
        }
        if open.is_empty() {
            return Err(ReadingError::Failed(refused));
        }
        let now = Instant::now();
        let wait = match n_asked {
            0..=N_PATIENT => GREETING,
            MAX_GREETINGS.. => until.saturating_duration_since(now),
            _ => LATER_GREETING,
        };
        match answered(&open, wait.min(until.saturating_duration_since(now))) {
            Some(at) => {
                let stream = open.swap_remove(at);
                match is_greeted(&stream, until) {
                    Ok(true) if is_meant(&stream) => return Ok(stream),
                    // It is of another job, or it closed the connection; the others may not.
                    Ok(_) if n_asked < MAX_GREETINGS || !open.is_empty() => {}
                    Ok(true) => {
                        let why = "those that replied belong to another job that shares the port";
                        return Err(ReadingError::Failed(why.to_owned()));
                    }
                    Ok(false) => {
                        return Err(ReadingError::Failed(
                            "it closed the connection after the greeting".to_owned(),
                        ));
                    }
                    Err(said) => {
                        let why = format!("it is not a RAS service: it greets with '{}'", short(&said));
                        return Err(ReadingError::Failed(why));
                    }
                }
            }
            None if Instant::now() >= until => {
                return Err(ReadingError::Failed(format!(
                    "{n_asked} connections said '{HELLO}' and none was answered by the deadline; all processes that \
                     listen there may be stopped"
                )));
            }
            None => {}
        }
    }
}

/// What a client says first.
const HELLO: &str = "CLIENT PROTOCOL 2";

fn hello(mut stream: TcpStream) -> io::Result<TcpStream> {
    stream.write_all(format!("{HELLO}\n").as_bytes())?;
    Ok(stream)
}

/// The first of several connections that has something to read, or has ended.
fn answered(open: &[TcpStream], wait: Duration) -> Option<usize> {
    let mut fds: Vec<PollFd<'_>> = open.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    // Interrupted: the caller looks at the clock and comes again.
    poll(&mut fds, Some(&timeout)).ok()?;
    fds.iter().position(|fd| !fd.revents().is_empty())
}

/// Reads the answer to a greeting; false if there is none, an error with what was said if it is none.
fn is_greeted(stream: &TcpStream, until: Instant) -> Result<bool, String> {
    let mut answer = Vec::new();
    // Byte by byte, so that nothing behind it is taken; it is one line and nothing is said after it unasked.
    let mut input = Patient { stream, until }.take(4_096);
    let mut byte = [0];
    while !answer.ends_with(b"\n") && input.read(&mut byte).is_ok_and(|n| n > 0) {
        answer.extend_from_slice(&byte);
    }
    let answer = String::from_utf8_lossy(&answer).trim().to_owned();
    match answer.starts_with("SERVER PROTOCOL") {
        true => Ok(true),
        false if answer.is_empty() => Ok(false),
        false => Err(answer),
    }
}

fn enter(path: &std::path::Path) -> Result<(), ReadingError> {
    let trouble = |error: io::Error| {
        ReadingError::Failed(format!(
            "enter the job's network namespace ({}): {error}; it needs CAP_SYS_ADMIN: run as root, or within the \
             container",
            path.display()
        ))
    };
    let namespace = File::open(path).map_err(trouble)?;
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network))
        .map_err(|error| trouble(error.into()))
}

fn connect(address: SocketAddr, until: Instant) -> io::Result<TcpStream> {
    let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    TcpStream::connect_timeout(&address, CONNECT.min(left))
}

fn talk(stream: &TcpStream, as_json: bool, until: Instant, server_s: u64) -> Result<RasAnswer, ReadingError> {
    let failed =
        |what: &'static str| move |error: io::Error| ReadingError::Failed(format!("{what}: {error}"));
    let mut out = stream.try_clone().map_err(failed("hold the connection"))?;
    let mut input = BufReader::new(Patient { stream, until });
    let mut say = |line: &str| -> Result<String, ReadingError> {
        out.write_all(format!("{line}\n").as_bytes()).map_err(failed("ask it"))?;
        let mut answer = Vec::new();
        (&mut input).take(4_096).read_until(b'\n', &mut answer).map_err(|error| {
            ReadingError::Failed(format!("it was asked '{line}' and did not answer: {error}"))
        })?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    };
    // An answer other than OK costs nothing but patience.
    say(&format!("TIMEOUT {server_s}"))?;
    if as_json {
        let answer = say("SET FORMAT json")?;
        if answer != "OK" {
            let said = short(&answer);
            return Err(ReadingError::Absent(format!("NCCL before 2.28.7 has no JSON: it replies '{said}'")));
        }
    }
    out.write_all(b"VERBOSE STATUS\n").map_err(failed("ask for the status"))?;
    let mut report = Vec::new();
    let cut = match input.take(MAX_BYTES).read_to_end(&mut report) {
        Ok(_) if report.len() as u64 == MAX_BYTES => Some(format!("more than {MAX_BYTES} bytes")),
        Ok(_) => None,
        Err(error) => Some(format!("it did not end: {error}")),
    };
    let report = String::from_utf8_lossy(&report).into_owned();
    if report.trim().is_empty() {
        let why = cut.unwrap_or_else(|| "the connection was closed".to_owned());
        return Err(ReadingError::Failed(format!("it accepted the query but sent no report: {why}")));
    }
    Ok(RasAnswer { report, cut })
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

/// A stream that is read until a moment, however slowly it drips.
struct Patient<'s> {
    stream: &'s TcpStream,
    until: Instant,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer by the deadline"));
        }
        self.stream.set_read_timeout(Some(left))?;
        let mut stream = self.stream;
        stream.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "no answer by the deadline"),
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::request::{Peer, Target};

    /// What a service does with each line it gets; None closes the connection after it.
    type Play = fn(&str) -> Option<&'static str>;

    fn serve(listener: TcpListener, play: Play) {
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut out = stream.try_clone().unwrap();
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        let Some(answer) = play(&line) else { return };
                        // Who asks may have left for another.
                        if out.write_all(answer.as_bytes()).is_err()
                            || line == "VERBOSE STATUS" && !answer.is_empty()
                        {
                            return;
                        }
                    }
                });
            }
        });
    }

    fn ask_at(port: u16, purpose: &str, deadline_ms: u64) -> Result<RasAnswer, ReadingError> {
        let peer = Peer {
            host: "127.0.0.1".to_owned(),
            port: Some(port),
            purpose: purpose.to_owned(),
            ..Peer::default()
        };
        let request = Request { peers: vec![peer], deadline_ms, ..Request::default() };
        ask(&request, &addresses(&request)?, &|_| true)
    }

    fn asked(play: Play, purpose: &str, deadline_ms: u64) -> Result<RasAnswer, ReadingError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        serve(listener, play);
        ask_at(port, purpose, deadline_ms)
    }

    /// Listeners that share a port, as NCCL's do.
    fn shared(n: usize) -> Vec<TcpListener> {
        use rustix::net::sockopt::set_socket_reuseport;
        use rustix::net::{AddressFamily, SocketType, bind, listen, socket};
        let mut port = 0;
        let mut listeners = Vec::new();
        for _ in 0..n {
            let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
            set_socket_reuseport(&fd, true).unwrap();
            bind(&fd, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
            listen(&fd, 64).unwrap();
            let listener = TcpListener::from(fd);
            port = listener.local_addr().unwrap().port();
            listeners.push(listener);
        }
        listeners
    }

    /// The kernel completes connections of a process that is stopped: it takes them, and never answers.
    #[test]
    fn a_stopped_process_among_those_that_share_the_port_costs_little() {
        let mut listeners = shared(3);
        let port = listeners[0].local_addr().unwrap().port();
        let stopped = listeners.split_off(1);
        serve(listeners.remove(0), new);
        for purpose in ["text", "json", "text", "text"] {
            let started = Instant::now();
            let answer = ask_at(port, purpose, 6_500).unwrap();
            assert!(answer.report.starts_with("NCCL version"), "{answer:?}");
            assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
        }
        drop(stopped);
    }

    #[test]
    fn where_all_are_stopped_it_ends_in_time_and_says_so() {
        let stopped = shared(2);
        let started = Instant::now();
        let port = stopped[0].local_addr().unwrap().port();
        let Err(ReadingError::Failed(why)) = ask_at(port, "text", 6_500) else { panic!("nobody answers") };
        assert!(why.contains("may be stopped"), "{why}");
        assert!(started.elapsed() < Duration::from_secs(6), "{:?}", started.elapsed());
    }

    fn half(line: &str) -> Option<&'static str> {
        if line == "VERBOSE STATUS" { Some("NCCL version 2.28.9\nJob sum") } else { new(line) }
    }

    /// A report that begins and never ends: what there is of it is kept.
    #[test]
    fn half_a_report_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let mut open = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                open.push(stream.try_clone().unwrap());
                let mut out = stream.try_clone().unwrap();
                thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        let _ = out.write_all(half(&line).unwrap_or_default().as_bytes());
                    }
                });
            }
        });
        let answer = ask_at(port, "text", 3_500).unwrap();
        assert_eq!(answer.report, "NCCL version 2.28.9\nJob sum");
        assert!(answer.cut.unwrap().contains("deadline"));
    }

    #[expect(clippy::unnecessary_wraps, reason = "servers have one form")]
    fn new(line: &str) -> Option<&'static str> {
        Some(match line {
            "CLIENT PROTOCOL 2" => "SERVER PROTOCOL 2\n",
            "VERBOSE STATUS" => "NCCL version 2.28.9 compiled with CUDA 13.0\n\nJob summary\n",
            _ => "OK\n",
        })
    }

    fn old(line: &str) -> Option<&'static str> {
        if line.starts_with("SET FORMAT") { Some("ERROR: Unknown command SET\n") } else { new(line) }
    }

    #[expect(clippy::unnecessary_wraps, reason = "servers have one form")]
    fn mute(_: &str) -> Option<&'static str> {
        Some("")
    }

    fn mute_at_the_end(line: &str) -> Option<&'static str> {
        if line == "VERBOSE STATUS" { Some("") } else { new(line) }
    }

    #[test]
    fn a_report_is_taken_without_the_talk_before_it() {
        let answer = asked(new, "text", 5_000).unwrap();
        assert!(answer.report.starts_with("NCCL version 2.28.9"), "{answer:?}");
        assert_eq!(answer.cut, None);
        assert!(asked(new, "json", 5_000).is_ok());
    }

    #[test]
    fn an_old_one_has_no_json_and_is_told_from_a_failure() {
        let Err(ReadingError::Absent(why)) = asked(old, "json", 5_000) else { panic!("it has none") };
        assert!(why.contains("2.28.7") && why.contains("ERROR: Unknown command SET"), "{why}");
        assert!(asked(old, "text", 5_000).is_ok());
    }

    #[test]
    fn one_that_never_answers_costs_its_deadline() {
        let started = Instant::now();
        let Err(ReadingError::Failed(why)) = asked(mute, "text", 900) else { panic!("nothing came") };
        assert!(why.contains("'CLIENT PROTOCOL 2' and none was answered by the deadline"), "{why}");
        let Err(ReadingError::Failed(why)) = asked(mute_at_the_end, "text", 900) else {
            panic!("nothing came")
        };
        assert!(why.contains("sent no report"), "{why}");
        assert!(started.elapsed() < Duration::from_secs(4));
    }

    /// Of another job, or a port of any other program: the process has no rank here.
    #[test]
    fn who_is_not_of_the_job_is_not_asked() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = Peer { host: "127.0.0.1".to_owned(), port: Some(port), ..Peer::default() };
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for (pid, why) in [(std::process::id(), "has loaded no NCCL"), (other.id(), "not a rank of the job")]
        {
            let target = Target { pids: vec![pid], ..Target::default() };
            let request =
                Request { peers: vec![peer.clone()], target, deadline_ms: 2_000, ..Request::default() };
            let Err(ReadingError::Failed(said)) = take(&request) else { panic!("{pid} was asked") };
            assert!(said.contains(why), "{said}");
        }
        // Fails only if it has ended.
        let _ = other.kill();
        let _ = other.wait();
        assert!(listener.accept().is_err(), "it was connected to");
    }

    #[test]
    fn somebody_else_at_the_port_is_no_service() {
        let Err(ReadingError::Failed(why)) = asked(|_| Some("220 mail ready\n"), "text", 5_000) else {
            panic!()
        };
        assert!(why.contains("not a RAS service"), "{why}");
    }
}
