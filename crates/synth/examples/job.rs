//! Writes the evidence of one simulated job into a folder: `job SEED FOLDER [--fault NAME] [--max-ranks N]`.

use ringleader_synth::{Fault, Options, job};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let seed: u64 = args.next().ok_or("job SEED FOLDER [--fault NAME] [--max-ranks N]")?.parse()?;
    let folder = std::path::PathBuf::from(args.next().ok_or("no folder given")?);
    let mut options = Options::default();
    while let Some(flag) = args.next() {
        let value = args.next().ok_or("a value is missing")?;
        match flag.as_str() {
            "--fault" => options.fault = Some(Fault::from_name(&value).ok_or("no such fault")?),
            "--max-ranks" => options.max_ranks = value.parse()?,
            _ => return Err(format!("unknown flag {flag}").into()),
        }
    }
    let (truth, evidence) = job(seed, &options);
    std::fs::create_dir_all(&folder)?;
    for (name, bytes) in &evidence.files {
        std::fs::write(folder.join(name), bytes)?;
    }
    std::io::Write::write_all(&mut std::io::stdout(), format!("{truth}\n").as_bytes())?;
    Ok(())
}
