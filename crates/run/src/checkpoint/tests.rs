use std::io::{Cursor, Write as _};

use proptest::prelude::*;

use super::*;

/// A zip as `torch.save` writes it: stored entries, directory, end record.
fn zip_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, body) in entries {
        let at = out.len() as u32;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(body);
        let mut fields = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        fields.extend(hasher.finalize().to_le_bytes());
        fields.extend((body.len() as u32).to_le_bytes());
        fields.extend((body.len() as u32).to_le_bytes());
        fields.extend((name.len() as u16).to_le_bytes());
        fields.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&fields);
        out.extend(name.as_bytes());
        out.extend(*body);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&fields);
        directory.extend([0; 10]);
        directory.extend(at.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (at, n) = (out.len() as u32, entries.len() as u16);
    out.extend(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(n.to_le_bytes());
    out.extend(n.to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// `{"step": STEP, "weights": 1.5}` as protocol 2 writes it.
fn state(step: u16) -> Vec<u8> {
    let mut out = b"\x80\x02}q\x00(X\x04\x00\x00\x00stepq\x01M".to_vec();
    out.extend(step.to_le_bytes());
    out.extend(b"X\x07\x00\x00\x00weightsq\x02G?\xf8\0\0\0\0\0\0u.");
    out
}

fn saved(step: u16) -> Vec<u8> {
    zip_of(&[
        ("a/data.pkl", &state(step)),
        ("a/byteorder", b"little"),
        ("a/data/0", &[7; 400]),
        ("a/version", b"3\n"),
    ])
}

fn put(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
}

fn chosen(dir: &Path) -> (Option<String>, Vec<String>) {
    let search = search(dir, &CheckpointOptions { hash: true, ..CheckpointOptions::default() }).unwrap();
    let name = search.chosen().map(|found| found.path.file_name().unwrap().to_str().unwrap().to_owned());
    (name, search.passed_over())
}

#[test]
fn a_truncated_newest_file_is_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let whole = saved(20);
    put(dir.path(), "step_10.pt", &saved(10));
    put(dir.path(), "step_20.pt", &whole);
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_20.pt"));
    for n in [0, 1, 100, whole.len() / 2, whole.len() - 10] {
        put(dir.path(), "step_20.pt", &whole[..n]);
        let (name, passed) = chosen(dir.path());
        assert_eq!(name.as_deref(), Some("step_10.pt"), "cut at {n}");
        assert_eq!(passed.len(), 1);
        assert!(passed[0].contains("step_20.pt: incomplete"), "{passed:?}");
    }
    // Only the checksum shows a hole of zeros.
    let mut hole = whole.clone();
    let at = hole.windows(400).position(|window| window == [7; 400]).unwrap();
    hole[at..at + 50].fill(0);
    put(dir.path(), "step_20.pt", &hole);
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_10.pt"));
    assert_eq!(search(dir.path(), &CheckpointOptions::default()).unwrap().chosen().unwrap().step, Some(20));
}

#[test]
fn the_step_within_counts_more_than_the_name() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "best.pt", &saved(300));
    put(dir.path(), "last.pt", &saved(900));
    put(dir.path(), "optimizer.pt", &saved(1));
    let search = search(dir.path(), &CheckpointOptions::default()).unwrap();
    assert_eq!(search.chosen().unwrap().step, Some(900));
    assert_eq!(search.all.len(), 2);
}

#[test]
fn files_of_ranks_stand_and_fall_together() {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        put(dir.path(), &format!("ep1-ba10-rank{rank}.pt"), &saved(10));
        if rank < 3 {
            put(dir.path(), &format!("ep1-ba20-rank{rank}.pt"), &saved(20));
        }
    }
    let (name, passed) = chosen(dir.path());
    assert_eq!(name.as_deref(), Some("ep1-ba10-rank0.pt"));
    assert!(passed[0].contains("files of 3 ranks, others have 4"), "{passed:?}");
    put(dir.path(), "ep1-ba20-rank3.pt", &saved(20)[..60]);
    assert!(chosen(dir.path()).1[0].contains("rank3.pt"));
}

#[test]
fn deepspeed_by_all_ranks() {
    let dir = tempfile::tempdir().unwrap();
    for (tag, n) in [("global_step10", 4), ("global_step20", 4)] {
        put(dir.path(), &format!("{tag}/mp_rank_00_model_states.pt"), &saved(10));
        for rank in 0..n {
            put(dir.path(), &format!("{tag}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"), &saved(1));
        }
    }
    put(dir.path(), "latest", b"global_step20");
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("global_step20"));
    fs::remove_file(dir.path().join("global_step20/zero_pp_rank_1_mp_rank_00_optim_states.pt")).unwrap();
    let (name, passed) = chosen(dir.path());
    assert_eq!(name.as_deref(), Some("global_step10"));
    assert!(passed[0].contains("rank 1 is missing"), "{passed:?}");
    let notes = search(dir.path(), &CheckpointOptions::default()).unwrap().notes;
    assert!(notes[0].contains("points to global_step20"), "{notes:?}");
}

fn safetensors(n: usize) -> Vec<u8> {
    let header = format!("{{\"w\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[0,{n}]}}}}", n / 4);
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![1; n]].concat()
}

#[test]
fn the_trainer_of_hugging_face() {
    let dir = tempfile::tempdir().unwrap();
    for step in [100, 200] {
        let of = |name: &str| format!("checkpoint-{step}/{name}");
        put(dir.path(), &of("model-00001-of-00002.safetensors"), &safetensors(64));
        put(dir.path(), &of("model-00002-of-00002.safetensors"), &safetensors(32));
        put(dir.path(), &of("model.safetensors.index.json"),
            b"{\"metadata\":{},\"weight_map\":{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00002-of-00002.safetensors\"}}");
        put(dir.path(), &of("optimizer.pt"), &saved(1));
        put(dir.path(), &of("rng_state_0.pth"), &saved(1));
        put(dir.path(), &of("rng_state_1.pth"), &saved(1));
        put(dir.path(), &of("trainer_state.json"), format!("{{\"global_step\": {step}}}").as_bytes());
    }
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("checkpoint-200"));
    for (name, bytes) in [
        ("model-00002-of-00002.safetensors", safetensors(32)[..20].to_vec()),
        ("trainer_state.json", b"{\"global_st".to_vec()),
        ("optimizer.pt", Vec::new()),
        ("checkpoint-is-incomplete.txt", b"x".to_vec()),
    ] {
        let path = dir.path().join("checkpoint-200").join(name);
        let before = fs::read(&path).ok();
        put(dir.path(), &format!("checkpoint-200/{name}"), &bytes);
        assert_eq!(chosen(dir.path()).0.as_deref(), Some("checkpoint-100"), "{name}");
        match before {
            Some(before) => fs::write(&path, before).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("checkpoint-200"));
}

/// A `.metadata` with one part for each shard: `_StorageInfo(name, 0, length)` as protocol 4 writes dataclasses.
fn metadata(shards: &[(&str, u32)]) -> Vec<u8> {
    let text = |text: &str| [&b"\x8c"[..], &[text.len() as u8], text.as_bytes()].concat();
    let mut out = b"\x80\x04]".to_vec();
    for (name, length) in shards {
        out.extend(text("torch.distributed.checkpoint.filesystem"));
        out.extend(text("_StorageInfo"));
        out.extend(b"\x93)\x81}(");
        out.extend(text("relative_path"));
        out.extend(text(name));
        out.extend(text("offset"));
        out.extend(b"K\0");
        out.extend(text("length"));
        out.extend(b"J");
        out.extend(length.to_le_bytes());
        out.extend(b"uba");
    }
    out.push(b'.');
    out
}

#[test]
fn shards_of_torch_distributed_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let shard = saved(1);
    let n = shard.len() as u32;
    for step in ["step-10", "step-20"] {
        put(dir.path(), &format!("{step}/__0_0.distcp"), &shard);
        put(dir.path(), &format!("{step}/__1_0.distcp"), &shard);
        put(dir.path(), &format!("{step}/.metadata"), &metadata(&[("__0_0.distcp", n), ("__1_0.distcp", n)]));
    }
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step-20"));
    put(dir.path(), "step-20/__1_0.distcp", &shard[..shard.len() - 1]);
    assert!(chosen(dir.path()).1[0].contains("__1_0.distcp has"), "{:?}", chosen(dir.path()));
    fs::remove_file(dir.path().join("step-20/__1_0.distcp")).unwrap();
    assert!(chosen(dir.path()).1[0].contains("__1_0.distcp is missing"));
    fs::remove_file(dir.path().join("step-20/.metadata")).unwrap();
    let (name, passed) = chosen(dir.path());
    assert_eq!(name.as_deref(), Some("step-10"));
    assert!(passed[0].contains("missing"), "{passed:?}");
    // The given folder may be the checkpoint itself.
    assert_eq!(chosen(&dir.path().join("step-10")).0.as_deref(), Some("step-10"));
}

#[test]
fn megatron_needs_the_file_that_is_written_last() {
    let dir = tempfile::tempdir().unwrap();
    let shard = saved(1);
    for step in [100, 200] {
        let of = |name: &str| format!("iter_{step:07}/{name}");
        put(dir.path(), &of("__0_0.distcp"), &shard);
        put(dir.path(), &of(".metadata"), &metadata(&[("__0_0.distcp", shard.len() as u32)]));
        put(dir.path(), &of("common.pt"), &saved(1));
        put(dir.path(), &of("metadata.json"), b"{\"sharded_backend\":\"torch_dist\"}");
    }
    put(dir.path(), "latest_checkpointed_iteration.txt", b"200");
    let search_one = search(dir.path(), &CheckpointOptions::default()).unwrap();
    assert_eq!((search_one.chosen().unwrap().step, search_one.notes.len()), (Some(200), 0));
    fs::remove_file(dir.path().join("iter_0000200/metadata.json")).unwrap();
    let search_two = search(dir.path(), &CheckpointOptions::default()).unwrap();
    assert_eq!(search_two.chosen().unwrap().step, Some(100));
    assert!(search_two.notes[0].contains("points to 200"), "{:?}", search_two.notes);
}

#[test]
fn a_folder_of_checkpoints_is_none_itself_whatever_its_name() {
    let dir = tempfile::tempdir().unwrap();
    for step in [10, 20] {
        put(dir.path(), &format!("run-7/epoch=0-step={step}.ckpt"), &saved(step));
        put(dir.path(), &format!("step_{step}0/model.pt"), &saved(step));
    }
    // Given directly, and by its parent folder.
    assert_eq!(chosen(&dir.path().join("run-7")).0.as_deref(), Some("epoch=0-step=20.ckpt"));
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_200"));
}

#[test]
fn what_the_one_before_has_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    for step in [10, 20] {
        for name in ["model.safetensors", "random_states_0.pkl", "optimizer.bin"] {
            let bytes = if name == "model.safetensors" { safetensors(8) } else { saved(step) };
            put(dir.path(), &format!("step_{step}/{name}"), &bytes);
        }
    }
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_20"));
    fs::remove_file(dir.path().join("step_20/optimizer.bin")).unwrap();
    let (name, passed) = chosen(dir.path());
    assert_eq!(name.as_deref(), Some("step_10"));
    assert!(passed[0].contains("doubtful: it lacks optimizer.bin, which step_10 has"), "{passed:?}");
    // No better checkpoint is left.
    fs::remove_dir_all(dir.path().join("step_10")).unwrap();
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_20"));
}

#[test]
fn parts_without_their_index_and_texts_that_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    for step in [10, 20] {
        let of = |name: &str| format!("step_{step}/{name}");
        put(dir.path(), &of("model-00001-of-00001.safetensors"), &safetensors(8));
        put(
            dir.path(),
            &of("model.safetensors.index.json"),
            b"{\"weight_map\":{\"a\":\"model-00001-of-00001.safetensors\"}}",
        );
        put(dir.path(), &of("config.json"), b"{}");
    }
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_20"));
    put(dir.path(), "step_20/config.json", b"{\"a\":");
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("step_10"));
    put(dir.path(), "step_20/config.json", b"{}");
    fs::remove_file(dir.path().join("step_20/model.safetensors.index.json")).unwrap();
    let (name, passed) = chosen(dir.path());
    assert_eq!(name.as_deref(), Some("step_10"));
    assert!(passed[0].contains("index.json is missing"), "{passed:?}");
}

#[test]
fn items_of_orbax() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = [&[0x0c, 0xdb, 0x3a, 0x2a][..], &20_u64.to_le_bytes(), &[1; 8]].concat();
    for step in [7, 8] {
        let of = |name: &str| format!("{step}/{name}");
        put(dir.path(), &of("_CHECKPOINT_METADATA"), b"{\"commit_timestamp_nsecs\": 5}");
        put(dir.path(), &of("default/_METADATA"), b"{}");
        put(dir.path(), &of("default/manifest.ocdbt"), &manifest);
        put(dir.path(), &of("default/d/2bba0007d1ff576a262bc7220052bb3d"), b"data");
    }
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("8"));
    for (name, bytes) in [
        ("_CHECKPOINT_METADATA", None),
        ("default/_METADATA", Some(&b"{"[..])),
        ("default/manifest.ocdbt", Some(&manifest[..15])),
        ("default/manifest.ocdbt", None),
        ("default/d/2bba0007d1ff576a262bc7220052bb3d", Some(&b""[..])),
    ] {
        let path = dir.path().join("8").join(name);
        let before = fs::read(&path).unwrap();
        match bytes {
            Some(bytes) => fs::write(&path, bytes).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        let (chosen, passed) = chosen(dir.path());
        assert_eq!(chosen.as_deref(), Some("7"), "{name}");
        assert!(passed[0].contains("/8: "), "{passed:?}");
        fs::write(&path, before).unwrap();
    }
}

#[test]
fn an_empty_folder_has_none_and_an_absent_one_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(chosen(dir.path()), (None, vec![]));
    assert!(search(&dir.path().join("absent"), &CheckpointOptions::default()).is_err());
    put(dir.path(), "step_1.pt", b"");
    let (name, passed) = chosen(dir.path());
    assert!(name.is_none() && passed[0].contains("empty"), "{passed:?}");
}

#[test]
fn markers_and_temporary_names() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "7/_CHECKPOINT_METADATA", b"{\"commit_timestamp_nsecs\": 5}");
    put(dir.path(), "8/_CHECKPOINT_METADATA", b"{\"commit_timestamp_nsecs\": null}");
    put(dir.path(), "9.orbax-checkpoint-tmp/_CHECKPOINT_METADATA", b"{\"commit_timestamp_nsecs\": 5}");
    assert_eq!(chosen(dir.path()).0.as_deref(), Some("7"));
    let nemo = tempfile::tempdir().unwrap();
    put(nemo.path(), "m--step=10.ckpt", &saved(10));
    put(nemo.path(), "m--step=20.ckpt", &saved(20));
    put(nemo.path(), "m--step=20-unfinished", b"");
    assert_eq!(chosen(nemo.path()).0.as_deref(), Some("m--step=10.ckpt"));
}

proptest! {
    #[test]
    fn hostile_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0..900_usize) {
        let _ = pickle::read(&bytes);
        let _ = files::safetensors(&mut Cursor::new(&bytes));
        let _ = files::torch(&mut Cursor::new(&bytes), true);
        let mut whole = saved(5);
        let at = at % whole.len();
        whole.splice(at..(at + bytes.len()).min(whole.len()), bytes.drain(..));
        let _ = files::torch(&mut Cursor::new(&whole), true);
    }
}

/// The chosen checkpoint for a number of ranks, and what was skipped.
fn chosen_for(dir: &Path, ranks: u32) -> (Option<String>, Vec<String>) {
    let options =
        CheckpointOptions { ranks: Some(ranks), worlds: vec![4, 6, 8], ..CheckpointOptions::default() };
    let search = search(dir, &options).unwrap();
    let name = search.chosen().map(|found| found.path.file_name().unwrap().to_str().unwrap().to_owned());
    (name, search.passed_over())
}

#[test]
fn parts_of_ranks_are_passed_over_by_another_number_of_ranks() {
    let zero = |dir: &Path, tag: &str, n: u32| {
        put(dir, &format!("{tag}/mp_rank_00_model_states.pt"), &saved(10));
        for rank in 0..n {
            put(dir, &format!("{tag}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"), &saved(1));
        }
    };
    let dir = tempfile::tempdir().unwrap();
    zero(dir.path(), "global_step10", 6);
    zero(dir.path(), "global_step20", 8);
    assert_eq!(chosen_for(dir.path(), 8), (Some("global_step20".to_owned()), Vec::new()));
    let (name, passed) = chosen_for(dir.path(), 6);
    assert_eq!(name.as_deref(), Some("global_step10"));
    assert!(passed[0].contains("global_step20: only 8 ranks can load it"), "{passed:?}");
    let all = search(dir.path(), &CheckpointOptions::default()).unwrap();
    assert_eq!(all.fit(6, &[]), Fit::Well);
    assert!(
        matches!(all.fit(4, &[]), Fit::Misfit(why) if why.contains("global_step20 (DeepSpeed): only 8 ranks"))
    );
    // Trainer and accelerate around ZeRO, files that each rank wrote for itself, and a model in parts.
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "checkpoint-30/trainer_state.json", b"{\"global_step\": 30}");
    zero(dir.path(), "checkpoint-30/global_step30", 8);
    for rank in 0..4 {
        put(dir.path(), &format!("b/ep1-ba20-rank{rank}.pt"), &saved(20));
        put(dir.path(), &format!("c/step_9/pytorch_model_fsdp_rank{rank}.bin"), &saved(9));
        put(dir.path(), &format!("d/iter_0000007/mp_rank_0{rank}/model_optim_rng.pt"), &saved(7));
    }
    for (folder, by, by_not) in [("checkpoint-30", 8, 4), ("b", 4, 8), ("c", 4, 8), ("d", 8, 6)] {
        let folder = dir.path().join(folder);
        assert!(chosen_for(&folder, by).0.is_some(), "{folder:?}");
        let (name, passed) = chosen_for(&folder, by_not);
        assert!(name.is_none() && passed[0].contains("can load it"), "{folder:?} {passed:?}");
    }
    // No attempt had four ranks: only some ranks may have written files, such as one for each part of the model.
    let options = CheckpointOptions { ranks: Some(6), worlds: vec![8], ..CheckpointOptions::default() };
    assert!(search(&dir.path().join("b"), &options).unwrap().chosen().is_some());
}

#[test]
fn what_only_looks_like_parts_of_ranks_is_loaded_by_any_number() {
    let dir = tempfile::tempdir().unwrap();
    for rank in 0..4 {
        // States of random generators and of loaders, shards with an index, numbered parts of one writer.
        put(dir.path(), &format!("a/checkpoint-5/rng_state_{rank}.pth"), &saved(5));
        put(dir.path(), &format!("b/checkpoint_5/random_states_{rank}.pkl"), &saved(5));
        put(dir.path(), &format!("c/step_5/rng-rank{rank}.pt"), &saved(5));
        put(dir.path(), &format!("c/step_5/loader_rank_{rank}.pt"), &saved(5));
        put(dir.path(), &format!("d/step_5/__{rank}_0.distcp"), &saved(5));
        put(dir.path(), &format!("e/model-shard{rank}.pt"), &saved(5));
        // ZeRO's universal form keeps the files of the model.
        put(dir.path(), &format!("f/global_step5_universal/mp_rank_0{rank}_model_states.pt"), &saved(5));
    }
    put(dir.path(), "a/checkpoint-5/trainer_state.json", b"{\"global_step\": 5}");
    put(dir.path(), "a/checkpoint-5/model.safetensors", &safetensors(64));
    put(dir.path(), "b/checkpoint_5/model.safetensors", &safetensors(64));
    put(dir.path(), "c/step_5/model.pt", &saved(5));
    put(dir.path(), "f/global_step5_universal/zero/w/fp32.pt", &saved(5));
    // Only one rank saves, and says so.
    put(dir.path(), "g/step5-rank0.pt", &saved(5));
    // DeepSpeed without ZeRO.
    put(dir.path(), "h/global_step5/mp_rank_00_model_states.pt", &saved(5));
    // Experts without ZeRO: one file for each part of the experts, not for each rank.
    for rank in 0..4 {
        put(dir.path(), &format!("i/global_step5/expp_rank_{rank}_mp_rank_00_optim_states.pt"), &saved(5));
    }
    put(dir.path(), "i/global_step5/mp_rank_00_model_states.pt", &saved(5));
    for folder in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        let options = CheckpointOptions { ranks: Some(6), ..CheckpointOptions::default() };
        let found = search(&dir.path().join(folder), &options).unwrap();
        let first = &found.all[0];
        assert_eq!((first.loads, first.is_misfit), (Loads::Any, false), "{folder}: {first:?}");
        assert_eq!(found.chosen.is_some(), folder != "d", "{folder}: {first:?}");
    }
}

#[test]
fn fewer_rank_files_are_no_gap_if_an_attempt_had_so_many_ranks() {
    let dir = tempfile::tempdir().unwrap();
    for (step, n) in [(10, 8), (20, 6)] {
        put(
            dir.path(),
            &format!("checkpoint-{step}/trainer_state.json"),
            format!("{{\"global_step\": {step}}}").as_bytes(),
        );
        put(dir.path(), &format!("checkpoint-{step}/model.safetensors"), &safetensors(64));
        for rank in 0..n {
            put(dir.path(), &format!("checkpoint-{step}/rng_state_{rank}.pth"), &saved(step));
        }
    }
    let step = |worlds: &[u32]| {
        let options = CheckpointOptions { worlds: worlds.to_vec(), ..CheckpointOptions::default() };
        search(dir.path(), &options).unwrap().chosen().unwrap().step
    };
    assert_eq!((step(&[]), step(&[8]), step(&[8, 6])), (Some(10), Some(10), Some(20)));
}
