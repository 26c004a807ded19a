use crate::tell::{read, tell, tell_recordings};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("bench", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected);
}

#[test]
fn rows_without_their_head() {
    check(
        "\
   536870912     134217728     float     sum      -1   3284.1  163.48  286.08      0   3270.0  164.18  287.32      0
  1073741824     268435456     float     sum      -1  4551.76  235.90  353.84      0  4550.80  235.95  353.92      3
step 3 4 float is no row
",
        "
        line 1: None NCCL None command None settings [] out of bounds None average None exit None
        0 GPUs:
        1: 536870912 B 3284.1 us 163.48/286.08 GB/s wrong Some(0), 3270 us 164.18/287.32 GB/s wrong Some(0)
        2: 1073741824 B 4551.76 us 235.9/353.84 GB/s wrong Some(0), 4550.8 us 235.95/353.92 GB/s wrong Some(3)
        ",
    );
}

#[test]
fn recordings() {
    insta::assert_snapshot!(tell_recordings(|name| name.ends_with("_perf.txt")
        || name.starts_with("nccl-tests")
        || name == "repro.txt"));
}

#[test]
fn wrong_elements_are_counted() {
    check(
        "\
user@node0:~/nccl-tests$ NCCL_P2P_DISABLE=1 mpirun -np 2 ./build/all_reduce_perf -g 1
#   Rank  0 Pid  21440 on node0.example device  0 [0x01] NVIDIA RTX A6000
#                                                       out-of-place                       in-place
           8             2     float     sum      -1    117.6    0.00    0.00      2     0.13    0.06    0.00    N/A
     1048576        262144     float     sum      -1    117.6    9.00    9.00  1.6e+06  0.13    9.06    9.10      0
# Out of bounds values : 3 FAILED
# Avg bus bandwidth    : 12.5 OK
$ echo $?
1
",
        r#"
        line 2: Some("all_reduce") NCCL None command Some("NCCL_P2P_DISABLE=1 mpirun -np 2 ./build/all_reduce_perf -g 1") settings [("NCCL_P2P_DISABLE", "1")] out of bounds Some((6, 3)) average Some((7, 12.5)) exit Some((9, 1))
        1 GPUs: 2:0/node0/21440/0000:01:00.0/NVIDIA RTX A6000
        4: 8 B 117.6 us 0/0 GB/s wrong Some(2), 0.13 us 0.06/0 GB/s wrong None
        5: 1048576 B 117.6 us 9/9 GB/s wrong Some(1600000), 0.13 us 9.06/9.1 GB/s wrong Some(0)
        "#,
    );
}

#[test]
fn old_tables_print_the_largest_error_and_no_root() {
    check(
        "\
# nThread 1 nGpus 2 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
    33554432       8388608   float     sum    100.0   33.55   33.55  5e-07    101.0   33.22   33.22  0e+00
",
        r"
        line 1: None NCCL None command None settings [] out of bounds None average None exit None
        0 GPUs:
        4: 33554432 B 100 us 33.55/33.55 GB/s wrong None, 101 us 33.22/33.22 GB/s wrong None
        ",
    );
}

#[test]
fn json_of_a_run() {
    check(
        r#"{"version":1,"start_time":"x","args":["./build/all_gather_perf","-b","8"],"env":["PATH=/bin","NCCL_ALGO=Ring"],
"nccl_version":22809,"config":{"nthreads":1,"devices":[{"rank":0,"group":0,"pid":7,"hostname":"vm","device":0,
"device_hex":"0000:00:06","device_info":"NVIDIA H200"}]},"results":[{"size":8,"count":2,"type":"float","redop":"none",
"root":"-1","out_of_place":{"time":20.5,"alg_bw":0.1,"bus_bw":0.2,"nwrong":4.0},"in_place":{"time":1.0,"alg_bw":0.1,
"bus_bw":0.2,"nwrong":null},"actual_iterations":20}],"out_of_bounds":{"count":1,"okay":"false"},
"average_bus_bandwidth":{"bandwidth":0.25,"okay":"unchecked"},"errors":[]}"#,
        r#"
        line 1: Some("all_gather") NCCL Some("2.28.9") command Some("./build/all_gather_perf -b 8") settings [("NCCL_ALGO", "Ring")] out of bounds Some((1, 1)) average Some((1, 0.25)) exit None
        1 GPUs: 1:0/vm/7/0000:00:06.0/NVIDIA H200
        1: 8 B 20.5 us 0.1/0.2 GB/s wrong Some(4), 1 us 0.1/0.2 GB/s wrong None
        "#,
    );
}

#[test]
fn copies_between_gpus() {
    check(
        "\
>>> a = torch.arange(8, device=\"cuda:0\")
>>> b = a.to(\"cuda:1\")
>>> a.sum().item(), b.sum().item()
(28, 28)
>>> (a.cpu() == b.cpu()).all()
tensor(False)
>>> c = torch.zeros(8)
>>> torch.equal(a.cpu(), c)
False
Enabling peer access between GPU0 and GPU1...
Verification error @ element 1: val = 0.000000, ref = 4.000000
Verification error @ element 2: val = 0.000000, ref = 8.000000
Test failed!
",
        "
        line 3: copy Some(0) -> Some(1) right: a.sum().item(), b.sum().item()
        line 5: copy Some(0) -> Some(1) WRONG: (a.cpu() == b.cpu()).all()
        line 11: copy Some(0) -> Some(1) WRONG: simpleP2P
        ",
    );
}

#[test]
fn lines_of_others_are_left() {
    check(
        "# Using devices of the lab\n8 2 float sum\n8 2 float sum -1 fast 1 1 0\n# size matters\n124\n",
        "",
    );
    check(">>> a = 1\n>>> a == 1\nTrue\n", "");
}

mod laws {
    use proptest::prelude::*;

    use crate::tell::read;

    const RUN: &str = "\
$ ./build/all_reduce_perf -g 2
# Using devices
#  Rank  0 Group  0 Pid   4242 on         vm device  0 [0000:00:06] NVIDIA H200
        1024           256     float     sum      -1    21.72    0.05    0.07       0    20.74    0.05    0.07       0
# Out of bounds values : 0 OK
$ echo $?
124
>>> a = torch.arange(8, device=\"cuda:0\")
>>> b = a.to(\"cuda:1\")
>>> torch.equal(a, b)
False
";

    #[test]
    fn sums_without_a_mark() {
        let wrong = |text: &str| {
            let read = read("bench", text.as_bytes());
            read.observations.iter().find_map(|o| match &o.fact {
                ringleader_model::Fact::Bench(run) => run.out_of_bounds.map(|(_, n)| n),
                _ => None,
            })
        };
        let run = "# Using devices\n#   Rank  0 on gk45 device  0 [0x04] Tesla P100-PCIE-16GB\n";
        assert_eq!(wrong(&format!("{run} Out of bounds values : 24 FAILED\n")), Some(24));
        // Nothing shows that it is of this test.
        assert_eq!(wrong(" Out of bounds values : 24 FAILED\n"), None);
    }

    #[test]
    fn what_a_cut_file_says_the_whole_says_too() {
        let whole = read("bench", RUN.as_bytes());
        for cut in 0..RUN.len() {
            let part = read("bench", RUN.get(..cut).unwrap_or_default().as_bytes());
            assert!(part.observations.len() <= whole.observations.len(), "cut at {cut}");
            for (p, w) in part.observations.iter().zip(&whole.observations) {
                assert_eq!((p.cite.line, p.cite.start), (w.cite.line, w.cite.start), "cut at {cut}");
                if let (ringleader_model::Fact::Bench(p), ringleader_model::Fact::Bench(w)) =
                    (&p.fact, &w.fact)
                {
                    assert!(w.rows.starts_with(&p.rows) && w.devices.starts_with(&p.devices), "cut at {cut}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn torn_lines_are_read_without_a_panic(
            lines in prop::collection::vec((0_usize..11, 0_usize..120, "[ -~]{0,12}"), 0..20)
        ) {
            let mut text = String::new();
            for (at, cut, junk) in lines {
                let line = RUN.lines().nth(at).unwrap_or_default();
                text.push_str(line.get(..cut.min(line.len())).unwrap_or_default());
                text.push_str(&junk);
                text.push('\n');
            }
            let extract = read("bench", text.as_bytes());
            prop_assert_eq!(extract.sources.len(), 1);
        }
    }
}
