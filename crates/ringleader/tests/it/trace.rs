//! `ringleader trace` as users meet it.

use std::process::Command;

use serde_json::Value;

use crate::schema::Schema;

fn trace(case: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let folder = crate::root().join("cases").join(case).join("evidence");
    let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .arg("trace")
        .args(arguments)
        .arg(folder)
        .output()
        .unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn the_report_fits_its_schema() {
    let committed = std::fs::read_to_string(crate::root().join("docs/trace-v1.schema.json")).unwrap();
    assert_eq!(committed, ringleader_report::trace::schema(), "run cargo xtask gen");
    let schema = Schema::new(&committed);
    for case in ["ddp-profile", "trace-slow-gpu", "trace-experts"] {
        let (text, code) = trace(case, &["--format", "json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(schema.misfits(&report), Vec::<String>::new());
        assert_eq!(code, Some(0));
    }
}

#[test]
fn what_a_step_is_made_of_is_the_step() {
    let (text, _) = trace("trace-empty-cache", &["--format", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["verdict"]["cause"], "allocator-stalls");
    for rank in report["ranks"].as_array().unwrap() {
        let of = |key: &str| rank[key].as_f64().unwrap();
        let idle: f64 = rank["idle"].as_object().unwrap().values().filter_map(Value::as_f64).sum();
        let sum = of("compute") + of("exposed_comm") + of("exposed_copy") + idle;
        assert!((sum - of("step")).abs() < 0.01, "{rank}");
    }
}

#[test]
fn one_screen_says_it() {
    let (text, _) = trace("trace-slow-gpu", &[]);
    insta::assert_snapshot!(text);
}

#[test]
fn rings_show_who_is_late_where_nothing_else_was_recorded() {
    let (text, code) = trace("ring-slow-gpu", &["--format", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(report["verdict"]["cause"], "straggler", "{text}");
    assert_eq!(report["verdict"]["culprits"], serde_json::json!([2]), "{text}");
    assert!(report["ranks"].as_array().unwrap().iter().all(|rank| rank["recorder"] == "NCCL plugin's ring"));
    // Communication alone is no proof that nothing can be gained.
    let (text, code) = trace("ring-healthy-at-work", &["--format", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((report["verdict"]["cause"].as_str(), code), (Some("undecided"), Some(5)), "{text}");
}

#[test]
fn unequal_work_is_shown_by_axis() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let (text, _) = trace("trace-experts", &["--format", "json", "--html", &page.display().to_string()]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let axis = &report["axes"][0];
    assert_eq!((axis["name"].as_str(), &axis["groups"]), (Some("world"), &serde_json::json!([[0, 1]])));
    assert_eq!((axis["last_rank"].as_u64(), axis["named"].as_bool()), (Some(1), Some(true)));
    let most = &axis["unequal"][0];
    assert_eq!((most["what"].as_str(), most["rank"].as_u64()), (Some("expert-tokens"), Some(1)), "{axis}");
    // 28,520,448 elements of 16,777,216 on average.
    assert!((most["excess_pct"].as_f64().unwrap() - 70.0).abs() < 0.1, "{axis}");
    let summary = report["verdict"]["summary"].as_str().unwrap();
    assert!(summary.contains("(world: one rank has 70 % more tokens for its experts"), "{summary}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(
        page.contains("Imbalance by axis of parallelism") && page.contains("expert tokens 70 % (rank 1)")
    );
    let (text, _) = trace("trace-experts", &[]);
    assert!(text.contains("  world              1x2      6.5  expert tokens 70 % (rank 1)"), "{text}");
    // Equal ranks of one group: no line.
    assert!(!trace("trace-control", &[]).0.contains("axis"));
}

fn against(case: &str, other: &str, arguments: &[&str]) -> (String, Option<i32>) {
    let other = crate::root().join("cases").join(other).join("evidence").display().to_string();
    trace(case, &[&["--against", &other], arguments].concat())
}

#[test]
fn a_comparison_fits_its_schema() {
    let committed =
        std::fs::read_to_string(crate::root().join("docs/trace-comparison-v1.schema.json")).unwrap();
    assert_eq!(committed, ringleader_report::trace::compare::schema(), "run cargo xtask gen");
    let schema = Schema::new(&committed);
    let pairs = [("trace-slow-gpu", "trace-control"), ("trace-experts", "trace-experts-control")];
    for (case, other) in pairs {
        let (text, code) = against(case, other, &["--json"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(schema.misfits(&report), Vec::<String>::new());
        assert_eq!((report["schema"].as_str(), code), (Some("ringleader.trace-comparison.v1"), Some(0)));
        // The changes of the parts are the change of the step.
        let sum: f64 =
            report["parts"].as_array().unwrap().iter().filter_map(|p| p["change_ms"].as_f64()).sum();
        assert!((sum - report["step"]["change_ms"].as_f64().unwrap()).abs() < 0.02, "{report}");
        let (same, _) = against(case, other, &["--format", "json-v1"]);
        assert_eq!(same, text);
    }
}

#[test]
fn a_recording_does_not_differ_from_itself() {
    let (text, _) = against("trace-slow-gpu", "trace-slow-gpu", &["--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (report["step"]["change_ms"].as_f64(), &report["step"]["clear"]),
        (Some(0.0), &Value::from(false))
    );
    assert_eq!(report["kernels"], serde_json::json!([]));
}

#[test]
fn one_screen_compares() {
    let (text, code) = against("trace-slow-gpu", "trace-control", &[]);
    assert!(text.lines().count() <= 50, "{text}");
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(text);
    let (markdown, _) = against("trace-slow-gpu", "trace-control", &["--format", "markdown"]);
    assert!(markdown.starts_with("**A step takes ") && markdown.contains("| part | there | here | change |"));
    let (text, _) = trace("trace-slow-gpu", &["--format", "markdown"]);
    assert!(text.starts_with("**straggler (rank 0)") && text.trim_end().ends_with("```"), "{text}");
}

/// A small timeline of PyTorch's profiler: four steps of a kernel and an all-reduce whose ends agree; the rank's clock is ahead.
fn small(rank: i64, ahead_us: i64) -> String {
    let mut events = Vec::new();
    for step in 0..4 {
        let at = 10_000 + step * 1_000 + ahead_us;
        let mut push = |cat: &str, name: &str, (tid, ts, dur): (i64, i64, i64), args: Value| {
            events.push(serde_json::json!({"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur,
                                           "args": args}));
        };
        let link = step * 10 + 1;
        push("user_annotation", &format!("ProfilerStep#{step}"), (1, at, 990), serde_json::json!({}));
        push("cuda_runtime", "cudaLaunchKernel", (1, at + 20, 5), serde_json::json!({"correlation": link}));
        push(
            "cuda_runtime",
            "cudaLaunchKernel",
            (1, at + 40, 5),
            serde_json::json!({"correlation": link + 1}),
        );
        let args = serde_json::json!({"correlation": link, "stream": 7, "device": 0, "grid": [64, 1, 1]});
        push("kernel", "gemm", (7, at + 30, 500 + 10 * rank), args);
        let args = serde_json::json!({"correlation": link + 1, "stream": 20, "device": 0, "Collective name": "allreduce",
                                      "In msg nelems": 1 << 20, "Out msg nelems": 1 << 20, "Group size": 2, "dtype": "Float",
                                      "Process Group Name": "0", "Process Group Ranks": "[0, 1]"});
        push("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", (20, at + 560 + rank, 100 - rank), args);
    }
    serde_json::json!({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": 2}, "traceEvents": events}).to_string()
}

#[test]
fn all_ranks_in_one_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let merged = folder.path().join("merged.json");
    let ranks = folder.path().join("ranks");
    std::fs::create_dir(&ranks).unwrap();
    for rank in 0..2 {
        std::fs::write(ranks.join(format!("rank{rank}.json")), small(rank, rank * 3_000)).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .arg("trace")
        .arg("--perfetto")
        .args([&merged, &ranks])
        .output()
        .unwrap();
    assert!(output.status.code().is_some_and(|code| code == 0 || code == 5), "{output:?}");
    let text = std::fs::read_to_string(&merged).unwrap();
    let events: Value = serde_json::from_str(&text).unwrap();
    // On one clock: the all-reduces of both ranks end together, and slices of one lane do not cross.
    let mut lanes: std::collections::BTreeMap<String, f64> = std::collections::BTreeMap::new();
    let mut ends: std::collections::BTreeMap<String, Vec<f64>> = std::collections::BTreeMap::new();
    for event in events["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X") {
        let (ts, dur) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
        let lane = lanes.entry(format!("{} {}", event["pid"], event["tid"])).or_insert(f64::MIN);
        assert!(ts + 1e-6 >= *lane, "{event}");
        *lane = ts + dur;
        if event["name"].as_str().unwrap().starts_with("nccl") {
            ends.entry(event["pid"].to_string()).or_default().push(ts + dur);
        }
    }
    assert_eq!(ends["0"], ends["1"]);
    insta::assert_snapshot!(text);
}

#[test]
fn nothing_to_compare_with_is_no_comparison() {
    let (text, code) = against("trace-slow-gpu", "healthy", &[]);
    assert_eq!((text.as_str(), code), ("", Some(3)));
}

/// What `ringleader bench --save` writes of two GPUs that reach so much with any message from 1 MiB on.
fn measured(gpu: &str, bus_gb_s: f64) -> String {
    use ringleader_probe::bench::{Method, Report, Row, SCHEMA, Timing};
    let gpu = |rank| ringleader_probe::facts::Gpu {
        rank,
        host: "here".to_owned(),
        name: gpu.to_owned(),
        ..ringleader_probe::facts::Gpu::default()
    };
    let row = |size_bytes: u64| Row {
        collective: "all_reduce".to_owned(),
        op: Some("sum".to_owned()),
        root: None,
        size_bytes,
        count: size_bytes / 4,
        out_of_place: Timing { bus_gb_s, ..Timing::default() },
        in_place: None,
        way: Some("NVLS/SIMPLE x16".to_owned()),
    };
    let report = Report {
        schema: SCHEMA.to_owned(),
        n_ranks: 2,
        n_processes: 1,
        nccl: ("2.28.9".to_owned(), "libnccl.so.2".to_owned()),
        cuda: 13_000,
        method: Method { dtype: "float".to_owned(), warmup: 1, iterations: 20, checks: 1, graphs: 0 },
        gpus: vec![gpu(0), gpu(1)],
        settings: Vec::new(),
        rows: vec![row(1 << 20), row(1 << 30)],
        verdicts: Vec::new(),
        pairs: Vec::new(),
        connections: Vec::new(),
        changes: Vec::new(),
        notes: Vec::new(),
    };
    serde_json::to_string(&report).unwrap()
}

#[test]
fn bandwidths_are_compared_with_what_was_measured_here() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.json").display().to_string();
    let with = |case: &str, text: &str| -> Value {
        std::fs::write(&path, text).unwrap();
        let (text, code) = trace(case, &["--format", "json", "--baseline", &path]);
        assert_eq!(code, Some(0), "{text}");
        serde_json::from_str(&text).unwrap()
    };
    let words = "baseline base.json: 2 ranks on one node of NVIDIA H200, NCCL 2.28.9";
    // The job reaches what the baseline does: its fault remains what it was.
    let report = with("trace-huge-bucket", &measured("NVIDIA H200", 345.0));
    assert_eq!(report["verdict"]["cause"], "no-compute-overlap");
    assert_eq!(report["compared_with"], serde_json::json!([words]));
    assert_eq!(report["collectives"][0]["expected_gbs"], 345.0);
    // It reaches half of it, which no rule of others shows.
    let report = with("trace-huge-bucket", &measured("NVIDIA H200", 720.0));
    assert_eq!(report["verdict"]["cause"], "bandwidth-below-expected", "{report}");
    assert_eq!(
        report["verdict"]["summary"],
        "collectives reach 335 of the 720 GB/s of bus bandwidth that the baseline reached at 1208 MB \
         (here with 24 channels, there NVLS/SIMPLE x16)"
    );
    // Hidden behind computation a low bandwidth costs nothing.
    let report = with("trace-control", &measured("NVIDIA H200", 720.0));
    assert_eq!(report["verdict"]["cause"], "none", "{report}");
    // What was measured on other GPUs, or with other numbers of ranks, says nothing.
    let report = with("trace-huge-bucket", &measured("NVIDIA A100-SXM4-80GB", 720.0));
    assert_eq!(report["verdict"]["cause"], "no-compute-overlap");
    assert!(report["notes"][0].as_str().unwrap().contains("the baseline is not compared with"), "{report}");
    let devices: Vec<String> = (0..8)
        .map(|n| format!("#  Rank  {n} Group  0 Pid   100 on       here device  {n} [0x0{n}] NVIDIA H200"))
        .collect();
    let eight = format!(
        "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 1073741824\n#\n# Using devices\n{}\n\
         #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n\
         1073741824     268435456     float     sum      -1   4060.0  264.50  462.80      0   4061.0  264.40  462.70      0\n",
        devices.join("\n")
    );
    std::fs::write(&path, "$ all_reduce_perf -b 1G -e 1G -g 8\n".to_owned() + &eight).unwrap();
    let (text, code) = trace("trace-huge-bucket", &["--baseline", &path]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("the baseline is not compared with: it has 8 ranks"), "{text}");
    assert!(text.contains("  expected: 78 % of NVLink's rate"), "{text}");
}

#[test]
fn what_measured_nothing_is_no_baseline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.json");
    std::fs::write(&path, "{}").unwrap();
    let (text, code) = trace("trace-control", &["--baseline", &path.display().to_string()]);
    assert_eq!((text.as_str(), code.is_some_and(|code| code != 0)), ("", true));
}

#[test]
fn what_is_no_timeline_is_no_evidence() {
    let (text, code) = trace("healthy", &[]);
    assert_eq!((text.as_str(), code), ("", Some(3)));
}

#[test]
fn pages_and_pictures_fetch_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (html, svg, png) = (at("page.html"), at("pictures"), at("images"));
    let (_, code) = trace("trace-slow-gpu", &["--html", &html, "--svg", &svg, "--png", &png]);
    assert_eq!(code, Some(0));
    let page = std::fs::read_to_string(html).unwrap();
    assert!(page.contains("on a common clock") && page.contains("Waiting for other ranks"));
    assert!(!page.contains("src=") && !page.contains("href="), "the page refers to something");
    for name in ["steps", "bandwidth", "timeline", "lateness"] {
        let picture =
            std::fs::read_to_string(folder.path().join("pictures").join(format!("{name}.svg"))).unwrap();
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"), "{name}");
        assert_eq!(picture.matches("rank 0").count().min(1), usize::from(name != "bandwidth"), "{name}");
        let image = std::fs::read(folder.path().join("images").join(format!("{name}.png"))).unwrap();
        assert!(image.starts_with(b"\x89PNG\r\n\x1a\n") && image.ends_with(b"IEND\xaeB`\x82"), "{name}");
        // Twice the picture's size, and room for its title.
        let width = u32::from_be_bytes(image[16..20].try_into().unwrap());
        assert_eq!(width, 1_520, "{name}");
        assert!(image.len() < 64 << 10, "{name}: {} bytes", image.len());
    }
}

#[test]
fn a_picture_of_nothing_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let evidence = folder.path().join("one");
    std::fs::create_dir(&evidence).unwrap();
    let name = "trace_rank0.json.xz";
    std::fs::copy(crate::root().join("cases/trace-control/evidence").join(name), evidence.join(name))
        .unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .args(["trace", "--png"])
        .arg(folder.path().join("images"))
        .arg(&evidence)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut names: Vec<String> = std::fs::read_dir(folder.path().join("images"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["bandwidth.png", "steps.png", "timeline.png"], "nobody to wait for");
}

/// A stand-in for nsys writes down what it was told, and an export.
#[test]
fn a_command_runs_under_nsys() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let nsys = folder.path().join("nsys");
    let script = "#!/bin/sh\necho \"$@\" > \"$TOLD\"\nfor a; do case $a in --output=*) o=${a#--output=};; esac; done\n\
                  mkdir -p \"${o%/*}\"; : > \"${o%/*}/nsys-here-1.sqlite\"\nexit 7\n";
    std::fs::write(&nsys, script).unwrap();
    std::fs::set_permissions(&nsys, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let told = folder.path().join("told");
    let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .args(["trace", "record", "--nsys-delay", "3", "-o"])
        .arg(folder.path().join("out"))
        .args(["--", "python3", "train.py", "--lr", "1"])
        .env("PATH", path)
        .env("TOLD", &told)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "the command's own code: {output:?}");
    let told = std::fs::read_to_string(told).unwrap();
    assert!(told.starts_with("profile --trace=cuda,nvtx,osrt --sample=none"), "{told}");
    assert!(told.contains("--delay=3 --duration=5") && told.ends_with("python3 train.py --lr 1\n"), "{told}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("Now: ringleader trace "));
}
