//! A cause as files and other nodes name it, by its id. Both may be of another version, which knows other causes.

use std::fmt;

use ringleader_model::Cause;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The cause that an id names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// One of the list.
    Known(Cause),
    /// One that this version does not know. It is a cause, only none that anything here depends on: neither `none` nor
    /// `undecided`.
    Other(Box<str>),
}

impl Named {
    /// What the id names.
    pub fn of_id(id: &str) -> Self {
        Cause::of_id(id).map_or_else(|| Self::Other(id.into()), Self::Known)
    }

    /// Its id.
    pub fn id(&self) -> &str {
        match self {
            Self::Known(cause) => cause.id(),
            Self::Other(id) => id,
        }
    }

    /// The cause, if it is of the list.
    pub fn known(&self) -> Option<Cause> {
        match self {
            Self::Known(cause) => Some(*cause),
            Self::Other(_) => None,
        }
    }

    /// Whether the evidence shows no cause.
    pub fn says_nothing(&self) -> bool {
        matches!(self.known(), Some(Cause::None | Cause::Undecided))
    }
}

impl From<Cause> for Named {
    fn from(cause: Cause) -> Self {
        Self::Known(cause)
    }
}

impl PartialEq<Cause> for Named {
    fn eq(&self, other: &Cause) -> bool {
        self.known() == Some(*other)
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.id())
    }
}

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(|id| Self::of_id(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_another_version_is_kept_and_no_known_cause() {
        let read = |text: &str| serde_json::from_str::<Named>(text).unwrap();
        assert_eq!(read("\"cuda-oom\""), Cause::CudaOom);
        let other = read("\"a-later-cause\"");
        assert_eq!((other.known(), other.says_nothing()), (None, false));
        assert_eq!(serde_json::to_string(&other).unwrap(), "\"a-later-cause\"");
        assert!(read("\"none\"").says_nothing() && read("\"undecided\"").says_nothing());
        assert_eq!(format!("{:>10}", Named::from(Cause::CudaOom)), "  cuda-oom");
    }
}
