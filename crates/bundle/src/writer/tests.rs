#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
use std::io::Read;

use super::*;
use crate::manifest::{Origin, SCHEMA};

fn item(name: &str) -> Item {
    Item {
        name: name.to_owned(),
        kind: "log".to_owned(),
        origin: Origin::Path(name.to_owned()),
        ..Item::default()
    }
}

/// Names and contents of a bundle's members, and its manifest.
fn open(bytes: &[u8]) -> (Vec<(String, Vec<u8>)>, Manifest) {
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(bytes).unwrap());
    let mut members = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        members.push((name, content));
    }
    let (name, manifest) = members.pop().unwrap();
    assert_eq!(name, MANIFEST, "the manifest is the last member");
    (members, serde_json::from_slice(&manifest).unwrap())
}

fn write(caps: Caps, fill: impl FnOnce(&mut BundleWriter<Vec<u8>>)) -> (Vec<(String, Vec<u8>)>, Manifest) {
    let mut writer = BundleWriter::new(Vec::new(), caps).unwrap();
    fill(&mut writer);
    let manifest = Manifest { schema: SCHEMA.to_owned(), ..Manifest::default() };
    let (bytes, written) = writer.finish(manifest).unwrap();
    let (members, read) = open(&bytes);
    assert_eq!(read, written);
    (members, read)
}

#[test]
fn what_goes_in_comes_out() {
    let long = format!("node7/logs/{}/nccl.log", "x".repeat(300));
    let (members, manifest) = write(Caps::default(), |writer| {
        writer.add_bytes(item(&long), Content::Text, b"one\n").unwrap();
        writer.add_bytes(item("node7/empty"), Content::Text, b"").unwrap();
        let failed = ItemOutcome::Failed(vec!["open it".to_owned(), "permission denied".to_owned()]);
        writer.missing(Item { outcome: failed, ..item("node7/gone") });
    });
    assert_eq!(members, [(long, b"one\n".to_vec()), ("node7/empty".to_owned(), Vec::new())]);
    assert_eq!(manifest.format, crate::Version { major: 1, minor: 0 });
    let told: Vec<(&str, u64)> = manifest.items.iter().map(|i| (i.name.as_str(), i.bytes)).collect();
    assert_eq!(told[1..], [("node7/empty", 0), ("", 0)]);
    assert_eq!(manifest.items[2].origin, Origin::Path("node7/gone".to_owned()));
}

#[test]
fn of_a_huge_log_head_and_tail_are_kept_and_the_cut_is_told() {
    let lines = (0..100_000).map(|n| format!("line {n:07}\n")).collect::<Vec<_>>().concat();
    let caps = Caps { item_bytes: 256 << 10, all_bytes: 1 << 30 };
    let (members, manifest) = write(caps, |w| {
        w.add_bytes(item("a.log"), Content::Text, lines.as_bytes()).unwrap();
    });
    let content = std::str::from_utf8(&members[0].1).unwrap();
    let cut = manifest.items[0].cut.unwrap();
    assert!(content.len() as u64 <= caps.item_bytes);
    assert_eq!(manifest.items[0].bytes, content.len() as u64);
    assert_eq!(cut.head_bytes + cut.left_out_bytes + cut.tail_bytes, lines.len() as u64);
    assert!(content.starts_with("line 0000000\n") && content.ends_with("line 0099999\n"));
    assert!(content.contains(&format!("[ringleader: {} bytes left out here]", cut.left_out_bytes)));
    let tail = &lines[(cut.head_bytes + cut.left_out_bytes) as usize..];
    let (_, whole_lines) = tail.split_once('\n').unwrap();
    assert!(content.ends_with(whole_lines), "the tail is that of the log");
    for line in content.lines().filter(|line| line.contains("line ")) {
        assert_eq!(line.len(), "line 0000000".len(), "half a line was kept: {line}");
    }
}

#[test]
fn a_dump_is_never_cut() {
    let caps = Caps { item_bytes: 256 << 10, all_bytes: 1 << 30 };
    let (members, manifest) = write(caps, |w| {
        w.add_bytes(item("dump_rank_0"), Content::Binary, &vec![1; 300 << 10]).unwrap();
    });
    assert!(members.is_empty());
    let ItemOutcome::Skipped(why) = &manifest.items[0].outcome else { panic!("{manifest:?}") };
    assert!(why.contains("307200 bytes") && why.contains("an item (--max-item-mib)"), "{why}");
}

#[test]
fn of_a_text_no_more_than_its_share_is_taken_and_a_dump_has_none() {
    let caps = Caps { item_bytes: 1 << 30, all_bytes: 1_100 << 10 };
    let (members, manifest) = write(caps, |w| {
        let log = vec![b'\n'; 700 << 10];
        let mut add = |name: &str, content: Content, share: u64| {
            let mut input = log.as_slice();
            w.add_share(item(name), content, log.len() as u64, &mut Stream(&mut input), share).unwrap()
        };
        assert_eq!(add("a", Content::Text, 200 << 10), members_bytes(200 << 10));
        assert_eq!(add("b", Content::Text, 1), members_bytes(LEAST_SHARE));
        assert_eq!(add("c", Content::Binary, 1), 700 << 10);
        assert_eq!(add("d", Content::Text, 200 << 10), 0);
    });
    assert_eq!(members.len(), 3);
    let ItemOutcome::Skipped(why) = &manifest.items[3].outcome else { panic!("{manifest:?}") };
    assert!(why.contains("all items (--max-mib)"), "{why}");
}

/// Length of a 700 KiB text that is cut to `room` bytes; unused room for the marker stays free.
fn members_bytes(room: u64) -> u64 {
    let left_out = (700 << 10) - (room - 256);
    room - 256 + format!("\n[ringleader: {left_out} bytes left out here]\n").len() as u64
}

#[test]
fn the_cap_on_all_holds() {
    let caps = Caps { item_bytes: 256 << 10, all_bytes: 300 << 10 };
    let (members, manifest) = write(caps, |w| {
        for name in ["a", "b", "c"] {
            w.add_bytes(item(name), Content::Text, &vec![b'\n'; 200 << 10]).unwrap();
        }
    });
    let all: usize = members.iter().map(|(_, content)| content.len()).sum();
    assert!(all <= 300 << 10, "{all}");
    assert_eq!(members.len(), 1);
    let skipped = manifest
        .items
        .iter()
        .filter(|i| matches!(&i.outcome, ItemOutcome::Skipped(w) if w.contains("all items")));
    assert_eq!(skipped.count(), 2);
}

#[test]
fn a_file_that_shrinks_or_fails_is_partial_and_hurts_no_other() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("stale file handle"))
        }
    }
    let (members, manifest) = write(Caps::default(), |w| {
        w.add(item("short"), Content::Text, 10, &mut b"abc\n".as_slice()).unwrap();
        w.add(item("fails"), Content::Text, 10, &mut b"ab".as_slice().chain(Fails)).unwrap();
        w.add(item("grows"), Content::Text, 3, &mut b"abcdef".as_slice()).unwrap();
        w.add_bytes(item("whole"), Content::Text, b"whole\n").unwrap();
    });
    assert_eq!(members[0].1, b"abc\n\n\n\n\n\n\n");
    assert_eq!(members[2].1, b"abc");
    assert_eq!(members[3].1, b"whole\n");
    let why = |n: usize| match &manifest.items[n].outcome {
        ItemOutcome::Partial(why) => why.as_str(),
        other => panic!("{other:?}"),
    };
    assert!(why(0).starts_with("4 of 10 bytes while it was read (it became shorter)"));
    assert!(why(1).starts_with("2 of 10 bytes while it was read (stale file handle)"));
    assert_eq!(manifest.items[3].outcome, ItemOutcome::Done);
}

/// A log on a file system that stops answering while its beginning is read: the bundle continues.
#[test]
fn a_huge_log_that_fails_in_its_head_is_partial_too() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("no answer"))
        }
    }
    let caps = Caps { item_bytes: 256 << 10, all_bytes: 1 << 30 };
    let (members, manifest) = write(caps, |w| {
        w.add(item("a"), Content::Text, 1 << 30, &mut b"first\nhalf".as_slice().chain(Fails)).unwrap();
        w.add_bytes(item("b"), Content::Text, b"whole\n").unwrap();
    });
    assert!(members[0].1.starts_with(b"first\n    \n"));
    assert!(matches!(&manifest.items[0].outcome, ItemOutcome::Partial(why) if why.contains("no answer")));
    assert_eq!(members[1].1, b"whole\n");
}

/// The skipped part of a log of gigabytes need not be read.
#[test]
fn what_is_left_out_is_passed_over() {
    struct Log {
        at: u64,
        n_read: u64,
    }
    impl Read for Log {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            buffer.fill(b'\n');
            self.at += buffer.len() as u64;
            self.n_read += buffer.len() as u64;
            Ok(buffer.len())
        }
    }
    impl ItemSource for Log {
        fn pass_over(&mut self, n_bytes: u64) -> io::Result<()> {
            self.at += n_bytes;
            Ok(())
        }
    }
    let mut log = Log { at: 0, n_read: 0 };
    let caps = Caps { item_bytes: 256 << 10, all_bytes: 1 << 30 };
    let (members, _) = write(caps, |w| {
        w.add_from(item("a"), Content::Text, 100 << 30, &mut log).unwrap();
    });
    assert!(log.n_read <= 256 << 10 && log.at > 99 << 30);
    assert!(members[0].1.len() <= 256 << 10);
}

#[test]
fn two_of_one_name_stay_two_and_keep_the_end_of_their_names() {
    let (members, _) = write(Caps::default(), |w| {
        for _ in 0..3 {
            w.add_bytes(item("n/dumps/rank_0"), Content::Binary, b"x").unwrap();
        }
        w.add_bytes(item(MANIFEST), Content::Text, b"not the manifest").unwrap();
    });
    let names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["n/dumps/rank_0", "n/dumps-2/rank_0", "n/dumps-3/rank_0", "2/manifest.json"]);
}

#[test]
fn a_bundle_whose_writer_died_gives_what_came_before() {
    let mut writer = BundleWriter::new(Vec::new(), Caps::default()).unwrap();
    let noise: Vec<u8> = (0..1_u32 << 20).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    writer.add_bytes(item("first"), Content::Binary, b"first").unwrap();
    writer.add_bytes(item("noise"), Content::Binary, &noise).unwrap();
    let (bytes, _) = writer.finish(Manifest::default()).unwrap();
    let cut = &bytes[..bytes.len() / 2];
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(cut).unwrap());
    let mut first = String::new();
    archive.entries().unwrap().next().unwrap().unwrap().read_to_string(&mut first).unwrap();
    assert_eq!(first, "first");
}
