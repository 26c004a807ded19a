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
