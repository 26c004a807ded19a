use proptest::prelude::*;
use ringleader_ring::{Handle, Phase, Reader, State};

use crate::{Ring, all_reduce, comm};

/// A ring with something in every region.
fn image() -> Vec<u8> {
    let ring = Ring::new();
    let writer = &ring.writer;
    for name in ["dp", "tp"] {
        let comm = comm(writer, name);
        for number in 0..20 {
            let op = writer.launch(comm, Handle::NONE, writer.plan_begins(comm), &all_reduce(writer, 8, 1));
            let proxy = writer.proxy_starts(op, None, 1, 2, 3, false);
            writer.step_waits(writer.step_starts(proxy, 0), Phase::RecvNet);
            writer.handed_over(op);
            let kernel = writer.kernel_starts(op, 0, 10);
            if number < 15 {
                writer.proxy_stops(proxy);
                writer.kernel_stops(kernel);
            }
        }
    }
    ring.reader().image().unwrap()
}

#[test]
fn an_image_reads_as_the_ring_it_was_taken_from() {
    let bytes = image();
    assert_eq!(bytes.len(), ringleader_ring::FILE_BYTES);
    let state = State::parse(&bytes).unwrap();
    assert_eq!(state.comms.len(), 2);
    assert_eq!(state.comms[1].in_flight.len(), 5);
    assert_eq!(state.recent.len(), 30);
    assert_eq!(state.lost.torn, 0);
    // An image is itself a ring file.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring-1-1");
    std::fs::write(&path, &bytes).unwrap();
    let again = Reader::open(&path).unwrap();
    assert_eq!(State::parse(&std::fs::read(&path).unwrap()).unwrap(), state);
    assert_eq!(again.state().unwrap().comms, state.comms);
}

#[test]
fn a_file_that_is_no_ring_is_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| {
        let path = dir.path().join("ring-1-1");
        std::fs::write(&path, bytes).unwrap();
        let by_parse = State::parse(bytes).unwrap_err().to_string();
        let by_reader = Reader::open(&path).unwrap_err().to_string();
        assert!(by_reader.ends_with(&by_parse), "{by_reader} / {by_parse}");
        by_parse
    };
    assert_eq!(refused(b""), "read a ring: only 0 bytes");
    assert_eq!(refused(&[0; 9000]), "read a ring: it does not begin as one");
    let mut bytes = image();
    assert_eq!(refused(&bytes[..bytes.len() - 1]), "read a ring: table 5 does not fit the file");
    bytes[12] = 9;
    assert_eq!(refused(&bytes), "read a ring of format 9.2: this version reads 1.2");
    assert!(Reader::open(dir.path()).unwrap_err().to_string().ends_with("it is not a plain file"));
    assert!(Reader::open(&dir.path().join("none")).is_err());
    // A pipe must not block the reader.
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    assert!(Reader::open(&pipe).is_err());
}

#[test]
fn a_file_that_is_cut_under_the_reader_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ring-1-1");
    std::fs::write(&path, image()).unwrap();
    let reader = Reader::open(&path).unwrap();
    assert!(reader.state().is_ok());
    for length in [1_000_000, 100, 0] {
        std::fs::File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        assert!(reader.state().is_err(), "{length}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        let _any = State::parse(&bytes);
    }

    #[test]
    fn a_ring_with_any_words_is_survived(
        changes in prop::collection::vec((0..ringleader_ring::FILE_BYTES / 8, any::<u64>()), 0..200),
        header in prop::collection::vec((1..64_usize, any::<u64>()), 0..3),
        cut in prop::option::of(0..ringleader_ring::FILE_BYTES),
    ) {
        thread_local!(static IMAGE: Vec<u8> = image());
        let mut bytes = IMAGE.with(Clone::clone);
        for (word, value) in changes.into_iter().chain(header) {
            bytes[word * 8..word * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        if let Ok(state) = State::parse(&bytes) {
            prop_assert!(state.comms.len() <= bytes.len() / 64);
        }
    }
}
