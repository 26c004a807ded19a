use super::*;

/// Secrets as they are found in the wild: name of a variable, value. None of them is real.
const PLANTED: &[(&str, &str)] = &[
    ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("AWS_SESSION_TOKEN", "FwoGZXIvYXdzEBYaDHqa0AP1Xz/example+session//token=="),
    ("HF_TOKEN", "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZ"),
    ("WANDB_API_KEY", "0123456789abcdef0123456789abcdef01234567"),
    ("GITHUB_TOKEN", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("GH_PAT", "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz"),
    ("GITLAB_TOKEN", "glpat-ABCDEFGHIJKLMNOPQRST"),
    ("OPENAI_API_KEY", "sk-proj-aBcDeFgHiJkLmNoPqRsT"),
    ("ANTHROPIC_API_KEY", "sk-ant-api03-aaaaBBBBccccDDDD"),
    ("SLACK_TOKEN", "xoxb-12345678901-abcdefghijkl"),
    ("SLACK_WEBHOOK", "https://hooks.slack.example/services/T00000000/B00000000/XXXXXXXXXXXXXXXX1XXXXXXX"),
    ("GOOGLE_API_KEY", "AIzaSyA-1234567890abcdefghijklmnopqrstu"),
    ("ID_TOKEN", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"),
    ("DATABASE_URL", "postgres://trainer:hunter2-pg@db.example/runs"),
    ("REDIS_URL", "redis://:hunter2-redis@cache.example:6379/0"),
    ("HTTPS_PROXY", "http://user:hunter2-proxy@proxy.example:3128"),
    ("SSH_PRIVATE", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END"),
    ("AZURE_SAS", "sv=2022-11-02&sig=AbCdEf0123456789%2Bsig%3D"),
    ("AZURE_CONN", "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=q1w2e3r4t5y6u7i8o9p0=="),
    ("MLFLOW_TRACKING_PASSWORD", "hunter2-mlflow"),
    ("SLURM_JWT", "eyJhbGciOiJIUzI1NiIs.InR5cCI6IkpXVCJ9"),
    ("NPM_TOKEN", "npm_abcdefghijklmnopqrstuvwxyz012345"),
    ("PYPI_TOKEN", "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZg"),
    ("NGC_API_KEY", "nvapi-AbCdEfGhIjKlMnOp"),
    ("VAULT_TOKEN", "hvs.CAESIAbCdEfGhIjKl"),
    ("DOCKER_PAT", "dckr_pat_AbCdEfGhIjKlMn"),
    ("STRIPE_KEY", "sk_live_51AbCdEfGhIjKlMn"),
    ("SOME_BLOB", "TWFuIGlzIGRpc3Rpbmd1aXNoZWQsIG5vdCBvbmx5+/=="),
    ("COMET_KEY", "Zx81mPq02LwKvT9aYd37RbNc5"),
    ("MY_PLAIN_PASSWORD", "correct-horse-battery-staple"),
    ("AGE", "AGE-SECRET-KEY-1QQPQYQSZQGPQYQS"),
];

fn assert_hidden(kept: &str, context: &str) {
    for (name, value) in PLANTED {
        // No part of it either, as long as it is no ordinary word.
        let parts = value.split(['\n', '/', '@', ':', ';', '&', '=']).filter(|part| part.len() >= 12);
        for part in parts.chain([*value]) {
            let is_ordinary = ["DefaultEndpointsProtocol", "cache.example", "hooks.slack.example"]
                .contains(&part)
                || part.ends_with(".example");
            assert!(is_ordinary || !kept.contains(part), "{name}: {part} is in {context}: {kept}");
        }
    }
}

#[test]
fn no_secret_of_the_environment_is_kept_whatever_its_name() {
    let families = ["", "NCCL_", "TORCH_", "SLURM_", "CUDA_", "UCX_", "MASTER_", "OMPI_MCA_"];
    for family in families {
        let mut pairs: Vec<String> =
            PLANTED.iter().map(|(name, value)| format!("{family}{name}={value}")).collect();
        pairs.push("RANK=3".to_owned());
        let block = pairs.join("\0");
        let (kept, cut) = environment(block.as_bytes());
        assert_eq!(kept.get("RANK").map(String::as_str), Some("3"));
        assert!(cut.contains(&format!("{family}HF_TOKEN")));
        assert_hidden(&format!("{kept:?} {cut:?}"), &format!("family '{family}'"));
    }
}

#[test]
fn no_secret_is_kept_as_the_value_of_a_variable_of_the_field() {
    // A plain word in a variable of the field cannot be distinguished from its value.
    let shaped =
        PLANTED.iter().filter(|(name, _)| !matches!(*name, "MLFLOW_TRACKING_PASSWORD" | "MY_PLAIN_PASSWORD"));
    for (_, value) in shaped {
        for name in ["NCCL_NET_PLUGIN", "MASTER_ADDR", "TORCH_HOME", "SLURM_JOB_NODELIST", "LD_PRELOAD"] {
            for text in [(*value).to_owned(), format!("x,{value}"), format!("http://h/?a={value}")] {
                let (kept, _) = environment(format!("{name}={text}\0").as_bytes());
                assert_hidden(&format!("{kept:?}"), name);
            }
        }
    }
}

#[test]
fn no_secret_of_a_command_line_is_kept_in_any_form() {
    for (name, value) in PLANTED {
        let flag = name.to_ascii_lowercase().replace('_', "-");
        let forms: Vec<Vec<String>> = vec![
            vec![format!("--{flag}"), (*value).to_owned()],
            vec![format!("--{flag}={value}")],
            vec!["--api-key".into(), (*value).to_owned()],
            vec![format!("--api_key={value}")],
            vec!["--token".into(), (*value).to_owned()],
            vec!["--name".into(), (*value).to_owned()],
            vec!["--config".into(), format!("db={value}")],
            vec!["--rdzv-endpoint".into(), (*value).to_owned()],
            vec![format!("--rdzv-id={value}")],
            vec!["-p".into(), (*value).to_owned()],
            vec![format!("-p{value}")],
            vec![format!("--{value}")],
            vec!["-u".into(), format!("user:{value}")],
            vec!["-H".into(), format!("Authorization: Bearer {value}")],
            vec![(*value).to_owned()],
            vec![format!("key={value}")],
            vec!["-c".into(), format!("import os; os.environ['X'] = '{value}'")],
            vec![format!("env.{name}={value}")],
            vec!["-m".into(), (*value).to_owned()],
            vec![format!("/home/u/{value}/train.py")],
        ];
        let is_shaped = !matches!(*name, "MLFLOW_TRACKING_PASSWORD" | "MY_PLAIN_PASSWORD");
        for form in forms {
            // A module, a rendezvous id and a folder may have any plain name.
            let takes_any_word = ["-m", "--rdzv", "/home", "-H"].iter().any(|head| form[0].starts_with(head));
            // A flag's name is kept if it is spelled like one.
            let is_flag = form.len() == 1 && form[0] == format!("--{value}");
            // Folders named after the pieces of a key that holds slashes are not looked for.
            if form[0].starts_with("/home") && value.contains('/') {
                continue;
            }
            if !is_shaped && (takes_any_word || is_flag) {
                continue;
            }
            let line = format!("/usr/bin/python3\0{}\0train.py\0", form.join("\0"));
            let kept = arguments(line.as_bytes());
            assert_hidden(&kept.join(" "), &format!("{form:?}"));
            let alone = arguments(form.join("\0").as_bytes());
            if is_shaped {
                assert_hidden(&alone.join(" "), &format!("{form:?} as the program"));
            }
        }
    }
}

#[test]
fn ids_in_the_names_of_folders_are_no_secrets_and_secrets_there_stay_some() {
    let run = "5c3f1d0a9b7e4c2d8f6a1b3c5d7e9f01";
    let container = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for path in [
        format!("/mnt/mlruns/0/{run}/artifacts/out.log"),
        format!("/var/lib/docker/overlay2/{container}/merged/rank_0.log"),
        format!("/run/containerd/k8s.io/{}/nccl.log", container.to_uppercase()),
        format!("/scratch/gpt-{run}.log"),
        "/var/lib/kubelet/pods/2f1c3b5e-8b8a-4d4e-9d0a-0123456789ab/volumes/out/stderr.log".to_owned(),
    ] {
        assert!(!path_looks_secret(&path), "{path}");
        let block =
            format!("NCCL_DEBUG_FILE={path}\0TORCH_FR_DUMP_TEMP_FILE={path}_\0LD_LIBRARY_PATH=/x:{path}\0");
        let (kept, cut) = environment(block.as_bytes());
        assert_eq!((kept.len(), cut.len()), (3, 0), "{path}");
    }
    let relative = format!("TORCH_FR_DUMP_TEMP_FILE=mlruns/0/{run}/fr_\0NCCL_NET_PLUGIN={run}\0");
    let (kept, cut) = environment(relative.as_bytes());
    assert_eq!((kept.len(), cut.as_slice()), (1, ["NCCL_NET_PLUGIN".to_owned()].as_slice()));
    let deep = "/a-folder-of-a-long-name/and-another-one-of-a-long-name/and-more-of-them";
    for path in [
        "/runs/token=hunter2/out.log".to_owned(),
        format!("{deep}/token=hunter2/out.log"),
        format!("/runs/key={run}/out.log"),
        format!("/runs/x={run}/out.log"),
        format!("/home/u/api_key-{run}/out.log"),
        format!("/home/u/.wandb_api_key/{run}/out.log"),
        format!("/home/u/hf_{run}/out.log"),
        format!("/home/u/sk-{run}/out.log"),
        "/runs/TWFuIGlzIGRpc3Rpbmd1aXNoZWQ0/out.log".to_owned(),
        "/runs/Zx81mPq02LwKvT9aYd37RbNc5/out.log".to_owned(),
        "/runs/5c3f1d0a9b7E4C2D8F6A1B3C5D7E9F01/out.log".to_owned(),
    ] {
        assert!(path_looks_secret(&path), "{path}");
        let (kept, _) = environment(format!("NCCL_DEBUG_FILE={path}\0").as_bytes());
        assert!(kept.is_empty(), "{kept:?}");
    }
    // Whatever names a folder: of the shapes of secrets only bare hexadecimal numbers pass, and words of a person.
    for (name, value) in PLANTED {
        let is_bare = value.bytes().all(|b| b.is_ascii_hexdigit());
        let is_word = matches!(*name, "MLFLOW_TRACKING_PASSWORD" | "MY_PLAIN_PASSWORD");
        // Folders named after the pieces of a key that holds slashes are not looked for.
        let is_seen = is_bare || is_word || value.contains('/');
        assert!(is_seen || path_looks_secret(&format!("/home/u/{value}/out.log")), "{name}");
    }
}

#[test]
fn what_a_diagnosis_needs_is_kept() {
    let block = "RANK=3\0LOCAL_RANK=3\0NCCL_SOCKET_IFNAME=^docker0,lo\0NCCL_IB_HCA==mlx5_0:1,mlx5_1:1\0\
        CUDA_VISIBLE_DEVICES=GPU-fc51bf99-8b8a-4d4e-9d0a-0123456789ab,MIG-fc51bf99-8b8a-4d4e-9d0a-0123456789ab\0\
        TORCHELASTIC_RUN_ID=2f1c3b5e-8b8a-4d4e-9d0a-0123456789ab\0MASTER_ADDR=ip-10-0-12-34.eu-west-1.compute.internal\0\
        NCCL_DEBUG_FILE=/scratch/run42/nccl_%h_%p.log\0NCCL_IB_PKEY=0x8001\0HOME=/root\0\
        PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:512\0MASTER_PORT=29500\0";
    let (kept, cut) = environment(block.as_bytes());
    assert_eq!(cut, ["HOME"]);
    assert_eq!(kept.len(), 11);
    assert_eq!(kept["NCCL_DEBUG_FILE"], "/scratch/run42/nccl_%h_%p.log");
    let line = "/opt/venv/bin/python3.11\0/opt/venv/bin/torchrun\0--nnodes=2\0--nproc-per-node\08\0--rdzv-endpoint\0\
        n0:29500\0--standalone\0train.py\0--lr\x000.003\0--data\0/secret/place\0--batch-size\x0032\0word";
    assert_eq!(
        arguments(line.as_bytes()).join(" "),
        "/opt/venv/bin/python3.11 /opt/venv/bin/torchrun --nnodes=2 --nproc-per-node 8 --rdzv-endpoint n0:29500 \
         --standalone train.py --lr 0.003 --data <cut> --batch-size 32 <cut>"
    );
    let module = arguments(b"python3\0-u\0-m\0torch.distributed.run\0--nproc_per_node=4\0train.py");
    assert_eq!(module.join(" "), "python3 -u -m torch.distributed.run --nproc_per_node=4 train.py");
    assert_eq!(
        arguments(b"python3\0-u\0/data/train.py\0--epochs\x003").join(" "),
        "python3 -u /data/train.py --epochs 3"
    );
    assert_eq!(arguments(b"slurmstepd: [4711.0]"), ["slurmstepd:"]);
    assert!(arguments(b"").len() <= 1);
}

#[test]
fn bytes_that_are_no_text_harm_nobody() {
    let (kept, cut) = environment(b"\xff\xfe=1\0NCCL_DEBUG=\xff\0=\0RANK\0RANK=0\0");
    assert_eq!((kept.len(), cut.len()), (1, 0));
    assert_eq!(arguments(b"\xff\0\xfe\0--\xff=1"), [CUT, CUT, CUT]);
}
