//! The report for a terminal: verdict, proof, what to do, what else was found, what was not looked at, notes.

use ringleader_model::Cause;

use crate::json::{
    Action, Confidence, Culprit, Difference, Evidence, Finding, LookedAt, NotLookedAt, RankRow, Report,
    Severity, Verdict,
};
use crate::missing::NOT_GIVEN;
pub(crate) use crate::open::decider;
use crate::page::{Page, Style};
use crate::quote::{columns, fold, plain, plain_lines, wrap, wrap_words};
pub(crate) use crate::sets::{in_short, ranks};
use crate::{Detail, TextStyle, open};

/// Citations shown of one finding unless everything is asked for.
const MAX_CITATIONS: usize = 8;
/// Findings shown with proof if none of them decided, and citations of each.
const MAX_CANDIDATES: usize = 3;
const MAX_CANDIDATE_CITATIONS: usize = 2;
/// Rows of one quoted text unless everything is asked for: of the proof, and of what does not decide.
const MAX_PROOF_ROWS: usize = 12;
const MAX_QUOTE_ROWS: usize = 4;
/// Other findings and notes shown unless everything is asked for.
const MAX_OTHERS: usize = 10;
/// Ranks shown of a job that runs: more than a node has.
pub(crate) const MAX_RANKS: usize = 32;

/// The whole report as text, a newline at its end.
pub fn render(report: &Report, look: &TextStyle) -> String {
    let mut page = Page::new(*look);
    if let Some(why) = open::nothing(report) {
        page.nothing(report, &why);
        return page.out;
    }
    page.jobs(report);
    page.verdict(report);
    if look.detail > Detail::Verdict {
        page.ranks(report);
        if open::is_guess(report) {
            page.candidates(report);
            page.resembling(report);
        } else {
            page.proof(report);
            page.actions(&report.verdict.actions);
        }
        page.findings(report);
        page.against(report);
        if !open::is_guess(report) {
            page.candidates(report);
        }
        page.unexplained(report);
        page.undecided(report);
        page.looked_at(report);
        page.not_looked_at(report);
        page.notes(report);
    }
    page.out
}

/// `high` or `low` alone says little: `hang, high confidence`.
pub(crate) fn headline(verdict: &Verdict) -> String {
    match verdict.cause() {
        Cause::None => "nothing wrong found".to_owned(),
        Cause::Undecided => "undecided".to_owned(),
        cause => format!("{cause} ({}, {} confidence)", verdict.category.name(), verdict.confidence.name()),
    }
}

/// The headline of a report: a guess says that it is one.
pub(crate) fn headline_of(report: &Report) -> String {
    let guess = if open::is_guess(report) { "guess: " } else { "" };
    format!("{guess}{}", headline(&report.verdict))
}

/// Everything known of a culprit, on one line: `rank 2, host vm, pid 1347, local rank 2, GPU 0000:00:08.0`.
pub(crate) fn who(culprit: &Culprit) -> String {
    let mut parts = Vec::new();
    parts.extend(culprit.rank.map(|rank| format!("rank {rank}")));
    parts.extend(culprit.host.as_ref().map(|host| format!("host {}", plain(host))));
    parts.extend(culprit.pid.map(|pid| format!("pid {pid}")));
    parts.extend(culprit.local_rank.map(|rank| format!("local rank {rank}")));
    parts.extend(culprit.gpu.as_ref().map(|gpu| format!("GPU {gpu}")));
    if parts.is_empty() { "unknown process".to_owned() } else { parts.join(", ") }
}

/// Where a rank is, and what it does there: `load_batch (train.py:4), in the data loader, for at least 3 s`.
pub(crate) fn standing(row: &RankRow) -> String {
    let mut parts = Vec::new();
    if row.pid.is_none() {
        parts.push("not visible on this node".to_owned());
    }
    if let Some(place) = &row.place {
        let line = place.line.map(|line| format!(":{line}")).unwrap_or_default();
        let function = place.function.as_deref().unwrap_or("?");
        parts.push(format!("{} ({}{line})", plain(function), plain(&place.file)));
    }
    parts.extend(row.waits_for.as_deref().map(plain));
    parts.extend(row.since.map(|seconds| format!("for at least {seconds:.0} s")));
    if row.has_moved == Some(true) {
        parts.push("goes on".to_owned());
    }
    parts.join(", ")
}

/// Where a culprit is: `/srv/train.py:83 in sync_grads`.
pub(crate) fn place(culprit: &Culprit) -> Option<String> {
    let place = culprit.place.as_ref()?;
    let line = place.line.map(|line| format!(":{line}")).unwrap_or_default();
    let function = place.function.as_ref().map(|name| format!(" in {}", plain(name))).unwrap_or_default();
    Some(format!("{}{line}{function}", plain(&place.file)))
}

/// The place of a citation: `stderr.log:12`, or `fr_rank2 bytes 10-20`.
pub(crate) fn citation(evidence: &Evidence) -> String {
    let source = plain(&evidence.source);
    match (evidence.line, evidence.span) {
        (Some(line), _) => format!("{source}:{line}"),
        (None, [0, 0]) => source,
        (None, [start, end]) => format!("{source} bytes {start}-{end}"),
    }
}

/// How many files hold each kind of evidence: `4 flight-recorder, 1 nccl-log`.
pub(crate) fn tally(looked_at: &[LookedAt]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for entry in looked_at {
        match counts.iter_mut().find(|(kind, _)| *kind == entry.kind) {
            Some((_, count)) => *count += 1,
            None => counts.push((&entry.kind, 1)),
        }
    }
    // What showed nothing comes last.
    counts.sort_unstable_by_key(|(kind, _)| {
        (matches!(*kind, "text" | "unknown" | "empty" | "not-read"), *kind)
    });
    let counts: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    if counts.is_empty() { "nothing".to_owned() } else { counts.join(", ") }
}

/// Notes worth showing, with their file: remarks only if everything is asked for.
pub(crate) fn notes(report: &Report, detail: Detail) -> Vec<(String, String)> {
    let mut notes = Vec::new();
    for entry in &report.looked_at {
        for note in &entry.notes {
            if detail == Detail::Everything || note.kind != "remark" {
                let line = note.line.map(|line| format!(":{line}")).unwrap_or_default();
                notes.push((format!("{}{line}", plain(&entry.source)), plain(&note.text)));
            }
        }
    }
    notes
}

/// A difference between two runs: `NCCL: 2.29.7, in the good run 2.27.5`.
pub(crate) fn difference(one: &Difference) -> String {
    match (&one.bad, &one.good) {
        (Some(bad), Some(good)) => format!("{}: {bad}, in the good run {good}", one.name),
        // That it stands among the differences says it.
        (Some(bad), None) if one.kind == "statement" => format!("{}: {bad}", one.name),
        (Some(bad), None) => format!("{}: {bad}, not in the good run", one.name),
        (None, Some(good)) => format!("{}: only in the good run, {good}", one.name),
        (None, None) => one.name.clone(),
    }
}

/// As many names as one row has room for, and how many more there are.
fn in_one_row(names: &[&str], width: usize) -> String {
    let all = names.join(", ");
    if columns(&all) <= width {
        return all;
    }
    let shown =
        |n: usize| format!("{} and {} more", names.get(..n).unwrap_or_default().join(", "), names.len() - n);
    let fits = (1..names.len()).rev().find(|n| columns(&shown(*n)) <= width);
    shown(fits.unwrap_or(1))
}

/// The report is of a job that runs: its ranks were looked at twice.
pub(crate) fn is_live(report: &Report) -> bool {
    report.ranks.iter().any(|row| row.busy.is_some())
}

/// The findings besides the one that the verdict rests on.
pub(crate) fn others(report: &Report) -> &[Finding] {
    let decided = report.findings.first().is_some_and(|first| first.cause == report.verdict.cause);
    report.findings.get(usize::from(decided)..).unwrap_or_default()
}

impl Page {
    fn verdict(&mut self, report: &Report) {
        let verdict = &report.verdict;
        let style = match verdict.cause() {
            Cause::None => Style::Green,
            Cause::Undecided => Style::Yellow,
            _ => Style::Red,
        };
        // Wrapped before it is painted: colour takes no columns.
        for row in wrap(&plain(&headline_of(report)), self.look.width) {
            let row = self.paint(style, &row);
            self.row(&row);
        }
        if !verdict.summary.is_empty() {
            self.item("  ", &plain(&verdict.summary));
        }
        if !verdict.culprits.is_empty() || !verdict.victims.is_empty() {
            self.out.push('\n');
        }
        let shown = if self.look.detail == Detail::Everything { usize::MAX } else { MAX_OTHERS };
        for culprit in verdict.culprits.iter().take(shown) {
            self.item("  culprit  ", &who(culprit));
            if let Some(place) = place(culprit) {
                self.item("           at ", &place);
            }
        }
        self.more("  culprit  ", verdict.culprits.len().saturating_sub(shown), "culprits");
        if !verdict.victims.is_empty() {
            // A long set may have no space to break at.
            let all = self.look.detail == Detail::Everything;
            let short = ranks(&if all { verdict.victims.clone() } else { in_short(&verdict.victims) });
            let set = if columns(&short) + 11 > self.look.width {
                short.replace(',', ", ").replace(",  ", ", ")
            } else {
                short
            };
            self.item("  victims  ", &set);
        }
    }

    /// Citations: the place, the line as it is there, then what it means where that is said otherwise.
    fn evidence(&mut self, indent: usize, evidence: &[Evidence], usual: usize, most_rows: usize) {
        let all = self.look.detail == Detail::Everything;
        let shown = if all { usize::MAX } else { usual };
        let pad = " ".repeat(indent);
        for cited in evidence.iter().take(shown) {
            self.item(&pad, &citation(cited));
            if !cited.is_record() {
                self.quote(indent, &cited.quoted(), if all { usize::MAX } else { most_rows });
            }
            if cited.is_record() || cited.is_meaning() {
                self.item(&format!("{pad}    "), &plain(&cited.text));
            }
        }
        self.more(&pad, evidence.len().saturating_sub(shown), "citations");
    }

    /// Quoted lines behind a bar.
    fn quote(&mut self, indent: usize, text: &str, most_rows: usize) {
        let pad = " ".repeat(indent);
        let width = self.look.width.saturating_sub(indent + 4);
        let mut rows: Vec<String> = plain_lines(text).iter().flat_map(|line| fold(line, width)).collect();
        let n_left = rows.len().saturating_sub(most_rows);
        rows.truncate(most_rows);
        let bar = self.paint(Style::Dim, "|");
        for row in rows {
            self.row(&format!("{pad}  {bar} {row}"));
        }
        self.more(&format!("{pad}  "), n_left, "rows");
    }

    fn proof(&mut self, report: &Report) {
        if let Some(finding) = decider(report).filter(|finding| !finding.evidence.is_empty()) {
            self.heading("proof");
            self.evidence(2, &finding.evidence, MAX_CITATIONS, MAX_PROOF_ROWS);
        }
    }

    /// The lines that a guess rests on, each once.
    fn resembling(&mut self, report: &Report) {
        let Some(finding) = decider(report) else { return };
        let all = self.look.detail == Detail::Everything;
        let lines = open::resembling(&finding.evidence, all);
        self.heading("lines whose words led to the guess");
        self.evidence(2, &lines, MAX_CITATIONS, MAX_QUOTE_ROWS);
    }

    /// Nothing could be read: why, and what to give.
    fn nothing(&mut self, report: &Report, why: &str) {
        for row in wrap(why, self.look.width) {
            let row = self.paint(Style::Yellow, &row);
            self.row(&row);
        }
        if self.look.detail == Detail::Verdict {
            return;
        }
        let shown = if self.look.detail == Detail::Everything { usize::MAX } else { MAX_OTHERS };
        let notes = notes(report, self.look.detail);
        if notes.len() > 1 {
            self.heading("notes");
            for (place, text) in notes.iter().take(shown) {
                self.item("  ", &format!("{place}: {text}"));
            }
            self.more("  ", notes.len().saturating_sub(shown), "notes");
        }
        self.heading("what to give");
        self.item("  ", "logs, dumps and stacks of the job; what is read, and how to get it:");
        self.command("    ", "ringleader help evidence");
    }

    fn actions(&mut self, actions: &[Action]) {
        if actions.is_empty() {
            return;
        }
        self.heading("what to do");
        for (n, action) in actions.iter().enumerate() {
            self.action(&format!("  {}. ", n + 1), action);
        }
    }

    fn findings(&mut self, report: &Report) {
        let others = others(report);
        if others.is_empty() {
            return;
        }
        let all = self.look.detail == Detail::Everything;
        let shown = if all { usize::MAX } else { MAX_OTHERS };
        self.heading(if decider(report).is_some() { "other findings" } else { "findings" });
        // Without one that decided, what the candidates rest on is what there is to go by.
        let candidates = if decider(report).is_some() { 0 } else { MAX_CANDIDATES };
        for (n, finding) in others.iter().take(shown).enumerate() {
            let (style, name) = match finding.severity {
                Severity::Error => (Style::Red, "error"),
                Severity::Warning => (Style::Yellow, "warning"),
                Severity::Info => (Style::Dim, "info"),
            };
            // severity, two spaces, title: wrapped before it is painted, since colour takes no columns
            let painted = self.paint(style, name);
            let rows = wrap(&plain(&finding.title), self.look.width.saturating_sub(11));
            for (at, row) in rows.iter().enumerate() {
                let head = match at {
                    0 => format!("  {painted}{}  ", " ".repeat(7 - name.len())),
                    _ => " ".repeat(11),
                };
                self.row(&format!("{head}{row}"));
            }
            if all {
                let text = format!(
                    "{}, cause {}, {} confidence",
                    finding.id,
                    finding.cause,
                    finding.confidence.name()
                );
                self.item("           ", &text);
                for culprit in &finding.culprits {
                    self.item("           ", &who(culprit));
                    if let Some(place) = place(culprit) {
                        self.item("           at ", &place);
                    }
                }
                self.evidence(11, &finding.evidence, MAX_CITATIONS, MAX_PROOF_ROWS);
                for action in &finding.actions {
                    self.action("           - ", action);
                }
            } else if n < candidates {
                self.evidence(11, &finding.evidence, MAX_CANDIDATE_CITATIONS, MAX_QUOTE_ROWS);
            }
        }
        self.more("  ", others.len().saturating_sub(shown), "findings");
    }

    /// Causes that come into question, and what would show each.
    fn candidates(&mut self, report: &Report) {
        if report.candidates.is_empty() {
            return;
        }
        self.heading("possible causes, most likely first");
        let shown = open::n_candidates(report, self.look.detail == Detail::Everything);
        let mut said = "";
        for (n, one) in report.candidates.iter().take(shown).enumerate() {
            // Several causes may rest on the same line.
            let why = if one.why == said { String::new() } else { format!(": {}", plain(&one.why)) };
            said = &one.why;
            let label = format!("  {}. ", n + 1);
            self.item(&label, &format!("{}{why}", plain(&one.cause)));
            let pad = " ".repeat(columns(&label));
            if let Some(needs) = &one.needs {
                self.item(&pad, &plain(needs));
            }
            if let Some(command) = &one.command {
                self.command(&pad, command);
            }
        }
        self.more("  ", report.candidates.len().saturating_sub(shown), "causes");
    }

    /// The error statements that keep the verdict open, each whole, with what is known of it.
    fn unexplained(&mut self, report: &Report) {
        let statements = open::statements(report);
        if statements.is_empty() {
            return;
        }
        let all = self.look.detail == Detail::Everything;
        if open::is_guess(report) && !all {
            let n = statements.len() + report.statements_left_out;
            let (what, are) = if n == 1 { ("statement", "is") } else { ("statements", "are") };
            self.out.push('\n');
            self.row(&format!("{n} error {what} {are} unexplained: --verbose shows them"));
            return;
        }
        let shown = if all { usize::MAX } else { open::MAX_STATEMENTS };
        self.heading("unexplained error statements");
        for one in statements.iter().take(shown) {
            let spread = open::spread(one);
            let comma = if spread.is_empty() { "" } else { ", " };
            self.item("  ", &plain(&format!("{}{comma}{spread}", open::spot(one))));
            self.quote(2, &one.text, if all { usize::MAX } else { MAX_PROOF_ROWS });
            for word in &one.words {
                self.item("      ", &plain(&format!("{}: {}", word.text, word.means)));
            }
        }
        let left = statements.len().saturating_sub(shown) + report.statements_left_out;
        self.more("  ", left, "statements");
    }

    fn undecided(&mut self, report: &Report) {
        let questions = open::questions(report);
        if questions.is_empty() {
            return;
        }
        self.heading(open::title(report));
        // Several questions may have one answer.
        let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
        for open in questions {
            match groups.iter_mut().find(|(command, _)| !command.is_empty() && *command == open.command) {
                Some((_, asked)) => asked.push(&open.question),
                None => groups.push((&open.command, vec![&open.question])),
            }
        }
        for (command, asked) in groups {
            for question in asked {
                self.item("  ", &plain(question));
            }
            self.command("    ", command);
        }
    }

    /// Every job of the node with its verdict, where there are several. Those of recorded evidence are an open question.
    fn jobs(&mut self, report: &Report) {
        let Some(first) = report.jobs.first().filter(|_| open::has_jobs(report)) else { return };
        // Bundles of a living node may be read later.
        let is_live = is_live(report) && open::of_each_job(report).is_none();
        let title = if is_live { "jobs run on this node" } else { "jobs or attempts in what was given" };
        self.row(&format!("{} {title}", report.jobs.len()));
        let shown = if self.look.detail == Detail::Everything { usize::MAX } else { MAX_RANKS };
        for job in report.jobs.iter().take(shown) {
            let summary = &job.verdict.summary;
            let colon = if summary.is_empty() { "" } else { ": " };
            let text = format!("{}{colon}{summary}", headline(&job.verdict));
            self.item(&format!("  {}  ", plain(&job.id)), &plain(&text));
        }
        self.more("  ", report.jobs.len().saturating_sub(shown), "jobs");
        if is_live {
            let rest = "for another: ringleader diagnose --live --pid PID";
            self.item("", &format!("below: the report of {}; {rest}", plain(&first.id)));
        } else {
            self.item(
                "",
                "each by itself (below: the report of the first, which failed worst or is the newest):",
            );
            if let Some(commands) = open::of_each_job(report) {
                self.command("  ", commands);
            }
        }
        self.out.push('\n');
    }

    /// One row per rank of a running job. For a recorded job the evidence shows where its ranks are.
    fn ranks(&mut self, report: &Report) {
        if !is_live(report) {
            return;
        }
        self.heading("ranks");
        self.row("  rank  pid      state    cpu    place, and what it does there");
        let shown = if self.look.detail == Detail::Everything { usize::MAX } else { MAX_RANKS };
        for row in report.ranks.iter().take(shown) {
            let pid = row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let cpu = row.busy.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", share * 100.0));
            let label = format!("  {:<4}  {pid:<7}  {:<7}  {cpu:<5}  ", row.rank, plain(&row.state));
            self.item(&label, &standing(row));
        }
        self.more("  ", report.ranks.len().saturating_sub(shown), "ranks");
    }

    fn looked_at(&mut self, report: &Report) {
        self.heading("looked at");
        if self.look.detail == Detail::Everything {
            for entry in &report.looked_at {
                self.item("  ", &format!("{} ({})", plain(&entry.source), entry.kind));
            }
        } else {
            let tally = tally(&report.looked_at);
            // A number stays with its kind.
            for row in
                wrap_words(tally.split_inclusive(", ").map(str::trim_end), self.look.width.saturating_sub(2))
            {
                self.row(&format!("  {row}"));
            }
            if let Some(names) = open::empty(report) {
                self.item("  empty: ", &names);
            }
        }
    }

    /// One row of names, unless nothing is decided or everything is asked for: then the collecting command is beside
    /// each.
    fn not_looked_at(&mut self, report: &Report) {
        if report.not_looked_at.is_empty() {
            return;
        }
        if report.verdict.cause() != Cause::Undecided && self.look.detail != Detail::Everything {
            // Nothing more would make it surer.
            if report.verdict.confidence == Confidence::High {
                return;
            }
            let kinds: Vec<&str> = report.not_looked_at.iter().map(|missing| missing.kind.as_str()).collect();
            self.out.push('\n');
            self.item("not given: ", &plain(&in_one_row(&kinds, self.look.width.saturating_sub(11))));
            return;
        }
        self.heading("not given, and what would collect it");
        // One command may collect several kinds.
        let mut groups: Vec<(&NotLookedAt, Vec<&str>)> = Vec::new();
        for missing in &report.not_looked_at {
            match groups.iter_mut().find(|(m, _)| m.command == missing.command && m.why == missing.why) {
                Some((_, kinds)) => kinds.push(&missing.kind),
                None => groups.push((missing, vec![&missing.kind])),
            }
        }
        for (missing, kinds) in groups {
            self.item("  ", &plain(&kinds.join(", ")));
            self.command("    ", &missing.command);
            if missing.why != NOT_GIVEN {
                self.item("    ", &plain(&missing.why));
            }
        }
    }

    /// What differs from a good run.
    fn against(&mut self, report: &Report) {
        let Some(against) = &report.against else { return };
        self.heading(&format!("compared with the good run (its own verdict: {})", plain(&against.verdict)));
        if against.differences.is_empty() {
            self.item("  ", "nothing differs in what both runs show");
        }
        for one in &against.differences {
            self.item(&format!("  {:<9}  ", plain(&one.kind)), &plain(&crate::text::difference(one)));
        }
        for part in &against.not_compared {
            self.item("  not compared: ", &plain(part));
        }
    }

    fn notes(&mut self, report: &Report) {
        let notes = notes(report, self.look.detail);
        if notes.is_empty() {
            return;
        }
        let shown = if self.look.detail == Detail::Everything { usize::MAX } else { MAX_OTHERS };
        self.heading("notes");
        for (place, text) in notes.iter().take(shown) {
            self.item("  ", &format!("{place}: {text}"));
        }
        self.more("  ", notes.len().saturating_sub(shown), "notes");
    }
}
