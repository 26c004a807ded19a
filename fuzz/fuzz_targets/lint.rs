//! Any text as a file of each language.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_lint::{Confidence, LintOptions, SourceFile, lint};

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data).into_owned();
    for path in ["a.py", "a.sh", "a.yaml", "Dockerfile"] {
        let source = SourceFile { path: path.to_owned(), text: text.clone() };
        let options = LintOptions { least: Confidence::Low, ..LintOptions::default() };
        let _ = lint(&[source], &options);
    }
});
