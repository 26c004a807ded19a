//! Modules of a crate depend on each other in one direction: no crate has a circle of them.
//!
//! A file is a module, and a folder is one with the file of its name. An edge is a path in code (`use` or inline) from one
//! module to another; a re-export is none, a path through it leads to what it names. For each module, its children are
//! looked at together, each with all that is below it. What a module and its own parent share is between the two of them
//! and is no edge: a parent's types and the children that are parts of it are one thing. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::tidy::{rust_files, test_modules, without_tests};

type Name = Vec<String>;

/// One file.
#[derive(Default)]
struct Module {
    paths: Vec<Vec<String>>,
    /// What it re-exports: under which name (None: all), from where.
    exports: Vec<(Option<String>, Vec<String>)>,
    /// Names of its items.
    items: BTreeSet<String>,
}

/// Words and marks of code, without comments and texts.
fn tokens(text: &str) -> Vec<String> {
    let text: Vec<char> = text.chars().collect();
    let at = |i: usize| text.get(i).copied().unwrap_or('\0');
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut i, mut out) = (0, Vec::new());
    while i < text.len() {
        let c = at(i);
        if c == '/' && at(i + 1) == '/' {
            while i < text.len() && at(i) != '\n' {
                i += 1;
            }
        } else if c == '/' && at(i + 1) == '*' {
            while i < text.len() && !(at(i) == '*' && at(i + 1) == '/') {
                i += 1;
            }
            i += 2;
        } else if c == '"' {
            i += 1;
            while i < text.len() && at(i) != '"' {
                i += if at(i) == '\\' { 2 } else { 1 };
            }
            i += 1;
        } else if c == '\'' {
            // A character, or a lifetime.
            if at(i + 1) == '\\' {
                i += 3;
                while i < text.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            } else {
                i += if at(i + 2) == '\'' { 3 } else { 1 };
            }
        } else if is_word(c) {
            let start = i;
            while is_word(at(i)) {
                i += 1;
            }
            let word: String = text[start..i].iter().collect();
            let n_marks = (i..text.len()).take_while(|j| at(*j) == '#').count();
            if matches!(word.as_str(), "r" | "br" | "cr") && at(i + n_marks) == '"' {
                i += n_marks + 1;
                let ends = |i: usize| at(i) == '"' && (1..=n_marks).all(|n| at(i + n) == '#');
                while i < text.len() && !ends(i) {
                    i += 1;
                }
                i += 1 + n_marks;
            } else {
                out.push(word);
            }
        } else if c == ':' && at(i + 1) == ':' {
            out.push("::".to_owned());
            i += 2;
        } else {
            if !c.is_whitespace() {
                out.push(c.to_string());
            }
            i += 1;
        }
    }
    out
}

/// Reads a tree of `use` from `i` on; each path with the name that it gets. Returns where it ends.
fn tree(
    tokens: &[String],
    mut i: usize,
    prefix: &[String],
    out: &mut Vec<(Vec<String>, Option<String>)>,
) -> usize {
    let mut path = prefix.to_vec();
    let token = |i: usize| tokens.get(i).map_or(";", String::as_str);
    loop {
        match token(i) {
            "::" => i += 1,
            "{" => {
                i += 1;
                while token(i) != "}" && token(i) != ";" {
                    i = tree(tokens, i, &path, out);
                    if token(i) == "," {
                        i += 1;
                    }
                }
                return i + 1;
            }
            "*" => {
                out.push((path, None));
                return i + 1;
            }
            "self" if !path.is_empty() => i += 1,
            "," | "}" | ";" => break,
            "as" => {
                let name = token(i + 1).to_owned();
                out.push((path, Some(name)));
                return i + 2;
            }
            word => {
                path.push(word.to_owned());
                i += 1;
            }
        }
    }
    let name = path.last().cloned();
    out.push((path, name));
    i
}

fn module(text: &str) -> Module {
    let tokens = tokens(text);
    let mut module = Module::default();
    let token = |i: usize| tokens.get(i).map_or("", String::as_str);
    let is_name = |word: &str| word.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut i = 0;
    while i < tokens.len() {
        let before = i.checked_sub(1).map_or("", token);
        if token(i) == "use" && before != "." && (is_name(token(i + 1)) || token(i + 1) == "{") {
            let mut paths = Vec::new();
            // `pub use`, `pub(crate) use`.
            let is_export =
                before == "pub" || before == ")" && (i.saturating_sub(6)..i).any(|j| token(j) == "pub");
            i = tree(&tokens, i + 1, &[], &mut paths);
            for (path, name) in paths {
                if is_export {
                    module.exports.push((name, path));
                } else {
                    module.paths.push(path);
                }
            }
            continue;
        }
        if matches!(token(i), "struct" | "enum" | "fn" | "type" | "const" | "static" | "trait") {
            module.items.insert(token(i + 1).to_owned());
        }
        if is_name(token(i)) && before != "::" && before != "." && token(i + 1) == "::" {
            let mut path = vec![token(i).to_owned()];
            while token(i + 1) == "::" && is_name(token(i + 2)) {
                path.push(token(i + 2).to_owned());
                i += 2;
            }
            module.paths.push(path);
        }
        i += 1;
    }
    module
}

/// The modules of a crate and the edges between them.
struct Crate(BTreeMap<Name, Module>);

impl Crate {
    fn read(src: &Path) -> Self {
        let texts: BTreeMap<Name, String> = rust_files(src)
            .into_iter()
            .map(|file| {
                let inner = file.strip_prefix(src).unwrap().with_extension("");
                let mut name: Name =
                    inner.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect();
                if matches!(name.last().map(String::as_str), Some("lib" | "main" | "mod")) {
                    name.pop();
                }
                (name, std::fs::read_to_string(file).unwrap())
            })
            .collect();
        let of_tests: BTreeSet<Name> = texts
            .iter()
            .flat_map(|(name, text)| {
                let inner = |module: String| name.iter().cloned().chain([module]).collect();
                test_modules(text).into_iter().map(inner).collect::<Vec<Name>>()
            })
            .collect();
        let is_test = |name: &Name| {
            of_tests.iter().any(|test| name.starts_with(test))
                || name.last().is_some_and(|last| last.ends_with("_tests"))
        };
        Self(
            texts
                .into_iter()
                .filter(|(name, _)| !is_test(name))
                .map(|(name, text)| (name, module(without_tests(&text))))
                .collect(),
        )
    }

    /// A path of code from the crate's root on; None if it leads out of the crate.
    fn absolute(&self, from: &[String], path: &[String]) -> Option<Name> {
        let (first, rest) = path.split_first()?;
        let child = || from.iter().chain([first]).cloned().collect::<Name>();
        let mut base = match first.as_str() {
            "crate" => Name::new(),
            "self" => from.to_vec(),
            "super" => from.split_last()?.1.to_vec(),
            _ if self.0.contains_key(&child()) => child(),
            _ => return None,
        };
        for word in rest {
            if word == "super" {
                base.pop();
            } else {
                base.push(word.clone());
            }
        }
        Some(base)
    }

    /// The module in which a path ends, through re-exports.
    fn home(&self, path: &[String], depth: u32) -> Name {
        let n = (0..=path.len()).rev().find(|n| self.0.contains_key(&path[..*n])).unwrap_or(0);
        let (name, rest) = path.split_at(n);
        let (Some(module), Some(item)) = (self.0.get(name), rest.first()) else { return name.to_vec() };
        if depth == 0 || module.items.contains(item) {
            return name.to_vec();
        }
        for (exported, target) in &module.exports {
            let Some(target) = self.absolute(name, target) else { continue };
            let rest = match exported {
                Some(exported) if exported == item => &rest[1..],
                None => rest,
                Some(_) => continue,
            };
            let target: Name = target.into_iter().chain(rest.iter().cloned()).collect();
            let home = self.home(&target, depth - 1);
            let is_there = exported.is_some()
                || self.0.get(&home).is_some_and(|m| m.items.contains(item))
                || home.ends_with(std::slice::from_ref(item));
            if is_there {
                return home;
            }
        }
        name.to_vec()
    }

    /// Every edge, from module to module.
    fn edges(&self) -> BTreeSet<(Name, Name)> {
        let mut edges = BTreeSet::new();
        for (name, module) in &self.0 {
            for path in &module.paths {
                let Some(target) = self.absolute(name, path) else { continue };
                let home = self.home(&target, 8);
                if home != *name {
                    edges.insert((name.clone(), home));
                }
            }
        }
        edges
    }

    /// Modules in circles, each circle with its edges.
    fn circles(&self) -> Vec<(BTreeSet<Name>, Vec<String>)> {
        let edges = self.edges();
        #[expect(
            clippy::type_complexity,
            reason = "one use: a circle is its modules and the imports that close it"
        )]
        let mut between: BTreeMap<&[String], BTreeMap<(&[String], &[String]), String>> = BTreeMap::new();
        for (from, to) in &edges {
            let n = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if n < from.len() && n < to.len() {
                let pair = (&from[..=n], &to[..=n]);
                let shown = format!("{} -> {}", from.join("::"), to.join("::"));
                between.entry(&from[..n]).or_default().entry(pair).or_insert(shown);
            }
        }
        let mut circles = Vec::new();
        for edges in between.values() {
            let reach = |from: &[String]| {
                let mut seen: BTreeSet<&[String]> = BTreeSet::new();
                let mut open = vec![from.to_vec()];
                while let Some(at) = open.pop() {
                    for (a, b) in edges.keys() {
                        if **a == *at && seen.insert(b) {
                            open.push(b.to_vec());
                        }
                    }
                }
                seen
            };
            let nodes: BTreeSet<&[String]> = edges.keys().map(|(from, _)| *from).collect();
            let mut done: BTreeSet<&[String]> = BTreeSet::new();
            for node in nodes {
                let seen = reach(node);
                if !seen.contains(node) || !done.insert(node) {
                    continue;
                }
                let ring: BTreeSet<&[String]> =
                    seen.into_iter().filter(|other| reach(other).contains(node)).collect();
                done.extend(&ring);
                let shown = edges
                    .iter()
                    .filter(|((a, b), _)| ring.contains(a) && ring.contains(b))
                    .map(|(_, shown)| shown.clone())
                    .collect();
                circles.push((ring.into_iter().map(<[String]>::to_vec).collect(), shown));
            }
        }
        circles
    }
}

#[test]
fn no_crate_has_a_circle_of_modules() {
    let mut n_edges = 0;
    for folder in std::fs::read_dir(crate::root().join("crates")).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let crate_ = Crate::read(&folder.path().join("src"));
        n_edges += crate_.edges().len();
        let circles = crate_.circles();
        assert!(circles.is_empty(), "{name} has circles of modules: {circles:#?}");
    }
    assert!(n_edges > 1_000, "the scan is blind: {n_edges} edges");
}

#[test]
fn readers_see_only_the_ground() {
    let crate_ = Crate::read(&crate::root().join("crates/evidence/src"));
    let mut readers = BTreeSet::new();
    for (from, to) in crate_.edges() {
        let [list, reader, ..] = from.as_slice() else { continue };
        if list != "readers" {
            continue;
        }
        readers.insert(reader.clone());
        let is_ground = to.first().is_some_and(|first| first == "ground");
        let is_own = to.starts_with(&[list.clone(), reader.clone()]);
        assert!(is_ground || is_own, "{} sees {}", from.join("::"), to.join("::"));
    }
    assert!(readers.len() > 14, "the scan is blind: {readers:?}");
}

#[test]
fn the_scan_sees_circles() {
    let files = [
        ("", "mod a; mod b; mod ground; pub use crate::ground::Word;"),
        ("a", "use crate::b::{self, deep::{Deep as D}}; fn f() -> crate::Word { \"crate::x::y\" }"),
        ("b", "// use crate::a::X;\nmod deep; pub(crate) use deep::Deep; struct B; const C: char = '\"';"),
        ("b::deep", "fn g() { crate::a::f(); } struct Deep;"),
        ("ground", "pub struct Word; use super::b::B as _;"),
    ];
    let crate_ = Crate(
        files
            .iter()
            .map(|(name, text)| {
                (name.split("::").filter(|w| !w.is_empty()).map(str::to_owned).collect(), module(text))
            })
            .collect(),
    );
    let shown: Vec<Vec<String>> = crate_
        .circles()
        .iter()
        .map(|(modules, _)| modules.iter().map(|name| name.join("::")).collect())
        .collect();
    assert_eq!(shown, [["a", "b", "ground"]]);
}
