//! Logs that the benches make.
#![allow(dead_code, reason = "each bench takes what it needs")]

use std::fmt::Write as _;

/// An NCCL_DEBUG log of `n_bytes` of `n_processes` ranks whose lines take turns.
pub(crate) fn nccl(n_bytes: usize, pid: u32, n_processes: u32) -> Vec<u8> {
    let mut out = String::with_capacity(n_bytes + 1024);
    for rank in 0..n_processes {
        let pid = pid + rank;
        let _ = writeln!(
            out,
            "vm:{pid}:{pid} [{rank}] NCCL INFO ncclCommInitRank comm 0x55d1c0a1{pid:04x} rank {rank} \
            nranks 8 cudaDev {rank} nvmlDev {rank} busId {rank}b000 commId 0xd198a30de37ff204 - Init START"
        );
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut n_calls = 0_u64;
    while out.len() < n_bytes {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let rank = (random >> 60) as u32 % n_processes;
        let pid = pid + rank;
        let tid = pid + 56;
        let to = (rank + 1) % 8;
        let (minute, second) = (n_calls / 60_000 % 60, n_calls / 1000 % 60);
        let stamp = if random >> 59 & 1 == 0 {
            String::new()
        } else {
            format!("[2026-11-20 08:{minute:02}:{second:02}] ")
        };
        let head = format!("{stamp}vm:{pid}:{pid} [{rank}] NCCL INFO");
        let channel = random >> 20 & 31;
        let _ = match random >> 33 & 15 {
            0..=8 => {
                n_calls += 1;
                let name =
                    ["AllReduce", "AllGather", "ReduceScatter", "Broadcast"][(random >> 40 & 3) as usize];
                writeln!(
                    out,
                    "{head} {name}: opCount {n_calls:x} sendbuff 0x7f6e{:08x} recvbuff 0x7f6e{:08x} count {} \
                    datatype 7 op 0 root 0 comm 0x55d1c0a1{pid:04x} [nranks=8] stream 0x55d1bf{:06x}",
                    random as u32,
                    random as u32 ^ 0xff00,
                    random >> 44,
                    random & 0xff_ffff
                )
            }
            9 | 10 => writeln!(
                out,
                "{head} AllReduce: {} Bytes -> Algo RING proto LL channel{{Lo..Hi}}={{0..3}}",
                random >> 44
            ),
            11..=13 => writeln!(
                out,
                "vm:{pid}:{tid} [{rank}] NCCL INFO Channel {channel:02}/0 : {rank}[{rank}] -> {to}[{to}] via P2P/CUMEM"
            ),
            14 => writeln!(
                out,
                "vm:{pid}:{tid} [{rank}] NCCL INFO Connected to proxy localRank {rank} -> connection 0x7f6e{:08x}",
                random as u32
            ),
            _ => writeln!(
                out,
                "vm:{pid}:{tid} [{rank}] NCCL INFO UDS converted handle 0x{:08x} to fd 130 on remote peer {to}",
                random as u32
            ),
        };
    }
    out.into_bytes()
}

/// Bench log of a kernel: which lines, and how many.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    pub(crate) name: &'static str,
    quiet: &'static [&'static str],
    /// Every how many lines one is worth a statement.
    told_every: usize,
}

/// Contents that are measured.
pub(crate) const CONTENTS: [Content; 3] = [
    Content { name: "a month of a busy node", quiet: &QUIET, told_every: 200 },
    Content { name: "a server, 1 % of the devices", quiet: &SERVER, told_every: 100 },
    Content { name: "a flood", quiet: &QUIET, told_every: 1 },
];

/// What precedes each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Dmesg,
    DmesgT,
    DmesgX,
    Journal,
    Syslog,
    Iso,
    /// Syslog, every third line another program's.
    AllPrograms,
}

/// Forms that are measured.
pub(crate) const FORMS: [Form; 7] =
    [Form::Dmesg, Form::DmesgT, Form::DmesgX, Form::Journal, Form::Syslog, Form::Iso, Form::AllPrograms];

const QUIET: [&str; 6] = [
    "br77: port 3(vh2) entered blocking state",
    "audit: type=1400 audit(1795162385.123:77): apparmor=\"ALLOWED\" operation=\"open\" profile=\"x\" pid=77",
    "systemd-journald[812]: Received client request to flush runtime journal.",
    "perf: interrupt took too long (2502 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
    "NVRM: refcntRequestReference_IMPL: Failed to enter state 1 (current state: 0, status: 0x00000056)",
    "docker0: port 1(veth12ab) entered blocking state",
];
const SERVER: [&str; 10] = [
    "docker0: port 1(veth5f2c1ab) entered blocking state",
    "audit: type=1400 audit(1795162385.123:77): apparmor=\"DENIED\" operation=\"ptrace\" class=\"ptrace\" profile=\"docker-default\" pid=2281 comm=\"ps\" requested_mask=\"read\" denied_mask=\"read\" peer=\"unconfined\"",
    "veth5f2c1ab: renamed from eth0",
    "systemd[1]: Started session-4821.scope - Session 4821 of User root.",
    "device veth5f2c1ab entered promiscuous mode",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth5f2c1ab: link becomes ready",
    "audit: type=1326 audit(1795162385.999:78): auid=1000 uid=1000 gid=1000 ses=3 pid=9124 comm=\"chrome\" exe=\"/usr/bin/chrome\" sig=0 arch=c000003e syscall=273 compat=0 ip=0x7f6d5b9e code=0x50000",
    "TCP: request_sock_TCP: Possible SYN flooding on port 8080. Sending cookies.  Check SNMP counters.",
    "systemd-journald[812]: /var/log/journal/4b1f/system.journal: Journal header limits reached or header out-of-date, rotating.",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
];
const TOLD: [&str; 4] = [
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
    "Memory cgroup out of memory: Killed process 19289 (python3) total-vm:2676kB, anon-rss:84kB, file-rss:1468kB, shmem-rss:4kB, UID:0",
    "pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0",
    "mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN",
];
const OTHERS: [&str; 3] = [
    "systemd[1]: Started session-4821.scope - Session 4821 of User root.",
    "kubelet[2211]: I1120 08:21:34.512345 2211 reconciler_common.go:258] operationExecutor.MountVolume started for volume kube-api-access-x",
    "sshd[98214]: Accepted publickey for root from 10.0.0.7 port 51422 ssh2: RSA SHA256:abcdef",
];

/// A kernel's log of `n_bytes`.
pub(crate) fn kernel(n_bytes: usize, content: Content, form: Form) -> Vec<u8> {
    let mut log = String::with_capacity(n_bytes + 512);
    let mut n = 0_usize;
    let (mut hundredths, mut n_told) = (0_usize, 0_usize);
    while log.len() < n_bytes {
        n += 1;
        // Bursts with gaps between, as such logs come.
        hundredths += if n.is_multiple_of(16) { 400 } else { 1 };
        let text = if n.is_multiple_of(content.told_every) {
            n_told += 1;
            TOLD.get(n_told % TOLD.len())
        } else {
            content.quiet.get(n % content.quiet.len())
        };
        let text = text.copied().unwrap_or_default();
        let (s, us) = (hundredths / 100, hundredths % 100 * 10_000 + n * 7 % 10_000);
        let (day, hms) = (
            1 + s / 86_400 % 28,
            format_args!("{:02}:{:02}:{:02}", s / 3_600 % 24, s / 60 % 60, s % 60).to_string(),
        );
        let _ = match form {
            Form::Dmesg => writeln!(log, "[{s:>5}.{us:06}] {text}"),
            Form::DmesgT => writeln!(log, "[Fri Nov {day:>2} {hms} 2026] {text}"),
            Form::DmesgX => writeln!(log, "kern  :info  : [{s:>5}.{us:06}] {text}"),
            Form::Journal => writeln!(log, "Nov {day:>2} {hms} node7 kernel: {text}"),
            Form::Iso => writeln!(log, "2026-11-{day:02}T{hms}.{us:06}+00:00 node7 kernel: {text}"),
            Form::AllPrograms if n.is_multiple_of(3) => {
                let other = OTHERS.get(n / 3 % OTHERS.len()).copied().unwrap_or_default();
                writeln!(log, "Nov {day:>2} {hms} node7 {other}")
            }
            Form::Syslog | Form::AllPrograms => {
                writeln!(log, "Nov {day:>2} {hms} node7 kernel: [{s:>5}.{us:06}] {text}")
            }
        };
    }
    log.into_bytes()
}
