//! Arbitrary bytes for the readers of process lists, limits, and the output of nvidia-smi, dcgmi and the driver's
//! services, alone and after a beginning that opens each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ringleader_evidence::{Limits, Scratch};

fn read(path: &str, bytes: &[u8]) {
    // Small caps, so that a decompression bomb costs the fuzzer little.
    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 100, ..Limits::default() };
    let extract = ringleader_evidence::read(path, &mut &*bytes, &mut Scratch::default(), &limits);
    assert!(!extract.sources.is_empty());
}

fuzz_target!(|data: &[u8]| {
    read("ps.txt", data);
    read("ps.txt", &[b"PID STAT ELAPSED STARTED CMD\n", data].concat());
    for head in [
        &b"| NVIDIA-SMI 1 Driver Version: 1 |\n"[..],
        b"==============NVSMI LOG==============\nAttached GPUs : 2\nGPU 00000000:00:06.0\n",
        b"<nvidia_smi_log>\n<gpu id=\"00000000:00:06.0\">",
        b"index, pci.bus_id, power.draw [W]\n",
        b"GPU 0: NVIDIA H200 (UUID: GPU-0)\n\t Link 0: ",
        b"\tGPU0\tGPU1\tCPU Affinity\n",
        b"# gpu pwr sm pclk\n",
        b"| Diagnostic | Result |\n| memory | Fail |\n",
        b"{\"DCGM Diagnostic\": {\"test_categories\": [{\"tests\": [",
        b"\xe2\x97\x8f nvidia-fabricmanager.service - x\n",
    ] {
        read("gpus.txt", &[head, data].concat());
    }
});
