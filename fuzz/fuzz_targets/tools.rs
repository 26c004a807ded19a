//! Any bytes for the readers of nccl-tests and of the tools of the node, the fabric and schedulers: alone, and after
//! beginnings that open a listing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

const OPENINGS: [&str; 11] = [
    "",
    "# Using devices\n#  Rank  0 Group  0 Pid   4242 on vm device  0 [0000:00:06] NVIDIA H200\n",
    ">>> a = torch.zeros(8, device=\"cuda:0\")\n>>> b = a.to(\"cuda:1\")\n>>> ",
    "CA 'mlx5_0'\n\tPort 1:\n\t\t",
    "$ ethtool -S eth0\nNIC statistics:\n     ",
    "JobID|State|ExitCode|NodeList\n",
    "17:00.0 3D controller: NVIDIA\n\tLnkSta:\tSpeed ",
    "export NCCL_DEBUG=INFO\nNCCL_",
    "{\"schema\": \"ringleader.node.v1\", \"host\": \"n7\", \"at_ns\": 1, \"jobs\": {\"seen\": {\"processes\": [{\"pid\": ",
    "{\"schema\": \"ringleader.watch.v1\", \"at\": 1.5, \"event\": \"stall\", \"comm\": \"c0de\", \"after_s\": 9.5, \"since\": ",
    "{\"schema\": \"ringleader.bundle.v1\", \"items\": [{\"outcome\": ",
];

fuzz_target!(|data: &[u8]| {
    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 100, ..Limits::default() };
    for opening in OPENINGS {
        let bytes = [opening.as_bytes(), data].concat();
        let extract =
            ringleader_evidence::read("tool.txt", &mut bytes.as_slice(), &mut Scratch::default(), &limits);
        assert!(!extract.sources.is_empty());
    }
});
