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
fn what_is_no_timeline_is_no_evidence() {
    let (text, code) = trace("healthy", &[]);
    assert_eq!((text.as_str(), code), ("", Some(3)));
}
