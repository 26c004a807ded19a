//! Our own kernels: PTX as text, compiled by the driver for the GPU at hand.
//!
//! Launch shapes are fixed by the number of multiprocessors, so that equal GPUs do equal work.

use crate::reference::{BLOCK, Tensor, Unit};
use crate::sys::{Attribute, Buffer, Device, Function, Launch, LibraryError, Module, RedOp, Stream};
use crate::values::ValuePlan;

const PLAIN: &str = include_str!("kernels/plain.ptx");
const TENSOR: &str = include_str!("kernels/tensor.ptx");

/// Words of a record of differences: 8 of counts, then 4 for each one listed.
const RECORD_WORDS: usize = 8 + 4 * LISTED;
/// Differences that a record lists.
const LISTED: usize = 32;
/// Threads of a multiprocessor that the kernels of memory keep busy: all there are.
const BLOCKS_PER_MULTIPROCESSOR: u32 = 8;

/// What a memory pattern is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// 0 constant, 1 own address, 2 random, 3 walking bit, 4 every twentieth word.
    pub kind: u64,
    /// The constant, or what the others start from.
    pub seed: u64,
    /// XORed onto every word.
    pub invert: u64,
}

/// What a kernel does with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Pass {
    /// Writes it.
    Write = 0,
    /// Compares with it.
    Read = 1,
    /// Compares with it and writes its complement.
    ReadThenInvert = 2,
}

/// One wrong word or element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Its place, in words or elements.
    pub index: u64,
    /// What should be there.
    pub want: u64,
    /// What is there.
    pub got: u64,
    /// The multiprocessor that compared.
    pub multiprocessor: u64,
}

/// What a comparison found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Wrong words or elements.
    pub count: u64,
    /// Bits that differ in any of them.
    pub bits: u64,
    /// The first ones, by place.
    pub listed: Vec<Wrong>,
}

/// The kernels, compiled for one GPU. Fields are dropped in their order: functions before their modules.
pub struct Kernels {
    pattern: Function,
    values: Function,
    digest: Function,
    units: Function,
    tensor: Option<Function>,
    blocks: u32,
    record: Buffer,
    sum: Buffer,
    _modules: (Module, Option<Module>),
}

/// Where a table of codes is on the GPU, for one [`ValuePlan`].
pub struct CodeTable(Option<Buffer>);

impl Kernels {
    /// Compiles them.
    ///
    /// # Errors
    /// If the driver cannot compile PTX here: it says why.
    pub fn new(device: &Device) -> Result<Self, LibraryError> {
        let driver = device.driver();
        let plain = device.module(PLAIN)?;
        let has_tensor = driver.attribute(device.index(), Attribute::Major)? >= 8;
        let tensor_module = if has_tensor { Some(device.module(TENSOR)?) } else { None };
        let tensor = tensor_module.as_ref().map(|module| module.function("rl_tensor", 4)).transpose()?;
        let n = driver.attribute(device.index(), Attribute::Multiprocessors)?;
        Ok(Self {
            pattern: plain.function("rl_pattern", 8)?,
            values: plain.function("rl_values", 18)?,
            digest: plain.function("rl_digest", 3)?,
            units: plain.function("rl_units", 4)?,
            tensor,
            blocks: u32::try_from(n).unwrap_or(1).max(1) * BLOCKS_PER_MULTIPROCESSOR,
            record: device.alloc(RECORD_WORDS * 8)?,
            sum: device.alloc(8)?,
            _modules: (plain, tensor_module),
        })
    }

    fn shape(&self) -> Launch {
        Launch { blocks: self.blocks, threads: BLOCK }
    }

    /// Threads of [`Kernels::units`] and [`Kernels::tensor`]. They write 8 and 16 bytes each.
    pub fn n_threads(&self) -> usize {
        (self.blocks * BLOCK) as usize
    }

    /// Forgets differences found so far.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn reset(&self, stream: &Stream) -> Result<(), LibraryError> {
        let mut words = [0u64; RECORD_WORDS];
        words[2] = u64::MAX;
        stream.write(self.record.address(), &words)
    }

    /// Waits, and reads the differences found since [`Kernels::reset`].
    ///
    /// # Errors
    /// If something failed on the GPU.
    pub fn differences(&self, stream: &Stream) -> Result<Differences, LibraryError> {
        let words: Vec<u64> = stream.read(self.record.address(), RECORD_WORDS)?;
        let count = words[0];
        let n = usize::try_from(count).unwrap_or(LISTED).min(LISTED);
        let mut listed: Vec<Wrong> = words[8..8 + 4 * n]
            .chunks_exact(4)
            .map(|word| Wrong { index: word[0], want: word[1], got: word[2], multiprocessor: word[3] })
            .collect();
        listed.sort_by_key(|wrong| wrong.index);
        Ok(Differences { count, bits: words[1], listed })
    }

    /// Queues a pass of a pattern over memory from `address` on; its first unit of 16 bytes has the number `base`.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn pattern(
        &self,
        stream: &Stream,
        address: u64,
        size_bytes: usize,
        pattern: Pattern,
        pass: Pass,
        base: u64,
    ) -> Result<(), LibraryError> {
        let Pattern { kind, seed, invert } = pattern;
        let units = (size_bytes / 16) as u64;
        let record = self.record.address();
        stream.launch(
            &self.pattern,
            self.shape(),
            &[address, units, kind, seed, invert, pass as u64, record, base],
        )
    }

    /// Puts the table of a plan onto the GPU, if it has one.
    ///
    /// # Errors
    /// If the GPU is full.
    pub fn table(
        &self,
        device: &Device,
        stream: &Stream,
        plan: &ValuePlan,
    ) -> Result<CodeTable, LibraryError> {
        if plan.table.is_empty() {
            return Ok(CodeTable(None));
        }
        let buffer = device.alloc(size_of_val(&*plan.table))?;
        stream.write(buffer.address(), &plan.table)?;
        Ok(CodeTable(Some(buffer)))
    }

    /// Queues the writing of a rank's own values; element 0 has the number `base`.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn fill(
        &self,
        stream: &Stream,
        (plan, table): (&ValuePlan, &CodeTable),
        (address, n): (u64, usize),
        rank: usize,
        base: u64,
    ) -> Result<(), LibraryError> {
        let op = if plan.op == Some(RedOp::Prod) { plan.op } else { None };
        let ranks = (rank as u64, rank as u64 + 1);
        self.values(stream, (plan, table), (address, n), (op, ranks, plan.factor()), base, false)
    }

    /// Queues the comparison with the reduction over all ranks (`of` is none) or with one rank's own values.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn compare(
        &self,
        stream: &Stream,
        (plan, table): (&ValuePlan, &CodeTable),
        (address, n): (u64, usize),
        of: Option<usize>,
        base: u64,
    ) -> Result<(), LibraryError> {
        let what = match of {
            None => (plan.op, (0, plan.n_ranks), 1),
            Some(rank) => {
                let op = if plan.op == Some(RedOp::Prod) { plan.op } else { None };
                (op, (rank as u64, rank as u64 + 1), plan.factor())
            }
        };
        self.values(stream, (plan, table), (address, n), what, base, true)
    }

    fn values(
        &self,
        stream: &Stream,
        (plan, table): (&ValuePlan, &CodeTable),
        (address, n): (u64, usize),
        (op, (lo, hi), factor): (Option<RedOp>, (u64, u64), u64),
        base: u64,
        is_comparison: bool,
    ) -> Result<(), LibraryError> {
        if n == 0 {
            return Ok(());
        }
        // The mean of values that were multiplied with the number of ranks is a plain sum.
        let op = match op {
            None | Some(RedOp::Sum | RedOp::Avg) => 0,
            Some(RedOp::Prod) => 1,
            Some(RedOp::Max) => 2,
            Some(RedOp::Min) => 3,
            Some(RedOp::PreMulSum) => 5,
        };
        let table = table.0.as_ref().map_or(0, Buffer::address);
        stream.launch(
            &self.values,
            self.shape(),
            &[
                address,
                n as u64,
                u64::from(plan.shift),
                plan.class as u64,
                op,
                lo,
                hi,
                plan.n_ranks,
                plan.seed,
                plan.span,
                plan.low.wrapping_neg(),
                factor,
                plan.scale,
                table,
                plan.middle,
                base,
                u64::from(is_comparison),
                self.record.address(),
            ],
        )
    }

    /// Waits for the digest of memory, whose size is a multiple of 8.
    ///
    /// # Errors
    /// If something failed on the GPU.
    pub fn digest(&self, stream: &Stream, address: u64, size_bytes: usize) -> Result<u64, LibraryError> {
        stream.write(self.sum.address(), &[0u64])?;
        let params = [address, (size_bytes / 8) as u64, self.sum.address()];
        stream.launch(&self.digest, self.shape(), &params)?;
        Ok(stream.read::<u64>(self.sum.address(), 1)?.first().copied().unwrap_or_default())
    }

    /// Queues work for the arithmetic units outside of the tensor cores. Writes 8 bytes for each of the threads.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn units(
        &self,
        stream: &Stream,
        to: u64,
        kind: Unit,
        steps: u32,
        seed: u64,
    ) -> Result<(), LibraryError> {
        stream.launch(&self.units, self.shape(), &[to, u64::from(steps), kind as u64, seed])
    }

    /// Queues work for the tensor cores: 16 bytes for each of the threads. False where the GPU is older than sm_80.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn tensor(
        &self,
        stream: &Stream,
        to: u64,
        kind: Tensor,
        steps: u32,
        seed: u64,
    ) -> Result<bool, LibraryError> {
        let Some(function) = &self.tensor else { return Ok(false) };
        stream.launch(function, self.shape(), &[to, u64::from(steps), kind as u64, seed])?;
        Ok(true)
    }
}
