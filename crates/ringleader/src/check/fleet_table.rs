//! Many nodes as one table: counts, then a line for each thing that is amiss, with its hosts. Never a table per node.

use std::fmt::Write as _;

use ringleader_check::fleet::{Changed, Clocks, Difference, Failing, FleetReport, NotJudged, Silent};
use ringleader_check::{CheckState, Impact};
use ringleader_report::{Detail, TextStyle, quote};

/// Lines of a section that are shown by default.
const USUAL_LINES: usize = 20;
/// Ways of failing of one check.
const USUAL_WAYS: usize = 3;
/// Lines that one list of hosts may take.
const USUAL_HOST_LINES: usize = 6;

/// The table.
pub fn render(report: &FleetReport, look: &TextStyle) -> String {
    let mut table = FleetTable { out: String::new(), look: *look };
    table.counts(report);
    let width = report.failing.iter().map(|failing| failing.check.len()).max().unwrap_or(0).min(32);
    for failing in &report.failing {
        table.failing(failing, width);
    }
    table.silent(&report.silent);
    if look.detail == Detail::Verdict {
        return table.out;
    }
    table.section("nodes differ", &report.differences, FleetTable::difference);
    table.section("changed since the baseline", &report.changes, FleetTable::change);
    if !report.without_baseline.is_empty() {
        table.line(0, "not in the baseline");
        table.hosts(2, &report.without_baseline);
    }
    table.section("not judged everywhere", &report.not_judged, FleetTable::not_judged);
    if let Some(clocks) = &report.clocks {
        table.clocks(clocks);
    }
    for note in &report.notes {
        table.line(0, &format!("note: {note}"));
    }
    table.out
}

struct FleetTable {
    out: String,
    look: TextStyle,
}

impl FleetTable {
    fn counts(&mut self, report: &FleetReport) {
        let FleetReport { n_asked, n_answered, n_fail, n_warn, n_ok, n_skipped, .. } = report;
        let plural = if *n_asked == 1 { "node" } else { "nodes" };
        let mut text = format!("{n_asked} {plural}: {n_fail} fail, {n_warn} warn, {n_ok} ok");
        if *n_skipped > 0 {
            let _ = write!(text, ", {n_skipped} without an answer to any check");
        }
        let n_silent = n_asked - n_answered;
        let _ = write!(text, ", {n_silent} silent");
        self.line(0, &text);
        if !report.drain.is_empty() {
            self.line(0, "to be drained:");
            self.hosts(2, &report.drain);
        }
    }

    fn failing(&mut self, failing: &Failing, width: usize) {
        let mark = self.mark(failing.verdict);
        let nodes = if failing.n_hosts == 1 { "node" } else { "nodes" };
        let head = format!("{:width$}  {:>4} {nodes}  ", quote::plain(&failing.check), failing.n_hosts);
        let indent = head.chars().count() + 6;
        // The list of hosts goes beside the name if there is room for it.
        if indent + 24 <= self.look.width {
            let rows = self.rows(&failing.hosts, self.look.width - indent);
            for (n, row) in rows.iter().enumerate() {
                let _ = match n {
                    0 => writeln!(self.out, "{mark}  {head}{row}"),
                    _ => writeln!(self.out, "{}{row}", " ".repeat(indent)),
                };
            }
        } else {
            let _ = writeln!(self.out, "{mark}  {}", head.trim_end());
            self.hosts(8, &failing.hosts);
        }
        if self.look.detail == Detail::Verdict {
            return;
        }
        let n_shown = if self.look.detail == Detail::Everything { usize::MAX } else { USUAL_WAYS };
        for way in failing.ways.iter().take(n_shown) {
            if failing.ways.len() == 1 {
                self.line(6, &way.summary);
            } else {
                let who = if way.n_hosts == 1 { way.hosts.clone() } else { format!("{} nodes", way.n_hosts) };
                self.line(6, &format!("{who}: {}", way.summary));
                if self.look.detail == Detail::Everything && way.n_hosts > 1 {
                    self.hosts(8, &way.hosts);
                }
            }
        }
        let n_more = failing.ways.len().saturating_sub(n_shown) + failing.n_more;
        if n_more > 0 {
            self.line(6, &format!("and {n_more} more failures"));
        }
        let n_fixes = if self.look.detail == Detail::Everything { usize::MAX } else { 1 };
        for fix in failing.fixes.iter().take(n_fixes) {
            let impact = match fix.impact {
                Impact::Harmless => "harmless",
                Impact::Disruptive => "disruptive",
                Impact::Destructive => "destructive",
            };
            self.wrapped(6, &format!("-> {} ({impact})", fix.text));
            if let Some(command) = &fix.command {
                // Whole, so that it can be copied.
                let _ = writeln!(self.out, "         {}", quote::plain(command));
            }
        }
    }

    fn silent(&mut self, silent: &[Silent]) {
        for group in silent {
            let mark = self.mark(CheckState::Fail).replace("FAIL", "gone");
            let nodes = if group.n_hosts == 1 { "node" } else { "nodes" };
            let why =
                if group.why.is_empty() { String::new() } else { format!(": {}", quote::plain(&group.why)) };
            let _ = writeln!(self.out, "{mark}  {}{why}, {} {nodes}", group.kind.name(), group.n_hosts);
            self.hosts(6, &group.hosts);
            if self.look.detail != Detail::Verdict && !group.next.is_empty() {
                self.wrapped(6, &format!("-> {}", group.next));
            }
        }
    }

    fn section<T>(&mut self, title: &str, entries: &[T], show: fn(&mut Self, &T)) {
        if entries.is_empty() {
            return;
        }
        self.line(0, "");
        self.line(0, title);
        let n_shown = if self.look.detail == Detail::Everything { usize::MAX } else { USUAL_LINES };
        for entry in entries.iter().take(n_shown) {
            show(self, entry);
        }
        let n_more = entries.len().saturating_sub(n_shown);
        if n_more > 0 {
            self.line(2, &format!("and {n_more} more; --verbose shows all"));
        }
    }

    fn difference(&mut self, difference: &Difference) {
        self.line(2, &format!("{}: {}", difference.key, difference.text));
        for holder in &difference.holders {
            self.line(4, &format!("{}: {}", holder.value, self.short(&holder.hosts)));
        }
        if difference.n_more > 0 {
            self.line(4, &format!("and {} more values", difference.n_more));
        }
    }

    fn change(&mut self, change: &Changed) {
        self.line(2, &format!("{}: {}: {}", change.key, change.text, self.short(&change.hosts)));
    }

    fn not_judged(&mut self, entry: &NotJudged) {
        let n = entry.n_hosts + entry.n_judged;
        let text = format!(
            "{} on {} of {n}: {}: {}",
            entry.check,
            entry.n_hosts,
            self.short(&entry.hosts),
            entry.why
        );
        self.line(2, &text);
    }

    fn clocks(&mut self, clocks: &Clocks) {
        self.line(0, "");
        self.wrapped(0, &format!("clocks: {}", clocks.text));
        for outlier in &clocks.outliers {
            let way = if outlier.ahead_ms < 0.0 { "behind" } else { "ahead" };
            self.line(
                2,
                &format!("{}: {} ms {way} (± {} ms)", outlier.host, outlier.ahead_ms.abs(), outlier.error_ms),
            );
        }
        if clocks.n_more > 0 {
            self.line(2, &format!("and {} more", clocks.n_more));
        }
        if let Some(ahead) = clocks.own_ahead_ms {
            let way = if ahead < 0.0 { "behind" } else { "ahead of" };
            self.line(2, &format!("the clock of this machine is {} ms {way} them", ahead.abs()));
        }
    }

    /// A line of text from others, made harmless and cut to the width.
    fn line(&mut self, indent: usize, text: &str) {
        let text = quote::plain(text);
        let room = self.look.width.saturating_sub(indent).max(20);
        let is_whole = self.look.detail == Detail::Everything || text.chars().count() <= room;
        let text = if is_whole { text } else { text.chars().take(room - 1).chain(['…']).collect() };
        let _ = writeln!(self.out, "{}", format!("{}{text}", " ".repeat(indent)).trim_end());
    }

    /// A sentence on as many lines as it takes: what to do is of no use cut.
    fn wrapped(&mut self, indent: usize, text: &str) {
        let room = self.look.width.saturating_sub(indent).max(20);
        let (mut row, mut hang) = (String::new(), 0);
        for word in quote::plain(text).split(' ') {
            if !row.is_empty() && row.chars().count() + 1 + word.chars().count() > room - hang {
                let _ = writeln!(self.out, "{}{row}", " ".repeat(indent + hang));
                row.clear();
                // Further lines are under the text of the first.
                hang = if text.starts_with("-> ") { 3 } else { 2 };
            }
            if !row.is_empty() {
                row.push(' ');
            }
            row.push_str(word);
        }
        let _ = writeln!(self.out, "{}{row}", " ".repeat(indent + hang));
    }

    /// A list of hosts on as many lines as it takes.
    fn hosts(&mut self, indent: usize, hosts: &str) {
        for row in self.rows(hosts, self.look.width.saturating_sub(indent).max(20)) {
            let _ = writeln!(self.out, "{}{row}", " ".repeat(indent));
        }
    }

    /// Rows of a list, broken after a comma.
    fn rows(&self, hosts: &str, room: usize) -> Vec<String> {
        let mut rows = vec![String::new()];
        for part in quote::plain(hosts).split_inclusive(',') {
            let is_full = rows
                .last()
                .is_some_and(|row| !row.is_empty() && row.chars().count() + part.chars().count() > room);
            if is_full {
                rows.push(String::new());
            }
            if let Some(row) = rows.last_mut() {
                row.push_str(part);
            }
        }
        if self.look.detail != Detail::Everything && rows.len() > USUAL_HOST_LINES {
            rows.truncate(USUAL_HOST_LINES);
            rows.push("… (--verbose or --format json has all of them)".to_owned());
        }
        rows
    }

    fn short(&self, hosts: &str) -> String {
        const MAX: usize = 60;
        if self.look.detail == Detail::Everything || hosts.len() <= MAX {
            return hosts.to_owned();
        }
        hosts.chars().take(MAX).chain(['…']).collect()
    }

    fn mark(&self, verdict: CheckState) -> String {
        let (word, color) = match verdict {
            CheckState::Fail => ("FAIL", "31;1"),
            CheckState::Warn => ("warn", "33"),
            CheckState::Ok => ("ok  ", "32"),
            CheckState::Skipped => ("skip", "2"),
        };
        if self.look.color { format!("\x1b[{color}m{word}\x1b[0m") } else { word.to_owned() }
    }
}
