#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use ringleader_model::{Fact, KernelEventKind, NoteKind};
use ringleader_node::{
    Cgroup, Ecc, Gid, Gpu, Gpus, Interface, Jobs, KernelLog, Listener, Mount, Network, Node, NvLink, Outcome,
    Part, Pci, PciDevice, PcieLink, Process, RdmaPort, Reach, Route, Rows, SCHEMA, Segment, Service, Shm,
    System,
};

use crate::tell::{read, tell};

const AT_NS: i64 = 1_795_163_314_000_000_000;

fn process(pid: u32, ppid: u32, state: &str, rank: u32) -> Process {
    let variables = [("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", 2)];
    let mut environment: BTreeMap<String, String> =
        variables.iter().map(|(name, n)| ((*name).to_owned(), n.to_string())).collect();
    environment.insert("NCCL_SOCKET_IFNAME".to_owned(), "eth0".to_owned());
    environment.insert("HF_TOKEN".to_owned(), "never".to_owned());
    Process {
        pid,
        ppid,
        state: state.to_owned(),
        wchan: Some("futex_wait_queue".to_owned()),
        command: "python3".to_owned(),
        arguments: vec!["python3".to_owned(), "train.py".to_owned()],
        started_ns: AT_NS - 90_000_000_000,
        environment: Some(environment),
        limits: BTreeMap::from([("Max locked memory".to_owned(), (Some(65_536), None))]),
        cgroup: Some(Cgroup {
            path: "/job".to_owned(),
            memory_max: Some(1 << 30),
            memory_current: Some(1 << 20),
            oom_kills: Some(1),
            ..Cgroup::default()
        }),
        ..Process::default()
    }
}

/// A node with every part read and a finding in each.
#[expect(clippy::too_many_lines, reason = "one field for each reading of a node")]
fn node() -> Node {
    let gpu = Gpu {
        index: 1,
        uuid: Some("GPU-fc51bf99".to_owned()),
        pci: "0000:1b:00.0".to_owned(),
        name: "NVIDIA H200".to_owned(),
        power_w: Some(118.5),
        temperature_c: Some(41),
        slowdown_c: Some(88),
        clock_reasons: Some(0x40),
        volatile: Ecc { dram_uncorrected: Some(2), ..Ecc::default() },
        rows: Some(Rows { uncorrected: 1, pending: true, ..Rows::default() }),
        pcie: PcieLink { width: Some(8), width_max: Some(16), ..PcieLink::default() },
        links: vec![NvLink {
            number: 3,
            active: Some(false),
            counters: vec![("replay".to_owned(), 1, Some(7)), ("crc_flit".to_owned(), 0, Some(0))],
            ..NvLink::default()
        }],
        fabric_state: Some("completed".to_owned()),
        fabric_status: Some(0),
        recovery_action: Some("drain-and-reset".to_owned()),
        ..Gpu::default()
    };
    Node {
        schema: SCHEMA.to_owned(),
        host: "node7.cluster.example".to_owned(),
        at_ns: AT_NS,
        system: Part::of(System {
            uptime_s: 1_000.0,
            memory_total: 64 << 30,
            memory_available: 60 << 30,
            modules: BTreeMap::from([("nvidia".to_owned(), "580.95.05".to_owned())]),
            ..System::default()
        }),
        gpus: Part::of(Gpus {
            driver_version: Some("580.95.05".to_owned()),
            n_counted: 2,
            gpus: vec![gpu],
            failures: vec![(0, "GPU is lost".to_owned())],
            ..Gpus::default()
        }),
        pci: Part::of(Pci {
            kernel_options: "BOOT_IMAGE=/vmlinuz iommu=on".to_owned(),
            devices: vec![PciDevice {
                address: "0000:1b:00.0".to_owned(),
                vendor: 0x10de,
                acs: Some(vec!["ReqRedir".to_owned()]),
                width: Some(8),
                speed_gt_s: Some(32.0),
                ..PciDevice::default()
            }],
            ..Pci::default()
        }),
        kernel_log: Part::of(KernelLog {
            lines: vec![
                "6,1,1000000,-;systemd: started".to_owned(),
                "4,812,900000000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.".to_owned(),
            ],
            is_cut: true,
            also_in: None,
        }),
        services: Part::of(vec![Service {
            name: "nvidia-fabricmanager.service".to_owned(),
            load: "loaded".to_owned(),
            active: "failed".to_owned(),
            sub: "failed".to_owned(),
            version: Some("580.95.05".to_owned()),
        }]),
        rdma: Part::of(vec![RdmaPort {
            device: "mlx5_0".to_owned(),
            port: 1,
            state: "DOWN".to_owned(),
            phys_state: "Polling".to_owned(),
            rate_gbps: Some(400.0),
            rate_text: "400 Gb/sec (4X NDR)".to_owned(),
            link_layer: "InfiniBand".to_owned(),
            gids: vec![Gid {
                index: 3,
                gid: "0000:0000:0000:0000:0000:ffff:c000:0202".to_owned(),
                kind: "RoCE v2".to_owned(),
                netdev: Some("eth0".to_owned()),
            }],
            counters: BTreeMap::from([
                ("symbol_error".to_owned(), (1, Some(9))),
                ("port_rcv_packets".to_owned(), (5, Some(6))),
            ]),
            ..RdmaPort::default()
        }]),
        net: Part::of(Network {
            interfaces: vec![Interface {
                name: "eth0".to_owned(),
                is_up: true,
                operstate: "up".to_owned(),
                mtu: 9000,
                speed_mbps: Some(100_000),
                addresses: vec!["192.0.2.7/24".to_owned()],
                ..Interface::default()
            }],
            routes: vec![Route {
                to: "default".to_owned(),
                via: Some("192.0.2.1".to_owned()),
                interface: "eth0".to_owned(),
                metric: 100,
            }],
            listeners: vec![Listener {
                address: "0.0.0.0".to_owned(),
                port: 29500,
                pid: Some(9),
                command: Some("python3".to_owned()),
            }],
            ..Network::default()
        }),
        reach: Part::of(vec![
            Reach {
                purpose: "master-address".to_owned(),
                target: "node0:29500".to_owned(),
                failure: Some("name does not resolve".to_owned()),
                ..Reach::default()
            },
            Reach {
                purpose: "peer".to_owned(),
                target: "192.0.2.8:22".to_owned(),
                is_refused: true,
                ..Reach::default()
            },
        ]),
        shm: Part::of(Shm {
            size: 64 << 20,
            available: 0,
            segments: vec![
                Segment { name: "nccl-held".to_owned(), held_by: vec![9], ..Segment::default() },
                Segment {
                    name: "nccl-stale".to_owned(),
                    allocated: 40 << 20,
                    mode: 0o600,
                    modified_ns: AT_NS - 7_200_000_000_000,
                    ..Segment::default()
                },
            ],
            ..Shm::default()
        }),
        mounts: Part::of(vec![Mount {
            at: "/data".to_owned(),
            device: "nas:/data".to_owned(),
            kind: "nfs4".to_owned(),
            failure: Some("no answer within 1000 ms".to_owned()),
            used_by: vec![4711],
            ..Mount::default()
        }]),
        jobs: Part::of(Jobs {
            processes: vec![
                process(4711, 4000, "T", 0),
                process(4712, 4000, "S", 1),
                process(4713, 4712, "S", 1),
            ],
            chosen_by: "all processes with a rank".to_owned(),
            ..Jobs::default()
        }),
        ..Node::default()
    }
}

fn pretty(node: &Node) -> Vec<u8> {
    serde_json::to_vec_pretty(node).unwrap()
}

#[test]
fn every_part_gives_what_its_tool_would() {
    insta::assert_snapshot!(tell(&read("node.json", &pretty(&node()))));
}

#[test]
fn one_line_and_many_say_the_same() {
    let facts = |bytes: &[u8]| -> Vec<String> {
        let extract = read("node.json", bytes);
        extract.observations.iter().map(|o| format!("{:?} {:?} {}", o.who, o.at, o.text)).collect()
    };
    assert_eq!(facts(&serde_json::to_vec(&node()).unwrap()), facts(&pretty(&node())));
}

#[test]
fn processes_of_the_job_are_told_from_those_beside_it() {
    fn extra(pid: u32, ppid: u32, state: &str) -> Process {
        let (state, command) = (state.to_owned(), "python3".to_owned());
        Process { pid, ppid, state, command, ..Process::default() }
    }

    let own = |change: fn(&mut Jobs)| {
        let mut node = node();
        if let ringleader_node::Outcome::Seen(jobs) = &mut node.jobs.outcome {
            change(jobs);
        }
        let extract = read("node.json", &pretty(&node));
        let table = extract.observations.iter().find_map(|o| match &o.fact {
            Fact::Processes(table) => Some(table.clone()),
            _ => None,
        });
        let rows = table.unwrap().rows;
        let is_own = |row: &&ringleader_model::ProcessRow| row.picked.as_ref().unwrap().is_of_job;
        rows.iter().filter(is_own).map(|row| row.pid.unwrap().0).collect::<Vec<_>>()
    };
    // Ranks with their children; the launcher and a stranger are not.
    assert_eq!(own(|_| {}), [4711, 4712, 4713]);
    let beside = |jobs: &mut Jobs| {
        let command = jobs.processes[0].command.clone();
        jobs.processes.push(Process { command: command.clone(), ..extra(1, 0, "S") });
        jobs.processes
            .push(Process { hidden: Some("it is another user's".to_owned()), ..extra(4714, 4000, "D") });
        jobs.processes.push(Process { command, ..extra(4715, 4000, "Z") });
        jobs.processes
            .push(Process { hidden: Some("it is another user's".to_owned()), ..extra(4716, 1, "S") });
    };
    assert_eq!(own(beside), [4711, 4712, 4713, 4714, 4715]);
    // Asked for by number, where nothing has a rank.
    let asked = |jobs: &mut Jobs| {
        jobs.processes.iter_mut().for_each(|p| p.environment = None);
        jobs.chosen_by = "pid 4712 and all below".to_owned();
    };
    assert_eq!(own(asked), [4712, 4713]);
}

#[test]
fn a_list_of_processes_that_could_not_be_had_says_why() {
    let jobs =
        Part { outcome: ringleader_node::Outcome::Failed("out of memory".to_owned()), ..Part::default() };
    let extract = read("node.json", &pretty(&Node { jobs, ..node() }));
    let unread = extract.observations.iter().find_map(|o| match &o.fact {
        Fact::Processes(table) => table.pick.as_ref()?.unread.clone(),
        _ => None,
    });
    assert_eq!(unread.as_deref(), Some("out of memory"));
}

#[test]
fn citations_stand_where_they_say() {
    let bytes = pretty(&node());
    let text = std::str::from_utf8(&bytes).unwrap();
    let extract = read("node.json", &bytes);
    let cited = |o: &ringleader_model::Observation| &text[o.cite.start as usize..o.cite.end as usize];
    let xid = extract
        .observations
        .iter()
        .find(|o| matches!(&o.fact, Fact::Kernel(event) if matches!(event.kind, KernelEventKind::Xid(_))))
        .unwrap();
    assert!(cited(xid).contains("GPU has fallen off the bus"), "{}", cited(xid));
    assert_eq!(text.lines().nth(xid.cite.line as usize - 1).unwrap().trim(), cited(xid));
    assert_eq!(xid.who.host.as_deref(), Some("node7"));
    assert_eq!(xid.at.unwrap().ns, AT_NS - 100_000_000_000, "900 s after a boot 1000 s ago");
    let rows = extract.observations.iter().find_map(|o| match &o.fact {
        Fact::Processes(table) => Some(&table.rows),
        _ => None,
    });
    for row in rows.unwrap() {
        let line = text.lines().nth(row.line as usize - 1).unwrap();
        assert!(line.contains(&row.pid.unwrap().0.to_string()), "{line}");
    }
}

#[test]
fn an_environment_is_of_a_rank_and_holds_no_secret() {
    let extract = read("node.json", &pretty(&node()));
    let environments: Vec<_> = extract
        .observations
        .iter()
        .filter_map(|o| match &o.fact {
            Fact::Environment(e) => Some((o.who.rank.unwrap().0, o.who.pid.unwrap().0, e.get("HF_TOKEN"))),
            _ => None,
        })
        .collect();
    // The child of rank 1 inherits all that its parent has, and is no rank.
    assert_eq!(environments, [(0, 4711, None), (1, 4712, None)]);
    assert!(extract.observations.iter().all(|o| !o.text.contains("never")));
}

/// A number that begins another, a text that looks like a field, a name that a text ends with.
#[test]
fn what_is_cited_is_the_whole_value() {
    let mut first = process(4711, 1, "S", 0);
    first.arguments =
        vec!["python3".to_owned(), "\"pid\": 471, \"state\": \"T\"".to_owned(), "pid".to_owned()];
    let jobs = Jobs { processes: vec![first, process(471, 1, "T", 1)], ..Jobs::default() };
    let node = Node {
        schema: SCHEMA.to_owned(),
        host: "n1".to_owned(),
        at_ns: AT_NS,
        jobs: Part::of(jobs),
        ..Node::default()
    };
    for bytes in [pretty(&node), serde_json::to_vec(&node).unwrap()] {
        let text = std::str::from_utf8(&bytes).unwrap();
        let whole = if text.contains("\"pid\": 471,\n") { "\"pid\": 471," } else { "\"pid\":471," };
        let place = text.find(whole).unwrap() as u64;
        let extract = read("node.json", &bytes);
        let cited: Vec<u64> = extract
            .observations
            .iter()
            .filter(|o| o.who.pid.is_some_and(|pid| pid.0 == 471))
            .map(|o| o.cite.start)
            .collect();
        assert!(!cited.is_empty());
        for start in cited {
            assert!(start >= place, "{}", &text[start as usize..start as usize + 40]);
        }
    }
}

/// Containers count from one: the number of the container where it is one process's alone, else the node's.
#[test]
fn two_containers_may_have_a_process_of_one_number() {
    let inner = |pid, inner, rank| {
        let mut process = process(pid, 1, "S", rank);
        process.inner_pid = Some(inner);
        process
    };
    let processes = vec![inner(900, 42, 0), inner(901, 42, 1), inner(902, 43, 2), process(43_000, 1, "S", 3)];
    let node = Node {
        schema: SCHEMA.to_owned(),
        host: "n1".to_owned(),
        at_ns: AT_NS,
        jobs: Part::of(Jobs { processes, ..Jobs::default() }),
        ..Node::default()
    };
    let extract = read("node.json", &pretty(&node));
    let of = |rank: u32| {
        let mut pids: Vec<u32> = extract
            .observations
            .iter()
            .filter(|o| o.who.rank.is_some_and(|r| r.0 == rank))
            .filter_map(|o| o.who.pid.map(|pid| pid.0))
            .collect();
        pids.dedup();
        pids
    };
    assert_eq!([of(0), of(1), of(2), of(3)], [[900], [901], [43], [43_000]]);
}

#[test]
fn a_part_that_hung_or_is_malformed_is_a_note() {
    let mut node = Node { schema: SCHEMA.to_owned(), host: "n1".to_owned(), ..Node::default() };
    node.gpus.outcome =
        Outcome::TimedOut { limit_ms: 2_000, stuck_in: "pid 12, state D, in nvidia_ioctl".to_owned() };
    node.rdma.outcome = Outcome::Absent("no RDMA device".to_owned());
    let mut value = serde_json::to_value(&node).unwrap();
    value["mounts"] = serde_json::json!({"outcome": {"seen": 12}});
    let extract = read("node.json", value.to_string().as_bytes());
    let notes: Vec<(NoteKind, &str)> = extract.notes.iter().map(|n| (n.kind, n.text.as_str())).collect();
    assert_eq!(
        notes[..2],
        [
            (
                NoteKind::Unreadable,
                "gpus of n1 were not read: no answer within 2000 ms: pid 12, state D, in nvidia_ioctl"
            ),
            (NoteKind::Remark, "rdma of n1 were not read: no RDMA device"),
        ]
    );
    assert!(notes[2].1.starts_with("mounts: could not be parsed"), "{notes:?}");
    assert_eq!(notes.len(), 3);
}

proptest! {
    #[test]
    fn a_cut_snapshot_never_panics(at in any::<prop::sample::Index>()) {
        let bytes = pretty(&node());
        let extract = read("node.json", &bytes[..at.index(bytes.len())]);
        prop_assert!(!extract.sources.is_empty());
    }

    #[test]
    fn a_damaged_snapshot_never_panics(
        at in any::<prop::sample::Index>(), with in prop::collection::vec(any::<u8>(), 1..40),
    ) {
        let mut bytes = pretty(&node());
        let at = at.index(bytes.len() - with.len());
        bytes[at..at + with.len()].copy_from_slice(&with);
        let extract = read("node.json", &bytes);
        prop_assert!(!extract.sources.is_empty());
    }

    #[test]
    fn numbers_of_any_size_never_panic(number in any::<i64>(), big in any::<u64>()) {
        let text = String::from_utf8(pretty(&node())).unwrap();
        let text = text.replace(&AT_NS.to_string(), &number.to_string()).replace("67108864", &big.to_string());
        prop_assert!(!read("node.json", text.as_bytes()).observations.is_empty());
    }
}
