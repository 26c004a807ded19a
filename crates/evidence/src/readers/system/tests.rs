use super::scheduler::Pods;
use crate::tell::{read, tell};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("node", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected, "\n{}", told.join("\n"));
}

const DF: &str = "\
Filesystem               Size  Used Avail Use% Mounted on
tmpfs                     64M   64M     0 100% /dev/shm
/dev/vda                 252G   17G  128G  12% /
Filesystem              1K-blocks     Used Available Use% Mounted on
tmpfs                   268435456        0 268435456   0% /dev/shm
Filesystem     Type  1M-blocks  Used Available Use% Mounted on
tmpfs          tmpfs        64    64         0 100% /dev/shm
Filesystem                Inodes  IUsed    IFree IUse% Mounted on
tmpfs                   32999812      1 32999811    1% /dev/shm
";

#[test]
fn mounts() {
    check(
        DF,
        r#"
        line 2: Mount(Mount { device: "tmpfs", at: "/dev/shm", size: 67108864, used: 67108864, available: 0 })
        line 3: Mount(Mount { device: "/dev/vda", at: "/", size: 270582939648, used: 18253611008, available: 137438953472 })
        line 5: Mount(Mount { device: "tmpfs", at: "/dev/shm", size: 274877906944, used: 0, available: 274877906944 })
        line 7: Mount(Mount { device: "tmpfs", at: "/dev/shm", size: 67108864, used: 67108864, available: 0 })
        line 9: Mount(Mount { device: "tmpfs", at: "/dev/shm", size: 32999812, used: 1, available: 32999811, is_inodes: true })
        "#,
    );
}

#[test]
fn listings_of_shared_memory() {
    check(
        "\
$ ls -la /dev/shm
total 9216
drwxrwxrwt 2 root root      60 Nov 20 08:20 .
drwxr-xr-x 8 root root    2400 Nov 20 08:19 ..
-rw------- 1 alice users 9637888 Nov 19 22:20 nccl-AbCdEf
drwxr-xr-x 2 root root 40 2026-11-20 08:20 /dev/shm
$ ls -l /home
total 4
-rw------- 1 alice users 12 Nov 19 22:20 notes
",
        r#"
        line 2: Listing(Listing { folder: ("/dev/shm"), own: (("drwxr-xr-x", "root")), files: [ListedFile { line: 5, mode: "-rw-------", owner: "alice", size: 9637888, when: "Nov 19 22:20", name: "nccl-AbCdEf" }] })
        "#,
    );
}

#[test]
fn memory_and_its_groups() {
    check(
        "\
               total        used        free      shared  buff/cache   available
Mem:           251Gi       610Mi       250Gi       7.2Mi       966Mi       251Gi
Swap:             0B          0B          0B
MemTotal:       263998500 kB
MemFree:        262607976 kB
MemAvailable:   263374136 kB
# /sys/fs/cgroup/memory.max
68719476736
# /sys/fs/cgroup/memory.events
low 0
high 0
max 4711
oom 3
oom_kill 2
# /sys/fs/cgroup/memory.stat
anon 2297856
shmem 7544832
/sys/fs/cgroup/job_7/memory.current:68719400000
/sys/fs/cgroup/job_7/memory.events:oom_kill 0
",
        r#"
        line 2: Memory(Memory { total: 269509197824, available: 269509197824, shared: (7549747) })
        line 4: Memory(Memory { total: 270334464000, available: 269695115264 })
        line 7: MemoryGroup(MemoryGroup { path: ("/sys/fs/cgroup"), max: ((8, (68719476736))), oom: ((13, 3)), oom_kill: ((14, 2)), shmem: ((17, 7544832)) })
        line 18: MemoryGroup(MemoryGroup { path: ("/sys/fs/cgroup/job_7"), current: ((18, 68719400000)), oom_kill: ((19, 0)) })
        "#,
    );
}

#[test]
fn modules_and_devices() {
    check(
        "\
Module                  Size  Used by
nvidia_uvm           1531904  2
nvidia_peermem         16384  0
nvidia              54018048  70 nvidia_uvm,nvidia_peermem

0000:15:01.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)
\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM L1
\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)
\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport
17:00.0 3D controller: NVIDIA Corporation GH100 [H200 SXM] (rev a1)
\tLnkSta:\tSpeed 32GT/s, Width x16
BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 intel_iommu=on
available: 1 nodes (0)
node 0 cpus: 0 1 2 3
node 0 size: 4699 MB
node 0 free: 3341 MB
",
        r#"
        line 1: Modules(["nvidia", "nvidia_peermem", "nvidia_uvm"])
        line 6: Pci([PciDevice { line: 6, address: (PciAddress { domain: 0, bus: 21, device: 1, function: 0 }), name: "PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0)", acs: ((9, ["SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"])), link: ((8, 8, 16.0)), link_max: ((16, 32.0)), driver: ("pcieport") }, PciDevice { line: 11, address: (PciAddress { domain: 0, bus: 23, device: 0, function: 0 }), name: "3D controller: NVIDIA Corporation GH100 [H200 SXM] (rev a1)", link: ((12, 16, 32.0)) }])
        line 13: KernelOptions("BOOT_IMAGE=/vmlinuz-6.8 root=/dev/sda1 intel_iommu=on")
        line 14: Numa([(0, 4, 4699)])
        "#,
    );
}

#[test]
fn packages_and_services() {
    check(
        "\
torch==2.11.0
nvidia-nccl-cu13==2.28.9

# packages in environment at /opt/conda:
#
# Name                    Version                   Build  Channel
pytorch                   2.4.0           py3.11_cuda12.4    pytorch

Cuda compilation tools, release 13.0, V13.0.88
libnccl-2.9.9-1+cuda11.3.x86_64
ii  libnccl2  2.18.3-1+cuda12.2  amd64  NVIDIA Collective Communication Library
● slurmd.service - Slurm node daemon
     Loaded: loaded (/usr/lib/systemd/system/slurmd.service; enabled)
     Active: failed (Result: exit-code) since Fri 2026-11-20 08:00:00 UTC; 1h ago
Unit slurmctld.service could not be found.
x==3
",
        r#"
        line 1: Packages([("torch", "2.11.0"), ("nvidia-nccl-cu13", "2.28.9")])
        line 4: Packages([("pytorch", "2.4.0")])
        line 9: Packages([("cuda-nvcc", "13.0")])
        line 10: Packages([("libnccl", "2.9.9-1+cuda11.3")])
        line 11: Packages([("libnccl2", "2.18.3-1+cuda12.2")])
        line 12: Service(Service { name: "slurmd.service", state: "failed", detail: "Result: exit-code" })
        line 15: Service(Service { name: "slurmctld.service", state: "not-found" })
        "#,
    );
}

#[test]
fn what_kubernetes_says_of_containers() {
    check(
        "\
Name:             worker-1
Node:             gpu-node-7/198.51.100.7
Containers:
  pytorch:
    Image:         example/train:1
    State:          Running
      Started:      Fri, 20 Nov 2026 08:20:00 +0000
    Environment:
      RANK:  1
  log-shipper:
    State:          Running
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
      Started:      Thu, 19 Nov 2026 08:20:00 +0000
      Finished:     Thu, 19 Nov 2026 09:20:00 +0000
Conditions:
  Type              Status
",
        r#"
        line 13: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: OutOfMemory, subject: "pod/worker-1", node: ("gpu-node-7"), exit_code: (137), container: ("log-shipper"), n_containers: (2), ended_at: (WallTime { ns: 1795080000000000000, error_ns: 500000000, has_year: true }) })
        "#,
    );
}

#[test]
fn a_table_of_pods_takes_its_rows_alone() {
    let table = |text: &str| Pods::with_columns(&["name", "ready", "status", "restarts", "age"]).fits(text);
    assert!(table("worker-0   1/1     Running     0          5m"));
    assert!(table("worker-0   0/2   Init:0/1   3 (41s ago)   5m"));
    for other in [
        "$ kubectl describe pod worker-0 | tail -3",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8",
        "[rank1]: RuntimeError: NCCL error",
    ] {
        assert!(!table(other), "{other}");
    }
}

const SLURM: &str = "\
JobID           JobName      State ExitCode        NodeList
------------ ---------- ---------- -------- ---------------
812              python     FAILED      1:0       node[3-4]
812.0            python OUT_OF_ME+    0:125           node3
JobID|State|ExitCode|NodeList
813.0|CANCELLED by 1000|0:15|node5
slurmstepd: error: *** STEP 814.0 ON node3 CANCELLED AT 2026-11-20T08:21:34 DUE TO PREEMPTION ***
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
gpu*         up   infinite      1  down* node3
gpu*         up   infinite      7   idle node[1-2,4-8]
";

#[test]
fn what_slurm_says() {
    check(
        SLURM,
        r#"
        line 3: Scheduler(SchedulerEvent { scheduler: Slurm, kind: Failed, subject: "812", node: ("node[3-4]"), exit_code: (1) })
        line 4: Scheduler(SchedulerEvent { scheduler: Slurm, kind: OutOfMemory, subject: "812.0", node: ("node3"), exit_code: (-125) })
        line 6: Scheduler(SchedulerEvent { scheduler: Slurm, kind: Cancelled, subject: "813.0", node: ("node5"), exit_code: (-15) })
        line 7: Scheduler(SchedulerEvent { scheduler: Slurm, kind: Preempted, subject: "814.0", node: ("node3"), is_of_script: true })
        line 9: Scheduler(SchedulerEvent { scheduler: Slurm, kind: NodeFail, node: ("node3") })
        "#,
    );
}

#[test]
fn what_squeue_says_of_jobs_that_run() {
    check(
        "\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
               311     mi300 train.sb    sgopi  R       4:02      2 mi300-b[07-08]
               312     mi300 train.sb    sgopi PD       0:00      2 (Priority)
",
        r#"
        line 2: Scheduler(SchedulerEvent { scheduler: Slurm, kind: Running, subject: "311", node: ("mi300-b[07-08]") })
        "#,
    );
}

#[test]
fn what_kubernetes_says() {
    check(
        "\
LAST SEEN   TYPE      REASON      OBJECT             MESSAGE
2m          Normal    Scheduled   pod/worker-0       Successfully assigned default/worker-0 to gpu-7
2m          Warning   Evicted     pod/worker-3       The node was low on resource: memory.
1m          Warning   SystemOOM   node/gpu-7         System OOM encountered, victim process: python, pid: 12345
NAME       READY   STATUS      RESTARTS   AGE
worker-0   1/1     Running     0          5m
worker-1   0/1     OOMKilled   0          5m
Name:             worker-2
Node:             gpu-8/192.0.2.8
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
Events:
  Type     Reason     Age   From     Message
  Warning  Preempted  2m    kubelet  Preempted by pod x on node gpu-8
",
        r#"
        line 3: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: Evicted, subject: "pod/worker-3" })
        line 4: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: OutOfMemory, subject: "node/gpu-7", node: ("gpu-7"), pid: (Pid(12345)) })
        line 7: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: OutOfMemory, subject: "worker-1" })
        line 11: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: OutOfMemory, subject: "pod/worker-2", node: ("gpu-8"), exit_code: (137) })
        line 15: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: Preempted, subject: "pod/worker-2", node: ("gpu-8") })
        "#,
    );
    check(
        r#"{"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "w"}, "spec": {"nodeName": "n"},
"status": {"containerStatuses": [{"lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}]}}]}"#,
        r#"line 1: Scheduler(SchedulerEvent { scheduler: Kubernetes, kind: OutOfMemory, subject: "pod/w", node: ("n"), exit_code: (137) })"#,
    );
}

#[test]
fn lines_of_programs_are_left() {
    check(
        "total 12 steps\nNAME is set\nName: alice\nlow 0.5\nx == 3\navailable: 2 nodes of mine\nMem: full\n",
        "",
    );
}

#[test]
fn processors_that_were_held_back() {
    check(
        "\
$ cat /sys/fs/cgroup/job/cpu.stat
usage_usec 9512345
user_usec 9000000
system_usec 512345
nr_periods 1200
nr_throttled 900
throttled_usec 45000000
$ cat /sys/fs/cgroup/cpu/docker/1f/cpu.stat
nr_periods 10
nr_throttled 2
throttled_time 7000000
$ grep . /sys/fs/cgroup/kubepods.slice/cpu.stat
/sys/fs/cgroup/kubepods.slice/cpu.stat:nr_periods 5
/sys/fs/cgroup/kubepods.slice/cpu.stat:nr_throttled 0
/sys/fs/cgroup/kubepods.slice/cpu.stat:throttled_usec 0
",
        r#"
        line 5: CpuGroup(CpuGroup { line: 5, path: ("/sys/fs/cgroup/job"), periods: 1200, throttled: 900, throttled_us: 45000000 })
        line 9: CpuGroup(CpuGroup { line: 9, path: ("/sys/fs/cgroup/cpu/docker/1f"), periods: 10, throttled: 2, throttled_us: 7000 })
        line 13: CpuGroup(CpuGroup { line: 13, path: ("/sys/fs/cgroup/kubepods.slice"), periods: 5, throttled: 0, throttled_us: 0 })
        "#,
    );
}

#[test]
fn gpus_on_the_bus() {
    check(
        "\
$ lspci | grep -i nvidia
1a:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
3b:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ff)
05:00.0 Bridge: NVIDIA Corporation GH100 [H100 NVSwitch] (rev a1)
",
        r#"
        line 2: Pci([PciDevice { line: 2, address: (PciAddress { domain: 0, bus: 26, device: 0, function: 0 }), name: "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)" }, PciDevice { line: 3, address: (PciAddress { domain: 0, bus: 59, device: 0, function: 0 }), name: "3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev ff)" }])
        "#,
    );
}

mod laws {
    use proptest::prelude::*;

    use super::{DF, SLURM};
    use crate::tell::{read, tell};

    #[test]
    fn what_a_cut_file_says_is_how_the_whole_begins() {
        for whole in [DF, SLURM] {
            let all = tell(&read("node", whole.as_bytes()));
            let all: Vec<&str> = all.lines().skip(1).collect();
            for cut in 1..whole.len() {
                let part = tell(&read("node", whole.get(..cut).unwrap_or_default().as_bytes()));
                let part: Vec<&str> = part.lines().skip(1).collect();
                assert!(all.starts_with(&part), "cut at {cut}: {part:?}");
            }
        }
    }

    /// Beginnings that open something.
    const STARTS: [&str; 27] = [
        "Filesystem 1K-blocks Mounted on",
        "tmpfs 1 2 3 4% /",
        "total ",
        "-rw------- 1 a b 1 ",
        "drwxrwxrwt 2 r r 4 ",
        "/sys/fs/cgroup/memory.max:",
        "# memory.events",
        "oom_kill ",
        "low ",
        "Mem: ",
        "MemTotal: ",
        "Module Size Used by",
        "nvidia 1 2 ",
        "17:00.0 x: ",
        "\tLnkSta: Speed ",
        "\tACSCtl: ",
        "x==",
        "● a.service",
        "  Active: ",
        "JobID State",
        "---- ----",
        "LAST SEEN REASON OBJECT ",
        "nr_periods ",
        "nr_throttled ",
        "throttled_usec ",
        "/sys/fs/cgroup/x/cpu.stat:nr_periods ",
        "3b:00.0 3D controller: NVIDIA ",
    ];

    proptest! {
        #[test]
        fn any_lines_are_read_without_a_panic(
            lines in prop::collection::vec((prop::sample::select(STARTS.to_vec()), "[ -~\\t]{0,60}"), 0..30)
        ) {
            let text: String = lines.iter().flat_map(|(start, rest)| [start.to_string(), rest.clone(), "\n".to_owned()]).collect();
            let extract = read("node", text.as_bytes());
            prop_assert!(extract.observations.len() <= 2 * lines.len());
        }
    }
}
