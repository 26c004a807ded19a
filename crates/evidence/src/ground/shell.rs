//! Commands above their output, as people paste them and scripts echo them.

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
