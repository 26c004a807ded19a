//! The page in a real browser without a window.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::several::{asked, one_folder, page_of};
use super::{Job, Watcher};

/// Time that a browser has.
const LIMIT: Duration = Duration::from_secs(90);

#[expect(clippy::print_stdout, reason = "a test that is passed over says so")]
fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("RINGLEADER_BROWSER").map(PathBuf::from);
    let path = std::env::var_os("PATH")?;
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .iter()
        .flat_map(|name| std::env::split_paths(&path).map(move |folder| folder.join(name)))
        .find(|path| path.is_file());
    let found = named.or(found);
    if found.is_none() {
        println!("passed over: there is no chromium here");
    }
    found
}

/// What the browser prints, with the page run for some time of its own clock.
fn visit(browser: &Path, url: &str, arguments: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .arg(LIMIT.as_secs().to_string())
        .arg(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--hide-scrollbars", "--window-size=1100,900", "--virtual-time-budget=3000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(url)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // What is seen, without the script that makes it.
    text.split("<script>").next().unwrap_or_default().to_owned()
}

/// Of two jobs the page has a button for each, and marks the one that it shows.
#[test]
fn the_page_has_a_switch_for_each_job() {
    let Some(browser) = browser() else { return };
    let jobs = [Job::start_with(2, u64::MAX, &[("PRETENDED_COMM", "77")]), Job::start(2, u64::MAX)];
    let (rings, out) = (one_folder(&jobs), jobs[0].out());
    let rings = rings.path().to_str().unwrap().to_owned();
    let arguments =
        ["--json", "--interval", "0.1", "--rings", &rings, "--out", &out, "--for", "300", "--serve", "0"];
    let mut watcher = Watcher::start(&arguments);
    let url = page_of(&mut watcher);
    let until = std::time::Instant::now() + Duration::from_mins(1);
    while asked(&url, "/metrics").matches("ringleader_ranks{job=").count() < 2 {
        assert!(std::time::Instant::now() < until, "{}", asked(&url, "/metrics"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let page = visit(&browser, &url, &["--dump-dom"]);
    let switch = page.split("<nav").nth(1).and_then(|rest| rest.split("</nav>").next()).unwrap_or_default();
    assert_eq!(switch.matches("<button").count(), 2, "{page}");
    assert_eq!(switch.matches("aria-pressed=\"true\"").count(), 1, "{page}");
}

#[test]
fn the_page_shows_the_culprit() {
    let Some(browser) = browser() else { return };
    let job = Job::start(3, u64::MAX);
    let mut watcher = job.watch(&["--pid", &job.pids(), "--for", "300", "--serve", "0"]);
    let url = page_of(&mut watcher);
    watcher.until("progress");
    let before = visit(&browser, &url, &["--dump-dom"]);
    assert!(before.contains("default_pg"), "the script has run and the state has come: {before}");
    assert!(!before.contains("culprit:"), "{before}");
    job.signal(1, "-STOP");
    watcher.until("verdict");
    let after = visit(&browser, &url, &["--dump-dom"]);
    assert!(after.contains("Verdict: process-stopped"), "{after}");
    assert!(after.contains("culprit: rank 1"), "{after}");
    let shot = std::env::var_os("RINGLEADER_PAGE_PNG")
        .map_or_else(|| job.folder.path().join("page.png"), PathBuf::from);
    visit(&browser, &url, &[&format!("--screenshot={}", shot.display())]);
    let picture = std::fs::read(&shot).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 5_000, "{} bytes", picture.len());
}
