//! The diagnosis names the planted fault. `docs/accuracy.toml` has the required accuracy, which may only
//! rise.

use ringleader_synth::accuracy::{Mode, judge_all, total};

/// Jobs judged in each mode: enough for each fault to come up a few times, few enough for a debug build.
const JOBS: u64 = 150;
const MAX_RANKS: u32 = 64;

#[test]
fn accuracy_does_not_fall() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/accuracy.toml");
    let text = std::fs::read_to_string(path).expect("docs/accuracy.toml is there");
    let floors: toml::Table = text.parse().expect("docs/accuracy.toml is TOML");
    let mut fallen = Vec::new();
    for mode in Mode::ALL {
        let floor = floors.get(mode.name()).and_then(toml::Value::as_integer).unwrap_or(0);
        let judged = judge_all(0, JOBS, 2, |seed| mode.options(seed, MAX_RANKS), |_| {});
        let all = total(&judged);
        let right = all.right_per_mille();
        if (right as i64) < floor {
            let misses: Vec<String> = judged
                .iter()
                .filter(|j| !j.void && !j.right())
                .take(12)
                .map(|j| {
                    format!(
                        "  seed {}: {}\n      got {} {:?}: {}",
                        j.seed, j.truth, j.cause, j.culprits, j.summary
                    )
                })
                .collect();
            fallen.push(format!(
                "{}: {right} of 1,000 right, floor {floor}\n{}",
                mode.name(),
                misses.join("\n")
            ));
        }
    }
    assert!(
        fallen.is_empty(),
        "{}\nagain: cargo run --release -p ringleader-synth --example accuracy -- --max-ranks {MAX_RANKS} --mode MODE --seed SEED",
        fallen.join("\n")
    );
}
