//! Classes and confidences as words in files: the types of `model` have no file format.

use ringleader_model::{Class, Confidence};

/// Every class, in the order of the table.
pub(crate) const CLASSES: [Class; 5] =
    [Class::Transient, Class::Node, Class::Program, Class::External, Class::Unknown];

/// Every confidence with its word.
pub(crate) const CONFIDENCES: [(&str, Confidence); 3] =
    [("low", Confidence::Low), ("medium", Confidence::Medium), ("high", Confidence::High)];

/// The word of a confidence.
pub(crate) fn confidence_name(confidence: Confidence) -> &'static str {
    CONFIDENCES.iter().find(|(_, of)| *of == confidence).map_or("low", |(name, _)| name)
}

/// `Class` as its name.
pub(crate) mod class {
    use ringleader_model::Class;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(class: &Class, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(class.name())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Class, D::Error> {
        let name = String::deserialize(from)?;
        let found = super::CLASSES.into_iter().find(|class| class.name() == name);
        found.ok_or_else(|| de::Error::custom(format!("no class is called `{name}`")))
    }
}

/// `Confidence` as its name.
pub(crate) mod confidence {
    use ringleader_model::Confidence;
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(confidence: &Confidence, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(super::confidence_name(*confidence))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Confidence, D::Error> {
        let name = String::deserialize(from)?;
        let found = super::CONFIDENCES.iter().find(|(word, _)| *word == name);
        found
            .map(|(_, of)| *of)
            .ok_or_else(|| de::Error::custom(format!("expected low, medium or high, not `{name}`")))
    }
}
