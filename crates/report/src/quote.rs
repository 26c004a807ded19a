//! Makes text from evidence safe to show: a log line may hold escape sequences, direction marks or control characters
//! that would act on a terminal, move text about or hide it.

use unicode_width::UnicodeWidthStr;

/// Columns that text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.width()
}

/// Whether a character does something rather than show something.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// One line of text with colour sequences taken out, a tab as spaces, and all else that is active spelled out.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = after_colour(rest) {
            rest = after;
            continue;
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
        match c {
            '\t' => out.push_str("    "),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if !is_active(c) => out.push(c),
            c if c.is_ascii() => out.extend(['\\', 'x'].into_iter().chain(hex(c))),
            c => out.extend(c.escape_unicode()),
        }
    }
    out
}

/// Two hexadecimal digits of an ASCII character.
fn hex(c: char) -> [char; 2] {
    let digit = |n: u32| char::from_digit(n, 16).unwrap_or('?');
    [digit(c as u32 >> 4), digit(c as u32 & 15)]
}

/// The lines of a text, each made [`plain`], without empty ones at the end.
pub fn plain_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(|line| plain(line.trim_end())).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// What follows if `text` starts with a sequence that only sets colours (`ESC [ 1 ; 31 m`).
fn after_colour(text: &str) -> Option<&str> {
    let body = text.strip_prefix("\u{1b}[")?;
    body.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').strip_prefix('m')
}

/// At most `width` columns of a text, with an ellipsis where it was cut.
pub fn shorten(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let (head, _) = split_columns(text, width.saturating_sub(1));
    format!("{head}…")
}

/// Splits at the last character boundary at which the first part takes at most `width` columns.
pub fn split_columns(text: &str, width: usize) -> (&str, &str) {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += columns(c.encode_utf8(&mut [0; 4]));
        if taken > width {
            return text.split_at(at);
        }
    }
    (text, "")
}

/// Breaks prose at spaces into rows of at most `width` columns; a longer word is cut.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    wrap_words(text.split(' '), width)
}

/// Fills rows of at most `width` columns with words that may hold spaces; a longer one is cut.
pub fn wrap_words<'a>(words: impl Iterator<Item = &'a str>, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut rows = Vec::new();
    let mut row = String::new();
    for mut word in words.filter(|word| !word.is_empty()) {
        if !row.is_empty() && columns(&row) + 1 + columns(word) > width {
            rows.push(std::mem::take(&mut row));
        }
        while columns(word) > width {
            let (head, tail) = split_columns(word, width);
            rows.push(head.to_owned());
            word = tail;
        }
        if !row.is_empty() {
            row.push(' ');
        }
        row.push_str(word);
    }
    if !row.is_empty() {
        rows.push(row);
    }
    rows
}

/// Breaks quoted evidence into rows of at most `width` columns, keeping its spaces; prefers to break after a space.
pub fn fold(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut rows = Vec::new();
    let mut rest = text;
    while columns(rest) > width {
        let (head, _) = split_columns(rest, width);
        let at = match head.rfind(' ') {
            Some(space) if space >= head.len() / 2 => space + 1,
            _ => head.len(),
        };
        let (row, tail) = rest.split_at(at);
        rows.push(row.trim_end().to_owned());
        rest = tail;
    }
    rows.push(rest.to_owned());
    rows
}

/// Breaks a command line so that it still works when copied: only at spaces outside quotes, with a backslash.
///
/// A word longer than `width` stays whole.
pub fn fold_command(command: &str, width: usize) -> Vec<String> {
    let mut words: Vec<String> = vec![String::new()];
    let (mut single, mut double, mut escaped) = (false, false, false);
    for c in command.chars() {
        let outside = !single && !double && !escaped;
        match c {
            ' ' if outside => {
                words.push(String::new());
                continue;
            }
            '\'' if !double && !escaped => single = !single,
            '"' if !single && !escaped => double = !double,
            _ => {}
        }
        escaped = c == '\\' && !single && !escaped;
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    let mut rows: Vec<String> = Vec::new();
    for word in words.iter().filter(|word| !word.is_empty()) {
        // Two columns stay free for the backslash; a continuation is indented by two.
        match rows.last_mut() {
            Some(row) if columns(row) + 1 + columns(word) + 2 <= width => {
                row.push(' ');
                row.push_str(word);
            }
            Some(row) => {
                row.push_str(" \\");
                rows.push(format!("  {word}"));
            }
            None => rows.push(word.clone()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_plain(input: &str, expected: &str) {
        assert_eq!(plain(input), expected);
    }

    #[test]
    fn what_acts_on_a_terminal_is_spelled_out() {
        check_plain("rank 2\ttimed out", "rank 2    timed out");
        check_plain("\u{1b}[1;31merror\u{1b}[0m", "error");
        check_plain("\u{1b}]0;owned\u{7}", "\\x1b]0;owned\\x07");
        check_plain("\u{1b}[2J", "\\x1b[2J");
        check_plain("a\u{9b}31mb", "a\\u{9b}31mb");
        check_plain("x\u{202e}y", "x\\u{202e}y");
        check_plain("50%\r100%", "50%\\r100%");
        check_plain("größe 大", "größe 大");
    }

    #[test]
    fn prose_breaks_at_spaces_and_long_words_are_cut() {
        assert_eq!(wrap("ranks wait in it", 10), ["ranks wait", "in it"]);
        assert_eq!(wrap("a 123456789012345", 10), ["a", "1234567890", "12345"]);
        assert!(wrap("", 10).is_empty());
    }

    #[test]
    fn a_folded_command_still_works() {
        assert_eq!(fold_command("dmesg -T", 20), ["dmesg -T"]);
        assert_eq!(
            fold_command("A=1 B=2 torchrun train.py", 16),
            ["A=1 B=2 \\", "  torchrun \\", "  train.py"]
        );
        assert_eq!(
            fold_command("gdb -batch -ex 'thread apply all bt' -p 1", 20)[1],
            "  'thread apply all bt' \\"
        );
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(shorten("大大大", 5), "大大…");
        assert_eq!(fold("大大大大大大", 8), ["大大大大", "大大"]);
    }
}
