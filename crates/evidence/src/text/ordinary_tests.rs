//! Ordinary lines are passed over, and passing over them loses nothing.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::Extract;
use crate::ground::{Limits, Line, Sink, Tag};
use crate::readers::Lines;
use crate::tell::recordings;
use crate::text::{N_SURE_LINES, Pace, Room, read_at};

/// What training jobs print all the time.
const ORDINARY: [&str; 18] = [
    "[rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4 tokens/s 41235 mfu 0.41",
    "{'loss': 2.3123, 'grad_norm': 0.8123, 'learning_rate': 4.9e-05, 'epoch': 0.12}",
    "  2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s, loss=2.31, lr=3e-4, grad_norm=0.81]",
    "2026-11-20 10:00:00,000 - trainer - INFO - step: 10  loss:  8.0213  grad_norm:  1.2031  memory: 61.12GiB(64.31%)",
    "{\"ts\":\"2026-11-20T10:00:00Z\",\"level\":\"info\",\"msg\":\"step done\",\"step\":812,\"loss\":2.31}",
    "Epoch [3/90][ 100/ 5005] Time  0.412 ( 0.420) Data  0.003 ( 0.011) Loss 2.3126e+00 Acc@1 48.05 ( 46.12)",
    " [2026-11-20 10:00:00] iteration      100/  500000 | consumed samples:        51200 | lm loss: 7.831524E+00 |",
    "[rank0]:[titan] 2026-11-20 10:00:00,123 - root - INFO - step:  1  loss:  8.1234  tps:   6000  mfu: 41.02%",
    "(RayTrainWorker pid=4107, ip=10.0.0.7) epoch 0 step 12 loss 2.1 throughput 210.0 samples/s",
    "12: step 812 | loss 2.3100 | 0.412 s/it | mem 61.2 GB",
    "node1: step 812 | loss 2.3100 | 0.412 s/it | mem 61.2 GB",
    "trainer-1  | step 812 loss 2.31",
    "{\"log\":\"[rank1]: step 812 loss 2.31 \\u003c34ms\\u003e\\n\",\"stream\":\"stderr\",\"time\":\"2026-11-20T08:21:34.5Z\"}",
    "[rank1]: {\"time\": 1795162894.51, \"severity\": \"INFO\", \"message\": \"step 812 took 0.3 s\"}",
    "Nov 20 08:21:34 node7 train[4107]: step 812 loss 2.31",
    "a river runs over old bridges of stone in winter",
    "",
    "10:00:01.012 step 7 of 900 done in 0.31 s",
];

/// All that is read at a pace.
fn told(pace: Pace, bytes: &[u8], room: &mut Room) -> String {
    let (mut extract, limits) = (Extract::default(), Limits::default());
    let mut sink = Sink::open("train.log", &limits, &mut extract);
    let size = read_at(pace, &[], &mut &*bytes, room, &mut sink);
    sink.close(size);
    format!("{:?}\n{:#?}\n{:#?}", extract.sources, extract.observations, extract.notes)
}

/// What is read is the same with shapes and line by line, also with shapes that other texts left.
fn check(bytes: &[u8], room: &mut Room) {
    let lines = told(Pace::LineByLine, bytes, &mut Room::default());
    for shapes in [told(Pace::Runs, bytes, &mut Room::default()), told(Pace::Runs, bytes, room)] {
        if shapes != lines {
            let at = shapes.lines().zip(lines.lines()).position(|(a, b)| a != b).unwrap_or(0);
            let near =
                |told: &str| told.lines().skip(at.saturating_sub(12)).take(24).collect::<Vec<_>>().join("\n");
            panic!(
                "by shapes:\n{}\nline by line:\n{}\nof:\n{}",
                near(&shapes),
                near(&lines),
                String::from_utf8_lossy(bytes.get(..4_000).unwrap_or(bytes))
            );
        }
    }
}

/// With its digits changed.
fn renumbered(line: &[u8], by: u8) -> Vec<u8> {
    let change = |b: &u8| if b.is_ascii_digit() { b'0' + (b - b'0' + by) % 10 } else { *b };
    line.iter().map(change).collect()
}

/// With each digit of the first half replaced by one that `seed` draws, if there is one; the others by `behind`.
fn redrawn(line: &[u8], seed: Option<u64>, behind: u8) -> Vec<u8> {
    let mut state = seed.unwrap_or_default();
    let mut drawn = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        b'0' + (state >> 33) as u8 % 10
    };
    let (stamp, numbers) = line.split_at(line.len() / 2);
    let stamp = stamp.iter().map(|b| if seed.is_some() && b.is_ascii_digit() { drawn() } else { *b });
    stamp.chain(numbers.iter().map(|b| if b.is_ascii_digit() { behind } else { *b })).collect()
}

/// Lines of all recorded texts, one for each shape: digits say nothing here.
static RECORDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let files = recordings(|name| !matches!(name.rsplit('.').next(), Some("gz" | "zst" | "pickle" | "pt")));
    let mut lines: Vec<Vec<u8>> = files
        .iter()
        .flat_map(|(_, bytes)| bytes.get(..100_000).unwrap_or(bytes).split(|b| *b == b'\n'))
        .filter(|line| line.len() < 2_000)
        .map(<[u8]>::to_vec)
        .collect();
    let mut shapes = BTreeSet::new();
    lines.retain(|line| shapes.insert(renumbered_to_zero(line)));
    lines
});

/// With zeros for all digits.
fn renumbered_to_zero(line: &[u8]) -> Vec<u8> {
    line.iter().map(|b| if b.is_ascii_digit() { b'0' } else { *b }).collect()
}

/// Whether lines of a shape are passed over, once the shape is known.
fn is_ordinary(line: &[u8]) -> bool {
    let mut shapes = Shapes::default();
    let known: Vec<bool> = (0..4).map(|_| !matches!(shapes.look(line), What::Wanted)).collect();
    assert!(known.iter().all(|k| *k == known[0]), "{}", String::from_utf8_lossy(line));
    known[0]
}

#[test]
fn what_jobs_print_all_the_time_is_ordinary() {
    for line in ORDINARY {
        assert!(is_ordinary(line.as_bytes()), "{line}");
    }
}

/// No line that a reader takes when nothing is open is ordinary, whatever its digits are.
#[test]
fn no_line_of_a_reader_is_ordinary() {
    let limits = Limits::default();
    for line in &*RECORDED {
        for by in [0, 1, 7] {
            let line = renumbered(line, by);
            if !is_ordinary(&line) {
                continue;
            }
            let mut extract = Extract::default();
            let mut sink = Sink::open("x", &limits, &mut extract);
            let (mut tag, mut lines) = (Tag::default(), Lines::default());
            for believes in [false, true] {
                let mut stripper = Stripper::default();
                let mut rests = vec![0];
                if believes {
                    stripper.each_rest(&line, &mut |n| {
                        rests.push(n);
                        false
                    });
                }
                for n in rests {
                    let body = line.get(n..).unwrap_or_default();
                    let whole = Line {
                        raw: &line,
                        body,
                        tag: &tag,
                        number: 1_000,
                        offset: 0,
                        size: line.len() as u64,
                    };
                    let taken = lines.offer(&whole, &mut sink);
                    let text = String::from_utf8_lossy(&line);
                    assert_eq!((taken, lines.awake_until()), (None, 1), "{text}");
                }
                tag = Tag::default();
            }
        }
    }
}

/// No line that the table of messages or the forms of failure know is ordinary.
#[test]
fn no_line_of_a_table_is_ordinary() {
    let (mut n_rows, mut rows) = (0, Vec::new());
    for row in message::all() {
        for line in row.examples().flat_map(str::lines) {
            rows.clear();
            message::classify(line, &mut rows);
            for before in ["", "[rank3]: ", "{'x': "] {
                let line = format!("{before}{line}");
                let is_known = !rows.is_empty() || form::wanted_in_line(line.as_bytes());
                assert!(!is_known || !is_ordinary(line.as_bytes()), "{}: {line}", row.id());
            }
            n_rows += usize::from(!rows.is_empty());
        }
    }
    assert!(n_rows > 1_000, "{n_rows}");
}

#[test]
fn recorded_texts_give_the_same_by_shapes() {
    let mut room = Room::default();
    for (_, bytes) in
        recordings(|name| !matches!(name.rsplit('.').next(), Some("gz" | "zst" | "pickle" | "pt")))
    {
        check(bytes.get(..40_000).unwrap_or(&bytes), &mut room);
    }
}

/// Text between carriage returns is read like lines, and all of it has the number of its line.
#[test]
fn what_stands_behind_updates_of_a_bar_is_found() {
    let bar = |n: u32| format!("\r{:3}%|###       | {n}/5000 [00:10<01:00, 50.00it/s, loss=2.31]", n / 50);
    for n_updates in [50, 40_000] {
        let bars: String = (1..=n_updates).map(bar).collect();
        let text =
            format!("start\n{bars}\rRuntimeError: CUDA error: an illegal memory access\r{}\nend\n", bar(7));
        let extract = crate::tell::read_all("train.log", text.as_bytes());
        let error = extract.observations.iter().find(|o| o.text.starts_with("RuntimeError"));
        let place = error.map(|o| (o.cite.line, text.get(o.cite.start as usize..o.cite.end as usize)));
        assert_eq!(place, Some((2, Some("RuntimeError: CUDA error: an illegal memory access"))));
        assert!(extract.notes.is_empty(), "{:?}", extract.notes);
        check(text.as_bytes(), &mut Room::default());
    }
    // The end of a line in other systems is no update.
    check(b"a\r\n\r\nb\r\r\nc\r", &mut Room::default());
}

/// A line among lines.
fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        6 => (prop::sample::select(&ORDINARY[..]), 0..10_u8).prop_map(|(l, by)| renumbered(l.as_bytes(), by)),
        3 => (any::<prop::sample::Index>(), 0..3_u8).prop_map(|(at, by)| renumbered(at.get::<Vec<u8>>(&RECORDED), by)),
        1 => prop::collection::vec(any::<u8>().prop_filter("a line", |b| *b != b'\n'), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn texts_give_the_same_by_shapes(
        lines in prop::collection::vec((line(), 1..6_usize), 1..120),
        is_ended in any::<bool>(),
        is_crlf in prop::bool::weighted(0.1),
    ) {
        let end: &[u8] = if is_crlf { b"\r\n" } else { b"\n" };
        let lines = lines.iter().flat_map(|(line, n)| std::iter::repeat_n(line.as_slice(), *n));
        let mut bytes: Vec<u8> = lines.flat_map(|line| [line, end].concat()).collect();
        if !is_ended {
            bytes.truncate(bytes.len().saturating_sub(end.len()));
        }
        check(&bytes, &mut Room::default());
    }
    /// Lines of one shape, any digits: dates and times that are none, speeds that fall.
    #[test]
    fn one_shape_gives_the_same_whatever_its_digits_are(
        line in prop_oneof![
            3 => prop::sample::select(&ORDINARY[..]).prop_map(|line| line.as_bytes().to_vec()),
            1 => any::<prop::sample::Index>().prop_map(|at| at.get::<Vec<u8>>(&RECORDED).clone()),
        ],
        fast in prop::collection::vec(any::<Option<u64>>(), 1..200),
        slow in prop::collection::vec(any::<Option<u64>>(), 0..200),
    ) {
        let fast = fast.iter().map(|seed| redrawn(&line, *seed, b'9'));
        let lines = fast.chain(slow.iter().map(|seed| redrawn(&line, *seed, b'1')));
        // The first lines are all looked at.
        let first = std::iter::repeat_n(redrawn(&line, None, b'9'), N_SURE_LINES as usize);
        let bytes: Vec<u8> = first.chain(lines).flat_map(|line| [line.as_slice(), b"\n"].concat()).collect();
        check(&bytes, &mut Room::default());
    }
}
