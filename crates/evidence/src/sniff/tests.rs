#![expect(clippy::unwrap_used, reason = "tests")]
use super::{StreamForm, sniff};

fn check(head: &[u8], expected: StreamForm) {
    assert_eq!(sniff(head), expected, "{:?}", String::from_utf8_lossy(head));
}

#[test]
fn logs_that_begin_like_json_are_text() {
    check(b"[rank0]: Traceback", StreamForm::Text);
    check(b"[1,0]<stdout>: step 1", StreamForm::Text);
    check(b"[2026-11-20 08:21:32] vm:1:1 [0] NCCL INFO x", StreamForm::Text);
    check(b"[W1120 08:17:08.659 ProcessGroupNCCL.cpp:689] x", StreamForm::Text);
    check(b"[ConnectionRefusedError(111, 'Connection refused')]", StreamForm::Text);
    check(b"{'loss': 0.1}\n", StreamForm::Text);
    check(b"[0] NCCL INFO", StreamForm::Text);
}

#[test]
fn json_is_told_by_what_follows_the_bracket() {
    check(b"{\"a\": 1}", StreamForm::Json);
    check(b"  {\n  \"nccl_version\": 1", StreamForm::Json);
    check(b"[\n  {", StreamForm::Json);
    check(b"\xef\xbb\xbf{\"a\": 1}", StreamForm::Json);
    check(b"{\"schemaVersion\": 1, \"deviceProperties\": [", StreamForm::Timeline);
    check(b"{\"displayTimeUnit\": \"ms\", \"traceEvents\": [", StreamForm::Timeline);
}

#[test]
fn packed_and_binary_forms_are_told_by_magic() {
    check(b"", StreamForm::Empty);
    check(b"\x1f\x8b\x08", StreamForm::Gzip);
    check(b"\x28\xb5\x2f\xfd", StreamForm::Zstd);
    check(b"(dp worker started\n", StreamForm::Text);
    check(b"\xff\xfeh\0i\0", StreamForm::Utf16 { big_endian: false });
    check(b"PK\x03\x04", StreamForm::Zip);
    check(b"BZh91AY&SY", StreamForm::Bzip2);
    check(b"BZhang is a name\n", StreamForm::Text);
    check(b"\xfd7zXZ\x00", StreamForm::Xz);
    check(b"h\0e\0l\0l\0o\0 \0y\0o\0u\0\n\0", StreamForm::Utf16 { big_endian: false });
    check(b"\0h\0e\0l\0l\0o\0 \0y\0o\0u\0\n", StreamForm::Utf16 { big_endian: true });
    // Control characters of a terminal, a bell, a few NULs.
    check(b"\x1b[31mstep 3\x1b[0m\x07 ok\n", StreamForm::Text);
    check(b"rank 3: Ki\0lled by signal 9\x08\n", StreamForm::Text);
    check(b"\x00\x01\x02\x03 abc", StreamForm::Binary(None));
}

#[test]
fn a_log_with_a_hole_is_text() {
    let with_hole = |before: &str, after: &str| [before.as_bytes(), &[0; 900], after.as_bytes()].concat();
    check(&with_hole("step 1\n", "step 7\nstep 8\n"), StreamForm::Text);
    check(&with_hole("step 1\n", ""), StreamForm::Text);
    // A record with a name in a field of fixed width, and several such.
    check(&with_hole("MAGIC", ""), StreamForm::Binary(None));
    check(&with_hole("MAGIC\n", "\0\x01\x02\x03\x04"), StreamForm::Binary(None));
    check(&[with_hole("a\n", "b\n"), with_hole("c\n", "d\n")].concat(), StreamForm::Binary(None));
    // A hole at the beginning is passed over by who opens the file.
    check(&with_hole("", "step 1\n"), StreamForm::Binary(None));
}

#[test]
fn a_tar_without_magic_is_told_by_its_checksum() {
    let mut header = tar::Header::new_old();
    header.set_path("a.log").unwrap();
    header.set_size(0);
    header.set_cksum();
    check(header.as_bytes(), StreamForm::Tar);
    let mut broken = header.as_bytes().to_vec();
    broken[0] ^= 1;
    check(&broken, StreamForm::Binary(None));
}
