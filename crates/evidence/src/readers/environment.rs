//! Environment variables: `env`, `printenv`, `export -p`, `declare -x`, lines of scripts, `/proc/PID/environ`.
//!
//! ```text
//! NCCL_IB_DISABLE=true                                   env, printenv
//! declare -x NCCL_SOCKET_IFNAME="eth0"                   bash: export -p, declare -x
//! export NCCL_DEBUG=INFO                                 a script, or bash -x with "+ " in front
//! RANK=3\0LOCAL_RANK=3\0NCCL_DEBUG=INFO\0                /proc/PID/environ
//! # tuned for this cluster                               /etc/nccl.conf, ~/.nccl.conf: below a line that names such a
//! NCCL_IB_HCA=mlx5                                       file, or nothing but comments and NCCL's variables
//! ```
//!
//! Writers: coreutils `env`, bash, Linux `fs/proc/base.c`; NVIDIA/nccl src/misc/param.cc reads the files. An environment holds passwords: only variables of known
//! families are kept, never one whose name says that it is a secret, and other values are not even looked at.

use ringleader_model::{
    Cite, Environment, EnvironmentForm, Fact, Host, LocalRank, Rank, Setting, SourceKind, WallTime, Who,
};

use crate::ground::{Line, LineReader, Sink, Wants, host_of, is_kept, is_plain, shell};

/// Variables that every process has.
const EVERYWHERE: [&str; 4] = ["PATH", "HOME", "PWD", "SHLVL"];
/// Lines of other variables between two that matter.
const MAX_GAP_LINES: u32 = 300;
/// Lines of comments between two variables of a configuration file.
const MAX_CONF_GAP_LINES: u32 = 30;
/// Longest line that names a configuration file, bytes.
const MAX_HEADING_BYTES: usize = 200;
/// Variables of one listing that are kept.
const MAX_SETTINGS: usize = 2000;

/// Variables that are kept, and what names a configuration file.
pub(crate) const WANTS: Wants = Wants {
    // What scripts call a setting has a digit, which does not count here.
    words: || vec!["nccl.conf", "P2P_LEVEL"],
    begins: |line| {
        let name = std::str::from_utf8(line.trim_ascii()).ok().and_then(entry).map(|(_, name, _)| name);
        name.is_some_and(|name| name == "HOSTNAME" || is_kept(name))
    },
};

/// Reader of listings in text.
#[derive(Default)]
pub(crate) struct EnvironmentReader {
    dump: Option<Dump>,
    /// The last line of a configuration file of NCCL, or the line that named it.
    in_conf: Option<u32>,
    /// Lines of the source so far that a configuration file may have: from the first one on, without a gap.
    n_conf_lines: u32,
    n_comments: u32,
    /// The last host that a listing named, with its line.
    host: Option<(u32, Host)>,
    /// The line that comes may lack its end.
    is_cut: bool,
}

/// A listing as it is read.
struct Dump {
    environment: Environment,
    first: Cite,
    end: u64,
    last_line: u32,
    text: Vec<u8>,
    who: Who,
    at: Option<WallTime>,
}

impl LineReader for EnvironmentReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body.trim_ascii();
        if matches!(body.first(), None | Some(b'#')) && self.n_conf_lines.saturating_add(1) == line.number {
            self.n_conf_lines = line.number;
            self.n_comments = self.n_comments.saturating_add(u32::from(!body.is_empty()));
        }
        self.note_conf(line.number, body);
        // The first letters of a name in capitals, of export, declare, typeset, and of bash -x.
        if !body
            .first()
            .is_some_and(|b| b.is_ascii_uppercase() || matches!(b, b'e' | b'd' | b't' | b'+' | b'_'))
        {
            return false;
        }
        let Some((form, name, value)) = std::str::from_utf8(body).ok().and_then(entry) else { return false };
        if name == "HOSTNAME" && !value.is_empty() {
            self.host = Some((line.number, host_of(value)));
        }
        if !is_kept(name) {
            if let Some(dump) = &mut self.dump
                && line.number <= dump.last_line.saturating_add(MAX_GAP_LINES)
            {
                dump.last_line = line.number;
                dump.environment.n_left_out = dump.environment.n_left_out.saturating_add(1);
                dump.environment.is_whole |= EVERYWHERE.contains(&name);
            }
            return false;
        }
        // A value may be cut with its line, and a value with blanks is a command line.
        let is_command = form == EnvironmentForm::Listed && value.contains(char::is_whitespace);
        if self.is_cut || is_command || !is_plain(value) {
            return false;
        }
        let is_nccl = form == EnvironmentForm::Listed && name.starts_with("NCCL_");
        if is_nccl && self.n_conf_lines.saturating_add(1) == line.number {
            self.n_conf_lines = line.number;
        }
        let in_conf = self.in_conf.is_some_and(|at| line.number <= at.saturating_add(MAX_CONF_GAP_LINES));
        let form = if is_nccl && in_conf {
            self.in_conf = Some(line.number);
            EnvironmentForm::ConfFile
        } else {
            form
        };
        let is_conf = form == EnvironmentForm::ConfFile;
        let goes_on = self.dump.as_ref().is_some_and(|dump| {
            is_conf == (dump.environment.form == EnvironmentForm::ConfFile)
                && line.number <= dump.last_line.saturating_add(MAX_GAP_LINES)
                && dump.who == line.tag.who
                && dump.environment.get(name).is_none_or(|known| known == value)
                && dump.environment.settings.len() < MAX_SETTINGS
        });
        if !goes_on {
            self.close(sink);
        }
        let cite = sink.cite(line.number, line.offset, line.end());
        let dump = self.dump.get_or_insert_with(|| Dump {
            environment: Environment { form, settings: Vec::new(), n_left_out: 0, is_whole: false },
            first: cite,
            end: 0,
            last_line: 0,
            text: Vec::new(),
            who: line.tag.who.clone(),
            at: line.tag.at,
        });
        dump.end = line.end();
        dump.last_line = line.number;
        if dump.text.len() < sink.limits.max_text_chars {
            dump.text.extend_from_slice(body);
            dump.text.push(b'\n');
        }
        if dump.environment.get(name).is_none() {
            dump.environment.settings.push(Setting { cite, name: name.into(), value: value.into() });
        }
        true
    }

    fn awake_until(&self) -> u32 {
        let of_conf = self.in_conf.map_or(0, |at| at.saturating_add(MAX_CONF_GAP_LINES));
        let of_dump = self.dump.as_ref().map_or(0, |dump| dump.last_line.saturating_add(MAX_GAP_LINES));
        // As long as nothing but comments and NCCL's variables came.
        self.n_conf_lines.saturating_add(1).max(of_conf).max(of_dump)
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
    }
}

impl EnvironmentReader {
    /// A line that names a configuration file of NCCL (`$ cat /etc/nccl.conf`, `==> /etc/nccl.conf <==`), or that ends one.
    fn note_conf(&mut self, number: u32, body: &[u8]) {
        let names = ["nccl.conf", "nccl.conf <==", "nccl.conf:", "nccl.conf ===", "nccl.conf 2>/dev/null"]
            .iter()
            .any(|end| body.ends_with(end.as_bytes()));
        if names && body.len() <= MAX_HEADING_BYTES {
            let text = std::str::from_utf8(body).unwrap_or_default();
            // `cat /etc/nccl.conf; env` prints more than the file.
            let is_one = !text.contains([';', '|', '&']);
            let is_heading = shell::command(text).is_some() || text.starts_with(['/', '~', '=', '#']);
            self.in_conf = (is_one && is_heading).then_some(number);
            if let Some(host) = shell::host(text).filter(|_| is_heading) {
                self.host = Some((number, host_of(host)));
            }
        } else if self.in_conf.is_some() {
            let ends = body.starts_with(b"==>")
                || std::str::from_utf8(body)
                    .ok()
                    .filter(|t| !t.starts_with('#'))
                    .and_then(shell::command)
                    .is_some();
            self.in_conf = self.in_conf.filter(|_| !ends);
        }
    }

    fn close(&mut self, sink: &mut Sink<'_>) {
        let Some(mut dump) = self.dump.take() else { return };
        // Nothing but comments and NCCL's variables, from the first line on.
        let is_file = self.n_comments > 0 && self.n_conf_lines >= dump.last_line;
        if is_file && dump.environment.form == EnvironmentForm::Listed {
            dump.environment.form = EnvironmentForm::ConfFile;
        }
        let near = |at: &u32| {
            at.saturating_add(MAX_GAP_LINES) >= dump.first.line
                && *at <= dump.last_line.saturating_add(MAX_GAP_LINES)
        };
        let host = self.host.take().filter(|(at, _)| near(at)).map(|(_, host)| host);
        let who = whose(&dump.environment, dump.who, host);
        sink.saw(SourceKind::Environment);
        let cite = Cite { end: dump.end, ..dump.first };
        sink.push(cite, who, dump.at, Fact::Environment(Box::new(dump.environment)), &dump.text);
    }
}

/// Whose environment it is, from its own variables where the line's prefix does not say.
fn whose(environment: &Environment, mut who: Who, host: Option<Host>) -> Who {
    let number = |names: &[&str]| names.iter().find_map(|name| environment.get(name)?.parse::<u32>().ok());
    who.rank = who.rank.or_else(|| number(&["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"]).map(Rank));
    let local = || number(&["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"]).map(LocalRank);
    who.local_rank = who.local_rank.or_else(local);
    who.host = who.host.or(host);
    who
}

/// `NAME=value` in one of its forms, a shell's quotes taken away.
fn entry(body: &str) -> Option<(EnvironmentForm, &str, &str)> {
    let body = body.trim_start_matches('+').trim_start();
    let shell = ["export ", "declare -x ", "typeset -x "];
    let rest = shell.iter().find_map(|word| body.strip_prefix(word));
    let form = if rest.is_some() { EnvironmentForm::Shell } else { EnvironmentForm::Listed };
    let (name, value) = rest.unwrap_or(body).trim_start().split_once('=')?;
    let mut letters = name.bytes();
    let is_name = letters.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && letters.all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name {
        return None;
    }
    let value = if form == EnvironmentForm::Shell { shell_value(value)? } else { value };
    Some((form, name, value))
}

/// The value of an assignment in a shell; None if there is more than an assignment.
fn shell_value(text: &str) -> Option<&str> {
    for quote in ['"', '\''] {
        if let Some(rest) = text.strip_prefix(quote) {
            return rest.split_once(quote).map(|(value, _)| value);
        }
    }
    let value = text.split([' ', '\t', ';', '#', '&']).next().unwrap_or_default();
    // What a shell would put in its place is not known here.
    (!value.contains(['$', '`'])).then_some(value)
}

/// Whether the head of a stream is `/proc/PID/environ`: records that end with NUL, each a name with a value.
pub(crate) fn is_process(head: &[u8]) -> bool {
    let mut n_records = 0;
    let mut records = head.split(|b| *b == 0);
    // What follows the last NUL is empty, or cut.
    let _tail = records.next_back();
    for record in records {
        let Some(at) = memchr::memchr(b'=', record) else { return false };
        let name = record.get(..at).unwrap_or_default();
        if name.is_empty() || !name.iter().all(u8::is_ascii_graphic) {
            return false;
        }
        n_records += 1;
    }
    n_records > 1
}

/// Reads `/proc/PID/environ`.
pub(crate) fn read_process(bytes: &[u8], sink: &mut Sink<'_>) {
    let form = EnvironmentForm::Process;
    let mut environment = Environment { form, settings: Vec::new(), n_left_out: 0, is_whole: true };
    let mut host = None;
    let mut at = 0;
    let mut text = Vec::new();
    for record in bytes.split_inclusive(|b| *b == 0) {
        let start = at;
        at += record.len() as u64;
        // Without its end a record may lack part of its value.
        let Some(record) = record.strip_suffix(&[0]) else {
            environment.is_whole = false;
            continue;
        };
        let Some((name, value)) = std::str::from_utf8(record).ok().and_then(|r| r.split_once('=')) else {
            continue;
        };
        if name == "HOSTNAME" && !value.is_empty() {
            host = Some(host_of(value));
        }
        let room = environment.settings.len() < MAX_SETTINGS;
        if is_kept(name) && is_plain(value) && room && environment.get(name).is_none() {
            let cite = sink.cite(0, start, at.saturating_sub(1));
            environment.settings.push(Setting { cite, name: name.into(), value: value.into() });
            if text.len() < sink.limits.max_text_chars {
                text.extend_from_slice(record);
                text.push(b'\n');
            }
        } else {
            environment.n_left_out = environment.n_left_out.saturating_add(1);
        }
    }
    sink.saw(SourceKind::Environment);
    let who = whose(&environment, Who::default(), host);
    sink.push(sink.cite(0, 0, at), who, None, Fact::Environment(Box::new(environment)), &text);
}

#[cfg(test)]
mod tests;
