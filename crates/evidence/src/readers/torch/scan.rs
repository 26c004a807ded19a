//! Finding words and numbers in a line.

/// What follows the first `marker`.
pub(super) fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.split_once(marker).map(|(_, rest)| rest)
}

/// The text between the first `open` and the next `close`; to the end of the text where `close` was cut off.
pub(super) fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let rest = after(text, open)?;
    Some(rest.split_once(close).map_or(rest, |(inside, _)| inside))
}

/// The digits at the start, and what follows them.
pub(super) fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// The number at the start (a sign counts), and what follows it.
pub(super) fn number(text: &str) -> Option<(i64, &str)> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (figures, rest) = digits(rest);
    Some((sign * figures.parse::<i64>().ok()?, rest))
}

/// The number right after the first `marker`.
pub(super) fn number_after(text: &str, marker: &str) -> Option<i64> {
    number(after(text, marker)?).map(|(value, _)| value)
}

/// Like [`number_after`], refusing a sign.
pub(super) fn count_after(text: &str, marker: &str) -> Option<u64> {
    digits(after(text, marker)?).0.parse().ok()
}

/// At most `max` bytes, cut between characters.
pub(super) fn clip(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while end > 0 && !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// A name as Python and C++ write it: letters, digits, `_` and dots, not starting with a digit.
pub(super) fn dotted_name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
    match text.split_at_checked(end) {
        Some((name, rest))
            if !name.starts_with(|c: char| c.is_ascii_digit() || c == '.') && !name.ends_with('.') =>
        {
            (name, rest)
        }
        _ => ("", text),
    }
}
