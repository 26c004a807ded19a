//! What a stream is, told from its first bytes.

/// Outer form of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Gzip,
    Zstd,
    Tar,
    Pickle,
    Json,
    Text,
    Binary,
    Empty,
}

/// Bytes that sniffing wants to see (a tar header is 512).
pub(crate) const HEAD_BYTES: usize = 4096;

/// Tells the form from the head of a stream.
pub(crate) fn sniff(head: &[u8]) -> Form {
    match head {
        [] => Form::Empty,
        [0x1f, 0x8b, ..] => Form::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Form::Zstd,
        [0x80, 0..=5, ..] => Form::Pickle,
        _ if head.get(257..262) == Some(b"ustar") => Form::Tar,
        _ => {
            let n_odd = head.iter().filter(|b| matches!(b, 0..=8 | 14..=26 | 28..=31)).count();
            let first = head.iter().find(|b| !b.is_ascii_whitespace());
            if n_odd * 50 > head.len() {
                Form::Binary
            } else if matches!(first, Some(b'{' | b'[')) {
                Form::Json
            } else {
                Form::Text
            }
        }
    }
}
