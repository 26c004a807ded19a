#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;

use proptest::prelude::*;
use ringleader_model::{Fact, Host, Pid, Progress, Rank, Said};

use super::MAX_TEMPLATES;
use crate::tell;

/// Statements of a text, each as `line..last line, how often, who: rows; whom it names`.
fn said(text: &str) -> Vec<String> {
    let extract = tell::read_all("x", text.as_bytes());
    let told = extract.observations.iter().filter_map(|o| match &o.fact {
        Fact::Said(said) => Some((o, &**said)),
        _ => None,
    });
    told.map(|(o, said): (_, &Said)| {
        let named: Vec<u32> = said.named.ranks.iter().map(|r| r.0).collect();
        let rank = o.who.rank.map_or(String::new(), |Rank(r)| format!(" rank {r}"));
        format!(
            "{}..{} x{}{rank}: {:?} {named:?}",
            o.cite.line,
            said.last.line,
            said.count,
            said.rows.first()
        )
    })
    .collect()
}

fn progress(text: &str) -> Option<Progress> {
    let extract = tell::read_all("x", text.as_bytes());
    extract.observations.into_iter().find_map(|o| match o.fact {
        Fact::Progress(progress) => Some(progress),
        _ => None,
    })
}

#[test]
fn repeats_are_folded_and_speakers_kept_apart() {
    let line = |rank: u32, n: u32| format!("[rank{rank}]: something failed with exit code 3 at {n}\n");
    let text = [line(0, 17), line(1, 18), line(0, 19), line(0, 20)].concat();
    assert_eq!(said(&text), ["1..4 x3 rank 0: None []", "2..2 x1 rank 1: None []"]);
}

#[test]
fn a_launcher_names_another() {
    let text =
        "[rank: 1] Child process with PID 17544 terminated with code -9. Forcefully terminating all others\n";
    assert_eq!(said(text), ["1..1 x1: Some(\"lightning-child-killed\") [1]"]);
}

#[test]
fn ordinary_output_says_nothing() {
    let text = "step 812 loss 2.31 lr 3.0e-4\n0 errors, 12 warnings\n--ignore-errors\nUsing 8 GPUs\n";
    assert_eq!(said(text), [""; 0]);
}

#[test]
fn an_update_of_a_bar_hides_nothing() {
    let text = " 1%| | 1/90\r 2%| | 2/90\rValueError: bad shard\n";
    assert_eq!(said(text).len(), 1);
}

#[test]
fn what_a_program_text_quotes_never_happened() {
    let text = "import torch\nraise RuntimeError('CUDA out of memory')\nmodel = build()\nloss = model(x)\n"
        .repeat(4);
    assert_eq!(said(&text), [""; 0]);
}

#[test]
fn floods_of_templates_are_bounded_and_said() {
    let mut text = String::new();
    for n in 0..MAX_TEMPLATES + 40 {
        let word: String = n.to_string().bytes().map(|b| char::from(b'a' + (b - b'0'))).collect();
        let _ = writeln!(text, "fatal error: {word} is broken");
    }
    let extract = tell::read_all("x", text.as_bytes());
    let n = extract.observations.iter().filter(|o| matches!(o.fact, Fact::Said(_))).count();
    assert!(n <= MAX_TEMPLATES, "{n}");
    assert!(
        extract.notes.iter().any(|n| n.text.contains("different error statements")),
        "{:?}",
        extract.notes
    );
}

#[test]
fn steps_that_advance_and_an_end() {
    let seen = progress("step 1 loss 2.0\nstep 2 loss 1.9\nTraining completed.\n").unwrap();
    assert_eq!((seen.n_lines, seen.n_steps), (2, 2));
    assert_eq!(seen.ended.map(|cite| cite.line), Some(3));
    assert_eq!(seen.before_last.map(|cite| cite.line), Some(1));
    let stuck = progress("step 1 loss 2.0\nstep 1 loss 2.0\n").unwrap();
    assert_eq!((stuck.n_lines, stuck.n_steps, stuck.ended), (2, 1, None));
    assert_eq!(progress("nothing to see\n"), None);
}

proptest! {
    #[test]
    fn any_text_is_read_and_cited_within_it(text in "(.{0,60}\n){0,12}") {
        let extract = tell::read_all("x", text.as_bytes());
        for o in &extract.observations {
            prop_assert!(o.cite.end <= text.len() as u64);
            if let Fact::Said(said) = &o.fact {
                prop_assert!(said.last.start >= o.cite.start && said.count >= 1);
            }
        }
    }

    #[test]
    fn hosts_and_processes_that_are_named_are_few(n in 1_usize..400) {
        let list: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        let text = format!("Ranks {} failed to pass monitoredBarrier in 60000 ms\n", list.join(", "));
        let extract = tell::read_all("x", text.as_bytes());
        for o in &extract.observations {
            if let Fact::Said(said) = &o.fact {
                let named: (&[Rank], &[Host], &[Pid]) = (&said.named.ranks, &said.named.hosts, &said.named.pids);
                prop_assert!(named.0.len() <= super::MAX_NAMED && named.1.len() <= super::MAX_NAMED && named.2.len() <= super::MAX_NAMED);
            }
        }
    }
}
