//! Writes pickles: as torch's C++ pickler does, and as CPython's does.

use std::collections::BTreeMap;

/// Plain data.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Obj {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    List(Vec<Obj>),
    Tuple(Vec<Obj>),
    Dict(Vec<(Obj, Obj)>),
    /// A frame dict, which torch shares through the memo.
    Frame(String, String, i64),
}

pub(super) fn s(text: &str) -> Obj {
    Obj::Str(text.to_owned())
}

pub(super) fn dict(pairs: &[(&str, Obj)]) -> Obj {
    Obj::Dict(pairs.iter().map(|(k, v)| (s(k), v.clone())).collect())
}

pub(super) fn frame(function: &str, file: &str, line: i64) -> Obj {
    Obj::Frame(function.to_owned(), file.to_owned(), line)
}

pub(super) fn shapes(shapes: &[&[i64]]) -> Obj {
    Obj::List(shapes.iter().map(|s| Obj::List(s.iter().map(|n| Obj::Int(*n)).collect())).collect())
}

/// Whose habits to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Strings and frames in the memo; MARK … SETITEMS and APPENDS always.
    Torch,
    /// Every container and string in the memo, as soon as it is begun; protocol 2, 3, 4 or 5.
    CPython(u8),
}

pub(super) struct Writer {
    pub(super) bytes: Vec<u8>,
    style: Style,
    strings: BTreeMap<String, u32>,
    frames: BTreeMap<(String, String, i64), u32>,
    next: u32,
}

pub(super) fn pickle(style: Style, object: &Obj) -> Vec<u8> {
    let protocol = if let Style::CPython(protocol) = style { protocol } else { 2 };
    let mut writer = Writer {
        bytes: vec![0x80, protocol],
        style,
        strings: BTreeMap::new(),
        frames: BTreeMap::new(),
        next: 0,
    };
    writer.write(object);
    writer.bytes.push(b'.');
    if protocol >= 4 {
        let body = writer.bytes.split_off(2);
        writer.bytes.push(0x95);
        writer.bytes.extend((body.len() as u64).to_le_bytes());
        writer.bytes.extend(body);
    }
    writer.bytes
}

impl Writer {
    fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn put(&mut self) -> u32 {
        let at = self.next;
        self.next += 1;
        match (self.style, u8::try_from(at)) {
            (Style::CPython(4..), _) => self.raw(&[0x94]),
            (_, Ok(at)) => self.raw(&[b'q', at]),
            (_, Err(_)) => {
                self.raw(b"r");
                self.raw(&at.to_le_bytes());
            }
        }
        at
    }

    fn get(&mut self, at: u32) {
        if let Ok(at) = u8::try_from(at) {
            self.raw(&[b'h', at]);
        } else {
            self.raw(b"j");
            self.raw(&at.to_le_bytes());
        }
    }

    fn put_container(&mut self) {
        if matches!(self.style, Style::CPython(_)) {
            self.put();
        }
    }

    pub(super) fn write(&mut self, object: &Obj) {
        match object {
            Obj::None => self.raw(b"N"),
            Obj::Bool(true) => self.raw(&[0x88]),
            Obj::Bool(false) => self.raw(&[0x89]),
            Obj::Int(n) => self.int(*n),
            Obj::Float(x) => {
                self.raw(b"G");
                self.raw(&x.to_be_bytes());
            }
            Obj::Str(text) => {
                if let Some(at) = self.strings.get(text) {
                    return self.get(*at);
                }
                if let (Style::CPython(4..), Ok(n)) = (self.style, u8::try_from(text.len())) {
                    self.raw(&[0x8c, n]);
                } else {
                    self.raw(b"X");
                    self.raw(&(text.len() as u32).to_le_bytes());
                }
                self.raw(text.as_bytes());
                let at = self.put();
                self.strings.insert(text.clone(), at);
            }
            Obj::Frame(function, file, line) => {
                let key = (function.clone(), file.clone(), *line);
                if let Some(at) = self.frames.get(&key) {
                    return self.get(*at);
                }
                self.raw(b"}");
                let early = (self.style != Style::Torch).then(|| self.put());
                self.raw(b"(");
                for (key, value) in [("name", s(function)), ("filename", s(file)), ("line", Obj::Int(*line))]
                {
                    self.write(&s(key));
                    self.write(&value);
                }
                self.raw(b"u");
                let at = early.unwrap_or_else(|| self.put());
                self.frames.insert(key, at);
            }
            Obj::Dict(pairs) => {
                self.raw(b"}");
                self.put_container();
                match pairs.as_slice() {
                    [] if self.style != Style::Torch => {}
                    [(key, value)] if self.style != Style::Torch => {
                        self.write(key);
                        self.write(value);
                        self.raw(b"s");
                    }
                    pairs => {
                        self.raw(b"(");
                        for (key, value) in pairs {
                            self.write(key);
                            self.write(value);
                        }
                        self.raw(b"u");
                    }
                }
            }
            Obj::List(items) => {
                self.raw(b"]");
                self.put_container();
                if self.style == Style::Torch {
                    self.batch(items);
                } else {
                    // CPython writes a thousand at a time.
                    for batch in items.chunks(1000) {
                        if let [one] = batch {
                            self.write(one);
                            self.raw(b"a");
                        } else {
                            self.batch(batch);
                        }
                    }
                }
            }
            Obj::Tuple(items) => {
                if items.is_empty() {
                    return self.raw(b")");
                }
                if items.len() > 3 {
                    self.raw(b"(");
                }
                for item in items {
                    self.write(item);
                }
                match items.len() {
                    n @ 1..=3 => self.raw(&[0x84 + n as u8]),
                    _ => self.raw(b"t"),
                }
                self.put_container();
            }
        }
    }

    fn batch(&mut self, items: &[Obj]) {
        self.raw(b"(");
        for item in items {
            self.write(item);
        }
        self.raw(b"e");
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
}

/// What an entry of a made-up dump says.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) record_id: i64,
    pub(super) group: (i64, &'static str, &'static str),
    pub(super) name: String,
    pub(super) seq: i64,
    pub(super) shape: Vec<i64>,
    pub(super) dtype: &'static str,
    pub(super) state: &'static str,
    pub(super) line: i64,
}

impl Entry {
    pub(super) fn new(i: i64) -> Self {
        Self {
            record_id: i,
            group: (0, "0", "default_pg"),
            name: "nccl:all_reduce".into(),
            seq: i + 1,
            shape: vec![1024, 300],
            dtype: "Float",
            state: "completed",
            line: 80,
        }
    }

    /// As a 2.10 dump has it.
    pub(super) fn newest(&self) -> Vec<(&'static str, Obj)> {
        let sizes = shapes(&[&self.shape]);
        let dtypes = Obj::List(vec![s(self.dtype)]);
        let is_done = self.state == "completed";
        let created = 1_795_162_886_603_307_180 + self.record_id * 1_000_003;
        vec![
            (
                "frames",
                Obj::List(vec![
                    frame("all_reduce", "/venv/site-packages/torch/distributed/distributed_c10d.py", 3068),
                    frame("step", "/srv/train.py", self.line),
                ]),
            ),
            ("record_id", Obj::Int(self.record_id)),
            ("pg_id", Obj::Int(self.group.0)),
            ("process_group", Obj::Tuple(vec![s(self.group.1), s(self.group.2)])),
            ("thread_name", s("python3")),
            ("thread_id", s("140260848612096")),
            ("collective_seq_id", Obj::Int(self.seq)),
            ("p2p_seq_id", Obj::Int(0)),
            ("op_id", Obj::Int(self.seq)),
            ("profiling_name", s(&self.name)),
            ("time_created_ns", Obj::Int(created)),
            ("input_sizes", sizes.clone()),
            ("input_dtypes", dtypes.clone()),
            ("output_sizes", sizes),
            ("output_dtypes", dtypes),
            ("state", s(self.state)),
            ("time_discovered_started_ns", Obj::None),
            ("time_discovered_completed_ns", if is_done { Obj::Int(created + 5_000_000) } else { Obj::None }),
            ("retired", Obj::Bool(is_done)),
            ("timeout_ms", Obj::Int(600_000)),
            ("is_p2p", Obj::Bool(false)),
        ]
    }
}

/// A whole dump around entries.
pub(super) fn whole(entries: Vec<Obj>) -> Obj {
    dict(&[
        ("version", s("2.10")),
        (
            "pg_config",
            dict(&[(
                "0",
                dict(&[("name", s("0")), ("desc", s("default_pg")), ("ranks", s("[0, 1, 2, 3]"))]),
            )]),
        ),
        ("comm_lib_version", s("2.28.9")),
        (
            "pg_status",
            dict(&[(
                "0",
                dict(&[
                    ("last_enqueued_collective", Obj::Int(48)),
                    ("last_started_collective", Obj::Int(-1)),
                    ("last_completed_collective", Obj::Int(44)),
                ]),
            )]),
        ),
        ("entries", Obj::List(entries)),
    ])
}

pub(super) fn newest(entries: &[Entry]) -> Obj {
    whole(entries.iter().map(|e| dict(&e.newest())).collect())
}
