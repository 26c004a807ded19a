//! What the entries of a dump have taught, and an entry half read.

use ringleader_model::FlightOp;

use super::build::{self, Tensors};
use super::template::{MAX_VARYING, Templates, ValueSpan};
use crate::ground::intern::{Index, hash_of};

/// Byte strings that were read before and what they mean.
#[derive(Default)]
pub(super) struct Spans<'a> {
    pub(super) spans: Vec<(&'a [u8], u32)>,
    pub(super) index: Index,
}

impl<'a> Spans<'a> {
    /// Meaning of these bytes.
    pub(super) fn find(&self, span: &'a [u8]) -> Option<u32> {
        let spans = &self.spans;
        let place =
            self.index.find(hash_of(span), |at| spans.get(at as usize).is_some_and(|s| s.0 == span))?;
        self.spans.get(place as usize).map(|s| s.1)
    }

    /// Learns what bytes mean that [`Self::find`] does not know.
    pub(super) fn learn(&mut self, span: &'a [u8], meaning: u32) {
        self.index.place(hash_of(span), self.spans.len() as u32, |_| false);
        self.spans.push((span, meaning));
    }
}

/// Shapes and types of a call, and the signature that they had last.
pub(super) struct CallShapes {
    pub(super) tensors: Tensors,
    pub(super) name_at: u32,
    pub(super) signature: u32,
}

/// What the entries before have taught.
#[derive(Default)]
pub(super) struct Learned<'a> {
    pub(super) generation: u32,
    pub(super) templates: Templates,
    /// Scratch: fixed bytes of an entry.
    pub(super) fixed: Vec<u8>,
    pub(super) stacks: Spans<'a>,
    pub(super) calls: Spans<'a>,
    pub(super) call_list: Vec<CallShapes>,
    /// (call, memo place of the name) to signature, where a call goes by several names.
    pub(super) pairs: Index,
    pub(super) pair_list: Vec<(u32, u32, u32)>,
    pub(super) group: (i64, u32, u32, u16),
    pub(super) groups: Index,
    pub(super) group_list: Vec<(i64, u32, u32, u16)>,
    /// Scratch: dimensions, ends of shapes, types; inputs first.
    pub(super) dims: Vec<u64>,
    pub(super) shapes: [Vec<u32>; 2],
    pub(super) dtypes: [Vec<&'a [u8]>; 2],
}

/// An entry half read.
pub(super) struct Draft {
    pub(super) varying: [ValueSpan; MAX_VARYING],
    pub(super) n_varying: usize,
    pub(super) op: FlightOp,
    pub(super) is_empty: bool,
    pub(super) pg_id: i64,
    pub(super) name_at: u32,
    pub(super) desc_at: u32,
    pub(super) thread_at: u32,
    pub(super) call: u32,
    pub(super) call_name_at: u32,
}

impl Learned<'_> {
    /// What the scratch holds.
    pub(super) fn tensors(&self) -> Tensors {
        let mut dims = self.dims.as_slice();
        let mut start = 0_u32;
        let mut sides = self.shapes.iter().map(|shapes| {
            let mut side = Vec::with_capacity(shapes.len());
            for end in shapes {
                let (shape, rest) = dims.split_at_checked((end - start) as usize).unwrap_or((dims, &[]));
                side.push(Box::from(shape));
                (dims, start) = (rest, *end);
            }
            side.into_boxed_slice()
        });
        let (input_sizes, output_sizes) =
            (sides.next().unwrap_or_default(), sides.next().unwrap_or_default());
        let mut types = self.dtypes.iter().map(|names| names.iter().map(|n| build::text(n)).collect());
        let (input_dtypes, output_dtypes) =
            (types.next().unwrap_or_default(), types.next().unwrap_or_default());
        Tensors { input_sizes, output_sizes, input_dtypes, output_dtypes }
    }
}
