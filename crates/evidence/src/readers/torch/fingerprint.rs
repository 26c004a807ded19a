//! `Detected mismatch between collectives on ranks.` of `TORCH_DISTRIBUTED_DEBUG=DETAIL`.
//!
//! `Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=2981, OpType=ALLREDUCE, TensorShape=[195801088],
//! TensorDtypes=BFloat16, TensorDeviceTypes=…), but Rank 0 is running collective: …`, written by pytorch/pytorch
//! `torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp`.

use ringleader_model::{Fingerprint, Rank, TorchEvent};

use super::scan::{after, between, digits};

/// Reads both fingerprints.
pub(super) fn read(text: &str) -> Option<TorchEvent> {
    let text = after(text, "Detected mismatch between collectives on ranks.")?;
    let (mine, theirs) = text.split_once(", but Rank ").unwrap_or((text, ""));
    let mine = one(after(mine, "Rank ")?);
    Some(TorchEvent::FingerprintMismatch { mine: Box::new(mine), theirs: Box::new(one(theirs)) })
}

/// `1 is running collective: CollectiveFingerPrint(…)`.
fn one(text: &str) -> Fingerprint {
    let field = |name: &str, close: &str| Box::from(between(text, name, close).unwrap_or_default().trim());
    Fingerprint {
        rank: digits(text).0.parse().ok().map(Rank),
        seq: after(text, "SequenceNumber=").and_then(|t| digits(t).0.parse().ok()),
        op_type: after(text, "OpType=")
            .map(|t| t.split([',', ')']).next().unwrap_or(t))
            .unwrap_or_default()
            .into(),
        shape: match between(text, "TensorShape=[", "]") {
            Some(inside) => format!("[{inside}]").into(),
            None => Box::default(),
        },
        dtypes: field("TensorDtypes=", ", Tensor"),
    }
}
