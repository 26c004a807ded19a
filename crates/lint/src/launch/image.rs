//! Dockerfiles, line by line with continuations, and files of `NAME=value`.

use super::{Launch, Setting, Spot};

/// `ENV NAME=value NAME=value`, `ENV NAME value`.
pub(super) fn read(text: &str, launch: &mut Launch<'_>) {
    let mut is_env = false;
    for (n, line) in text.lines().enumerate() {
        let trimmed = line.trim();
        if trimmed.starts_with('#') {
            continue;
        }
        let continues = trimmed.ends_with('\\');
        let (word, rest) = trimmed.split_once(char::is_whitespace).unwrap_or((trimmed, ""));
        let body = if is_env {
            Some(trimmed)
        } else if word.eq_ignore_ascii_case("env") {
            Some(rest.trim())
        } else {
            None
        };
        if let Some(body) = body {
            let body = body.trim_end_matches('\\').trim();
            env(body, n as u32 + 1, line, is_env, launch);
        }
        is_env = continues && body.is_some();
    }
}

fn env(body: &str, line: u32, whole: &str, is_continued: bool, launch: &mut Launch<'_>) {
    let at = Spot { line, column: 1, end_column: whole.chars().count() as u32 + 1 };
    let first = body.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') && !is_continued {
        if let Some((name, value)) = body.split_once(char::is_whitespace) {
            push(name, value.trim(), at, launch);
        }
        return;
    }
    for word in body.split_whitespace() {
        if let Some((name, value)) = word.split_once('=') {
            push(name, value.trim_matches(['"', '\'']), at, launch);
        }
    }
}

fn push(name: &str, value: &str, at: Spot, launch: &mut Launch<'_>) {
    let literal = (!value.contains(['$', '<', '{'])).then(|| value.to_owned());
    launch.settings.push(Setting { name: name.to_owned(), value: literal, raw: value.to_owned(), at });
}

/// A file for `--env-file`: nothing takes quotes away.
pub(super) fn variables(text: &str, launch: &mut Launch<'_>) {
    for (n, line) in text.lines().enumerate() {
        let body = line.trim().trim_start_matches("export ");
        if body.starts_with('#') {
            continue;
        }
        if let Some((name, value)) = body.split_once('=') {
            let at = Spot { line: n as u32 + 1, column: 1, end_column: line.chars().count() as u32 + 1 };
            push(name.trim(), value, at, launch);
        }
    }
}
