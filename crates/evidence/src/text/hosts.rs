//! On which machine the lines of a text were printed.
//!
//! ```text
//! user@node3:~/run$ nvidia-smi            what follows was printed on node3, up to the next prompt
//! node3$ dmesg | tail
//! $ ssh node3 'dmesg | tail'
//! srun: error: node3: task 4: Killed      this line is about node3
//! #  Rank  1 Group  0 Pid  20411 on  node3 device  1 [0x61] NVIDIA H100
//! (Worker pid=744, ip=10.1.59.27) …      and this one was printed there
//! ```
//! Read in the first lines of a source, where people paste what they saw.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use ringleader_model::{Cite, Fact, HostAt, HostReach, Who};

use crate::ground::shell::{is_host, is_numbered, prompt};
use crate::ground::{Line, Sink, host_of, lossy};

/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 400;
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
}

impl HostReader {
    /// Looks at a line.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        let raw = line.raw;
        if raw.len() > MAX_BYTES || raw.len() < 4 || self.marks.len() == MAX_MARKS || !may_show(raw) {
            return;
        }
        let text = lossy(raw);
        let Some((host, reach)) =
            prompt(&text).map(|prompt| (prompt.host, HostReach::Session)).or_else(|| {
                let host = about(&text)?;
                Some((Some(host), HostReach::Line))
            })
        else {
            return;
        };
        let host = host.map(host_of);
        let same = |last: &HostAt| last.reach == HostReach::Session && last.host == host;
        if reach == HostReach::Session && self.marks.iter().rev().find(|m| m.reach == reach).is_some_and(same)
        {
            return;
        }
        if self.first.is_none() {
            self.first = Some((sink.cite(line.number, line.offset, line.end()), raw.to_vec()));
        }
        self.marks.push(HostAt { line: line.number, host, reach });
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let marks = std::mem::take(&mut self.marks);
        if let Some((cite, text)) = self.first.take().filter(|_| marks.iter().any(|m| m.host.is_some())) {
            sink.push(cite, Who::default(), None, Fact::Hosts(marks.into()), &text);
        }
    }
}

/// Whether a line may name its machine.
fn may_show(raw: &[u8]) -> bool {
    static NEEDLES: LazyLock<[Finder<'static>; 7]> =
        LazyLock::new(|| ["$ ", "# ", "% ", "srun: error: ", " on ", "host ", ", ip="].map(Finder::new));
    raw.first() == Some(&b'[') || NEEDLES.iter().any(|needle| needle.find(raw).is_some())
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
    // The table of torch's elastic launcher.
    let (key, name) = text.split_once(':')?;
    (key.trim() == "host" && is_host(name.trim())).then(|| name.trim())
}

#[cfg(test)]
mod tests {
    use super::about;

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
        ] {
            assert_eq!(about(line), expected, "{line}");
        }
    }
}
