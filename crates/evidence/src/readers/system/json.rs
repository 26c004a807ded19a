//! `kubectl get pods -o json` and `kubectl get events -o json`: a `List` of `Pod`s or `Event`s, or one of them.
//! kubernetes/api core/v1/types.go.

use ringleader_model::{Fact, Scheduler, SchedulerEvent, SchedulerKind, SourceKind, SystemFact, Who};
use serde_json::Value;

use super::MAX_ROWS;
use crate::ground::{Document, Sink, stamp::date_time};

/// Reads a document, if it is one of kubectl.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let value = document.value;
    let kind = |v: &Value| v.get("kind").and_then(Value::as_str).map(str::to_owned);
    if value.get("apiVersion").is_none() {
        return false;
    }
    let items: Vec<&Value> = match kind(value).as_deref() {
        Some("List" | "PodList" | "EventList") => {
            value.get("items").and_then(Value::as_array).into_iter().flatten().take(MAX_ROWS).collect()
        }
        Some("Pod" | "Event") => vec![value],
        _ => return false,
    };
    sink.saw(SourceKind::Scheduler);
    for item in items {
        let event = if item.get("involvedObject").is_some() { event(item) } else { pod(item) };
        if let Some(event) = event {
            let fact = Fact::System(Box::new(SystemFact::Scheduler(event)));
            sink.push(document.cite(sink), Who::default(), None, fact, item.to_string().as_bytes());
        }
    }
    true
}

fn text(value: &Value, pointer: &str) -> Option<Box<str>> {
    value.pointer(pointer).and_then(Value::as_str).map(Into::into)
}

fn kind_of(reason: &str) -> Option<SchedulerKind> {
    Some(match reason {
        "OOMKilled" | "OOMKilling" | "SystemOOM" => SchedulerKind::OutOfMemory,
        "Evicted" => SchedulerKind::Evicted,
        "Preempted" | "Preempting" => SchedulerKind::Preempted,
        "NodeNotReady" | "NodeLost" => SchedulerKind::NodeFail,
        "DeadlineExceeded" => SchedulerKind::TimeLimit,
        "FailedScheduling" => SchedulerKind::Unschedulable,
        _ => return None,
    })
}

fn event(value: &Value) -> Option<SchedulerEvent> {
    let object = text(value, "/involvedObject/name").unwrap_or_default();
    let what = text(value, "/involvedObject/kind").unwrap_or_default().to_ascii_lowercase();
    Some(SchedulerEvent {
        scheduler: Scheduler::Kubernetes,
        kind: kind_of(&text(value, "/reason")?)?,
        subject: format!("{what}/{object}").into(),
        node: text(value, "/source/host").or_else(|| (what == "node").then_some(object)),
        ..SchedulerEvent::default()
    })
}

fn pod(value: &Value) -> Option<SchedulerEvent> {
    let of_pod = text(value, "/status/reason").and_then(|r| Some((kind_of(&r)?, None, None, None)));
    let containers = value.pointer("/status/containerStatuses").and_then(Value::as_array);
    let of_container = || {
        containers.into_iter().flatten().find_map(|c| {
            ["/state/terminated", "/lastState/terminated"].iter().find_map(|at| {
                let ended = c.pointer(at)?;
                let code = ended.get("exitCode").and_then(Value::as_i64);
                let at = ended.get("finishedAt").and_then(Value::as_str);
                let at = at.and_then(|t| Some(date_time(t.as_bytes(), b'T')?.0));
                Some((kind_of(ended.get("reason")?.as_str()?)?, code, text(c, "/name"), at))
            })
        })
    };
    let (kind, exit_code, container, ended_at) = of_pod.or_else(of_container)?;
    let n_containers = containers.map(Vec::len).and_then(|n| u32::try_from(n).ok());
    Some(SchedulerEvent {
        scheduler: Scheduler::Kubernetes,
        kind,
        subject: format!("pod/{}", text(value, "/metadata/name").unwrap_or_default()).into(),
        node: text(value, "/spec/nodeName"),
        exit_code,
        n_containers: n_containers.filter(|_| container.is_some()),
        container,
        ended_at,
        ..SchedulerEvent::default()
    })
}
