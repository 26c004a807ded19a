//! `--serve`: a page, its data, and metrics. Reads the [`Board`] and changes nothing. The one place of `watch` that is
//! async, in a thread and a runtime of its own.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

use crate::watch::board::{Board, JobRow};
use crate::watch::columns::Lists;
use crate::watch::metrics;
use crate::watch::otlp::decoded;
use crate::watch::picture::Picture;

/// One file: no other address is asked for anything.
const PAGE: &str = include_str!("page.html");
/// Names by which a browser on this machine may ask for a page that listens on loopback.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Connections at a time; more wait to be taken. Each takes a descriptor, and the watcher needs some to see whether ranks live.
const MAX_CONNECTIONS: usize = 64;
/// A connection without a complete request for this long, or that takes no answer, is closed: a page asks every second.
const PATIENCE: Duration = Duration::from_secs(5);
/// After a connection could not be taken.
const PAUSE: Duration = Duration::from_secs(1);

/// `8080`, `:8080`, `host:8080`: loopback unless another address is named.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = |why: &str| format!("{why}; as in 8080, 127.0.0.1:8080 or 0.0.0.0:8080");
    let bare = text.strip_prefix(':').unwrap_or(text);
    if let Ok(port) = bare.parse::<u16>() {
        return Ok(([127, 0, 0, 1], port).into());
    }
    let mut found = text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    found.next().ok_or_else(|| wrong("no such address"))
}

/// Begins to serve in a thread of its own, which ends with the program. Answers with the address, its port chosen if it
/// was 0.
///
/// # Errors
/// If the address cannot be listened at.
pub(crate) fn start(address: SocketAddr, board: Board) -> io::Result<SocketAddr> {
    start_with(address, board, PATIENCE)
}

fn start_with(address: SocketAddr, board: Board, patience: Duration) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let app = app(board, bound.ip().is_loopback());
    thread::Builder::new().name("serve".to_owned()).spawn(move || {
        runtime.block_on(async {
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                let door = Door { listener, seats: Arc::new(Semaphore::new(MAX_CONNECTIONS)), patience };
                // Ends only if the listener fails; then its silence is the only sign.
                let _ = axum::serve(door, app).await;
            }
        });
    })?;
    Ok(bound)
}

/// Lets in as many as there are seats.
struct Door {
    listener: tokio::net::TcpListener,
    seats: Arc<Semaphore>,
    patience: Duration,
}

impl axum::serve::Listener for Door {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        loop {
            // Fails only for a semaphore that was closed.
            if let Ok(seat) = Arc::clone(&self.seats).acquire_owned().await
                && let Ok((stream, peer)) = self.listener.accept().await
            {
                let until = Box::pin(tokio::time::sleep(self.patience));
                return (Guest { stream, until, patience: self.patience, _seat: seat }, peer);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that must have asked by a certain time, however slowly its bytes come. Each piece of an answer that it
/// takes gives it time again.
struct Guest {
    stream: TcpStream,
    until: Pin<Box<Sleep>>,
    patience: Duration,
    _seat: OwnedSemaphorePermit,
}

impl Guest {
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        self.until.as_mut().poll(context).is_ready()
    }

    /// What writing came to.
    fn wrote(
        &mut self,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match wrote {
            Poll::Ready(Ok(_)) => {
                let until = Instant::now() + self.patience;
                self.until.as_mut().reset(until);
                wrote
            }
            Poll::Pending if self.is_late(context) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            other => other,
        }
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_late(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.wrote(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.wrote(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

fn app(board: Board, is_loopback: bool) -> Router {
    let app = Router::new()
        .route("/", get(|| async { ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], PAGE) }))
        .route("/api/state", get(state))
        .route("/metrics", get(prometheus))
        .with_state(board);
    let app = if is_loopback { app.layer(middleware::from_fn(only_local)) } else { app };
    app.layer(middleware::from_fn(guarded))
}

/// The picture, and its lists as they are shown.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    picture: &'a Picture,
    lists: Lists,
    /// Where several jobs are followed, all of them.
    jobs: Vec<JobRow>,
}

/// Of the job that `?job=` names, else of the one that is worst. A job that is not there is no other one.
async fn state(State(board): State<Board>, uri: Uri) -> Response {
    let mut parts = uri.query().into_iter().flat_map(|query| query.split('&'));
    // Forms write a space as `+`.
    let asked = parts.find_map(|part| part.strip_prefix("job=")).map(|name| decoded(&name.replace('+', " ")));
    let (picture, jobs) = board.of(asked.as_deref());
    if asked.is_some() && picture.name != asked {
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        let known = if names.is_empty() { "one job alone is followed".to_owned() } else { names.join("\n") };
        let plain = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
        return (StatusCode::NOT_FOUND, plain, format!("no such job is followed; there is:\n{known}\n"))
            .into_response();
    }
    let json = serde_json::to_string(&Shown { picture: &picture, lists: Lists::new(&picture), jobs });
    match json {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// OpenMetrics, unless the client names forms without it: `curl` and `promtool check metrics` read the older text.
async fn prometheus(State(board): State<Board>, headers: HeaderMap) -> Response {
    let text = metrics::render(&board.all());
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if accepts.is_some_and(|forms| !forms.contains("openmetrics")) {
        return ([(header::CONTENT_TYPE, metrics::OLDER_TYPE)], metrics::older(&text)).into_response();
    }
    ([(header::CONTENT_TYPE, metrics::TYPE)], text).into_response()
}

/// A page of elsewhere that had its name point to this machine (DNS rebinding) could read what loopback should keep.
async fn only_local(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    if LOCAL.contains(&name) {
        next.run(request).await
    } else {
        (StatusCode::FORBIDDEN, "use localhost in the address\n").into_response()
    }
}

/// Whatever the job's names hold, a browser runs this page's script alone and asks this address alone.
async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
             img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
        ),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::sync::Mutex;

    use super::*;
    use crate::watch::picture::sample;

    fn ask(at: SocketAddr, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn page_state_and_metrics_are_there() {
        let picture = Arc::new(Mutex::new(sample::stalled()));
        let at = start(address("0").unwrap(), Board::new(Arc::clone(&picture))).unwrap();
        let host = at.to_string();
        let page = ask(at, "/", &host);
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("<!doctype html>"), "{page}");
        assert!(page.contains("content-security-policy: default-src 'none'"), "{page}");
        let state = ask(at, "/api/state", &host);
        assert!(state.contains("\"schema\":\"ringleader.watch-state.v1\""), "{state}");
        // It is read again each time.
        picture.lock().unwrap().comms[0].name = "</script><img src=x onerror=alert(1)>".to_owned();
        assert!(ask(at, "/api/state", &host).contains("onerror"));
        let metrics = ask(at, "/metrics", "localhost");
        assert!(
            metrics.contains("application/openmetrics-text") && metrics.contains("ringleader_stalled 1"),
            "{metrics}"
        );
        assert!(ask(at, "/nothing", &host).starts_with("HTTP/1.1 404"));
    }

    /// Of several jobs each has its picture and its series, and the one that is worst is shown first.
    #[test]
    fn each_of_several_jobs_is_served() {
        let mut quiet = sample::running();
        quiet.n_ranks = 2;
        let board = Board::new(Arc::new(Mutex::new(sample::stalled())));
        let live = |picture| Arc::new(Mutex::new(picture));
        board.put(vec![
            ("train.py, pid 7".to_owned(), live(quiet)),
            ("b.py, pid 8".to_owned(), live(sample::stalled())),
        ]);
        let at = start(address("0").unwrap(), board).unwrap();
        let state = |path: &str| -> serde_json::Value {
            let answer = ask(at, path, "localhost");
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
        };
        let first = state("/api/state");
        assert_eq!(
            (&first["job"], &first["jobs"][0]["name"]),
            (&"stalled".into(), &"train.py, pid 7".into())
        );
        assert_eq!((&first["jobs"][1]["job"], &first["jobs"][0]["n_ranks"]), (&"stalled".into(), &2.into()));
        let other = state("/api/state?job=train.py%2C%20pid%207");
        assert_eq!((&other["job"], &other["n_ranks"]), (&"running".into(), &2.into()));
        assert_eq!((&other["name"], &other["others"][0]), (&"train.py, pid 7".into(), &"b.py, pid 8".into()));
        assert_eq!(state("/api/state?x=1&job=train.py,+pid+7")["job"], "running");
        // One that has ended meanwhile, or never was, is not answered with another.
        let gone = ask(at, "/api/state?job=gone", "localhost");
        assert!(gone.starts_with("HTTP/1.1 404") && gone.contains("b.py, pid 8"), "{gone}");
        let metrics = ask(at, "/metrics", "localhost");
        for line in [
            "ringleader_stalled{job=\"train.py, pid 7\"} 0",
            "ringleader_stalled{job=\"b.py, pid 8\"} 1",
            "ringleader_ranks{job=\"train.py, pid 7\"} 2",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        assert_eq!(metrics.matches("# TYPE ringleader_stalled ").count(), 1, "{metrics}");
    }

    /// A client that opens connections and sends nothing, or sends a byte at a time, blocks no other client for long.
    #[test]
    fn guests_that_do_not_ask_are_sent_away() {
        let patience = Duration::from_millis(300);
        let at = start_with(address("0").unwrap(), Board::default(), patience).unwrap();
        let began = std::time::Instant::now();
        let mut slow = TcpStream::connect(at).unwrap();
        let idle: Vec<TcpStream> = (0..3 * MAX_CONNECTIONS)
            .map(|_| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
                stream
            })
            .collect();
        // One more letter gives it no more time.
        let letters = thread::spawn(move || {
            while slow.write_all(b"G").is_ok() && began.elapsed() < Duration::from_secs(20) {
                thread::sleep(patience / 3);
            }
            began.elapsed()
        });
        assert!(ask(at, "/metrics", "localhost").starts_with("HTTP/1.1 200"));
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
        for mut stream in idle {
            // Closed, whether in order or with what it had sent unread.
            assert_eq!(stream.read(&mut [0; 16]).unwrap_or_default(), 0);
        }
        assert!(letters.join().unwrap() < Duration::from_secs(15));
    }

    #[test]
    fn another_name_for_this_machine_is_refused_on_loopback() {
        let at = start(address("127.0.0.1:0").unwrap(), Board::default()).unwrap();
        assert!(ask(at, "/api/state", "evil.example:80").starts_with("HTTP/1.1 403"));
        assert!(ask(at, "/api/state", "[::1]:99").starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn an_address_is_loopback_unless_it_is_told() {
        assert_eq!(address("8080").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(address(":8080").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(address("0.0.0.0:1").unwrap().to_string(), "0.0.0.0:1");
        assert!(address("nonsense").is_err());
    }

    /// The page holds no other address, and nothing that takes text of the job as HTML.
    #[test]
    fn the_page_is_one_file() {
        for word in
            ["http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
        {
            assert!(!PAGE.contains(word), "{word}");
        }
    }
}
