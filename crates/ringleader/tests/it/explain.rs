//! `ringleader explain`: each form of question, every row of the tables, hostile questions, the schema.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

use proptest::prelude::*;
use ringleader::explain::answer::{Explanation, Kind, schema};
use ringleader::explain::{catalog, explain, messages, names, text};
use ringleader_report::{Detail, TextStyle};

use crate::cli::{err, out, ringleader};
use crate::report::{fits, uncoloured};
use crate::schema::Schema;

const PLAIN: TextStyle = TextStyle { width: 80, color: false, detail: Detail::Usual };

fn shown(query: &str) -> String {
    text::render(&explain(query), &PLAIN)
}

/// One line: kind and name of each topic.
fn found(query: &str) -> String {
    let topics = explain(query).topics;
    topics.iter().map(|t| format!("{:?} {}", t.kind, t.name)).collect::<Vec<_>>().join(" | ")
}

#[test]
fn an_xid() {
    insta::assert_snapshot!(shown("xid 79"));
    for query in ["79", "Xid: 79", "XID=79", "xid  79", "GPU_HAS_FALLEN_OFF_THE_BUS", "'xid 79'"] {
        assert_eq!(shown(query), shown("xid 79"), "{query}");
    }
}

#[test]
fn an_sxid() {
    insta::assert_snapshot!(shown("sxid 11001"));
    assert_eq!(shown("11001"), shown("sxid 11001"));
}

#[test]
fn a_number_that_may_be_several_things() {
    insta::assert_snapshot!(shown("2"));
    assert_eq!(found("48"), "Xid xid 48");
    let everything = text::render(&explain("2"), &TextStyle { detail: Detail::Everything, ..PLAIN });
    for topic in explain("2").topics {
        assert!(
            everything.contains(&text::render(&Explanation { topics: vec![topic], ..explain("2") }, &PLAIN))
        );
    }
}

#[test]
fn a_variable() {
    insta::assert_snapshot!(shown("NCCL_IB_TIMEOUT"));
    assert_eq!(shown("nccl_ib_timeout"), shown("$NCCL_IB_TIMEOUT"));
    assert_eq!(found("NCCL_ASYNC_ERROR_HANDLING"), "Variable TORCH_NCCL_ASYNC_ERROR_HANDLING");
}

#[test]
fn a_name_that_nothing_reads() {
    insta::assert_snapshot!(shown("NCCL_TIMEOUT"));
}

#[test]
fn a_setting() {
    insta::assert_snapshot!(shown("NCCL_IB_DISABLE=true"));
    assert_eq!(
        found("export NCCL_BUFFSIZE=4M NCCL_TIMEOUT=1800 torchrun train.py"),
        "Variable NCCL_BUFFSIZE | UnreadVariable NCCL_TIMEOUT"
    );
    let problem = |query: &str| {
        let topics = explain(query).topics;
        topics.iter().flat_map(|t| &t.read).find(|d| d.name == "problem").map(|d| d.value.clone())
    };
    assert_eq!(problem("NCCL_DEBUG=\"INFO\""), None);
    assert!(problem("NCCL_IB_TC=0106").unwrap().starts_with("0106 reads as 70: "));
    assert!(problem("vm:1347:1400 [2] NCCL INFO NCCL_IB_TC set by environment to 300.").is_some());
}

#[test]
fn a_result_by_its_name_and_by_its_words() {
    insta::assert_snapshot!(shown("ncclSystemError"));
    for query in [
        "unhandled system error",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "ncclsystemerror",
        "nccl error 2",
    ] {
        assert_eq!(shown(query), shown("ncclSystemError"), "{query}");
    }
}

#[test]
fn a_cause_speaks_with_its_rules_words() {
    insta::assert_snapshot!(shown("skipped-collective"));
    for query in ["skipped collective", "Skipped_Collective"] {
        assert_eq!(shown(query), shown("skipped-collective"), "{query}");
    }
    insta::assert_snapshot!(shown("gpu-throttled"));
}

#[test]
fn a_warning_of_nccl() {
    let line = "node1:1234:1300 [2] init.cc:904 NCCL WARN Duplicate GPU detected : rank 2 and rank 0 both on CUDA \
                device 1000";
    insta::assert_snapshot!(shown(line));
    assert_eq!(
        found("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000"),
        found(line),
        "the text alone"
    );
}

#[test]
fn lines_of_the_kernel() {
    insta::assert_snapshot!(shown(
        "[12.3] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 \
         0x00000000 0x00000000 0x00000000 0x00000000)"
    ));
    let read = |query: &str| {
        let topics = explain(query).topics;
        let details = topics.iter().flat_map(|t| &t.read).map(|d| format!("{}: {}", d.name, d.value));
        details.collect::<Vec<_>>().join("; ")
    };
    let nvlink = "NVRM: Xid (PCI:0003:00:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on \
                  link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)";
    assert!(read(nvlink).contains("r2 bit 16: run field diagnostics if it recurs"), "{}", read(nvlink));
    let needs = "NVRM: Xid (PCI:0000:55:00): 154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)";
    assert!(read(needs).contains("the GPU now needs: Drain and Reset"), "{}", read(needs));
    assert_eq!(
        found(
            "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error"
        ),
        "Sxid sxid 12028"
    );
    assert_eq!(found("NVRM: Xid (PCI:0000:55:00): 999, what nobody knows"), "Xid xid 999");
    assert_eq!(
        found(
            "Out of memory: Killed process 15784 (python3) total-vm:11964kB, anon-rss:9300kB, file-rss:0kB"
        ),
        "Message event oom-kill"
    );
}

#[test]
fn lines_of_torch_and_its_launcher() {
    insta::assert_snapshot!(shown(
        "[rank3]:[E1120 12:00:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation \
         timeout: WorkNCCL(SeqNum=45, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=30000) ran for \
         30013 milliseconds before timing out."
    ));
    insta::assert_snapshot!(shown(
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:317, \
         unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.19.3\n\
         ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.\n\
         Last error:\n\
         Error: failed to extend /dev/shm/nccl-abc to 9637892 bytes, error: No space left on device (28)\n"
    ));
    for (line, expected) in [
        ("RuntimeError: CUDA error: device-side assert triggered", "device-side assert"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", "out of memory"),
        (
            "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "address-in-use",
        ),
    ] {
        assert!(found(line).to_lowercase().contains(expected), "{line}: {}", found(line));
    }
}

#[test]
fn what_ended_a_process_by_any_of_its_names() {
    for (queries, first) in [
        (["SIGKILL", "signal 9", "exit code 137", "exitcode: -9", "-9"], "Message event signal-9"),
        (["SIGSEGV", "Signal 11", "exit code 139", "exitcode: -11", "-11"], "Message event signal-11"),
        (
            [
                "HW Slowdown",
                "hw thermal slowdown",
                "HW Power Brake Slowdown",
                "SW Thermal Slowdown",
                "thermal slowdown",
            ],
            "Message event clocks-hw-slowdown",
        ),
    ] {
        for query in queries {
            assert_eq!(found(query), first, "{query}");
        }
    }
    assert_eq!(found("xid 9"), "Xid xid 9", "the number of an Xid is no signal");
    assert!(found("137").contains("signal-9") && found("137").contains("xid 137"));
    assert_eq!(
        found("Unable to determine the device handle for GPU 0000:1B:00.0"),
        "Message event gpu-no-handle"
    );
    assert_eq!(found("Driver/library version mismatch"), "Message event driver-mismatch");
    assert_eq!(found("GPU XID: 31"), "Xid xid 31");
}

#[test]
fn words_find_what_is_about_them() {
    assert_eq!(found("row remap failure").split(" | ").next(), Some("Cause row-remap-failure"));
    assert!(found("fallen off the bus").contains("Xid xid 79"));
    assert!(found("heartbeat").contains("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"));
    assert_eq!(found("NDR"), "Link NDR");
    assert_eq!(found("nvlink"), "Link NVLink");
    assert_eq!(found("8x H200"), "Bandwidth busbw");
    // Other forms of a word.
    assert!(found("throttle").starts_with("Cause gpu-throttled"));
    assert_eq!(found("throttling"), found("throttle"));
    assert!(
        found("thermal throttling").starts_with("Cause gpu-throttled"),
        "{}",
        found("thermal throttling")
    );
    // A message of a failure before one that tells of none.
    let told = explain("port already use").topics;
    let is_harmless = |topic: &ringleader::explain::answer::Topic| topic.title == "nothing is wrong";
    assert!(told.iter().any(is_harmless) && !is_harmless(&told[0]), "{}", found("port already use"));
    assert!(told.is_sorted_by_key(is_harmless), "{}", found("port already use"));
}

#[test]
fn a_symptom_in_the_words_of_whoever_has_it() {
    for (query, symptom) in [
        ("my job hangs", "hang"),
        ("training is stuck", "hang"),
        ("timeout", "timeout"),
        ("slow all_reduce", "slow"),
        ("why is training so slow?", "slow"),
        ("nan", "nan"),
        ("my loss is nan after step 200", "nan"),
        ("out of memory", "oom-gpu"),
        ("nccl error", "nccl-error"),
        ("connection refused", "connection"),
        ("gpu missing", "gpu-lost"),
        ("works on one node but not on two nodes", "multi-node"),
        ("dataloader is slow", "data-loading"),
        ("gpu disappeared", "gpu-lost"),
        ("why is my training so slow on two nodes", "slow-multi-node"),
        ("training stuck at the first step", "first-step"),
        ("one gpu at 100% and others at 0", "one-gpu-busy"),
        ("segfault", "segfault"),
        ("port already in use", "port-taken"),
        ("port 29500 is already in use", "port-taken"),
        ("hangs at init_process_group", "init-hang"),
        ("hang in init_process_group", "init-hang"),
        ("init_process_group", "init-hang"),
        ("cuda not available", "cuda-unavailable"),
        ("torch says cuda is not available", "cuda-unavailable"),
        ("loss spikes", "nan"),
        ("one rank is always late", "late-rank"),
        ("the network is flaky", "network-unsteady"),
        ("we see packet loss between nodes", "network-unsteady"),
        ("host memory keeps growing", "host-memory"),
        ("RAM is full after some hours", "host-memory"),
        ("all my gpus are idle", "all-idle"),
        ("the GPUs do nothing", "all-idle"),
    ] {
        assert_eq!(found(query), format!("Symptom symptom {symptom}"), "{query}");
    }
    for symptom in ringleader_knowledge::symptom::all() {
        for words in symptom.asked {
            let topics = explain(words).topics;
            assert_eq!(topics[0].name, format!("symptom {}", symptom.id), "{words}");
            let next = topics[0].actions[0].command.as_deref().unwrap_or_default();
            assert!(!next.is_empty(), "{words}: nothing to run next");
        }
    }
    let text = shown("my job hangs");
    assert!(
        text.starts_with("symptom: the job hangs\n") && text.contains("$ ringleader diagnose --live"),
        "{text}"
    );
    // What has the very name that is asked for stays what it is.
    assert_eq!(found("xid 79"), "Xid xid 79");
    assert_eq!(found("NCCL_IB_TIMEOUT"), "Variable NCCL_IB_TIMEOUT");
}

#[test]
fn a_status_by_its_name_and_by_its_number() {
    for (query, expected) in [
        ("status=12", "Status IBV_WC_RETRY_EXC_ERR"),
        ("transport retry counter exceeded", "Status IBV_WC_RETRY_EXC_ERR"),
        ("ibv_wc_retry_exc_err", "Status IBV_WC_RETRY_EXC_ERR"),
        ("cublas error 13", "Status CUBLAS_STATUS_EXECUTION_FAILED"),
        ("CUDNN_STATUS_NOT_SUPPORTED_SHAPE", "Status CUDNN_STATUS_NOT_SUPPORTED_SHAPE"),
        ("ucx -25", "Status UCS_ERR_CONNECTION_RESET"),
        ("FI_EHOSTUNREACH", "Status FI_EHOSTUNREACH"),
        ("MPI_ERR_TRUNCATE", "Status MPI_ERR_TRUNCATE"),
        ("slurm timeout", "Status slurm TIMEOUT"),
        ("NODE_FAIL", "Status NODE_FAIL"),
        ("OOMKilled", "Status OOMKilled"),
        ("CrashLoopBackOff", "Status CrashLoopBackOff"),
        ("errno 111", "Status ECONNREFUSED"),
        ("CUDA_ERROR_ILLEGAL_ADDRESS", "CudaError CUDA error 700"),
        ("cudaErrorInvalidPitchValue", "Status cudaErrorInvalidPitchValue"),
    ] {
        assert_eq!(found(query), expected, "{query}");
    }
    // An error without a library's name: all that it may be.
    let error = found("error 12");
    assert!(error.starts_with("Status IBV_WC_RETRY_EXC_ERR | "), "{error}");
    assert!(error.contains("ENOMEM") && error.contains("cudaErrorInvalidPitchValue"), "{error}");
    for (query, name) in [
        ("cuda error 47", "CUDA_ERROR_MULTICAST_RESOURCE_FULL"),
        ("cuda error 227", "cudaErrorInsufficientLoaderVersion"),
        ("CUDA_ERROR_INSUFFICIENT_LOADER_VERSION", "cudaErrorInsufficientLoaderVersion"),
        ("CUDA_ERROR_STREAM_DETACHED", "cudaErrorStreamDetached"),
        ("cudaErrorVersionTranslation", "cudaErrorVersionTranslation"),
        ("ucx -40", "UCS_ERR_FIRST_LINK_FAILURE"),
        ("MPIX_ERR_REVOKED", "MPI_ERR_REVOKED"),
        ("PLANNED", "slurm PLANNED"),
        ("ContainerCreating", "ContainerCreating"),
    ] {
        assert_eq!(found(query), format!("Status {name}"), "{query}");
    }
    // A number alone is an Xid, as before, and no status of a library.
    assert_eq!(found("48"), "Xid xid 48");
}

#[test]
fn the_words_of_a_report() {
    for word in ["culprit", "victims", "proof", "confidence", "high", "medium", "low", "disruptive", "guess"]
    {
        assert!(found(word).starts_with("Term "), "{word}: {}", found(word));
    }
    // Every label of the README's first report is a word or a cause.
    let readme = std::fs::read_to_string(crate::root().join("README.md")).unwrap();
    let (_, rest) = readme.split_once("<!-- output -->\n").unwrap();
    let (shown, _) = rest.split_once("<!-- /output -->").unwrap();
    for label in ["culprit", "victims", "proof", "looked at"] {
        assert!(shown.contains(label) && found(label).starts_with("Term "), "{label}");
    }
    assert!(explain("undecided").topics[0].sources.iter().all(|s| !s.contains("ARCHITECTURE")));
}

/// Titles of a report's sections, as its forms print them, read from their source so that a new one is asked for, too.
fn titles() -> Vec<String> {
    let source =
        |file: &str| std::fs::read_to_string(crate::root().join("crates/report/src").join(file)).unwrap();
    let literals = |text: &str| -> Vec<String> {
        text.split('"').skip(1).step_by(2).map(str::to_owned).filter(|word| word.len() > 3).collect()
    };
    let mut titles = Vec::new();
    for file in ["text.rs", "markdown.rs"] {
        let text = source(file);
        for call in text.split("heading(").skip(1) {
            titles.extend(literals(call.split(";\n").next().unwrap().split("\n    }").next().unwrap()));
        }
    }
    let html = source("html.rs");
    let sections = html.split("let all = [").nth(1).unwrap().split("];").next().unwrap();
    for row in sections.lines().filter(|line| line.trim_start().starts_with('(')) {
        titles.push(row.split('"').nth(3).unwrap().to_owned());
    }
    let open = source("open.rs");
    titles.extend(literals(open.split("fn title").nth(1).unwrap().split("\n}").next().unwrap()));
    // What is filled in is no title, nor is the word that one is chosen by.
    let bare = titles.iter().map(|title| title.split(" (").next().unwrap_or_default().to_owned());
    bare.filter(|title| title != "undecided" && !title.contains(['{', '#', '\\'])).collect()
}

#[test]
fn every_title_kind_and_state_of_a_report_is_a_word() {
    let titles = titles();
    for known in ["proof", "what to do", "what would decide", "Who waits for whom", "Notes", "looked at"] {
        assert!(titles.iter().any(|title| title == known), "{known}: {titles:?}");
    }
    let kinds = ringleader_model::SourceKind::ALL.map(|kind| kind.name().to_owned());
    let states = ["waits", "behind", "held", "ended", "gone", "stopped", "blocked", "alive", "no-record"];
    let others = [
        "bundle",
        "init",
        "guess:",
        "[harmless]",
        "not given:",
        "no GPU was checked",
        "default_pg",
        "opCount",
        "in short",
        "victims",
        "ranks",
        "empty",
        "not-read",
        "truncated",
        "limit-reached",
        "no record",
    ];
    let words =
        titles.into_iter().chain(kinds).chain(states.iter().chain(&others).map(|word| (*word).to_owned()));
    for word in words {
        let first = explain(&word).topics.into_iter().next();
        assert_eq!(first.map(|topic| topic.kind), Some(Kind::Term), "{word}: {}", found(&word));
    }
    assert_eq!(found("flight-recorder"), "Term flight-recorder");
    assert_eq!(found("guess:"), "Term guess");
}

#[test]
fn a_full_disk_is_told_from_a_full_shm() {
    let text = shown("No space left on device");
    assert_eq!(found("No space left on device"), "Symptom symptom no-space");
    assert!(
        text.contains("storage-failure: ") && text.contains("shm-full: ") && text.contains("/dev/shm"),
        "{text}"
    );
    assert!(shown("ENOSPC").contains("storage-failure"), "{}", shown("ENOSPC"));
    let line = "OSError: [Errno 28] No space left on device: '/data/ckpt.pt'";
    assert_eq!(
        explain(line).topics[0].see_also.first().map(String::as_str),
        Some("storage-failure"),
        "{}",
        shown(line)
    );
}

/// An answer that only says "not the root" would end nowhere.
#[test]
fn a_consequence_ends_with_a_command() {
    for query in [
        "Watchdog caught collective operation timeout",
        "RuntimeError: Socket Timeout",
        "torchrun cannot connect to master",
    ] {
        for topic in
            explain(query).topics.iter().filter(|topic| topic.title == "a consequence of something else")
        {
            let last = topic.actions.last().and_then(|action| action.command.as_deref());
            assert_eq!(last, Some("ringleader diagnose FOLDER"), "{query}: {}", topic.name);
        }
    }
    for topic in ringleader::explain::listed("messages").unwrap() {
        if topic.title == "a consequence of something else" {
            assert!(topic.actions.iter().any(|action| action.command.is_some()), "{}", topic.name);
        }
    }
}

#[test]
fn an_xid_that_nobody_knows_is_said_to_be_unknown() {
    for (query, name) in
        [("xid 1000", "Xid xid 1000"), ("xid 70000", "Xid xid 70000"), ("sxid 5", "Sxid sxid 5")]
    {
        assert_eq!(found(query), name);
        assert!(shown(query).contains("No such "), "{}", shown(query));
    }
    // Quoted without the driver's mark it is the same line.
    let line = "Xid (PCI:0000:65:00): 79, pid=1234, GPU has fallen off the bus.";
    assert_eq!(found(line), "Xid xid 79");
    assert_eq!(found(line), found(&format!("NVRM: {line}")));
    assert!(!found("what does Xid (79) mean").contains("pasted"));
}

/// `diagnose` and `explain` have one classifier: what a line is to one it is to the other.
#[test]
fn a_line_is_what_diagnose_takes_it_for() {
    let line = "mlx5_0: completion with IBV_WC_REM_ACCESS_ERR";
    let row = ringleader_knowledge::message::best(line).unwrap().row;
    assert_eq!(found(line), format!("Message message {}", row.id()));
    for row in ringleader_knowledge::message::all().step_by(37) {
        let topics = explain(&format!("message {}", row.id())).topics;
        assert_eq!(topics[0].name, format!("message {}", row.id()));
        assert!(!topics[0].meaning.is_empty() && !topics[0].sources.is_empty());
        let example = row.examples().next().unwrap();
        assert!(!explain(example).topics.is_empty(), "{}: {example}", row.id());
    }
}

#[test]
fn a_kind_is_listed_whole() {
    let run = |args: &[&str]| ringleader().arg("explain").args(args).output().unwrap();
    for kind in ringleader::explain::kinds() {
        let topics = ringleader::explain::listed(kind).unwrap();
        assert!(!topics.is_empty(), "{kind}");
        assert!(topics.iter().all(|t| !t.name.is_empty() && !t.meaning.is_empty()), "{kind}");
        fits(&ringleader::explain::page(&topics, &PLAIN), 80);
    }
    let verbs = run(&["--list", "verbs"]);
    assert_eq!(verbs.status.code(), Some(0));
    assert!(out(&verbs).contains("IBV_WC_RETRY_EXC_ERR ") && out(&verbs).contains("IBV_EVENT_PORT_ERR "));
    assert_eq!(out(&run(&["--list", "xid"])), out(&run(&["--list", "xids"])));
    let slurm = run(&["--list", "slurm", "--format", "json"]);
    let value: serde_json::Value = serde_json::from_slice(&slurm.stdout).unwrap();
    assert!(Schema::new(&schema()).fits(&value));
    assert!(
        value["topics"]
            .as_array()
            .unwrap()
            .iter()
            .any(|t| t["name"] == "PREEMPTED" || t["name"] == "slurm PREEMPTED")
    );
    let kinds = run(&["--list"]);
    assert_eq!(kinds.status.code(), Some(0));
    assert_eq!(out(&kinds).lines().collect::<Vec<_>>(), ringleader::explain::kinds());
    let wrong = run(&["--list", "planets"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(
        err(&wrong).contains("there is no such kind") && err(&wrong).contains("symptoms"),
        "{}",
        err(&wrong)
    );
}

/// What resets a GPU or starts a node anew ends every process there, whoever advises it.
#[test]
fn a_reboot_and_a_reset_are_destructive() {
    let mut n = 0;
    for topic in
        ringleader::explain::kinds().iter().flat_map(|kind| ringleader::explain::listed(kind).unwrap())
    {
        for action in topic.actions.iter().filter(|action| crate::restarts_a_machine(&action.text)) {
            assert_eq!(
                action.impact,
                ringleader_report::json::Impact::Destructive,
                "{}: {}",
                topic.name,
                action.text
            );
            n += 1;
        }
    }
    assert!(n > 20, "{n}");
}

#[test]
fn the_page_of_all_that_is_known() {
    insta::assert_snapshot!(catalog(&PLAIN));
    assert_eq!(catalog(&PLAIN), {
        let output = ringleader().arg("explain").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        out(&output).to_owned()
    });
}

#[test]
fn every_row_of_every_table_is_found_by_its_name() {
    let validator = Schema::new(&schema());
    let names = names();
    assert!(names.len() > 1_000, "{} names", names.len());
    for name in names.iter().cloned().chain(messages()) {
        let answer = explain(&name);
        assert!(!answer.topics.is_empty(), "{name} is not found");
        for topic in &answer.topics {
            assert!(!topic.meaning.is_empty() && !topic.title.is_empty(), "{name}: {topic:?}");
            assert!(
                topic.sources.iter().all(|s| s.len() > 5) && !topic.sources.is_empty(),
                "{name}: no source"
            );
            // What it points at is there.
            for other in &topic.see_also {
                assert!(names.contains(other), "{name} points at {other}, which is unknown");
            }
        }
        // A text may be the words of a cause; a name is answered by what has it.
        let first = &answer.topics[0];
        let has_aliases = matches!(first.kind, Kind::Variable | Kind::CudaError | Kind::Link);
        if names.contains(&name) && !has_aliases {
            // Or by the symptom that is called so, which leads to it.
            let is_symptom = first.kind == Kind::Symptom && first.see_also.contains(&name);
            assert!(first.name.eq_ignore_ascii_case(&name) || is_symptom, "{name} gives {}", first.name);
        }
        let value = serde_json::from_str(&answer.to_json().unwrap()).unwrap();
        assert!(validator.fits(&value), "{name} does not fit the schema");
        for width in [40, 80] {
            let shown = text::render(&answer, &TextStyle { width, ..PLAIN });
            fits(&without_commands(&shown), width);
            assert!(shown.lines().count() > 2, "{name}: {shown}");
        }
    }
}

/// Rows without commands: a quoted word of theirs stays whole, so that it can be copied.
fn without_commands(text: &str) -> String {
    let mut inside = false;
    let mut out = String::new();
    for row in text.lines() {
        inside |= row.trim_start().starts_with("$ ");
        if !inside {
            out.push_str(row);
            out.push('\n');
        }
        inside &= row.ends_with('\\');
    }
    out
}

#[test]
fn the_committed_schema_is_the_one_of_the_types() {
    let committed = std::fs::read_to_string(crate::root().join("docs/explain-v1.schema.json")).unwrap();
    assert!(committed == schema(), "run: cargo xtask gen");
    let validator = Schema::new(&schema());
    let good = serde_json::to_value(explain("xid 79")).unwrap();
    assert!(validator.fits(&good));
    for (pointer, bad) in [
        ("/schema", serde_json::json!("ringleader.explain.v2")),
        ("/topics/0/kind", serde_json::json!("gpu")),
        ("/topics/0/meaning", serde_json::json!(null)),
        ("/topics/0/actions/0/impact", serde_json::json!("free")),
    ] {
        let mut answer = good.clone();
        *answer.pointer_mut(pointer).unwrap() = bad;
        assert!(!validator.fits(&answer), "{pointer}");
    }
}

#[test]
fn a_misspelt_name_is_2_and_names_are_offered() {
    let run = |args: &[&str]| ringleader().arg("explain").args(args).output().unwrap();
    let output = run(&["NCCL_IB_TIMOUT"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    insta::assert_snapshot!(err(&output), @r"
    error: failed to explain 'NCCL_IB_TIMOUT': nothing is known by that name
      help: did you mean NCCL_IB_TIMEOUT?
    ");
    let output = run(&["skiped-colective", "--format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["nearest"][0], "skipped-collective");
    // Of a question the symptoms that share its words.
    let output = run(&["chekpoint infinibnd datalodr"]);
    let said = err(&output);
    assert_eq!(
        (output.status.code(), said.matches("ringleader explain symptom ").count()),
        (Some(2), 3),
        "{said}"
    );
    let output = run(&["xyzzy plugh"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("`ringleader explain` lists what can be explained"), "{}", err(&output));
}

#[test]
fn what_is_piped_is_complete_and_never_paged() {
    let output = ringleader().args(["explain", "xid", "79"]).env("PAGER", "false").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(out(&output), shown("xid 79"));
    let output =
        ringleader().args(["explain", "--color", "always", "--width", "60", "xid", "79"]).output().unwrap();
    let plain = text::render(&explain("xid 79"), &TextStyle { width: 60, ..PLAIN });
    assert_eq!(uncoloured(out(&output)), plain);
    assert_ne!(out(&output), plain);
}

#[test]
fn standard_input_is_read_on_request_and_huge_input_is_cut() {
    let run = |bytes: &[u8]| {
        let mut child = ringleader()
            .args(["explain", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let bytes = bytes.to_owned();
        let writer = std::thread::spawn(move || {
            // The program reads a bounded part and may be gone before all is written.
            let _ = pipe.write_all(&bytes);
        });
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    };
    assert_eq!(out(&run(b"xid 79\n")), shown("xid 79"));
    for junk in [vec![b'x'; 4 << 20], vec![0xff; 1 << 20], b"\n".repeat(1 << 20), b"(".repeat(1 << 20)] {
        let output = run(&junk);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{:?} {}", output.status, err(&output));
        assert!(output.stderr.len() < 2_000);
    }
}

/// Nothing in the answer acts on a terminal.
fn harmless(query: &str) {
    let answer = explain(query);
    assert_eq!(answer, explain(query), "the same question, the same answer");
    assert!(answer.query.chars().count() <= 420);
    let shown = text::render(&answer, &PLAIN);
    let json = answer.to_json().unwrap();
    for text in [&shown, &json] {
        let active = text.chars().find(|&c| c != '\n' && ringleader_report::quote::is_active(c));
        assert_eq!(active, None, "{query:?}");
    }
    fits(&shown, 80);
}

#[test]
fn hostile_questions_are_harmless() {
    let huge = format!("NVRM: Xid (PCI:0000:55:00): 79, {}", "a\u{1b}[2J".repeat(200_000));
    for query in [
        "",
        " ",
        "\u{1b}[2J\u{1b}]0;owned\u{7}",
        "NCCL_DEBUG=\u{1b}[31mINFO",
        "NCCL_DEBUG=\u{202e}OFNI",
        "xid 99999999999999999999",
        "=",
        "==",
        "=79",
        "xid",
        "xid -1",
        "-",
        "%s%n",
        "(((",
        "'",
        "\"",
        "`id`",
        "$(reboot)",
        "NVRM: Xid (PCI:0000:55:00): 79, \u{1b}[2J\r\u{9b}31m",
        "h:1:1 [0] a.cc:1 NCCL WARN \u{1b}[2J",
        "\0\0\0",
        &huge,
    ] {
        harmless(query);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_question_has_a_harmless_answer(query in any::<String>()) {
        harmless(&query);
    }

    #[test]
    fn any_mistake_in_a_name_has_a_harmless_answer(at in any::<prop::sample::Index>(), cut in any::<prop::sample::Index>(), with in any::<char>()) {
        let names = names();
        let name = at.get(&names);
        let mut chars: Vec<char> = name.chars().collect();
        let place = cut.index(chars.len());
        chars[place] = with;
        harmless(&chars.into_iter().collect::<String>());
    }
}

/// Time that this thread has run.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap())
}

/// The goal is 20 ms of processor time for the whole program; this is the part that can be slow. Without optimisation, beside
/// other tests, it may take three times as long: comparing a misspelt name with all 3,000 names takes most of it.
#[test]
fn an_answer_takes_less_than_20_ms() {
    for query in [
        "xid 79",
        "NCCL_IB_TIMEOUT",
        "NCCL_IB_TIMOUT",
        "row remap",
        "unhandled system error",
        "my job hangs",
        "zzzzzz zzzzz",
    ] {
        // Processor time, the best of several: the machine has other things to do.
        let best = (0..7)
            .map(|_| {
                let start = processor_time();
                let answer = explain(query);
                std::hint::black_box(text::render(&answer, &PLAIN));
                processor_time().saturating_sub(start)
            })
            .min();
        let limit = if cfg!(debug_assertions) { 60 } else { 20 };
        assert!(best < Some(Duration::from_millis(limit)), "{query}: {best:?}");
    }
}

/// Settings are remarked on beside the verdict; secrets of an environment go nowhere.
#[test]
fn a_listing_of_variables_is_checked_and_decides_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let common = "PATH=/bin\0MASTER_ADDR=n0\0WANDB_API_KEY=hunter2\0SLURM_JWT=hunter2\0NCCL_VERSION=2.28.9\0";
    for (rank, own) in [(0, "NCCL_IB_DISABLE=true\0"), (1, "NCCL_ALGO=Ring\0"), (2, "")] {
        let text = format!("{common}RANK={rank}\0{own}");
        std::fs::write(folder.path().join(format!("environ{rank}")), text).unwrap();
    }
    let output = ringleader().args(["diagnose", "--format", "json"]).arg(folder.path()).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["verdict"]["cause"], "none", "{report:#}");
    assert_eq!(output.status.code(), Some(0));
    let titles: Vec<&str> =
        report["findings"].as_array().unwrap().iter().map(|f| f["title"].as_str().unwrap()).collect();
    assert_eq!(
        titles,
        [
            "NCCL_IB_DISABLE=true: true reads as 0",
            "rank 1 differs in NCCL_ALGO: unset, Ring",
            "rank 0 differs in NCCL_IB_DISABLE: unset, true",
        ]
    );
    assert!(!out(&output).contains("hunter2"));
    assert_eq!(report["looked_at"][0]["kind"], "environment");
}
