//! The report, version 1. These types are the format: the schema in `docs/report-v1.schema.json` is generated from
//! them. Within version 1 fields are only added, and any that may be unknown is null rather than left out.

use std::collections::BTreeMap;
use std::io;

use ringleader_model as model;
use schemars::JsonSchema;
use serde::Serialize;

use crate::missing;

mod picture;

pub use picture::{
    Against, Call, Candidate, CardPath, Difference, Event, Fact, FactValue, Gpu, Machine, Nic, Role, Span,
    SpanState, Spot, Stack, StackFrame, Statement, Value, Wait, Word,
};

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// Name and version of this format.
    pub schema: Schema,
    /// The answer.
    pub verdict: Verdict,
    /// All findings; the one that decided is first.
    pub findings: Vec<Finding>,
    /// Open questions, and the command that would answer each.
    pub undecided: Vec<Undecided>,
    /// What was read: an entry for each file and kind of evidence in it.
    pub looked_at: Vec<LookedAt>,
    /// Kinds of evidence that were not there.
    pub not_looked_at: Vec<NotLookedAt>,
    /// The ranks, outliers first, at most 1,024: of a job that runs from two readings some seconds apart, of a recorded
    /// one from its records. Left out if empty, as are all fields below.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub ranks: Vec<RankRow>,
    /// Error statements, unexplained ones first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub statements: Vec<Statement>,
    /// Error statements for which there was no room.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub statements_left_out: usize,
    /// The first of each statement, rank and host, in the order of their times; those without a time last.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub events: Vec<Event>,
    /// Versions and settings; those that differ between processes first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub facts: Vec<Fact>,
    /// Calls of the lowest rank that a recorder saw: what, how often, how long.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub calls: Vec<Call>,
    /// Where ranks differ in what they called.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub differences: Vec<String>,
    /// The first and the last time in the evidence: month, day and time by the clock of the writer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub span: Option<[String; 2]>,
    /// Number of ranks of the job, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub world_size: Option<u32>,
    /// Causes that come into question while nothing is decided, the likeliest first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub candidates: Vec<Candidate>,
    /// Who waits for whom.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waits: Vec<Wait>,
    /// Stacks of all ranks, merged from the outermost frame inward.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub stacks: Vec<Stack>,
    /// Nodes with GPUs and network ports; those with faults first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub machines: Vec<Machine>,
    /// Nodes for which there was no room.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub machines_left_out: usize,
    /// Operations in the 60 s around the failure.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub timeline: Vec<Span>,
    /// The moment that the timeline is about, ns by the clock of its times: the first rank began to wait, or the
    /// records end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed_ns: Option<i64>,
    /// What differs from the evidence of a good run, if one was given to compare with.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub against: Option<Against>,
    /// All jobs of the evidence, or that run on the node, where there are several; the rest of the report is of the
    /// first.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub jobs: Vec<JobRow>,
}

/// One of several jobs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct JobRow {
    /// What tells it from the others: of a job that runs, its program and the pid of its launcher: `train.py, pid 4711`.
    pub id: String,
    /// The answer for it.
    pub verdict: Verdict,
}

/// One rank of a job that runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RankRow {
    /// Rank in the job.
    pub rank: u32,
    /// Host name up to the first dot.
    pub host: Option<String>,
    /// Process id; null for a rank that is not visible.
    pub pid: Option<u32>,
    /// Of a job that runs: state letter of its process, or `missing`. Of a recorded one: `waits`, `behind`, `held`,
    /// `ended`, `gone`, `stopped`, `blocked`, `alive` or `no-record`. May grow.
    pub state: String,
    /// Processor time since its start, milliseconds.
    pub cpu_ms: Option<u64>,
    /// Share of one processor that it used between the readings.
    pub busy: Option<f64>,
    /// Innermost frame of the program's own code.
    pub place: Option<Location>,
    /// What it does or waits for there.
    pub waits_for: Option<String>,
    /// The kind of what it does in a job that runs: `sleep`, `data-loader`, `compilation` … May grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    /// Seconds for which it has been at this place, at least; null if it moved or that is unknown.
    pub since: Option<f64>,
    /// Whether it moved between the readings.
    pub has_moved: Option<bool>,
}

/// Name and version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum Schema {
    /// This version.
    #[serde(rename = "ringleader.report.v1")]
    V1,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Verdict {
    /// Id of the cause, or `none`, or `undecided`.
    #[schemars(regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub cause: String,
    /// What the operator sees.
    pub category: Category,
    /// How sure.
    pub confidence: Confidence,
    /// What went wrong, in one sentence.
    pub summary: String,
    /// Who is to blame.
    pub culprits: Vec<Culprit>,
    /// Ranks that suffer from it, compressed: `0-1,3`.
    #[schemars(regex(pattern = r"^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"))]
    pub victims: String,
    /// What to do, most useful first.
    pub actions: Vec<Action>,
}

/// What the operator sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are the meaning")]
pub enum Category {
    None,
    Hang,
    Error,
    Crash,
    Corruption,
    Performance,
    Init,
}

/// How sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Confidence {
    /// One indirect sign.
    Low,
    /// One kind of evidence that points clearly.
    Medium,
    /// Two independent kinds of evidence, or a direct statement by the failing rank.
    High,
}

/// How bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Hurts, does not stop the job.
    Warning,
    /// Stops the job or spoils its results.
    Error,
}

/// What an action costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// Reads only, or changes the next run only.
    Harmless,
    /// Stops or restarts the job or a service.
    Disruptive,
    /// Loses state that cannot be had again.
    Destructive,
}

/// A process that is to blame, with everything known of it.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Culprit {
    /// Global rank.
    pub rank: Option<u32>,
    /// Host name up to the first dot, or its address.
    pub host: Option<String>,
    /// Process id, as that host counts.
    pub pid: Option<u32>,
    /// Rank within its node.
    pub local_rank: Option<u32>,
    /// PCI address of its GPU: `0000:1b:00.0`.
    #[schemars(regex(pattern = r"^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$"))]
    pub gpu: Option<String>,
    /// Innermost frame of the user's own code.
    #[serde(rename = "where")]
    pub place: Option<Location>,
}

/// A place in code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Place")]
pub struct Location {
    /// File as the interpreter names it.
    pub file: String,
    /// Line, counted from 1; null if unknown.
    #[schemars(range(min = 1))]
    pub line: Option<u32>,
    /// Function; null if unknown.
    pub function: Option<String>,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Action {
    /// What to do, in one sentence.
    pub text: String,
    /// What to type, if there is something.
    pub command: Option<String>,
    /// What it costs.
    pub impact: Impact,
}

/// What one rule concludes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Id of the rule.
    pub id: String,
    /// Id of the cause.
    pub cause: String,
    /// What the operator sees of it.
    pub category: Category,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// One line.
    pub title: String,
    /// Who is to blame.
    pub culprits: Vec<Culprit>,
    /// The proof.
    pub evidence: Vec<Evidence>,
    /// What to do.
    pub actions: Vec<Action>,
    /// The call that the title names.
    #[serde(skip)]
    pub call: Option<model::NamedCall>,
}

/// A citation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Evidence {
    /// File, as in `looked_at`.
    pub source: String,
    /// Line, counted from 1; null where lines mean nothing.
    #[schemars(range(min = 1))]
    pub line: Option<u32>,
    /// Bytes from and to, after decompression; both 0 if the whole file is meant.
    pub span: [u64; 2],
    /// The text there, or for a binary format what the record says.
    pub text: String,
    /// The lines around it, where they were read again; left out if not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub context: Option<Context>,
}

impl Evidence {
    /// The line as it is in its source, where it was read again; else the text, if it is the line itself.
    pub fn raw(&self) -> Option<String> {
        self.context.as_ref().map(|context| context.lines.join("\n"))
    }

    /// What to quote: the lines as they are, where the text is their meaning or only one of them; else the text.
    pub fn quoted(&self) -> String {
        let raw =
            self.raw().filter(|raw| self.is_meaning() || raw.lines().count() > self.text.lines().count());
        raw.unwrap_or_else(|| self.text.clone())
    }

    /// Whether it is a record without lines, or one whose first line is a bracket alone: the text says what the record holds, and
    /// nothing is quoted.
    pub fn is_record(&self) -> bool {
        match &self.context {
            Some(context) => !context.lines.iter().any(|line| line.contains(char::is_alphanumeric)),
            None => self.line.is_none(),
        }
    }

    /// Whether the text says what the line means instead of repeating it.
    pub fn is_meaning(&self) -> bool {
        let bare = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some(raw) = self.raw().map(|raw| bare(&raw)) else { return false };
        let text = bare(&self.text);
        // A citation may be the part of its line that matters, or be cut.
        let start: String = text.chars().take(COMPARED_CHARS).collect();
        !raw.contains(&start) && !text.contains(&raw)
    }
}

/// Characters of a citation that are looked for in its line: fewer than any citation is cut to.
const COMPARED_CHARS: usize = 200;

/// The cited lines and at most five before and after them, long ones cut.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Context {
    /// Number of the first of `lines`, counted from 1.
    #[schemars(range(min = 1))]
    pub line: u32,
    /// Lines before it.
    pub before: Vec<String>,
    /// The cited lines as they are in the file; `text` may say what they mean instead. Of a long citation the line that
    /// is meant, or its first lines, of a traceback its last ones.
    pub lines: Vec<String>,
    /// Lines after it.
    pub after: Vec<String>,
}

/// An open question.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Undecided {
    /// The question.
    pub question: String,
    /// The command that would answer it.
    pub command: String,
    /// What it asks for; printed forms show some of these elsewhere.
    #[serde(skip)]
    pub asks: model::Asks,
}

/// A file that was read, or why it was not.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LookedAt {
    /// Path relative to the folder that was given; `logs.tar!a/b.log` for a member of an archive.
    pub source: String,
    /// Kind of evidence; `text` and `unknown` if no reader knows it, `empty`, or `not-read`. May grow.
    #[schemars(regex(pattern = r"^[a-z0-9]+(-[a-z0-9]+)*$"))]
    pub kind: String,
    /// What could not be read. They are with the first entry of a file.
    pub notes: Vec<Note>,
}

/// Something that could not be read or was left out.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Note {
    /// `truncated`, `malformed`, `limit-reached`, `unknown-version`, `unreadable`, `unrecognised` or `remark`. May grow.
    pub kind: String,
    /// Line, counted from 1; null where lines mean nothing.
    #[schemars(range(min = 1))]
    pub line: Option<u32>,
    /// What could not be read or was left out, in one sentence.
    pub text: String,
    /// The file, or what a compressed one holds, has no byte.
    #[serde(skip)]
    pub is_empty: bool,
}

/// A kind of evidence that was not there.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct NotLookedAt {
    /// Kind, as in `looked_at`.
    pub kind: String,
    /// Why it was not looked at.
    pub why: String,
    /// What collects it.
    pub command: String,
}

impl Report {
    /// Puts a verdict into words that stay readable without its case.
    pub fn new(case: &model::Case, verdict: &model::Verdict) -> Self {
        Self::whole(case, verdict, &model::Picture::default())
    }

    /// The same with the picture beside the verdict.
    pub fn whole(case: &model::Case, verdict: &model::Verdict, picture: &model::Picture) -> Self {
        let live: Vec<RankRow> = verdict.ranks.iter().map(RankRow::from).collect();
        Self {
            schema: Schema::V1,
            verdict: verdict.into(),
            findings: verdict.findings.iter().map(|finding| Finding::new(case, finding)).collect(),
            undecided: verdict
                .needs
                .iter()
                .map(|need| Undecided {
                    question: need.question.clone(),
                    command: need.command.clone(),
                    asks: need.asks,
                })
                .collect(),
            looked_at: looked_at(case),
            not_looked_at: missing::not_looked_at(case)
                .into_iter()
                .map(|(kind, why, command)| NotLookedAt {
                    kind: kind.name().to_owned(),
                    why: why.to_owned(),
                    command: command.to_owned(),
                })
                .collect(),
            ranks: if live.is_empty() { picture::ranks(picture) } else { live },
            statements: picture::statements(case, picture),
            statements_left_out: picture.n_statements_left_out,
            events: picture::events(case, picture),
            facts: picture::facts(picture),
            calls: picture::calls(picture),
            differences: picture.differences.clone(),
            span: picture::span(picture),
            world_size: picture.world_size,
            candidates: picture::candidates(picture),
            jobs: picture::jobs(picture, verdict),
            waits: picture::waits(picture),
            stacks: picture::stacks(picture),
            machines: picture::machines(picture),
            machines_left_out: picture.n_machines_left_out,
            timeline: picture::timeline(picture),
            failed_ns: picture.failed_ns,
            against: None,
        }
    }

    /// Citations of lines, which more of their source can be read around.
    pub fn citations_mut(&mut self) -> impl Iterator<Item = &mut Evidence> {
        self.findings.iter_mut().flat_map(|f| &mut f.evidence).filter(|e| e.line.is_some() && e.span[1] > 0)
    }

    /// The report as JSON with a newline at its end. Control characters that JSON lets through (C1, DEL,
    /// direction marks) are escaped too, so that showing the file in a terminal is harmless.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        print(self)
    }
}

impl Verdict {
    /// The cause as one of the list.
    pub fn cause(&self) -> model::Cause {
        listed(&self.cause)
    }
}

/// The cause with this id. A report of this program has no other than those of the list.
pub(crate) fn listed(id: &str) -> model::Cause {
    model::Cause::of_id(id).unwrap_or(model::Cause::Undecided)
}

impl From<&model::Verdict> for Verdict {
    fn from(verdict: &model::Verdict) -> Self {
        Self {
            cause: verdict.cause.id().to_owned(),
            category: verdict.category.into(),
            confidence: verdict.confidence.into(),
            summary: verdict.summary.clone(),
            culprits: verdict.culprits.iter().map(Culprit::from).collect(),
            victims: verdict.victims.to_string(),
            actions: verdict.actions.iter().map(Action::from).collect(),
        }
    }
}

impl From<&model::Frame> for Location {
    fn from(place: &model::Frame) -> Self {
        Self {
            file: place.file.to_string(),
            line: (place.line > 0).then_some(place.line),
            function: (!place.function.is_empty()).then(|| place.function.to_string()),
        }
    }
}

impl From<&model::RankLook> for RankRow {
    fn from(look: &model::RankLook) -> Self {
        Self {
            rank: look.rank,
            host: look.host.as_deref().map(str::to_owned),
            pid: look.pid,
            state: look.state.name().to_owned(),
            cpu_ms: look.cpu_ms,
            busy: look.busy.map(|share| (share * 1e3).round() / 1e3),
            place: look.place.as_ref().map(Location::from),
            waits_for: look.waits_for.clone(),
            activity: look.activity.map(str::to_owned),
            since: (look.has_moved == Some(false)).then(|| (look.apart_s * 10.0).round() / 10.0),
            has_moved: look.has_moved,
        }
    }
}

/// As printed: indented, characters that act on a terminal escaped, a newline at the end.
///
/// # Errors
/// If the value has a map whose keys are not strings.
pub fn print(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Escaping::default());
    value.serialize(&mut serializer)?;
    bytes.push(b'\n');
    String::from_utf8(bytes).map_err(|error| serde::ser::Error::custom(error.to_string()))
}

/// The JSON Schema of [`Report`], as committed in `docs/`.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Report);
    format!("{schema:#}\n", schema = schema.as_value())
}

fn looked_at(case: &model::Case) -> Vec<LookedAt> {
    let mut notes: BTreeMap<model::SourceId, Vec<&model::Note>> = BTreeMap::new();
    for note in &case.notes {
        notes.entry(note.cite.source).or_default().push(note);
    }
    let mut entries = Vec::with_capacity(case.sources.len());
    for (id, source) in (0..).map(model::SourceId).zip(&case.sources) {
        let notes = notes.remove(&id).unwrap_or_default();
        // Links, pipes and files beyond a limit have notes although they were not opened.
        let unread = notes.iter().any(|note| match note.kind {
            model::NoteKind::Unreadable | model::NoteKind::Denied => true,
            model::NoteKind::Remark | model::NoteKind::Empty | model::NoteKind::LimitReached => {
                source.size_bytes == 0
            }
            _ => false,
        });
        let mut names: Vec<&str> = source.kinds.iter().map(|kind| kind.name()).collect();
        if names.is_empty() {
            names.push(match source.size_bytes {
                _ if unread => "not-read",
                0 if notes.is_empty() => "empty",
                _ => model::SourceKind::Unknown.name(),
            });
        }
        let mut notes: Vec<Note> = notes.into_iter().map(Note::from).collect();
        for name in names {
            let notes = std::mem::take(&mut notes);
            entries.push(LookedAt { source: source.path.clone(), kind: name.to_owned(), notes });
        }
    }
    entries
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(n: &usize) -> bool {
    *n == 0
}

fn line(line: u32) -> Option<u32> {
    (line > 0).then_some(line)
}

impl Finding {
    fn new(case: &model::Case, finding: &model::Finding) -> Self {
        let evidence = |evidence: &model::Evidence| Evidence {
            source: case
                .sources
                .get(evidence.cite.source.0 as usize)
                .map(|s| s.path.clone())
                .unwrap_or_default(),
            line: line(evidence.cite.line),
            span: [evidence.cite.start, evidence.cite.end],
            text: evidence.text.clone(),
            context: None,
        };
        Self {
            id: finding.rule.to_owned(),
            cause: finding.cause.id().to_owned(),
            category: finding.category.into(),
            severity: finding.severity.into(),
            confidence: finding.confidence.into(),
            title: finding.title.clone(),
            culprits: finding.culprits.iter().map(Culprit::from).collect(),
            evidence: finding.evidence.iter().map(evidence).collect(),
            actions: finding.actions.iter().map(Action::from).collect(),
            call: finding.call.clone(),
        }
    }
}

impl From<&model::Culprit> for Culprit {
    fn from(culprit: &model::Culprit) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            rank: culprit.rank.map(|rank| rank.0),
            host: culprit.host.as_deref().and_then(text),
            pid: culprit.pid.map(|pid| pid.0),
            local_rank: culprit.local_rank.map(|rank| rank.0),
            gpu: culprit.gpu.map(|gpu| gpu.to_string()),
            place: culprit.place.as_ref().map(Location::from),
        }
    }
}

impl From<&model::Action> for Action {
    fn from(action: &model::Action) -> Self {
        Self { text: action.text.clone(), command: action.command.clone(), impact: action.impact.into() }
    }
}

impl From<&model::Note> for Note {
    fn from(note: &model::Note) -> Self {
        let kind = match note.kind {
            model::NoteKind::Truncated => "truncated",
            model::NoteKind::Malformed => "malformed",
            model::NoteKind::LimitReached => "limit-reached",
            model::NoteKind::UnknownVersion => "unknown-version",
            model::NoteKind::Unreadable | model::NoteKind::Denied => "unreadable",
            model::NoteKind::Unrecognised => "unrecognised",
            model::NoteKind::Remark | model::NoteKind::Empty => "remark",
        };
        let is_empty = note.kind == model::NoteKind::Empty;
        Self { kind: kind.to_owned(), line: line(note.cite.line), text: note.text.clone(), is_empty }
    }
}

macro_rules! same_names {
    ($($type:ident { $($variant:ident),+ })+) => {$(
        impl From<model::$type> for $type {
            fn from(value: model::$type) -> Self {
                match value { $(model::$type::$variant => Self::$variant),+ }
            }
        }
        impl $type {
            /// Name, as in JSON.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => model::$type::$variant.name()),+ }
            }
        }
    )+};
}

same_names! {
    Category { None, Hang, Error, Crash, Corruption, Performance, Init }
    Confidence { Low, Medium, High }
    Severity { Info, Warning, Error }
    Impact { Harmless, Disruptive, Destructive }
}

/// serde_json's indented form with more escapes.
#[derive(Default)]
struct Escaping {
    pretty: serde_json::ser::PrettyFormatter<'static>,
}

macro_rules! as_pretty {
    ($($name:ident($($arg:ident: $type:ty),*);)+) => {$(
        fn $name<W: ?Sized + io::Write>(&mut self, writer: &mut W $(, $arg: $type)*) -> io::Result<()> {
            self.pretty.$name(writer $(, $arg)*)
        }
    )+};
}

impl serde_json::ser::Formatter for Escaping {
    as_pretty! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        begin_object_value();
        end_object_value();
    }

    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(crate::quote::is_active) {
            let (before, from) = rest.split_at(at);
            writer.write_all(before.as_bytes())?;
            let mut chars = from.chars();
            if let Some(c) = chars.next() {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
            rest = chars.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}
