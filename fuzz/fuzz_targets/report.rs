//! Two files of any bytes, from reading to report: no panic, the same bytes in either order, nothing that controls
//! a terminal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch, merge, read};
use ringleader_report::{Detail, TextStyle, json::Report, markdown, quote, text};

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits { max_expanded_bytes: 16 << 20, max_dump_bytes: 16 << 20, ..Limits::default() };
    let at = bytes.iter().position(|byte| *byte == 0xff).unwrap_or(bytes.len());
    let (a, b) = bytes.split_at(at);
    let extract = |path, mut bytes: &[u8]| read(path, &mut bytes, &mut Scratch::default(), &limits);
    let report = |extracts| {
        let case = merge(extracts);
        Report::new(&case, &ringleader_rules::diagnose(&case))
    };
    let first = report(vec![extract("a", a), extract("b", b)]);
    let second = report(vec![extract("b", b), extract("a", a)]);
    assert!(first == second, "one case, two reports");
    let json = first.to_json().expect("a report is JSON");
    for shown in [
        json,
        text::render(&first, &TextStyle { width: 80, color: false, detail: Detail::Everything }),
        markdown::render(&first, Detail::Everything),
    ] {
        assert!(shown.chars().all(|c| c == '\n' || !quote::is_active(c)), "{shown:?}");
    }
});
