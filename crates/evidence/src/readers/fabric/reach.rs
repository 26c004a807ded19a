//! Paths tried: nc, ncat, ping, perftest; and who listens: ss, netstat.

use ringleader_model::{NetFact, Perftest, Pid, Reach, ReachOutcome};

use super::{FabricForm, FabricReader, OpenBlock};
use crate::ground::{Line, Sink, shell};

/// Rows of perftest that are kept.
const MAX_ROWS: usize = 100;

/// What perftest says when it fails.
const FAILURES: [&str; 7] = [
    "Couldn't connect to ",
    "Couldn't allocate MR",
    "Couldn't create QP",
    "Unable to Connect the HCA's",
    "Failed to modify QP",
    "Failed status ",
    "Completion with error at ",
];

impl FabricReader {
    /// `LISTEN 0 128 0.0.0.0:29500 0.0.0.0:*`, with or without `tcp` before it; netstat has the state last.
    pub(super) fn listener(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let local = match words.as_slice() {
            ["LISTEN", _, _, local, _, ..] | [_, "LISTEN", _, _, local, _, ..] => local,
            ["tcp" | "tcp6", _, _, local, _, "LISTEN", ..] => local,
            _ => return false,
        };
        if local.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            return false;
        }
        let holder = words.iter().skip(4).find_map(|w| holder(w));
        self.push(NetFact::Listener { local: (*local).into(), holder }, line, sink);
        true
    }

    /// Sentences of nc, ncat, bash and ping.
    pub(super) fn reach(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(rest) = text.strip_prefix("PING ") {
            // `PING node1 (192.0.2.3) 8972(9000) bytes of data.`
            let mut words = rest.split_ascii_whitespace();
            let (host, _) = (words.next().unwrap_or_default(), words.next());
            let payload = words.next().and_then(|w| w.split('(').next()?.parse().ok());
            let reach =
                Reach { tool: "ping".into(), host: host.into(), payload_bytes: payload, ..Reach::default() };
            self.open(FabricForm::Ping, NetFact::Reach(reach), line, sink);
            return true;
        }
        let Some(reach) =
            nc(text).or_else(|| ping_failure(text)).or_else(|| self.ncat(text)).or_else(|| bash(text))
        else {
            return false;
        };
        self.push(NetFact::Reach(reach), line, sink);
        true
    }

    /// `Ncat: Connection refused.`: whom is in the command alone.
    fn ncat(&self, text: &str) -> Option<Reach> {
        let rest = text.strip_prefix("Ncat: ")?;
        let outcome = if let Some(to) = rest.strip_prefix("Connected to ") {
            let (host, port) = to.trim_end_matches('.').rsplit_once(':')?;
            return Some(Reach {
                tool: "nc".into(),
                host: host.into(),
                port: port.parse().ok(),
                outcome: ReachOutcome::Answers,
                ..Reach::default()
            });
        } else {
            outcome(rest.trim_end_matches('.'))?
        };
        let command = self.asked.as_deref().filter(|c| shell::runs(c, "nc") || shell::runs(c, "ncat"))?;
        let mut words = command.split_ascii_whitespace().rev();
        let (port, host) = (words.next()?, words.next()?);
        Some(Reach {
            tool: "nc".into(),
            host: host.into(),
            port: port.parse().ok(),
            outcome,
            ..Reach::default()
        })
    }

    /// `4 packets transmitted, 0 received, 100% packet loss, time 3054ms`, where its heading is not there.
    pub(super) fn ping_summary(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(outcome) = loss(text) else { return false };
        let host = self.asked.as_deref().filter(|c| shell::runs(c, "ping"));
        let host = host.and_then(|c| c.split_ascii_whitespace().next_back()).unwrap_or_default();
        let reach = Reach { tool: "ping".into(), host: host.into(), outcome, ..Reach::default() };
        self.push(NetFact::Reach(reach), line, sink);
        true
    }

    /// `RDMA_Write BW Test`, and failures without it.
    pub(super) fn perftest(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if text.ends_with(" BW Test") && text.len() < 60 {
            let test = Perftest { test: text.into(), ..Perftest::default() };
            self.open(FabricForm::Perftest, NetFact::Perftest(test), line, sink);
            return true;
        }
        let by_perftest = self.asked.as_deref().is_some_and(|c| c.contains("ib_"));
        if by_perftest && FAILURES.iter().any(|f| text.starts_with(f)) {
            let failure = Some((line.number, text.into()));
            self.push(NetFact::Perftest(Perftest { failure, ..Perftest::default() }), line, sink);
            return true;
        }
        false
    }

    /// The heading of the table, where the one above it is not there.
    pub(super) fn perftest_table(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if !(text.starts_with("#bytes") && text.contains("BW average[")) {
            return false;
        }
        self.open(FabricForm::Perftest, NetFact::Perftest(Perftest::default()), line, sink);
        self.open.as_mut().is_some_and(|open| perftest_line(open, text, line.number))
    }
}

/// A line below perftest's heading. Megabytes are 2^20 bytes there, gigabits 10^9.
pub(super) fn perftest_line(open: &mut OpenBlock, text: &str, line: u32) -> bool {
    let NetFact::Perftest(test) = &mut open.fact else { return false };
    if text.starts_with("#bytes") {
        open.in_gigabits = Some(text.contains("[Gb/sec]"));
        return true;
    }
    if let Some((_, device)) = text.split_once("Device         : ") {
        test.device = device.split_ascii_whitespace().next().map(Into::into);
        return true;
    }
    if FAILURES.iter().any(|f| text.starts_with(f)) {
        test.failure.get_or_insert((line, text.into()));
        return true;
    }
    let Some(in_gigabits) = open.in_gigabits else { return text.contains(" : ") || text.starts_with("---") };
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [bytes, _, _, average, ..] = words.as_slice() else { return text.starts_with("---") };
    let (Ok(bytes), Ok(average)) = (bytes.parse(), average.parse::<f64>()) else { return false };
    let gbps = if in_gigabits { average } else { average * 8.0 * 1_048_576.0 / 1e9 };
    if test.rows.len() < MAX_ROWS && gbps.is_finite() {
        test.rows.push((line, bytes, gbps));
    }
    true
}

/// A line below `PING …`.
pub(super) fn ping_line(open: &mut OpenBlock, text: &str) -> bool {
    let NetFact::Reach(reach) = &mut open.fact else { return false };
    if let Some(outcome) = loss(text) {
        // A statement of why is worth more than that nothing came back.
        if !matches!(reach.outcome, ReachOutcome::NoRoute) || outcome == ReachOutcome::Answers {
            reach.outcome = outcome;
        }
        return true;
    }
    if text.contains("Frag needed") || text.contains("message too long") {
        let mtu = text.split_once("mtu").map(|(_, rest)| rest.trim_start_matches([' ', '=']));
        let digits = mtu.map(|m| m.chars().take_while(char::is_ascii_digit).collect::<String>());
        reach.too_large_for = digits.and_then(|d| d.parse().ok()).or(reach.too_large_for);
        return true;
    }
    if text.contains("Destination Host Unreachable") || text.contains("Destination Net Unreachable") {
        reach.outcome = ReachOutcome::NoRoute;
        return true;
    }
    text.contains(" bytes from ") || text.starts_with("rtt min/avg/max") || text.starts_with("--- ")
}

/// `4 packets transmitted, 3 received, 25% packet loss, time 3054ms`.
fn loss(text: &str) -> Option<ReachOutcome> {
    let (before, _) = text.split_once("% packet loss")?;
    if !text.contains(" packets transmitted") {
        return None;
    }
    let percent: f64 = before.rsplit([' ', ',']).next()?.parse().ok()?;
    Some(match percent {
        p if p <= 0.0 => ReachOutcome::Answers,
        p if p >= 100.0 => ReachOutcome::TimedOut,
        p => ReachOutcome::Lossy(p.clamp(1.0, 99.0) as u8),
    })
}

/// `users:(("python3",pid=4242,fd=7),…)` of ss, `4242/python3` of netstat. A socket that several processes have open was
/// handed on by the first one.
fn holder(word: &str) -> Option<(Box<str>, Pid)> {
    if let Some(rest) = word.strip_prefix("users:((\"") {
        let (name, rest) = rest.split_once('"')?;
        let pid = rest.strip_prefix(",pid=")?.split([',', ')']).next()?;
        return Some((name.into(), Pid(pid.parse().ok()?)));
    }
    let (pid, name) = word.split_once('/')?;
    Some((name.trim_end_matches(':').into(), Pid(pid.parse().ok()?))).filter(|_| !name.is_empty())
}

fn outcome(words: &str) -> Option<ReachOutcome> {
    let has = |part: &str| words.contains(part);
    Some(if has("refused") {
        ReachOutcome::Refused
    } else if has("timed out") || has("TIMEOUT") {
        ReachOutcome::TimedOut
    } else if has("No route to host") || has("unreachable") {
        ReachOutcome::NoRoute
    } else if has("Name or service not known") || has("name resolution") {
        ReachOutcome::UnknownHost
    } else {
        return None;
    })
}

/// OpenBSD's and the traditional netcat.
fn nc(text: &str) -> Option<Reach> {
    let reach = |host: &str, port: &str, outcome| Reach {
        tool: "nc".into(),
        host: host.into(),
        port: port.parse().ok(),
        outcome,
        ..Reach::default()
    };
    if let Some(rest) = text.strip_prefix("Connection to ") {
        // `Connection to 192.0.2.3 29500 port [tcp/*] succeeded!`, `(192.0.2.3)` in newer ones.
        let words: Vec<&str> = rest.strip_suffix(" succeeded!")?.split_ascii_whitespace().collect();
        let port = words.iter().skip(1).find(|w| w.bytes().all(|b| b.is_ascii_digit()))?;
        return Some(reach(words.first()?, port, ReachOutcome::Answers));
    }
    if let Some(rest) = text.strip_prefix("nc: connect to ") {
        let (whom, why) = rest.split_once(" failed: ")?;
        let words: Vec<&str> = whom.split_ascii_whitespace().collect();
        let port = words.iter().skip(1).find(|w| w.bytes().all(|b| b.is_ascii_digit()))?;
        return Some(reach(words.first()?, port, outcome(why)?));
    }
    if let Some(rest) = text.strip_prefix("(UNKNOWN) [") {
        let (host, rest) = rest.split_once("] ")?;
        let (port, why) = rest.split_once(' ')?;
        return Some(reach(host, port, outcome(why)?));
    }
    None
}

/// `bash: connect: …` names nobody; `bash: /dev/tcp/192.0.2.3/29500: Connection refused` does.
fn bash(text: &str) -> Option<Reach> {
    let (_, rest) = text.strip_prefix("bash: ")?.split_once("/dev/tcp/")?;
    let (whom, why) = rest.split_once(": ")?;
    let (host, port) = whom.split_once('/')?;
    Some(Reach {
        tool: "bash".into(),
        host: host.into(),
        port: port.parse().ok(),
        outcome: outcome(why)?,
        ..Reach::default()
    })
}

/// `ping: node7: Name or service not known`, `ping: connect: Network is unreachable`.
fn ping_failure(text: &str) -> Option<Reach> {
    let rest = text.strip_prefix("ping: ")?;
    if let Some(mtu) = rest.strip_prefix("local error: message too long, mtu=") {
        let too_large_for = mtu.trim().parse().ok();
        return Some(Reach { tool: "ping".into(), too_large_for, ..Reach::default() });
    }
    let (host, why) = rest.split_once(": ")?;
    let host = if host == "connect" { "" } else { host };
    Some(Reach { tool: "ping".into(), host: host.into(), outcome: outcome(why)?, ..Reach::default() })
}
