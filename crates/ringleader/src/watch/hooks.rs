//! What is done with a verdict by others: a command, a webhook. Neither may hold up or end the watching, so each has a
//! deadline, and what goes wrong is a note.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::incident::{Judged, ToCollect};
use super::template::Template;

/// Time that a command has.
const COMMAND_S: u64 = 60;
/// Time that a webhook has, each try.
const WEBHOOK_S: u64 = 10;
/// A second try after this: what restarts just now may be back.
const RETRY_S: u64 = 2;
/// Output of a command that is kept.
const MAX_OUTPUT: u64 = 256 << 10;

/// How long the hooks that are set may take in all, each beside the other.
pub(crate) fn patience(has_command: bool, has_webhook: bool) -> Duration {
    let command = if has_command { COMMAND_S } else { 0 };
    let webhook = if has_webhook { 2 * WEBHOOK_S + RETRY_S } else { 0 };
    Duration::from_secs(command.max(webhook))
}

/// Calls the hooks that are set, one beside the other, and answers with what came of them. No bundle where none could be
/// written.
pub(crate) fn call(
    (command, webhook): (Option<String>, Option<String>),
    report: &str,
    bundle: Option<&Path>,
    body: &str,
) -> Vec<String> {
    thread::scope(|scope| {
        let command = command.map(|line| scope.spawn(move || self::command(&line, report, bundle)));
        let posted = webhook.and_then(|url| self::webhook(&url, body));
        // A panic there has already been reported.
        command.and_then(|thread| thread.join().ok()).into_iter().chain(posted).collect()
    })
}

/// Runs `sh -c COMMAND` with the report on its standard input and the bundle's path in `RINGLEADER_BUNDLE`. What it
/// prints goes into a file beside the bundle. Answers with a sentence on what came of it.
fn command(command: &str, report: &str, bundle: Option<&Path>) -> String {
    run(command, report, bundle, Duration::from_secs(COMMAND_S))
}

fn run(command: &str, report: &str, bundle: Option<&Path>, limit: Duration) -> String {
    let child = Command::new("sh")
        .args(["-c", command])
        .env_remove("RINGLEADER_BUNDLE")
        .envs(bundle.map(|bundle| ("RINGLEADER_BUNDLE", bundle)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: at the deadline what it started ends with it.
        .process_group(0)
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return format!("--on-stall: start sh: {error}"),
    };
    let input = child.stdin.take();
    let report = report.to_owned();
    // A command need not read what it is given.
    thread::spawn(move || input.map(|mut input| input.write_all(report.as_bytes())));
    let output =
        child.stdout.take().map(|mut from| keep(move |to| from.by_ref().take(MAX_OUTPUT).read_to_end(to)));
    let errors =
        child.stderr.take().map(|mut from| keep(move |to| from.by_ref().take(MAX_OUTPUT).read_to_end(to)));
    let ended = wait(&mut child, limit);
    let mut said = Vec::new();
    for thread in [output, errors].into_iter().flatten() {
        said.extend(taken(&thread, limit));
    }
    let mut out = match ended {
        Some(status) => format!("--on-stall ended with {status}"),
        None => format!("--on-stall did not end within {} s and was killed", limit.as_secs()),
    };
    if said.is_empty() {
        return out;
    }
    // Writing to a String cannot fail.
    let _ = match bundle.map(|bundle| keep_beside(bundle, &said)) {
        Some(Ok(path)) => write!(out, "; its output is in {}", path.display()),
        Some(Err(error)) => write!(out, "; its output is lost: {error}"),
        None => write!(out, "; its output is lost with the bundle"),
    };
    out
}

/// Writes a new file: in a shared folder another user may have created a link with that name.
fn keep_beside(bundle: &Path, said: &[u8]) -> Result<PathBuf, String> {
    let name = bundle.file_name().unwrap_or_default().to_string_lossy();
    let path = bundle.with_file_name(format!("{}.on-stall.txt", name.trim_end_matches(".tar.zst")));
    let written = File::create_new(&path).and_then(|mut file| file.write_all(said));
    written.map_err(|error| format!("write {}: {error}", path.display()))?;
    Ok(path)
}

/// Bytes that come in, as far as they have come.
type Kept = std::sync::mpsc::Receiver<Vec<u8>>;

fn keep(mut read: impl FnMut(&mut Vec<u8>) -> std::io::Result<usize> + Send + 'static) -> Kept {
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is kept; the receiver may be gone.
        let _ = read(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// What a command leaves running in the background may hold its output open forever.
fn taken(kept: &Kept, limit: Duration) -> Vec<u8> {
    kept.recv_timeout(limit.min(Duration::from_secs(1))).unwrap_or_default()
}

fn wait(child: &mut Child, limit: Duration) -> Option<std::process::ExitStatus> {
    let until = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
            _ => break,
        }
    }
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // Fails only if all of it has just ended.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
    None
}

/// Posts JSON. Answers with a sentence if it failed twice. The address may be a secret; only its host is printed.
fn webhook(url: &str, body: &str) -> Option<String> {
    let mut why = post(url, body, Duration::from_secs(WEBHOOK_S)).err()?;
    thread::sleep(Duration::from_secs(RETRY_S));
    if let Err(again) = post(url, body, Duration::from_secs(WEBHOOK_S)) {
        why = again;
        return Some(format!("--webhook {}: {why}", host_of(url)));
    }
    Some(format!("--webhook {}: accepted at the second try; the first failed: {why}", host_of(url)))
}

fn post(url: &str, body: &str, limit: Duration) -> Result<(), String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(limit))
        .user_agent(concat!("ringleader/", env!("CARGO_PKG_VERSION")))
        .max_redirects(0)
        .build()
        .into();
    match agent.post(url).content_type("application/json").send(body) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string().replace(url, host_of(url))),
    }
}

/// `https://hooks.example/services/T0/secret` is `https://hooks.example`.
pub(super) fn host_of(url: &str) -> &str {
    let Some((scheme, rest)) = url.split_once("://") else { return "(no address)" };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return "(an address with a password)";
    }
    url.get(..scheme.len() + 3 + host.len()).unwrap_or_default()
}

/// An address that can be posted to.
pub(crate) fn address(url: &str) -> Result<String, String> {
    if url.starts_with("http://") || url.starts_with("https://") {
        Ok(url.to_owned())
    } else {
        Err("an address begins with http:// or https://".to_owned())
    }
}

/// Calls hooks, one beside the other, and answers with what came of them.
pub(crate) fn pass_on(
    judged: &Judged,
    hooks: (Option<String>, Option<String>),
    template: Option<&Template>,
) -> Vec<String> {
    let body = serde_json::json!({
        "schema": ringleader_watch::event::SCHEMA,
        "event": "verdict",
        "at": ringleader_watch::event::seconds(super::now_ns()),
        "host": ringleader_collect::follow::host(),
        "bundle": judged.bundle,
        "text": format!("{}: {}", judged.report.verdict.cause, judged.report.verdict.summary),
        "report": judged.report,
    });
    let posted = template.map_or_else(|| body.to_string(), |template| template.fill(&body));
    call(hooks, &judged.json, Some(&judged.bundle), &posted)
}

/// The same where there is neither bundle nor report: what was seen, as events.
pub(crate) fn pass_on_unjudged(
    wanted: &ToCollect,
    failed: &str,
    hooks: (Option<String>, Option<String>),
    template: Option<&Template>,
) -> Vec<String> {
    let events: Vec<serde_json::Value> =
        wanted.events.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let body = serde_json::json!({
        "schema": ringleader_watch::event::SCHEMA,
        "event": "unjudged",
        "at": ringleader_watch::event::seconds(super::now_ns()),
        "host": ringleader_collect::follow::host(),
        "text": format!("{}; no evidence could be kept: {failed}", wanted.why),
        "events": events,
    });
    let posted = template.map_or_else(|| body.to_string(), |template| template.fill(&body));
    call(hooks, &body.to_string(), None, &posted)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::{BufRead as _, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_command_reads_the_report_and_its_output_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("b.tar.zst");
        let said =
            command("cat; echo $RINGLEADER_BUNDLE; echo oops >&2; exit 3", "{\"a\":1}\n", Some(&bundle));
        assert!(said.starts_with("--on-stall ended with exit status: 3"), "{said}");
        let kept = std::fs::read_to_string(folder.path().join("b.on-stall.txt")).unwrap();
        assert_eq!(kept, format!("{{\"a\":1}}\n{}\noops\n", bundle.display()));
        // A second file of that name may be a link to anything.
        let said = command("echo again", "", Some(&bundle));
        assert!(said.contains("its output is lost: write ") && said.contains("File exists"), "{said}");
        let none = command("test -z \"${RINGLEADER_BUNDLE+set}\" && echo gone", "", None);
        assert_eq!(none, "--on-stall ended with exit status: 0; its output is lost with the bundle");
    }

    #[test]
    fn one_that_does_not_end_or_does_not_read_costs_its_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let bundle = folder.path().join("b.tar.zst");
        let began = Instant::now();
        let long = "x".repeat(1 << 20);
        let said = run("sleep 600 & sleep 600", &long, Some(&bundle), Duration::from_millis(300));
        assert!(said.contains("did not end within"), "{said}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }

    /// Takes one request, and answers with its body.
    fn server() -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let mut input = BufReader::new(stream);
            let mut length = 0;
            loop {
                let mut line = String::new();
                input.read_line(&mut line).unwrap();
                if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            input.read_exact(&mut body).unwrap();
            input.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            String::from_utf8(body).unwrap()
        });
        (url, server)
    }

    #[test]
    fn a_webhook_gets_the_body_once() {
        let (url, server) = server();
        assert_eq!(webhook(&url, "{\"b\":2}"), None);
        assert_eq!(server.join().unwrap(), "{\"b\":2}");
    }

    #[test]
    fn a_webhook_does_not_wait_for_a_slow_command() {
        let folder = tempfile::tempdir().unwrap();
        let (url, server) = server();
        let done = folder.path().join("done");
        let slow = format!("sleep 2; echo x > {}", done.display());
        let bundle = folder.path().join("b");
        let calls = thread::spawn(move || call((Some(slow), Some(url)), "r", Some(&bundle), "{}"));
        assert_eq!(server.join().unwrap(), "{}");
        assert!(!done.exists(), "posted while the command ran");
        assert_eq!(calls.join().unwrap(), ["--on-stall ended with exit status: 0"]);
        assert!(patience(true, true) > patience(false, true) && patience(false, false).is_zero());
    }

    #[test]
    fn a_failure_names_the_host_and_keeps_the_path_secret() {
        let said = webhook("http://127.0.0.1:1/services/secret", "{}").unwrap();
        assert!(said.starts_with("--webhook http://127.0.0.1:1: "), "{said}");
        assert!(!said.contains("secret"), "{said}");
        assert_eq!(host_of("https://me:pw@h/x"), "(an address with a password)");
        assert!(address("ftp://x").is_err() && address("https://x").is_ok());
    }
}
