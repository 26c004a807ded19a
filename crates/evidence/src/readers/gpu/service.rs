//! The driver's services: `systemctl status` of them, their journal lines, and the Fabric Manager's own log.
//!
//! ```text
//! × nvidia-fabricmanager.service - NVIDIA fabric manager service
//!      Active: failed (Result: exit-code) since Tue 2024-11-05 13:55:26 UTC; 3min ago
//! Nov 05 13:55:26 node1 nv-fabricmanager[104230]: fabric manager NVIDIA GPU driver interface version 550.127.05 don't
//!     match with driver version 550.120. Please update with matching NVIDIA driver package.
//! [Nov 20 2026 08:15:01] [ERROR] [tid 1412] failed to find the GPU handle …
//! Unit nvidia-fabricmanager.service could not be found.
//! ```
//! Written by systemd and by NVIDIA's closed services (Fabric Manager user guide, logging). Only services whose names
//! begin with `nvidia-` are read here.

use ringleader_model::{Fact, GpuService, SourceKind, WallTime};

use super::GpuReader;
use crate::ground::{Line, Sink, TableSpan, bounded_text};

/// A status or a log that is being read.
pub(super) struct Service {
    fact: GpuService,
    span: TableSpan,
    is_log: bool,
}

const MAX_ERRORS: usize = 200;
const TEXT_CHARS: usize = 400;
/// Lines between two of one status.
const MAX_GAP_LINES: u32 = 12;

impl GpuReader {
    pub(super) fn service_line(&mut self, line: &Line<'_>, text: &str, sink: &mut Sink<'_>) -> bool {
        if self
            .service
            .as_ref()
            .is_some_and(|s| !s.is_log && line.number > s.span.last_line.saturating_add(MAX_GAP_LINES))
        {
            self.close_service(sink);
        }
        if let Some(name) = unit_heading(text) {
            self.open_service(name, false, line, sink);
            return true;
        }
        if let Some(name) = not_found(text) {
            self.open_service(name, false, line, sink);
            if let Some(service) = &mut self.service {
                service.fact.active = Some("not-found".into());
                service.fact.detail = "could not be found".into();
            }
            return true;
        }
        // Most lines of most logs end here: no prefix was taken off them, and nothing is open.
        let has_prefix = line.raw.len() > line.body.len();
        if self.service.is_none() && !has_prefix && !text.starts_with('[') {
            return false;
        }
        let raw = std::str::from_utf8(line.raw).unwrap_or_default();
        if let Some((at, level, said)) = log_line(raw) {
            if !self.service.as_ref().is_some_and(|s| s.is_log) {
                self.open_service("nvidia-fabricmanager", true, line, sink);
            }
            if let Some(service) = &mut self.service {
                service.span.add(line, sink);
                service.logged(line.number, Some(at), level, said);
            }
            return true;
        }
        let of_journal =
            has_prefix && (raw.contains(" nv-fabricmanager[") || raw.contains(" nvidia-persistenced["));
        if !of_journal && self.service.as_ref().is_none_or(|s| s.is_log) {
            return false;
        }
        let trimmed = text.trim();
        if let Some(service) = &mut self.service
            && !service.is_log
            && let Some(active) = trimmed.strip_prefix("Active: ")
        {
            service.span.add(line, sink);
            let (word, rest) = active.split_once(' ').unwrap_or((active, ""));
            service.fact.active = Some(word.into());
            let detail = rest.split_once(" since ").map_or(rest, |(detail, _)| detail);
            service.fact.detail = bounded_text(detail.trim_matches(['(', ')']).as_bytes(), 120).into();
            return true;
        }
        if !of_journal {
            return false;
        }
        let program = if raw.contains(" nvidia-persistenced[") {
            "nvidia-persistenced"
        } else {
            "nvidia-fabricmanager"
        };
        if self.service.as_ref().is_none_or(|s| s.is_log || &*s.fact.name != program) {
            self.open_service(program, false, line, sink);
        }
        let said = raw.split_once("]: ").map_or(trimmed, |(_, said)| said);
        if let Some(service) = &mut self.service {
            service.span.add(line, sink);
            service.said(line.number, line.tag.at, said);
        }
        true
    }

    fn open_service(&mut self, name: &str, is_log: bool, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.close_service(sink);
        let fact = GpuService { name: name.into(), ..GpuService::default() };
        self.service = Some(Service { fact, span: TableSpan::begin(line, sink), is_log });
    }

    pub(super) fn close_service(&mut self, sink: &mut Sink<'_>) {
        if let Some(Service { fact, span, .. }) = self.service.take() {
            span.push(SourceKind::GpuServices, Fact::GpuService(fact.into()), sink);
        }
    }
}

impl Service {
    /// Whether it is the status of a unit, not a log.
    pub(super) fn is_status(&self) -> bool {
        !self.is_log
    }

    fn logged(&mut self, line: u32, at: Option<WallTime>, level: &str, said: &str) {
        let is_bad = matches!(level, "ERROR" | "CRITICAL" | "FATAL" | "ALERT" | "EMERGENCY");
        self.note(line, at, said, is_bad);
    }

    fn said(&mut self, line: u32, at: Option<WallTime>, said: &str) {
        let lower = said.to_ascii_lowercase();
        let is_bad = [
            "fail",
            "error",
            "fatal",
            "don't match",
            "doesn't match",
            "not supported",
            "unable to",
            "aborting",
        ]
        .iter()
        .any(|w| lower.contains(w));
        self.note(line, at, said, is_bad);
    }

    fn note(&mut self, line: u32, at: Option<WallTime>, said: &str, is_bad: bool) {
        if let Some((own, driver)) = mismatch(said) {
            self.fact.version = Some(own.into());
            self.fact.driver_version = Some(driver.into());
        } else if let Some((_, rest)) = said.split_once("Fabric Manager version is")
            && let Some(version) = rest.trim_start_matches([':', ' ']).split_ascii_whitespace().next()
        {
            self.fact.version = Some(version.into());
        }
        if (is_bad || mismatch(said).is_some()) && self.fact.errors.len() < MAX_ERRORS {
            self.fact.errors.push((line, at, bounded_text(said.as_bytes(), TEXT_CHARS).into()));
        }
    }
}

/// `● nvidia-fabricmanager.service - NVIDIA fabric manager service`, with any of systemd's marks or none.
fn unit_heading(text: &str) -> Option<&str> {
    let rest = text.trim_start_matches(['●', '○', '×', '↻', '*', 'x', ' ']);
    let (name, description) = rest.split_once(".service - ")?;
    (is_ours(name) && !description.is_empty()).then_some(name)
}

/// `Unit nvidia-fabricmanager.service could not be found.`
fn not_found(text: &str) -> Option<&str> {
    let name = text.trim().strip_prefix("Unit ")?.strip_suffix(".service could not be found.")?;
    is_ours(name).then_some(name)
}

fn is_ours(name: &str) -> bool {
    name.starts_with("nvidia-")
        && name.len() < 60
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// `[Nov 20 2026 08:15:01] [INFO] [tid 1412] text`; older ones have no thread, and then only words of its own tell whose
/// line it is.
fn log_line(raw: &str) -> Option<(WallTime, &str, &str)> {
    const WORDS: [&str; 6] =
        ["abric Manager", "abric manager", "NVSwitch", "nvswitch", "NVLink", "fabric state"];
    let (date, rest) = raw.strip_prefix('[')?.split_once("] [")?;
    let (level, rest) = rest.split_once("] ")?;
    let said = match rest.strip_prefix("[tid ") {
        Some(rest) => rest.split_once("] ")?.1,
        None if WORDS.iter().any(|word| rest.contains(word)) => rest,
        None => return None,
    };
    // `Nov 20 2026 08:15:01`: ctime's words in another order.
    let (day, rest) = date.split_at_checked(6)?;
    let (year, time) = rest.trim().split_once(' ')?;
    let at = crate::ground::clock::ctime(&format!("Day {day} {} {year}", time.trim()))?;
    (level.len() < 12).then_some((at, level, said))
}

/// The two versions of a Fabric Manager that does not fit its driver.
fn mismatch(said: &str) -> Option<(&str, &str)> {
    let (_, rest) = said.split_once("interface version ")?;
    let (own, rest) = rest.split_once(' ')?;
    let (_, rest) = rest.split_once("match with driver version ")?;
    let driver = rest.split([' ', ',']).next()?.trim_end_matches('.');
    Some((own, driver))
}
