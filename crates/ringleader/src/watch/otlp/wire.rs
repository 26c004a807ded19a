//! Messages of OTLP as a tree that is written in both of its forms, protobuf and JSON.
//!
//! Numbers and names of fields: `opentelemetry/proto` of <https://github.com/open-telemetry/opentelemetry-proto>, version 1. JSON:
//! <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum FieldValue {
    Message(Vec<Field>),
    /// A repeated field: each item is written with the number of the field.
    List(Vec<FieldValue>),
    Text(String),
    /// `fixed64`: times in nanoseconds.
    Fixed(u64),
    Double(f64),
    /// `enum`, below 128 as all enumerations here.
    Enum(u8),
    Flag(bool),
}

/// A field: its number, its name in JSON, its value.
pub(super) type Field = (u8, &'static str, FieldValue);

const VARINT: u8 = 0;
const EIGHT_BYTES: u8 = 1;
const LENGTH: u8 = 2;

impl FieldValue {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// As protobuf, without the field that holds it.
    pub(super) fn to_protobuf(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Self::Message(fields) = self {
            for (number, _, node) in fields {
                node.write(*number, &mut out);
            }
        }
        out
    }

    fn write(&self, number: u8, out: &mut Vec<u8>) {
        let mut start = |kind: u8| varint(u64::from(number) << 3 | u64::from(kind), out);
        match self {
            Self::Message(_) => {
                start(LENGTH);
                let body = self.to_protobuf();
                varint(body.len() as u64, out);
                out.extend(body);
            }
            Self::List(items) => items.iter().for_each(|item| item.write(number, out)),
            Self::Text(text) => {
                start(LENGTH);
                varint(text.len() as u64, out);
                out.extend(text.as_bytes());
            }
            Self::Fixed(value) => {
                start(EIGHT_BYTES);
                out.extend(value.to_le_bytes());
            }
            Self::Double(value) => {
                start(EIGHT_BYTES);
                out.extend(value.to_le_bytes());
            }
            Self::Enum(value) => {
                start(VARINT);
                varint(u64::from(*value), out);
            }
            Self::Flag(value) => {
                start(VARINT);
                varint(u64::from(*value), out);
            }
        }
    }

    /// As JSON: integers of 64 bits are text, enumerations are numbers.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Message(fields) => serde_json::Value::Object(
                fields.iter().map(|(_, name, node)| ((*name).to_owned(), node.to_json())).collect(),
            ),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Text(text) => text.as_str().into(),
            Self::Fixed(value) => value.to_string().into(),
            Self::Double(value) => (*value).into(),
            Self::Enum(value) => (*value).into(),
            Self::Flag(value) => (*value).into(),
        }
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those of `protoc --encode=opentelemetry.proto.metrics.v1.Metric` by the format's rules: key, length, value.
    #[test]
    fn a_message_as_protobuf_and_as_json() {
        let point = FieldValue::Message(vec![
            (3, "timeUnixNano", FieldValue::Fixed(1)),
            (4, "asDouble", FieldValue::Double(1.0)),
        ]);
        let metric = FieldValue::Message(vec![
            (1, "name", FieldValue::text("n")),
            (
                7,
                "sum",
                FieldValue::Message(vec![
                    (1, "dataPoints", FieldValue::List(vec![point])),
                    (2, "aggregationTemporality", FieldValue::Enum(2)),
                    (3, "isMonotonic", FieldValue::Flag(true)),
                ]),
            ),
        ]);
        let point = b"\x19\x01\0\0\0\0\0\0\0\x21\0\0\0\0\0\0\xf0\x3f";
        let mut want = b"\x0a\x01n\x3a\x18\x0a\x12".to_vec();
        want.extend(point);
        want.extend(b"\x10\x02\x18\x01");
        assert_eq!(metric.to_protobuf(), want);
        assert_eq!(
            metric.to_json().to_string(),
            r#"{"name":"n","sum":{"aggregationTemporality":2,"dataPoints":[{"asDouble":1.0,"timeUnixNano":"1"}],"isMonotonic":true}}"#
        );
        let long = FieldValue::Message(vec![(1, "name", FieldValue::text("x".repeat(300)))]);
        assert_eq!(long.to_protobuf()[..3], [0x0a, 0xac, 0x02]);
    }
}
