//! Explores the orders of the ring's atomics with loom: `RUSTFLAGS="--cfg loom" cargo test -p ringleader-ring`.

use loom::sync::Arc;
use loom::thread;

use crate::progress::{self, ChannelProgress, HANDED_OVER, StepResult};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::{journal, slot};

struct Entry {
    tag: AtomicU64,
    words: [AtomicU64; 2],
}

impl Entry {
    fn new() -> Arc<Self> {
        Arc::new(Self { tag: AtomicU64::new(0), words: [AtomicU64::new(0), AtomicU64::new(0)] })
    }
    fn fill(&self, value: u64) {
        for word in &self.words {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Reads an entry beside its writer: the words read belong to the generation of the tag, complete.
///
/// The reader is the spawned thread and the writer the one that runs first. The other way round loom explores one
/// order only: it looks for the last access to the tag before a write, finds the writer's own, and stops there.
fn read_beside(entry: &Arc<Entry>) -> thread::JoinHandle<()> {
    let entry = entry.clone();
    thread::spawn(move || {
        let mut seen = [0; 2];
        if let Some(tag) = slot::read(&entry.tag, &entry.words, &mut seen) {
            assert_eq!(seen, [slot::generation(tag) + 10; 2]);
        }
    })
}

/// A reader beside a writer that fills, frees and fills again: it sees one filling or the other, never a mixture.
#[test]
fn a_reader_never_sees_half_an_entry() {
    loom::model(|| {
        let entry = Entry::new();
        let reader = read_beside(&entry);
        for _ in 0..2 {
            let generation = slot::claim(&entry.tag).unwrap();
            entry.fill(generation + 10);
            slot::publish(&entry.tag, generation);
            assert!(slot::free(&entry.tag, generation));
        }
        reader.join().unwrap();
        assert_eq!(slot::generation(entry.tag.load(Ordering::Relaxed)), 2);
    });
}

/// The same for an entry that is reclaimed from an owner that is gone.
#[test]
fn a_reader_never_sees_half_a_reclaimed_entry() {
    loom::model(|| {
        let entry = Entry::new();
        let generation = slot::claim(&entry.tag).unwrap();
        entry.fill(generation + 10);
        slot::publish(&entry.tag, generation);
        let reader = read_beside(&entry);
        let tag = entry.tag.load(Ordering::Acquire);
        let generation = slot::reclaim(&entry.tag, tag).unwrap();
        entry.fill(generation + 10);
        slot::publish(&entry.tag, generation);
        reader.join().unwrap();
    });
}

/// Two threads claim an entry: one succeeds. A free by the owner and a reclaim of the same generation: one succeeds.
#[test]
fn an_entry_has_one_owner() {
    loom::model(|| {
        let entry = Entry::new();
        let other = {
            let entry = entry.clone();
            thread::spawn(move || slot::claim(&entry.tag).is_some())
        };
        let mine = slot::claim(&entry.tag).is_some();
        assert!(mine ^ other.join().unwrap());
        slot::publish(&entry.tag, 0);

        let tag = entry.tag.load(Ordering::Relaxed);
        let other = {
            let entry = entry.clone();
            thread::spawn(move || slot::reclaim(&entry.tag, tag).is_some())
        };
        let freed = slot::free(&entry.tag, 0);
        assert!(freed ^ other.join().unwrap());
    });
}

fn record(sequence: &AtomicU64, words: &[AtomicU64; 2], place: u64) -> bool {
    let begun = journal::begin(sequence, place);
    if begun {
        for word in words {
            word.store(place + 10, Ordering::Relaxed);
        }
        journal::end(sequence, place);
    }
    begun
}

/// Two writers one round apart at one journal entry, and a reader: it sees a whole entry or none, and the writer that
/// drops its record knows it.
#[test]
fn a_journal_entry_is_whole() {
    // Three threads take minutes without a bound on preemptions.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let entry = Entry::new();
        let writer = {
            let entry = entry.clone();
            thread::spawn(move || record(&entry.tag, &entry.words, 1))
        };
        let reader = {
            let entry = entry.clone();
            thread::spawn(move || {
                let before = entry.tag.load(Ordering::Acquire);
                let seen = [0, 1].map(|at: usize| entry.words[at].load(Ordering::Relaxed));
                fence(Ordering::Acquire);
                let after = entry.tag.load(Ordering::Relaxed);
                if before == after
                    && let Some(place) = journal::place(before)
                {
                    assert_eq!(seen, [place + 10; 2]);
                }
            })
        };
        let first = record(&entry.tag, &entry.words, 0);
        let second = writer.join().unwrap();
        reader.join().unwrap();
        assert!(first || second);
        let last = journal::place(entry.tag.load(Ordering::Acquire)).unwrap();
        assert_eq!(last, u64::from(second));
        assert_eq!(entry.words[0].load(Ordering::Relaxed), last + 10);
    });
}

/// Hand-over, the channel's stop and the proxy's stop in three threads: exactly one of them ends the operation.
#[test]
fn an_operation_ends_once() {
    loom::model(|| {
        let started = ChannelProgress::new(7)
            .expecting(1)
            .one_started()
            .and_then(ChannelProgress::proxy_started)
            .unwrap();
        let word = Arc::new(AtomicU64::new(started.0));
        let run = |change: fn(ChannelProgress) -> Option<ChannelProgress>| {
            let word = word.clone();
            thread::spawn(move || progress::step(&word, 7, change))
        };
        let stop = run(ChannelProgress::one_stopped);
        let proxy = run(ChannelProgress::proxy_stopped);
        let handed = progress::step(&word, 7, |progress| Some(progress.with(HANDED_OVER)));
        let steps = [handed, stop.join().unwrap(), proxy.join().unwrap()];
        assert_eq!(steps.iter().filter(|step| **step == StepResult::Ends).count(), 1);
        assert_eq!(steps.iter().filter(|step| **step == StepResult::Refused).count(), 0);
        // Nothing changes it afterwards; neither does an event of another generation.
        assert_eq!(progress::step(&word, 7, ChannelProgress::one_started), StepResult::Refused);
        assert_eq!(progress::step(&word, 8, ChannelProgress::one_started), StepResult::Refused);
        assert!(!progress::put_away(&word, 7, false));
    });
}

/// An entry is taken back while its operation's last child stops: exactly one of the two puts it away.
#[test]
fn an_operation_is_put_away_once() {
    loom::model(|| {
        let started = ChannelProgress::new(7).with(HANDED_OVER).expecting(1).one_started().unwrap();
        let word = Arc::new(AtomicU64::new(started.0));
        let other = {
            let word = word.clone();
            thread::spawn(move || progress::put_away(&word, 7, false))
        };
        let ends = progress::step(&word, 7, ChannelProgress::one_stopped) == StepResult::Ends;
        assert!(ends ^ other.join().unwrap());
    });
}

/// A group ends while a call one round later takes the entry of one of its calls: a reader sees a whole call, and the
/// later call is not marked.
#[test]
fn a_call_is_marked_by_its_own_group() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        // The sequence, a word that stays, and the one that is marked.
        let entry = Entry::new();
        let write = |entry: &Entry, place: u64| {
            let begun = journal::begin(&entry.tag, place);
            if begun {
                entry.words[0].store(place + 10, Ordering::Relaxed);
                entry.words[1].store(journal::unmarked(place), Ordering::Relaxed);
                journal::end(&entry.tag, place);
            }
            begun
        };
        assert!(write(&entry, 1));
        let later = {
            let entry = entry.clone();
            thread::spawn(move || write(&entry, 2))
        };
        let reader = {
            let entry = entry.clone();
            thread::spawn(move || {
                let before = entry.tag.load(Ordering::Acquire);
                let seen = [0, 1].map(|at: usize| entry.words[at].load(Ordering::Relaxed));
                fence(Ordering::Acquire);
                let after = entry.tag.load(Ordering::Relaxed);
                if before == after
                    && let Some(place) = journal::place(before)
                {
                    assert_eq!(seen[0], place + 10);
                    assert!(place == 1 || seen[1] != journal::marked(place));
                }
            })
        };
        if journal::place(entry.tag.load(Ordering::Acquire)) == Some(1) {
            journal::mark(&entry.words[1], 1);
        }
        assert!(later.join().unwrap());
        reader.join().unwrap();
        // loom does not know that the mark of the first call must precede the word of the second, as a
        // compare-and-swap guarantees; either way the second is not marked.
        assert_ne!(entry.words[1].load(Ordering::Relaxed), journal::marked(2));
    });
}
