//! The services that GPUs and clocks need, as reported by systemd; without systemd, whether their processes run.
//!
//! There is no library interface to systemd's state that a static program could use: `systemctl show` is asked once.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use ringleader_node::Service;

use crate::request::{ReadingError, Request};
use crate::sysfs::{names, text};

/// Services, and the name their process has in /proc (at most 15 characters).
const SERVICES: &[(&str, &str)] = &[
    ("nvidia-fabricmanager.service", "nv-fabricmanager"),
    ("nvidia-persistenced.service", "nvidia-persistenced"),
    ("nvidia-imex.service", "nvidia-imex"),
    ("nvidia-dcgm.service", "nv-hostengine"),
    ("chronyd.service", "chronyd"),
    ("chrony.service", "chronyd"),
    ("ntpd.service", "ntpd"),
    ("ntp.service", "ntpd"),
    ("ntpsec.service", "ntpd"),
    ("systemd-timesyncd.service", "systemd-timesyncd"),
    ("ptp4l.service", "ptp4l"),
    ("phc2sys.service", "phc2sys"),
];
/// Patience with one command, milliseconds.
const COMMAND_MS: u64 = 1_500;
/// Answer that is read of one command, bytes.
const MAX_ANSWER: u64 = 1 << 20;

pub(super) fn take(request: &Request) -> Result<Vec<Service>, ReadingError> {
    // Outside commands tell of this machine, not of a captured tree.
    let is_live = request.roots.proc == Path::new("/proc");
    if is_live && Path::new("/run/systemd/system").is_dir() {
        let mut arguments = vec!["show", "--no-pager", "--property=Id,LoadState,ActiveState,SubState"];
        arguments.extend(SERVICES.iter().map(|(unit, _)| *unit));
        let shown = run("systemctl", &arguments).map_err(ReadingError::Failed)?;
        let mut services = units(&shown);
        for service in &mut services {
            if service.name.starts_with("nvidia-fabricmanager") && service.load == "loaded" {
                // Where it does not say, its version stays unknown.
                service.version =
                    run("nv-fabricmanager", &["--version"]).ok().and_then(|said| version(&said));
            }
        }
        return Ok(services);
    }
    let running = running(&request.roots.proc);
    if running.is_empty() {
        return Err(ReadingError::Absent("no systemd here, and none of the services' processes".to_owned()));
    }
    Ok(running)
}

/// Answers of `systemctl show`: blocks of `Key=value`, an empty line between them.
fn units(shown: &str) -> Vec<Service> {
    let of = |block: &str| {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
            line.unwrap_or_default().to_owned()
        };
        Service {
            name: value("Id"),
            load: value("LoadState"),
            active: value("ActiveState"),
            sub: value("SubState"),
            version: None,
        }
    };
    shown.split("\n\n").map(of).filter(|service| !service.name.is_empty()).collect()
}

/// Services whose process runs; how they were started is not known.
fn running(proc: &Path) -> Vec<Service> {
    let mut found: Vec<Service> = Vec::new();
    for pid in names(proc) {
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let Some(comm) = text(&proc.join(&pid).join("comm")) else { continue };
        // The kernel cuts names after 15 characters.
        let service = SERVICES.iter().find(|(_, process)| process.get(..15).unwrap_or(process) == comm);
        if let Some((unit, _)) = service
            && found.iter().all(|other| other.name != *unit)
        {
            found.push(Service {
                name: (*unit).to_owned(),
                load: "process".to_owned(),
                active: "active".to_owned(),
                sub: format!("pid {pid}"),
                version: None,
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

/// `Fabric Manager version is : 580.95.05`.
fn version(said: &str) -> Option<String> {
    let is_version = |word: &&str| {
        word.contains('.')
            && word.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    said.split_whitespace().find(is_version).map(str::to_owned)
}

/// Standard output of a command; its standard error and status if it fails. One that does not end is killed.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let line = format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{line}: {error}"))?;
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take();
    thread::spawn(move || {
        let mut said = Vec::new();
        let _ = output.map(|output| output.take(MAX_ANSWER).read_to_end(&mut said));
        // The caller may have given up.
        let _ = sender.send(said);
    });
    let Ok(said) = receiver.recv_timeout(Duration::from_millis(COMMAND_MS)) else {
        // Our own child; it fails only if it has just ended.
        let _ = child.kill();
        return Err(format!("{line}: no answer within {COMMAND_MS} ms"));
    };
    let status = child.wait().map_err(|error| format!("{line}: {error}"))?;
    if status.success() {
        Ok(String::from_utf8_lossy(&said).into_owned())
    } else {
        Err(format!("{line}: {status}"))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::request::Roots;

    #[test]
    fn blocks_of_systemctl() {
        let shown = "Id=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=failed\nSubState=failed\n\n\
                     Id=nvidia-imex.service\nLoadState=not-found\nActiveState=inactive\nSubState=dead\n";
        let units = units(shown);
        assert_eq!(units.len(), 2);
        assert_eq!((units[0].active.as_str(), units[1].load.as_str()), ("failed", "not-found"));
        assert_eq!(version("Fabric Manager version is : 580.95.05\n").as_deref(), Some("580.95.05"));
    }

    #[test]
    fn processes_where_there_is_no_systemd() {
        let root = tempfile::tempdir().unwrap();
        let proc = root.path().join("proc");
        for (pid, comm) in [("10", "nv-fabricmanage\n"), ("11", "bash\n"), ("self", "chronyd\n")] {
            fs::create_dir_all(proc.join(pid)).unwrap();
            fs::write(proc.join(pid).join("comm"), comm).unwrap();
        }
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        let services = take(&request).unwrap();
        assert_eq!(services.len(), 1);
        assert_eq!(
            (services[0].name.as_str(), services[0].sub.as_str()),
            ("nvidia-fabricmanager.service", "pid 10")
        );
        fs::remove_dir_all(proc.join("10")).unwrap();
        assert!(matches!(take(&request), Err(ReadingError::Absent(_))));
    }

    #[test]
    fn a_command_that_fails_names_itself() {
        assert_eq!(run("false", &[]).unwrap_err(), "false : exit status: 1");
        assert!(
            run("/nonexistent/systemctl", &["show"]).unwrap_err().contains("/nonexistent/systemctl show")
        );
    }
}
