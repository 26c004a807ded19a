//! The weights of words, from `data/likeness.txt`. The weights are a file of bytes: half a million of them as Rust source took
//! the compiler most of the time of this crate.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::variant;

pub(super) fn write(out: &mut String, causes: &BTreeSet<String>, dir: &Path) {
    let path = "data/likeness.txt";
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let lines = || text.lines().filter(|l| !l.starts_with('#') && !l.is_empty());
    let mut named: Vec<&str> = Vec::new();
    let (mut words, mut starts, mut weights) = (String::new(), String::from("0, "), Vec::new());
    let mut n_weights = 0_usize;
    let mut last: Option<&str> = None;
    for line in lines() {
        let mut fields = line.split('\t');
        let mut field = || fields.next().unwrap_or_else(|| panic!("{path}: {line}"));
        let (word, rarity, parts) = (field(), field(), field());
        assert!(last < Some(word), "{path}: {word} is out of order");
        last = Some(word);
        let rarity: u16 = rarity.parse().unwrap_or_else(|e| panic!("{path}: {line}: {e}"));
        let _ = write!(words, "({word:?}, {rarity}), ");
        for part in parts.split(' ') {
            let (cause, weight) = part.split_once(':').unwrap_or_else(|| panic!("{path}: {line}"));
            assert!(causes.contains(cause), "{path}: unknown cause {cause}");
            let number = named.iter().position(|c| *c == cause).unwrap_or_else(|| {
                named.push(cause);
                named.len() - 1
            });
            let weight: i16 = weight.parse().unwrap_or_else(|e| panic!("{path}: {line}: {e}"));
            weights.push(u8::try_from(number).unwrap_or_else(|e| panic!("{path}: {cause}: {e}")));
            weights.extend(weight.to_le_bytes());
            n_weights += 1;
        }
        let _ = write!(starts, "{n_weights}, ");
    }
    let named: Vec<String> = named.iter().map(|c| variant(c)).collect();
    let _ = writeln!(
        out,
        "pub(crate) static LIKENESS_CAUSES: &[ringleader_model::Cause] = &[{}];",
        named.join(", ")
    );
    let _ = writeln!(out, "pub(crate) static LIKENESS_WORDS: &[(&str, u16)] = &[{words}];");
    let _ = writeln!(out, "pub(crate) static LIKENESS_STARTS: &[u32] = &[{starts}];");
    fs::write(dir.join("likeness.bin"), &weights).unwrap_or_else(|e| panic!("likeness.bin: {e}"));
    out.push_str(
        "pub(crate) static LIKENESS_WEIGHTS: &[u8] = include_bytes!(concat!(env!(\"OUT_DIR\"), \"/likeness.bin\"));\n",
    );
}
