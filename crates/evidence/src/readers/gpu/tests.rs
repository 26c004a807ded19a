#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use ringleader_model::{Fact, GpuRow, GpuTable};

use crate::tell::{read, recordings, tell, tell_recordings};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("gpus", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected);
}

/// Outputs of nvidia-smi among the recordings.
fn is_gpu(name: &str) -> bool {
    ["nvidia-smi", "nvlink-", "topo", "dmon", "pmon", "smi-d"].iter().any(|begin| name.starts_with(begin))
}

#[test]
fn recorded_outputs() {
    insta::assert_snapshot!(tell_recordings(is_gpu));
}

#[test]
fn a_gpu_that_is_lost_and_an_old_layout() {
    insta::assert_snapshot!(tell(&read("table", OLD.as_bytes())));
}

const OLD: &str = "\
Mon Mar  4 08:21:32 2024
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: N/A      |
|-------------------------------+----------------------+----------------------+
|   0  Tesla V100-SXM2...  On   | 00000000:1A:00.0 Off |                    3 |
| N/A   34C    P0    42W / 300W |      0MiB / 16160MiB |      0%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
|   1  ERR!                ERR! | 00000000:1B:00.0 ERR!|                 ERR! |
|ERR!  ERR! ERR!    ERR! / ERR! |   1MiB / 16160MiB    |    ERR!         ERR! |
+-------------------------------+----------------------+----------------------+
| MIG devices:                                                                |
|  0    7   0   0  |     11MiB /  9984MiB | 14      0 |  1   0    0    0    0 |
+-----------------------------------------------------------------------------+
| Processes:                                                       GPU Memory |
|  GPU       PID   Type   Process name                             Usage      |
|=============================================================================|
|    0     21474      C   python C G                                 1234MiB |
|  No running processes found                                                 |
+-----------------------------------------------------------------------------+
";

#[test]
fn sections_without_their_heading() {
    let clocks = |command: &str| {
        let text = format!(
            "$ {command}\n    Performance State                      : P0\n    Clocks\n        SM                                 : 721 MHz\n    Max Clocks\n        SM                                 : 3003 MHz\n"
        );
        let read = read("gpu", text.as_bytes());
        let gpus = read.observations.iter().find_map(|o| match &o.fact {
            Fact::Gpus(table) => table.gpus.first().cloned(),
            _ => None,
        });
        gpus.map(|gpu| (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz))
    };
    assert_eq!(clocks("nvidia-smi -q -d CLOCK,PERFORMANCE"), Some((Some(721), Some(3_003))));
    // Lines that somebody picked may be of several GPUs.
    assert_eq!(clocks("nvidia-smi -q | grep -A1 Clocks"), None);
    assert_eq!(clocks("cat clocks.txt"), None);
}

#[test]
fn what_is_said_in_place_of_a_table() {
    for text in [
        "Unable to determine the device handle for GPU 0000:1B:00.0: Unknown Error",
        "Unable to determine the device handle for GPU3: 0000:04:00.0: Unknown Error",
        "Unable to determine the device handle for gpu 0000:86:00.0: GPU is lost.  Reboot the system to recover this GPU",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        "Failed to initialize NVML: Driver/library version mismatch",
        "No devices were found",
    ] {
        check(
            &format!("{text}\n"),
            &format!("line 1: Table at None driver None cuda None failures [(1, {text:?})]"),
        );
    }
    check("| a | b |\n+---+---+\nNVIDIA-SMI is nice\nUnable to determine the size\n", "");
}

#[test]
fn a_query_of_a_gpu_in_trouble() {
    let text = "
==============NVSMI LOG==============

Timestamp                                              : Fri Nov 20 08:16:32 2026
Driver Version                                         : 550.54.15
CUDA Version                                           : 12.4

Attached GPUs                                          : 2
GPU 00000000:1A:00.0
    Product Name                                       : NVIDIA H100 80GB HBM3
    GPU Recovery Action                                : Drain and Reset
    GPU UUID                                           : GPU-0a76d8fe-6073-86f2-0516-66e0165022a2
    PCI
        Bus Id                                         : 00000000:1A:00.0
        GPU Link Info
            PCIe Generation
                Max                                    : 5
                Current                                : 5
            Link Width
                Max                                    : 16x
                Current                                : 8x
        Replays Since Reset                            : 341
    Clocks Throttle Reasons
        Idle                                           : Not Active
        SW Power Cap                                   : Not Active
        HW Slowdown                                    : Active
            HW Thermal Slowdown                        : Active
            HW Power Brake Slowdown                    : Not Active
        SW Thermal Slowdown                            : Active
    ECC Errors
        Volatile
            SRAM Correctable                           : 12
            SRAM Uncorrectable Parity                  : 1
            SRAM Uncorrectable SEC-DED                 : 2
            DRAM Correctable                           : 0
            DRAM Uncorrectable                         : 4
        Aggregate
            SRAM Threshold Exceeded                    : Yes
    Remapped Rows
        Correctable Error                              : 0
        Uncorrectable Error                            : 9
        Pending                                        : Yes
        Remapping Failure Occurred                     : Yes
        Bank Remap Availability Histogram
            Max                                        : 639 bank(s)
            Low                                        : 2 bank(s)
            None                                       : 1 bank(s)
    Power Readings
        Power Draw                                     : 310.20 W
        Current Power Limit                            : 700.00 W
    Fabric
        State                                          : In Progress
        Status                                         : N/A
        Health
            Bandwidth                                  : Degraded
            Route Unhealthy                            : False
    Processes
        GPU instance ID                                : N/A
        Process ID                                     : 1347
            Type                                       : C
GPU 00000000:1B:00.0
    Product Name                                       : Unknown Error
    Temperature
        GPU Current Temp                               : [Unknown Error]
";
    check(
        text,
        r#"
line 2: Query at Some(1795162592) driver Some("550.54.15") cuda Some("12.4") attached 2 failures []
9: GPU 0 0000:1a:00.0 uuid GPU-0a76d8fe-6073-86f2-0516-66e0165022a2 name NVIDIA H100 80GB HBM3 W 310.2 of 700 errors 7 fabric In Progress action Drain and Reset sram exceeded true reasons 0x68 volatile [sram_corrected: 12, sram_uncorrected: 3, dram_corrected: 0, dram_uncorrected: 4] rows [corrected: 0, uncorrected: 9, pending: true, failed: true, banks_exhausted: 1, banks_low: 2] pcie [generation: 5, generation_max: 5, width: 8, width_max: 16, replays: 341] health ["bandwidth: Degraded"]
61: GPU 1 0000:1b:00.0 ERR!
processes 0:1347
"#,
    );
}

#[test]
fn a_query_of_a_gpu_before_ampere() {
    check(
        "\
Attached GPUs                             : 8
GPU 00000000:1A:00.0
    Clocks Throttle Reasons
        HW Slowdown                       : Not Active
    Ecc Errors
        Volatile
            Single Bit
                Device Memory             : 2
                Total                     : 3
            Double Bit
                Device Memory             : 1
                Total                     : 1
    Retired Pages
        Single Bit ECC                    : 4
        Double Bit ECC                    : 61
        Pending Page Blacklist            : Yes
",
        r"
line 2: Query at None driver None cuda None failures []
2: GPU ? 0000:1a:00.0 errors 1 reasons 0x0 volatile [dram_corrected: 2, dram_uncorrected: 1, total_corrected: 3, total_uncorrected: 1] pages [single_bit: 4, double_bit: 61, pending: true]
",
    );
}

#[test]
fn the_xml_says_what_the_text_says() {
    let of = |name: &str| {
        let files =
            recordings(|n| n == name).into_iter().filter(|(path, _)| path.starts_with("healthy-host/"));
        files.map(|(_, bytes)| one(&read("x", &bytes))).collect::<Vec<_>>()
    };
    assert_eq!(of("nvidia-smi-q-x.xml").len(), 1, "the recording is gone");
    for (text, xml) in of("nvidia-smi-q.txt").into_iter().zip(of("nvidia-smi-q-x.xml")) {
        assert_eq!(text.gpus.len(), xml.gpus.len());
        assert_eq!((&text.driver_version, &text.attached), (&xml.driver_version, &xml.attached));
        for (a, b) in text.gpus.iter().zip(&xml.gpus) {
            // Two runs: what moves from second to second may differ.
            let still = |row: &GpuRow| GpuRow {
                line: 0,
                power_w: None,
                temperature_c: None,
                memory_temperature_c: None,
                temperature_left_c: None,
                ..row.clone()
            };
            assert_eq!(still(a), still(b));
            assert!(b.power_w.is_some() && b.temperature_c.is_some());
        }
    }
}

fn one(extract: &crate::Extract) -> GpuTable {
    let mut tables = extract.observations.iter().filter_map(|o| match &o.fact {
        Fact::Gpus(table) => Some((**table).clone()),
        _ => None,
    });
    let table = tables.next().unwrap();
    assert_eq!(tables.next(), None);
    table
}

#[test]
fn an_xml_that_ends_early_or_stands_on_one_line() {
    let text = "<nvidia_smi_log><driver_version>550.54.15</driver_version><gpu id=\"00000000:1A:00.0\">\
        <remapped_rows><remapped_row_pending>Yes</remapped_row_pending></remapped_rows>\
        <processes><process_info><pid>77</pid></process_info></processes></gpu>";
    check(
        &format!("{text}<gpu id=\"00000000:1B:00.0\"><temperature><gpu_temp>3\n"),
        r#"
line 1: Xml at None driver Some("550.54.15") cuda None failures []
1: GPU ? 0000:1a:00.0 rows [pending: true]
1: GPU ? 0000:1b:00.0
note Truncated line 1: nvidia-smi's XML ends early; the GPUs before it were read
"#,
    );
    check(
        &format!("{text}</nvidia_smi_log>\n"),
        r#"
line 1: Xml at None driver Some("550.54.15") cuda None failures []
1: GPU ? 0000:1a:00.0 rows [pending: true]
"#,
    );
}

#[test]
fn columns_of_any_kind() {
    check(
        "\
timestamp, index, pci.bus_id, driver_version, ecc.errors.uncorrected.volatile.dram, retired_pages.pending, clocks_throttle_reasons.hw_slowdown
2026/11/20 08:16:32.123, 0, 00000000:1A:00.0, 535.129.03, 2, No, Active
2026/11/20 08:16:32.123, 1, 00000000:1B:00.0, 535.129.03, [N/A], [GPU requires reset], [GPU requires reset]
2026/11/20 08:16:33.123, 0, 00000000:1A:00.0, 535.129.03, 3, No, Not Active

index, memory.used [MiB]
4, 1200
00000000:00:06.0, 79.97 W, 34, 0 %
time, loss, lr
1, 2, 3
",
        r#"
line 1: Csv at Some(1795162592) driver Some("535.129.03") cuda None failures []
4: GPU 0 0000:1a:00.0 errors 3 reasons 0x0 volatile [dram_uncorrected: 3] pages [pending: false]
3: GPU 1 0000:1b:00.0 ERR!
line 6: Csv at None driver None cuda None failures []
7: GPU 4 ? MiB 1200
line 8: Csv at None driver None cuda None failures []
8: GPU ? 0000:00:06.0 W 79.97 % 0
"#,
    );
    check("name, value\nx, 1\ncount\n3\nname\n", "");
}

#[test]
fn links_that_are_down_and_counters_of_newer_links() {
    check(
        "\
GPU 0: NVIDIA B200 (UUID: GPU-0a76d8fe-6073-86f2-0516-66e0165022a2)
\t Link 0: 50 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-7a2edb18-d626-16b6-4138-c7f2eb9707d5)
GPU 0: NVIDIA B200 (UUID: GPU-0a76d8fe-6073-86f2-0516-66e0165022a2)
\t Link 0: Tx packets: 1234567
\t Link 0: Malformed packet Errors: 0
\t Link 0: Rx Errors: 17
\t Link 0: Link recovery failed events: 2
\t Link 0: Total link recovery events: 5
\t Link 0: FEC Errors - 15: 8
Link 7: up
",
        r#"
line 1: NvLink at None driver None cuda None failures []
4: GPU 1 ? uuid GPU-7a2edb18-d626-16b6-4138-c7f2eb9707d5 name NVIDIA A100-PCIE-40GB
1: GPU 0 ? uuid GPU-0a76d8fe-6073-86f2-0516-66e0165022a2 name NVIDIA B200
1 links [0]: up Some(true) GB/s Some(50.0) replays None recoveries Some(5) failed Some(2) crc None [("Rx Errors", 17)]
1 links [1]: up Some(false) GB/s None replays None recoveries None failed None crc None []
1 links [7]: up None GB/s None replays None recoveries None failed None crc None []
"#,
    );
}

#[test]
fn a_topology_with_network_cards() {
    check(
        "\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tSYS\tPXB\t0-31\t0\t\tN/A
GPU1\tSYS\t X \tNODE\t32-63\t1\t\tN/A
NIC0\tPXB\tNODE\t X \t\t\t\t

NIC Legend:

  NIC0: mlx5_0
",
        r"
line 1: Topology at None driver None cuda None failures []
2: 0 to 1 SYS
3: 1 to 0 SYS
2: 0 to mlx5_0 PXB
3: 1 to mlx5_0 NODE
",
    );
}

#[test]
fn samples_are_joined() {
    check(
        "\
# gpu    pwr  gtemp     sm   pclk  pviol  tviol  dbecc
# Idx      W      C      %    MHz      %   bool   errs
    0    300     70    100   1980      0      0      0
    1    200     88    100   1100      0      1      2
    0    310     71    100   1960      0      0      0
    1      -     90     98   1000      5      0      2
# gpu    pwr  gtemp     sm   pclk  pviol  tviol  dbecc
    0    3
",
        r"
line 1: Monitor at None driver None cuda None failures []
3: GPU 0 ? C 71 W 305 % 100 MHz 1970 errors 0 reasons 0x0 volatile [total_uncorrected: 0]
4: GPU 1 ? C 90 W 200 % 99 MHz 1050 errors 2 reasons 0x24 volatile [total_uncorrected: 2]
",
    );
    check(
        "# gpu         pid   type     sm    command\n# Idx           #    C/G      %    name\n    0      1347     C     98    python3\n    1         -     -      -    -\n",
        "line 1: ProcessMonitor at None driver None cuda None failures []\nprocesses 0:1347",
    );
}

#[test]
fn diagnostics_as_tables() {
    check(
        "\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.2.3                                          |
| Driver Version Detected   | 570.148.08                                     |
| GPU Device IDs Detected   | 2330, 2330                                     |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Pass                                           |
|                           | GPU0: Pass                                     |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU1             | Detected uncorrectable memory errors           |
|                           | on this GPU.                                   |
| PCIe                      | Fail - GPUs: 2, 3                              |
| Targeted Power            | Skip - All                                     |
+---------------------------+------------------------------------------------+
",
        r#"
line 3: dcgm Some("4.2.3") driver Some("570.148.08")
10: software GPU None Pass []
11: software GPU Some(0) Pass []
13: memory GPU None Fail []
14: memory GPU Some(0) Pass []
15: memory GPU Some(1) Fail ["Detected uncorrectable memory errors on this GPU."]
18: PCIe GPU Some(2) Fail []
18: PCIe GPU Some(3) Fail []
19: Targeted Power GPU None Skip []
"#,
    );
}

#[test]
fn diagnostics_as_json() {
    check(
        r#"{"DCGM GPU Diagnostic": {"test_categories": [{"category": "Integration", "tests": [
            {"name": "PCIe", "results": [{"gpu_id": "0", "status": "Pass"}, {"gpu_id": "1", "status": "Fail", "warnings": "slow"}]}]}]}}"#,
        r#"
line 1: dcgm None driver None
0: PCIe GPU Some(0) Pass []
0: PCIe GPU Some(1) Fail ["slow"]
"#,
    );
    check(
        r#"{"DCGM Diagnostic": {"test_categories": [{"category": "Deployment", "tests": [
            {"name": "software", "results": [{"entity_group": "GPU", "entity_id": 3, "status": "Fail",
              "warnings": [{"error_id": 29, "warning": "Persistence mode is off"}]}], "test_summary": {"status": "Fail"}},
            {"name": "cpu", "results": [{"entity_group": "CPU", "entity_id": 0, "status": "Skip"}]}]}]},
            "metadata": {"version": "4.2.3", "Driver Version Detected": "570.148.08"}}"#,
        r#"
line 1: dcgm Some("4.2.3") driver Some("570.148.08")
0: software GPU Some(3) Fail ["Persistence mode is off"]
0: cpu GPU None Skip []
"#,
    );
}

#[test]
fn services_and_their_logs() {
    check(
        "\
× nvidia-fabricmanager.service - NVIDIA fabric manager service
     Loaded: loaded (/lib/systemd/system/nvidia-fabricmanager.service; enabled; vendor preset: enabled)
     Active: failed (Result: exit-code) since Tue 2024-11-05 13:55:26 UTC; 3min ago
    Process: 104229 ExecStart=/usr/bin/nv-fabricmanager (code=exited, status=1/FAILURE)

Nov 05 13:55:26 node1 nv-fabricmanager[104230]: fabric manager NVIDIA GPU driver interface version 550.127.05 don't match with driver version 550.120. Please update with matching NVIDIA driver package.
● nvidia-persistenced.service - NVIDIA Persistence Daemon
     Active: active (running) since Tue 2024-11-05 13:50:00 UTC; 9min ago
● ssh.service - OpenBSD Secure Shell server
Unit nvidia-imex.service could not be found.
",
        r#"
line 1: nvidia-fabricmanager Some("failed") (Result: exit-code) version Some("550.127.05") driver Some("550.120")
6: Some(26661326) fabric manager NVIDIA GPU driver interface version 550.127.05 don't match with driver version 550.120. Please update with matching NVIDIA driver package.
line 7: nvidia-persistenced Some("active") (running) version None driver None
line 10: nvidia-imex Some("not-found") (could not be found) version None driver None
"#,
    );
    check(
        "\
[Nov 20 2026 08:15:01] [INFO] [tid 1412] Fabric Manager version is : 580.159.04
[Nov 20 2026 08:15:02] [ERROR] [tid 1412] failed to find the GPU handle 5 in the multicast team request setup
",
        r#"
line 1: nvidia-fabricmanager None () version Some("580.159.04") driver None
2: Some(1795162502) failed to find the GPU handle 5 in the multicast team request setup
"#,
    );
    // Without a thread, as older ones print.
    check(
        "\
[Nov 20 2026 08:15:01] [INFO] Fabric Manager version is : 470.82.01
[Nov 20 2026 08:15:01] [INFO] hello
[Nov 20 2026 08:15:02] [ERROR] NVSwitch fatal error on port 12
",
        r#"
line 1: nvidia-fabricmanager None () version Some("470.82.01") driver None
3: Some(1795162502) NVSwitch fatal error on port 12
"#,
    );
}

#[test]
fn sections_of_a_bug_report() {
    let of = |name: &str| {
        let files = recordings(|n| n == name).into_iter();
        files.filter(|(path, _)| path.starts_with("healthy-host/")).map(|(_, bytes)| bytes).next().unwrap()
    };
    let mut report = b"____________________________________________\n\nStart of NVIDIA bug report log file.  Please include this file, along\n".to_vec();
    for (title, name) in [
        ("*** /usr/bin/nvidia-smi --query", "nvidia-smi-q.txt"),
        ("/usr/bin/nvidia-smi nvlink --status", "nvlink-s.txt"),
        ("/usr/bin/nvidia-smi topo -m", "topo.txt"),
        ("*** /var/log/dmesg", "dmesg.txt"),
        ("/usr/bin/nvidia-smi -q -x", "nvidia-smi-q-x.xml"),
    ] {
        report.extend_from_slice(
            format!("\n____________________________________________\n\n{title}\n\n").as_bytes(),
        );
        report.extend_from_slice(&of(name));
    }
    let extract = read("nvidia-bug-report.log", &report);
    let kinds: Vec<&str> = extract.sources[0].kinds.iter().map(|k| k.name()).collect();
    assert_eq!(kinds, ["nvidia-smi", "nvidia-bug-report", "kernel-log"]);
    let forms: Vec<String> = extract
        .observations
        .iter()
        .filter_map(|o| match &o.fact {
            Fact::Gpus(t) => Some(format!("{:?} {}", t.form, t.gpus.len().max(t.paths.len()))),
            _ => None,
        })
        .collect();
    assert_eq!(forms, ["Query 2", "NvLink 2", "Topology 2", "Xml 2"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// GPUs read from a beginning are those of the whole, but for the last one, which may be cut.
    #[test]
    fn a_beginning_tells_nothing_else(part in 0.0..1.0_f64, which in 0_usize..1_000) {
        let files = recordings(is_gpu);
        let (name, bytes) = &files[which % files.len()];
        let cut = &bytes[..(bytes.len() as f64 * part) as usize];
        let gpus = |bytes: &[u8]| -> Vec<GpuRow> {
            let tables = read(name, bytes).observations.into_iter().filter_map(|o| match o.fact {
                Fact::Gpus(table) => Some(table.gpus),
                _ => None,
            });
            // An index that only the whole list gives is left away.
            tables.flatten().map(|g| GpuRow { index: None, ..g }).collect()
        };
        // Samples are joined: each one more changes the mean.
        prop_assume!(!name.contains("dmon"));
        let (some, all) = (gpus(cut), gpus(bytes));
        prop_assert!(some.len() <= all.len());
        for (a, b) in some.iter().zip(&all).take(some.len().saturating_sub(1)) {
            prop_assert_eq!(a, b, "{}", name);
        }
    }

    #[test]
    fn any_bytes_are_survived(head in 0_usize..HEADS.len(), bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut text = HEADS[head].as_bytes().to_vec();
        text.extend_from_slice(&bytes);
        prop_assert!(!read("x", &text).sources.is_empty());
    }

    /// Words of the formats in any order.
    #[test]
    fn any_words_are_survived(words in proptest::collection::vec(0_usize..WORDS.len(), 0..60)) {
        let text: String = words.iter().map(|w| WORDS[*w]).collect();
        prop_assert!(!read("x", text.as_bytes()).sources.is_empty());
    }
}

/// Lines that open a reader.
const HEADS: [&str; 10] = [
    "",
    "| NVIDIA-SMI 1 Driver Version: 1 |\n",
    "==============NVSMI LOG==============\nGPU 00000000:00:06.0\n",
    "<nvidia_smi_log>\n<gpu id=\"0:0:0.0\">",
    "index, uuid, power.draw [W]\n",
    "GPU 0: x (UUID: GPU-)\n\t Link 0: ",
    "\tGPU0\tGPU1\n",
    "# gpu pwr sm\n",
    "| Diagnostic | Result |\n| memory | Fail |\n",
    "● nvidia-fabricmanager.service - x\n",
];

const WORDS: [&str; 40] = [
    "\n",
    "\n    ",
    "\n        ",
    " : ",
    ": ",
    "GPU ",
    "GPU0",
    "0",
    "1",
    "4294967295",
    "99999999999999999999",
    "Link ",
    "<gpu id=\"",
    "\">",
    "</gpu>",
    "<a>",
    "</a>",
    "</nvidia_smi_log>",
    "<",
    ">",
    "| ",
    " |",
    "+",
    ", ",
    "#",
    "Remapped Rows",
    "Pending",
    "Yes",
    "ERR!",
    "[Unknown Error]",
    "GB/s",
    "<inactive>",
    " W",
    "NV18",
    "SYS",
    "Active: ",
    "Warning: GPU9",
    "Fail",
    "\u{1b}[4m",
    "é",
];

#[test]
fn rows_whose_columns_the_command_names() {
    let text = "\
$ nvidia-smi --query-gpu=index,clocks.sm,clocks.max.sm,power.draw --format=csv,noheader   # during the run
0, 1530 MHz, 1530 MHz, 288.10 W
2, 1200 MHz, 1530 MHz, 214.95 W
$ date
1, 2, 3, 4
";
    let case = read("gpus", text.as_bytes());
    let tables: Vec<&GpuTable> = case
        .observations
        .iter()
        .filter_map(|o| if let Fact::Gpus(table) = &o.fact { Some(&**table) } else { None })
        .collect();
    assert_eq!(tables.len(), 1, "{tables:#?}");
    let seen: Vec<_> = tables[0].gpus.iter().map(|g| (g.index, g.sm_clock_mhz, g.power_w)).collect();
    assert_eq!(seen, [(Some(0), Some(1530), Some(288.10)), (Some(2), Some(1200), Some(214.95))]);
    // Without the command the columns may be anything.
    let case = read("gpus", b"0, 1530 MHz, 1530 MHz, 288.10\n");
    assert!(!case.observations.iter().any(|o| matches!(o.fact, Fact::Gpus(_))));
}
