//! Learns the weights of `data/likeness.txt`: `cargo xtask likeness DIR…`.
//!
//! One linear support vector machine a cause, against all others, over the words of cases whose truth is known, of the rows
//! of the message table, and of written evidence (`CAUSE.txt`: made-up pieces; none of it happened). It is
//! deterministic: the same cases give the same file. `--check` leaves out one set after the other and prints how often the
//! true cause is first, and among the first three.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ringleader_knowledge::{form, likeness, message, sign};

/// Lines of a file that are read whatever they say, as the reader does.
const N_SURE_LINES: usize = 256;
/// Most passes over all cases for one cause.
const EPOCHS: usize = 100;
/// A pass that moves nothing further than this is the last.
const DONE: f64 = 1e-3;
/// Cost of a case on the wrong side.
const COST: f64 = 2.0;
/// A word of fewer cases, or of a larger part of them, tells nothing.
const MIN_CASES: usize = 3;
const MOST: f64 = 0.25;
/// Words that are kept.
const N_WORDS: usize = 20_000;
/// Causes of one word that are kept.
const N_CAUSES: usize = 24;
/// Lesser weights are left out.
const LEAST: f64 = 0.003;
/// Weight of recordings of this repository, and of harmless messages of one line each.
const MINOR: f64 = 0.3;
/// Weight of a piece of written evidence.
const WRITTEN: f64 = 0.5;
/// Separator between two entries.
const CUT: &str = "\n-----8<-----\n";
/// Begins the line that names other causes that would be right.
const ALSO_RIGHT: &str = "also:";
/// Part of its weight with which a case speaks for a cause that would be right, too.
const ALSO: f64 = 0.3;

/// One text whose causes are known.
struct Document {
    set: usize,
    cause: String,
    right: Vec<String>,
    words: Vec<usize>,
    weight: f64,
}

#[derive(Default)]
pub(crate) struct Corpus {
    spelled: Vec<String>,
    number: BTreeMap<String, usize>,
    documents: Vec<Document>,
}

/// Learnt weights: of each word those of all causes, none for a word that tells nothing.
struct Model {
    causes: Vec<String>,
    rarity: Vec<f64>,
    weights: Vec<Vec<f64>>,
    bias: Vec<f64>,
}

/// Writes the table, or checks how well it would do.
pub(crate) fn run(args: &[String]) -> io::Result<()> {
    let is_check = args.iter().any(|a| a == "--check");
    let mut corpus = Corpus::default();
    let dirs: Vec<&String> = args.iter().filter(|a| !a.starts_with("--")).collect();
    let is_known = args.iter().all(|a| a == "--check" || !a.starts_with("--"));
    if dirs.is_empty() || !is_known {
        return Err(io::Error::other("usage: cargo xtask likeness [--check] DIR…"));
    }
    for (set, dir) in dirs.iter().enumerate() {
        corpus.add_cases(Path::new(dir), set)?;
    }
    corpus.add_rows(dirs.len(), &BTreeSet::new());
    if is_check {
        for (set, dir) in dirs.iter().enumerate() {
            corpus.check(set, dir);
        }
        return Ok(());
    }
    let all: Vec<usize> = (0..corpus.documents.len()).collect();
    let model = corpus.learn(&all);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/knowledge/data/likeness.txt");
    fs::write(path, corpus.table(&model))
}

impl Corpus {
    pub(crate) fn add_cases(&mut self, dir: &Path, set: usize) -> io::Result<()> {
        let mut folders: Vec<PathBuf> =
            fs::read_dir(dir)?.map(|e| e.map(|e| e.path())).collect::<io::Result<_>>()?;
        folders.sort();
        let is_public = dir.file_name().is_some_and(|n| {
            let name = n.to_string_lossy();
            name.starts_with("round-") || name.starts_with("cases-wild")
        });
        for folder in folders {
            if folder.extension().is_some_and(|e| e == "txt") {
                self.add_written(&folder, set)?;
                continue;
            }
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

    /// Pieces of evidence in one file that has the name of their cause. Nothing of them happened.
    fn add_written(&mut self, path: &Path, set: usize) -> io::Result<()> {
        let cause = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if ringleader_model::Cause::of_id(&cause).is_none() {
            return Err(io::Error::other(format!("{}: no cause has this name", path.display())));
        }
        for piece in fs::read_to_string(path)?.split(CUT) {
            let mut words = BTreeSet::new();
            let mut right = vec![cause.clone()];
            for line in piece.lines() {
                if let Some(others) = line.strip_prefix(ALSO_RIGHT) {
                    right.extend(others.split(',').map(|id| id.trim().to_owned()));
                } else if !sign::is_command(line) {
                    self.words(line, &mut words);
                }
            }
            let unknown = right.iter().find(|id| ringleader_model::Cause::of_id(id).is_none());
            if let Some(id) = unknown {
                return Err(io::Error::other(format!("{}: no cause has the name {id}", path.display())));
            }
            let cause = cause.clone();
            self.documents.push(Document {
                set,
                cause,
                right,
                words: words.into_iter().collect(),
                weight: WRITTEN,
            });
        }
        Ok(())
    }

    pub(crate) fn add_rows(&mut self, set: usize, hidden: &BTreeSet<String>) {
        for row in message::all().filter(|row| !hidden.contains(row.id())) {
            let first = || Some(row.cause()).filter(|c| !c.is_empty()).or_else(|| row.candidates().next());
            let (cause, weight) = match row.role() {
                message::Role::States | message::Role::Suggests => (first(), 1.0),
                message::Role::Harmless => (Some("none"), MINOR),
                message::Role::Echo => (None, 0.0),
            };
            let Some(cause) = cause.map(str::to_owned) else { continue };
            let mut words = BTreeSet::new();
            for text in row.examples().chain([row.says()]) {
                self.words(text, &mut words);
            }
            let mut right = vec![cause.clone()];
            if row.role() != message::Role::Harmless {
                right.extend(row.candidates().map(str::to_owned));
            }
            self.documents.push(Document { set, cause, right, words: words.into_iter().collect(), weight });
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
            let wanted =
                || form::wanted_in_line(line.as_bytes()) || message::wanted(line.as_bytes(), 0).is_some();
            if (n < N_SURE_LINES || wanted()) && !sign::is_command(line) {
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

    fn learn(&self, of: &[usize]) -> Model {
        let documents: Vec<&Document> = of.iter().filter_map(|n| self.documents.get(*n)).collect();
        let n = documents.len() as f64;
        let mut n_cases = vec![0_usize; self.spelled.len()];
        documents.iter().flat_map(|d| &d.words).for_each(|w| n_cases[*w] += 1);
        let rarity: Vec<f64> = n_cases
            .iter()
            .map(|count| {
                let tells = *count >= MIN_CASES && (*count as f64) < MOST * n;
                if tells { (n / *count as f64).ln() } else { 0.0 }
            })
            .collect();
        let causes: Vec<String> =
            documents.iter().map(|d| d.cause.clone()).collect::<BTreeSet<_>>().into_iter().collect();
        let rows: Vec<Vec<(usize, f64)>> = documents.iter().map(|d| row(&d.words, &rarity)).collect();
        let mut weights = vec![Vec::with_capacity(causes.len()); self.spelled.len()];
        let mut bias = Vec::with_capacity(causes.len());
        for cause in &causes {
            let is_right = |d: &&Document| d.right.contains(cause);
            let sides: Vec<f64> = documents.iter().map(|d| if is_right(d) { 1.0 } else { -1.0 }).collect();
            let part = |d: &&Document| if is_right(d) && d.cause != *cause { ALSO } else { 1.0 };
            let costs: Vec<f64> = documents.iter().map(|d| COST * d.weight * part(d)).collect();
            let (own, own_bias) = separate(&rows, &sides, &costs, self.spelled.len());
            for (word, weight) in own.into_iter().enumerate() {
                if rarity[word] > 0.0 {
                    weights[word].push(weight);
                }
            }
            bias.push(own_bias);
        }
        // What all causes share orders none of them.
        for own in weights.iter_mut().filter(|own| !own.is_empty()) {
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            for weight in own.iter_mut() {
                *weight -= mean;
            }
        }
        Model { causes, rarity, weights, bias }.cut()
    }

    /// A model that has not seen the cases of this set.
    fn learn_without(&self, set: usize) -> Model {
        let others: Vec<usize> =
            (0..self.documents.len()).filter(|n| self.documents[*n].set != set).collect();
        self.learn(&others)
    }

    /// Its table.
    pub(crate) fn table_without(&self, set: usize) -> String {
        self.table(&self.learn_without(set))
    }

    #[expect(clippy::print_stdout, reason = "its output")]
    fn check(&self, set: usize, name: &str) {
        let model = self.learn_without(set);
        let (mut first, mut third, mut n) = (0, 0, 0);
        for document in self.documents.iter().filter(|d| d.set == set && d.cause != "none") {
            let scores = model.scores(&document.words);
            let mut order: Vec<usize> = (0..scores.len()).filter(|c| model.causes[*c] != "none").collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            let is_right = |cause: &usize| document.right.contains(&model.causes[*cause]);
            first += usize::from(order.first().is_some_and(is_right));
            third += usize::from(order.iter().take(3).any(is_right));
            n += 1;
        }
        println!("{name}: {first} first, {third} among three, of {n} with a fault");
    }

    fn table(&self, model: &Model) -> String {
        let mut out = String::from(
            "# Weights of words, in thousandths: word, rarity, causes. The first row is added whatever the words are.\n\
             # Written by `cargo xtask likeness`; see src/likeness.rs.\n",
        );
        let mut rows: Vec<(&str, f64, &[f64])> = vec![("", 1.0, &model.bias)];
        let words = self.spelled.iter().zip(&model.rarity).zip(&model.weights);
        rows.extend(words.map(|((word, rarity), own)| (word.as_str(), *rarity, own.as_slice())));
        rows.sort_by_key(|(word, _, _)| *word);
        for (word, rarity, own) in rows {
            let units = own.iter().map(|w| (w * 1000.0).round()).zip(&model.causes);
            let parts: Vec<String> =
                units.filter(|(w, _)| *w != 0.0).map(|(w, cause)| format!("{cause}:{w}")).collect();
            if !parts.is_empty() {
                let _ = writeln!(out, "{word}\t{}\t{}", (rarity * 1000.0).round(), parts.join(" "));
            }
        }
        out
    }
}

impl Model {
    /// With the words that tell most, of each the strongest weights, in the units of the table.
    fn cut(mut self) -> Self {
        let most = |word: &usize| {
            self.weights[*word].iter().fold(0.0_f64, |most, w| most.max(w.abs())) * self.rarity[*word]
        };
        let mut all: Vec<usize> = (0..self.weights.len()).filter(|w| most(w) > 0.0).collect();
        all.sort_by(|a, b| most(b).total_cmp(&most(a)).then(a.cmp(b)));
        let kept: BTreeSet<usize> = all.into_iter().take(N_WORDS).collect();
        for (word, own) in self.weights.iter_mut().enumerate() {
            if !kept.contains(&word) {
                own.clear();
                self.rarity[word] = 0.0;
                continue;
            }
            let mut strengths: Vec<f64> = own.iter().map(|w| w.abs()).collect();
            strengths.sort_by(|a, b| b.total_cmp(a));
            let least = strengths.get(N_CAUSES).copied().unwrap_or(0.0).max(LEAST);
            for weight in own.iter_mut() {
                *weight = if weight.abs() > least { (*weight * 1000.0).round() / 1000.0 } else { 0.0 };
            }
        }
        self
    }

    /// The score of each cause.
    fn scores(&self, words: &[usize]) -> Vec<f64> {
        let mut scores = self.bias.clone();
        for (word, part) in row(words, &self.rarity) {
            for (score, weight) in scores.iter_mut().zip(&self.weights[word]) {
                *score += weight * part;
            }
        }
        scores
    }
}

/// Words by their rarity, of length one.
fn row(words: &[usize], rarity: &[f64]) -> Vec<(usize, f64)> {
    let telling = || words.iter().map(|w| (*w, rarity[*w])).filter(|(_, rarity)| *rarity > 0.0);
    let square: f64 = telling().map(|(_, rarity)| rarity * rarity).sum();
    let length = if square > 0.0 { square.sqrt() } else { 1.0 };
    telling().map(|(word, rarity)| (word, rarity / length)).collect()
}

/// Weights and bias of the line between two sides (1 and -1): a support vector machine with squared hinge loss, by dual
/// coordinate descent (Hsieh and others, ICML 2008).
fn separate(rows: &[Vec<(usize, f64)>], sides: &[f64], costs: &[f64], n: usize) -> (Vec<f64>, f64) {
    let (mut weights, mut bias) = (vec![0.0; n], 0.0);
    let mut alphas = vec![0.0_f64; rows.len()];
    let mut order: Vec<usize> = (0..rows.len()).collect();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..EPOCHS {
        for at in (1..order.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(at, (seed >> 33) as usize % (at + 1));
        }
        let mut most = 0.0_f64;
        for at in &order {
            let (row, side, slack) = (&rows[*at], sides[*at], 0.5 / costs[*at]);
            // A row has length one, or no word; the bias is one more word of it.
            let square = if row.is_empty() { 1.0 } else { 2.0 };
            let score: f64 = row.iter().map(|(word, part)| weights[*word] * part).sum::<f64>() + bias;
            let slope = side * score - 1.0 + alphas[*at] * slack;
            let next = (alphas[*at] - slope / (square + slack)).max(0.0);
            let step = (next - alphas[*at]) * side;
            most = most.max(step.abs());
            if step != 0.0 {
                alphas[*at] = next;
                for (word, part) in row {
                    weights[*word] += step * part;
                }
                bias += step;
            }
        }
        if most < DONE {
            break;
        }
    }
    (weights, bias)
}
