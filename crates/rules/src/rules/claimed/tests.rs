//! What each row accepts, and what only looks like it.

use ringleader_knowledge::claim;

use crate::rule::Rule;
use crate::rules::ALL;
use crate::trial::{StagedCase, Trial as _};

#[track_caller]
fn of(id: &str) -> &'static Rule {
    ALL.iter().find(|rule| rule.id == id).unwrap_or_else(|| panic!("no rule {id}"))
}

#[test]
fn every_row_is_asked() {
    for row in claim::all() {
        assert_eq!(of(row.id).explanation(), row.doc);
    }
}

#[test]
fn cuda_oom_torch_says_so() {
    StagedCase::new()
        .raised(Some(1), "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 GiB.", &[])
        .expect(of("cuda-oom"), &["cuda-oom 1"]);
}

#[test]
fn cuda_oom_nccl_says_so() {
    StagedCase::new()
        .process("n", 7, Some(2))
        .warn("include/alloc.h:98", "Cuda failure 2 'out of memory'")
        .expect(of("cuda-oom"), &["cuda-oom 2"]);
}

#[test]
fn cuda_oom_multicast_memory_is_another_thing() {
    StagedCase::new()
        .process("n", 7, Some(2))
        .warn("transport/nvls.cc:98", "Cuda failure 2 'out of memory'")
        .silent(of("cuda-oom"));
}

#[test]
fn cuda_oom_host_memory_is_another_thing() {
    StagedCase::new().raised(Some(1), "MemoryError", "", &[]).silent(of("cuda-oom"));
}

#[test]
fn cumem_config_the_allocator_says_so() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("include/alloc.h:212", "Cuda failure 1 'invalid argument'")
        .expect(of("cumem-config"), &["cumem-config 1"]);
}

#[test]
fn cumem_config_the_fall_back_is_harmless() {
    StagedCase::new().process("n", 1, Some(1)).info("cuMem host allocations do not appear to be working; falling back to a /dev/shm/ based implementation.").silent(of("cumem-config"));
}

#[test]
fn cumem_config_memory_that_ran_out_is_another_thing() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("include/alloc.h:212", "Cuda failure 2 'out of memory'")
        .silent(of("cumem-config"));
}

#[test]
fn device_assert_torch_says_so() {
    StagedCase::new()
        .raised(Some(0), "RuntimeError", "CUDA error: device-side assert triggered", &[])
        .expect(of("device-assert"), &["device-assert 0"]);
}

#[test]
fn device_assert_the_kernel_says_so() {
    StagedCase::new().error_line(Some(3), "Indexing.cu:1553: indexSelectLargeIndex: block: [4,0,0], thread: [3,0,0] Assertion `srcIndex < srcSelectDimSize` failed.").expect(of("device-assert"), &["device-assert 3"]);
}

#[test]
fn device_assert_an_illegal_access_is_another_thing() {
    StagedCase::new()
        .raised(Some(0), "RuntimeError", "CUDA error: an illegal memory access was encountered", &[])
        .silent(of("device-assert"));
}

#[test]
fn framework_build_without_nccl_torch_says_so() {
    StagedCase::new()
        .raised(Some(0), "RuntimeError", "Distributed package doesn't have NCCL built in", &[])
        .expect(of("framework-build-without-nccl"), &["framework-build-without-nccl 0"]);
}

#[test]
fn framework_build_without_nccl_another_exception() {
    StagedCase::new()
        .raised(Some(0), "RuntimeError", "NCCL communicator was aborted on rank 0.", &[])
        .silent(of("framework-build-without-nccl"));
}

#[test]
fn ib_errors_receiver_not_ready() {
    StagedCase::new().process("n", 1, Some(1)).warn("transport/net_ib.cc:1", "NET/IB: Got completion from peer 10.0.0.2<4> with status=13 opcode=0 len=0 vendor err 135 (Send)").expect(of("ib-errors"), &["ib-errors 1"]);
}

#[test]
fn ib_errors_flushes_are_echoes() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn(
            "transport/net_ib.cc:1",
            "NET/IB: Got completion from peer 10.0.0.2<4> with status=5 opcode=0 len=0 vendor err 249 (Send)",
        )
        .silent(of("ib-errors"));
}

#[test]
fn mtu_or_pfc_the_socket_says_so() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("misc/socket.cc:1", "socketProgressOpt: Call to send to 10.0.0.2<4> failed : Message too long")
        .expect(of("mtu-or-pfc"), &["mtu-or-pfc 1"]);
}

#[test]
fn mtu_or_pfc_a_reset_is_another_thing() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn(
            "misc/socket.cc:1",
            "socketProgressOpt: Call to send to 10.0.0.2<4> failed : Connection reset by peer",
        )
        .silent(of("mtu-or-pfc"));
}

#[test]
fn nan_loss_the_program_says_so() {
    StagedCase::new()
        .raised(
            Some(2),
            "RuntimeError",
            "Function 'MulBackward0' returned nan values in its 0th output.",
            &[],
        )
        .expect(of("nan-loss"), &["nan-loss 2"]);
}

#[test]
fn nan_loss_a_word_that_only_contains_it() {
    StagedCase::new().raised(Some(2), "RuntimeError", "finance table missing", &[]).silent(of("nan-loss"));
}

#[test]
fn nccl_wrong_gpu_arch_nccl_says_so() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("enqueue.cc:30", "Cuda failure 209 'no kernel image is available for execution on the device'")
        .expect(of("nccl-wrong-gpu-arch"), &["nccl-wrong-gpu-arch 1"]);
}

#[test]
fn nccl_wrong_gpu_arch_an_old_driver_is_another_thing() {
    StagedCase::new()
        .raised(Some(0), "RuntimeError", "CUDA driver version is insufficient for CUDA runtime version", &[])
        .silent(of("nccl-wrong-gpu-arch"));
}

#[test]
fn net_plugin_error_libfabric_fails() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("", "NET/OFI Request completed with error. RC: 5. Error: unreachable remote")
        .expect(of("net-plugin-error"), &["net-plugin-error 1"]);
}

#[test]
fn net_plugin_error_no_plugin_starts() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("plugin/net.cc:250", "Failed to initialize any NET plugin")
        .expect(of("net-plugin-error"), &["net-plugin-error 1"]);
}

#[test]
fn net_plugin_error_an_absent_plugin_is_harmless() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .info("NET/Plugin: Could not find: libnccl-net.so")
        .silent(of("net-plugin-error"));
}

#[test]
fn nvls_multicast_nccl_says_so() {
    StagedCase::new().process("n", 1, Some(0)).warn("transport/nvls.cc:512", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.").expect(of("nvls-multicast"), &["nvls-multicast 0"]);
}

#[test]
fn nvls_multicast_a_bad_access_seen_there_is_another_thing() {
    StagedCase::new()
        .process("n", 1, Some(0))
        .warn("transport/nvls.cc:512", "Cuda failure 700 'an illegal memory access was encountered'")
        .silent(of("nvls-multicast"));
}

#[test]
fn shm_full_nccl_says_so() {
    StagedCase::new()
        .warn("include/shm.h:28", "Call to posix_fallocate failed: No space left on device")
        .warn(
            "include/shm.h:48",
            "Error while creating shared memory segment nccl-shm-recv-7c (size 9637888)",
        )
        .expect(of("shm-full"), &["shm-full"]);
}

#[test]
fn shm_full_the_data_loader_says_so() {
    StagedCase::new().raised(Some(2), "RuntimeError", "DataLoader worker (pid 812) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.", &[]).expect(of("shm-full"), &["shm-full 2"]);
}

#[test]
fn shm_full_a_full_disk_is_another_thing() {
    StagedCase::new()
        .raised(Some(0), "OSError", "[Errno 28] No space left on device: '/ckpt/step_100.pt'", &[])
        .silent(of("shm-full"));
}

#[test]
fn shm_full_a_forbidden_segment_is_another_thing() {
    StagedCase::new().process("n", 1, Some(1)).warn("misc/shmutils.cc:71", "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: Permission denied (13)").silent(of("shm-full"));
}

#[test]
fn shm_permission_nccl_says_so() {
    StagedCase::new().process("n", 1, Some(1)).warn("misc/shmutils.cc:71", "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: Permission denied (13)").expect(of("shm-permission"), &["shm-permission 1"]);
}

#[test]
fn shm_permission_a_full_one_is_another_thing() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn(
            "misc/shmutils.cc:71",
            "Error: failed to extend /dev/shm/nccl-A to 4 bytes, error: No space left on device (28)",
        )
        .silent(of("shm-permission"));
}

#[test]
fn shm_stale_nccl_says_so() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn(
            "misc/shmutils.cc:71",
            "Error while creating shared memory segment /dev/shm/nccl-A (size 4), error: File exists (17)",
        )
        .expect(of("shm-stale"), &["shm-stale 1"]);
}

#[test]
fn shm_stale_another_file_that_exists() {
    StagedCase::new()
        .raised(Some(1), "FileExistsError", "[Errno 17] File exists: '/ckpt'", &[])
        .silent(of("shm-stale"));
}

#[test]
fn topology_file_error_cut_off() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .warn("graph/xml.cc:20", "XML Parse : Unexpected EOF")
        .expect(of("topology-file-error"), &["topology-file-error 1"]);
}

#[test]
fn topology_file_error_a_sysfs_file_that_is_missing() {
    StagedCase::new()
        .process("n", 1, Some(1))
        .info("Topology detection : could not read /sys/devices/max_link_speed, ignoring")
        .silent(of("topology-file-error"));
}
