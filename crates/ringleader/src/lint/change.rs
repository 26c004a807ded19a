//! Lines that changed since a revision, and changes that are made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringleader_lint::{LintFinding, Location, SourceFile};

use crate::failure::Failure;

/// Changed lines by the end of a path.
#[derive(Debug, Default)]
pub(super) struct Changed {
    lines: BTreeMap<String, Vec<(u32, u32)>>,
}

impl Changed {
    /// Whether a place overlaps changed lines.
    pub(super) fn holds(&self, place: &Location) -> bool {
        let path = std::fs::canonicalize(&place.path).unwrap_or_else(|_| PathBuf::from(&place.path));
        let lines = self.lines.get(&*path.to_string_lossy());
        lines.is_some_and(|list| list.iter().any(|(from, to)| place.line <= *to && *from <= place.end_line))
    }
}

/// Asks git which lines changed.
pub(super) fn since(revision: &str, paths: &[PathBuf]) -> Result<Changed, Failure> {
    let folder = paths.first().map_or(Path::new("."), PathBuf::as_path);
    let folder = if folder.is_dir() { folder } else { folder.parent().unwrap_or(Path::new(".")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let ask = |args: &[&str]| {
        let output = Command::new("git").arg("-C").arg(folder).args(args).output();
        let output = output.map_err(|error| Failure::Absent { why: format!("git: {error}") })?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(Failure::Absent { why: format!("revision {revision}: {why}") })
        }
    };
    // A revision that looks like an option is none.
    if revision.starts_with('-') {
        return Err(Failure::Absent { why: format!("revision {revision}") });
    }
    let root = PathBuf::from(ask(&["rev-parse", "--show-toplevel"])?.trim());
    let diff = ask(&["diff", "--no-color", "--no-ext-diff", "--unified=0", "--no-renames", revision, "--"])?;
    let mut changed = read(&diff, &root);
    for path in ask(&["ls-files", "--others", "--exclude-standard", "--full-name"])?.lines() {
        changed.lines.insert(root.join(path).to_string_lossy().into_owned(), vec![(1, u32::MAX)]);
    }
    Ok(changed)
}

fn read(diff: &str, root: &Path) -> Changed {
    let mut changed = Changed::default();
    let mut path = String::new();
    for line in diff.lines() {
        if let Some(name) = line.strip_prefix("+++ b/") {
            path = root.join(name).to_string_lossy().into_owned();
        } else if let Some(rest) = line.strip_prefix("@@ ") {
            // `@@ -1,2 +3,4 @@`
            let Some(new) = rest.split(' ').find_map(|word| word.strip_prefix('+')) else { continue };
            let (start, n) = new.split_once(',').unwrap_or((new, "1"));
            if let (Ok(start), Ok(n)) = (start.parse::<u32>(), n.parse::<u32>())
                && n > 0
            {
                changed.lines.entry(path.clone()).or_default().push((start, start + n - 1));
            }
        }
    }
    changed
}

/// Makes the changes that findings offer. Answers with their number.
pub(super) fn fix(sources: &[SourceFile], findings: &[LintFinding]) -> Result<usize, Failure> {
    let mut n = 0;
    for source in sources {
        let fixes = findings.iter().filter(|finding| finding.place.path == source.path);
        let mut fixes: Vec<_> = fixes.filter_map(|finding| finding.fix.as_ref()).collect();
        // From the end, so that earlier places stay where they are.
        fixes.sort_by_key(|fix| std::cmp::Reverse(fix.at));
        let mut text = source.text.clone();
        let mut before = usize::MAX;
        let mut n_here = 0;
        for fix in fixes {
            if fix.end <= before && text.is_char_boundary(fix.at) && text.is_char_boundary(fix.end) {
                text.replace_range(fix.at..fix.end, &fix.with);
                before = fix.at;
                n_here += 1;
            }
        }
        if n_here > 0 {
            let path = PathBuf::from(&source.path);
            std::fs::write(&path, text).map_err(|source| Failure::CannotWrite { path, source })?;
            n += n_here;
        }
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_are_read_from_a_diff() {
        let diff = "+++ b/a.py\n@@ -1,0 +2,3 @@ def f\n@@ -9 +12 @@\n@@ -20,2 +22,0 @@\n";
        let changed = read(diff, Path::new("/nowhere"));
        assert_eq!(changed.lines["/nowhere/a.py"], [(2, 4), (12, 12)]);
    }
}
