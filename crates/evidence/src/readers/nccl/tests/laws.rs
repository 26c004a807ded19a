//! What holds for any input.

use std::io::Read;

use super::*;

/// Gives at most `step` bytes a call, and fails after `good` bytes if asked to.
struct Slow<'a> {
    rest: &'a [u8],
    step: usize,
}

impl Read for Slow<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = self.step.min(self.rest.len()).min(to.len());
        let (now, later) = self.rest.split_at(n);
        to[..n].copy_from_slice(now);
        self.rest = later;
        Ok(n)
    }
}

fn read_slowly(bytes: &[u8], step: usize, limits: &Limits) -> (Extract, u64) {
    let mut extract = Extract::default();
    let mut sink = Sink::open("log", limits, &mut extract);
    let size = crate::text::read_text(
        b"",
        &mut Slow { rest: bytes, step },
        &mut crate::text::Room::default(),
        &mut sink,
    );
    sink.close(size);
    (extract, size)
}

/// Lines of a small job, as several releases write them, with the pointers of `pid`.
fn lines_of(pid: u32) -> Vec<String> {
    let heads = ["", "[2026-11-20 08:21:25] "];
    let texts = [
        "NCCL INFO NCCL version 2.28.9+cuda13.0",
        "NCCL INFO Bootstrap: Using eth0:10.0.0.1<0>",
        "NCCL INFO ncclCommInitRank comm 0xaa0 rank 1 nranks 8 cudaDev 1 nvmlDev 5 busId 1b000 commId 0xdd - Init START",
        "NCCL INFO Channel 00/0 : 1[1] -> 2[2] via P2P/CUMEM",
        "NCCL INFO Channel 01/0 : 1[1] -> 2[2] via P2P/CUMEM",
        "NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM/read",
        "NCCL INFO ncclCommInitRank comm 0xaa0 rank 1 nranks 8 cudaDev 1 nvmlDev 5 busId 1b000 commId 0xdd - Init COMPLETE",
        "NCCL INFO AllReduce: opCount 1 sendbuff 0x7f12 recvbuff 0x5 count 512 datatype 9 op 4 root 0 comm 0xaa0 [nranks=8] stream 0x55",
        "NCCL INFO Send: opCount 1f sendbuff 0x7f12 recvbuff (nil) count 12 datatype 7 op 0 root 3 comm 0xaa0 [nranks=8] stream (nil)",
        "init.cc:904 NCCL WARN Cuda failure 'out of memory'",
        "NCCL INFO init.cc:1582 -> 1",
        "NCCL INFO NCCL_P2P_DISABLE set by environment to 1.",
        "NCCL INFO comm 0xaa0 rank 1 nranks 8 cudaDev 1 busId 1b000 - Destroy COMPLETE",
    ];
    texts.iter().enumerate().map(|(at, text)| format!("{}vm:{pid}:{pid} [1] {text}", heads[at % 2])).collect()
}

/// What was read of one process, without lines and offsets, which other processes' lines shift.
fn content(log: &NcclLog, pid: u32) -> String {
    let mut log = log.clone();
    let at = log
        .processes
        .iter()
        .position(|p| p.who.pid.is_some_and(|p| p.0 == pid))
        .map_or(u32::MAX, |p| p as u32);
    let comms: Vec<u32> =
        (0..log.comms.len() as u32).filter(|c| log.comms[*c as usize].process == at).collect();
    let mut out = String::new();
    for call in log.calls.iter().filter(|c| comms.contains(&c.comm)) {
        let nth = comms.iter().position(|c| *c == call.comm);
        writeln!(
            out,
            "{:?}",
            (nth, call.kind, call.op_count, call.count, call.datatype, call.redop, call.root, call.at_s)
        )
        .unwrap();
    }
    for comm in log.comms.iter_mut().filter(|c| c.process == at) {
        let seen = [&comm.started, &comm.completed, &comm.destroyed, &comm.aborted].map(Option::is_some);
        (comm.started, comm.completed, comm.destroyed, comm.aborted, comm.process) =
            (None, None, None, None, 0);
        writeln!(out, "{comm:?} {seen:?}").unwrap();
    }
    for m in log.messages.iter().filter(|m| m.process == at) {
        writeln!(out, "{:?} {} {:?} {:?}", m.origin, m.text, m.result, m.at).unwrap();
    }
    for b in log.backtraces.iter().filter(|b| b.process == at) {
        writeln!(out, "{} {}", b.origin, b.result).unwrap();
    }
    for l in log.links.iter().filter(|l| l.process == at) {
        writeln!(out, "{:?} {:?} {} {}", l.from, l.to, l.transport, l.n_channels).unwrap();
    }
    for s in log.settings.iter().filter(|s| s.process == at) {
        writeln!(out, "{}={}", s.name, s.value).unwrap();
    }
    if let Some(p) = log.processes.get(at as usize) {
        writeln!(out, "{:?} {:?} {:?} {:?}", p.nccl_version, p.bootstrap, p.network, p.last_at).unwrap();
    }
    out
}

/// `part` says nothing that `whole` does not say in the same place.
fn assert_prefix(part: &NcclLog, whole: &NcclLog) {
    assert!(part.calls.len() <= whole.calls.len(), "calls");
    for (a, b) in part.calls.iter().zip(&whole.calls) {
        // A stranger's end, further on, may show who it was.
        assert!(a.comm == b.comm || part.comms.get(a.comm as usize).is_none(), "{a:?} {b:?}");
        assert_eq!(
            (a.line, a.kind, a.op_count, a.count, a.root),
            (b.line, b.kind, b.op_count, b.count, b.root)
        );
    }
    assert!(part.backtraces.len() <= whole.backtraces.len(), "back-traces");
    for (a, b) in part.backtraces.iter().zip(&whole.backtraces) {
        assert_eq!((&a.origin, a.result, a.cite.line), (&b.origin, b.result, b.cite.line));
    }
    assert!(whole.settings.starts_with(&part.settings), "settings");
    assert!(part.links.len() <= whole.links.len(), "links");
    for (a, b) in part.links.iter().zip(&whole.links) {
        assert_eq!((a.from, a.to, &a.transport, a.cite.line), (b.from, b.to, &b.transport, b.cite.line));
        assert!(a.n_channels <= b.n_channels);
    }
    assert!(part.comms.len() <= whole.comms.len(), "communicators");
    for (a, b) in part.comms.iter().zip(&whole.comms) {
        assert_eq!((a.process, a.ptr, a.rank, a.n_ranks), (b.process, b.ptr, b.rank, b.n_ranks));
        for (a, b) in [(a.started, b.started), (a.completed, b.completed), (a.destroyed, b.destroyed)] {
            assert!(a.is_none() || a.map(|c| c.line) == b.map(|c| c.line));
        }
    }
    assert!(part.messages.len() <= whole.messages.len(), "messages");
    for (at, (a, b)) in part.messages.iter().zip(&whole.messages).enumerate() {
        let is_last = at + 1 == part.messages.len();
        assert!(
            a.text == b.text || is_last && b.text.starts_with(a.text.trim_end_matches('\u{fffd}')),
            "{a:?} {b:?}"
        );
        assert!(a.result.is_none() || a.result == b.result);
    }
    // The one without a name is a version that rank 0 printed without a head; it comes last.
    for (a, b) in part.processes.iter().zip(&whole.processes).filter(|(a, _)| !a.who.is_nobody()) {
        assert_eq!((&a.who, a.first.map(|c| c.line)), (&b.who, b.first.map(|c| c.line)));
    }
}

#[test]
fn a_recording_cut_at_any_byte_gives_the_beginning_of_what_the_whole_gives() {
    for (name, file) in [("nodes-wrong-ifname", "nccl_node2_3173.log"), ("duplicate-gpu", "nccl_vm_2220.log")]
    {
        let bytes = load(&evidence(name).join(file));
        let whole = read(&bytes);
        for cut in (0..bytes.len()).step_by(3) {
            assert_prefix(&read(&bytes[..cut]), &whole);
        }
    }
    let bytes = load(&evidence("illegal-access").join("nccl_vm_1456.log"));
    let whole = read(&bytes);
    for cut in (0..bytes.len()).step_by(197).chain(bytes.len() - 400..bytes.len()) {
        assert_prefix(&read(&bytes[..cut]), &whole);
    }
}

#[test]
fn a_reading_error_ends_the_file_with_a_note() {
    struct Fails(bool);
    impl Read for Fails {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(std::io::Error::other("stale file handle"));
            }
            to[..12].copy_from_slice(b"NCCL WARN x\n");
            Ok(12)
        }
    }
    let mut extract = Extract::default();
    let limits = Limits::default();
    let mut sink = Sink::open("log", &limits, &mut extract);
    assert_eq!(
        crate::text::read_text(b"", &mut Fails(false), &mut crate::text::Room::default(), &mut sink),
        12
    );
    sink.close(12);
    let told = extract.observations.iter().filter(|o| !matches!(o.fact, ringleader_model::Fact::Words(_)));
    assert_eq!((told.count(), extract.notes.len()), (1, 1));
    assert!(extract.notes[0].text.contains("stale file handle"), "{:?}", extract.notes);
}

#[test]
fn a_line_without_end_is_passed_over_within_bounded_room() {
    let limits = Limits { max_line_bytes: 1000, ..Limits::default() };
    let mut bytes = vec![b'x'; 3_000_000];
    bytes.extend_from_slice(b"\nNCCL WARN after\n");
    for step in [7_000, 1 << 20] {
        let mut extract = Extract::default();
        let mut room = crate::text::Room::default();
        let mut sink = Sink::open("log", &limits, &mut extract);
        crate::text::read_text(b"", &mut Slow { rest: &bytes, step }, &mut room, &mut sink);
        sink.close(0);
        assert!(room.block.len() < 1 << 20, "{}", room.block.len());
        assert_eq!(extract.notes.len(), 1);
        assert_eq!(extract.observations[0].cite.line, 2);
        assert_eq!(extract.observations[0].cite.start, 3_000_001);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_mixture_of_its_own_pieces_is_read_without_panic(
        picks in proptest::collection::vec((0_usize..13, 0_usize..160, 0_usize..160), 1..20),
    ) {
        let lines = lines_of(7);
        let mut bytes = Vec::new();
        for (line, from, to) in picks {
            let line = lines[line].as_bytes();
            bytes.extend_from_slice(&line[from.min(line.len())..]);
            bytes.extend_from_slice(&line[..to.min(line.len())]);
            if to % 3 > 0 {
                bytes.push(b'\n');
            }
        }
        let log = read(&bytes);
        // Cut between lines: a cut inside a torn line has no right answer.
        for (at, _) in bytes.iter().enumerate().filter(|(_, b)| **b == b'\n') {
            assert_prefix(&read(&bytes[..=at]), &log);
        }
    }

    #[test]
    fn where_reads_end_changes_nothing(
        step in 1_usize..400,
        max in 20_usize..300,
        ends in proptest::collection::vec(0_usize..400, 1..12),
    ) {
        let limits = Limits { max_line_bytes: max, ..Limits::default() };
        let mut bytes = lines_of(7).join("\n").into_bytes();
        for (at, n) in ends.into_iter().enumerate() {
            bytes.extend_from_slice(&vec![b'a' + at as u8; n]);
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(lines_of(7)[7].as_bytes());
        let (whole, size) = read_slowly(&bytes, usize::MAX, &limits);
        prop_assert_eq!(size, bytes.len() as u64);
        let (parts, size) = read_slowly(&bytes, step, &limits);
        prop_assert_eq!(size, bytes.len() as u64);
        prop_assert_eq!(whole.observations, parts.observations);
        prop_assert_eq!(whole.notes, parts.notes);
    }

    #[test]
    fn interleaving_processes_changes_nothing_for_either(order in proptest::collection::vec(any::<bool>(), 26)) {
        let (mut a, mut b) = (lines_of(7).into_iter(), lines_of(8).into_iter());
        let mut mixed = Vec::new();
        for first in order {
            let next = if first { a.next().or_else(|| b.next()) } else { b.next().or_else(|| a.next()) };
            mixed.extend(next);
        }
        let mixed = read((mixed.join("\n") + "\n").as_bytes());
        for pid in [7, 8] {
            let alone = read((lines_of(pid).join("\n") + "\n").as_bytes());
            prop_assert_eq!(content(&mixed, pid), content(&alone, pid));
            prop_assert!(!alone.calls.is_empty());
        }
    }

    #[test]
    fn a_launchers_prefix_adds_who_and_takes_nothing(rank in 0_u32..500, prefix in 0_usize..9) {
        let (before, said) = match prefix {
            0 => (format!("[rank{rank}]: "), true),
            1 => (format!("{rank}: "), true),
            2 => (format!("[1,{rank}]<stdout>:"), true),
            3 => (format!("[default{rank}]:"), false),
            4 => (format!("(Worker pid={rank}, ip=10.0.0.1) "), false),
            5 => ("2026-11-20T08:21:25Z stdout F ".to_owned(), false),
            6 => ("Nov 20 08:21:25 node-7 python[9]: ".to_owned(), false),
            7 => (format!("node{rank}: "), false),
            _ => (format!("[default0]:[rank{rank}]:"), true),
        };
        let plain = read((lines_of(7).join("\n") + "\n").as_bytes());
        let lines: Vec<_> = lines_of(7).iter().map(|l| format!("{before}{l}\n")).collect();
        let mut tagged = read(lines.concat().as_bytes());
        prop_assert_eq!(tagged.processes.len(), 1);
        prop_assert_eq!(tagged.processes[0].who.rank.map(|r| r.0), said.then_some(rank));
        if prefix == 5 || prefix == 6 {
            // These give time to lines that had none.
            for m in tagged.messages.iter_mut().chain(&mut plain.clone().messages) {
                m.at = None;
            }
            prop_assert_eq!(tagged.n_lines, plain.n_lines);
        } else {
            prop_assert_eq!(content(&tagged, 7), content(&plain, 7));
        }
    }
}
