//! Names of functions, from `.symtab` and `.dynsym` of the files. All addresses of a file are looked up in one pass that
//! holds a piece of the table at a time: some libraries have a million symbols.
//!
//! Not by `object` or `goblin`: they want the file in memory or mapped, and a mapped file that is cut meanwhile ends us with SIGBUS.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};

use super::memory::{Memory, u16_at, u32_at, u64_at};
use super::modules::Module;

/// Symbols read at once: 24 bytes each.
const AT_ONCE: u64 = 32_768;
const SYMBOL: u64 = 24;
/// Sections of a file.
const MAX_SECTIONS: u64 = 65_536;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
/// Longest name that is read, bytes: those of C++ templates are long.
const MAX_MANGLED: usize = 4_096;
/// Longest name that is shown, characters.
const MAX_SHOWN: usize = 200;

/// Names of the functions at these addresses of the file, in their order. None where no symbol holds it.
pub(super) fn names(
    of: &Path,
    module: &Module,
    memory: &Memory,
    addresses: &[u64],
    until: Instant,
) -> Vec<Option<String>> {
    let mut found: Vec<Option<FoundSymbol>> = addresses.iter().map(|_| None).collect();
    if let Some(file) = open(of, module, memory) {
        // Cut short, the names that were found stay.
        let _ = look_up(&file, addresses, &mut found, until);
    }
    found.into_iter().map(|found| Some(shown(&found?.name))).collect()
}

/// A symbol that holds an address.
struct FoundSymbol {
    value: u64,
    name: String,
}

/// The file of a module, if it still is the one that is mapped.
fn open(of: &Path, module: &Module, memory: &Memory) -> Option<File> {
    let (start, end) = module.header;
    let path = module.path.strip_prefix('/')?;
    // The first is the mapped file itself, even one that was deleted since; it takes more rights than the others.
    let places: [PathBuf; 3] = [
        of.join(format!("map_files/{start:x}-{end:x}")),
        of.join("root").join(path),
        Path::new("/").join(path),
    ];
    places.iter().find_map(|place| {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(place, flags, Mode::empty()).ok()?);
        let is_regular = file.metadata().ok()?.is_file();
        // Numbers of devices and files do not compare over an overlay: the headers do.
        let n = usize::try_from((end - start).min(4096)).ok()?;
        let mut head = vec![0; n];
        (is_regular && file.read_exact_at(&mut head, 0).is_ok() && memory.bytes(start, n)? == head)
            .then_some(file)
    })
}

fn look_up(file: &File, addresses: &[u64], found: &mut [Option<FoundSymbol>], until: Instant) -> Option<()> {
    let bytes = |at: u64, n: usize| {
        let mut bytes = vec![0; n];
        file.read_exact_at(&mut bytes, at).ok().map(|()| bytes)
    };
    let head = bytes(0, 64)?;
    let (at, size) = (u64_at(&head, 40)?, u64::from(u16_at(&head, 58)?).max(64));
    let mut n = u64::from(u16_at(&head, 60)?);
    if n == 0 && at > 0 {
        // More sections than 16 bits count: the first one says.
        n = u64_at(&bytes(at, 64)?, 32)?;
    }
    let section = |index: u64| {
        let header = bytes(at.checked_add(index.checked_mul(size)?)?, 64)?;
        Some((u32_at(&header, 4)?, u64_at(&header, 24)?, u64_at(&header, 32)?, u32_at(&header, 40)?))
    };
    // Symbols of both tables are at the same addresses; the first holds the second, where it was not stripped.
    for wanted in [SHT_SYMTAB, SHT_DYNSYM] {
        for index in 0..n.min(MAX_SECTIONS) {
            let Some((kind, from, bytes_in, strings)) = section(index) else { break };
            if kind != wanted || found.iter().all(Option::is_some) {
                continue;
            }
            let (_, strings_at, strings_size, _) = section(u64::from(strings))?;
            let name_at = |offset: u64| {
                let room = strings_size.checked_sub(offset)?.min(MAX_MANGLED as u64);
                let bytes = bytes(strings_at.checked_add(offset)?, usize::try_from(room).ok()?)?;
                let name = bytes.split(|byte| *byte == 0).next()?;
                Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty())
            };
            for first in (0..bytes_in / SYMBOL).step_by(AT_ONCE as usize) {
                if Instant::now() > until {
                    return None;
                }
                let n = (bytes_in / SYMBOL - first).min(AT_ONCE) * SYMBOL;
                let symbols = bytes(from.checked_add(first * SYMBOL)?, usize::try_from(n).ok()?)?;
                for symbol in symbols.chunks_exact(SYMBOL as usize) {
                    let kind = symbol.get(4)? & 0xf;
                    let (section, value, size) =
                        (u16_at(symbol, 6)?, u64_at(symbol, 8)?, u64_at(symbol, 16)?);
                    if !matches!(kind, STT_FUNC | STT_GNU_IFUNC) || section == 0 || size == 0 {
                        continue;
                    }
                    let holds = |address: u64| address.checked_sub(value).is_some_and(|into| into < size);
                    for (place, _) in found.iter_mut().zip(addresses).filter(|(_, address)| holds(**address))
                    {
                        if place.as_ref().is_some_and(|found| found.value > value) {
                            continue;
                        }
                        let Some(name) = name_at(u64::from(u32_at(symbol, 0)?)) else { continue };
                        let is_better =
                            |old: &FoundSymbol| old.value < value || rank(&name) < rank(&old.name);
                        if place.as_ref().is_none_or(is_better) {
                            *place = Some(FoundSymbol { value, name });
                        }
                    }
                }
            }
        }
    }
    Some(())
}

/// Of several names of one function, that which programs call it by: `poll` of `__poll`, `poll` and `__GI___poll`.
fn rank(name: &str) -> (usize, usize, &str) {
    (name.bytes().take_while(|byte| *byte == b'_').count(), name.len(), name)
}

/// As people read it. The name may be anybody's bytes.
fn shown(name: &str) -> String {
    // `pthread_cond_wait@@GLIBC_2.3.2`
    let bare = name.split('@').next().unwrap_or(name);
    let plain = || {
        let symbol = cpp_demangle::Symbol::new(bare.as_bytes()).ok()?;
        let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
        symbol.demangle_with_options(&options).ok()
    };
    let name = if bare.starts_with("_Z") { plain() } else { None };
    let name = name.unwrap_or_else(|| bare.to_owned());
    let mut shown: String =
        name.chars().map(|c| if c.is_control() { '?' } else { c }).take(MAX_SHOWN).collect();
    if shown.len() < name.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_read_them() {
        assert_eq!(shown("pthread_cond_wait@@GLIBC_2.3.2"), "pthread_cond_wait");
        assert_eq!(
            shown("_ZN4c10d16ProcessGroupNCCL8WorkNCCL4waitENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE"),
            "c10d::ProcessGroupNCCL::WorkNCCL::wait"
        );
        assert_eq!(shown("_Znot\nmangled"), "_Znot?mangled");
        assert!(rank("poll") < rank("__poll") && rank("__poll") < rank("___poll"));
    }
}
