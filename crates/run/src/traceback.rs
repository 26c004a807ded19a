//! The traceback that a person should see first.

use std::path::{Path, PathBuf};

use crate::judgement::cut;

/// Amount of output that is searched for a traceback, bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// Longest traceback, lines.
const MAX_LINES: usize = 40;
/// Errors that ranks print because another rank failed, and errors of launchers.
const CONSEQUENCES: [&str; 9] = [
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ChildFailedError",
    "SignalException",
    "DistBackendError",
    "DistNetworkError",
    "KeyboardInterrupt",
    "Gloo connectFullMesh failed",
];

/// The traceback of the first rank that failed: the first printed one that is not a consequence of another failure.
/// `files`: the output of the attempt, the newest last. Empty if there is none.
pub fn first(files: &[PathBuf]) -> Vec<String> {
    for file in files.iter().rev().filter(|file| file.extension().is_some_and(|end| end == "log")) {
        let Ok(bytes) = read(file) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let mut blocks = tracebacks(&text);
        let is_own = |block: &Vec<String>| {
            let last = block.last().map(String::as_str).unwrap_or_default();
            !CONSEQUENCES.iter().any(|words| last.contains(words))
        };
        if let Some(at) = blocks.iter().position(is_own) {
            return bounded(&blocks.swap_remove(at));
        }
    }
    Vec::new()
}

/// Other nodes receive it: long lines are cut.
fn bounded(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| cut(line)).collect()
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Tracebacks in a text; those that ranks print at the same time are separated by the prefix of their lines. An uncaught
/// C++ exception has two lines: `terminate called after throwing …` and `what():  …`.
fn tracebacks(text: &str) -> Vec<Vec<String>> {
    const HEAD: &str = "Traceback (most recent call last)";
    const THROWN: &str = "terminate called after throwing an instance of";
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let what = lines.get(at + 1).filter(|next| line.contains(THROWN) && next.contains("what():"));
        if let Some(what) = what {
            blocks.push(vec![(*line).to_owned(), (*what).to_owned()]);
            continue;
        }
        let Some(column) = line.find(HEAD) else { continue };
        let prefix = line.get(..column).unwrap_or_default();
        let mut block = vec![(*line).to_owned()];
        for next in lines.get(at + 1..).unwrap_or_default().iter().take(4 * MAX_LINES) {
            let Some(body) = next.strip_prefix(prefix) else { continue };
            if block.len() >= MAX_LINES || body.contains(HEAD) {
                break;
            }
            block.push((*next).to_owned());
            // It ends with the error itself: the first line that is not indented.
            if !body.starts_with([' ', '\t']) && !body.is_empty() {
                break;
            }
        }
        blocks.push(block);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_own_traceback_is_found() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let file = folder.path().join("stderr-0001.log");
        let text = "[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n\
                    [rank1]:   File \"t.py\", line 3, in f\n[rank0]:   File \"t.py\", line 9, in g\n\
                    [rank1]: RuntimeError: Connection closed by peer\n[rank0]:     x = 1/0\n\
                    [rank0]: ZeroDivisionError: division by zero\nmore\n";
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
        let found = first(&[file]);
        assert_eq!(found.last().map(String::as_str), Some("[rank0]: ZeroDivisionError: division by zero"));
        assert_eq!(found.len(), 4);
        let file = folder.path().join("stderr-0002.log");
        let text = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail] 8192 vs 4\n\
                    [rank0]: Traceback (most recent call last):\n[rank0]:   File \"t.py\", line 9, in g\n\
                    [rank0]: RuntimeError: Connection reset by peer\n";
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
        let found = first(&[file]);
        assert_eq!(found.last().map(String::as_str), Some("  what():  [enforce fail] 8192 vs 4"));
        assert!(first(&[folder.path().join("absent")]).is_empty());
    }
}
