use crate::tell::{read, tell, tell_recordings};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("table", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected);
}

#[test]
fn recordings() {
    const NAMES: [&str; 3] = ["ps.txt", "ulimit.txt", "limits.txt"];
    insta::assert_snapshot!(tell_recordings(|name| NAMES.contains(&name)));
}

#[test]
fn process_lists_of_any_columns() {
    check(
        "\
$ ps -eo pid,ppid,stat,wchan,pcpu,etime,cmd
    PID    PPID STAT WCHAN  %CPU     ELAPSED CMD
   1345    1330 Dl   nvidia_i 95.2 2-03:00:14 python3 -u train.py PID STAT
   1346    1345 Z    -       0.0    01:02:03 [python3] <defunct>

USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root        1347 99.9  0.1 123456  7890 ?        Rsl  Nov20   0:10 /usr/bin/python3 \"a  b\"
done
UID          PID    PPID  C STIME TTY          TIME CMD
root        1348    1330  0 08:21 ?        00:00:10  \\_ python3 x
    PID S                  STARTED COMMAND
   1349 T Fri Nov 20 08:21:32 2026 python3
",
        "
        line 2: 2 processes
        3: 1345 < 1330 Dl wchan 'nvidia_i' Some(183614)s Some(95.2)% python3 -u train.py PID STAT
        4: 1346 < 1345 Z wchan '' Some(3723)s Some(0.0)% [python3] <defunct>
        line 6: 1 processes
        7: 1347 < 0 Rsl wchan '' Nones Some(99.9)% /usr/bin/python3 \"a  b\"
        line 9: 1 processes
        10: 1348 < 1330  wchan '' Nones None% python3 x
        line 11: 1 processes
        12: 1349 < 0 T wchan '' Nones None% python3
        ",
    );
}

#[test]
fn a_listing_of_top() {
    check(
        "\
top - 08:21:32 up 1 day,  2:03,  1 user,  load average: 4.00
    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
   1345 root      20   0   30.1g   1.2g 300000 R 100.0   0.2   0:10.12 python3
",
        "line 2: 1 processes
        3: 1345 < 0 R wchan '' Nones Some(100.0)% python3",
    );
}

#[test]
fn status_lines_of_a_process() {
    check(
        "Name:\tpython3\nUmask:\t0022\nState:\tT (stopped)\nTgid:\t2240\nPid:\t2240\nPPid:\t2218\n",
        "line 1: 1 processes
        3: 2240 < 2218 T wchan '' Nones None% python3",
    );
    check("State:\tD (disk sleep)\n", "line 1: 1 processes\n1: 0 < 0 D wchan '' Nones None%");
    check("Name: x\nState: RUNNING\nPid: 5\n", "");
}

#[test]
fn limits_of_shells_and_processes() {
    check(
        "\
core file size              (blocks, -c) 0
max locked memory           (kbytes, -l) unlimited
open files                          (-n) 1024

Max locked memory         65536                unlimited            bytes     
Max open files            1024                 1048576              files     
-l: locked-in-memory size (kbytes)    64
NOFILE     max number of open files                1024   1048576 files
",
        "
        line 2: 2: LockedMemory None/None, 3: OpenFiles Some(1024)/None
        line 5: 5: LockedMemory Some(65536)/None, 6: OpenFiles Some(1024)/Some(1048576)
        line 7: 7: LockedMemory Some(65536)/None, 8: OpenFiles Some(1024)/Some(1048576)
        ",
    );
    check("open files: 3\nMax open files are few\nmax locked memory (kbytes, -l) lots\n", "");
}

#[test]
fn lists_that_end_within_a_row() {
    let list = "  PID STAT COMMAND\n 2238 S    /opt/train.py --lr 1\n 2240 S    /opt/train.py --lr 1";
    let is_cut = |text: &str| {
        let extract = read("ps.txt", text.as_bytes());
        let table = extract.observations.iter().find_map(|o| match &o.fact {
            ringleader_model::Fact::Processes(table) => Some(table.is_cut),
            _ => None,
        });
        (table, extract.notes.len())
    };
    // A last line without its end may be whole; a part of what others have in full, or no row at all, is none.
    assert_eq!(is_cut(list), (Some(false), 0));
    assert_eq!(is_cut(&list[..list.len() - 8]), (Some(true), 1));
    assert_eq!(is_cut(&format!("{list}\n 22")), (Some(true), 1));
    assert_eq!(is_cut(&format!("{}\n", &list[..list.len() - 8])), (Some(false), 0));
}
