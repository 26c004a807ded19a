//! A frame whose pointer is not known, found by what calls tell: where the function's beginning says that its frame is,
//! or where a return address is right behind a call of that very function. x86-64 alone.

use gimli::Register;

use super::memory::{Memory, i32_at};
use super::modules::Modules;

const FRAME_POINTER: Register = Register(6);
/// Longest frame that is looked through for its end, bytes.
const MAX_FRAME: usize = 64 << 10;
/// Bytes of a function that are looked at for its beginning: endbr64, seven pushes, one subtraction, moves between them.
const BEGINNING: usize = 64;
/// Bytes of a function that are looked at for a jump to another one at its end.
const WRAPPER: usize = 96;

/// The end of the frame of the function that begins there (its CFA), which is at an offset from a register that is not
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
        && let Some(Size { bytes, is_all }) = size_told_by(&memory.array::<BEGINNING>(beginning)?)
    {
        let frame = stack.wrapping_add(bytes + 16);
        let is_call_of_it = |code: u64| match called_before(code, memory) {
            // One that ends by jumping here leaves no frame, and may itself be jumped to.
            Called::This(by) => is_all || leads_to(by, beginning, memory),
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
            && leads_to(by, beginning, memory)
        {
            return Some(at + 8);
        }
    }
    None
}

/// Bytes below the frame pointer once a function of the usual form has made its frame: `push %rbp; mov %rsp,%rbp`, more
/// pushes, `sub $N,%rsp`, and between them what compilers put there early.
fn size_told_by(code: &[u8]) -> Option<Size> {
    let mut code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code).strip_prefix(&[0x55])?;
    let mut size = None;
    loop {
        let pushed = match code {
            [0x48, 0x89, 0xe5, rest @ ..] if size.is_none() => {
                code = rest;
                size = Some(0);
                continue;
            }
            [0x41, 0x54..=0x57, rest @ ..] | [0x53, rest @ ..] if size.is_some() => rest,
            [0x48, 0x83, 0xec, n, ..] => {
                let bytes = size? + u64::try_from(i8::from_ne_bytes([*n])).ok()?;
                return Some(Size { bytes, is_all: true });
            }
            [0x48, 0x81, 0xec, ..] => {
                return Some(Size { bytes: size? + u64::try_from(i32_at(code, 3)?).ok()?, is_all: true });
            }
            _ => match plain(code).and_then(|n| code.get(n..)) {
                Some(rest) => {
                    code = rest;
                    continue;
                }
                None => return size.filter(|n| *n > 0).map(|bytes| Size { bytes, is_all: false }),
            },
        };
        code = pushed;
        size = size.map(|n| n + 8);
    }
}

/// Length of an instruction that computes or moves and neither touches the stack pointer nor branches; none for others.
/// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2.
fn plain(code: &[u8]) -> Option<usize> {
    let (rex, n) = match code.first()? {
        prefix @ 0x40..=0x4f => (*prefix, 1),
        _ => (0, 0),
    };
    let opcode = *code.get(n)?;
    let immediate = match opcode {
        // A constant into a register; the stack pointer is number 4.
        0xb8..=0xbf if opcode & 7 != 4 || rex & 1 != 0 => return Some(n + if rex & 8 == 0 { 5 } else { 9 }),
        // Two operands: add, or, and, sub, xor, cmp, test, mov, lea.
        0x01 | 0x03 | 0x09 | 0x0b | 0x21 | 0x23 | 0x29 | 0x2b | 0x31 | 0x33 | 0x39 | 0x3b | 0x85 | 0x89
        | 0x8b | 0x8d => 0,
        // The same with a constant of one byte, of four.
        0x83 | 0xc6 => 1,
        0x81 | 0xc7 => 4,
        _ => return None,
    };
    let operands = *code.get(n + 1)?;
    let (mode, register, place) = (operands >> 6, operands >> 3 & 7, operands & 7);
    // Into a register: of the first operand, or for three of them of the second.
    let into_second = matches!(opcode, 0x03 | 0x0b | 0x23 | 0x2b | 0x33 | 0x8b | 0x8d);
    let writes_stack =
        if into_second { register == 4 && rex & 4 == 0 } else { mode == 3 && place == 4 && rex & 1 == 0 };
    if writes_stack {
        return None;
    }
    let has_index = mode != 3 && place == 4;
    let offset = match mode {
        0 if place == 5 || has_index && code.get(n + 2)? & 7 == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(n + 2 + usize::from(has_index) + offset + immediate)
}

/// What is below a frame pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    bytes: u64,
    /// Room for what is local has been made: nothing more comes.
    is_all: bool,
}

/// Whether a call goes there in the end.
fn leads_to(called: u64, beginning: u64, memory: &Memory) -> bool {
    is_same(called, beginning, memory) || jumps_to(called, beginning, memory)
}

/// Whether a function ends by jumping to another one.
fn jumps_to(function: u64, beginning: u64, memory: &Memory) -> bool {
    let Some(code) = memory.array::<WRAPPER>(function) else { return false };
    (0_u64..).zip(code.windows(5)).any(|(at, jump)| {
        let (length, by) = match jump {
            [0xe9, ..] => (5, i32_at(jump, 1).map(i64::from)),
            [0xeb, by, ..] => (2, Some(i64::from(i8::from_ne_bytes([*by])))),
            _ => return false,
        };
        by.is_some_and(|by| (function + at + length).wrapping_add_signed(by) == beginning)
    })
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
    fn lengths_of_plain_instructions() {
        for (length, code) in [
            (3, &[0x48, 0x89, 0xe5, 0x90][..]),
            // mov %fs:… has a prefix that is not known here; mov 0x8(%rsp),%rax; lea 0x1392ee(%rip),%rdi
            (5, &[0x48, 0x8b, 0x44, 0x24, 0x08]),
            (7, &[0x48, 0x8d, 0x3d, 0xee, 0x92, 0x13, 0]),
            // movq $0,-0x38(%rbp); movabs $…,%rax; mov 0x0(,%rax,8),%rdx
            (8, &[0x48, 0xc7, 0x45, 0xc8, 0, 0, 0, 0]),
            (10, &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8]),
            (8, &[0x48, 0x8b, 0x14, 0xc5, 0, 0, 0, 0]),
        ] {
            assert_eq!(plain(code), Some(length), "{code:x?}");
        }
        // mov %rax,%rsp; lea -8(%rbp),%rsp; and $-16,%rsp; jne; call; nothing.
        let others: [&[u8]; 6] = [
            &[0x48, 0x89, 0xc4],
            &[0x48, 0x8d, 0x65, 0xf8],
            &[0x48, 0x83, 0xe4, 0xf0],
            &[0x75, 0x08],
            &[0xe8, 0, 0, 0, 0],
            &[],
        ];
        for code in others {
            assert_eq!(plain(code), None, "{code:x?}");
        }
    }

    #[test]
    fn the_size_of_a_frame_by_its_beginning() {
        // push %rbp; mov %rsp,%rbp; push %r12; push %rbx; sub $0x20,%rsp
        let code = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 0x20, 0x90];
        assert_eq!(size_told_by(&code), Some(Size { bytes: 48, is_all: true }));
        // endbr64 before, and a large frame.
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 0x10, 0, 0];
        assert_eq!(size_told_by(&code), Some(Size { bytes: 4096, is_all: true }));
        // glibc of Ubuntu 24.04, where a thread waits for a lock: push %r13; push %r12; mov %esi,%r12d; push %rbx.
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0x41, 0x55, 0x41, 0x54, 0x41, 0x89, 0xf4, 0x53,
            0x48, 0x83, 0xec, 0x28, 0x48, 0x85, 0xc9,
        ];
        assert_eq!(size_told_by(&code), Some(Size { bytes: 64, is_all: true }));
        // As GCC 12 mixes it: push %rbp; mov $1,%edx; mov %rsp,%rbp; push %rbx; mov; lea -0x50(%rbp),%rsi; and $7,%ebx.
        let code = [
            0x55, 0xba, 1, 0, 0, 0, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x89, 0xf3, 0x48, 0x8d, 0x75, 0xb0, 0x83,
            0xe3, 7, 0x48, 0x83, 0xec, 0x48, 0xe8,
        ];
        assert_eq!(size_told_by(&code), Some(Size { bytes: 80, is_all: true }));
        // What moves the stack pointer ends it: push %rbx; mov %rax,%rsp.
        let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x89, 0xc4, 0x48, 0x83, 0xec, 8];
        assert_eq!(size_told_by(&code), Some(Size { bytes: 8, is_all: false }));
        // No frame pointer.
        assert_eq!(size_told_by(&[0x53, 0x48, 0x83, 0xec, 0x20]), None);
    }
}
