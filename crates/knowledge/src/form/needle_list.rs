//! The needles of forms of failure. The build script reads this file, too, and makes their search tables from it.

/// Texts to search for, in lower case and at least five bytes long; case is ignored. The search also finds the heads of
/// glog's errors (`E1120 …` at the start of a line, in brackets, after a blank). A line without any of these has no
/// form of failure.
#[rustfmt::skip]
pub const NEEDLES: &[&str] = &[
    "error", "failed", "failur", "failing", "fails", " fail", "fatal", "except", "abort", "killed", "killing",
    "panic", "signal", "sigkil", "sigseg", "sigabr", "sigbus", "sigter", "sigill", "sigfpe", "crash", "traceb",
    "timed o", "timeout at", "timeout a", "timeout:", "unable", "cannot", "could no", "couldn'", "refuse",
    "denied", "died ", "unreac", "unheal", "evicte", "preemp", "cancel", "corrup", "uncaug", "unhand", "mismat",
    "hung ", "hangin", "stuck", "deadlo", "segfau", "segmen", "core dump", "bus er", "exit c", "exitco",
    "exit s", "exited", "exit_c", "return c", "returnc", "code=", "errno", "etimed", "econn", "ehost", "eaddr",
    "out of mem", "oom-k", "oom_k", "oomki", "critic", "severe", "emerg", "alert", "nccl warn", "terminat",
    "lost ", "no such ", "not permitted", "reset by", "broken p", "no route", "no space", "too many", "in use",
    "bad addr", "bad fi", "not supp", "not respond", "unavail", "insuffi", "exhaus", "exceed", "invalid",
    "illegal", "term_", "time limit", "back-off", "backoff", "node_f", "nodenot", "notread", "mpi_ab", ": nan",
    "=nan ", "=nan,", "=nan)", "=nan}", "=nan\n", " nan ", " nan,", " nan\n", " nan|", " nan}", "nan or",
    ":nan ", ":nan,", ":nan}", ":nan\n", ":nan|", ":inf ", ":inf\n", "\tnan\t", "\tnan\n", " nan\t",
    "'nan'", ": inf", "=inf ", "=inf,", "=inf\n", " inf ", "#wrong", "wrong ", "incorrect", "out of bou",
    "unrecov", "uncorr", "]:[e ", "host is d", "stale f", "not found", "unexpe", "missing", "does not exist",
    "enetu", "enetd", "enomem", "einval", "emfile", "eperm", "eacces", "enospc", "estale", " lost", " died",
    " hung", "timing o", "on timeo", "]: e ", "[fatal", "not av", " oom ", " oom\n", "_fail", "can't ",
    "abnorm", "dead ", "dead\n", "dead.", "incompa", "nxdomain", "reject", "stall", "unsucc", "double free",
    "blocked for", "packet loss", "is down", "tly down", "link down", "went down", "_timeou", "_err ", "_err(",
    "_err\n", "_err,", "_err:", "_err_", "_status_", "test ti",
    "err 0", " err ", "\nerr ", "[err]", "<err>", "| err", "[crit", "<crit", "| crit",
    "0: e ", "1: e ", "2: e ", "3: e ", "4: e ", "5: e ", "6: e ", "7: e ", "8: e ", "9: e ",
    "0: f ", "1: f ", "2: f ", "3: f ", "4: f ", "5: f ", "6: f ", "7: f ", "8: f ", "9: f ",
    "[e pr", "[e so", "[e tc", "[e nc", "[e cu", "[e re", "[e lo", "[e in",
    "[e un", "[e ut", "[e de", "[e fl", "[e gl", "[e ba", "[e st", "[e wo", "[e sy", "[e py", "[e ho", "[e th",
];
