//! The template of a line: the part that stays the same when another rank prints it, or at another time.

/// Directories with random file names.
const MADE_UP: &[&str] = &["/dev/shm/", "/tmp/"];
/// Changes between letters and digits that make a token a random name.
const MAX_CHANGES: usize = 3;
/// Fewest hexadecimal digits that make a token with a digit a number.
const MIN_HEX: usize = 6;

/// `line` with `#` for each number, hexadecimal number, UUID, time and random name. Applying it again changes
/// nothing.
pub fn template(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line.trim();
    while let Some(c) = rest.chars().next() {
        if let Some(prefix) = MADE_UP.iter().find(|p| rest.starts_with(**p)) {
            out.push_str(prefix);
            rest = rest.get(prefix.len()..).unwrap_or_default();
            let end =
                rest.find(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ')' | ']' | ',' | ':'));
            let end = end.unwrap_or(rest.len());
            if end > 0 {
                out.push('#');
            }
            rest = rest.get(end..).unwrap_or_default();
        } else if c.is_ascii_alphanumeric() || c == '#' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '#')).unwrap_or(rest.len());
            token(rest.get(..end).unwrap_or_default(), &mut out);
            rest = rest.get(end..).unwrap_or_default();
        } else if c.is_whitespace() {
            if !out.ends_with(' ') {
                out.push(' ');
            }
            rest = rest.trim_start();
        } else {
            out.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
    }
    out
}

/// A run of letters, digits and already folded numbers.
fn token(token: &str, out: &mut String) {
    let is_number = |c: char| c.is_ascii_digit() || c == '#';
    let has_number = token.chars().any(is_number);
    if !has_number {
        out.push_str(token);
        return;
    }
    let hex = token.len() >= MIN_HEX && token.chars().all(|c| c.is_ascii_hexdigit() || c == '#');
    let prefixed = token.starts_with("0x") || token.starts_with("0X");
    let mut changes = 0;
    for pair in token.as_bytes().windows(2) {
        if let [a, b] = pair {
            changes += usize::from(is_number(char::from(*a)) != is_number(char::from(*b)));
        }
    }
    if hex || prefixed || changes >= MAX_CHANGES || token.chars().all(is_number) {
        number(out);
        return;
    }
    let mut folded = false;
    for c in token.chars() {
        if !is_number(c) {
            out.push(c);
        } else if !folded {
            out.push('#');
        }
        folded = is_number(c);
    }
}

/// Appends `#`; after another `#` and a separator of dates, times, versions or UUIDs it is the same number.
fn number(out: &mut String) {
    let mut chars = out.chars().rev();
    let (mark, sign, before) = (chars.next(), chars.next(), chars.next());
    let marked = matches!(mark, Some('-' | ':' | '.' | ',' | '/' | '+')) && sign == Some('#');
    if marked && !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '#') {
        out.pop();
    } else {
        out.push('#');
    }
}
