//! Laws of the tables, and the meaning of known lines.

use std::collections::BTreeSet;

use ringleader_model::{Cause, Class};

use crate::message::Role;
use crate::version::{NcclVersion, cuda_of_build, cuda_of_code};
use crate::{cause, cuda_error, nccl_result, nccl_warn, saying};

/// A message that the format could have printed: values replace placeholders.
fn sample(row: &nccl_warn::WarnText) -> String {
    row.pieces.join("7")
}

#[test]
fn every_cause_is_complete_and_unique() {
    let ids: BTreeSet<&str> = cause::all().iter().map(|c| c.cause.id()).collect();
    assert_eq!(ids.len(), cause::all().len());
    assert_eq!(ids.len(), 100);
    for c in cause::all() {
        assert!(!c.meaning.is_empty() && !c.section.is_empty(), "{c:?}");
        assert!(!c.advice.is_empty() && c.advice.iter().all(|a| a.text.len() > 10), "{c:?}");
        assert_eq!(c.shows.is_empty(), c.source.is_empty(), "{c:?}");
        assert_eq!(c.shows.is_empty(), c.is_not.is_empty(), "{c:?}");
        assert!(
            c.cause.id().bytes().all(|b| b.is_ascii_lowercase() || b == b'-' || b.is_ascii_digit()),
            "{c:?}"
        );
    }
    assert_eq!(cause::all().first().map(|c| c.cause), Some(Cause::None));
    assert_eq!(cause::category(Cause::PortInUse).name(), "init");
    assert_eq!(cause::class(Cause::GpuFallenOffBus), Some(Class::Node));
}

#[test]
fn every_warn_row_is_complete_and_found_again() {
    assert!(nccl_warn::all().len() >= 883);
    for row in nccl_warn::all() {
        assert!(!row.format.is_empty() && !row.file.is_empty() && row.group().is_some(), "{row:?}");
        assert!(row.until.is_none_or(|until| until >= row.since), "{row:?}");
        if row.pieces.iter().all(|p| p.is_empty()) {
            continue; // `%s`: any text could be it
        }
        let text = sample(row);
        let found = nccl_warn::find(&text).unwrap_or_else(|| panic!("nothing found for {text}"));
        let literal = |r: &nccl_warn::WarnText| r.pieces.iter().map(|p| p.len()).sum::<usize>();
        assert!(literal(found) >= literal(row), "{text}: found {} instead of {}", found.format, row.format);
        assert!(!found.meaning().is_empty(), "{}", row.format);
    }
    assert_eq!(nccl_warn::find("nothing that NCCL prints"), None);
    assert_eq!(nccl_warn::find(""), None);
}

#[test]
fn every_saying_is_cited_and_reachable() {
    for s in saying::all() {
        assert!(!s.means.is_empty() && !s.cite.is_empty(), "{s:?}");
        let mut text = s.any.first().map(|a| format!("{a} ")).unwrap_or_default();
        text.push_str(&s.all.join(" "));
        let origin = s.file.first().map(|f| format!("{f}:1")).unwrap_or_default();
        let found = saying::of(&text, &origin, s.by != saying::By::Program);
        assert_eq!(found.map(|f| f.means), Some(s.means), "another row hides this one: {text}");
    }
}

fn check(text: &str, origin: &str, by_nccl: bool, expected: &str) {
    let got = saying::of(text, origin, by_nccl).map_or("unknown", |s| match s.role {
        Role::Echo => "echo",
        Role::Harmless => "benign",
        Role::States | Role::Suggests => s.cause.map_or("", Cause::id),
    });
    assert_eq!(got, expected, "{text}");
}

#[test]
fn nccl_lines_mean_what_they_say() {
    let nccl = |text, expected| check(text, "", true, expected);
    nccl("Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000", "duplicate-gpu");
    nccl("Bootstrap : no socket interface found", "wrong-interface");
    nccl("NET/IB : Got async event : port error", "ib-link-down");
    nccl("NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129", "ib-gid-or-roce-config");
    nccl(
        "NET/IB: Got completion from peer 10.0.0.1<4> with status=12 opcode=0 len=0 vendor err 129 (Send)",
        "ib-gid-or-roce-config",
    );
    nccl(
        "NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_WR_FLUSH_ERR(5) opcode=IBV_WC_SEND(0) vendor_err=249 hca mlx5_0",
        "echo",
    );
    nccl("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", "memlock-limit");
    nccl(
        "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_5:1",
        "ib-gid-or-roce-config",
    );
    nccl("Call to posix_fallocate failed: No space left on device", "shm-full");
    nccl("ncclOsSocketTryAccept: Accept failed: Too many open files", "too-many-open-files");
    nccl("Cuda failure 'initialization error'", "driver-too-old-for-cuda");
    nccl("Cuda failure 700 'an illegal memory access was encountered'", "illegal-memory-access");
    nccl("Cuda failure 2 'out of memory'", "cuda-oom");
    nccl("Cuda failure 802 'system not yet initialized'", "fabric-manager-down");
    nccl("socketProgress: Connection closed by remote peer node1<36118>", "echo");
    nccl("[Service thread] Could not receive type from localRank 2, res=3, closed=0", "echo");
    nccl("commDestroySync: comm 0x2c927960 rank 2 sync hostStream error 1", "echo");
    nccl(
        "socketPollConnect: connect to 10.0.0.1<4> returned Connection refused, exceeded error retry count after 35 attempts",
        "echo",
    );
    nccl(
        "socketPollConnect: connect to 10.0.0.1<4> returned No route to host, exceeded error retry count after 35 attempts",
        "firewall-or-port",
    );
    nccl("NET/IB : No device found.", "benign");
    check("Cuda failure 'invalid argument'", "transport/nvls.cc:165", true, "fabric-manager-down");
    check("Cuda failure 1 'operation not supported'", "transport/nvls.cc:165", true, "nvls-multicast");
    check("Cuda failure 1 'invalid argument'", "include/alloc.h:212", true, "cumem-config");
    check("Cuda failure 1 'invalid argument'", "enqueue.cc:1", true, "unknown");
}

#[test]
fn programs_mean_what_they_say() {
    let says = |text, expected| check(text, "", false, expected);
    says("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.", "cuda-oom");
    says("RuntimeError: CUDA error: uncorrectable ECC error encountered", "ecc-uncorrectable");
    says("Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.", "unknown");
    says("RuntimeError: bad sample in shard 17", "unknown");
    says("ValueError: assertion of a value failed", "unknown");
    says("[c10d] The hostname of the client socket cannot be retrieved. err=-3", "benign");
    says(
        "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "port-in-use",
    );
    says("RuntimeError: NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO for details)", "echo");
    says("RuntimeError: Gloo connectFullMesh failed ...", "echo");
    says(
        "AssertionError: local_world_size (2) must be less than or equal to the number of visible devices (1).",
        "rank-env-misconfigured",
    );
    says("OSError: [Errno 28] No space left on device: 'ckpt.pt'", "unknown");
    says("RuntimeError: unable to write to file </torch_812_1>: No space left on device (28)", "shm-full");
    says("torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 15", "echo");
    says("ImportError: libtorch_cuda.so: undefined symbol: ncclCommWindowRegister", "nccl-version-mismatch");
    says("ValueError: found NaN in local grad norm", "nan-loss");
}

#[test]
fn results_are_found_by_name_and_by_words() {
    assert_eq!(nccl_result::get(5).map(|r| r.name), Some("ncclInvalidUsage"));
    assert_eq!(nccl_result::get(9), None);
    assert_eq!(nccl_result::in_text("ncclRemoteError: A call failed").map(|r| r.code), Some(6));
    assert_eq!(
        nccl_result::in_text("NCCL Error 2: unhandled system error (run with").map(|r| r.code),
        Some(2)
    );
    assert_eq!(nccl_result::in_text("read timeout"), None);
}

#[test]
fn cuda_errors_are_found_in_their_frame_only() {
    let code = |t| cuda_error::in_text(t).map(|e| e.code);
    assert_eq!(code("Cuda failure 700 'an illegal memory access was encountered'"), Some(700));
    assert_eq!(code("CUDA error: invalid device ordinal"), Some(101));
    assert_eq!(code("invalid argument"), None);
    let codes: BTreeSet<u16> = cuda_error::all().iter().map(|e| e.code).collect();
    assert_eq!(codes.len(), cuda_error::all().len());
}

#[test]
fn versions_are_read() {
    let v = |major, minor, patch| NcclVersion { major, minor, patch };
    assert_eq!(NcclVersion::parse("2.28.9+cuda13.0"), Some(v(2, 28, 9)));
    assert_eq!(NcclVersion::parse("2.18.5-1"), Some(v(2, 18, 5)));
    assert_eq!(NcclVersion::parse("x"), None);
    assert_eq!(NcclVersion::from_code(22809), v(2, 28, 9));
    assert_eq!(NcclVersion::from_code(2708), v(2, 7, 8));
    assert_eq!(cuda_of_build("2.9.9+cuda11.3"), Some((11, 3)));
    assert_eq!(cuda_of_code(12020), (12, 2));
}
