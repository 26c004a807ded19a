//! The simulation itself.

use ringleader_synth::{Fault, Options, job};

#[test]
fn one_seed_one_job() {
    for seed in 0..30 {
        let options =
            Options { max_ranks: 32, clock_skew_ms: 1_000, drop_dumps_pct: 30, ..Options::default() };
        let (truth, evidence) = job(seed, &options);
        let (again, same) = job(seed, &options);
        assert_eq!(truth.to_string(), again.to_string());
        assert_eq!(evidence.files, same.files, "seed {seed}");
        assert!(!evidence.files.is_empty());
    }
}

#[test]
fn every_fault_can_be_planted() {
    for fault in Fault::ALL {
        let planted = (0..20)
            .filter(|seed| {
                job(*seed, &Options { fault: Some(*fault), max_ranks: 16, ..Options::default() }).0.fault
                    == *fault
            })
            .count();
        assert!(planted >= 18, "{fault}: planted in {planted} of 20 jobs");
    }
}

#[test]
fn who_waits_complains_and_who_stands_outside_does_not() {
    for seed in 0..20 {
        let options = Options { fault: Some(Fault::StuckOutside), max_ranks: 8, ..Options::default() };
        let (truth, evidence) = job(seed, &options);
        let stderr: String = evidence
            .files
            .iter()
            .filter(|(name, _)| name.starts_with("stderr"))
            .map(|(_, bytes)| String::from_utf8_lossy(bytes).into_owned())
            .collect();
        let complains = |rank: u32| {
            stderr
                .lines()
                .any(|l| l.starts_with(&format!("[rank{rank}]:[E")) && l.contains("Watchdog caught"))
        };
        assert!((0..truth.n_ranks).any(complains), "seed {seed}: nobody complains");
        // Its own calls may time out too if it had enqueued some before it got stuck; otherwise it has none.
        for rank in &truth.culprits {
            let dump = evidence.files.iter().find(|(name, _)| *name == format!("fr_rank{rank}"));
            let unfinished = dump.is_some_and(|(_, bytes)| bytes.windows(9).any(|w| w == b"scheduled"));
            assert_eq!(complains(*rank), unfinished, "seed {seed}: {truth}");
        }
    }
}

#[test]
fn healthy_jobs_leave_nothing_unfinished() {
    for seed in 0..40 {
        let options = Options { fault: Some(Fault::None), max_ranks: 64, ..Options::default() };
        for (name, bytes) in job(seed, &options).1.files {
            if name.starts_with("fr_rank") {
                assert!(!bytes.windows(9).any(|w| w == b"scheduled"), "seed {seed}: {name}");
            }
        }
    }
}
