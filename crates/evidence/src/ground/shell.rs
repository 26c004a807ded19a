//! Commands that stand above their output, as people paste them and scripts echo them.

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
