//! Every form of stamp and every sort of statement, from real lines; laws over real logs.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt::Write as _;

use proptest::prelude::*;
use ringleader_model::{Fact, KernelEvent, KernelEventKind as Kind, SourceKind};

use crate::tell::{read, read_all, recordings};

/// All that was read of a kernel log, one statement a line.
fn tell(text: &[u8]) -> String {
    let extract = read("dmesg.txt", text);
    let mut out = String::new();
    for o in &extract.observations {
        let Fact::Kernel(event) = &o.fact else { continue };
        write!(out, "{}", o.cite.line).unwrap();
        if let Some(us) = event.uptime_us {
            write!(out, " up {}.{:06}", us / 1_000_000, us % 1_000_000).unwrap();
        }
        if let Some(at) = o.at {
            let year = if at.has_year { "" } else { "?" };
            write!(out, " at {}.{:09}{year}", at.ns / 1_000_000_000, at.ns % 1_000_000_000).unwrap();
        }
        if let Some(host) = &o.who.host {
            write!(out, " on {host}").unwrap();
        }
        writeln!(out, " {}", say(event)).unwrap();
    }
    for note in &extract.notes {
        writeln!(out, "note {:?} line {}: {}", note.kind, note.cite.line, note.text).unwrap();
    }
    out
}

fn say(event: &KernelEvent) -> String {
    let device = event.device.map_or(String::new(), |d| format!("{d} "));
    let boot = if event.boot > 0 { format!("boot {} ", event.boot) } else { String::new() };
    let kind = match &event.kind {
        Kind::Xid(x) => {
            let mut out = format!("xid {}", x.code);
            let mut add = |name: &str, value: Option<String>| {
                if let Some(value) = value {
                    write!(out, " {name} {value}").unwrap();
                }
            };
            add("pid", x.pid.map(|p| p.0.to_string()));
            add("name", x.name.as_ref().map(|n| format!("'{n}'")));
            add("uuid", x.uuid.as_ref().map(ToString::to_string));
            add("gi", x.gpu_instance.map(|n| n.to_string()));
            add("unit", x.unit.as_ref().map(ToString::to_string));
            add("fatal", x.fatal.map(|f| f.to_string()));
            add("link", x.link.map(|n| n.to_string()));
            add("registers", (!x.registers.is_empty()).then(|| format!("{:x?}", x.registers)));
            add("after", x.caused_by.map(|n| n.to_string()));
            add("recovery", x.recovery_action.map(|n| n.to_string()));
            add("reset", x.needs_reset.map(|f| f.to_string()));
            let body: String = x.body.chars().take(48).collect();
            write!(out, " | {body}").unwrap();
            out
        }
        Kind::Covers(c) => format!(
            "covers {} lines, {:?} to {:?} us, boot {:?}",
            c.n_lines,
            c.first_us,
            c.last_us,
            c.booted_at.map(|b| b.ns / 1_000_000_000)
        ),
        other => format!("{other:?}"),
    };
    format!("{boot}{device}{kind}")
}

/// The statements of one line alone, without stamps.
fn check(line: &str, expected: &str) {
    let extract = read("x.log", format!("{line}\n").as_bytes());
    let said: Vec<String> = extract
        .observations
        .iter()
        .filter_map(|o| match &o.fact {
            Fact::Kernel(e) if !matches!(e.kind, Kind::Covers(_)) => Some(say(e)),
            _ => None,
        })
        .collect();
    assert_eq!(said.join("; "), expected, "{line}");
    let torch = extract.observations.iter().any(|o| matches!(o.fact, Fact::Torch(_)));
    assert!(said.is_empty() || !torch, "two readers took {line}");
}

pub(super) const XIDS: &str = r"NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter
NVRM: Xid (PCI:0000:01:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 0): Out Of Range Address
[  130.456250] [   T1946] NVRM: Xid (PCI:0000:2b:00): 31, pid=1942, name=llama-bench, channel 0x00000002, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC6 GPCCLIENT_T1_13 faulted @ 0x6f6f_320c2000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ
NVRM: Xid (PCI:0000:01:00): 31, Ch 0000003a, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_3 faulted @ 0x17_00592000. Fault is of type FAULT_PDE ACCESS_TYPE_READ
NVRM: Xid (PCI:0000:01:00): 43, pid=88, name=Plex Media Server, Ch 00000020, engmask 00000101
kernel: NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149
NVRM: Xid (PCI:0000:55:00): 48, An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0xe9b9107e0 partition 3, subpartition 0.
NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.
NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)
kernel: NVRM: Xid (PCI:0000:c1:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 1
[155044.078590] NVRM: Xid (PCI:0000:06:00): 79, GPU has fallen off the bus.
NVRM: Xid (PCI:0004:01:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
NVRM: Xid (PCI:0000:65:00): 94, pid='<unknown>', name=<unknown>, Contained: CE User Channel (0x9). RST: No, D-RST: No
NVRM: Xid (PCI:0000:37:00): 95, pid=5171, Uncontained: FBHUB. RST: Yes, D-RST: No
NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005
NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).
NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)
NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)
NVRM: Xid (PCI:0008:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000)
NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)
NVRM: Xid (PCI:0000:01:00 GPU-I:05): 43, pid=7, name=python, Ch 00000008
NVRM: Xid (PCI:0000:01:00 GPU-509665ad-c57a-f5f7-b3e0-10d79df1673c): 79, GPU has fallen off the bus.
NVRM: Xid (0000:03:00): 14, Channel 00000001
NVRM: Xid (PCI:0000:01:00): 999, pid=N/A, name=, something new
NVRM: Xid (PCI:0000:01:00): 7
NVRM: Xid (PCI:0000:01:00): x, y
";

#[test]
fn xids_of_every_form_are_read() {
    insta::assert_snapshot!(tell(XIDS.as_bytes()));
}

pub(super) const OTHERS: &str = r"NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.
NVRM: The NVIDIA GPU 0000:b3:00.0
NVRM: (PCI ID: 10de:26b5) installed in this system has
NVRM: fallen off the bus and is not responding to commands.
NVRM: GPU 0000:65:00.0: RmInitAdapter failed! (0x26:0x56:1463)
NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).  The GPU likely needs to be reset.
NVRM: API mismatch: the client 'python3' (pid 1234)
NVRM: has the version 535.104.05, but this kernel module has the version 535.129.03.
[131453.740743] nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
[131453.740758] nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}
nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00
nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)
pcieport 0000:00:03.0: AER: Multiple Uncorrected (Fatal) error received: 0000:00:03.0
pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)
pcieport 0000:00:03.0:   device [8086:6f08] error status/mask=00004020/00000000
pcieport 0000:00:03.0:    [ 5] SDES
pcieport 0000:00:03.0:    [14] CmpltTO                (First)
nvidia 0000:03:00.0: AER: can't recover (no error_detected callback)
pcieport 0000:00:03.0: AER: device recovery failed
pcieport 0000:00:00.0: AER: Correctable error message received from 0000:00:00.0
pcieport 0000:00:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)
pcieport 0000:00:00.0:    [12] Timeout
pcieport 0000:00:1c.0: AER: Corrected error received: id=00e5
nvidia 0000:3b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer, (Requester ID)
{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 0
{1}[Hardware Error]: event severity: fatal
{1}[Hardware Error]:  Error 0, type: fatal
{1}[Hardware Error]:   section_type: PCIe error
{1}[Hardware Error]:   device_id: 0000:18:00.0
pcieport 0000:16:02.0: DPC: containment event, status:0x1f01 source:0x0000
DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr 0xfeed0000 [fault reason 0x05] PTE Write access is not set
nvidia 0000:81:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0021 address=0xfee00000 flags=0x0020]
AMD-Vi: Event logged [IO_PAGE_FAULT device=81:00.0 domain=0x0021 address=0xfee00000 flags=0x0020]
kernel: mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 4: a600000000020408
EDAC MC1: 262 CE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x849923)
EDAC MC1: 1 UE memory read error on CPU_SrcID#0_Ha#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x849923)
Memory failure: 0x1f2a3b: Killing python3:4242 due to hardware memory corruption
Memory failure: 0x1f2a3b: Sending SIGBUS to python3:4242 due to hardware memory corruption
mlx5_core 0000:5e:00.0: device's health compromised - reached miss count
mlx5_core 0000:0d:00.0: poll_health:801:(pid 0): device's health compromised - reached miss count
mlx5_core 0000:06:00.0: wait_func_handle_exec_timeout:1128:(pid 185911): cmd[-22]: CREATE_UCTX(0xa04) No done completion
mlx5_core 0000:d2:00.0: mlx5_cmd_out_err:838:(pid 268269): ACCESS_REG(0x805) op_mod(0x1) failed, status bad resource(0x5), syndrome (0x305684), err(-22)
mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 268269): Detected insufficient power on the PCIe slot (27W).
mlx5_core 0004:01:00.0: Port module event: module 0, Cable unplugged
mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link ACTIVE
mlx5_core 0000:0c:00.0 eth2: TX timeout detected
infiniband mlx5_0: dump_cqe:272:(pid 12): dump error cqe
[  518.054000] mlx5_core 0000:3b:00.0 ens1f0np0: Link down
[  518.054000] bnxt_en 0000:01:00.0 eth0: NIC Link is Down
[  519.054000] bnxt_en 0000:01:00.0 eth0: NIC Link is Up, 25000 Mbps full duplex
[  519.054000] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready
[  519.054000] bond0: (slave eth0): link status definitely down, disabling slave
[  519.054000] NETDEV WATCHDOG: eth0 (mlx5_core): transmit queue 3 timed out
[   57.736831] br77: port 1(vh0) entered disabled state
[  103.398221] vh0 (unregistering): left promiscuous mode
python3 invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=986
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri.scope,mems_allowed=0-1,oom_memcg=/kubepods.slice/a,task_memcg=/kubepods.slice/a/b,task=memcg_process,pid=19289,uid=0
Memory cgroup out of memory: Killed process 19289 (memcg_process) total-vm:2676kB, anon-rss:84kB, file-rss:1468kB, shmem-rss:4kB, UID:0 pgtables:40kB oom_score_adj:0
Out of memory: Killed process 15784 ((Plex) Server) total-vm:11964kB, anon-rss:4288kB, file-rss:3028kB, shmem-rss:0kB
oom_reaper: reaped process 15784 (python3), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB
Memory cgroup out of memory: Kill process 11499 (badsysprogram) score 1000 or sacrifice child
Killed process 11499 (badsysprogram) total-vm:1641384kB, anon-rss:524092kB, file-rss:192kB
pt_main_thread[2536443]: segfault at 7f797fe00000 ip 00007f7c7ac69996 sp 00007f7c12fd7c30 error 4 in libnccl.so.2[7f7c7ac00000+d3d3000]
[ 99.000001] traps: python3[77] trap invalid opcode ip:7f00 sp:7f01 error:0 in libfoo.so[7f00+1000]
watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]
INFO: task jfsmount:136986 blocked for more than 120 seconds.
[  1.000000] VFS: file-max limit 1000000 reached
[  1.000000] EXT4-fs (sda1): Remounting filesystem read-only
[  1.000000] Buffer I/O error on dev dm-0, logical block 8388592, lost sync page write
[  1.000000] nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff
[  1.000000] nfs: server filer1 not responding, still trying
[  1.000000] Kernel panic - not syncing: hung_task: blocked tasks
[  1.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (x@)
";

#[test]
fn everything_else_of_a_kernel_log_is_read() {
    insta::assert_snapshot!(tell(OTHERS.as_bytes()));
}

#[test]
fn every_stamp_is_read() {
    // The same statement under every prefix that tools print; each file also says what clock it was, if it does.
    const XID: &str = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.";
    let check = |prefix: &str, expected: &str| {
        let told = tell(format!("{prefix}{XID}\n").as_bytes());
        let first =
            told.lines().next().unwrap().replace(" 0000:3b:00.0 xid 79 | GPU has fallen off the bus.", "");
        assert_eq!(first, expected, "{prefix}");
    };
    check("[155044.078590] ", "1 up 155044.078590");
    check("[    4.078590] ", "1 up 4.078590");
    check("[  130.456250] [   T1946] ", "1 up 130.456250");
    check("[  130.456250] [    C12] ", "1 up 130.456250");
    check("<3>[   13.868078] ", "1 up 13.868078");
    check("3,1234,567890123,-;", "1 up 567.890123");
    check("3,1234,567890123,-,caller=T12;", "1 up 567.890123");
    check("[Fri Aug 30 11:43:09 2024] ", "1 at 1725018189.000000000");
    check("[Mon Sep  2 05:57:48 2024] ", "1 at 1725256668.000000000");
    check("[二 9月  3 05:57:48 2024] ", "1 at 1725343068.000000000");
    check("kern  :err   : [   13.868078] ", "1 up 13.868078");
    check("kern  :warn  : 2025-01-21T04:41:44,285060+00:00 ", "1 at 1737434504.285060000");
    check("2025-01-21T04:41:44,285060+00:00 ", "1 at 1737434504.285060000");
    check("Feb 01 14:25:31 node7 kernel: ", "1 at 2730331.000000000? on node7");
    check("Feb  1 14:25:31 node7.example.org kernel: ", "1 at 2730331.000000000? on node7");
    check("Feb 01 14:25:31 node7 kernel: [  518.050000] ", "1 up 518.050000 at 2730331.000000000? on node7");
    check("<4>Feb 01 14:25:31 node7 kernel: ", "1 at 2730331.000000000? on node7");
    check("2026-11-20T08:21:34+0000 node7 kernel: ", "1 at 1795162894.000000000 on node7");
    check("2026-11-20T08:21:34.123456+00:00 node7 kernel: ", "1 at 1795162894.123456000 on node7");
    check("<4>1 2026-11-20T08:21:34.5Z node7 kernel - - - ", "1 at 1795162894.500000000 on node7");
    check("Fri 2026-11-20 08:21:34 UTC node7 kernel: ", "1 at 1795162894.000000000 on node7");
    check("1795162894.250000 node7 kernel: ", "1 at 1795162894.250000000 on node7");
    check("[  518.050000] node7 kernel: ", "1 up 518.050000 on node7");
    check("node7 kernel: [  518.050000] ", "1 up 518.050000 on node7");
    check("kernel: ", "1");
    check("kern: err: [2026-04-22T21:27:51.288830314Z]: ", "1 at 1776893271.288830314");
    check("", "1");
}

#[test]
fn wall_time_follows_from_one_line_with_both() {
    // The second line has no wall time of its own.
    let mixed = "Nov 20 08:21:34 n1 kernel: [  100.000000] usb 1-1: new device\n\
                 [  130.500000] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n";
    let told = tell(mixed.as_bytes());
    assert!(told.starts_with("2 up 130.500000 at 27937324.500000000?"), "{told}");
    // The kernel's own word, and another boot in the same file that has none.
    let boots = "[    0.000000] Linux version 6.8.0\n\
                 [    1.000000] rtc_cmos rtc_cmos: setting system clock to 2026-11-20T08:13:05 UTC (1795162385)\n\
                 [   11.000000] NVRM: Xid (PCI:0000:3b:00): 48, x\n\
                 [    0.000000] Linux version 6.8.0\n\
                 [   12.000000] NVRM: Xid (PCI:0000:3b:00): 79, x\n";
    let told = tell(boots.as_bytes());
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "3 up 11.000000 at 1795162395.000000000 0000:3b:00.0 xid 48 | x");
    assert_eq!(lines[1], "5 up 12.000000 boot 1 0000:3b:00.0 xid 79 | x");
    // Nothing to tell it from: no wall time is made up.
    assert!(tell(b"[   11.000000] NVRM: Xid (PCI:0000:3b:00): 48, x\n").starts_with("1 up 11.000000 0000"));
}

#[test]
fn json_of_both_tools_is_read() {
    let dmesg = r#"{
   "dmesg": [
      {
         "pri": 5,
         "time":     0.000000,
         "msg": "Linux version 6.8.0"
      },{
         "pri": 3,
         "time":    13.868078,
         "msg": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has \"fallen\" off the bus."
      }
   ]
}
"#;
    let told = tell(dmesg.as_bytes());
    assert!(told.starts_with("10 up 13.868078 0000:3b:00.0 xid 79"), "{told}");
    let journal = "{\"__REALTIME_TIMESTAMP\":\"1795162894000000\",\"__MONOTONIC_TIMESTAMP\":\"1\",\
        \"_TRANSPORT\":\"kernel\",\"_HOSTNAME\":\"node7\",\"_SOURCE_MONOTONIC_TIMESTAMP\":\"13868078\",\
        \"MESSAGE\":\"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\"}\n\
        {\"__REALTIME_TIMESTAMP\":\"1795162895000000\",\"_TRANSPORT\":\"stdout\",\
        \"MESSAGE\":\"NVRM: Xid (PCI:0000:3b:00): 48, x\"}\n";
    let told = tell(journal.as_bytes());
    assert_eq!(
        told.lines().next().unwrap(),
        "1 up 13.868078 at 1795162894.000000000 on node7 0000:3b:00.0 xid 79 | GPU has fallen off the bus."
    );
    assert_eq!(told.lines().count(), 2, "the other is no line of the kernel: {told}");
}

#[test]
fn what_is_no_kernels_line_is_left_to_others() {
    for line in [
        "[2026-11-20 08:21:25] INFO AER: nothing",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "step 12: link is down to 0.5 of its rate",
        "kernel: flash attention, read-only",
        "I/O error on the loader",
        "[W1120 08:17:08.6 socket.cpp:200] [c10d] The client socket has failed to connect",
        "Killed process group 12",
        "epoch 3: Link is Down",
    ] {
        check(line, "");
    }
    // A lone line whose text says `Fatal` and `error` is the kernel's and nobody else's.
    let extract =
        read("a.log", b"[   12.300000] NVRM: Xid (PCI:0000:c1:00): 74, NVLink: fatal error, Fatal\n");
    assert_eq!(extract.sources[0].kinds, [SourceKind::KernelLog]);
    // Both in one file.
    let mixed = "[   12.300000] NVRM: Xid (PCI:0000:c1:00): 79, x\n[rank1]: RuntimeError: CUDA error: boom\n";
    let extract = read("a.log", mixed.as_bytes());
    assert_eq!(extract.sources[0].kinds, [SourceKind::TorchLog, SourceKind::KernelLog]);
}

#[test]
fn floods_are_bounded_and_told() {
    let mut log = String::new();
    for n in 0..1_000 {
        writeln!(log, "[ {n:4}.000000] pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0")
            .unwrap();
    }
    let told = tell(log.as_bytes());
    assert_eq!(told.lines().filter(|l| l.contains("PcieError")).count(), 200);
    assert!(told.contains("800 more statements of the same sort were left out"), "{told}");
}

#[test]
fn behind_a_flood_of_one_number_another_one_is_kept() {
    let mut log = String::new();
    for n in 0..1_000 {
        writeln!(log, "[ {n:4}.000000] NVRM: Xid (PCI:0000:5e:00): 45, pid=1302, name=python3, Ch {n:08x}")
            .unwrap();
    }
    log.push_str(
        "[ 1000.000000] NVRM: Xid (PCI:0000:5e:00): 94, pid=1302, name=python3, Contained: SM (0x1).\n",
    );
    log.push_str("[ 1001.000000] NVRM: Xid (PCI:0000:5e:00): 45, pid=1400, name=python3, Ch 00000001\n");
    let told = tell(log.as_bytes());
    assert_eq!(told.lines().filter(|l| l.contains(" xid 45 ")).count(), 201, "{told}");
    assert_eq!(told.lines().filter(|l| l.contains(" xid 94 ")).count(), 1);
    assert!(told.contains("800 more statements of the same sort were left out"), "{told}");
}

#[test]
fn igb_names_its_interface_twice() {
    let told = tell(b"[   10.000000] igb 0000:01:00.1 eth0: igb: eth0 NIC Link is Down\n");
    assert!(told.contains("Link") && told.contains("eth0") && told.contains("Down"), "{told}");
}

fn logs() -> Vec<(String, Vec<u8>)> {
    recordings(|name| name.starts_with("dmesg") || name == "kmsg.txt")
}

#[test]
fn recorded_logs() {
    let mut seen: Vec<Vec<u8>> = Vec::new();
    let mut out = String::new();
    for (name, bytes) in logs() {
        if !seen.contains(&bytes) {
            writeln!(out, "== {name}\n{}", tell(&bytes)).unwrap();
            seen.push(bytes);
        }
    }
    insta::assert_snapshot!(out);
}

/// Statements without the coverage, which every line changes.
fn statements(bytes: &[u8]) -> Vec<String> {
    let told = tell(bytes);
    told.lines().filter(|l| !l.contains(" covers ") && !l.starts_with("note")).map(str::to_owned).collect()
}

#[test]
fn any_cut_of_a_log_gives_a_beginning_of_what_the_whole_gives() {
    let all = format!("{OTHERS}{XIDS}");
    let whole = read("dmesg.txt", all.as_bytes());
    let places = |e: &crate::Extract| -> Vec<(u32, Option<ringleader_model::PciAddress>)> {
        let events = e.observations.iter().filter_map(|o| match &o.fact {
            Fact::Kernel(k) if !matches!(k.kind, Kind::Covers(_)) => Some((o.cite.line, k.device)),
            _ => None,
        });
        events.collect()
    };
    let expected = places(&whole);
    for cut in (0..all.len()).step_by(7) {
        let part = all.as_bytes().get(..cut).unwrap();
        let n_lines = memchr::memchr_iter(b'\n', part).count() as u32;
        let found: Vec<_> =
            places(&read("dmesg.txt", part)).into_iter().filter(|(line, _)| *line <= n_lines).collect();
        let wanted: Vec<_> = expected.iter().copied().take_while(|(line, _)| *line <= n_lines).collect();
        assert_eq!(found.len(), wanted.len(), "cut at {cut}");
        assert!(found.iter().zip(&wanted).all(|(a, b)| a.0 == b.0), "cut at {cut}");
    }
}

#[test]
fn a_program_that_writes_to_the_kernel_s_log_is_heard() {
    let console = |program: &str| {
        let mut text = String::from("[    0.000000] Linux version 6.8.0 (build@host)\n");
        for n in 0..3_000 {
            writeln!(text, "[   1.{n:06}] pci 0000:00:03.0: BAR 0: assigned [mem 0x{n:08x}]").unwrap();
        }
        text + &format!("[   92.901172] {program}: failed to open fabric topology file\n")
    };
    let said = |program: &str| {
        let found = read_all("console.log", console(program).as_bytes());
        found.observations.iter().filter(|o| matches!(o.fact, Fact::Said(_))).count()
    };
    assert_eq!(said("nv-fabricmanager"), 1);
    assert_eq!(said("virtio-pci"), 0);
}

#[test]
fn a_number_that_was_cut_is_not_believed() {
    assert_eq!(statements(b"NVRM: Xid (PCI:0000:01:00): 7"), Vec::<String>::new());
    let pid = "NVRM: Xid (PCI:0000:01:00): 31, pid=14";
    assert_eq!(statements(pid.as_bytes()), ["1 0000:01:00.0 xid 31 | "]);
    assert_eq!(statements(format!("{pid}\n").as_bytes()), ["1 0000:01:00.0 xid 31 pid 14 | "]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_bytes_are_read(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::sample::select(OTHERS.lines().chain(XIDS.lines()).map(|l| l.as_bytes().to_vec()).collect::<Vec<_>>()),
                prop::collection::vec(any::<u8>(), 0..60),
                Just(b"\n".to_vec()),
                Just(b"[   12.300000] ".to_vec()),
                Just(b"Nov 20 08:21:34 n kernel: ".to_vec()),
            ],
            0..12,
        ),
        cut in 0_usize..400,
    ) {
        let bytes = pieces.concat();
        let part = bytes.get(..bytes.len().saturating_sub(cut)).unwrap_or_default();
        let extract = read("dmesg.txt", part);
        for o in &extract.observations {
            prop_assert!(o.cite.start <= o.cite.end && o.cite.end <= part.len() as u64);
        }
    }
}
