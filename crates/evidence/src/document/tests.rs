use crate::tell::{read, tell};

/// What is read from `input`.
fn check(input: &str, expected: &str) {
    let told = tell(&read("j", input.as_bytes()));
    assert_eq!(told.trim_end(), expected, "{}", input.get(..80).unwrap_or(input));
}

#[test]
fn unknown_json_is_said_to_be_so() {
    check("{\"a\": [1, 2]}\n", "j [text] 14 B\n  note Unrecognised line 0: JSON that no reader knows");
    check(
        "{\"a\": 1}\n{\"a\": 2}\n",
        "j [text] 18 B\n  note Unrecognised line 0: 2 JSON documents that no reader knows",
    );
}

#[test]
fn a_log_that_begins_with_json_is_read_as_text() {
    let told = "j [text] 27 B";
    check("{\"loss\": 1}\nstep 2 is done\n", told);
    let ulimit = "{\"loss\": 1}\nopen files                          (-n) 1024\n";
    check(ulimit, "j [limits] 58 B\n  line 2: 2: OpenFiles Some(1024)/None");
}

#[test]
fn nesting_is_bounded() {
    let deep = "[".repeat(100_000);
    check(&deep, "j [text] 100000 B\n  note LimitReached line 1: JSON that is nested too deep to be read");
    let deep = format!("{{\"nccl_version\": \"2.28.9\", \"communicators\": {deep}");
    let told = tell(&read("j", deep.as_bytes()));
    assert!(told.contains("nested too deep"), "{told}");
}

#[test]
fn many_broken_documents_do_not_eat_the_stack() {
    let one = "{\"nccl_version\": \"2.28.9\", \"communicators\": [{\"size\": 4 \"ranks\": []}]}\n";
    let told = tell(&read("j", one.repeat(5_000).as_bytes()));
    assert_eq!(told.matches("RAS of NCCL").count(), 5_000);
}

#[test]
fn known_documents_before_damage_stay() {
    let one = "{\"nccl_version\": \"2.28.9\", \"communicators\": []}\n";
    check(
        &format!("{one}{one}}}}}"),
        "j [nccl-ras] 98 B
  line 1: RAS of NCCL 2.28.9 at None, 0 timeouts, unavailable Some(\"no communicator in the report\")
  line 2: RAS of NCCL 2.28.9 at None, 0 timeouts, unavailable Some(\"no communicator in the report\")
  note Malformed line 3: JSON ends here with an error (expected value at line 1 column 1); the rest was left out",
    );
}
