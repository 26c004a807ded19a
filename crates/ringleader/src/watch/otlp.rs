//! Export over OTLP, set by the standard variables `OTEL_*`: the metrics of `--serve` every so often, incidents as log records at
//! once. Over HTTP, as protobuf or JSON; gRPC is not spoken. In a thread of its own: a collector that is slow or gone neither holds
//! up nor ends the watching.
//!
//! Variables: <https://opentelemetry.io/docs/specs/otel/protocol/exporter/>.

mod message;
mod transport;
mod wire;

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use ringleader_watch::event::Event;

use self::message::Attribute;
use self::transport::{Endpoint, Trust, post};
use self::wire::FieldValue;
use super::board::Board;
use super::metrics;

/// Records that wait for a collector that does not answer; the oldest go first.
const MAX_WAITING: usize = 256;
/// After a record could not be delivered.
const RETRY: Duration = Duration::from_secs(5);

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    metrics: Option<Endpoint>,
    logs: Option<Endpoint>,
    resource: Vec<Attribute>,
    interval: Duration,
}

impl Settings {
    /// From the variables that `of` knows. None if nothing is to be exported.
    ///
    /// # Errors
    /// A variable that means something that is not done, or nothing.
    pub(crate) fn read(of: impl Fn(&str) -> Option<String>, host: &str) -> Result<Option<Self>, String> {
        let of = |name: &str| of(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        if of("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let endpoint = |signal: &str, path: &str| -> Result<Option<Endpoint>, String> {
            if of(&format!("OTEL_{signal}_EXPORTER")).is_some_and(|text| text == "none") {
                return Ok(None);
            }
            let either = |end: &str| {
                of(&format!("OTEL_EXPORTER_OTLP_{signal}_{end}"))
                    .or_else(|| of(&format!("OTEL_EXPORTER_OTLP_{end}")))
            };
            let base = of("OTEL_EXPORTER_OTLP_ENDPOINT")
                .map(|base| format!("{}/{path}", base.trim_end_matches('/')));
            let Some(url) = of(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")).or(base) else {
                return Ok(None);
            };
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(format!("the endpoint `{url}` does not begin with http:// or https://"));
            }
            let is_json = match either("PROTOCOL").as_deref() {
                None | Some("http/protobuf") => false,
                Some("http/json") => true,
                Some(other) => {
                    return Err(format!(
                        "OTEL_EXPORTER_OTLP_PROTOCOL={other} is not supported: use http/protobuf or http/json, which collectors \
                         take at port 4318"
                    ));
                }
            };
            let headers = either("HEADERS").map(|text| pairs(&text)).unwrap_or_default();
            let limit = milliseconds(either("TIMEOUT"), 10_000);
            let is_gzip = match either("COMPRESSION").as_deref() {
                None | Some("none") => false,
                Some("gzip") => true,
                Some(other) => {
                    return Err(format!(
                        "OTEL_EXPORTER_OTLP_COMPRESSION={other} is not supported: use gzip or none"
                    ));
                }
            };
            let client = match (either("CLIENT_CERTIFICATE"), either("CLIENT_KEY")) {
                (Some(chain), Some(key)) => Some((chain.into(), key.into())),
                (None, None) => None,
                _ => {
                    return Err("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY need each other".to_owned());
                }
            };
            let trust = Trust { authorities: either("CERTIFICATE").map(Into::into), client };
            Ok(Some(Endpoint { url, is_json, is_gzip, headers, limit, trust }))
        };
        let (metrics, logs) = (endpoint("METRICS", "v1/metrics")?, endpoint("LOGS", "v1/logs")?);
        if metrics.is_none() && logs.is_none() {
            return Ok(None);
        }
        let mut resource = of("OTEL_RESOURCE_ATTRIBUTES").map(|text| pairs(&text)).unwrap_or_default();
        if let Some(name) = of("OTEL_SERVICE_NAME") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), name));
        }
        for (key, value) in [
            ("service.name", "ringleader"),
            ("service.version", env!("CARGO_PKG_VERSION")),
            ("host.name", host),
        ] {
            if resource.iter().all(|(known, _)| known != key) {
                resource.push((key.to_owned(), value.to_owned()));
            }
        }
        let interval =
            milliseconds(of("OTEL_METRIC_EXPORT_INTERVAL"), 60_000).max(Duration::from_millis(100));
        Ok(Some(Self { metrics, logs, resource, interval }))
    }
}

/// `key=value,key=value`, values in percent-encoding.
fn pairs(text: &str) -> Vec<Attribute> {
    let pair = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        Some((key.trim().to_owned(), decoded(value.trim())))
    };
    text.split(',').filter_map(pair).filter(|(key, _)| !key.is_empty()).collect()
}

/// Text in percent-encoding.
pub(crate) fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = hex.filter(|_| *first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn milliseconds(text: Option<String>, default: u64) -> Duration {
    Duration::from_millis(text.and_then(|text| text.parse().ok()).unwrap_or(default))
}

/// What the thread is given.
enum ExportMessage {
    Record(FieldValue),
    /// All that waits is sent at once, and then this is answered.
    Flush(Sender<()>),
}

/// The way to the thread. Clones lead to the same.
#[derive(Clone)]
pub(crate) struct Exporter {
    words: Sender<ExportMessage>,
    has_logs: bool,
    limit: Duration,
}

impl Exporter {
    /// Begins to export. `note` takes a sentence when exporting begins to fail, and when it works again.
    pub(crate) fn start(settings: Settings, board: Board, note: impl Fn(String) + Send + 'static) -> Self {
        let (words, heard) = mpsc::channel();
        let has_logs = settings.logs.is_some();
        let limits = [&settings.metrics, &settings.logs].into_iter().flatten().map(|endpoint| endpoint.limit);
        let limit = limits.sum();
        let worker = Worker {
            resource: message::resource(&settings.resource),
            settings,
            board,
            note: Box::new(note),
            began_ns: now_ns(),
            waiting: VecDeque::new(),
            n_lost: 0,
            is_failing: false,
        };
        thread::spawn(move || worker.work(&heard));
        Self { words, has_logs, limit }
    }

    /// An event. Only those of incidents are exported.
    pub(crate) fn tell(&self, event: &Event, job: Option<&str>) {
        if self.has_logs
            && let Some(record) = message::record(event, job)
        {
            // The thread ends with the program.
            let _ = self.words.send(ExportMessage::Record(record));
        }
    }

    /// Sends what waits and the newest metrics, within the limits that the variables set.
    pub(crate) fn flush(&self) {
        let (sender, done) = mpsc::channel();
        if self.words.send(ExportMessage::Flush(sender)).is_ok() {
            let _ = done.recv_timeout(self.limit + Duration::from_secs(1));
        }
    }
}

struct Worker {
    settings: Settings,
    resource: FieldValue,
    board: Board,
    note: Box<dyn Fn(String) + Send>,
    began_ns: u64,
    waiting: VecDeque<FieldValue>,
    n_lost: u64,
    is_failing: bool,
}

impl Worker {
    fn work(mut self, heard: &Receiver<ExportMessage>) {
        let mut next_metrics = Instant::now() + self.settings.interval;
        let mut next_try: Option<Instant> = None;
        loop {
            let due = next_try.map_or(next_metrics, |at| at.min(next_metrics));
            match heard.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(ExportMessage::Record(record)) => {
                    self.keep(record);
                    // What comes together is sent together.
                    next_try = next_try.or(Some(Instant::now()));
                }
                Ok(ExportMessage::Flush(done)) => {
                    self.send_logs();
                    self.send_metrics();
                    // Who asked may have given up.
                    let _ = done.send(());
                }
                Err(RecvTimeoutError::Timeout) => {
                    if next_try.is_some_and(|at| at <= Instant::now()) {
                        next_try = (!self.send_logs()).then(|| Instant::now() + RETRY);
                    }
                    if next_metrics <= Instant::now() {
                        self.send_metrics();
                        next_metrics = Instant::now() + self.settings.interval;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn keep(&mut self, record: FieldValue) {
        self.waiting.push_back(record);
        if self.waiting.len() > MAX_WAITING {
            self.waiting.pop_front();
            self.n_lost += 1;
        }
    }

    /// Whether nothing waits any more.
    fn send_logs(&mut self) -> bool {
        let Some(endpoint) = &self.settings.logs else { return true };
        if self.waiting.is_empty() {
            return true;
        }
        let records = self.waiting.iter().cloned().collect();
        let sent = post(endpoint, &message::logs(records, self.resource.clone()));
        let is_sent = sent.is_ok();
        if is_sent {
            self.waiting.clear();
        }
        self.say(sent);
        is_sent
    }

    fn send_metrics(&mut self) {
        let Some(endpoint) = &self.settings.metrics else { return };
        let text = metrics::render(&self.board.all());
        let sent = post(endpoint, &message::metrics(&text, self.resource.clone(), (self.began_ns, now_ns())));
        self.say(sent);
    }

    /// Once when it begins to fail, once when it is over.
    fn say(&mut self, sent: Result<(), String>) {
        match (sent, self.is_failing) {
            (Err(why), false) => {
                self.is_failing = true;
                (self.note)(format!("OTLP export fails and is tried again: {why}"));
            }
            (Ok(()), true) => {
                self.is_failing = false;
                (self.note)(format!("OTLP export works again; {} records were lost", self.n_lost));
            }
            _ => {}
        }
    }
}

fn now_ns() -> u64 {
    u64::try_from(super::now_ns()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

    use ringleader_watch::event::What;

    use super::*;
    use crate::watch::picture::sample;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let of =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Settings::read(of, "node7")
    }

    #[test]
    fn variables_as_the_standard_has_them() {
        assert_eq!(read(&[]), Ok(None));
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/");
        let settings = read(&[base]).unwrap().unwrap();
        assert_eq!(settings.metrics.as_ref().unwrap().url, "http://c:4318/v1/metrics");
        assert_eq!(settings.logs.as_ref().unwrap().url, "http://c:4318/v1/logs");
        assert!(!settings.logs.as_ref().unwrap().is_json);
        assert_eq!(settings.interval, Duration::from_mins(1));
        assert_eq!(read(&[base, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
        let settings = read(&[
            base,
            ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "https://d/x"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s%3D1, x = y"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=a,team=b"),
            ("OTEL_SERVICE_NAME", "train"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.metrics, None);
        let logs = settings.logs.unwrap();
        assert_eq!((logs.url.as_str(), logs.is_json), ("https://d/x", true));
        let said = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(logs.headers, [said("authorization", "Bearer s=1"), said("x", "y")]);
        assert_eq!(
            settings.resource,
            [
                said("team", "b"),
                said("service.name", "train"),
                said("service.version", env!("CARGO_PKG_VERSION")),
                said("host.name", "node7")
            ]
        );
        let settings = read(&[
            base,
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
            ("OTEL_EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE", "/me.pem"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/me.key"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/all.pem"),
        ]);
        let settings = settings.unwrap().unwrap();
        let (metrics, logs) = (settings.metrics.unwrap(), settings.logs.unwrap());
        assert_eq!((metrics.is_gzip, logs.is_gzip), (false, true));
        assert_eq!(metrics.trust.authorities, Some("/ca.pem".into()));
        assert_eq!(metrics.trust.client, Some(("/all.pem".into(), "/me.key".into())));
        assert_eq!(logs.trust.client, Some(("/me.pem".into(), "/me.key".into())));
        assert!(
            read(&[base, ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd")]).unwrap_err().contains("gzip or none")
        );
        assert!(
            read(&[base, ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/k")]).unwrap_err().contains("need each other")
        );
        let why = read(&[base, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap_err();
        assert!(why.contains("http/protobuf"), "{why}");
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "c:4318")]).is_err());
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }

    /// First line, media type, body.
    type Request = (String, String, Vec<u8>);

    /// Takes `n` requests, and answers with them; the first is refused.
    fn collector(n: usize) -> (String, thread::JoinHandle<Vec<Request>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let taken = thread::spawn(move || {
            let mut all = Vec::new();
            for at in 0..n {
                let (stream, _) = listener.accept().unwrap();
                let mut input = BufReader::new(stream);
                let (mut lines, mut length) = (Vec::new(), 0);
                loop {
                    let mut line = String::new();
                    input.read_line(&mut line).unwrap();
                    let line = line.trim().to_owned();
                    if line.is_empty() {
                        break;
                    }
                    if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                        length = n.trim().parse().unwrap();
                    }
                    lines.push(line);
                }
                let mut body = vec![0; length];
                input.read_exact(&mut body).unwrap();
                if lines.iter().any(|line| line.eq_ignore_ascii_case("content-encoding: gzip")) {
                    let mut plain = Vec::new();
                    flate2::read::GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap();
                    assert!(plain.len() > body.len(), "{} of {}", body.len(), plain.len());
                    body = plain;
                }
                let answer = if at == 0 { "503 Service Unavailable" } else { "200 OK" };
                write!(
                    input.get_mut(),
                    "HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
                )
                .unwrap();
                let kind = lines.iter().find(|line| line.to_lowercase().starts_with("content-type")).unwrap();
                all.push((lines[0].clone(), kind.clone(), body));
            }
            all
        });
        (url, taken)
    }

    #[test]
    fn a_record_waits_for_a_collector_that_refuses_it() {
        let (url, taken) = collector(3);
        let settings = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_METRICS_COMPRESSION", "gzip"),
        ]);
        let (sender, notes) = mpsc::channel();
        let board = Board::new(Arc::new(Mutex::new(sample::stalled())));
        let exporter = Exporter::start(settings.unwrap().unwrap(), board, move |note| {
            let _ = sender.send(note);
        });
        let event = Event::new(1_000_000_000, What::Ended { how: "by \"itself\"".to_owned() });
        exporter.tell(&event, Some("train"));
        let note = notes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(note.starts_with("OTLP export fails") && note.contains("503"), "{note}");
        exporter.flush();
        let taken = taken.join().unwrap();
        assert_eq!(taken[0].2, taken[1].2, "the same record again");
        assert_eq!(taken[1].0, "POST /v1/logs HTTP/1.1");
        assert_eq!(taken[2].0, "POST /v1/metrics HTTP/1.1");
        assert!(taken[2].1.ends_with("application/json"), "{}", taken[2].1);
        let logs: serde_json::Value = serde_json::from_slice(&taken[1].2).unwrap();
        let record = &logs["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0];
        assert_eq!(record["body"]["stringValue"], "ended: by \"itself\"");
        assert_eq!(record["timeUnixNano"], "1000000000");
        let note = notes.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(note.contains("works again; 0 records"), "{note}");
    }
}
