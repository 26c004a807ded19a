//! A client of NCCL's RAS service (2.24 and later): text lines over TCP, `src/ras/client_support.cc`.
//!
//! ```text
//! CLIENT PROTOCOL 2      SERVER PROTOCOL 2
//! TIMEOUT 10             OK
//! SET FORMAT json        OK, or an error before 2.28.7
//! VERBOSE STATUS         the report, then the server closes
//! ```
//! A process in a container listens in that container's network: this process enters it first.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::probes::Trouble;
use crate::request::Request;

/// Seconds that the service may wait for its peers: two legs of five, as its own client gives it, and some.
const SERVER_S: u64 = 10;
const CONNECT: Duration = Duration::from_secs(2);
/// Largest report that is taken: a hundred bytes for each of a hundred thousand ranks, several times.
const MAX_BYTES: u64 = 64 << 20;
/// What this process keeps for itself of its deadline.
const RESERVE: Duration = Duration::from_millis(500);

/// What the service answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) report: String,
    /// It ended with the connection's end; else why not.
    pub(crate) cut: Option<String>,
}

pub(super) fn take(request: &Request) -> Result<Answer, Trouble> {
    let peer = request.peers.first().ok_or_else(|| Trouble::Failed("no address was named".to_owned()))?;
    let patience = Duration::from_millis(request.deadline_ms).saturating_sub(RESERVE);
    let until = Instant::now() + patience;
    // It waits for two legs: asked to wait longer than we do, it would answer nobody.
    let server_s = (patience.as_secs() / 2).clamp(1, SERVER_S);
    if let Some(pid) = request.target.pids.first() {
        enter(&request.roots.proc.join(pid.to_string()).join("ns/net"))?;
    }
    let address = (peer.host.as_str(), peer.port.unwrap_or(28_028));
    let mut refused = String::new();
    let addresses = address
        .to_socket_addrs()
        .map_err(|error| Trouble::Failed(format!("resolve {}: {error}", peer.host)))?;
    for address in addresses {
        match connect(address, until) {
            Ok(stream) => return talk(stream, peer.purpose == "json", until, server_s),
            Err(error) => refused = format!("connect to {address}: {error}"),
        }
    }
    Err(Trouble::Failed(format!(
        "{refused}; nobody listens there: NCCL before 2.24, NCCL_RAS_ENABLE=0, another user's job, or a job that has \
         not called NCCL yet"
    )))
}

fn enter(path: &std::path::Path) -> Result<(), Trouble> {
    let trouble = |error: io::Error| {
        Trouble::Failed(format!(
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

fn talk(stream: TcpStream, as_json: bool, until: Instant, server_s: u64) -> Result<Answer, Trouble> {
    let failed = |what: &'static str| move |error: io::Error| Trouble::Failed(format!("{what}: {error}"));
    let mut out = stream.try_clone().map_err(failed("hold the connection"))?;
    let mut input = BufReader::new(Patient { stream, until });
    let mut say = |line: &str| -> Result<String, Trouble> {
        out.write_all(format!("{line}\n").as_bytes()).map_err(failed("ask it"))?;
        let mut answer = Vec::new();
        (&mut input)
            .take(4_096)
            .read_until(b'\n', &mut answer)
            .map_err(|error| Trouble::Failed(format!("it was asked '{line}' and did not answer: {error}")))?;
        Ok(String::from_utf8_lossy(&answer).trim().to_owned())
    };
    let hello = say("CLIENT PROTOCOL 2")?;
    if !hello.starts_with("SERVER PROTOCOL") {
        return Err(Trouble::Failed(format!("it is no RAS service: it greets with '{}'", short(&hello))));
    }
    // An answer other than OK costs nothing but patience.
    say(&format!("TIMEOUT {server_s}"))?;
    if as_json {
        let answer = say("SET FORMAT json")?;
        if answer != "OK" {
            let said = short(&answer);
            return Err(Trouble::Absent(format!("NCCL before 2.28.7 gives no JSON: it says '{said}'")));
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
        return Err(Trouble::Failed(format!("it took the question and gave no report: {why}")));
    }
    Ok(Answer { report, cut })
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

/// A stream that is read until a moment, however slowly it drips.
struct Patient {
    stream: TcpStream,
    until: Instant,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer by the deadline"));
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer).map_err(|error| match error.kind() {
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
    use crate::request::Peer;

    /// What a service does with each line it gets; None closes the connection after it.
    type Play = fn(&str) -> Option<&'static str>;

    fn ask(play: Play, purpose: &str, deadline_ms: u64) -> Result<Answer, Trouble> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut out = stream.try_clone().unwrap();
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let Some(answer) = play(&line) else { return };
                out.write_all(answer.as_bytes()).unwrap();
                if line == "VERBOSE STATUS" && !answer.is_empty() {
                    return;
                }
            }
        });
        let peer = Peer {
            host: "127.0.0.1".to_owned(),
            port: Some(port),
            purpose: purpose.to_owned(),
            ..Peer::default()
        };
        take(&Request { peers: vec![peer], deadline_ms, ..Request::default() })
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
        let answer = ask(new, "text", 5_000).unwrap();
        assert!(answer.report.starts_with("NCCL version 2.28.9"), "{answer:?}");
        assert_eq!(answer.cut, None);
        assert!(ask(new, "json", 5_000).is_ok());
    }

    #[test]
    fn an_old_one_has_no_json_and_is_told_from_a_failure() {
        let Err(Trouble::Absent(why)) = ask(old, "json", 5_000) else { panic!("it has none") };
        assert!(why.contains("2.28.7") && why.contains("ERROR: Unknown command SET"), "{why}");
        assert!(ask(old, "text", 5_000).is_ok());
    }

    #[test]
    fn one_that_never_answers_costs_its_deadline() {
        let started = Instant::now();
        let Err(Trouble::Failed(why)) = ask(mute, "text", 900) else { panic!("nothing came") };
        assert!(why.contains("'CLIENT PROTOCOL 2' and did not answer: no answer by the deadline"), "{why}");
        let Err(Trouble::Failed(why)) = ask(mute_at_the_end, "text", 900) else { panic!("nothing came") };
        assert!(why.contains("gave no report"), "{why}");
        assert!(started.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn somebody_else_at_the_port_is_no_service() {
        let Err(Trouble::Failed(why)) = ask(|_| Some("220 mail ready\n"), "text", 5_000) else { panic!() };
        assert!(why.contains("no RAS service"), "{why}");
    }
}
