//! A frame whose pointer is not known, found by what calls tell: where the function's beginning says that its frame is,
//! or where an address of return stands right behind a call of that very function. x86-64 alone.

use gimli::Register;

use super::memory::{Memory, i32_at};
use super::modules::Modules;

const FRAME_POINTER: Register = Register(6);
/// Longest frame that is looked through for its end, bytes.
const MAX_FRAME: usize = 64 << 10;
/// Bytes of a function that are looked at for its beginning: endbr64, seven pushes, one subtraction.
const BEGINNING: usize = 40;

/// The end of the frame of the function that begins there (its CFA), which lies at an offset from a register that is not
/// known. `stack` is its stack pointer.
pub(super) fn frame_of(
    beginning: u64,
    stack: u64,
    register: Register,
    offset: i64,
    modules: &Modules,
    memory: &Memory,
) -> Option<u64> {
    if !cfg!(target_arch = "x86_64") || register != FRAME_POINTER {
        return None;
    }
    let return_at = |frame: u64| memory.word(frame.checked_sub(8)?).filter(|code| modules.is_code(*code));
    if offset == 16
        && let Some(size) = size_told_by(&memory.array::<BEGINNING>(beginning)?)
    {
        let frame = stack.wrapping_add(size + 16);
        let is_call_of_it = |code: u64| match called_before(code, memory) {
            Called::This(by) => is_same(by, beginning, memory),
            Called::Something => true,
            Called::Nothing => false,
        };
        if return_at(frame).is_some_and(is_call_of_it) {
            return Some(frame);
        }
    }
    // Frames end where 16 divides.
    let mut bytes = vec![0; MAX_FRAME];
    let first = (stack & !15) + 8;
    let n = memory.some(first, &mut bytes);
    let words = bytes.get(..n)?.chunks_exact(8).step_by(2).zip((first..).step_by(16));
    for (word, at) in words {
        let code = u64::from_le_bytes(word.try_into().ok()?);
        if at >= stack
            && modules.is_code(code)
            && let Called::This(by) = called_before(code, memory)
            && is_same(by, beginning, memory)
        {
            return Some(at + 8);
        }
    }
    None
}

/// Bytes below the frame pointer once a function of the usual form has made its frame: `push %rbp; mov %rsp,%rbp`, more
/// pushes, `sub $N,%rsp`.
fn size_told_by(code: &[u8]) -> Option<u64> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let mut code = code.strip_prefix(&[0x55, 0x48, 0x89, 0xe5])?;
    let mut size = 0;
    loop {
        code = match code {
            [0x41, 0x54..=0x57, rest @ ..] | [0x53, rest @ ..] => rest,
            [0x48, 0x83, 0xec, n, ..] => return Some(size + u64::try_from(i8::from_ne_bytes([*n])).ok()?),
            [0x48, 0x81, 0xec, ..] => return Some(size + u64::try_from(i32_at(code, 3)?).ok()?),
            _ => return (size > 0).then_some(size),
        };
        size += 8;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Called {
    /// The code there.
    This(u64),
    /// What a register or a table says.
    Something,
    /// There is no call.
    Nothing,
}

/// What the call instruction that ends at an address calls.
fn called_before(code: u64, memory: &Memory) -> Called {
    let before = || memory.array::<7>(code.checked_sub(7)?);
    let Some(bytes) = before() else { return Called::Nothing };
    let far = || Some(code.wrapping_add_signed(i64::from(i32_at(&bytes, 3)?)));
    match bytes {
        [_, _, 0xe8, ..] => far().map_or(Called::Nothing, Called::This),
        // Through a slot of the global offset table.
        [_, 0xff, 0x15, ..] => far().and_then(|slot| memory.word(slot)).map_or(Called::Nothing, Called::This),
        // Of two bytes, three, four, six and seven.
        [.., 0xff, 0xd0..=0xd7 | 0x10..=0x13 | 0x16 | 0x17]
        | [.., 0xff, 0x50..=0x53 | 0x55..=0x57 | 0x14, _]
        | [_, _, _, 0xff, 0x54, _, _]
        | [_, 0xff, 0x90..=0x93 | 0x95..=0x97, ..]
        | [0xff, 0x94, ..] => Called::Something,
        _ => Called::Nothing,
    }
}

/// Whether a call goes there: straight, or over a stub of the procedure linkage table.
fn is_same(called: u64, beginning: u64, memory: &Memory) -> bool {
    let over_stub = || {
        let bytes = memory.array::<16>(called)?;
        let n = if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) { 4 } else { 0 };
        let n = if bytes.get(n) == Some(&0xf2) { n + 1 } else { n };
        let jump = bytes.get(n..n + 6).filter(|jump| jump.starts_with(&[0xff, 0x25]))?;
        let slot = called.wrapping_add(n as u64 + 6).wrapping_add_signed(i64::from(i32_at(jump, 2)?));
        Some(memory.word(slot)? == beginning)
    };
    called == beginning || over_stub() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_frame_by_its_beginning() {
        // push %rbp; mov %rsp,%rbp; push %r12; push %rbx; sub $0x20,%rsp
        let code = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 0x20, 0x90];
        assert_eq!(size_told_by(&code), Some(48));
        // endbr64 before, and a large frame.
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 0x10, 0, 0];
        assert_eq!(size_told_by(&code), Some(4096));
        // No frame pointer.
        assert_eq!(size_told_by(&[0x53, 0x48, 0x83, 0xec, 0x20]), None);
    }
}
