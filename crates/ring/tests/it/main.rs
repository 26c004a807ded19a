//! The ring as its users see it: a writer, a reader beside it, the file of a dead process, hostile bytes.
#![cfg(all(target_os = "linux", not(loom)))]
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod hostile;
mod killed;
mod life;
mod passed;
mod stress;

use ringleader_ring::{CallDescriptor, Handle, NewComm, Reader, RingOptions, State, Writer, names};

/// A ring in a directory of its own.
struct Ring {
    dir: tempfile::TempDir,
    writer: Writer,
}

impl Ring {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let writer = Writer::create(&options(dir.path())).unwrap();
        Self { dir, writer }
    }
    fn reader(&self) -> Reader {
        Reader::open(self.writer.path()).unwrap()
    }
    fn state(&self) -> State {
        self.reader().state().unwrap()
    }
}

fn options(dir: &std::path::Path) -> RingOptions {
    RingOptions { directories: vec![dir.to_owned()], rank: Some(3), local_rank: Some(1), world_size: Some(8) }
}

fn comm(writer: &Writer, name: &str) -> Handle {
    writer.comm_begins(&NewComm {
        id: 0xfeed,
        name: name.as_bytes(),
        size: 8,
        rank: Some(3),
        nodes: 2,
        sees_kernels: true,
        sees_channels: true,
    })
}

fn all_reduce(writer: &Writer, count: u64, channels: u8) -> CallDescriptor {
    CallDescriptor {
        function: writer.code(names::NameKind::Function, b"AllReduce"),
        datatype: writer.code(names::NameKind::Datatype, b"ncclFloat32"),
        algorithm: writer.code(names::NameKind::Algorithm, b"RING"),
        protocol: writer.code(names::NameKind::Protocol, b"LL128"),
        channels,
        count,
        ..CallDescriptor::default()
    }
}
