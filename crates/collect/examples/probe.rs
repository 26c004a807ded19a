//! One probe by itself: `cargo run -p ringleader-collect --example probe -- NAME [REQUEST.json]`.
#![expect(clippy::print_stderr, reason = "an example talks to its terminal")]

use std::io;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some(probe) = ringleader_collect::by_name(&name) else {
        eprintln!("no probe is called '{name}'");
        return Ok(());
    };
    let request = args.next().map_or(Ok(b"{}".to_vec()), std::fs::read)?;
    ringleader_collect::answer(probe, &mut request.as_slice(), &mut io::stdout().lock())
}
