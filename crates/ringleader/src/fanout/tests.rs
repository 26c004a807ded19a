use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringleader_check::fleet::{Silence, SilenceKind};

use super::copy::Program;
use super::spool::{Output, Spool};
use super::ssh::{Ssh, shell_words};
use super::{Fanout, HostAnswer, Input, Limits, Ran, Transport, last_line};

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_shell_over_there_reads_what_was_meant() {
    assert_eq!(shell_words(&words(&["ringleader", "check", "--only", "a,b"])), "ringleader check --only a,b");
    assert_eq!(
        shell_words(&words(&["sh", "-c", "echo \"$HOME\"", "it's", ""])),
        r#"sh -c 'echo "$HOME"' 'it'\''s' ''"#
    );
}

#[test]
fn reasons_of_hosts_are_alike() {
    assert_eq!(
        last_line("banner\nroot@n7: Permission denied (publickey).\n\n", "root@n7"),
        "HOST: Permission denied (publickey)."
    );
    assert_eq!(last_line("x\nWarning: Permanently added 'n7' to the list\n", "n7"), "x");
    assert_eq!(last_line("", "n7"), "");
    assert_eq!(last_line("cannot reach c: c-1 is closed", "c"), "cannot reach HOST: c-1 is closed");
}

/// Counts who is asked at once, and answers or not.
struct Counting {
    now: AtomicUsize,
    most: AtomicUsize,
    asked: Mutex<Vec<String>>,
}

impl Transport for Counting {
    fn ask(
        &self,
        host: &str,
        argv: &[String],
        _: &Input,
        mut output: Output<'_>,
        _: &Limits<'_>,
    ) -> Result<Ran, Silence> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.asked.lock().unwrap().push(host.to_owned());
        std::thread::sleep(Duration::from_millis(3));
        self.now.fetch_sub(1, Ordering::SeqCst);
        if host.ends_with('7') {
            let silence = Silence { kind: SilenceKind::Unreachable, why: String::new(), next: String::new() };
            return Err(silence);
        }
        output.take(argv.join(" ").as_bytes());
        let (output, n_output, is_cut) = output.end();
        Ok(Ran { status: Some(0), output, n_output, said: String::new(), is_cut })
    }

    fn explain(&self, _: &str, _: &Ran) -> Silence {
        unreachable!("the test reads every answer")
    }
}

fn hosts(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("h{n}")).collect()
}

fn fanout<'a>(
    transport: &'a dyn Transport,
    hosts: &'a [String],
    program: &'a Program,
    args: &'a [String],
) -> Fanout<'a> {
    Fanout {
        transport,
        hosts,
        program,
        args,
        args_of: &|_| Vec::new(),
        parallel: 8,
        deadline: Duration::from_secs(10),
        max_bytes: 1000,
        spool: None,
        show_progress: false,
    }
}

#[test]
fn every_host_is_asked_once_and_never_more_than_the_limit_at_once() {
    let counting = Counting { now: AtomicUsize::new(0), most: AtomicUsize::new(0), asked: Mutex::default() };
    let (hosts, program, args) = (hosts(100), Program::Named("r".to_owned()), words(&["check"]));
    let mut answers: Vec<(String, bool)> = Vec::new();
    fanout(&counting, &hosts, &program, &args)
        .run(|HostAnswer { host, timing, outcome, .. }| {
            assert!(timing.sent_ns <= timing.arrived_ns);
            if let Ok(ran) = &outcome {
                assert_eq!(ran.output, b"r check");
            }
            answers.push((host, outcome.is_ok()));
            Ok::<(), ()>(())
        })
        .unwrap();
    assert_eq!(answers.len(), 100);
    assert_eq!(answers.iter().filter(|(_, is_ok)| !is_ok).count(), 10);
    let mut asked = counting.asked.into_inner().unwrap();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 100);
    assert!((2..=8).contains(&counting.most.load(Ordering::SeqCst)));
}

#[test]
fn nobody_is_asked_for_answers_that_nobody_takes() {
    let counting = Counting { now: AtomicUsize::new(0), most: AtomicUsize::new(0), asked: Mutex::default() };
    let (hosts, program, args) = (hosts(1000), Program::Named("r".to_owned()), Vec::new());
    let mut n_taken = 0;
    let outcome = fanout(&counting, &hosts, &program, &args).run(|_| {
        n_taken += 1;
        if n_taken == 3 { Err("closed") } else { Ok(()) }
    });
    assert_eq!((outcome, n_taken), (Err("closed"), 3));
    assert!(counting.asked.into_inner().unwrap().len() < 100);
}

fn stub(folder: &Path, script: &str) -> Ssh {
    let program = folder.join("ssh");
    // Another test that starts a process at this moment would hand a file of ours, still open for writing, to its child, and such a
    // file cannot be executed: so a child of ours makes the program.
    let source = folder.join("ssh.txt");
    std::fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
    let made = std::process::Command::new("install").arg("-m755").args([&source, &program]).status().unwrap();
    assert!(made.success());
    std::fs::remove_file(source).unwrap();
    Ssh { program, config: None, connect_timeout_secs: 5 }
}

fn ask(script: &str, deadline: Duration) -> (Result<Ran, Silence>, Duration) {
    let folder = tempfile::tempdir().unwrap();
    let ssh = stub(folder.path(), script);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let started = Instant::now();
    let limits = Limits { until: started + deadline, deadline, stop: &stop };
    let outcome = ssh.ask("n7", &words(&["true"]), &Input::Nothing, Output::new(10, None), &limits);
    (outcome, started.elapsed())
}

#[test]
fn a_host_that_hangs_is_left_at_its_deadline() {
    let (outcome, took) = ask("exec sleep 60", Duration::from_millis(300));
    assert_eq!(outcome.err().unwrap().kind, SilenceKind::TimedOut);
    assert!(took < Duration::from_secs(20), "{took:?}");
    // One that does not heed the request to end.
    let (outcome, took) = ask("trap '' TERM; while :; do sleep 1; done", Duration::from_millis(300));
    assert_eq!(outcome.err().unwrap().kind, SilenceKind::TimedOut);
    assert!(took < Duration::from_secs(20), "{took:?}");
}

/// A master connection (ControlPersist) stays and holds both pipes.
#[test]
fn who_merely_holds_the_pipes_is_not_waited_for() {
    let (outcome, took) = ask("echo yes; sleep 20 & exit 0", Duration::from_secs(15));
    assert_eq!(outcome.ok().unwrap().output, b"yes\n");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn endless_output_is_cut() {
    let (outcome, _) =
        ask("i=0; while [ $i -lt 3000 ]; do echo 0123456789; i=$((i+1)); done", Duration::from_secs(30));
    let ran = outcome.ok().unwrap();
    assert!(ran.is_cut);
    assert_eq!(ran.output.len(), 10);
}

/// The greeting of a login shell is no part of an answer; nor is a file left that nobody wanted.
#[test]
fn answers_of_any_size_go_to_files_and_begin_where_they_begin() {
    let folder = tempfile::tempdir().unwrap();
    // The second beginning comes in two pieces; n7 says nothing of use, n8 too much.
    let script = "for host; do :; done; case \"$host\" in *n1*) printf 'hello\\n(BEGIN)body';; \
                  *n2*) printf 'hi (BE'; sleep 0.2; printf 'GIN)more'; exit 3;; *n7*) echo no;; \
                  *) printf '(BEGIN)'; yes;; esac";
    let ssh = stub(folder.path(), script);
    let (hosts, program) = (words(&["n1", "n2", "n7", "n8"]), Program::Named("r".to_owned()));
    let spool = Spool::new(folder.path(), b"(BEGIN)");
    let mut seen = Vec::new();
    let asked: Vec<Vec<String>> = hosts.iter().map(|host| vec![host.clone()]).collect();
    for (host, args) in hosts.iter().zip(&asked) {
        let one = std::slice::from_ref(host);
        let fanout = Fanout { spool: Some(&spool), max_bytes: 100_000, ..fanout(&ssh, one, &program, args) };
        fanout
            .run(|answer| {
                let (ran, spooled) = (answer.outcome.ok().unwrap(), answer.spooled.unwrap());
                seen.push((ran.status, spooled.n_bytes(), ran.is_cut));
                assert_eq!((ran.n_output, ran.output.len()), (spooled.n_bytes(), 0));
                if host != "n8" {
                    spooled.keep_as(&folder.path().join(host)).unwrap();
                }
                Ok::<(), ()>(())
            })
            .unwrap();
    }
    assert_eq!(seen[..3], [(Some(0), 11, false), (Some(3), 11, false), (Some(0), 0, false)]);
    assert_eq!((seen[3].1, seen[3].2), (100_000, true));
    let read = |host: &str| std::fs::read_to_string(folder.path().join(host)).unwrap();
    assert_eq!((&*read("n1"), &*read("n2")), ("(BEGIN)body", "(BEGIN)more"));
    let mut left: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["n1", "n2", "ssh"]);
}

#[test]
fn what_ssh_fails_at_is_told_apart() {
    use SilenceKind::{Refused, Unreachable};
    let of = |said: &str| {
        let silence = ask(&format!("echo '{said}' >&2; exit 255"), Duration::from_secs(30)).0.err().unwrap();
        (silence.kind, silence.why)
    };
    assert_eq!(
        of("ssh: connect to host 10.0.0.7 port 22: Connection refused"),
        (Unreachable, "Connection refused".to_owned())
    );
    assert_eq!(
        of("ssh: Could not resolve hostname n7: Name or service not known"),
        (Unreachable, "Name or service not known".to_owned())
    );
    assert_eq!(
        of("root@n7: Permission denied (publickey)."),
        (Refused, "Permission denied (publickey).".to_owned())
    );
    assert_eq!(of("Host key verification failed.").0, Refused);
    assert_eq!(of("").1, "ssh ended with 255 and said nothing");
}
