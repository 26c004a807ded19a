//! Commands above their output, as people paste them and scripts echo them.

use ringleader_model::address::is_loopback_name;

/// Longest prompt, bytes.
const MAX_PROMPT_BYTES: usize = 80;
/// Flags of `srun`, `kubectl`, `docker` and `ssh` that take an argument.
const WITH_ARGUMENT: [&str; 12] =
    ["-p", "-i", "-l", "-o", "-n", "-c", "-N", "-J", "-F", "-u", "--container", "--namespace"];
/// Flags that name the machine of a command.
const NODE_FLAGS: [&str; 4] = ["-w", "--nodelist", "--node", "--host"];

/// The command of `$ ibstat`, `user@node0:~$ ibstat`, `[root@node0 ~]# ibstat`, `+ ibstat` (`set -x`) or
/// `=== ibstat ===`; None if the line shows none.
pub(crate) fn command(text: &str) -> Option<&str> {
    let text = text.trim();
    if let Some(command) = ["$ ", "# ", "+ "].iter().find_map(|mark| text.strip_prefix(mark)) {
        return Some(command.trim());
    }
    if let Some(inside) = text.strip_prefix("==") {
        let inside = inside.trim_matches(['=', '>', '<', ' ']);
        return (!inside.is_empty()).then_some(inside);
    }
    let (prompt, command) = text.split_once("$ ").or_else(|| text.split_once("# "))?;
    (prompt.contains('@') && prompt.len() < 80).then_some(command.trim())
}

/// Whether [`command`] may find one in a line; a digit more or less does not matter.
pub(crate) fn may_be_command(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    match line {
        [b'$' | b'#' | b'+', b' ', ..] => true,
        [b'=', b'=', ..] => line.iter().any(|b| *b != b'='),
        _ => {
            let has = |mark: &[u8]| memchr::memmem::find(line, mark).is_some();
            memchr::memchr(b'@', line).is_some() && (has(b"$ ") || has(b"# "))
        }
    }
}

/// Host of the prompt in `user@node0:~$ ibstat`.
pub(crate) fn host(text: &str) -> Option<&str> {
    let (_, after) = text.trim().split_once('@').filter(|(user, _)| user.len() < 40)?;
    let host = after.split([':', ' ', '$', '#', ']']).next()?;
    (!host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.'))
        .then(|| host.split('.').next().unwrap_or(host))
}

/// The argument after a flag, or the last word that is none.
pub(crate) fn argument<'a>(command: &'a str, flags: &[&str]) -> Option<&'a str> {
    let mut words = command.split_ascii_whitespace();
    while let Some(word) = words.next() {
        if flags.contains(&word) {
            return words.next();
        }
    }
    None
}

/// Whether the command runs this program.
pub(crate) fn runs(command: &str, program: &str) -> bool {
    command
        .split_ascii_whitespace()
        .find(|w| !matches!(*w, "sudo" | "time" | "timeout") && !w.contains('='))
        .is_some_and(|w| w.rsplit('/').next() == Some(program))
}

/// A prompt of a shell with a command.
#[derive(Debug, PartialEq)]
pub(crate) struct Prompt<'a> {
    /// The machine on which the command runs, if it is named.
    pub(crate) host: Option<&'a str>,
}

/// The prompt that a line begins with.
pub(crate) fn prompt(text: &str) -> Option<Prompt<'_>> {
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
    Some(Prompt { host: elsewhere(command).or(own) })
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
    // `node3 $ uptime`.
    let prompt_name = prompt.trim_end();
    let (name, path) = prompt_name.split_once(':').unwrap_or((prompt_name, ""));
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
            match verb {
                "exec" | "logs" => operand(&mut words),
                // What follows is about that node.
                "describe" | "get" => matches!(operand(&mut words)?, "node" | "nodes" | "no")
                    .then(|| operand(&mut words))
                    .flatten(),
                _ => None,
            }
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

/// Whether a word may be the name or address of a machine.
pub(crate) fn is_host(word: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (2..=64).contains(&word.len())
        && word.bytes().all(is_name)
        && word.bytes().any(|b| b.is_ascii_alphabetic() || b == b'.')
        && !word.starts_with(['-', '.'])
        && !is_loopback_name(word)
}

/// Whether a word is a name with a number.
pub(crate) fn is_numbered(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_digit()) && word.starts_with(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::prompt;

    #[test]
    fn prompts() {
        for (line, expected) in [
            ("user@node3:~/run$ nvidia-smi", Some(Some("node3"))),
            ("(pt12) mwu@gnode14:~/seg$ export NCCL_DEBUG=INFO", Some(Some("gnode14"))),
            ("[root@brain02 ~]# nvidia-smi -L", Some(Some("brain02"))),
            ("mb@kn-31 ~ % dmesg -T | tail -25", Some(Some("kn-31"))),
            ("h100-07$ systemctl status nvidia-fabricmanager", Some(Some("h100-07"))),
            ("h100-07 $ nc -zv 10.0.0.1 29501", Some(Some("h100-07"))),
            ("it costs $ 12 a month", None),
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
            assert_eq!(prompt(line).map(|prompt| prompt.host), expected, "{line}");
        }
    }
}
