//! Prints what a ring says: `cargo run -p ringleader-ring --example dump -- /dev/shm/ringleader/ring-*`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

fn main() {
    for path in std::env::args().skip(1) {
        match std::fs::read(&path).map(|bytes| ringleader_ring::State::parse(&bytes)) {
            Ok(Ok(state)) => println!("{path}: {state:#?}"),
            Ok(Err(why)) => eprintln!("{path}: {why}"),
            Err(why) => eprintln!("{path}: {why}"),
        }
    }
}
