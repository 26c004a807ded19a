//! Training speed as stated in the lines of training steps.
//!
//! ```text
//! step   1500  loss = 5.000  images/sec: 201.9 +/- 0.6   total: 1615
//! ep 31 train, step 400, ctc 1.210, 3.446 sec/step, elapsed 0:43:31
//! Epoch: [1][3/10000] Time 2.303 Err 6.86
//! Epoch 4, Time(s) 19.3820, Loss 0.4100
//!   2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s, loss=2.31]
//! ```

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

/// One form of stating the speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SpeedForm {
    /// The text beside the number, in lower case.
    word: &'static str,
    /// The number is a time: smaller is faster.
    is_time: bool,
    /// Only forms of the same unit compare with each other.
    unit: &'static str,
}

const fn rate(word: &'static str) -> SpeedForm {
    SpeedForm { word, is_time: false, unit: word }
}

const fn time(word: &'static str) -> SpeedForm {
    SpeedForm { word, is_time: true, unit: word }
}

/// Longer forms come before forms that they contain.
const FORMS: [SpeedForm; 34] = [
    time("elapsed time per iteration (ms)"),
    time("time per iteration"),
    rate("images/sec"),
    rate("images/s"),
    rate("imgs/s"),
    rate("img/sec"),
    rate("img/s"),
    rate("samples/sec"),
    rate("samples/s"),
    rate("samples per second"),
    rate("sequences/s"),
    rate("tokens/sec"),
    rate("tokens/s"),
    rate("tok/s"),
    rate("tokens per second"),
    rate("examples/sec"),
    rate("examples/s"),
    rate("frames/s"),
    time("sec/step"),
    time("ms/step"),
    time("s/step"),
    time("sec/batch"),
    time("sec/iter"),
    time("s/iter"),
    SpeedForm { word: "s/it", is_time: true, unit: "it/s" },
    rate("it/s"),
    time("step_time"),
    time("step time"),
    time("iter_time"),
    time("batch_time"),
    time("batch time"),
    time("time/iter"),
    time("time(s)"),
    time("time"),
];
/// A line without one of these words is not a step.
const STEP: [&str; 6] = ["step", "iter", "epoch", "loss", "ep ", "train"];
/// Lines of other work.
const OTHER: [&str; 6] = ["valid", "eval", "test", "infer", "warmup", "compil"];

/// Words of [`STEP`], [`OTHER`] and [`FORMS`], in this order.
static WORDS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = STEP.iter().chain(&OTHER).copied().chain(FORMS.iter().map(|form| form.word));
    AhoCorasick::builder().kind(Some(AhoCorasickKind::DFA)).prefilter(false).build(words).ok()
});

/// The forms in a line of a step, one bit each; 0 for any other line.
fn forms_of(lower: &str) -> u64 {
    let (mut forms, mut is_step) = (0, false);
    for found in WORDS.iter().flat_map(|words| words.find_overlapping_iter(lower)) {
        match found.pattern().as_usize() {
            n if n < STEP.len() => is_step = true,
            n if n < STEP.len() + OTHER.len() => return 0,
            n => forms |= 1 << (n - STEP.len() - OTHER.len()),
        }
    }
    if is_step { forms } else { 0 }
}

/// Position of the number in a line: the same in all lines that differ only in digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberPosition {
    form: u8,
    at: u32,
    n: u32,
    is_epoch: bool,
}

/// The speed in a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The counted or timed unit, as the line names it; only paces of the same unit compare.
    pub unit: &'static str,
    /// Work per time, in that unit: larger is faster. A time is inverted.
    pub speed: f64,
    /// The line states a time, not a rate.
    pub is_time: bool,
    /// It is apparently the time of a whole epoch.
    pub is_epoch: bool,
}

impl NumberPosition {
    /// The position in a lower-case line.
    pub fn of(lower: &str) -> Option<Self> {
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let there = forms_of(lower);
        let mut forms = FORMS.iter().enumerate().filter(|(i, _)| there >> i & 1 == 1);
        let (form, (at, n)) = forms.find_map(|(i, form)| Some((i, beside(lower, form)?)))?;
        let is_part = has(&["step", "iter", "][", "%|", "batch"]);
        Some(Self {
            form: u8::try_from(form).ok()?,
            at: u32::try_from(at).ok()?,
            n: u32::try_from(n).ok()?,
            is_epoch: lower.contains("epoch") && !is_part,
        })
    }

    /// The number at this position; None if it is not a number above zero.
    pub fn read(&self, line: &[u8]) -> Option<Pace> {
        let digits = line.get(self.at as usize..(self.at + self.n) as usize)?;
        let number: f64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let form = FORMS.get(usize::from(self.form))?;
        let speed = if form.is_time { 1.0 / number } else { number };
        (number > 0.0 && speed.is_finite()).then_some(Pace {
            unit: form.unit,
            speed,
            is_time: form.is_time,
            is_epoch: self.is_epoch && form.is_time,
        })
    }
}

/// The pace stated in `line`.
pub fn of(line: &str) -> Option<Pace> {
    let lower = line.to_ascii_lowercase();
    NumberPosition::of(&lower)?.read(lower.as_bytes())
}

/// Names before a number of GPUs or processes.
const COUNTS: [&str; 14] = [
    "nproc_per_node",
    "nproc-per-node",
    "num_processes",
    "num_gpus",
    "num-gpus",
    "ngpus",
    "ngpu",
    "n_gpus",
    "--devices",
    "--gpus",
    "world size",
    "world_size",
    "-np",
    "--ntasks",
];
/// Names before a list of GPUs.
const LISTS: [&str; 4] = ["cuda_visible_devices", "--gpu", "--gpus", "--devices"];

/// The number of GPUs in a command or a startup line: `--nproc_per_node=4`, `--gpu 0,1`, `world size: 8`.
pub fn devices(text: &str) -> Option<u32> {
    let lower = text.to_ascii_lowercase();
    let value = |name: &str| {
        lower.match_indices(name).find_map(|(at, _)| {
            let head = lower.get(..at)?;
            let tail = lower.get(at + name.len()..)?;
            let rest = tail.trim_start_matches([' ', '=', ':', '"', '\'']);
            let is_word = !head.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let n = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b',').count();
            let value = rest.get(..n)?.trim_end_matches(',');
            (is_word && rest.len() < tail.len() && !value.is_empty()).then_some(value)
        })
    };
    let list = |name: &&str| {
        let value = value(name)?;
        let n = value.split(',').count();
        (n > 1 || !COUNTS.contains(name)).then_some(n as u32)
    };
    let count = |name: &&str| value(name)?.parse::<u32>().ok().filter(|n| (1..=1 << 20).contains(n));
    let nodes = ["nnodes", "--nodes", "num_machines", "num_nodes"].iter().find_map(count).unwrap_or(1);
    let n = COUNTS.iter().find_map(|name| Some((count(name)?, *name)));
    match n {
        Some((n, name)) if name.starts_with("nproc") => Some(n.saturating_mul(nodes)),
        Some((n, _)) => Some(n),
        None => LISTS.iter().find_map(list),
    }
}

/// Position of the number beside a form: after it (`img/s: 201.9`) or before it (`61218 tok/s`).
fn beside(lower: &str, form: &SpeedForm) -> Option<(usize, usize)> {
    lower.match_indices(form.word).find_map(|(at, word)| {
        let (head, tail) = (lower.get(..at)?, lower.get(at + word.len()..)?);
        let is_bare = form.word == "time";
        if head.ends_with(|c: char| c.is_ascii_alphabetic() || c == '_' || is_bare && c == '/')
            || tail.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        {
            return None;
        }
        let rest = tail.trim_start_matches([')', ']', '"', '\'', ' ', '\t']);
        let behind =
            rest.strip_prefix([':', '=']).map_or(rest, |rest| rest.trim_start_matches([' ', '"', '\'']));
        let is_marked = behind.len() < rest.len() || form.is_time && rest.len() < tail.len();
        let number = |text: &str| {
            let n = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
            let n = text.get(..n)?.trim_end_matches('.').len();
            let digits = text.get(..n)?;
            // `12:30:11`, `3/40`, `2.1.0` are none; a bare word's number has a fraction.
            let is_one = n > 0
                && digits.bytes().filter(|b| *b == b'.').count() <= 1
                && digits.as_bytes().first().is_some_and(u8::is_ascii_digit)
                && !text.get(n..)?.starts_with([':', '/', '-', '%'])
                && (!is_bare || digits.contains('.'));
            is_one.then_some(n)
        };
        if is_marked && let Some(n) = number(behind) {
            return Some((lower.len() - behind.len(), n));
        }
        let head = head.trim_end_matches([' ', '(']);
        let start = head.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |i| i + 1);
        let n = number(head.get(start..)?).filter(|_| !is_bare && start < head.len())?;
        (start + n == head.len()).then_some((start, n))
    })
}

#[cfg(test)]
mod tests {
    use super::{NumberPosition, devices, of};

    #[test]
    fn gpus_of_a_start() {
        assert_eq!(devices("$ python train.py --gpu 0,1 --num-epochs 5"), Some(2));
        assert_eq!(devices("$ python train.py --gpu 0 --num-epochs 5"), Some(1));
        assert_eq!(devices("$ th main.lua -nGPU 4 -backend cudnn"), Some(4));
        assert_eq!(devices("torchrun --nnodes=2 --nproc_per_node=8 t.py"), Some(16));
        assert_eq!(devices("CUDA_VISIBLE_DEVICES=0,1,2 python t.py"), Some(3));
        assert_eq!(devices("mpirun -np 4 ./a"), Some(4));
        assert_eq!(devices("using world size: 64, data-parallel size: 16"), Some(64));
        assert_eq!(devices("python train.py --epochs 4"), None);
        assert_eq!(devices("trainer --gpus 0,1,2,3"), Some(4));
    }

    #[test]
    fn spellings() {
        let speed = |line: &str| of(line).map(|pace| (pace.speed * 1e4).round() / 1e4);
        assert_eq!(speed("step   1500  loss = 5.0  images/sec: 201.9 +/- 0.6   total: 1615"), Some(201.9));
        assert_eq!(speed("epoch 11 | 2 x H100 | 61218 tok/s | loss 2.204"), Some(61218.0));
        assert_eq!(speed("step 5 | samples/s=12.25 | loss 2"), Some(12.25));
        assert_eq!(speed("ep 31 train, step 400, ctc 1.210, 0.5 sec/step, elapsed 0:43:31"), Some(2.0));
        assert_eq!(speed("Epoch: [1][3/10000]\tTime 2.500 Err 6.86 DataLoadingTime 0.04"), Some(0.4));
        assert_eq!(speed("812/50000 [10:11<9:58:12,  1.25it/s, loss=2.31]"), Some(1.25));
        assert_eq!(speed("812/50000 [10:11<9:58:12,  1.25s/it, loss=2.31]"), Some(0.8));
        let line = " iteration 500/ 25000 | elapsed time per iteration (ms): 5000.0 | lm loss: 7.36E+00 |";
        assert_eq!(speed(line), Some(0.0002));
        assert_eq!(speed("(rank=0) Step 188/200: loss 0.5926 step time 25.00s"), Some(0.04));
        for none in [
            "Validation step 5: 12.5 img/s",
            "GPU 0: 12.5 img/s",
            "loss step img/s",
            "step 5 time 12:30:11 loss 3",
            "epoch 3 took a long time",
            "step 5, loss 2.1, time 30",
        ] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn the_time_of_an_epoch() {
        let pace = of("Epoch 4, Time(s) 20.0, Loss 0.4100");
        assert!(pace.is_some_and(|p| p.is_epoch && p.is_time && p.unit == "time(s)"), "{pace:?}");
        assert_eq!(of("Epoch: [1][3/10000]\tTime 2.500 Err 6.86").map(|p| p.is_epoch), Some(false));
    }

    #[test]
    fn lines_that_differ_in_digits_say_it_in_one_place() {
        let (one, two) = ("step 812 loss 2.31 1.25 s/step", "step 999 loss 0.31 8.50 s/step");
        assert_eq!(NumberPosition::of(one), NumberPosition::of(two));
        assert_eq!(NumberPosition::of(one).and_then(|p| p.read(two.as_bytes())), of(two));
    }
}
