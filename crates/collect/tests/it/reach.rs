//! The probe `reach` in real network namespaces: needs root and iproute2, and says so where it has them not.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use ringleader_node::{Outcome, Reach, ReachFailure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A small network: `a` with a jumbo link to a router `r`, which leads to `b` by a link of 1500; `a` also has a jumbo
/// link to `c`, which takes 1500 and says nothing of what is larger; and an interface that leads nowhere.
struct Fabric {
    name: String,
    folder: tempfile::TempDir,
}

/// What `a` gets: r's routes to nowhere, with and without a message.
const SILENT: &str = "10.77.5.9";
const UNREACHABLE: &str = "10.77.6.9";

impl Fabric {
    /// None, with the reason printed, where namespaces cannot be made.
    #[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
    fn new(tag: &str) -> Option<Self> {
        let name = format!("rl{tag}{}", std::process::id());
        let fabric = Self { name, folder: tempfile::tempdir().unwrap() };
        let made = run(&format!("ip netns add {}a", fabric.name));
        if let Err(why) = made {
            // Captured unless the test fails or is run with --nocapture, as tests are.
            println!("SKIPPED: network namespaces need root and iproute2: {why}");
            return None;
        }
        let n = &fabric.name;
        for other in ["r", "b", "c"] {
            run(&format!("ip netns add {n}{other}")).unwrap();
        }
        let etc = fabric.etc();
        fs::create_dir_all(&etc).unwrap();
        fs::write(etc.join("resolv.conf"), "nameserver 127.0.0.1\noptions attempts:1 timeout:5\n").unwrap();
        fs::write(etc.join("hosts"), "127.0.0.1 localhost\n127.0.1.1 trapped\n10.77.2.2 node-b\n").unwrap();
        for line in [
            "-n @a link set lo up",
            "-n @b link set lo up",
            "-n @a link add up0 mtu 9000 type veth peer name down0 netns @r mtu 9000",
            "-n @a addr add 10.77.1.2/24 dev up0",
            "-n @a link set up0 up",
            "-n @r addr add 10.77.1.1/24 dev down0",
            "-n @r link set down0 up",
            "-n @a route add default via 10.77.1.1",
            "-n @r link add down1 mtu 1500 type veth peer name up0 netns @b mtu 1500",
            "-n @r addr add 10.77.2.1/24 dev down1",
            "-n @r link set down1 up",
            "-n @b addr add 10.77.2.2/24 dev up0",
            "-n @b link set up0 up",
            "-n @b route add default via 10.77.2.1",
            "-n @a link add jumbo0 mtu 9000 type veth peer name small0 netns @c mtu 1500",
            "-n @a addr add 10.77.3.2/24 dev jumbo0",
            "-n @a link set jumbo0 up",
            "-n @c addr add 10.77.3.3/24 dev small0",
            "-n @c link set small0 up",
            "-n @a link add lost0 type veth peer name lost1",
            "-n @a addr add 10.99.0.2/24 dev lost0",
            "-n @a link set lost0 up",
            "-n @a link set lost1 up",
            "-n @r route add blackhole 10.77.5.0/24",
            "-n @r route add unreachable 10.77.6.0/24",
            "netns exec @r sysctl -qw net.ipv4.ip_forward=1",
        ] {
            run(&format!("ip {}", line.replace('@', n))).unwrap();
        }
        Some(fabric)
    }

    fn etc(&self) -> PathBuf {
        Path::new("/etc/netns").join(format!("{}a", self.name))
    }

    /// Does something in one of the namespaces; sockets it makes stay there.
    fn within<T: Send>(&self, which: &str, does: impl FnOnce() -> T + Send) -> T {
        let namespace = fs::File::open(format!("/run/netns/{}{which}", self.name)).unwrap();
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(
                    std::os::fd::AsFd::as_fd(&namespace),
                    Some(LinkNameSpaceType::Network),
                )
                .unwrap();
                does()
            });
            inside.join().unwrap()
        })
    }

    /// A process in `a` with this environment.
    fn rank(&self, environment: &[(&str, &str)]) -> Rank {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("{}a", self.name), "sleep", "60"]);
        command.env_clear().env("PATH", std::env::var("PATH").unwrap()).envs(environment.iter().copied());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let exe = format!("/proc/{}/exe", child.id());
        while !fs::read_link(&exe).is_ok_and(|path| !path.ends_with("ip")) {
            thread::yield_now();
        }
        Rank(child)
    }

    /// The probe's answer in `a`.
    fn reach(&self, request: &str) -> Vec<Reach> {
        let file = self.folder.path().join("request.json");
        fs::write(&file, request).unwrap();
        let probe = std::env::current_exe().unwrap().parent().unwrap().join("../examples/probe");
        let output = Command::new("ip")
            .args(["netns", "exec", &format!("{}a", self.name)])
            .arg(probe)
            .arg("reach")
            .arg(file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let outcome: Outcome<Vec<Reach>> = serde_json::from_str(&said)
            .unwrap_or_else(|e| panic!("{e}: {said} {}", String::from_utf8_lossy(&output.stderr)));
        match outcome {
            Outcome::Seen(reach) => reach,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        for which in ["a", "r", "b", "c"] {
            let _ = run(&format!("ip netns del {}{which}", self.name));
        }
        let _ = fs::remove_dir_all(self.etc());
    }
}

/// A process of ours that is ended with the test.
struct Rank(Child);

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .map_err(|error| format!("{line}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(format!("{line}: {said}")) }
}

fn found<'a>(reach: &'a [Reach], target: &str, interface: Option<&str>) -> &'a Reach {
    reach
        .iter()
        .find(|r| r.target == target && r.interface.as_deref() == interface)
        .unwrap_or_else(|| panic!("{target} {interface:?} is not in {reach:#?}"))
}

#[test]
fn answered_refused_silent_and_unreachable_are_four_things() {
    let Some(fabric) = Fabric::new("four") else { return };
    let listening = fabric.within("b", || TcpListener::bind("10.77.2.2:29500").unwrap());
    let started = Instant::now();
    let reach = fabric.reach(&format!(
        r#"{{"connect_ms": 500, "peers": [
            {{"host": "node-b", "port": 29500}}, {{"host": "10.77.2.2", "port": 29501}},
            {{"host": "{SILENT}", "port": 29500}}, {{"host": "{UNREACHABLE}", "port": 29500}},
            {{"host": "10.77.2.2", "port": 29500, "interface": "lost0"}}, {{"host": "127.0.0.1", "port": 9}}]}}"#
    ));
    // Far below what the kernel would wait for a silent peer.
    assert!(started.elapsed().as_millis() < 4_000, "{:?}", started.elapsed());
    let there = found(&reach, "node-b:29500", None);
    assert!(there.answered_ms.is_some() && !there.is_refused && there.failure.is_none(), "{there:?}");
    assert_eq!(
        (there.from.as_deref(), there.addresses.as_slice()),
        (Some("10.77.1.2"), ["10.77.2.2".to_owned()].as_slice())
    );
    let refused = found(&reach, "10.77.2.2:29501", None);
    assert!(refused.is_refused && refused.failure_kind.is_none(), "{refused:?}");
    let silent = found(&reach, &format!("{SILENT}:29500"), None);
    assert_eq!(silent.failure_kind, Some(ReachFailure::TimedOut), "{silent:?}");
    let nowhere = found(&reach, &format!("{UNREACHABLE}:29500"), None);
    assert_eq!(nowhere.failure_kind, Some(ReachFailure::NoRoute), "{nowhere:?}");
    // The same peer, from an address that it knows no way back to.
    let lost = found(&reach, "10.77.2.2:29500", Some("lost0"));
    assert_eq!(lost.failure_kind, Some(ReachFailure::TimedOut), "{lost:?}");
    assert!(found(&reach, "127.0.0.1:9", None).is_local);
    drop(listening);
}

#[test]
fn a_path_narrower_than_the_interface_is_measured() {
    let Some(fabric) = Fabric::new("path") else { return };
    let reach = fabric.reach(
        r#"{"peers": [{"host": "10.77.2.2", "port": 1}, {"host": "10.77.3.3", "port": 1}, {"host": "10.77.1.1", "port": 1}]}"#,
    );
    let by_router = found(&reach, "10.77.2.2:1", None);
    assert_eq!((by_router.path_mtu, by_router.large_vanish), (Some(1500), false), "the router said so");
    let silently = found(&reach, "10.77.3.3:1", None);
    assert_eq!((silently.path_mtu, silently.large_vanish), (Some(1500), true), "nobody said so");
    let jumbo = found(&reach, "10.77.1.1:1", None);
    assert_eq!((jumbo.path_mtu, jumbo.large_vanish), (Some(9000), false));
}

#[test]
fn a_name_service_that_never_answers_costs_its_deadline_alone() {
    let Some(fabric) = Fabric::new("name") else { return };
    let server = fabric.within("a", || UdpSocket::bind("127.0.0.1:53").unwrap());
    let listening = fabric.within("b", || TcpListener::bind("10.77.2.2:29500").unwrap());
    let answering = server.try_clone().unwrap();
    // Says of `nobody` that there is none, and nothing of anything else.
    thread::spawn(move || {
        let mut packet = [0_u8; 512];
        while let Ok((n, from)) = answering.recv_from(&mut packet) {
            let question = &mut packet[..n];
            if question[12..].starts_with(b"\x06nobody") {
                question[2..4].copy_from_slice(&[0x81, 0x83]);
                let _ = answering.send_to(question, from);
            }
        }
    });
    let started = Instant::now();
    let reach = fabric.reach(
        r#"{"connect_ms": 400, "peers": [{"host": "silent.example", "port": 1}, {"host": "nobody.example", "port": 1},
            {"host": "node-b", "port": 29500}, {"host": "trapped", "port": 1}]}"#,
    );
    let took = started.elapsed().as_millis();
    // The resolver itself would wait 5 s.
    assert!((400..4_000).contains(&took), "{took} ms");
    let silent = found(&reach, "silent.example:1", None);
    assert_eq!(silent.failure_kind, Some(ReachFailure::LookupTimedOut), "{silent:?}");
    let nobody = found(&reach, "nobody.example:1", None);
    assert_eq!(nobody.failure_kind, Some(ReachFailure::Unresolved), "{nobody:?}");
    assert!(found(&reach, "node-b:29500", None).answered_ms.is_some(), "the file of hosts is asked first");
    let trapped = found(&reach, "trapped:1", None);
    assert_eq!((trapped.addresses.as_slice(), trapped.is_local), (["127.0.1.1".to_owned()].as_slice(), true));
    drop(listening);
}

#[test]
fn the_master_of_a_rank_is_never_tried() {
    let Some(fabric) = Fabric::new("rank") else { return };
    let listening = fabric.within("b", || TcpListener::bind("10.77.2.2:29500").unwrap());
    let env = [
        ("RANK", "1"),
        ("MASTER_ADDR", "10.77.2.2"),
        ("MASTER_PORT", "29500"),
        ("NCCL_SOCKET_IFNAME", "=lost0"),
    ];
    let rank = fabric.rank(&env);
    let pids = [rank.0.id()];
    let reach = fabric.reach(&format!(r#"{{"connect_ms": 400, "target": {{"pids": {pids:?}}}}}"#));
    assert!(reach.iter().all(|r| r.answered_ms.is_none()), "{reach:?}");
    listening.set_nonblocking(true).unwrap();
    let came = listening.accept().map_err(|e| e.kind());
    assert_eq!(came.err(), Some(std::io::ErrorKind::WouldBlock), "somebody connected to the job's port");
}
