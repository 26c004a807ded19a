//! `bench` and `verify` from end to end over GPUs in the host's memory (`examples/fake_gpu.rs`).
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ringleader_probe::bench::judge::Level;
use ringleader_probe::bench::{self, Crew, readback, sizes};
use ringleader_probe::collective::Collective;
use ringleader_probe::sys::{DataType, Driver, Nccl, RedOp};
use ringleader_probe::verify::inject::Fault;
use ringleader_probe::verify::place::FaultSite;
use ringleader_probe::verify::{self, Check, Tools, Watcher};
use ringleader_probe::world::Wire;

/// The library, beside this test's own program.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().join("examples/libfake_gpu.so")
}

fn driver() -> Driver {
    Driver::load(Some(&library())).unwrap()
}

fn nccl() -> Nccl {
    Nccl::load(&library()).unwrap()
}

fn tools(n: usize) -> Tools {
    Tools {
        driver: driver(),
        nccl: Some((nccl(), "libfake_gpu.so".to_owned())),
        blas: None,
        devices: (0..n).collect(),
    }
}

fn plan() -> verify::VerifyPlan {
    verify::VerifyPlan {
        duration: Duration::from_secs(1),
        checks: Check::ALL.to_vec(),
        margin_bytes: 60 << 20,
        is_brief: true,
        inject: None,
        seed: 5,
        timeout: Duration::from_mins(1),
    }
}

fn check(n: usize, plan: &verify::VerifyPlan) -> verify::Report {
    let stop = AtomicBool::new(false);
    verify::run(&tools(n), plan, &Watcher { progress: &|_, _| (), stop: &stop }).unwrap()
}

fn measure(n: usize, n_graphs: usize) -> bench::Report {
    let plan = bench::BenchPlan {
        collectives: Collective::ALL.to_vec(),
        sizes: sizes(256, 4096, 4, None),
        dtype: DataType::F32,
        op: RedOp::Sum,
        root: 1,
        n_warmup: 1,
        n_iterations: 3,
        n_checks: 1,
        n_graphs,
        n_latencies: 5,
        in_place: true,
        pairs: true,
        timeout: Duration::from_mins(1),
    };
    let crew = Crew {
        driver: driver(),
        nccl: (nccl(), "libfake_gpu.so".to_owned()),
        wire: Wire::Alone,
        ranks: (0, n),
        n_processes: 1,
        devices: (0..n).collect(),
    };
    bench::run(crew, &plan, &readback::Ways::default(), &|_| ()).unwrap()
}

#[test]
fn every_collective_is_right_in_and_out_of_place() {
    for (n, n_graphs) in [(2, 0), (4, 0), (2, 2)] {
        let report = measure(n, n_graphs);
        assert_eq!(report.rows.len(), 3 * Collective::ALL.len());
        for row in &report.rows {
            assert_eq!(row.out_of_place.wrong, Some(0), "{n} {row:?}");
            let is_right = Collective::by_name(&row.collective).unwrap().is_right_in_place();
            assert_eq!(row.in_place.unwrap().wrong, is_right.then_some(0), "{n} {row:?}");
            let [p50, p90, p99, most] = row.out_of_place.percentiles_us.unwrap();
            assert!(p50 <= p90 && p90 <= p99 && p99 <= most);
        }
        assert_eq!(report.pairs.len(), n * (n - 1) / 2);
        assert!(report.verdicts.iter().all(|verdict| verdict.level == Level::NotJudged));
        let text = serde_json::to_string(&report).unwrap();
        assert_eq!(bench::baseline::parse(&text).unwrap().rows.len(), report.rows.len());
        let (changes, notes) = bench::baseline::compare(&report, &report);
        assert_eq!((changes, notes), (Vec::new(), Vec::new()));
        assert!(bench::html::render(&report).contains("<polyline"));
    }
}

#[test]
fn healthy_gpus_are_found_healthy() {
    for n in [1, 2, 4] {
        let report = check(n, &plan());
        assert_eq!(report.findings, [], "{n}");
        assert!(!report.is_cut && report.coverage.rounds >= 1);
        let c = &report.coverage;
        assert!(c.pattern_bytes > 0 && c.unit_passes > 0 && c.link_bytes > 0, "{c:?}");
        assert_eq!(c.collectives > 0, n > 1);
        assert_eq!(c.pairs, (n * (n - 1)) as u64);
        assert!(verify::table::render(&report).contains("no wrong value"));
    }
}

#[test]
fn each_planted_fault_is_found_where_it_is() {
    for fault in [
        Fault::Buffer(2),
        Fault::Product(0),
        Fault::Memory(3),
        Fault::Gpu(1),
        Fault::Link(0, 3),
        Fault::Link(3, 0),
    ] {
        let report = check(4, &verify::VerifyPlan { inject: Some(fault), ..plan() });
        let places: Vec<FaultSite> = report.findings.iter().map(|finding| finding.place.clone()).collect();
        assert_eq!(places, [fault.place()], "{fault:?}");
        assert!(report.findings[0].signs.iter().all(|sign| sign.count > 0 && !sign.text.is_empty()));
    }
}

#[test]
fn random_faults_are_all_found() {
    let stop = AtomicBool::new(false);
    let said = Mutex::new(BTreeSet::new());
    let progress = |_: f64, what: &str| {
        said.lock().unwrap().insert(what.to_owned());
    };
    let (proofs, n_false) =
        verify::prove(&tools(2), &plan(), 24, &Watcher { progress: &progress, stop: &stop }).unwrap();
    assert_eq!(n_false, 0);
    assert_eq!(proofs.len(), 24);
    assert!(
        proofs.iter().all(|proof| proof.is_right && proof.n_flipped > 0),
        "{}",
        verify::table::proofs(&proofs, 0)
    );
    assert!(said.lock().unwrap().contains("planted faults"));
}

#[test]
fn a_run_that_is_stopped_says_what_it_did() {
    let stop = AtomicBool::new(true);
    let report = verify::run(&tools(2), &plan(), &Watcher { progress: &|_, _| (), stop: &stop }).unwrap();
    assert!(report.is_cut && report.findings.is_empty() && report.coverage.pattern_bytes == 0);
}

/// What the hardware does wrong by itself: the test runs itself again, with a fault in the library.
#[test]
fn faults_of_the_hardware_are_placed() {
    let run = |fault: &str| {
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "with_a_fault_of_the_hardware", "--include-ignored", "--nocapture"])
            .env("FAKE_FAULT", fault)
            .output()
            .unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    };
    run("recv:1");
    run("product:2");
    run("channel:5");
}

#[test]
#[ignore = "runs only with a fault in the library, started by the test above"]
fn with_a_fault_of_the_hardware() {
    let Ok(fault) = std::env::var("FAKE_FAULT") else { return };
    let (kind, rank) = fault.split_once(':').unwrap();
    let rank: usize = rank.parse().unwrap();
    let n = if kind == "recv" { 2 } else { 4 };
    let report = check(n, &plan());
    let places: Vec<FaultSite> = report.findings.iter().map(|finding| finding.place.clone()).collect();
    if kind == "channel" {
        // Copies between pairs are right: which of the ranks it is nothing shows, but which channel.
        assert_eq!(places, [FaultSite::OneOf((0..n).collect())]);
        let signs = &report.findings[0].signs;
        assert!(
            signs.iter().all(|sign| sign.rank == 1 && sign.text.ends_with("with 6 wrong: channel 5")),
            "{signs:?}"
        );
        return;
    }
    let want = if kind == "recv" { FaultSite::Link(1 - rank, rank) } else { FaultSite::Gpu(rank) };
    assert_eq!(places, [want], "{}", verify::table::render(&report));
    if kind == "recv" {
        let report = measure(2, 0);
        assert!(report.verdicts.iter().any(|verdict| verdict.level == Level::Wrong));
    }
}
