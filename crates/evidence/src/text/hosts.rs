//! On which machine the lines of a text were printed.
//!
//! ```text
//! user@node3:~/run$ nvidia-smi            what follows was printed on node3, up to the next prompt
//! node3$ dmesg | tail
//! $ ssh node3 'dmesg | tail'
//! srun: error: node3: task 4: Killed      this line is about node3
//! $ for h in node3 node4; do echo "== $h"; ssh $h uptime; done
//! == node3                                what follows was printed there; a name between two rules likewise
//! node4: NVIDIA H100, 96 %                and this line
//! == node3, rank 0 ==                     so it may have been, if something else names this machine
//! $ hostname                              the next line names the shell's machine
//! #  Rank  1 Group  0 Pid  20411 on  node3 device  1 [0x61] NVIDIA H100
//! (Worker pid=744, ip=10.1.59.27) …      and this one was printed there
//! ```
//! Read in the first lines of a source, where people paste what they saw.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use ringleader_model::{Cite, Fact, Host, HostAt, HostReach, Who};

use crate::ground::shell::{is_host, is_numbered, prompt};
use crate::ground::{Line, Sink, host_of, lossy};

/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 400;
/// Machines of one loop, and the longest line that names one of them alone.
const MAX_LOOPED: usize = 256;
const MAX_HEADING: usize = 80;
/// Changes of one source.
const MAX_MARKS: usize = 512;
/// What a tag in brackets names where it names no machine.
const NO_HOSTS: [&str; 16] = [
    "rank", "default", "gpu", "cuda", "step", "epoch", "iter", "layer", "stage", "tp", "pp", "dp", "ep",
    "trainer", "v", "worker",
];

/// The machines of one source.
#[derive(Default)]
pub(super) struct HostReader {
    first: Option<(Cite, Vec<u8>)>,
    marks: Vec<HostAt>,
    /// Machines over which a loop of the shell goes.
    looped: Vec<Box<str>>,
    /// Whether a rule came before, as `clush -b` and `dshbak` print one on both sides of a name.
    is_below_rule: bool,
    /// The line before asked for the name of the machine, in a shell whose prompt does not tell it.
    has_asked: bool,
    /// The machines of those shells, as they answer.
    own: BTreeSet<Host>,
}

impl HostReader {
    /// Looks at a line.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        let raw = line.raw;
        let has_asked = std::mem::take(&mut self.has_asked);
        if raw.len() > MAX_BYTES || raw.len() < 2 || self.marks.len() == MAX_MARKS {
            return;
        }
        if has_asked {
            self.answer(raw);
        }
        if let Some((name, reach)) = self.heading(raw) {
            self.mark(line, Some(host_of(&name)), reach, sink);
            return;
        }
        if let Some(name) = self.label(raw) {
            self.mark(line, Some(host_of(&name)), HostReach::Line, sink);
            return;
        }
        if !may_show(raw) {
            return;
        }
        let text = lossy(raw);
        if let Some(names) = looped(&text) {
            self.looped = names.filter(|name| is_host(name)).take(MAX_LOOPED).map(Into::into).collect();
        }
        let prompt = prompt(&text);
        self.has_asked = prompt.as_ref().is_some_and(|prompt| prompt.host.is_none()) && asks(&text);
        let Some((host, reach)) = prompt.map(|prompt| (prompt.host, HostReach::Session)).or_else(|| {
            let host = about(&text)?;
            Some((Some(host), HostReach::Line))
        }) else {
            return;
        };
        self.mark(line, host.map(host_of), reach, sink);
    }

    fn mark(&mut self, line: &Line<'_>, host: Option<Host>, reach: HostReach, sink: &Sink<'_>) {
        let same = |last: &HostAt| last.reach == reach && last.host == host;
        if reach != HostReach::Line
            && self.marks.iter().rev().find(|m| m.reach != HostReach::Line).is_some_and(same)
        {
            return;
        }
        if self.first.is_none() {
            self.first = Some((sink.cite(line.number, line.offset, line.end()), line.raw.to_vec()));
        }
        self.marks.push(HostAt { line: line.number, host, reach });
    }

    /// What `hostname` printed.
    fn answer(&mut self, raw: &[u8]) {
        let name = std::str::from_utf8(raw.trim_ascii()).ok().filter(|name| is_host(name) && is_name(name));
        self.own.extend(name.map(host_of));
    }

    /// The machine that a line alone names: one of a loop (`== node3`), or between two rules. What stands in a heading elsewhere
    /// may be anything.
    fn heading(&mut self, raw: &[u8]) -> Option<(Box<str>, HostReach)> {
        let bare = raw.trim_ascii();
        let is_rule = bare.len() >= 8 && bare.iter().all(|b| *b == b'-');
        let is_below_rule = std::mem::replace(&mut self.is_below_rule, is_rule);
        let n_marks = bare.iter().take_while(|b| matches!(b, b'=' | b'-' | b'#')).count();
        let is_marked = n_marks > 1 && bare.get(n_marks) == Some(&b' ');
        if bare.len() > MAX_HEADING || is_rule || !is_below_rule && self.looped.is_empty() && !is_marked {
            return None;
        }
        let text = std::str::from_utf8(bare).ok()?;
        if is_below_rule && is_host(text) && is_numbered(text) {
            return Some((text.into(), HostReach::Session));
        }
        let name = text.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let first = name.split([' ', ',', ':', '(']).next()?;
        let is_looped = |host: &str| host == name || is_marked && host == first;
        if let Some(host) = self.looped.iter().find(|host| is_looped(host)) {
            return Some((host.clone(), HostReach::Session));
        }
        (is_marked && is_host(first) && is_name(first)).then(|| (first.into(), HostReach::Heading))
    }

    /// The machine of a loop that labels its line: `node3: NVIDIA H100, 96 %`.
    fn label(&self, raw: &[u8]) -> Option<Box<str>> {
        let name = raw.split(|b| *b == b':').next()?;
        let is_label = raw.get(name.len()..)?.starts_with(b": ");
        self.looped.iter().find(|host| is_label && host.as_bytes() == name).cloned()
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let mut marks = std::mem::take(&mut self.marks);
        // Two answers are of two machines.
        let own = std::mem::take(&mut self.own);
        if let (1, Some(own)) = (own.len(), own.first()) {
            let nameless = marks.iter_mut().filter(|mark| mark.host.is_none());
            nameless.for_each(|mark| mark.host = Some(own.clone()));
        }
        if let Some((cite, text)) = self.first.take().filter(|_| marks.iter().any(|m| m.host.is_some())) {
            sink.push(cite, Who::default(), None, Fact::Hosts(marks.into()), &text);
        }
    }
}

/// `node1 node2` of `for h in node1 node2; do …`.
fn looped(text: &str) -> Option<impl Iterator<Item = &str>> {
    let (before, rest) = text.split_once("for ")?;
    let (variable, rest) = rest.split_once(" in ")?;
    let (list, _) = rest.split_once(';')?;
    let is_word = !variable.is_empty() && variable.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let is_command = before.is_empty() || before.ends_with(' ');
    (is_word && is_command).then(|| list.split_ascii_whitespace())
}

/// Whether a command asks for the name of its machine alone, or first.
fn asks(text: &str) -> bool {
    let command = text.trim().trim_start_matches("$ ");
    let mut words = command.split([' ', ';', '&']).filter(|word| !word.is_empty());
    let is_other = |word: &str| word.starts_with('-') && !matches!(word, "-s" | "-f" | "-n");
    matches!(words.next(), Some("hostname" | "uname"))
        && !words.next().is_some_and(is_other)
        && (command.starts_with("hostname") || command.starts_with("uname -n"))
}

/// Whether a word is a name, and no address or number.
fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Whether a line may name its machine.
fn may_show(raw: &[u8]) -> bool {
    static NEEDLES: LazyLock<[Finder<'static>; 8]> = LazyLock::new(|| {
        ["$ ", "# ", "% ", "srun: error: ", " on ", "host ", ", ip=", "ode: "].map(Finder::new)
    });
    raw.first() == Some(&b'[')
        || raw.starts_with(b"for ")
        || NEEDLES.iter().any(|needle| needle.find(raw).is_some())
}

/// The machine that a launcher's or a program's line is about.
fn about(text: &str) -> Option<&str> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("srun: error: ") {
        let (name, _) = rest.split_once(": ")?;
        return is_host(name).then_some(name);
    }
    if text.starts_with('#') && text.contains(" Pid ") {
        let (_, rest) = text.split_once(" on ")?;
        let name = rest.split_ascii_whitespace().next()?;
        return is_host(name).then_some(name);
    }
    if let Some(rest) = text.strip_prefix('[') {
        // `[node3] …`, `[node3:4711] …`; not `[rank3]`.
        let (tag, _) = rest.split_once(']')?;
        let (name, pid) = tag.split_once(':').unwrap_or((tag, "0"));
        let is_tag = pid.bytes().all(|b| b.is_ascii_digit()) && is_host(name) && is_numbered(name);
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
        return (is_tag && !NO_HOSTS.contains(&stem.to_ascii_lowercase().as_str())).then_some(name);
    }
    if let Some(rest) = text.strip_prefix('(') {
        // Ray's workers and daemons.
        let (tag, _) = rest.split_once(')')?;
        let (_, address) = tag.split_once(", ip=")?;
        let address = address.split(',').next()?;
        return address.parse::<std::net::IpAddr>().is_ok().then_some(address);
    }
    if let Some(rest) = text.strip_prefix("ssh: connect to host ") {
        let name = rest.split_ascii_whitespace().next()?;
        return is_host(name).then_some(name);
    }
    if let Some((_, rest)) = text.split_once("initialized host ") {
        // fairseq.
        let (name, rest) = rest.split_once(' ')?;
        return (rest.starts_with("as rank ") && is_host(name)).then_some(name);
    }
    if let Some((before, rest)) = text.split_once(" on node ")
        && before.trim_start().starts_with("Remote daemon")
    {
        return is_host(rest.trim()).then(|| rest.trim());
    }
    if let Some((_, rest)) = text.split_once("unning on ") {
        let rest = rest.strip_prefix("node ").unwrap_or(rest);
        let name = rest.split([' ', ',', ':', '(']).next()?;
        return (is_host(name) && is_numbered(name)).then_some(name);
    }
    // The table of torch's elastic launcher, and the first line of many a batch script.
    let (key, name) = text.split_once(':')?;
    let (key, name) = (key.trim(), name.trim());
    let is_node = matches!(key, "node" | "Node") && is_numbered(name);
    ((key == "host" || is_node) && is_host(name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, HostReach};

    use super::about;
    use crate::{Limits, Scratch};

    /// Line and name of each machine whose output begins.
    fn sessions(text: &str) -> Vec<(u32, String)> {
        marks(text, HostReach::Session)
    }

    fn marks(text: &str, reach: HostReach) -> Vec<(u32, String)> {
        let read = crate::read("out.txt", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default());
        let marks = read.observations.iter().find_map(|o| match &o.fact {
            Fact::Hosts(marks) => Some(marks.clone()),
            _ => None,
        });
        let of = |m: &super::HostAt| (m.line, m.host.as_deref().unwrap_or("-").to_owned());
        marks.iter().flatten().filter(|m| m.reach == reach).map(of).collect()
    }

    #[test]
    fn headings_of_loops_and_between_rules() {
        let text = "$ for h in gx01 gx02; do echo \"== $h\"; ssh $h uptime; done\n== gx01\nup 1 day\n=== gx02 ===\nup 2 days\n== run2\n";
        let named = sessions(text);
        assert!(named.ends_with(&[(2, "gx01".into()), (4, "gx02".into())]), "{named:?}");
        let rules = "$ clush -b uptime\n---------------\ngx07\n---------------\nup 3 days\n";
        assert!(sessions(rules).ends_with(&[(3, "gx07".into())]));
        assert!(
            !sessions("$ uptime\n---------------\nsummary\n---------------\nx\n")
                .iter()
                .any(|(line, _)| *line > 1)
        );
    }

    #[test]
    fn loops_without_a_prompt_and_labels() {
        let text = "for h in gx01 gx02; do ssh $h nvidia-smi; done\ngx01: NVIDIA H100, 96 %\ngx03: NVIDIA H100, 3 %\n\
                    == gx02 19:58\nup 2 days\n";
        assert_eq!(marks(text, HostReach::Session), [(4, "gx02".into())]);
        assert_eq!(marks(text, HostReach::Line), [(2, "gx01".into())]);
        // It may be a machine, and it may be a run.
        let both = "root@gx01:~# ls\n== gx02, rank 1 ==\n-- 3 --\n";
        assert_eq!(marks(both, HostReach::Heading), [(2, "gx02".into())]);
    }

    #[test]
    fn a_shell_that_is_asked_for_its_name() {
        let text = "$ uptime\n up 2 days\n$ hostname\ntrainbox2\n$ nvidia-smi -L\n";
        assert_eq!(sessions(text), [(1, "trainbox2".into())]);
        assert_eq!(sessions("$ hostname -I\n10.0.0.1\n$ ls\n"), []);
        assert_eq!(sessions("$ hostname\nbox1\n$ hostname\nbox2\n"), []);
    }

    #[test]
    fn lines_about_a_machine() {
        for (line, expected) in [
            ("srun: error: gh-n021: task 1: Exited with exit code 3", Some("gh-n021")),
            ("#  Rank  1 Group  0 Pid  20411 on   ws-ada01 device  1 [0x61] NVIDIA", Some("ws-ada01")),
            ("  host      : cn-252", Some("cn-252")),
            ("[node11] [2025-02-21 03:11:10 TP8] sglang is using nccl==2.21.5", Some("node11")),
            ("[ws-dual2:09057] [[48500,0],1] ORTE_ERROR_LOG", Some("ws-dual2")),
            ("[rank3]: RuntimeError", None),
            ("[E714 06:12:44.041729946 ProcessGroupNCCL.cpp:632] [Rank 0]", None),
            ("mfc: Running on gpu-b1-07 (partition gpu-l40s)", Some("gpu-b1-07")),
            ("running on node cn-17, 8 tasks", Some("cn-17")),
            ("srun: error: Unable to allocate resources: Invalid account", None),
            ("the host : is down today", None),
            ("(WorkerDict pid=744, ip=10.1.59.27) [rank9]: RuntimeError", Some("10.1.59.27")),
            ("(WorkerDict pid=744) step 12, ip=on", None),
            ("ssh: connect to host gpu-07 port 22: Connection refused", Some("gpu-07")),
            ("| initialized host nmt-gpu2 as rank 0", Some("nmt-gpu2")),
            ("  Remote daemon: [[43015,0],20] on node lr-worker-19", Some("lr-worker-19")),
            ("running on 8 GPUs", None),
            ("node: mi300-b07", Some("mi300-b07")),
            ("node: 3", None),
            ("node: down for service", None),
        ] {
            assert_eq!(about(line), expected, "{line}");
        }
    }
}
