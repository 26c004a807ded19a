//! What a dump says does not depend on what was read before it, and what was learned before is made use of.

use proptest::prelude::*;

use super::super::known::CarriedOver;
use super::super::lesson::{LessonOutcome, Lessons};
use super::super::machine::{PickleEnd, PickleMachine};
use super::laws::entry;
use super::real::dumps;
use super::writer::{Entry, Style, newest, pickle};
use super::{dump_of, read};
use crate::{Limits, Scratch};

/// Reads files one after the other with what each leaves to the next, and holds them against each one read alone.
#[track_caller]
fn check<'b>(files: impl IntoIterator<Item = (&'b str, &'b [u8])>) {
    let mut scratch = Scratch::default();
    for (at, (name, bytes)) in files.into_iter().enumerate() {
        let together = crate::read(name, &mut &*bytes, &mut scratch, &Limits::default());
        let alone = read(name, bytes);
        assert_eq!(dump_of(&together), dump_of(&alone), "file {at}");
        assert_eq!(together.notes, alone.notes, "file {at}");
    }
}

#[test]
fn recordings_say_the_same_in_any_company() {
    let dumps = dumps();
    let all = || dumps.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    check(all());
    check(all().rev());
    // Cut ones between whole ones.
    check(
        all().enumerate().map(|(at, (name, bytes))| (name, bytes.get(..bytes.len() / (1 + at % 3)).unwrap())),
    );
    check(all().take(4).chain(all().take(4)).chain(all().rev()));
}

/// Entries of a dump, and how many of them were read as the lesson of the dump before has them.
fn followed(first: &[u8], second: &[u8]) -> (usize, Option<usize>) {
    let mut lessons = Lessons::default();
    let mut machine = PickleMachine::new(first, CarriedOver::default(), &lessons);
    assert_eq!(machine.run(), PickleEnd::Stop);
    let outcome = LessonOutcome::of(&mut machine, true);
    let (dump, _, known) = machine.build.finish();
    lessons.end(outcome, &dump);
    let mut machine = PickleMachine::new(second, known, &lessons);
    assert_eq!(machine.run(), PickleEnd::Stop);
    (machine.build.dump.ops.len(), machine.n_followed)
}

fn steps(rank: i64, group: &'static str, n: i64) -> Vec<u8> {
    let entries: Vec<Entry> = (0..n)
        .map(|i| Entry {
            record_id: 1000 + i,
            group: (1, group, "TP"),
            name: if i % 3 == 0 { "nccl:all_reduce" } else { "nccl:_all_gather_base" }.into(),
            seq: 5000 + i * 3 + rank,
            shape: vec![4096, i % 5],
            dtype: "Float",
            state: "completed",
            line: 10 + i % 7,
        })
        .collect();
    pickle(Style::Torch, &newest(&entries))
}

#[test]
fn dumps_of_one_job_follow_the_first() {
    // Other numbers and another group, whose name is as long or longer: all is as in the first.
    assert_eq!(followed(&steps(0, "7", 300), &steps(1, "7", 300)), (300, Some(300)));
    assert_eq!(followed(&steps(0, "7", 300), &steps(1, "12", 300)), (300, Some(299)));
    // Other calls at the end.
    let (n, n_followed) = followed(&steps(0, "7", 100), &steps(1, "7", 140));
    assert!(n == 140 && n_followed > Some(100), "{n_followed:?}");
    // A pickle of Python's memoizes what torch's does not: nothing is learned.
    let python = pickle(Style::CPython(4), &newest(&[]));
    assert_eq!(followed(&python, &steps(1, "7", 10)).1, None);
}

proptest! {
    #[test]
    fn dumps_say_the_same_in_any_company(
        kinds in prop::collection::vec(entry(), 1..8),
        orders in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..40), 2..6),
    ) {
        let files: Vec<Vec<u8>> = orders
            .iter()
            .map(|order| {
                let entries: Vec<Entry> = order
                    .iter()
                    .enumerate()
                    .map(|(i, at)| Entry { record_id: i as i64, ..at.get(&kinds).clone() })
                    .collect();
                pickle(Style::Torch, &newest(&entries))
            })
            .collect();
        check(files.iter().map(|bytes| ("x1", bytes.as_slice())));
    }

    /// Nor if bytes of it are wrong.
    #[test]
    fn broken_dumps_say_the_same_in_any_company(
        at in 0.0..1.0_f64,
        with in prop::collection::vec(any::<u8>(), 1..6),
        n_out in 0..40_usize,
    ) {
        let whole = steps(0, "7", 60);
        let mut broken = steps(1, "7", 60);
        let at = (broken.len() as f64 * at) as usize;
        broken.splice(at..(at + n_out).min(broken.len()), with);
        check([("x0", whole.as_slice()), ("x1", &broken), ("x0", &whole), ("x1", &broken)]);
    }
}
