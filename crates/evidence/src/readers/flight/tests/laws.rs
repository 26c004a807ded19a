//! What holds for all input.

use proptest::prelude::*;

use super::real::dumps;
use super::writer::{Entry, Style, newest, pickle};
use super::{dump_of, lines, read};

/// What is read from a file cut at any byte is the beginning of what is read from the whole.
#[test]
fn a_prefix_gives_a_prefix() {
    let (name, bytes) = dumps().into_iter().find(|(name, _)| name.contains("p2p-missing-send")).unwrap();
    let whole = read(&name, &bytes);
    let whole = lines(dump_of(&whole).unwrap());
    let mut n_before = 0;
    // All cuts would take half a minute.
    for n in (2..bytes.len()).step_by(7).chain([bytes.len() - 1]) {
        let extract = read(&name, &bytes[..n]);
        assert!(!extract.notes.is_empty(), "cut at {n}: not said");
        let Some(dump) = dump_of(&extract) else {
            assert_eq!(n_before, 0);
            continue;
        };
        assert!(dump.truncated, "cut at {n}");
        assert_eq!(lines(dump), whole[..dump.ops.len()], "cut at {n}");
        assert!(dump.ops.len() >= n_before);
        n_before = dump.ops.len();
    }
    assert_eq!(n_before, whole.len());
}

/// Entries of few kinds, as they come in a job.
pub(super) fn entry() -> impl Strategy<Value = Entry> {
    let names = prop::sample::select(vec![
        "nccl:all_reduce",
        "nccl:send 0->1",
        "nccl:_all_gather_base",
        "nccl:coalesced",
    ]);
    let shapes =
        prop::sample::select(vec![vec![], vec![1], vec![70_000, 3], vec![5_000_000_000, 2, 1], vec![8; 9]]);
    let states = prop::sample::select(vec!["scheduled", "started", "completed"]);
    let groups = prop::sample::select(vec![(0, "0", "default_pg"), (1, "12", "TP"), (300, "0", "other")]);
    let dtypes = prop::sample::select(vec!["Float", "BFloat16"]);
    (0..200_000_i64, groups, names, 0..100_000_i64, shapes, dtypes, states, 1..400_i64).prop_map(
        |(record_id, group, name, seq, shape, dtype, state, line)| Entry {
            record_id,
            group,
            name: name.into(),
            seq,
            shape,
            dtype,
            state,
            line,
        },
    )
}

proptest! {
    /// The fast path and the general machine agree.
    #[test]
    fn both_paths_agree(kinds in prop::collection::vec(entry(), 1..8), order in prop::collection::vec(any::<prop::sample::Index>(), 0..60)) {
        let entries: Vec<Entry> = order
            .iter()
            .enumerate()
            .map(|(i, at)| Entry { record_id: i as i64, ..at.get(&kinds).clone() })
            .collect();
        let object = newest(&entries);
        let torch = read("x1", &pickle(Style::Torch, &object));
        let python = read("x1", &pickle(Style::CPython(4), &object));
        prop_assert_eq!(dump_of(&torch), dump_of(&python));
        let dump = dump_of(&torch).unwrap();
        prop_assert_eq!(dump.ops.len(), entries.len());
        for (op, entry) in dump.ops.iter().zip(&entries) {
            prop_assert_eq!((i64::from(op.record_id), i64::from(op.seq)), (entry.record_id, entry.seq));
            let signature = &dump.signatures[op.signature as usize];
            prop_assert_eq!(signature.input_sizes[0].iter().map(|n| *n as i64).collect::<Vec<_>>(), entry.shape.clone());
            prop_assert_eq!(&*signature.output_dtypes[0], entry.dtype);
            let group = &dump.groups[op.group as usize];
            prop_assert_eq!((&*group.name, &*group.desc), (entry.group.1, entry.group.2));
            let stack = &dump.stacks[op.stack as usize];
            prop_assert_eq!(i64::from(dump.frames[stack[1] as usize].line), entry.line);
        }
    }

    /// No bytes after the magic can panic, hang, or go without a word.
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let extract = read("x", &[b"\x80\x02", bytes.as_slice()].concat());
        prop_assert!(!extract.notes.is_empty() || dump_of(&extract).is_some());
    }

    /// Nor any opcodes.
    #[test]
    fn any_opcodes(ops in prop::collection::vec(prop::sample::select(b"}](e u q\x00h\x00K\x01N\x86t)l d a s 0 1 2 \x85\x94".to_vec()), 0..300)) {
        let extract = read("x", &[b"\x80\x02}(X\x07\0\0\0entries](", ops.as_slice()].concat());
        prop_assert!(!extract.notes.is_empty());
    }

    /// A real dump with a few bytes changed still gives the entries before the first change.
    #[test]
    fn changed_bytes(at in 0.0..1.0_f64, with in prop::collection::vec(any::<u8>(), 1..6)) {
        let (name, mut bytes) = dumps().into_iter().find(|(name, _)| name.contains("p2p-missing-send")).unwrap();
        let at = (bytes.len() as f64 * at) as usize;
        let before = read(&name, &bytes[..at]);
        bytes.splice(at..(at + with.len()).min(bytes.len()), with.iter().copied());
        let after = read(&name, &bytes);
        // The next byte after an entry shows whether it is closed, so one entry may be lost.
        if let (Some(before), Some(after)) = (dump_of(&before), dump_of(&after)) {
            let (before, after) = (lines(before), lines(after));
            let n = before.len().saturating_sub(1);
            prop_assert!(after.len() >= n);
            // Names of groups precede the entries.
            if at > 300 {
                prop_assert_eq!(&after[..n], &before[..n]);
            }
        }
    }
}
