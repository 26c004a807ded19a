//! What is kept of each form, what never is, and the laws of readers.

#![expect(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;
use ringleader_model::{Environment, EnvironmentForm, Fact, SourceKind};

use crate::tell::read;

/// One line for each listing: whose, form, variables, what was left out.
fn told(bytes: &[u8]) -> String {
    let extract = read("x", bytes);
    let mut out = Vec::new();
    for o in &extract.observations {
        let Fact::Environment(e) = &o.fact else { continue };
        let who = format!(
            "{}{}",
            o.who.host.as_ref().map(|h| format!("{h} ")).unwrap_or_default(),
            o.who.rank.map(|r| format!("rank {} ", r.0)).unwrap_or_default(),
        );
        let settings: Vec<String> = e.settings.iter().map(|s| format!("{}={}", s.name, s.value)).collect();
        let whole = if e.is_whole { " whole" } else { "" };
        out.push(format!("{who}{:?}{whole} [{}] +{}", e.form, settings.join(" "), e.n_left_out));
    }
    out.join("\n")
}

#[track_caller]
fn check(input: &str, expected: &str) {
    assert_eq!(told(input.as_bytes()), expected);
}

#[test]
fn what_env_prints() {
    check(
        "SHELL=/bin/bash\nNCCL_IB_DISABLE=true\nPATH=/usr/bin:/bin\nHOSTNAME=node7\nRANK=3\nLOCAL_RANK=3\n\
         NCCL_SOCKET_IFNAME=^lo,docker\n",
        "node7 rank 3 Listed whole [NCCL_IB_DISABLE=true RANK=3 LOCAL_RANK=3 NCCL_SOCKET_IFNAME=^lo,docker] +2",
    );
}

#[test]
fn configuration_files_of_nccl() {
    check(
        "# tuned for this cluster\nNCCL_IB_HCA=mlx5\n\n# NCCL_DEBUG=INFO\nNCCL_IB_TIMEOUT=22\n",
        "ConfFile [NCCL_IB_HCA=mlx5 NCCL_IB_TIMEOUT=22] +0",
    );
    check(
        "root@node7:~# cat /etc/nccl.conf\nNCCL_IB_HCA=mlx5\nroot@node7:~# env | grep NCCL\nNCCL_IB_HCA=mlx5_0\n",
        "node7 ConfFile [NCCL_IB_HCA=mlx5] +0\nListed [NCCL_IB_HCA=mlx5_0] +0",
    );
    check("==> /root/.nccl.conf <==\nNCCL_DEBUG=WARN\n", "ConfFile [NCCL_DEBUG=WARN] +0");
    // Without a comment or a name it may be what env printed; with other variables it is.
    check("NCCL_IB_HCA=mlx5\nNCCL_IB_TIMEOUT=22\n", "Listed [NCCL_IB_HCA=mlx5 NCCL_IB_TIMEOUT=22] +0");
    check("# env\nRANK=0\nNCCL_DEBUG=INFO\n", "rank 0 Listed [RANK=0 NCCL_DEBUG=INFO] +0");
    check("$ cat /etc/nccl.conf; env\nNCCL_DEBUG=WARN\nPATH=/bin\n", "Listed whole [NCCL_DEBUG=WARN] +1");
}

#[test]
fn what_a_shell_prints() {
    check(
        "declare -x NCCL_DEBUG=\"INFO\"\ndeclare -x OLDPWD\ndeclare -x NCCL_ALGO=\"Ring,Tree\"\n",
        "Shell [NCCL_DEBUG=INFO NCCL_ALGO=Ring,Tree] +0",
    );
    check("export NCCL_BUFFSIZE=4M  # bigger\n", "Shell [NCCL_BUFFSIZE=4M] +0");
    check("+ export NCCL_P2P_DISABLE=1\n", "Shell [NCCL_P2P_DISABLE=1] +0");
    check("export NCCL_SOCKET_IFNAME=$(ip route | head -1)\nexport MASTER_ADDR=$HOST\n", "");
    check("export NCCL_ALGO='Ring'; echo done\n", "Shell [NCCL_ALGO=Ring] +0");
}

#[test]
fn what_the_kernel_shows_of_a_process() {
    let bytes = b"PATH=/usr/bin\0RANK=1\0NCCL_IB_HCA=mlx5_0,mlx5_1\0HOSTNAME=n2\0AWS_SECRET_ACCESS_KEY=x\0";
    assert_eq!(told(bytes), "n2 rank 1 Process whole [RANK=1 NCCL_IB_HCA=mlx5_0,mlx5_1] +3");
    // Cut within a record: that one is not known, nor what came after it.
    assert_eq!(told(b"RANK=1\0A=2\0NCCL_IB_HCA=mlx5"), "rank 1 Process [RANK=1] +1");
    let extract = read("x", bytes);
    assert_eq!(extract.sources.first().unwrap().kinds, [SourceKind::Environment]);
}

#[test]
fn lines_with_a_rank_are_of_that_rank() {
    check(
        "[rank0]: NCCL_ALGO=Ring\n[rank1]: NCCL_ALGO=Tree\n",
        "rank 0 Listed [NCCL_ALGO=Ring] +0\nrank 1 Listed [NCCL_ALGO=Tree] +0",
    );
}

#[test]
fn what_is_no_listing() {
    check("NCCL_DEBUG=INFO torchrun --nproc-per-node 4 train.py\n", "");
    check("vm:1:1 [0] NCCL INFO NCCL_IB_TC set by environment to 106.\n", "");
    check("NCCL_TIMEOUT is not read\nloss=0.3\n", "");
    // The last line has no end: its value may be cut.
    check("NCCL_ALGO=Ring\nNCCL_PROTO=Sim", "Listed [NCCL_ALGO=Ring] +0");
}

#[test]
fn secrets_are_never_kept() {
    let secrets =
        ["SLURM_JWT", "TORCH_API_KEY", "NCCL_TOKEN", "CUDA_PASSWORD", "UCX_SECRET", "WANDB_API_KEY", "PATH"];
    let all = |before: &str, value: &str| secrets.map(|name| [before, name, value].concat()).concat();
    let (listed, shell, process) =
        (all("", "=hunter2\n"), all("export ", "=\"hunter2\"\n"), all("", "=hunter2\0"));
    for text in [listed, shell, process] {
        for text in [text.clone(), format!("NCCL_DEBUG=INFO\n{text}NCCL_ALGO=Ring\n")] {
            let extract = read("x", text.as_bytes());
            assert!(!format!("{:?}", extract.observations).contains("hunter2"), "{text}");
        }
    }
}

/// Listings of a stream, in order.
fn listings(bytes: &[u8]) -> Vec<Environment> {
    let observations = read("x", bytes).observations;
    let environment = |fact| if let Fact::Environment(e) = fact { Some(*e) } else { None };
    observations.into_iter().filter_map(|o| environment(o.fact)).collect()
}

proptest! {
    #[test]
    fn any_bytes_are_read(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(b'='), Just(b'\n')], 0..300)) {
        let _ = told(&bytes);
        let _ = told(&[b"A=1\0B=2\0".as_slice(), &bytes].concat());
        let _ = told(&[b"NCCL_DEBUG=INFO\nexport ".as_slice(), &bytes].concat());
    }

    #[test]
    fn a_prefix_tells_nothing_that_the_whole_does_not(end in 0..200_usize, process in any::<bool>()) {
        let text = "PATH=/bin\nNCCL_DEBUG=INFO\nexport NCCL_ALGO=\"Ring\"\nRANK=2\nLOCAL_RANK=0\nNCCL_IB_HCA=mlx5_0\n";
        let text = if process { text.replace("export ", "").replace('\n', "\0") } else { text.to_owned() };
        let whole: Vec<_> = listings(text.as_bytes()).into_iter().flat_map(|e| e.settings).collect();
        let part = listings(text.as_bytes().get(..end.min(text.len())).unwrap());
        for environment in part {
            prop_assert!(environment.form == EnvironmentForm::Process || !process || environment.settings.is_empty());
            for setting in environment.settings {
                prop_assert!(whole.iter().any(|s| s.name == setting.name && s.value == setting.value), "{:?}", setting);
            }
        }
    }
}
