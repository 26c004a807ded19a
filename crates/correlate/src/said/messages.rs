//! Claims: every NCCL message, exception and error line of a case, looked up once in the table of sayings.
//!
//! Rules that conclude from messages start here, so that one text has one meaning for all of them, and an echo is an
//! echo everywhere. Exceptions of the program itself, which no table knows, are kept separately.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ringleader_knowledge::message;
use ringleader_knowledge::message::Role;
use ringleader_knowledge::saying::{self, Saying};
use ringleader_model::{
    Case, Cause, Cite, Evidence, Fact, Frame, GlooEvent, NcclMessage, NcclProcess, Observation,
    PythonException, SourceKind, StoreEvent, TorchEvent, Who, user_frame,
};

use super::CITED_CHARS;

/// Longest part of a text that is examined, bytes: messages say what matters first, and quoted C++ stacks are
/// long.
const TEXT_BYTES: usize = 4096;

/// One text with its meaning.
#[derive(Clone, Debug)]
pub struct Claim<'a> {
    /// What it means.
    pub saying: &'static Saying,
    /// The text.
    pub text: Cow<'a, str>,
    /// Who says it, as far as its own line shows.
    pub who: Who,
    /// When, ns on the speaker's wall clock.
    pub at_ns: Option<i64>,
    /// Its place in the evidence.
    pub cite: Cite,
    /// In which form it was printed.
    pub voice: Voice<'a>,
}

/// How a text reached us.
#[derive(Clone, Copy, Debug)]
pub enum Voice<'a> {
    /// A line of NCCL's own log.
    Nccl(&'a NcclMessage),
    /// A Python exception.
    Exception(&'a PythonException),
    /// Some other statement of torch, gloo, a launcher or a program.
    Torch(&'a TorchEvent),
}

/// An exception that no saying explains.
#[derive(Clone, Copy, Debug)]
pub struct OwnException<'a> {
    /// Its place in the evidence.
    pub observation: &'a Observation,
    /// What was raised; None for a bare error line.
    pub exception: Option<&'a PythonException>,
    /// `Class: message`, or the line.
    pub text: &'a str,
}

/// All claims of a case.
#[derive(Clone, Debug, Default)]
pub struct Claims<'a> {
    claims: Vec<Claim<'a>>,
    own: Vec<OwnException<'a>>,
}

impl<'a> Claims<'a> {
    /// Looks up every text once; equal texts cost one look-up.
    pub fn new(case: &'a Case) -> Self {
        let mut reader = MessageReader::default();
        for observation in &case.observations {
            match &observation.fact {
                Fact::Nccl(log) => {
                    for message in &log.messages {
                        reader.nccl(message, log.processes.get(message.process as usize));
                    }
                }
                Fact::Torch(event) => reader.torch(observation, event),
                _ => {}
            }
        }
        Self { claims: reader.claims, own: reader.own }
    }

    /// Claims of a cause, in source order.
    pub fn of(&self, cause: Cause) -> impl Iterator<Item = &Claim<'a>> {
        self.claims.iter().filter(move |c| c.saying.cause == Some(cause))
    }

    /// All claims, echoes too, in source order.
    pub fn all(&self) -> &[Claim<'a>] {
        &self.claims
    }

    /// Exceptions and error lines that no saying explains.
    pub fn own_exceptions(&self) -> &[OwnException<'a>] {
        &self.own
    }
}

impl Claim<'_> {
    /// The user's own line, where an exception has it.
    pub fn place(&self) -> Option<&Frame> {
        match self.voice {
            Voice::Exception(exception) => user_frame(&exception.frames),
            _ => None,
        }
    }

    /// `transport/nvls.cc:165` of NCCL's own line; empty otherwise.
    pub fn origin(&self) -> &str {
        match self.voice {
            Voice::Nccl(message) => message.origin.as_deref().unwrap_or_default(),
            _ => "",
        }
    }

    /// As cited evidence.
    pub fn evidence(&self) -> Evidence {
        let (kind, text) = match self.voice {
            Voice::Nccl(message) if message.is_warn => {
                (SourceKind::NcclLog, format!("NCCL WARN {}", self.text))
            }
            Voice::Nccl(_) => (SourceKind::NcclLog, format!("NCCL INFO {}", self.text)),
            _ => (SourceKind::TorchLog, self.text.clone().into_owned()),
        };
        Evidence { cite: self.cite, text: cited(&text), kind }
    }
}

impl OwnException<'_> {
    /// The innermost frame of the user's code.
    pub fn place(&self) -> Option<&Frame> {
        self.exception.and_then(|e| user_frame(&e.frames))
    }

    /// `Class: message` on one line.
    pub fn headline(&self) -> String {
        let text = match self.exception {
            Some(e) if e.message.is_empty() => e.class.to_string(),
            Some(e) => format!("{}: {}", e.class, e.message),
            None => self.text.to_owned(),
        };
        cited(&text)
    }

    /// As cited evidence.
    pub fn evidence(&self) -> Evidence {
        Evidence { cite: self.observation.cite, text: self.headline(), kind: SourceKind::TorchLog }
    }
}

/// First line of a text, bounded.
fn cited(text: &str) -> String {
    let line = text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default().trim_end();
    match line.char_indices().nth(CITED_CHARS) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line.to_owned(),
    }
}

/// The text without long numbers (addresses, ports, pointers, sizes), so that one message of a thousand ranks is looked
/// up once. No saying has four digits in a row.
fn without_numbers(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c.is_ascii_hexdigit()) {
        let (before, from) = rest.split_at(at);
        let n = from.bytes().take_while(u8::is_ascii_hexdigit).count();
        let (run, after) = from.split_at(n);
        out.push_str(before);
        if n >= 4 && run.bytes().any(|b| b.is_ascii_digit()) {
            out.push('#');
        } else {
            out.push_str(run);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// The first `TEXT_BYTES` of a text.
fn bounded(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[derive(Default)]
struct MessageReader<'a> {
    claims: Vec<Claim<'a>>,
    own: Vec<OwnException<'a>>,
    known: BTreeMap<(&'a str, String), Option<&'static Saying>>,
}

impl<'a> MessageReader<'a> {
    fn nccl(&mut self, message: &'a NcclMessage, process: Option<&'a NcclProcess>) {
        let origin = message.origin.as_deref().unwrap_or_default();
        let text = bounded(&message.text);
        let saying = *self
            .known
            .entry((origin, without_numbers(text)))
            .or_insert_with(|| saying::of(text, origin, true));
        let Some(saying) = saying else { return };
        self.claims.push(Claim {
            saying,
            text: Cow::Borrowed(text),
            who: process.map(|p| p.who.clone()).unwrap_or_default(),
            at_ns: message.at.map(|t| t.ns),
            cite: message.cite,
            voice: Voice::Nccl(message),
        });
    }

    fn torch(&mut self, observation: &'a Observation, event: &'a TorchEvent) {
        let text = match event {
            TorchEvent::Exception(exception) => return self.exception(observation, exception),
            TorchEvent::AsyncError { error, last_error, .. } => {
                let last =
                    last_error.as_deref().and_then(|t| saying::of(bounded(t), "", true).map(|s| (s, t)));
                let own = saying::of(bounded(error), "", false).map(|s| (s, &**error));
                if let Some((saying, text)) = strongest([last, own]) {
                    self.push(observation, saying, Cow::Borrowed(bounded(text)), Voice::Torch(event));
                }
                return;
            }
            TorchEvent::NoNccl { text } | TorchEvent::ErrorLine { text } => {
                if !self.line(observation, event, text) && looks_like_exception(text) && !is_known(text) {
                    self.own.push(OwnException { observation, exception: None, text });
                }
                return;
            }
            TorchEvent::WatchdogDied { error } => error,
            TorchEvent::ChildFailure { message: Some(text), .. } => text,
            TorchEvent::Gloo(GlooEvent::ConnectFailed { text, .. } | GlooEvent::Other { text }) => text,
            TorchEvent::Store(store) => match store {
                StoreEvent::ConnectTimeout { text, .. }
                | StoreEvent::ConnectFailed { text, .. }
                | StoreEvent::ConnectionLost { text }
                | StoreEvent::Unresolved { text, .. }
                | StoreEvent::Rendezvous { text } => text,
                StoreEvent::AddressInUse { .. } => "Address already in use",
                StoreEvent::ClientsMissing { .. } | StoreEvent::WaitTimeout { .. } => return,
            },
            _ => return,
        };
        self.line(observation, event, text);
    }

    fn line(&mut self, observation: &'a Observation, event: &'a TorchEvent, text: &'a str) -> bool {
        let text = bounded(text);
        let Some(saying) = saying::of(text, "", false) else { return false };
        // The reader's own words replace a text that has many forms: cite what was printed.
        let printed = if observation.text.is_empty() { text } else { bounded(&observation.text) };
        let shown =
            if matches!(event, TorchEvent::Store(StoreEvent::AddressInUse { .. })) { printed } else { text };
        self.push(observation, saying, Cow::Borrowed(shown), Voice::Torch(event));
        true
    }

    fn exception(&mut self, observation: &'a Observation, exception: &'a PythonException) {
        let whole = if exception.message.is_empty() {
            exception.class.to_string()
        } else {
            format!("{}: {}", exception.class, bounded(&exception.message))
        };
        let last = exception
            .nccl_last_error
            .as_deref()
            .and_then(|t| saying::of(bounded(t), "", true).map(|s| (s, Cow::Borrowed(bounded(t)))));
        let own_text = whole.clone();
        let own = saying::of(&whole, "", false).map(|s| (s, Cow::Owned(whole)));
        let mut heard = vec![last, own.clone()];
        for (class, message) in &exception.chained {
            let text = format!("{class}: {}", bounded(message));
            // What was raised first counts only if it names a cause: the last word is the program's.
            heard.push(
                saying::of(&text, "", false).filter(|s| s.cause.is_some()).map(|s| (s, Cow::Owned(text))),
            );
        }
        match strongest(heard) {
            Some((saying, text)) => self.push(observation, saying, text, Voice::Exception(exception)),
            None if is_known(&own_text) && !is_raised_by_user(exception) => {}
            None => {
                self.own.push(OwnException {
                    observation,
                    exception: Some(exception),
                    text: &observation.text,
                });
            }
        }
    }

    fn push(
        &mut self,
        observation: &'a Observation,
        saying: &'static Saying,
        text: Cow<'a, str>,
        voice: Voice<'a>,
    ) {
        self.claims.push(Claim {
            saying,
            text,
            who: observation.who.clone(),
            at_ns: observation.at.map(|t| t.ns),
            cite: observation.cite,
            voice,
        });
    }
}

/// Of several meanings of one statement the strongest; the earlier of equals.
fn strongest<T>(
    heard: impl IntoIterator<Item = Option<(&'static Saying, T)>>,
) -> Option<(&'static Saying, T)> {
    let mut best: Option<(&'static Saying, T)> = None;
    for (saying, text) in heard.into_iter().flatten() {
        if best.as_ref().is_none_or(|(b, _)| saying.role > b.role) {
            best = Some((saying, text));
        }
    }
    best
}

/// Whether the message table knows an exception's text as something other than a fault of the program: an echo,
/// harmless, or a cause, which `message-names-cause` states.
fn is_known(text: &str) -> bool {
    let rows = text.lines().take(KNOWN_LINES).filter_map(message::best);
    rows.max_by_key(|m| m.row.role()).is_some_and(|m| {
        let causes = Some(m.row.cause()).filter(|c| !c.is_empty()).into_iter().chain(m.row.candidates());
        let first = causes.into_iter().next();
        match m.row.role() {
            message::Role::Harmless | message::Role::Echo => true,
            message::Role::Suggests | message::Role::States => {
                first.is_some_and(|cause| cause != Cause::ApplicationException.id())
            }
        }
    })
}

/// The program's own code raised it, so that is the failure, regardless of its text. What the system refused it says of the system,
/// whoever called.
fn is_raised_by_user(exception: &PythonException) -> bool {
    exception.frames.get(..1).and_then(user_frame).is_some() && !exception.message.starts_with("[Errno ")
}

/// Lines of an exception's text that are looked up.
const KNOWN_LINES: usize = 12;

/// `Name.Of.SomeError: text`, as Python prints an exception.
fn looks_like_exception(text: &str) -> bool {
    let Some((class, _)) = text.split_once(": ") else { return false };
    let name = class.rsplit('.').next().unwrap_or(class);
    class.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.')
        && name.starts_with(|c: char| c.is_ascii_uppercase())
        && (name.ends_with("Error") || name.ends_with("Exception"))
}

/// True for roles that name a cause.
pub fn names_cause(role: Role) -> bool {
    matches!(role, Role::States | Role::Suggests)
}

#[cfg(test)]
mod tests {
    use ringleader_knowledge::saying;

    use super::{bounded, cited, looks_like_exception, without_numbers};

    #[test]
    fn long_numbers_do_not_part_equal_messages() {
        let check = |text: &str, expected: &str| assert_eq!(without_numbers(text), expected);
        check("comm 0x2c927960 rank 2 failed", "comm 0x# rank 2 failed");
        check("peer 10.4.0.12<51870> with error 12, len 0", "peer 10.4.0.12<#> with error 12, len 0");
        check("a faded decade é", "a faded decade é");
        for s in saying::all() {
            for part in s.any.iter().chain(s.all).chain(s.none) {
                assert_eq!(without_numbers(part), **part, "this saying needs its number");
            }
        }
    }

    #[test]
    fn bare_lines_that_are_exceptions() {
        let check = |text: &str, expected: bool| assert_eq!(looks_like_exception(text), expected, "{text}");
        check("jax.errors.JaxRuntimeError: INTERNAL", true);
        check("AssertionError: sizes differ", true);
        check("Error: could not read the file", true);
        check("step 3: loss 0.2", false);
        check("my error: nothing", false);
    }

    #[test]
    fn cuts_keep_characters_whole() {
        assert!(bounded(&"é".repeat(5000)).chars().all(|c| c == 'é'));
        assert!(cited(&"é".repeat(5000)).ends_with('…'));
        assert_eq!(cited("\n\nfirst\nsecond"), "first");
    }
}
