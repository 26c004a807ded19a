use crate::tell::{read, tell, tell_recordings};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("ras", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected);
}

#[test]
fn recordings() {
    insta::assert_snapshot!(tell_recordings(|name| name.starts_with("ras")));
}

#[test]
fn total_counts_and_missing_ranks_of_2_24() {
    check(
        "\
NCCL version 2.24.3 compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE,MISMATCH

Errors
======

INCOMPLETE
  Missing communicator data from 2 job processes
  Process 3487984 on node 172.16.64.213 managing GPU 5
  [could not find information on 1 process]

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487985 on node 172.16.64.213 managing GPUs 6,7

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
  The missing ranks: 21,22

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

#0-0 (cf264af53edbe986) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  1 ranks have status RUNNING
  2 ranks have status FINALIZE
  Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210
  Rank 20 -- [process information not found]
  Communicator ranks have different collective operation counts
  26 ranks have launched up to operation 6650
  2 ranks have launched up to operation 6649
  Rank 0 -- GPU 0 managed by process 483072 on node 172.16.64.210
  Rank 2 -- GPU 2 managed by process 483074 on node 172.16.64.210
  Rank 5 has not launched any operations -- GPU 5 managed by process 483077 on node 172.16.64.210
",
        "
        line 1: RAS of NCCL 2.24.3 at None, 2 timeouts, unavailable None
        group 0 line 9: 1 comms of 32 ranks, 32 answered: RUNNING INCOMPLETE,MISMATCH
        process line 16 \"172.16.64.213\" pid Some(3487984) gpu Some(5) unresponsive
        process line 21 \"172.16.64.213\" pid Some(3487985) gpu None unresponsive dead
        comm cf264af53edbe986 of 32 [\"RUNNING\", \"UNKNOWN\", \"FINALIZE\"] [\"INCOMPLETE\", \"MISMATCH\"]
        26 ranks: all operations 6650
        26 ranks: UNKNOWN
        1 ranks: RUNNING
        2 ranks: FINALIZE
        rank 4 line 38 \"172.16.64.210\" pid Some(507289) gpu Some(4)  init None async None Some(\"FINALIZE\") finalizing
        rank 20 line 39 \"?\" pid None gpu None  init None async None Some(\"FINALIZE\") finalizing
        rank 0 line 43 \"172.16.64.210\" pid Some(483072) gpu Some(0) all operations 6649 init None async None None
        rank 2 line 44 \"172.16.64.210\" pid Some(483074) gpu Some(2) all operations 6649 init None async None None
        rank 5 line 45 \"172.16.64.210\" pid Some(483077) gpu Some(5) all operations 0 init None async None None
        missing rank 21 line 0 \"?\" pid None gpu None unresponsive
        missing rank 22 line 0 \"?\" pid None gpu None unresponsive
        ",
    );
}

#[test]
fn errors_keep_their_code_and_kind() {
    check(
        "\
Job summary
===========

#1-0 (09a453e677b56ef0) ERROR
  Initialization error on 1 rank
  Rank 3 reported System error -- GPU 3 managed by process 77 on node n1
  Asynchronous errors on 2 ranks
  2 ranks reported Remote process error
  Rank 0 -- GPU 0 managed by process 74 on node n1
  Rank 1 -- GPU 1 managed by process 75 on node n1
",
        "
        line 1: RAS of NCCL ? at None, 0 timeouts, unavailable None
        comm 9a453e677b56ef0 of 0 [] [\"ERROR\"]
        1 ranks: System error
        2 ranks: Remote process error
        rank 3 line 6 \"n1\" pid Some(77) gpu Some(3)  init Some(2) async None None
        rank 0 line 9 \"n1\" pid Some(74) gpu Some(0)  init None async Some(6) None
        rank 1 line 10 \"n1\" pid Some(75) gpu Some(1)  init None async Some(6) None
        ",
    );
}

#[test]
fn ranks_that_left_a_communicator_are_missing_but_not_silent() {
    check(
        "\
Job summary
#0-0 (3ba345c8d08d49af) MISMATCH
  Communicator ranks have different status
  3 ranks have status RUNNING
  Rank 3 has status NOCOMM -- GPU 1 (NVML 3) managed by process 9 on node n1
",
        "
        line 1: RAS of NCCL ? at None, 0 timeouts, unavailable None
        comm 3ba345c8d08d49af of 0 [\"RUNNING\", \"NOCOMM\"] [\"MISMATCH\"]
        3 ranks: RUNNING
        1 ranks: NOCOMM
        missing rank 3 line 5 \"n1\" pid Some(9) gpu Some(1)
        ",
    );
}

#[test]
fn two_queries_are_two_reports() {
    let one = "NCCL version 2.28.9 compiled with CUDA 13.0\nJob summary\n===========\n";
    check(
        &format!("$ ncclras -v\n{one}$ sleep 10\n{one}"),
        "
        line 2: RAS of NCCL 2.28.9 at None, 0 timeouts, unavailable None
        line 6: RAS of NCCL 2.28.9 at None, 0 timeouts, unavailable None
        ",
    );
}

#[test]
fn events_tell_who_is_gone_and_forget_who_came_back() {
    check(
        "\
RAS Monitor Mode - watching for peer changes (Ctrl+C to exit)...
================================================================
[2026-11-20 08:21:30] PEER_NEW: Process 1 on node 10.0.0.1 managing GPU 0
[2026-11-20 08:21:31] PEER_UNRESPONSIVE: Process 2 on node 10.0.0.1 managing GPU 1 no message for 5s
[2026-11-20 08:21:31] PEER_UNRESPONSIVE: Process 3 on node 10.0.0.1 managing GPU 2 no message for 5s
[2026-11-20 08:21:32] PEER_RECOVERED: Process 3 on node 10.0.0.1 managing GPU 2 peer responding again
[2026-11-20 08:22:31] PEER_DEAD: Process 2 on node 10.0.0.1 managing GPU 1
[2026-11-20 08:22:32] PEER_DEAD: 10.0.0.9<4711>
",
        "
        line 7: RAS of NCCL ? at Some(1795162951), 0 timeouts, unavailable None
        process line 7 \"10.0.0.1\" pid Some(2) gpu Some(1) unresponsive dead
        line 8: RAS of NCCL ? at Some(1795162952), 0 timeouts, unavailable None
        process line 8 \"10.0.0.9\" pid None gpu None unresponsive dead
        ",
    );
    let event = |name: &str| {
        format!(
            "{{\n  \"timestamp\": \"2026-11-20 08:21:32\",\n  \"group\": \"LIFECYCLE\",\n  \"event\": \"{name}\",\n  \
             \"peer\": {{\n    \"host\": \"10.0.0.1\",\n    \"pid\": 7,\n    \"cuda_devs\": [1],\n    \"nvml_devs\": [1]\n  }},\n  \
             \"details\": \"\"\n}}\n"
        )
    };
    let expected = "
        line 13: RAS of NCCL ? at Some(1795162892), 0 timeouts, unavailable None
        process line 13 \"10.0.0.1\" pid Some(7) gpu Some(1) unresponsive dead
        ";
    check(&format!("{}{}", event("PEER_NEW"), event("PEER_DEAD")), expected);
    check(&format!("OK\n{}{}", event("PEER_NEW"), event("PEER_DEAD")), &expected.replace("13", "14"));
}

#[test]
fn a_cut_report_keeps_the_ranks_before_the_cut() {
    let whole = "OK\n{\n  \"nccl_version\": \"2.28.9\",\n  \"communicators\": [\n    {\n      \"hash\": \"0xab\",\n      \
                 \"size\": 2,\n      \"ranks\": [\n        {\n          \"rank\": 0,\n          \"pid\": 5\n        },\n        {\n          \"rank\": 1,\n          \"pi";
    check(
        whole,
        "
        line 2: RAS of NCCL 2.28.9 at None, 0 timeouts, unavailable None
        comm ab of 2 [] [] all listed
        rank 0 line 10 \"?\" pid Some(5) gpu None  init None async None None
        rank 1 line 14 \"?\" pid None gpu None  init None async None None
        note Truncated line 2: the JSON document ends early; what came before was read
        ",
    );
}

#[test]
fn a_service_that_is_not_there_is_told() {
    let unavailable = "line 1: RAS of NCCL ? at None, 0 timeouts, unavailable Some(";
    check(
        "[ConnectionRefusedError(111, 'Connection refused')]",
        &format!("{unavailable}\"[ConnectionRefusedError(111, 'Connection refused')]\")"),
    );
    check(
        "Connecting to localhost:28028: Connection refused\nFailed to connect to the NCCL RAS service!\n",
        &format!("{unavailable}\"Connecting to localhost:28028: Connection refused\")"),
    );
    // Such a line in the middle of something says nothing about RAS.
    check("[ConnectionRefusedError(111, 'Connection refused')]\nretrying\n", "");
}

#[test]
fn prints_that_look_alike_are_no_report() {
    check(
        "Rank 3 has launched up to operation 5\n{'timestamp': 1}\nNCCL version 2.28.9+cuda13.0\nDEAD\n",
        "",
    );
    check("x\n{\"timestamp\": \"2026-11-20\", \"level\": \"info\"}\n{\n  \"timestamp\": 1\n}\n", "");
}
