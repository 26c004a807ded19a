//! Flight Recorder dumps of a big healthy job, for the benches that read them.

use std::collections::BTreeMap;

/// Writes pickles as torch's C++ pickler does: only strings and frame dicts go into the memo.
#[derive(Default)]
struct Pickler {
    bytes: Vec<u8>,
    memo: BTreeMap<String, u32>,
}

impl Pickler {
    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn refer(&mut self, ops: [u8; 2], at: u32) {
        if let Ok(at) = u8::try_from(at) {
            self.raw(&[ops[0], at]);
        } else {
            self.raw(&[ops[1]]);
            self.raw(&at.to_le_bytes());
        }
    }

    /// Refers to the value of `key`; false if it is new, and then has its place from now on.
    fn known(&mut self, key: &str) -> Result<(), u32> {
        let next = self.memo.len() as u32;
        if let Some(at) = self.memo.get(key).copied() {
            self.refer(*b"hj", at);
            return Ok(());
        }
        self.memo.insert(key.to_owned(), next);
        Err(next)
    }

    fn text(&mut self, text: &str) {
        if let Err(at) = self.known(text) {
            self.raw(b"X");
            self.raw(&(text.len() as u32).to_le_bytes());
            self.raw(text.as_bytes());
            self.refer(*b"qr", at);
        }
    }

    fn int(&mut self, n: i64) {
        if let Ok(n) = u8::try_from(n) {
            self.raw(&[b'K', n]);
        } else if let Ok(n) = u16::try_from(n) {
            self.raw(b"M");
            self.raw(&n.to_le_bytes());
        } else if let Ok(n) = i32::try_from(n) {
            self.raw(b"J");
            self.raw(&n.to_le_bytes());
        } else {
            self.raw(&[0x8a, 8]);
            self.raw(&n.to_le_bytes());
        }
    }

    fn field(&mut self, key: &str, n: i64) {
        self.text(key);
        self.int(n);
    }

    fn frame(&mut self, (function, file, line): (&str, &str, i64)) {
        let key = format!("\0{function}\0{file}\0{line}");
        if let Some(at) = self.memo.get(&key).copied() {
            return self.refer(*b"hj", at);
        }
        self.raw(b"}(");
        self.text("name");
        self.text(function);
        self.text("filename");
        self.text(file);
        self.field("line", line);
        self.raw(b"u");
        let at = self.memo.len() as u32;
        self.memo.insert(key, at);
        self.refer(*b"qr", at);
    }

    fn sizes(&mut self, shape: &[i64]) {
        self.raw(b"](](");
        for n in shape {
            self.int(*n);
        }
        self.raw(b"ee");
    }

    fn types(&mut self, name: &str) {
        self.raw(b"](");
        self.text(name);
        self.raw(b"e");
    }
}

/// One operation of a step: group (0 world, 1 tensor, 2 data), name, line that tells its place apart, sizes, type.
struct Op(usize, &'static str, &'static str, i64, Vec<i64>, Vec<i64>, &'static str);

fn step(n_data: i64) -> Vec<Op> {
    let mut ops = Vec::new();
    let act = || vec![4096, 1, 8192];
    for layer in 0..24 {
        for module in ["attention", "mlp"] {
            ops.push(Op(1, "all_reduce", module, 300 + layer, act(), act(), "BFloat16"));
        }
    }
    for i in 0..48 {
        ops.push(Op(1, "all_reduce", "backward", 500 + i % 2, act(), act(), "BFloat16"));
    }
    for bucket in 0..8 {
        let n = 40_000_000 + 65_536 * bucket;
        ops.push(Op(
            2,
            "_reduce_scatter_base",
            "grads",
            340 + bucket % 2,
            vec![n * n_data],
            vec![n],
            "Float",
        ));
    }
    for bucket in 0..8 {
        let n = 40_000_000 + 65_536 * bucket;
        ops.push(Op(
            2,
            "_all_gather_base",
            "params",
            290 + bucket % 2,
            vec![n],
            vec![n * n_data],
            "BFloat16",
        ));
    }
    ops.push(Op(0, "all_reduce", "norm", 127, vec![1], vec![1], "Float"));
    ops
}

pub(crate) fn dump(rank: i64, n_ranks: i64, n_entries: i64) -> Vec<u8> {
    const SITE: &str = "/opt/venv/lib/python3.12/site-packages/";
    let n_tensor = n_ranks.min(8);
    let n_data = n_ranks / n_tensor;
    let (t, d) = (rank / n_tensor, rank % n_tensor);
    let names = ["0".to_owned(), (1 + t).to_string(), (1 + n_data + d).to_string()];
    let descs = ["default_pg", "TENSOR_MODEL_PARALLEL_GROUP", "DATA_PARALLEL_GROUP_WITH_CP"];
    let list = |ranks: Vec<i64>| format!("{ranks:?}");
    let ranks = [
        list((0..n_ranks).collect()),
        list((t * n_tensor..(t + 1) * n_tensor).collect()),
        list((0..n_data).map(|i| d + i * n_tensor).collect()),
    ];
    let ops = step(n_data);
    let mut p = Pickler::default();
    p.raw(b"\x80\x02}(");
    p.text("version");
    p.text("2.10");
    p.text("pg_config");
    p.raw(b"}(");
    for ((name, desc), ranks) in names.iter().zip(descs).zip(&ranks) {
        p.text(name);
        p.raw(b"}(");
        for (key, value) in [("name", name.as_str()), ("desc", desc), ("ranks", ranks)] {
            p.text(key);
            p.text(value);
        }
        p.raw(b"u");
    }
    p.raw(b"u");
    p.text("comm_lib_version");
    p.text("2.28.9");
    p.text("entries");
    p.raw(b"](");
    let mut seqs = [0_i64; 3];
    let first = 2 * n_entries;
    for i in 0..first + n_entries {
        let Op(group, name, place, line, input, output, dtype) = &ops[i as usize % ops.len()];
        seqs[*group] += 1;
        if i < first {
            continue;
        }
        let seq = seqs[*group];
        p.raw(b"}(");
        p.text("frames");
        p.raw(b"](");
        p.frame((name, &format!("{SITE}torch/distributed/distributed_c10d.py"), 3068));
        p.frame(("wrapper", &format!("{SITE}torch/distributed/c10d_logger.py"), 83));
        p.frame(("forward", &format!("{SITE}megatron/core/{place}.py"), *line));
        for depth in 0..5 {
            p.frame(("_call_impl", &format!("{SITE}torch/nn/modules/module.py"), 1879 + depth));
        }
        p.frame(("train_step", &format!("{SITE}megatron/training/training.py"), 1411));
        p.frame(("<module>", "/srv/train/pretrain_gpt.py", 331));
        p.raw(b"e");
        p.field("record_id", i);
        p.field("pg_id", *group as i64);
        p.text("process_group");
        p.text(&names[*group]);
        p.text(descs[*group]);
        p.raw(&[0x86]);
        p.text("thread_name");
        p.text(if *place == "grads" || *place == "backward" { "pt_autograd_0" } else { "python3" });
        p.text("thread_id");
        p.text(&(139_908_952_367_872 + 4096 * rank).to_string());
        p.field("collective_seq_id", seq);
        p.field("p2p_seq_id", 0);
        p.field("op_id", seq);
        p.text("profiling_name");
        p.text(&format!("nccl:{name}"));
        let at = 1_795_162_886_594_497_958 + i * 1_350_000 + (i * 7919 + rank * 104_729) % 90_000;
        p.field("time_created_ns", at);
        p.text("input_sizes");
        p.sizes(input);
        p.text("input_dtypes");
        p.types(dtype);
        p.text("output_sizes");
        p.sizes(output);
        p.text("output_dtypes");
        p.types(dtype);
        p.text("state");
        p.text("completed");
        p.text("time_discovered_started_ns");
        p.raw(b"N");
        p.field("time_discovered_completed_ns", at + 30_000_000 + (at % 977) * 1000);
        p.text("retired");
        p.raw(&[0x88]);
        p.field("timeout_ms", 600_000);
        p.text("is_p2p");
        p.raw(&[0x89, b'u']);
    }
    p.raw(b"eu.");
    p.bytes
}
