//! Decides which text of the evidence may appear in a command that a person is asked to type. Evidence enters a printed
//! command only as a plain word.
//!
//! Anybody can choose names in evidence: users set the MASTER_ADDR of their processes, and writers choose the
//! content of their logs. The reader of the report may be root and paste the command.

/// Longest name of a host.
const MAX_BYTES: usize = 253;

/// Returns `text` if every shell reads it as one word that is not an option: a host, an address, an interface, a
/// device, an id.
///
/// Nothing is quoted: text that needs quotes is not such a name.
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
