//! What the library asks of the process that loads it, whose container may be older than any of ours.

use goblin::elf::Elf;

/// NCCL itself needs glibc, pthread, dl, rt and the compiler's runtime; the library needs no more. No function that it calls is
/// younger than glibc 2.34. `cargo xtask dist` links it for 2.17, and `audit` holds it to that.
#[test]
fn it_needs_only_what_nccl_needs() {
    let path = crate::loaded::library();
    let bytes = std::fs::read(&path).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let known =
        ["libc.so.", "libm.so.", "libdl.so.", "libpthread.so.", "librt.so.", "libgcc_s.so.", "ld-linux-"];
    for library in &elf.libraries {
        assert!(known.iter().any(|name| library.starts_with(name)), "{} needs {library}", path.display());
    }
    let mut newest = (0, 0);
    for library in elf.verneed.iter().flatten() {
        for symbol in &library {
            let name = elf.dynstrtab.get_at(symbol.vna_name).unwrap();
            if let Some(version) = name.strip_prefix("GLIBC_") {
                let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap());
                newest = newest.max((numbers.next().unwrap(), numbers.next().unwrap()));
            }
        }
    }
    assert!(newest > (2, 0) && newest <= (2, 34), "{} needs glibc {newest:?}", path.display());
    // And nothing of it is in the way of the process: only NCCL's tables are exported.
    let exported: Vec<&str> = elf
        .dynsyms
        .iter()
        .filter(|symbol| symbol.st_shndx != 0 && !symbol.is_import())
        .filter_map(|symbol| elf.dynstrtab.get_at(symbol.st_name))
        .collect();
    assert!(
        exported.len() >= 7 && exported.iter().all(|name| name.starts_with("ncclProfiler_v")),
        "{exported:?}"
    );
}
