//! What of a job's or a node's text may stand in a command that a person is told to type.
//!
//! Names in evidence are anybody's: a user chooses the MASTER_ADDR of his process, a log says what its writer wants.
//! Whoever reads the report may be root and pastes.

/// Longest name of a host.
const MAX_BYTES: usize = 253;

/// `text`, if every shell takes it as one word that is no option: a host, an address, an interface, a device, an id.
///
/// Nothing is quoted: what would need it is no such name, and whose it is does not change that.
pub fn plain_word(text: &str) -> Option<&str> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b':' | b'_' | b'-');
    let is_word = !text.is_empty() && text.len() <= MAX_BYTES && text.bytes().all(is_plain);
    (is_word && !text.starts_with('-')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::plain_word;

    #[test]
    fn names_pass_and_nothing_that_a_shell_takes_apart() {
        for name in ["node-01.internal", "10.0.0.1", "fe80::1", "eth0.100", "mlx5_0", "0000:1b:00.0"] {
            assert_eq!(plain_word(name), Some(name));
        }
        let long = "n".repeat(254);
        let hostile = [
            "",
            "x;touch${IFS}/tmp/pwn",
            "$(id)",
            "`id`",
            "a b",
            "a\nb",
            "a|b",
            "a&b",
            "a>b",
            "~root",
            "*",
            "a'b",
            "\"",
            "\\",
            "\u{1b}[2J",
            "-oProxyCommand=x",
            "--help",
            "nöde",
            &long,
        ];
        for text in hostile {
            assert_eq!(plain_word(text), None, "{text:?}");
        }
    }
}
