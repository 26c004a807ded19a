#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use crate::tell::{read, recordings, tell};
use crate::{Limits, Scratch};

/// What is read from `input`.
fn check(path: &str, input: &[u8], expected: &str) {
    assert_eq!(tell(&read(path, input)).trim_end(), expected);
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zst(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// A tar of these files; names are written as they are, safe or not.
fn tar_of(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    builder.into_inner().unwrap()
}

const ULIMIT: &[u8] = b"open files                          (-n) 1024\n";
const TOLD: &str = "[limits] 46 B\n  line 1: 1: OpenFiles Some(1024)/None";

#[test]
fn layers_open_in_any_order() {
    check("a.gz", &gz(ULIMIT), &format!("a.gz {TOLD}"));
    check("a.zst", &zst(ULIMIT), &format!("a.zst {TOLD}"));
    check("two.gz", &[gz(&ULIMIT[..20]), gz(&ULIMIT[20..])].concat(), &format!("two.gz {TOLD}"));
    let inner = tar_of(&[("x/u", ULIMIT)]);
    let outer = zst(&tar_of(&[("logs/in.tar.gz", &gz(&inner)), ("u.gz", &gz(ULIMIT))]));
    check("o.tar.zst", &outer, &format!("o.tar.zst!logs/in.tar.gz!x/u {TOLD}\no.tar.zst!u.gz {TOLD}"));
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn bz2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A zip of these files, deflated or stored; `is_streamed` leaves sizes to descriptors.
fn zip_of(files: &[(&str, &[u8])], is_deflated: bool, is_streamed: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in files {
        let mut packed = bytes.to_vec();
        if is_deflated {
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).unwrap();
            packed = encoder.finish().unwrap();
        }
        let sizes = [packed.len() as u32, bytes.len() as u32];
        out.extend_from_slice(b"PK\x03\x04\x14\x00");
        out.extend_from_slice(&[if is_streamed { 8 } else { 0 }, 0, if is_deflated { 8 } else { 0 }, 0]);
        out.extend_from_slice(&[0; 8]);
        for size in sizes {
            out.extend_from_slice(&(if is_streamed { 0 } else { size }).to_le_bytes());
        }
        out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&packed);
        if is_streamed {
            out.extend_from_slice(b"PK\x07\x08\0\0\0\0");
            for size in sizes {
                out.extend_from_slice(&size.to_le_bytes());
            }
        }
    }
    out.extend_from_slice(b"PK\x01\x02");
    out
}

#[test]
fn xz_bzip2_and_zip_open_like_gz() {
    check("a.xz", &xz(ULIMIT), &format!("a.xz {TOLD}"));
    check("a.bz2", &bz2(ULIMIT), &format!("a.bz2 {TOLD}"));
    check("two.bz2", &[bz2(&ULIMIT[..20]), bz2(&ULIMIT[20..])].concat(), &format!("two.bz2 {TOLD}"));
    check("t.tar.xz", &xz(&tar_of(&[("x/u", ULIMIT)])), &format!("t.tar.xz!x/u {TOLD}"));
    for (is_deflated, is_streamed) in [(false, false), (true, false), (true, true)] {
        let zip = zip_of(&[("x/", b""), ("x/u", ULIMIT), ("v", ULIMIT)], is_deflated, is_streamed);
        // The entry of a folder has no content of its own.
        let zip = if is_streamed { zip_of(&[("x/u", ULIMIT), ("v", ULIMIT)], true, true) } else { zip };
        if !is_deflated || is_streamed {
            check("z.zip", &zip, &format!("z.zip!x/u {TOLD}\nz.zip!v {TOLD}"));
        }
    }
    let gz_in_zip = zip_of(&[("../u.gz", &gz(ULIMIT))], false, false);
    let told = tell(&read("z.zip", &gz_in_zip));
    assert!(told.starts_with(&format!("z.zip!u.gz {TOLD}")), "{told}");
    let saved = zip_of(&[("archive/data.pkl", b"\x80\x02}")], false, false);
    assert!(tell(&read("c.pt", &saved)).contains("a file of torch.save: not read"));
}

#[test]
fn packed_files_that_are_cut_or_too_large_say_so() {
    let text = "open files                          (-n) 1024\nstep 1 loss 2\n".repeat(20_000);
    let zip = zip_of(&[("u", text.as_bytes())], true, false);
    for packed in [xz(text.as_bytes()), bz2(text.as_bytes()), zip] {
        for n in [packed.len() / 2, packed.len() - 5] {
            let extract = read("cut", &packed[..n]);
            let told = tell(&extract);
            let is_told = ["note Truncated", "note Unreadable", "OpenFiles"].iter().any(|w| told.contains(w));
            assert!(is_told, "{told}");
        }
        let limits = Limits { max_expanded_bytes: 10_000, ..Limits::default() };
        let extract = crate::read("bomb", &mut &*packed, &mut Scratch::default(), &limits);
        let told = tell(&extract);
        assert!(told.contains("it unpacks to more than 10000 bytes"), "{told}");
    }
}

#[test]
fn utf16_is_decoded() {
    let text: Vec<u16> = String::from_utf8_lossy(ULIMIT)
        .replace("1024", "1024 \u{1f600}")
        .replace(" \u{1f600}", "")
        .encode_utf16()
        .collect();
    let little: Vec<u8> = [0xff, 0xfe].into_iter().chain(text.iter().flat_map(|u| u.to_le_bytes())).collect();
    let big: Vec<u8> = [0xfe, 0xff].into_iter().chain(text.iter().flat_map(|u| u.to_be_bytes())).collect();
    check("le", &little, &format!("le {TOLD}"));
    check("le without a mark", &little[2..], &format!("le without a mark {TOLD}"));
    check("be without a mark", &big[2..], &format!("be without a mark {TOLD}"));
    check("be", &big, &format!("be {TOLD}"));
    check("mark", &[b"\xef\xbb\xbf", ULIMIT].concat(), &format!("mark {TOLD}"));
    // A surrogate pair may be torn between two reads.
    let pairs: String = "\u{1f600}".repeat(20_000);
    let bytes: Vec<u8> =
        std::iter::once(0xfeff).chain(pairs.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let mut decoded = String::new();
    super::utf16::Utf8From::new(OneByte(&bytes), false).read_to_string(&mut decoded).unwrap();
    assert_eq!(decoded, pairs);
}

/// Hands out few bytes at a time.
struct OneByte<'a>(&'a [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min(3);
        self.0.read(&mut buf[..n])
    }
}

#[test]
fn what_cannot_be_read_is_told() {
    check("e", b"", "e [text] 0 B\n  note Empty line 0: the file is empty");
    check(
        "b",
        &[0, 1, 2, 3, 0xfe, 0xff, 7, 8, 9],
        "b [unknown] 0 B\n  note Unrecognised line 0: binary content that no reader knows; it begins with 00 01 02 03 fe ff 07 08 (........)",
    );
    check(
        "z.zip",
        b"PK\x03\x04rest",
        "z.zip [] 0 B\n  note Truncated line 0: the archive cannot be read further (failed to fill whole buffer); 0 files before were read",
    );
    check(
        "t.json",
        b"{\"schemaVersion\": 1, \"deviceProperties\": [",
        "t.json [timeline] 42 B\n  note Truncated line 0: the trace ends within an event: the program was stopped while it wrote",
    );
    check(
        "g.gz",
        &gz(ULIMIT)[..8],
        "g.gz [unknown] 0 B\n  note Unreadable line 0: could not be read (unexpected end of file)",
    );
    let mut failing = OneByte(b"").chain(Failing);
    let extract = crate::read("io", &mut failing, &mut Scratch::default(), &Limits::default());
    assert_eq!(
        tell(&extract),
        "io [unknown] 0 B\n  note Unreadable line 0: could not be read (disk on fire)\n"
    );
    let mut failing = ULIMIT.chain(Failing);
    let extract = crate::read("io", &mut failing, &mut Scratch::default(), &Limits::default());
    let note = "note Truncated line 0: reading stopped here (disk on fire); what came before was read";
    assert!(tell(&extract).contains("OpenFiles"), "{}", tell(&extract));
    assert!(tell(&extract).contains("disk on fire"), "{note}\n{}", tell(&extract));
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("disk on fire"))
    }
}

#[test]
fn names_that_lead_out_are_escaped_and_links_left_out() {
    let long = format!("{}/deep.txt", "d".repeat(150));
    let mut builder = tar::Builder::new(Vec::new());
    let mut link = tar::Header::new_gnu();
    link.set_entry_type(tar::EntryType::Symlink);
    link.set_size(0);
    builder.append_link(&mut link, "to-shadow", "/etc/shadow").unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_size(ULIMIT.len() as u64);
    builder.append_data(&mut header, &long, ULIMIT).unwrap();
    let evil = tar_of(&[("../../etc/passwd", ULIMIT), ("/root/x\ty", ULIMIT), ("..", ULIMIT)]);
    // The first archive without its end marks, then the second.
    let both = [&builder.into_inner().unwrap()[..512 * 5], &evil].concat();
    check(
        "e.tar",
        &both,
        &format!(
            "e.tar!{long} {TOLD}\ne.tar!etc/passwd {TOLD}\ne.tar!root/x\u{fffd}y {TOLD}\ne.tar!(no name) {TOLD}\ne.tar [] 0 B\n  \
             note Remark line 0: 1 links, devices or other special entries were left out (the first is to-shadow)\n  \
             note Remark line 0: 3 names point outside the archive or contain control characters (the first is ../../etc/passwd); \
             they are shown escaped, nothing is unpacked"
        ),
    );
}

#[test]
fn caps_hold_and_are_told() {
    let nested = (0..6).fold(ULIMIT.to_vec(), |bytes, _| gz(&bytes));
    check(
        "n",
        &nested,
        "n [unknown] 0 B\n  note LimitReached line 0: packed more than 4 layers deep; unpack it by hand",
    );

    let limits = Limits { max_expanded_bytes: 1 << 20, max_members: 2, ..Limits::default() };
    let told = |bytes: &[u8]| tell(&crate::read("b", &mut &*bytes, &mut Scratch::default(), &limits));
    let bomb = gz(&vec![b'\n'; 50 << 20]);
    assert!(bomb.len() < 300 << 10);
    assert_eq!(
        told(&bomb),
        "b [text] 1048576 B\n  note LimitReached line 1048576: reading stopped here (it unpacks to more than 1048576 bytes); what came before was read\n"
    );
    let many = tar_of(&[("1", ULIMIT), ("2", ULIMIT), ("3", ULIMIT)]);
    assert_eq!(
        told(&many),
        format!(
            "b!1 {TOLD}\nb!2 {TOLD}\nb [] 0 B\n  note LimitReached line 0: more than 2 files in this archive; the rest was left out\n"
        )
    );
    // One budget for all members together.
    let two_bombs = tar_of(&[("1.gz", &bomb), ("2.gz", &bomb)]);
    assert_eq!(told(&two_bombs).matches("it unpacks to more than").count(), 2);
    assert!(told(&two_bombs).contains("b!2.gz [unknown] 0 B\n  note LimitReached"), "{}", told(&two_bombs));
}

#[test]
fn a_long_line_is_passed_over_in_bounded_memory() {
    let mut input = io::repeat(b'x').take(50 << 20).chain(&b"\n"[..]).chain(ULIMIT);
    let mut scratch = Scratch::default();
    let extract = crate::read("long", &mut input, &mut scratch, &Limits::default());
    assert!(tell(&extract).contains("line 2: 2: OpenFiles"), "{}", tell(&extract));
    assert!(tell(&extract).contains("LimitReached line 1"), "{}", tell(&extract));
    assert!(scratch.text.block.capacity() < 8 << 20, "{}", scratch.text.block.capacity());
}

/// logrotate's copytruncate under a writer that does not append: NULs up to where it was.
#[test]
fn a_hole_in_a_log_is_passed_over() {
    for n_hole in [1, 900, 4_096, 70_000, 1 << 20, (3 << 20) + 17] {
        let hole = vec![0; n_hole];
        let leading = [&hole, ULIMIT].concat();
        for packed in [leading.clone(), zst(&leading), gz(&leading)] {
            let extract = read("log", &packed);
            assert!(tell(&extract).ends_with("line 1: 1: OpenFiles Some(1024)/None\n"), "{}", tell(&extract));
            let cite = extract.observations[0].cite;
            assert_eq!((cite.start, cite.end), (n_hole as u64, leading.len() as u64 - 1), "{n_hole}");
            assert_eq!(extract.sources[0].size_bytes, leading.len() as u64);
        }
        let between = [b"a line\n".as_slice(), &hole, ULIMIT].concat();
        let extract = read("log", &between);
        assert!(tell(&extract).ends_with("line 2: 2: OpenFiles Some(1024)/None\n"), "{}", tell(&extract));
        assert_eq!(extract.observations[0].cite.start, 7 + n_hole as u64);
    }
    let mut input = io::repeat(0).take(300 << 20).chain(ULIMIT);
    let mut scratch = Scratch::default();
    let extract = crate::read("long", &mut input, &mut scratch, &Limits::default());
    assert!(tell(&extract).contains("line 1: 1: OpenFiles"), "{}", tell(&extract));
    assert!(scratch.text.block.capacity() < 8 << 20, "{}", scratch.text.block.capacity());
    // What else begins with NULs is no log.
    for bytes in [vec![0; 5_000], [vec![0; 40], (0..200_u8).collect()].concat()] {
        assert!(
            tell(&read("x", &bytes)).contains("it begins with 00 00 00 00"),
            "{}",
            tell(&read("x", &bytes))
        );
    }
}

#[test]
fn a_cut_archive_gives_what_came_before_the_cut() {
    // A gzip that is cut inside its second block of output.
    let mut text = ULIMIT.to_vec();
    (0..200_000).for_each(|n| writeln!(text, "{n} is a number").unwrap());
    let packed = gz(&text);
    let told = tell(&read("c.gz", &packed[..packed.len() / 2]));
    assert!(told.contains("OpenFiles") && told.contains("Truncated"), "{told}");
    // A tar that ends inside a member, and between two.
    let tape = tar_of(&[("1", ULIMIT), ("2", ULIMIT)]);
    let told = tell(&read("c.tar", &tape[..512 + 20]));
    assert!(told.contains("the archive ends 26 bytes before the end of this file"), "{told}");
    let told = tell(&read("c.tar", &tape[..1024 + 100]));
    assert!(told.contains("c.tar!1 [limits]") && told.contains("cannot be read further"), "{told}");
}

/// Small recorded files of every kind that is read here, as they are and packed.
fn samples() -> Vec<Vec<u8>> {
    let small = |name: &str| {
        ["ras", "stack_", "ps.txt", "nvidia-smi.txt", "ulimit.txt", "limits.txt"]
            .iter()
            .any(|n| name.starts_with(n))
    };
    let files: Vec<(String, Vec<u8>)> = recordings(small).into_iter().step_by(5).collect();
    let members: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let tape = tar_of(&members);
    let mut samples = vec![gz(&tape), zst(&tape), tape.clone()];
    samples.extend(files.into_iter().map(|(_, bytes)| bytes));
    samples
}

/// The output without notes, sizes and what a cut may leave open: the lines of a prefix must begin those of the whole.
fn observed(bytes: &[u8]) -> usize {
    read("x", bytes).observations.len()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let extract = read("x", &bytes);
        prop_assert!(!extract.sources.is_empty());
    }

    #[test]
    fn bytes_after_a_magic_never_panic(
        magic in prop::sample::select(vec![&b"\x1f\x8b\x08\0"[..], b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"{\"", b"[{", b"(dp0\n"]),
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
    ) {
        let extract = read("x", &[magic, &bytes].concat());
        prop_assert!(!extract.sources.is_empty());
    }

    #[test]
    fn shuffled_pieces_of_recordings_never_panic(picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 1..400_usize), 1..40)) {
        let samples = samples();
        let mut mixed = Vec::new();
        for (which, start, length) in picks {
            let sample = which.get(&samples);
            let start = start.index(sample.len());
            mixed.extend_from_slice(&sample[start..sample.len().min(start + length)]);
        }
        prop_assert!(!read("x", &mixed).sources.is_empty());
    }
}

#[test]
fn a_cut_at_any_byte_is_read_up_to_it() {
    for sample in samples() {
        let whole = observed(&sample);
        let step = (sample.len() / 150).max(1);
        let mut before = 0;
        for cut in (0..sample.len()).step_by(step) {
            let n = observed(&sample[..cut]);
            assert!(n <= whole, "{n} of {whole} observations after {cut} of {} bytes", sample.len());
            // What was seen is not lost by seeing more, but for the last, which may still be judged differently.
            assert!(
                n + 1 >= before,
                "{before} observations became {n} after {cut} of {} bytes",
                sample.len()
            );
            before = n;
        }
    }
}
