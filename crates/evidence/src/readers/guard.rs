//! Events of the guard in a training job, `ringleader.event.v1`: one object a line, in `events-PID.jsonl` beside the plugin's
//! rings. Written by `python/ringleader/torch/_guard.py`.
//!
//! ```text
//! {"schema":"ringleader.event.v1","wall_ns":1795308064100000000,"kind":"digest","rank":0,"step":1200,"parameter":"1.weight",
//!  "layer":"1","value":"gradient","group":"0-7","agree":false,"odd":[5],"differing":1,"of":6,"never_in_sync":false}
//! {"schema":"ringleader.event.v1","wall_ns":1795308064100000000,"kind":"nan","rank":3,"step":88,"parameter":"1.bias","layer":"1",
//!  "value":"NaN"}
//! ```
//!
//! Digests that agree are not written. Events of other kinds are answers of tools, no evidence.

use ringleader_model::{Fact, GuardEvent, GuardKind, NoteKind, Rank, SourceKind, WallTime, Who};
use serde_json::Value;

use crate::ground::{Document, Sink, bounded_text};

/// Odd ranks that are read.
const MAX_ODD: usize = 4096;

/// Reads an event; false if the document is none.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let word = |key: &str| document.value.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some(version) = word("schema").strip_prefix("ringleader.event.v") else { return false };
    sink.saw(SourceKind::Guard);
    let cite = document.cite(sink);
    if version != "1" {
        let text = format!("an event of format {version}, this program reads 1; a newer ringleader reads it");
        sink.note(cite, NoteKind::UnknownVersion, text);
        return true;
    }
    let number = |key: &str| document.value.get(key).and_then(Value::as_u64);
    let rank_of = |number: u64| u32::try_from(number).ok().map(Rank);
    let limit = sink.limits.max_text_chars;
    let text = |key: &str| -> Box<str> { bounded_text(word(key).as_bytes(), limit).into() };
    let kind = match word("kind") {
        "digest" if document.value.get("agree").and_then(Value::as_bool) == Some(false) => {
            let odd = document.value.get("odd").and_then(Value::as_array).into_iter().flatten();
            GuardKind::Disagreement {
                odd: odd.filter_map(|rank| rank_of(rank.as_u64()?)).take(MAX_ODD).collect(),
                group: text("group"),
                n_differing: number("differing").unwrap_or(1),
                n_compared: number("of").unwrap_or_default(),
                never_in_sync: document.value.get("never_in_sync").and_then(Value::as_bool) == Some(true),
            }
        }
        "nan" => GuardKind::NotFinite,
        "spike" => GuardKind::Spike,
        _ => return true,
    };
    let (Some(rank), Some(step)) = (number("rank").and_then(rank_of), number("step")) else {
        let text = "an event without rank or step; it was left out".to_owned();
        sink.note(cite, NoteKind::Malformed, text);
        return true;
    };
    // A loss is written as a number.
    let value = document.value.get("value").map_or_else(Box::default, |value| match value.as_str() {
        Some(_) => text("value"),
        None => bounded_text(value.to_string().as_bytes(), limit).into(),
    });
    let event = GuardEvent { rank, step, kind, parameter: text("parameter"), layer: text("layer"), value };
    let at = document.value.get("wall_ns").and_then(Value::as_i64);
    let at = at.map(|ns| WallTime { ns, error_ns: 0, has_year: true });
    let who = Who { rank: Some(rank), ..Who::default() };
    let said = words(&event);
    sink.push(cite, who, at, Fact::Guard(Box::new(event)), said.as_bytes());
    true
}

/// The event in words.
fn words(event: &GuardEvent) -> String {
    let GuardEvent { rank, step, kind, parameter, layer: _, value } = event;
    match kind {
        GuardKind::Disagreement { odd, group, n_differing, n_compared, .. } => {
            let who: Vec<String> = odd.iter().map(|rank| rank.0.to_string()).collect();
            let who = if who.is_empty() {
                "none has the majority".to_owned()
            } else {
                format!("odd: {}", who.join(", "))
            };
            format!(
                "guard: ranks {group} disagree on the {value} {parameter} at step {step}, {n_differing} of {n_compared} \
                 differ; {who}"
            )
        }
        GuardKind::NotFinite => {
            format!("guard: {value} in the local gradient of {parameter} on rank {} at step {step}", rank.0)
        }
        GuardKind::Spike => format!("guard: the loss is {value} on rank {} at step {step}", rank.0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ringleader_model::{Fact, GuardEvent, GuardKind, NoteKind, Rank, SourceKind};

    use crate::{Extract, Limits, Scratch};

    const DIGEST: &str = r#"{"schema":"ringleader.event.v1","wall_ns":1795308064100000000,"kind":"digest","rank":0,"step":1200,"parameter":"1.weight","layer":"1","value":"gradient","group":"0-7","agree":false,"odd":[5],"differing":1,"of":6,"never_in_sync":false}"#;
    const NAN: &str = r#"{"schema":"ringleader.event.v1","wall_ns":1795308064200000000,"kind":"nan","rank":3,"step":88,"parameter":"1.bias","layer":"1","value":"NaN"}"#;
    const SPIKE: &str = r#"{"schema":"ringleader.event.v1","wall_ns":1795308064300000000,"kind":"spike","rank":3,"step":90,"value":113.5}"#;
    const OTHER: &str = r#"{"schema":"ringleader.event.v1","wall_ns":1795308064300000000,"kind":"profile","rank":3,"step":90}"#;

    fn read(text: &str) -> Extract {
        crate::read("events-17.jsonl", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default())
    }

    fn events(extract: &Extract) -> Vec<&GuardEvent> {
        let facts = extract.observations.iter();
        facts.filter_map(|o| if let Fact::Guard(event) = &o.fact { Some(&**event) } else { None }).collect()
    }

    #[test]
    fn events_as_the_guard_writes_them() {
        let extract = read(&format!("{DIGEST}\n{NAN}\n{OTHER}\n{SPIKE}\n"));
        assert_eq!(extract.sources[0].kinds, [SourceKind::Guard]);
        let [digest, nan, spike] = events(&extract)[..] else { panic!("{extract:?}") };
        let GuardKind::Disagreement { odd, group, n_differing, n_compared, never_in_sync } = &digest.kind
        else {
            panic!("{digest:?}")
        };
        assert_eq!(
            (&odd[..], &**group, *n_differing, *n_compared, *never_in_sync),
            (&[Rank(5)][..], "0-7", 1, 6, false)
        );
        assert_eq!((digest.step, &*digest.parameter, &*digest.value), (1200, "1.weight", "gradient"));
        assert_eq!((nan.rank, nan.step, &*nan.layer, &*nan.value), (Rank(3), 88, "1", "NaN"));
        assert_eq!((&spike.kind, &*spike.value), (&GuardKind::Spike, "113.5"));
        let observation = &extract.observations[0];
        assert_eq!(
            (observation.at.map(|at| at.ns), observation.cite.line),
            (Some(1_795_308_064_100_000_000), 1)
        );
        assert_eq!(
            &*observation.text,
            "guard: ranks 0-7 disagree on the gradient 1.weight at step 1200, 1 of 6 differ; odd: 5"
        );
        assert!(extract.notes.is_empty(), "{:?}", extract.notes);
    }

    #[test]
    fn what_is_newer_or_damaged_is_noted() {
        let extract = read(&DIGEST.replace("event.v1", "event.v2"));
        assert_eq!((events(&extract).len(), extract.notes[0].kind), (0, NoteKind::UnknownVersion));
        let extract = read(&NAN.replace("\"rank\":3,", ""));
        assert_eq!((events(&extract).len(), extract.notes[0].kind), (0, NoteKind::Malformed));
    }

    proptest! {
        #[test]
        fn no_change_makes_it_panic(at in 0usize..DIGEST.len(), byte in any::<u8>(), cut in 0usize..DIGEST.len()) {
            let mut bytes = DIGEST.as_bytes().to_vec();
            bytes[at] = byte;
            bytes.truncate(cut.max(1));
            crate::read("events-1.jsonl", &mut &*bytes, &mut Scratch::default(), &Limits::default());
        }
    }
}
