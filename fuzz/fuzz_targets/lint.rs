//! Any text as a file of each language.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_lint::{Confidence, Options, Source, lint};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data).into_owned();
    for path in ["a.py", "a.sh", "a.yaml", "Dockerfile"] {
        let source = Source { path: path.to_owned(), text: text.clone() };
        let options = Options { least: Confidence::Low, ..Options::default() };
        let _ = lint(&[source], &options);
    }
});
