//! Files that mean harm, or are no dumps.

use ringleader_model::NoteKind;

use super::writer::{Entry, Obj, Style, Writer, dict, newest, pickle, s, whole};
use super::{dump_of, lines, note_kinds, read, summary};

/// `head`, then the opcodes, then STOP.
fn raw(parts: &[&[u8]]) -> Vec<u8> {
    [b"\x80\x02" as &[u8], &parts.concat()].concat()
}

/// A whole dump of three entries without its end (`u.`), so that more can be put into its top dict.
fn open_dump() -> Vec<u8> {
    let entries: Vec<Entry> = (0..3).map(Entry::new).collect();
    let mut bytes = pickle(Style::Torch, &newest(&entries));
    bytes.truncate(bytes.len() - 2);
    bytes
}

/// Puts `more` into the top dict after the entries, and checks that these stay and what is said.
fn check_after_entries(more: &[u8], kind: NoteKind, text: &str) {
    let mut bytes = open_dump();
    let at = bytes.len() as u64;
    bytes.extend_from_slice(more);
    let extract = read("fr_rank1", &bytes);
    let dump = dump_of(&extract).unwrap();
    assert_eq!(dump.ops.len(), 3);
    let note = extract.notes.iter().find(|n| n.kind == kind).unwrap_or_else(|| panic!("{:?}", extract.notes));
    assert!(note.text.contains(text), "{}", note.text);
    assert!(note.cite.start >= at, "{} {at}", note.cite.start);
}

#[test]
fn calls_are_refused() {
    let system = b"cos\nsystem\n(S'rm -rf /'\ntR.";
    check_after_entries(
        system,
        NoteKind::Malformed,
        "opcode GLOBAL is not used by Flight Recorder dumps; refused",
    );
    check_after_entries(b"NR.", NoteKind::Malformed, "opcode REDUCE");
    check_after_entries(b"Nb.", NoteKind::Malformed, "opcode BUILD");
    check_after_entries(b"(i__main__\nX\n.", NoteKind::Malformed, "opcode INST");
    check_after_entries(b"(NNo.", NoteKind::Malformed, "opcode OBJ");
    check_after_entries(b"\x8c\x02os\x8c\x06system\x93.", NoteKind::Malformed, "opcode STACK_GLOBAL");
    check_after_entries(b"\x82\x01.", NoteKind::Malformed, "opcode EXT1");
    check_after_entries(b"P1\n.", NoteKind::Malformed, "opcode PERSID");
    check_after_entries(b"\xff", NoteKind::Malformed, "byte 0xff is no pickle opcode");
    // Without a dump before it.
    insta::assert_snapshot!(
        summary(&read("x", &raw(&[b"cos\nsystem\n(S'true'\ntR."]))),
        @r"
    no dump; kinds [Unknown]
    note Unrecognised at 2: a pickle, but no Flight Recorder dump: its top object is nothing readable; at byte 2: opcode GLOBAL is not used by Flight Recorder dumps; refused
    "
    );
}

#[test]
fn lengths_that_are_not_there() {
    let cut = "the file ends within the dump, after 3 whole entries";
    // A text of 4 GB, of 2^63 bytes, a number of 2 GB, a frame of 2^64 bytes.
    check_after_entries(b"X\xff\xff\xff\xffabc", NoteKind::Truncated, cut);
    check_after_entries(b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc", NoteKind::Truncated, cut);
    check_after_entries(b"\x8b\xff\xff\xff\x7f\x01", NoteKind::Truncated, cut);
    check_after_entries(b"\x8a\xff\x01", NoteKind::Truncated, cut);
    check_after_entries(b"\x95\xff\xff\xff\xff\xff\xff\xff\xff", NoteKind::Truncated, cut);
    check_after_entries(b"\x8b\xff\xff\xff\xff", NoteKind::Malformed, "a length of -1");
    check_after_entries(b"T\xfe\xff\xff\xff", NoteKind::Malformed, "a length of -2");
}

#[test]
fn stack_and_memo_misuse() {
    check_after_entries(b"h\xfe", NoteKind::Malformed, "memo place 254 is used before it is set");
    check_after_entries(b"Nr\xff\xff\xff\xff", NoteKind::LimitReached, "the memo is larger");
    check_after_entries(b"ee", NoteKind::Malformed, "");
    check_after_entries(b"uuuu", NoteKind::Malformed, "a container ends that never began");
    check_after_entries(
        b"0000000000000000000000000000000000",
        NoteKind::Malformed,
        "takes a value from an empty stack",
    );
    check_after_entries(b"(", NoteKind::Truncated, "3 whole entries");
    check_after_entries(b"N.", NoteKind::Malformed, "stops before its object is complete");
    check_after_entries(&b"(".repeat(5000), NoteKind::LimitReached, "more than 1,000 deep");
    check_after_entries(&b"N".repeat(3_000_000), NoteKind::LimitReached, "a million values");
    check_after_entries(&b"]0".repeat(3_000_000), NoteKind::LimitReached, "a million containers");
}

#[test]
fn junk_after_the_end() {
    let mut bytes = open_dump();
    bytes.extend_from_slice(b"u.junk");
    let extract = read("fr_rank1", &bytes);
    assert_eq!(note_kinds(&extract), [NoteKind::Malformed]);
    assert!(extract.notes.first().unwrap().text.starts_with("4 bytes follow the end"));
    assert!(!dump_of(&extract).unwrap().truncated);
}

/// Lists that hold the list before ten times, thirty levels deep: 10^30 values if written out.
#[test]
fn billion_laughs() {
    let mut bomb = vec![0x80, 2, b'}', b'(', b'X', 6, 0, 0, 0];
    bomb.extend_from_slice(b"frames](K\x01eq\x00");
    for level in 1..31_u8 {
        bomb.extend_from_slice(b"](");
        bomb.extend_from_slice(&[b'h', level - 1].repeat(10));
        bomb.extend_from_slice(&[b'e', b'q', level]);
    }
    // As stacks, sizes and types of many entries, and as groups.
    for key in ["frames", "input_sizes", "input_dtypes", "process_group"] {
        let mut bytes = bomb.clone();
        bytes.extend_from_slice(b"X\x07\0\0\0entries](");
        for _ in 0..2000 {
            bytes.extend_from_slice(b"}(X\x09\0\0\0record_idK\x01X");
            bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(b"h\x1du");
        }
        bytes.extend_from_slice(b"eu.");
        let extract = read("x", &bytes);
        let dump = dump_of(&extract).unwrap();
        assert_eq!(dump.ops.len(), 2000, "{key}");
        assert!(dump.signatures.iter().all(|s| s.input_sizes.len() <= 10 && s.input_dtypes.len() <= 10));
    }
}

/// One list of a million numbers in the memo, as a shape of every tensor of every entry.
#[test]
fn one_list_used_often() {
    let mut bytes = raw(&[
        b"}(X\x01\0\0\0a](",
        &b"K\x01".repeat(200_000),
        b"eq\x00X\x01\0\0\0b](",
        &b"h\x00".repeat(200_000),
    ]);
    bytes.extend_from_slice(b"eq\x01X\x07\0\0\0entries](");
    for _ in 0..1000 {
        bytes.extend_from_slice(b"}(X\x09\0\0\0record_idK\x01X\x0b\0\0\0input_sizesh\x01u");
    }
    bytes.extend_from_slice(b"eu.");
    let extract = read("x", &bytes);
    let limited = extract.notes.iter().find(|n| n.kind == NoteKind::LimitReached).unwrap();
    assert!(limited.text.contains("expands to far more than its size"), "{}", limited.text);
    assert!(dump_of(&extract).unwrap().truncated);
}

/// A long path in the memo that every frame names: what is kept would be many times the file.
#[test]
fn one_text_used_often() {
    let mut bytes = raw(&[b"}(X\x01\0\0\0aX\x00\x10\0\0", &b"x".repeat(4096), b"q\x00X\x07\0\0\0entries]("]);
    for line in 0..20_000_u16 {
        bytes.extend_from_slice(
            b"}(X\x09\0\0\0record_idK\x01X\x06\0\0\0frames](}(X\x08\0\0\0filenameh\x00X\x04\0\0\0lineM",
        );
        bytes.extend_from_slice(&line.to_le_bytes());
        bytes.extend_from_slice(b"ueu");
    }
    bytes.extend_from_slice(b"eu.");
    let extract = read("x", &bytes);
    let dump = dump_of(&extract).unwrap();
    let kept: usize = dump.frames.iter().map(|f| f.file.len()).sum();
    assert!(dump.truncated && kept < bytes.len() * 13 + (9 << 20), "{kept} of {}", bytes.len());
}

#[test]
fn cycles_through_the_memo() {
    // A list that is its own only item, as stack, shape and group of an entry, and a dict that is its own value.
    let mut bytes = raw(&[b"}q\x00(X\x01\0\0\0ah\x00X\x01\0\0\0b]q\x01h\x01aX\x07\0\0\0entries]("]);
    for key in ["frames", "input_sizes", "input_dtypes", "process_group", "state", "record_id"] {
        bytes.extend_from_slice(b"}(X\x0e\0\0\0profiling_nameX\x04\0\0\0sendX");
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key.as_bytes());
        bytes.extend_from_slice(b"h\x01u");
    }
    // The list of entries is an entry of its own.
    bytes.extend_from_slice(b"eq\x02(h\x02eu.");
    let extract = read("x", &bytes);
    assert_eq!(dump_of(&extract).unwrap().ops.len(), 6);
    assert!(
        extract
            .notes
            .iter()
            .any(|n| n.text.contains("an entry is not a dict") || n.text.contains("no operation"))
    );
}

#[test]
fn negative_sizes_and_odd_numbers() {
    let mut entry = Entry::new(5);
    entry.shape = vec![-3, 7];
    entry.seq = -1;
    let mut other = Entry::new(1 << 40);
    other.seq = i64::MAX;
    let extract = read("fr_rank1", &pickle(Style::Torch, &newest(&[entry, other])));
    let dump = dump_of(&extract).unwrap();
    let lines = lines(dump);
    assert!(lines[0].contains(" 0/0 all_reduce [[0, 7]]Float"), "{}", lines[0]);
    assert!(lines[1].starts_with("4294967295 0:0:default_pg 4294967295/0 "), "{}", lines[1]);
    assert!(extract.notes.iter().any(|n| n.text.contains("a negative size")));
}

/// A place of the memo that changes its meaning between two entries with the same bytes.
#[test]
fn memo_rewritten_between_entries() {
    let entries: Vec<Entry> = (0..6).map(Entry::new).collect();
    let mut bytes = pickle(Style::Torch, &newest(&entries));
    let text = b"\x05\0\0\0Floatq";
    let at = bytes.windows(text.len()).position(|w| w == text).unwrap() + text.len();
    let place = bytes[at];
    bytes.truncate(bytes.len() - 3);
    // The last three entries again, after the place of `Float` was given to `Half`.
    let n = (bytes.len() - at) / 2;
    let last = bytes[bytes.len() - n..].iter().position(|b| *b == b'}').unwrap() + bytes.len() - n;
    let again = bytes[last..].to_vec();
    let before = read("x", &[bytes.as_slice(), b"eu."].concat());
    let n_before = dump_of(&before).unwrap().ops.len();
    bytes.extend_from_slice(b"X\x04\0\0\0Halfq");
    bytes.push(place);
    bytes.push(b'0');
    bytes.extend_from_slice(&again);
    bytes.extend_from_slice(b"eu.");
    let extract = read("x", &bytes);
    let dump = dump_of(&extract).unwrap();
    let lines = lines(dump);
    assert!(lines.len() > n_before);
    assert!(lines[..n_before].iter().all(|l| l.contains("]]Float")));
    assert!(lines[n_before..].iter().all(|l| l.contains("]]Half")), "{:?}", &lines[n_before..]);
}

#[test]
fn other_pickles() {
    let check = |object: &Obj, expected: &str| {
        let extract = read("model.pt", &pickle(Style::CPython(2), object));
        assert!(dump_of(&extract).is_none());
        assert_eq!(note_kinds(&extract), [NoteKind::Unrecognised]);
        assert!(extract.notes[0].text.ends_with(expected), "{}", extract.notes[0].text);
    };
    check(
        &dict(&[("state_dict", Obj::None), ("epoch", Obj::Int(3))]),
        "its top object is a dict with `state_dict`, `epoch`",
    );
    check(&Obj::List(vec![Obj::Int(1)]), "its top object is a list");
    check(&Obj::Int(7), "its top object is a number");
    check(&s("text"), "its top object is a string");
    check(&Obj::Dict(vec![]), "its top object is an empty dict");
    let extract = read("x", b"\x80\x02");
    assert_eq!(note_kinds(&extract), [NoteKind::Unrecognised]);
}

#[test]
fn recorder_off() {
    let extract = read("fr_rank1", &pickle(Style::Torch, &whole(vec![])));
    assert_eq!(note_kinds(&extract), [NoteKind::Remark]);
    assert!(extract.notes[0].text.contains("TORCH_FR_BUFFER_SIZE"));
    assert!(dump_of(&extract).unwrap().ops.is_empty());
}

#[test]
fn entries_that_are_none() {
    let odd = vec![
        Obj::Int(1),
        Obj::None,
        dict(&[]),
        dict(&Entry::new(4).newest()),
        s("x"),
        dict(&[("op_id", Obj::Int(1))]),
    ];
    for style in [Style::Torch, Style::CPython(2), Style::CPython(4)] {
        let extract = read("fr_rank1", &pickle(style, &whole(odd.clone())));
        assert_eq!(dump_of(&extract).unwrap().ops.len(), 1, "{style:?}");
        assert_eq!(note_kinds(&extract), [NoteKind::Malformed; 5], "{style:?}");
    }
}

#[test]
fn unknown_state_is_said() {
    let mut entry = Entry::new(0);
    entry.state = "paused";
    let extract = read("fr_rank1", &pickle(Style::Torch, &newest(&[entry])));
    assert_eq!(note_kinds(&extract), [NoteKind::UnknownVersion]);
    assert!(extract.notes[0].text.contains("`paused`"));
}

/// The writer of these tests writes what it should: its own bytes, known from CPython.
#[test]
fn writer_is_right() {
    let object = dict(&[
        ("a", Obj::List(vec![Obj::Int(1), Obj::Int(300)])),
        ("b", Obj::Tuple(vec![s("a"), Obj::None])),
    ]);
    let expected: &[u8] =
        b"\x80\x02}q\x00(X\x01\0\0\0aq\x01]q\x02(K\x01M,\x01eX\x01\0\0\0bq\x03h\x01N\x86q\x04u.";
    assert_eq!(pickle(Style::CPython(2), &object), expected);
    let _: fn(&mut Writer, &Obj) = Writer::write;
}
