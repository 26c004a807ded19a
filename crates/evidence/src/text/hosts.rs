//! On which machine the lines of a text were printed.
//!
//! ```text
//! user@node3:~/run$ nvidia-smi            what follows was printed on node3, up to the next prompt
//! node3$ dmesg | tail
//! $ ssh node3 'dmesg | tail'
//! srun: error: node3: task 4: Killed      this line is about node3
//! #  Rank  1 Group  0 Pid  20411 on  node3 device  1 [0x61] NVIDIA H100
//! ```
//! Read in the first lines of a source, where people paste what they saw.

use ringleader_model::{Fact, Host, HostAt, HostReach, Who};

use crate::ground::{Line, Sink, lossy};

/// Longest line that is looked at, and longest prompt, bytes.
const MAX_BYTES: usize = 400;
const MAX_PROMPT_BYTES: usize = 80;
/// Changes of one source.
const MAX_MARKS: usize = 512;
/// Flags of `srun`, `kubectl`, `docker` and `ssh` that take an argument.
const WITH_ARGUMENT: [&str; 12] =
    ["-p", "-i", "-l", "-o", "-n", "-c", "-N", "-J", "-F", "-u", "--container", "--namespace"];
/// Flags that name the machine of a command.
const NODE_FLAGS: [&str; 4] = ["-w", "--nodelist", "--node", "--host"];

/// What a tag in brackets names where it names no machine.
const NO_HOSTS: [&str; 16] = [
    "rank", "default", "gpu", "cuda", "step", "epoch", "iter", "layer", "stage", "tp", "pp", "dp", "ep",
    "trainer", "v", "worker",
];

/// The machines of one source.
#[derive(Default)]
pub(super) struct HostReader {
    first: Option<(ringleader_model::Cite, Vec<u8>)>,
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
        let Some((host, reach)) = session(&text).map(|prompt| (prompt.0, HostReach::Session)).or_else(|| {
            let host = about(&text)?;
            Some((Some(host), HostReach::Line))
        }) else {
            return;
        };
        let host = host.map(Host::from);
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
    let has = |word: &[u8]| memchr::memmem::find(raw, word).is_some();
    has(b"$ ")
        || has(b"# ")
        || has(b"% ")
        || has(b"srun: error: ")
        || has(b" on ")
        || raw.first() == Some(&b'[')
        || has(b"host ")
}

/// A prompt, and the machine on which its command runs, if it is named.
#[derive(Debug, PartialEq)]
struct Prompt<'a>(Option<&'a str>);

/// The prompt that a line begins with.
fn session(text: &str) -> Option<Prompt<'_>> {
    let text = text.trim();
    let (prompt, command) = if let Some(command) = text.strip_prefix("$ ") {
        ("", command)
    } else {
        let at = ["$ ", "# ", "% "].iter().filter_map(|mark| text.find(mark)).min()?;
        let (prompt, rest) = text.split_at_checked(at)?;
        (prompt, rest.get(2..)?)
    };
    let command = command.trim();
    if prompt.len() > MAX_PROMPT_BYTES || command.is_empty() {
        return None;
    }
    let own = if prompt.is_empty() {
        // A heading, too, begins with `# `.
        if !text.starts_with('$') {
            return None;
        }
        None
    } else {
        Some(of_prompt(prompt, text)?)
    };
    Some(Prompt(elsewhere(command).or(own)))
}

/// The machine in `user@node3:~/run`, `[user@node3 run]`, `(env) user@node3 run` or `node3`.
fn of_prompt<'a>(prompt: &'a str, text: &str) -> Option<&'a str> {
    let is_root_or_user = text.get(prompt.len()..)?.starts_with(['$', '#', '%']);
    if let Some((before, after)) = prompt.split_once('@') {
        let user = before.rsplit([' ', '[']).next().unwrap_or_default();
        let lead = before.strip_suffix(user)?.trim_end();
        if !(lead.is_empty() || lead.ends_with([')', '[', ']'])) {
            return None;
        }
        let is_user =
            !user.is_empty() && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        let host = after.split([':', ' ', ']', '~']).next()?;
        return (is_user && is_host(host) && is_root_or_user).then_some(host);
    }
    let (name, path) = prompt.split_once(':').unwrap_or((prompt, ""));
    let is_dollar = text.get(prompt.len()..)?.starts_with('$');
    let has_path = path.starts_with(['~', '/']);
    (is_dollar && is_host(name) && (has_path || is_numbered(name) || name.contains('-'))).then_some(name)
}

/// The machine on which `ssh node3 CMD`, `srun -w node3 CMD` or `kubectl exec worker-3 -- CMD` runs.
fn elsewhere(command: &str) -> Option<&str> {
    let mut words =
        command.split_ascii_whitespace().skip_while(|w| matches!(*w, "sudo" | "time" | "timeout"));
    let program = words.next()?;
    let name = match program {
        "ssh" | "exec" => operand(&mut words),
        "kubectl" => {
            let verb = words.by_ref().find(|w| !w.starts_with('-'))?;
            matches!(verb, "exec" | "logs").then(|| operand(&mut words)).flatten()
        }
        "srun" => {
            let mut words = words;
            loop {
                let word = words.next()?;
                if let Some((flag, value)) = word.split_once('=')
                    && NODE_FLAGS.contains(&flag)
                {
                    break Some(value);
                }
                if NODE_FLAGS.contains(&word) {
                    break words.next();
                }
            }
        }
        _ => None,
    }?;
    let name = name.rsplit('@').next().unwrap_or(name);
    let name = name.strip_prefix("pod/").unwrap_or(name);
    is_host(name).then_some(name)
}

/// The first word that is neither a flag nor the argument of one.
fn operand<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<&'a str> {
    loop {
        let word = words.next()?;
        if WITH_ARGUMENT.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
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
    if let Some((_, rest)) = text.split_once("unning on ").or_else(|| text.split_once("unning on node ")) {
        let name = rest.split([' ', ',', ':', '(']).next()?;
        return (is_host(name) && is_numbered(name)).then_some(name);
    }
    // The table of torch's elastic launcher.
    let (key, name) = text.split_once(':')?;
    (key.trim() == "host" && is_host(name.trim())).then(|| name.trim())
}

/// Whether a word may be the name or address of a machine.
fn is_host(word: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (2..=64).contains(&word.len())
        && word.bytes().all(is_name)
        && word.bytes().any(|b| b.is_ascii_alphabetic() || b == b'.')
        && !word.starts_with(['-', '.'])
        && !matches!(word, "localhost" | "127.0.0.1")
}

fn is_numbered(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_digit()) && word.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::{about, session};

    #[test]
    fn prompts() {
        for (line, expected) in [
            ("user@node3:~/run$ nvidia-smi", Some(Some("node3"))),
            ("(pt12) mwu@gnode14:~/seg$ export NCCL_DEBUG=INFO", Some(Some("gnode14"))),
            ("[root@brain02 ~]# nvidia-smi -L", Some(Some("brain02"))),
            ("mb@kn-31 ~ % dmesg -T | tail -25", Some(Some("kn-31"))),
            ("h100-07$ systemctl status nvidia-fabricmanager", Some(Some("h100-07"))),
            ("$ ssh -p 12345 node4 'dmesg | tail'", Some(Some("node4"))),
            ("user@login:~$ ssh node4 dmesg", Some(Some("node4"))),
            ("$ kubectl logs -n asr trt-worker-3 --tail=5", Some(Some("trt-worker-3"))),
            ("$ srun --nodelist=hgx-a3 bash -c 'ulimit -l'", Some(Some("hgx-a3"))),
            ("$ ls", Some(None)),
            ("# a heading", None),
            ("cost: 12$ a month", None),
            ("50 % of it", None),
            ("step 3 loss 2.1 # ok", None),
            ("mail joe@corp.example for 3 $ more", None),
        ] {
            assert_eq!(session(line).map(|prompt| prompt.0), expected, "{line}");
        }
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
            ("srun: error: Unable to allocate resources: Invalid account", None),
            ("the host : is down today", None),
            ("running on 8 GPUs", None),
        ] {
            assert_eq!(about(line), expected, "{line}");
        }
    }
}
