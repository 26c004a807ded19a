//! Cuts secrets out of quoted evidence. Logs hold what programs print: tokens in command lines, passwords in addresses,
//! keys in environments. What is cut leaves a mark; the words around it stay, since they are the evidence.

use ringleader_knowledge::kept;

/// What replaces a secret.
pub const CUT: &str = "<cut>";

/// Parts of names whose values are secret, in lower case and without marks between words. `key` and `token` alone are
/// not among them: stores have keys, and language models count tokens.
const NAMES: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "apikey",
    "accesskey",
    "privatekey",
    "licensekey",
    "sessionkey",
    "credential",
    "authorization",
    "authtoken",
    "accesstoken",
    "apitoken",
    "refreshtoken",
    "hftoken",
    "cookie",
    "webhook",
];
/// Letters of a value that a name makes secret.
const MIN_VALUE: usize = 4;
/// Length of a run of letters that counts as a secret under any name: keys in base64.
const MIN_BLOB: usize = 40;
/// Letters behind the known beginning of a token.
const MIN_TOKEN: usize = 8;

/// One line of evidence without secrets.
pub fn redact(line: &str) -> String {
    if line.contains("PRIVATE KEY-----") {
        return CUT.to_owned();
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    // What the word before says of the next one.
    let mut is_secret_next = false;
    while !rest.is_empty() {
        let n_blank = rest.len() - rest.trim_start().len();
        let (blank, from) = rest.split_at(n_blank);
        out.push_str(blank);
        let end = from.find(char::is_whitespace).unwrap_or(from.len());
        let (word, tail) = from.split_at(end);
        rest = tail;
        if word.is_empty() {
            continue;
        }
        if is_secret_next && is_value(word) {
            out.push_str(CUT);
            // `Authorization: Bearer …`: the kind of secret precedes it.
            is_secret_next = ["bearer", "basic"].iter().any(|kind| word.eq_ignore_ascii_case(kind));
            continue;
        }
        out.push_str(&in_word(word));
        is_secret_next = announces(word, is_secret_next);
    }
    out
}

/// Whether a word says that the next one is secret: `Bearer`, `password:`, `--api-key`.
fn announces(word: &str, was: bool) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    if bare.eq_ignore_ascii_case("bearer") || bare.eq_ignore_ascii_case("basic") && was {
        return true;
    }
    let is_name = word.ends_with([':', '=']) || word.ends_with("\":") || word.ends_with("':");
    let is_flag = word.starts_with("--") && !word.contains('=');
    (is_name || is_flag) && names_secret(bare)
}

/// A value rather than a word of a sentence.
fn is_value(word: &str) -> bool {
    let bare = word.trim_matches(['"', '\'', ',', ';']);
    bare.len() >= MIN_VALUE && !bare.starts_with('<') && !matches!(bare, "None" | "null" | "true" | "false")
}

fn names_secret(name: &str) -> bool {
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    name.len() <= 80 && NAMES.iter().any(|part| plain.contains(part)) || plain == "token" || plain == "jwt"
}

/// One word: an address with a password, `NAME=value`, a token.
fn in_word(word: &str) -> String {
    let mut word = without_password(word);
    for mark in ['=', ':'] {
        let Some((name, value)) = word.split_once(mark) else { continue };
        let last = name.rsplit(['/', '?', '&', '{', ',', ';']).next().unwrap_or(name);
        let bare = value.trim_matches(['"', '\'', ',', '}']);
        let is_number = bare.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_address = mark == ':' && value.starts_with("//");
        if names_secret(last.trim_matches(['"', '\'', '-'])) && is_value(value) && !is_number && !is_address {
            word = format!("{name}{mark}{CUT}");
            break;
        }
    }
    without_tokens(&word)
}

/// `scheme://user:password@host` without who it is.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest.get(..end).and_then(|authority| authority.rfind('@')) {
        Some(at) => format!("{scheme}://{CUT}{}", rest.get(at..).unwrap_or_default()),
        None => word.to_owned(),
    }
}

/// Tokens of well-known services, and long runs of base64.
fn without_tokens(word: &str) -> String {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
    let mut out = String::with_capacity(word.len());
    for piece in word.split_inclusive(|c: char| !is_letter(c)) {
        let body = piece.trim_end_matches(|c: char| !is_letter(c));
        let has_head = kept::TOKENS.iter().any(|(head, _)| {
            body.strip_prefix(head).is_some_and(|rest| {
                rest.len() >= MIN_TOKEN && rest.bytes().any(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
            })
        });
        if has_head || is_blob(body) {
            out.push_str(CUT);
            out.push_str(piece.get(body.len()..).unwrap_or_default());
        } else {
            out.push_str(piece);
        }
    }
    out
}

/// A long run of letters of both cases and digits: no word, no number in hexadecimal, no name of a function.
fn is_blob(body: &str) -> bool {
    let count = |is: fn(&u8) -> bool| body.bytes().filter(&is).count();
    let n_marks = count(|b| matches!(b, b'_' | b'-' | b'.'));
    body.len() >= MIN_BLOB
        && n_marks <= 1
        && count(u8::is_ascii_digit) >= 4
        && count(u8::is_ascii_uppercase) >= 4
        && count(u8::is_ascii_lowercase) >= 4
        // Names that compilers make begin so.
        && !body.starts_with("_Z")
}

#[cfg(test)]
mod tests {
    use super::redact;

    #[track_caller]
    fn cuts(line: &str, expected: &str) {
        assert_eq!(redact(line), expected);
    }

    #[test]
    fn secrets_are_cut_and_the_words_around_them_stay() {
        cuts("export WANDB_API_KEY=0123456789abcdef", "export WANDB_API_KEY=<cut>");
        cuts("curl -H 'Authorization: Bearer abcd1234efgh' x", "curl -H 'Authorization: <cut> <cut> x");
        cuts("store at redis://u:p4ss@10.0.0.1:6379/0", "store at redis://<cut>@10.0.0.1:6379/0");
        cuts("using hf_AbCdEfGh12345678 to log in", "using <cut> to log in");
        cuts("{\"password\": \"hunter22\", \"rank\": 3}", "{\"password\": <cut> \"rank\": 3}");
        cuts("train.py --api-key hunter22 --lr 0.1", "train.py --api-key <cut> --lr 0.1");
    }

    #[test]
    fn evidence_is_no_secret() {
        for line in [
            "[rank3]: wait timeout after 600000ms, keys: /default_pg/0//cuda//timeout_dump",
            "step 12 | tokens: 123456 | tokens/s: 4711.2 | loss 2.31",
            "comm 0x9425860 commId 0x9cf1be5a1c6f3e25 - Init START",
            "frame #4: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout(std::optional<std::chrono::duration<long> >)",
            "/opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so+0x1b2c3d",
            "GPU-fc51bf99-0123-4567-89ab-cdef01234567",
            "tcp://10.0.0.1:29500",
            "_ZN4c10d16ProcessGroupNCCL8WorkNCCL17synchronizeStreamEv12345ABCD",
        ] {
            assert_eq!(redact(line), line);
        }
    }
}
