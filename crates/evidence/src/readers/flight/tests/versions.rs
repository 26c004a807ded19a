//! Older formats, other picklers and JSON.

use serde_json::{Value, json};

use super::writer::{Entry, Obj, Style, dict, frame, newest, pickle, s, shapes, whole};
use super::{dump_of, lines, note_kinds, read, summary};

fn entries() -> Vec<Entry> {
    (0..2500)
        .map(|i| {
            let mut entry = Entry::new(i);
            match i % 5 {
                1 => entry.name = "nccl:_all_gather_base".into(),
                2 => entry.shape = vec![i % 7, 40_000_000 + i],
                3 => (entry.group, entry.line) = ((3, "17", "DATA"), 91),
                4 => (entry.name, entry.dtype) = ("nccl:broadcast".into(), "BFloat16"),
                _ => {}
            }
            if i > 2490 {
                entry.state = "scheduled";
            }
            entry
        })
        .collect()
}

/// CPython writes the same data with other opcodes, batches and memo places; read, it is the same.
#[test]
fn other_picklers_say_the_same() {
    let object = newest(&entries());
    let torch = read("fr_rank3", &pickle(Style::Torch, &object));
    assert_eq!(dump_of(&torch).unwrap().ops.len(), 2500);
    for protocol in [2, 3, 4, 5] {
        let python = read("fr_rank3", &pickle(Style::CPython(protocol), &object));
        assert_eq!(dump_of(&python), dump_of(&torch), "protocol {protocol}");
        assert_eq!(note_kinds(&python), []);
    }
}

/// Without a key, with a key that is not known, with keys in another order: what is said stays.
#[test]
fn keys_may_come_and_go() {
    let fields = |i| Entry::new(i).newest();
    let plain = read("x", &pickle(Style::Torch, &whole((0..9).map(|i| dict(&fields(i))).collect())));
    let reversed = (0..9).map(|i| dict(&fields(i).into_iter().rev().collect::<Vec<_>>())).collect();
    let reversed = read("x", &pickle(Style::Torch, &whole(reversed)));
    let mut more = |i| {
        let mut fields = fields(i);
        fields.insert(4, ("new_thing", dict(&[("a", Obj::List(vec![Obj::Int(1)]))])));
        fields.push(("last_thing", Obj::None));
        dict(&fields)
    };
    let more = read("x", &pickle(Style::Torch, &whole((0..9).map(&mut more).collect())));
    let expected = lines(dump_of(&plain).unwrap());
    assert_eq!(lines(dump_of(&reversed).unwrap()), expected);
    assert_eq!(lines(dump_of(&more).unwrap()), expected);
    for left_out in ["frames", "pg_id", "thread_id", "input_dtypes", "timeout_ms", "retired", "p2p_seq_id"] {
        let entries = (0..9)
            .map(|i| dict(&fields(i).into_iter().filter(|f| f.0 != left_out).collect::<Vec<_>>()))
            .collect();
        let extract = read("x", &pickle(Style::Torch, &whole(entries)));
        assert_eq!(dump_of(&extract).unwrap().ops.len(), 9, "{left_out}");
        assert_eq!(note_kinds(&extract), [], "{left_out}");
    }
}

/// The members of 2.3 (torch 2.3/2.4): no types, no threads, no timeout; a duration; `nccl_version`.
#[test]
fn version_2_3() {
    let entry = |i: i64| {
        dict(&[
            ("frames", Obj::List(vec![frame("barrier", "/srv/a.py", 7)])),
            ("record_id", Obj::Int(i)),
            ("pg_id", Obj::Int(1)),
            ("process_group", Obj::Tuple(vec![s("5"), s("undefined")])),
            ("collective_seq_id", Obj::Int(i + 1)),
            ("p2p_seq_id", Obj::Int(0)),
            ("op_id", Obj::Int(i + 1)),
            ("profiling_name", s(if i == 1 { "nccl:recv 3<-0" } else { "nccl:all_reduce_barrier" })),
            ("time_created_ns", Obj::Int(1_720_000_000_000_000_000 + i)),
            ("duration_ms", Obj::Float(1.25)),
            ("input_sizes", shapes(&[&[1], &[]])),
            ("output_sizes", shapes(&[])),
            ("state", s("started")),
            ("time_discovered_started_ns", Obj::Int(1_720_000_000_100_000_000)),
            ("time_discovered_completed_ns", Obj::None),
            ("retired", Obj::Bool(false)),
            ("is_p2p", Obj::Bool(i == 1)),
        ])
    };
    let top = dict(&[
        ("version", s("2.3")),
        (
            "pg_config",
            dict(&[
                ("0", dict(&[("name", s("0")), ("desc", s("default_pg")), ("ranks", s(""))])),
                ("5", dict(&[("name", s("5")), ("desc", s("undefined")), ("ranks", s("[1, 3, 5, 7]"))])),
            ]),
        ),
        ("nccl_version", s("2.20.5")),
        (
            "pg_status",
            dict(&[
                (
                    "0",
                    dict(&[
                        ("last_enqueued_collective", Obj::Int(9)),
                        ("last_completed_collective", Obj::Int(8)),
                    ]),
                ),
                (
                    "1",
                    dict(&[
                        ("last_enqueued_collective", Obj::Int(3)),
                        ("last_started_collective", Obj::Int(2)),
                    ]),
                ),
            ]),
        ),
        ("entries", Obj::List((0..3).map(entry).collect())),
    ]);
    insta::assert_snapshot!(summary(&read("logs.tar!a/nccl_trace_rank_13", &pickle(Style::Torch, &top))));
}

/// Before 2.0 a dump was a bare list.
#[test]
fn bare_list() {
    let entry = |i: i64| {
        dict(&[
            ("frames", Obj::List(vec![frame("f", "/srv/a.py", 7)])),
            ("seq_id", Obj::Int(i)),
            ("profiling_name", s("nccl:all_reduce")),
            ("input_sizes", shapes(&[&[4]])),
            ("state", s("completed")),
            ("time_created_ns", Obj::Int(1_720_000_000_000_000_000)),
        ])
    };
    insta::assert_snapshot!(summary(&read(
        "trace7",
        &pickle(Style::Torch, &Obj::List((0..2).map(entry).collect()))
    )));
}

/// Plain data as JSON, with frames left out, as torch's JSON form does.
fn to_json(object: &Obj, in_status: bool) -> Value {
    match object {
        Obj::None => json!(0),
        Obj::Bool(b) => json!(b),
        Obj::Int(n) if in_status => json!(n.to_string()),
        Obj::Int(n) => json!(n),
        Obj::Float(x) => json!(x),
        Obj::Str(text) => json!(text),
        Obj::List(items) | Obj::Tuple(items) => items.iter().map(|o| to_json(o, in_status)).collect(),
        Obj::Dict(pairs) => Value::Object(
            pairs
                .iter()
                .filter_map(|(key, value)| match key {
                    Obj::Str(key) if key != "frames" => {
                        Some((key.clone(), to_json(value, in_status || key == "pg_status")))
                    }
                    _ => None,
                })
                .collect(),
        ),
        Obj::Frame(..) => json!({}),
    }
}

/// The JSON form says what the pickle says, but for the frames.
#[test]
fn json_says_the_same() {
    let object = newest(&entries());
    let pickled = read("x7", &pickle(Style::Torch, &object));
    let pickled = dump_of(&pickled).unwrap();
    let extract = read("x7.json", to_json(&object, false).to_string().as_bytes());
    let dump = dump_of(&extract).unwrap();
    let unframed = |lines: Vec<String>| {
        lines
            .iter()
            .map(|l| l.split("us ").next().unwrap().trim_end_matches("us").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(unframed(lines(dump)), unframed(lines(pickled)));
    assert_eq!(dump.groups, pickled.groups);
    assert_eq!(dump.signatures, pickled.signatures);
    assert_eq!((&dump.version, &dump.library_version), (&pickled.version, &pickled.library_version));
    assert_eq!((&dump.thread_ids, dump.name_hint), (&pickled.thread_ids, pickled.name_hint));
    assert_eq!(note_kinds(&extract), []);
}

#[test]
fn json_without_entries() {
    let text = r#"{"version":"2.10","pg_config":{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"}},
        "pg_status":{"0":{"last_enqueued_collective":"-1","last_started_collective":"-1","last_completed_collective":"-1"}}}"#;
    insta::assert_snapshot!(summary(&read("fr_rank1", text.as_bytes())));
}

/// Status of groups that have no entries in the ring: numbers of groups and of creation rise together.
#[test]
fn groups_without_entries() {
    let group = |name: &str, ranks: &str| {
        (name.to_owned(), dict(&[("name", s(name)), ("desc", s("")), ("ranks", s(ranks))]))
    };
    let status = |n: i64| dict(&[("last_enqueued_collective", Obj::Int(n))]);
    let mut entry = Entry::new(0);
    entry.group = (1, "9", "DP");
    let Obj::Dict(mut top) = newest(&[entry]) else { panic!() };
    let of =
        |pairs: Vec<(String, Obj)>| Obj::Dict(pairs.into_iter().map(|(k, v)| (Obj::Str(k), v)).collect());
    top[1].1 = of(vec![group("0", "[0, 1]"), group("11", "[1]"), group("9", "[0, 1]")]);
    top[3].1 = of(vec![("2".into(), status(2)), ("0".into(), status(5)), ("1".into(), status(7))]);
    insta::assert_snapshot!(summary(&read("fr_rank1", &pickle(Style::Torch, &Obj::Dict(top)))));
}

#[test]
fn ranks_in_names() {
    let check = |name: &str, expected: Option<u32>| {
        assert_eq!(super::super::build::name_hint(name).map(|r| r.0), expected, "{name}");
    };
    check("nccl_trace_rank_12", Some(12));
    check("/tmp/comm_lib_trace_rank_0", Some(0));
    check("dumps-3/fr", None);
    check("dumps.tar!a/fr_rank7.json.gz", Some(7));
    check("dumps3!fr", None);
    check("99999999999999999999", None);
    check("", None);
    check("_dump_5.pickle", Some(5));
    check("v2.10", Some(10));
}

/// What a key that is not known holds does not matter: plain values, strings, containers, what the memo holds.
#[test]
fn unknown_keys_hold_anything() {
    let odd = [
        Obj::Float(0.5),
        Obj::Int(-1),
        s("x"),
        Obj::Tuple(vec![s("a"), s("b")]),
        Obj::Tuple(vec![]),
        Obj::List(vec![Obj::List(vec![Obj::None, Obj::Bool(true)]), dict(&[("k", s("v"))])]),
        frame("step", "/srv/train.py", 80),
        Obj::List(vec![frame("step", "/srv/train.py", 80)]),
    ];
    for value in odd {
        for place in [0, 1, 5, 21] {
            let entry = |i| {
                let mut fields = Entry::new(i).newest();
                fields.insert(place, ("new_thing", value.clone()));
                dict(&fields)
            };
            let extract = read("x", &pickle(Style::Torch, &whole((0..5).map(entry).collect())));
            let plain =
                read("x", &pickle(Style::Torch, &newest(&(0..5).map(Entry::new).collect::<Vec<_>>())));
            assert_eq!(
                lines(dump_of(&extract).unwrap()),
                lines(dump_of(&plain).unwrap()),
                "{value:?} at {place}"
            );
            assert_eq!(note_kinds(&extract), []);
        }
    }
}
