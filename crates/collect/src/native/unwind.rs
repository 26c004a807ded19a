//! From a thread's place in the kernel to the functions that led there, by the code's unwind tables.
//!
//! Of a blocked thread the kernel reports two registers: stack pointer and program counter. The others are unknown
//! until a function on the way is seen to have saved them. What would need an unknown one ends the stack, and says so;
//! but for a frame pointer that the function's own beginning and its caller's call instruction both tell.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EndianSlice, EvaluationResult, Expression, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindSection as _, Value,
};

use super::calls;
use super::memory::Memory;
use super::modules::{Modules, UnwindEntry};

/// Frames of one thread.
const MAX_FRAMES: usize = 192;
/// Steps of one expression; those of compilers have ten.
const MAX_STEPS: u32 = 256;
/// Registers that tables name: 17 of x86-64, 33 of AArch64.
const N_REGISTERS: usize = 34;

/// Numbers of registers, by the processor's own supplement to the ABI.
mod arch {
    #[cfg(target_arch = "aarch64")]
    pub(super) const STACK: u16 = 31;
    #[cfg(target_arch = "aarch64")]
    pub(super) const RETURN: u16 = 30;
    #[cfg(target_arch = "aarch64")]
    pub(super) const KEPT: &[u16] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
    #[cfg(not(target_arch = "aarch64"))]
    pub(super) const STACK: u16 = 7;
    #[cfg(not(target_arch = "aarch64"))]
    pub(super) const RETURN: u16 = 16;
    /// What a function hands back to its caller as it was.
    #[cfg(not(target_arch = "aarch64"))]
    pub(super) const KEPT: &[u16] = &[3, 6, 12, 13, 14, 15];

    /// Addresses of code on AArch64 may be signed in their upper bits.
    pub(super) fn plain(address: u64) -> u64 {
        if cfg!(target_arch = "aarch64") { address & 0x0000_ffff_ffff_ffff } else { address }
    }
}

/// The place of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodeAddress {
    /// Module, and the address in its file, within the instruction there.
    pub(super) at: Option<(usize, u64)>,
    /// Address in memory.
    pub(super) address: u64,
}

/// Why a stack ends before the thread's first function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnwindEnd {
    /// It does not: that was the first.
    Whole,
    /// Code of no file.
    NoFile,
    /// Code without a table.
    NoTable,
    /// A register would be needed that the kernel does not tell.
    Unknown(u16),
    /// The stack's memory cannot be read, or makes no sense.
    Broken,
    /// More frames than are shown.
    Many,
}

#[derive(Clone)]
struct Registers([Option<u64>; N_REGISTERS]);

impl Registers {
    fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied().flatten()
    }

    fn set(&mut self, number: u16, value: Option<u64>) {
        if let Some(place) = self.0.get_mut(usize::from(number)) {
            *place = value;
        }
    }
}

type Section<'e> = EhFrame<EndianSlice<'e, LittleEndian>>;

/// Frames from these two registers outwards, the innermost first.
pub(super) fn unwind(
    modules: &mut Modules,
    memory: &Memory,
    stack: u64,
    code: u64,
) -> (Vec<CodeAddress>, UnwindEnd) {
    let mut registers = Registers([None; N_REGISTERS]);
    registers.set(arch::STACK, Some(stack));
    let mut code = arch::plain(code);
    // The kernel's address is exact; one of return may be behind its function's end, if that never returns.
    let mut is_exact = true;
    let mut places = Vec::new();
    let mut context = UnwindContext::new();
    loop {
        if places.len() == MAX_FRAMES {
            return (places, UnwindEnd::Many);
        }
        let within = if is_exact { code } else { code - 1 };
        let module = modules.of(within, memory);
        let place = |m: usize| Some((m, within.wrapping_sub(modules.get(m)?.bias)));
        places.push(CodeAddress { at: module.and_then(place), address: code });
        let Some(module) = module else { return (places, UnwindEnd::NoFile) };
        let Some(entry) = modules.entry(module, within, memory) else { return (places, UnwindEnd::NoTable) };
        match step(&entry, within, &registers, &mut context, modules, memory) {
            Ok(Some(next)) => (registers, code, is_exact) = next,
            Ok(None) => return (places, UnwindEnd::Whole),
            Err(end) => return (places, end),
        }
    }
}

/// The caller: its registers, its return address, and whether it was interrupted there instead of making a call.
fn step(
    entry: &UnwindEntry,
    within: u64,
    registers: &Registers,
    context: &mut UnwindContext<usize>,
    modules: &Modules,
    memory: &Memory,
) -> Result<Option<(Registers, u64, bool)>, UnwindEnd> {
    let section: Section<'_> = EhFrame::new(&entry.bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(entry.base);
    let function = section
        .fde_from_offset(&bases, entry.at.into(), Section::cie_from_offset)
        .ok()
        .filter(|function| function.contains(within))
        .ok_or(UnwindEnd::NoTable)?;
    let row = function
        .unwind_info_for_address(&section, &bases, context, within)
        .map_err(|_| UnwindEnd::NoTable)?;
    let stack = registers.get(Register(arch::STACK)).ok_or(UnwindEnd::Broken)?;
    let is_signal = function.is_signal_trampoline();
    let mut known = registers.clone();
    let evaluate =
        |expression: &gimli::UnwindExpression<usize>, registers: &Registers, first: Option<u64>| {
            let expression = expression.get(&section).map_err(|_| UnwindEnd::Broken)?;
            value_of(expression, function.cie().encoding(), registers, first, memory)
        };
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            if let Some(value) = registers.get(*register) {
                value.wrapping_add_signed(*offset)
            } else {
                let beginning = function.initial_address();
                let frame = calls::frame_of(beginning, stack, *register, *offset, modules, memory)
                    .ok_or(UnwindEnd::Unknown(register.0))?;
                known.set(register.0, Some(frame.wrapping_add_signed(offset.wrapping_neg())));
                frame
            }
        }
        CfaRule::Expression(expression) => evaluate(expression, registers, None)?,
    };
    // The stack grows downwards. A signal may have been handled on a stack of its own.
    if frame < stack && !is_signal {
        return Err(UnwindEnd::Broken);
    }
    let mut caller = Registers([None; N_REGISTERS]);
    for kept in arch::KEPT {
        caller.set(*kept, known.get(Register(*kept)));
    }
    caller.set(arch::STACK, Some(frame));
    for (register, rule) in row.registers() {
        let at = |offset: i64| memory.word(frame.wrapping_add_signed(offset));
        let value = match rule {
            RegisterRule::SameValue => known.get(*register),
            RegisterRule::Offset(offset) => at(*offset),
            RegisterRule::ValOffset(offset) => Some(frame.wrapping_add_signed(*offset)),
            RegisterRule::Register(other) => known.get(*other),
            RegisterRule::Expression(expression) => {
                evaluate(expression, &known, Some(frame)).ok().and_then(|address| memory.word(address))
            }
            RegisterRule::ValExpression(expression) => evaluate(expression, &known, Some(frame)).ok(),
            RegisterRule::Constant(value) => Some(*value),
            _ => None,
        };
        caller.set(register.0, value);
    }
    let back = function.cie().return_address_register();
    let code = match row.register(back) {
        // So the first function of a thread is marked.
        Some(RegisterRule::Undefined) => return Ok(None),
        Some(_) => caller.get(back).ok_or(UnwindEnd::Broken)?,
        // Where no rule saves it, it still is in its register.
        None => known.get(back).ok_or(UnwindEnd::Unknown(back.0))?,
    };
    caller.set(arch::RETURN, None);
    let code = arch::plain(code);
    // A caller that is the same as the called leads nowhere.
    if frame == stack && known.get(back).is_none() && !is_signal {
        return Err(UnwindEnd::Broken);
    }
    Ok((code != 0).then_some((caller, code, is_signal)))
}

fn value_of(
    expression: Expression<EndianSlice<'_, LittleEndian>>,
    encoding: gimli::Encoding,
    registers: &Registers,
    first: Option<u64>,
    memory: &Memory,
) -> Result<u64, UnwindEnd> {
    let mut evaluation = expression.evaluation(encoding);
    evaluation.set_max_iterations(MAX_STEPS);
    if let Some(first) = first {
        evaluation.set_initial_value(first);
    }
    let mut state = evaluation.evaluate().map_err(|_| UnwindEnd::Broken)?;
    for _ in 0..MAX_STEPS {
        state = match state {
            EvaluationResult::Complete => {
                let result = evaluation.as_result();
                return match result.first().map(|piece| &piece.location) {
                    Some(gimli::Location::Address { address }) => Ok(*address),
                    Some(gimli::Location::Value { value: Value::Generic(value) }) => Ok(*value),
                    _ => Err(UnwindEnd::Broken),
                };
            }
            EvaluationResult::RequiresRegister { register, .. } => {
                let value = registers.get(register).ok_or(UnwindEnd::Unknown(register.0))?;
                evaluation.resume_with_register(Value::Generic(value)).map_err(|_| UnwindEnd::Broken)?
            }
            EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                let value = memory.word(address).ok_or(UnwindEnd::Broken)?;
                evaluation.resume_with_memory(Value::Generic(value)).map_err(|_| UnwindEnd::Broken)?
            }
            _ => return Err(UnwindEnd::Broken),
        };
    }
    Err(UnwindEnd::Broken)
}

/// What a register is called by.
pub(super) fn name_of(register: u16) -> String {
    match (cfg!(target_arch = "aarch64"), register) {
        (false, 3) => "rbx".to_owned(),
        (false, 6) => "rbp".to_owned(),
        (true, _) => format!("x{register}"),
        (false, _) => format!("r{register}"),
    }
}
