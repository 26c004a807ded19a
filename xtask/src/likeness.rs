//! Learns the weights of `data/likeness.txt`: `cargo xtask likeness DIR…`.
//!
//! A passive-aggressive perceptron with averaged weights over the words of cases whose truth is known, and of the rows
//! of the message table. It is deterministic: the same cases give the same file. `--check` leaves out one set after the
//! other and prints how often the true cause is first, and among the first three.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringleader_knowledge::{form, likeness, message};

/// Lines of a file that are read whatever they say, as the reader does.
const N_SURE_LINES: usize = 256;
/// Passes over all cases.
const EPOCHS: usize = 10;
/// A word of fewer cases, or of a larger part of them, tells nothing.
const MIN_CASES: usize = 3;
const MOST: f64 = 0.25;
/// Words that are kept.
const N_WORDS: usize = 12_000;
/// Causes of one word that are kept.
const N_CAUSES: usize = 6;
/// Lesser weights are left out.
const LEAST: f64 = 0.04;
/// Weight of what is no public case: recordings of this repository, and rows of tables.
const MINOR: f64 = 0.3;

/// One text whose causes are known.
struct Document {
    set: usize,
    cause: String,
    right: Vec<String>,
    words: Vec<usize>,
    weight: f64,
}

#[derive(Default)]
struct Corpus {
    spelled: Vec<String>,
    number: BTreeMap<String, usize>,
    documents: Vec<Document>,
}

/// Learnt weights: of each word those of causes, by number.
struct Model {
    causes: Vec<String>,
    rarity: Vec<f64>,
    weights: Vec<BTreeMap<usize, f64>>,
}

/// Writes the table, or checks how well it would do.
pub(crate) fn run(args: &[String]) -> io::Result<()> {
    let is_check = args.iter().any(|a| a == "--check");
    let mut corpus = Corpus::default();
    let dirs: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    for (set, dir) in dirs.iter().enumerate() {
        corpus.add_cases(Path::new(dir), set)?;
    }
    corpus.add_rows(dirs.len());
    if is_check {
        for (set, dir) in dirs.iter().enumerate() {
            corpus.check(set, dir);
        }
        return Ok(());
    }
    let all: Vec<usize> = (0..corpus.documents.len()).collect();
    let first = corpus.learn(&all, None);
    let kept = first.strongest();
    let model = corpus.learn(&all, Some(&kept));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/knowledge/data/likeness.txt");
    fs::write(path, corpus.table(&model, &kept))
}

impl Corpus {
    fn add_cases(&mut self, dir: &Path, set: usize) -> io::Result<()> {
        let mut folders: Vec<PathBuf> =
            fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
        folders.sort();
        let is_public = dir.file_name().is_some_and(|n| {
            let name = n.to_string_lossy();
            name.starts_with("round-") || name.starts_with("cases-wild")
        });
        for folder in folders {
            let Ok(truth) = fs::read_to_string(folder.join("case.toml")) else { continue };
            let quoted = |line: &str| -> Vec<String> {
                line.split('"').skip(1).step_by(2).map(str::to_owned).collect()
            };
            let field = |name: &str| {
                let line = truth.lines().find(|l| l.split('=').next().is_some_and(|key| key.trim() == name));
                line.map(quoted).unwrap_or_default()
            };
            let Some(cause) = field("cause").into_iter().next() else { continue };
            let mut right = vec![cause.clone()];
            right.extend(field("also_right"));
            let mut words = BTreeSet::new();
            self.read(&folder.join("evidence"), &mut words)?;
            let weight = if is_public { 1.0 } else { MINOR };
            self.documents.push(Document { set, cause, right, words: words.into_iter().collect(), weight });
        }
        Ok(())
    }

    fn add_rows(&mut self, set: usize) {
        for row in
            message::all().filter(|r| matches!(r.role(), message::Role::States | message::Role::Suggests))
        {
            let first = Some(row.cause()).filter(|c| !c.is_empty()).or_else(|| row.candidates().next());
            let Some(cause) = first.map(str::to_owned) else { continue };
            let mut words = BTreeSet::new();
            for text in row.examples().chain([row.says()]) {
                self.words(text, &mut words);
            }
            let right = vec![cause.clone()];
            self.documents.push(Document {
                set,
                cause,
                right,
                words: words.into_iter().collect(),
                weight: MINOR,
            });
        }
    }

    fn read(&mut self, path: &Path, words: &mut BTreeSet<usize>) -> io::Result<()> {
        if path.is_dir() {
            let mut inner: Vec<PathBuf> =
                fs::read_dir(path)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
            inner.sort();
            return inner.iter().try_for_each(|path| self.read(path, words));
        }
        let bytes = fs::read(path)?;
        if bytes.iter().take(1000).any(|b| *b == 0) {
            return Ok(());
        }
        for (n, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let wanted = || {
                form::wanted(line.as_bytes(), 0).is_some() || message::wanted(line.as_bytes(), 0).is_some()
            };
            if n < N_SURE_LINES || wanted() {
                self.words(line, words);
            }
        }
        Ok(())
    }

    fn words(&mut self, text: &str, words: &mut BTreeSet<usize>) {
        likeness::each_word(text, &mut |word| {
            let next = self.spelled.len();
            let number = *self.number.entry(word.to_owned()).or_insert(next);
            if number == next {
                self.spelled.push(word.to_owned());
            }
            words.insert(number);
        });
    }

    fn learn(&self, of: &[usize], kept: Option<&BTreeSet<usize>>) -> Model {
        let documents: Vec<&Document> = of.iter().filter_map(|n| self.documents.get(*n)).collect();
        let n = documents.len() as f64;
        let mut n_cases = vec![0_usize; self.spelled.len()];
        documents.iter().flat_map(|d| &d.words).for_each(|w| n_cases[*w] += 1);
        let rarity: Vec<f64> = n_cases
            .iter()
            .enumerate()
            .map(|(word, count)| {
                let is_kept = kept.is_none_or(|kept| kept.contains(&word));
                let tells = *count >= MIN_CASES && (*count as f64) < MOST * n && is_kept;
                if tells { (n / *count as f64).ln() } else { 0.0 }
            })
            .collect();
        let causes: Vec<String> =
            documents.iter().map(|d| d.cause.clone()).collect::<BTreeSet<_>>().into_iter().collect();
        let of_cause = |id: &String| causes.binary_search(id).ok();
        let mut weights = vec![BTreeMap::<usize, f64>::new(); self.spelled.len()];
        let mut sums = weights.clone();
        let mut time = 1.0_f64;
        let mut order: Vec<usize> = (0..documents.len()).collect();
        let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
        for _ in 0..EPOCHS {
            for at in (1..order.len()).rev() {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                order.swap(at, (seed >> 33) as usize % (at + 1));
            }
            for document in order.iter().filter_map(|n| documents.get(*n)) {
                time += 1.0;
                let right: Vec<usize> = document.right.iter().filter_map(of_cause).collect();
                let scores = scores(&document.words, &rarity, &weights, causes.len());
                let prefer = |cause: usize| {
                    scores[cause] + if Some(cause) == of_cause(&document.cause) { 0.3 } else { 0.0 }
                };
                let good = right.iter().copied().max_by(|a, b| prefer(*a).total_cmp(&prefer(*b)));
                let bad = (0..causes.len())
                    .filter(|c| !right.contains(c))
                    .max_by(|a, b| scores[*a].total_cmp(&scores[*b]));
                let (Some(good), Some(bad)) = (good, bad) else { continue };
                if scores[good] - scores[bad] >= 1.0 {
                    continue;
                }
                let length = length(&document.words, &rarity);
                for word in document.words.iter().filter(|w| rarity[**w] > 0.0) {
                    let step = document.weight * rarity[*word] / length;
                    for (cause, step) in [(good, step), (bad, -step)] {
                        *weights[*word].entry(cause).or_default() += step;
                        *sums[*word].entry(cause).or_default() += time * step;
                    }
                }
            }
        }
        for (own, sum) in weights.iter_mut().zip(&sums) {
            for (cause, weight) in own.iter_mut() {
                *weight -= sum.get(cause).copied().unwrap_or_default() / time;
            }
        }
        Model { causes, rarity, weights }
    }

    #[expect(clippy::print_stdout, reason = "its output")]
    fn check(&self, set: usize, name: &str) {
        let others: Vec<usize> =
            (0..self.documents.len()).filter(|n| self.documents[*n].set != set).collect();
        let kept = self.learn(&others, None).strongest();
        let model = self.learn(&others, Some(&kept)).cut();
        let (mut first, mut third, mut n) = (0, 0, 0);
        for document in self.documents.iter().filter(|d| d.set == set && d.cause != "none") {
            let scores = scores(&document.words, &model.rarity, &model.weights, model.causes.len());
            let mut order: Vec<usize> = (0..scores.len()).filter(|c| model.causes[*c] != "none").collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            let is_right = |cause: &usize| document.right.contains(&model.causes[*cause]);
            first += usize::from(order.first().is_some_and(is_right));
            third += usize::from(order.iter().take(3).any(is_right));
            n += 1;
        }
        println!("{name}: {first} first, {third} among three, of {n} with a fault");
    }

    fn table(&self, model: &Model, kept: &BTreeSet<usize>) -> String {
        let model = model.cut();
        let mut out = String::from(
            "# Weights of words, in thousandths: word, rarity, causes. Written by `cargo xtask likeness`; see src/likeness.rs.\n",
        );
        let mut rows: Vec<(&String, usize)> = kept
            .iter()
            .map(|w| (&self.spelled[*w], *w))
            .filter(|(_, w)| !model.weights[*w].is_empty())
            .collect();
        rows.sort();
        for (word, number) in rows {
            let _ = write!(out, "{word}\t{}\t", (model.rarity[number] * 1000.0).round());
            let parts: Vec<String> = model.weights[number]
                .iter()
                .map(|(cause, weight)| format!("{}:{}", model.causes[*cause], (weight * 1000.0).round()))
                .collect();
            let _ = writeln!(out, "{}", parts.join(" "));
        }
        out
    }
}

impl Model {
    /// The words that tell most.
    fn strongest(&self) -> BTreeSet<usize> {
        let most = |word: &usize| {
            let most = self.weights[*word].values().fold(0.0_f64, |most, w| most.max(w.abs()));
            most * self.rarity[*word]
        };
        let mut all: Vec<usize> = (0..self.weights.len()).filter(|w| most(w) > 0.0).collect();
        all.sort_by(|a, b| most(b).total_cmp(&most(a)).then(a.cmp(b)));
        all.into_iter().take(N_WORDS).collect()
    }

    /// Without the least weights of each word, and in the units of the table.
    fn cut(&self) -> Self {
        let weights = self.weights.iter().map(|own| {
            let mut all: Vec<(usize, f64)> =
                own.iter().map(|(c, w)| (*c, (w * 1000.0).round() / 1000.0)).collect();
            all.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then(a.0.cmp(&b.0)));
            all.into_iter().take(N_CAUSES).filter(|(_, w)| w.abs() >= LEAST).collect()
        });
        Self { causes: self.causes.clone(), rarity: self.rarity.clone(), weights: weights.collect() }
    }
}

fn length(words: &[usize], rarity: &[f64]) -> f64 {
    let square: f64 = words.iter().map(|w| rarity[*w] * rarity[*w]).sum();
    if square > 0.0 { square.sqrt() } else { 1.0 }
}

fn scores(words: &[usize], rarity: &[f64], weights: &[BTreeMap<usize, f64>], n: usize) -> Vec<f64> {
    let mut scores = vec![0.0; n];
    for word in words.iter().filter(|w| rarity[**w] > 0.0) {
        for (cause, weight) in &weights[*word] {
            scores[*cause] += weight * rarity[*word];
        }
    }
    let length = length(words, rarity);
    for score in &mut scores {
        *score /= length;
    }
    scores
}
