//! The cases under `cases/ring-*`: scripted rings with stacks and process lists, each with its truth.

use std::fmt::Write as _;

use ringleader_ring::Phase;

use crate::rings::{RingEnd, RingJob};

/// One simulated case with rings.
#[derive(Clone, Debug)]
pub struct RingCase {
    /// Folder below `cases`.
    pub name: &'static str,
    /// The right cause.
    pub cause: &'static str,
    /// Its category.
    pub category: &'static str,
    /// Other acceptable causes.
    pub also_right: &'static [&'static str],
    /// Ranks at fault.
    pub culprits: &'static [u32],
    /// Function of the program where it happened.
    pub place: &'static str,
    /// Description of the case.
    pub story: &'static str,
    /// Files of the evidence.
    pub files: Vec<(String, Vec<u8>)>,
}

impl RingCase {
    /// The content of `case.toml`.
    pub fn truth(&self) -> String {
        let mut text = format!("origin = \"made by crates/synth (ring_cases): {}\"\n", self.story);
        let also: Vec<String> = self.also_right.iter().map(|c| format!("\"{c}\"")).collect();
        let _ = writeln!(text, "category = \"{}\"\ncause = \"{}\"", self.category, self.cause);
        let _ = writeln!(text, "also_right = [{}]", also.join(", "));
        let _ = writeln!(
            text,
            "culprit_ranks = {:?}\nculprit_host = \"\"\nwhere = \"{}\"",
            self.culprits, self.place
        );
        text
    }
}

/// A frame: function, file, line.
type Frame = (&'static str, &'static str, u32);

const SYNC: &[Frame] = &[
    ("synchronize", "torch/cuda/__init__.py", 1083),
    ("train_step", "/srv/train/train.py", 88),
    ("main", "/srv/train/train.py", 140),
];
const LOADER: &[Frame] = &[
    ("select", "selectors.py", 415),
    ("wait", "multiprocessing/connection.py", 1136),
    ("_poll", "multiprocessing/connection.py", 440),
    ("get", "multiprocessing/queues.py", 113),
    ("_try_get_data", "torch/utils/data/dataloader.py", 1275),
    ("_next_data", "torch/utils/data/dataloader.py", 1442),
    ("next_batch", "/srv/train/data.py", 51),
    ("main", "/srv/train/train.py", 133),
];
const SAVE: &[Frame] = &[
    ("_save", "torch/serialization.py", 1192),
    ("save", "torch/serialization.py", 967),
    ("save_checkpoint", "/srv/train/checkpoint.py", 22),
    ("main", "/srv/train/train.py", 150),
];
const OWN_KERNEL: &[Frame] = &[
    ("synchronize", "torch/cuda/__init__.py", 1083),
    ("spin_until_flag", "/srv/train/kernels.py", 37),
    ("train_step", "/srv/train/train.py", 80),
    ("main", "/srv/train/train.py", 140),
];
const LAUNCH: &[Frame] =
    &[("spin_until_flag", "/srv/train/kernels.py", 31), ("train_step", "/srv/train/train.py", 80)];
const COMPILE: &[Frame] = &[
    ("_compile_method_inner", "torch/_inductor/codecache.py", 2100),
    ("compile_fx", "torch/_inductor/compile_fx.py", 1980),
    ("train_step", "/srv/train/train.py", 80),
];
const LOCK: &[Frame] = &[
    ("acquire", "filelock/_api.py", 210),
    ("append_metrics", "/srv/train/metrics.py", 18),
    ("main", "/srv/train/train.py", 145),
];

/// py-spy's dump of a rank's main thread.
fn stack(rank: usize, frames: &[Frame]) -> (String, Vec<u8>) {
    let pid = RingJob::pid(rank);
    let mut text = format!("Process {pid}: python3 -u train.py\nPython v3.12.3 (/usr/bin/python3.12)\n\n");
    let _ = writeln!(text, "Thread {pid} (idle): \"MainThread\"");
    for (function, file, line) in frames {
        let _ = writeln!(text, "    {function} ({file}:{line})");
    }
    (format!("stack-{pid}.txt"), text.into_bytes())
}

/// A process list: the state letter of each rank.
fn processes(states: &str) -> (String, Vec<u8>) {
    let mut text =
        String::from("    PID    PPID STAT WCHAN                            %CPU     ELAPSED COMMAND\n");
    let _ = writeln!(
        text,
        "   4100       1 Ss   do_wait                           0.0       10:02 torchrun train.py"
    );
    for (rank, state) in states.split_whitespace().enumerate() {
        let wchan = if state.starts_with('T') { "do_signal_stop" } else { "-" };
        let _ = writeln!(
            text,
            "{:7}    4100 {state:<4} {wchan:<32} 99.0       10:00 python3 -u train.py",
            RingJob::pid(rank)
        );
    }
    ("ps.txt".to_owned(), text.into_bytes())
}

/// Thirty steps of two all-reduces each, then `rest`.
fn after_steps(rest: &str) -> String {
    format!("{} {rest}", "AllReduce:1048576 AllReduce:4096 ".repeat(30))
}

fn job(rests: &[&str]) -> RingJob {
    let scripts: Vec<String> = rests.iter().map(|rest| after_steps(rest)).collect();
    RingJob::new(&scripts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Each rank makes its own call between steps that all make; at the end the job is running.
fn after_calls(calls: [&str; 4]) -> RingJob {
    let rests = calls.map(|call| format!("{call} {}", "AllReduce:1048576 AllReduce:4096 ".repeat(6)));
    let mut job = job(&rests.each_ref().map(String::as_str));
    job.read_after_ms = 130;
    job
}

fn case(name: &'static str, cause: &'static str, culprits: &'static [u32], story: &'static str) -> RingCase {
    let category = match cause {
        "none" => "none",
        "peer-process-died" => "crash",
        "straggler" => "performance",
        "undecided" => "error",
        _ => "hang",
    };
    RingCase { name, cause, category, also_right: &[], culprits, place: "", story, files: Vec::new() }
}

impl RingCase {
    fn with(mut self, job: &RingJob) -> Self {
        self.files.extend(job.files());
        self
    }

    fn stacks(mut self, of: &[&[Frame]]) -> Self {
        self.files.extend(of.iter().enumerate().map(|(rank, frames)| stack(rank, frames)));
        self
    }

    fn place(mut self, place: &'static str) -> Self {
        self.place = place;
        self
    }
}

/// The call that every rank is in when the job hangs.
const OPEN: &str = "AllReduce:1048576?";

/// A job whose rank 2 does not enter the call of the others.
fn not_entered() -> RingJob {
    job(&[OPEN, OPEN, "", OPEN])
}

/// All cases.
pub fn ring_cases() -> Vec<RingCase> {
    let mut all = stuck();
    all.extend(different_calls());
    all.extend(waits());
    all.extend(healthy());
    all
}

/// A rank that does not enter, or is gone.
fn stuck() -> Vec<RingCase> {
    let nodes = |mut job: RingJob| {
        job.hosts = (1..=4).map(|n| format!("node{n}")).collect();
        job
    };
    // The ring 0 > 1 > 2 > 3 > 0 over the network: what rank 1 sends does not reach rank 2.
    let mut silent = nodes(job(&[OPEN; 4]));
    for rank in 0..4_u32 {
        let (next, previous) = ((rank + 1) % 4, (rank + 3) % 4);
        let send = if rank == 1 { Phase::SendNet } else { Phase::SendGpu };
        silent.waits.extend([(rank, next, 0, send), (rank, previous, 0, Phase::RecvNet)]);
    }
    let mut killed = not_entered();
    killed.ends = vec![RingEnd::Gone; 4];
    let mut gone = not_entered();
    gone.ends[2] = RingEnd::Gone;
    let mut left = not_entered();
    left.ends[2] = RingEnd::Ended;
    vec![
        case(
            "ring-data-loader",
            "stuck-outside-collective",
            &[2],
            "a rank waits for its data loader, the others for it",
        )
        .with(&not_entered())
        .stacks(&[SYNC, SYNC, LOADER, SYNC])
        .place("next_batch"),
        case(
            "ring-lock",
            "stuck-outside-collective",
            &[2],
            "a rank waits for a lock on a file, the others for it",
        )
        .with(&not_entered())
        .stacks(&[SYNC, SYNC, LOCK, SYNC])
        .place("append_metrics"),
        case(
            "ring-kernel-never-starts",
            "gpu-kernel-stuck",
            &[1],
            "an endless kernel runs before the collective on one GPU",
        )
        .with(&job(&[OPEN, "AllReduce:1048576! AllReduce:4096!", OPEN, OPEN]))
        .stacks(&[SYNC, LAUNCH, SYNC, SYNC])
        .place("spin_until_flag"),
        case(
            "ring-late-host-own-kernel",
            "gpu-kernel-stuck",
            &[3],
            "a program waits for an endless kernel of its own before it calls",
        )
        .with(&job(&[OPEN, OPEN, OPEN, ""]))
        .stacks(&[SYNC, SYNC, SYNC, OWN_KERNEL])
        .place("spin_until_flag"),
        case(
            "ring-network-silent",
            "network-unreachable",
            &[1, 2],
            "data of one pair of nodes no longer arrives",
        )
        .with(&silent),
        case("ring-process-gone", "peer-process-died", &[2], "a process was killed; its ring is left")
            .with(&gone),
        case(
            "ring-left-early",
            "rank-exited-early",
            &[2],
            "a rank closed its communicators while the others go on",
        )
        .with(&left),
        case(
            "ring-job-killed",
            "undecided",
            &[],
            "the whole job was killed within a collective; rank 2 had not come to it",
        )
        .with(&killed),
    ]
}

/// Ranks whose calls differ.
fn different_calls() -> Vec<RingCase> {
    vec![
        case("ring-skipped", "skipped-collective", &[1], "a rank leaves out one call and goes on").with(
            &job(&[
                "AllReduce:512? AllGather:64! AllReduce:1048576!",
                "AllGather:64? AllReduce:1048576!",
                "AllReduce:512? AllGather:64! AllReduce:1048576!",
                "AllReduce:512? AllGather:64! AllReduce:1048576!",
            ]),
        ),
        case("ring-size-differs", "shape-mismatch", &[3], "a rank reduces another number of elements").with(
            &job(&[
                "AllReduce:512? AllReduce:1048576!",
                "AllReduce:512? AllReduce:1048576!",
                "AllReduce:512? AllReduce:1048576!",
                "AllReduce:768? AllReduce:1048576!",
            ]),
        ),
        case(
            "ring-type-ended",
            "dtype-mismatch",
            &[1],
            "a rank reduces halves where the others reduce floats: NCCL ends the call, the numbers are wrong",
        )
        .with(&after_calls([
            "AllReduce:512",
            "AllReduce:512:ncclFloat16",
            "AllReduce:512",
            "AllReduce:512",
        ])),
        case(
            "ring-kind-ended",
            "op-mismatch",
            &[2],
            "a rank gathers where the others reduce: NCCL ends the call, the next one hangs",
        )
        .with(&job(&[
            "AllReduce:512 AllReduce:1048576? AllReduce:4096!",
            "AllReduce:512 AllReduce:1048576? AllReduce:4096!",
            "AllGather:512 AllReduce:1048576 AllReduce:4096?",
            "AllReduce:512 AllReduce:1048576? AllReduce:4096!",
        ])),
        case(
            "ring-healthy-bytes",
            "none",
            &[],
            "a broadcast of as many bytes, which one rank takes as another type: nothing is added up",
        )
        .with(&after_calls([
            "Broadcast:512",
            "Broadcast:512:ncclInt32",
            "Broadcast:512",
            "Broadcast:512",
        ])),
    ]
}

/// Ranks that wait for each other, or for a slow one.
fn waits() -> Vec<RingCase> {
    let mut cycle = job(&["", "", "", ""]);
    cycle.comms.push(("tp".to_owned(), vec![0, 1]));
    cycle.comms.push(("dp".to_owned(), vec![0, 1]));
    for (rank, script) in cycle.scripts.iter_mut().enumerate() {
        match rank {
            0 => script.push_str("tp/AllReduce:64*8 dp/AllReduce:32*8 tp/AllReduce:64?"),
            1 => script.push_str("tp/AllReduce:64*8 dp/AllReduce:32*8 dp/AllReduce:32?"),
            _ => {}
        }
    }
    let mut slow = job(&["", "", "", ""]);
    slow.late_us = vec![40, 0, 30_000, 55];
    let mut pipe = RingJob::new(&["Send>1:8192*20 AllReduce:512?", "Recv<0:8192*20 Recv<0:8192?"]);
    pipe.period_ns = 50_000_000;
    let mut stopped = not_entered();
    stopped.read_after_ms = 30_000;
    let mut all_in =
        case("ring-process-stopped", "process-stopped", &[2], "a rank is stopped before a collective")
            .with(&stopped);
    all_in.files.push(processes("R R T R"));
    vec![
        case(
            "ring-circle",
            "deadlock-cycle",
            &[0, 1],
            "two ranks enter two communicators in opposite orders",
        )
        .with(&cycle),
        case("ring-missing-send", "unmatched-p2p", &[0], "a stage of a pipeline never sends").with(&pipe),
        case("ring-slow-gpu", "straggler", &[2], "one GPU takes longer over every step").with(&slow),
        all_in,
    ]
}

/// Healthy jobs that look unhealthy.
fn healthy() -> Vec<RingCase> {
    let mut at_work = job(&[OPEN, "AllReduce:1048576 AllReduce:4096!", "", OPEN]);
    at_work.read_after_ms = 130;
    // A step is 200 ms; the checkpoint has taken 600 ms so far.
    let mut checkpoint = not_entered();
    checkpoint.read_after_ms = 600;
    let mut learnt = not_entered();
    learnt.pauses = vec![(35, 9_000), (50, 9_000)];
    learnt.read_after_ms = 8_000;
    let mut compiles = RingJob::new(&[OPEN, OPEN, "", OPEN]);
    compiles.read_after_ms = 70_000;
    let mut ended = job(&["", "", "", ""]);
    ended.ends = vec![RingEnd::Ended; 4];
    vec![
        case("ring-healthy-at-work", "none", &[], "a job at work, read rank after rank").with(&at_work),
        case(
            "ring-healthy-checkpoint",
            "none",
            &[],
            "a rank saves a checkpoint for three times as long as a step takes",
        )
        .with(&checkpoint)
        .stacks(&[SYNC, SYNC, SAVE, SYNC]),
        case(
            "ring-healthy-pause-learnt",
            "none",
            &[],
            "a pause of eight seconds in a job that has shown two of nine",
        )
        .with(&learnt)
        .stacks(&[SYNC, SYNC, SAVE, SYNC]),
        case(
            "ring-healthy-first-step",
            "none",
            &[],
            "a first step that compiles for more than a minute on one rank",
        )
        .with(&compiles)
        .stacks(&[SYNC, SYNC, COMPILE, SYNC]),
        case("ring-healthy-ended", "none", &[], "a job that closed all its communicators").with(&ended),
    ]
}
