//! Bodies of webhooks in the form that a receiver wants: JSON with placeholders for parts of the event.
//!
//! A place is `{{/report/verdict/summary}}`: a JSON pointer (RFC 6901) into what is posted without a template: `event`, `host`,
//! `bundle`, `text`, and `report` (`ringleader.report.v1`). A string that is a place and nothing
//! else becomes the value itself, a number or a list; within other text a value becomes text. `{{slack:/…}}` also spells out the
//! characters that Slack's markup gives a meaning. Since the template is read as JSON before anything is put in, what comes from
//! evidence cannot change its form.

use serde_json::Value;

/// Longest text that is put into one place: receivers refuse longer ones (Slack: 3,000 characters a block).
const MAX_TEXT: usize = 2_900;

/// A template that is JSON.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Template(Value);

impl Template {
    /// The one of this name, or the text of a file.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let text = match name {
            "slack" => include_str!("templates/slack.json").to_owned(),
            "generic" => include_str!("templates/generic.json").to_owned(),
            path => std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?,
        };
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map(Self).map_err(|error| format!("it is not JSON: {error}"))
    }

    /// The body for an event.
    pub(crate) fn fill(&self, report: &Value) -> String {
        filled(&self.0, report).to_string()
    }
}

fn filled(template: &Value, report: &Value) -> Value {
    match template {
        Value::String(text) => of_text(text, report),
        Value::Array(items) => items.iter().map(|item| filled(item, report)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), filled(value, report))).collect())
        }
        other => other.clone(),
    }
}

fn of_text(text: &str, report: &Value) -> Value {
    if let Some(place) = text.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"))
        && !place.contains("}}")
        && place.starts_with('/')
    {
        return report.pointer(place).cloned().unwrap_or(Value::Null);
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((place, after)) = after.split_once("}}") else { break };
        out.push_str(before);
        let (is_slack, pointer) =
            place.strip_prefix("slack:").map_or((false, place), |pointer| (true, pointer));
        let value = match report.pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => "?".to_owned(),
            Some(other) => other.to_string(),
        };
        let value: String = value.chars().take(MAX_TEXT).collect();
        out.push_str(&if is_slack {
            value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
        } else {
            value
        });
        rest = after;
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Value {
        json!({"event": "verdict", "host": "vm", "text": "skipped: rank 2 left out <b> & more", "report": {"verdict": {
            "cause": "skipped-collective", "confidence": "high", "victims": "0-1,3",
            "summary": "rank 2 left out <b>\"#45\"</b> & more {{/report/verdict/cause}}",
            "culprits": [{"rank": 2, "host": "vm"}], "actions": [{"text": "do it"}]}}})
    }

    #[test]
    fn values_stay_values_and_text_stays_text() {
        let template = Template::parse(
            r#"{"a": "{{/report/verdict/culprits}}", "b": "rank {{/report/verdict/culprits/0/rank}}: {{/report/verdict/summary}}", "c": ["{{/nothing}}", 7]}"#,
        );
        let body: Value =
            serde_json::from_str(&template.expect("it is JSON").fill(&report())).expect("it is JSON");
        assert_eq!(body["a"][0]["rank"], 2);
        // What evidence says is not read as a place again.
        assert_eq!(body["b"], "rank 2: rank 2 left out <b>\"#45\"</b> & more {{/report/verdict/cause}}");
        assert_eq!(body["c"], json!([null, 7]));
    }

    #[test]
    fn slack_sees_no_markup_of_evidence() {
        let body: Value =
            serde_json::from_str(&Template::named("slack").expect("it is there").fill(&report()))
                .expect("JSON");
        assert_eq!(body["blocks"][0]["text"]["text"], "ringleader: verdict on vm");
        let text = body["blocks"][1]["text"]["text"].as_str().expect("text");
        assert!(text.contains("&lt;b&gt; &amp; more") && !text.contains("<b>"), "{text}");
        assert!(Template::named("generic").is_ok() && Template::named("/nonexistent").is_err());
        assert!(Template::parse("{").is_err());
    }
}
