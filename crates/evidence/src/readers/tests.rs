//! What the list promises.

use serde_json::Value;

use super::*;
use crate::Extract;

/// The order of the list decides nothing about documents: no recorded one is of two readers.
#[test]
fn a_document_is_of_one_reader() {
    let limits = Limits::default();
    let mut n_known = 0;
    for (name, bytes) in crate::tell::recordings(|name| name.contains(".json")) {
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { continue };
        let document = Document { name: &name, bytes: &bytes, value: &value, line: 1, offset: 0 };
        let of: Vec<Name> = ALL
            .iter()
            .filter_map(|(of, reader)| Some((of, reader.document?)))
            .filter(|(_, read)| {
                let mut extract = Extract::default();
                read(&document, &mut Sink::open(&name, &limits, &mut extract))
            })
            .map(|(of, _)| *of)
            .collect();
        assert!(of.len() < 2, "{name} is of {of:?}");
        n_known += of.len();
    }
    assert!(n_known > 20, "hardly a document is known: {n_known}");
}

/// A file has one form, whatever the order of the list.
#[test]
fn a_head_is_of_one_format() {
    let heads: [(&[u8], &str); 5] = [
        (b"\x80\x02}q\x00", "pickle"),
        (b"(dp0\nS'entries'\n", "pickle"),
        (b"}q\x00(X\x07", "pickle"),
        (b"RLRING1\n\0\0", "ring"),
        (b"PATH=/bin\0RANK=3\0", "environ"),
    ];
    for (head, name) in heads {
        let of: Vec<&str> = ALL
            .iter()
            .filter_map(|(_, reader)| reader.whole)
            .filter(|format| (format.is)(head))
            .map(|format| format.name)
            .collect();
        assert_eq!(of, [name]);
    }
}
