//! Time of one reading of a live ring, milliseconds: `cargo bench -p ringleader-ring`.
#![cfg_attr(not(target_os = "linux"), allow(unused_imports))]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench is run by hand and prints its numbers"
)]

#[cfg(target_os = "linux")]
fn main() {
    use ringleader_ring::{CallDescriptor, Handle, NewComm, Reader, RingOptions, State, Writer};
    use std::time::Instant;

    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let options = RingOptions { directories: vec![dir.path().to_owned()], ..RingOptions::default() };
    let writer = Writer::create(&options).expect("a ring");
    let reader = Reader::open(writer.path()).expect("a reader");
    let new = NewComm { id: 1, sees_kernels: true, sees_channels: true, ..NewComm::default() };
    let told = CallDescriptor { channels: 1, ..CallDescriptor::default() };
    let comms: Vec<Handle> = (0..40).map(|_| writer.comm_begins(&new)).collect();
    let measure = |name: &str| {
        let mut times: Vec<(f64, f64)> = (0..50)
            .map(|_| {
                let began = Instant::now();
                let image = reader.image().expect("an image");
                let image_ms = began.elapsed().as_secs_f64() * 1e3;
                let state = State::parse(&image).expect("a state");
                std::hint::black_box(state);
                (image_ms, began.elapsed().as_secs_f64() * 1e3)
            })
            .collect();
        times.sort_by(|a, b| a.1.total_cmp(&b.1));
        println!("{name:<60} image {:.2} ms, with parsing {:.2} ms (median)", times[25].0, times[25].1);
    };
    measure("40 communicators, nothing in flight, an empty journal");
    for comm in comms.iter().cycle().take(20_000) {
        let op = writer.launch(*comm, Handle::NONE, Handle::NONE, &told);
        writer.handed_over(op);
        writer.kernel_stops(writer.kernel_starts(op, 0, 1));
    }
    measure("40 communicators, nothing in flight, a full journal");
    for comm in &comms {
        for _ in 0..5 {
            let op = writer.launch(*comm, Handle::NONE, Handle::NONE, &told);
            for channel in 0..4 {
                writer.proxy_starts(op, None, 1, channel, 10, true);
            }
        }
    }
    measure("200 operations and 800 proxy operations in flight");
    for comm in comms.iter().cycle().take(3_500) {
        writer.launch(*comm, Handle::NONE, Handle::NONE, &told);
    }
    measure("3700 operations in flight");
}

#[cfg(not(target_os = "linux"))]
fn main() {}
