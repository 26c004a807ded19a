//! `ip -j addr`: `[{"ifindex":2,"ifname":"eth0","flags":["BROADCAST","UP"],"mtu":1500,"operstate":"UP",
//! "addr_info":[{"local":"192.0.2.2"}]}]`. iproute2 lib/json_print.c, ip/ipaddress.c.

use ringleader_model::{Fact, Interface, NetFact, SourceKind, Who};
use serde_json::Value;

use crate::document::Document;
use crate::sink::Sink;

/// Interfaces of one document.
const MAX_INTERFACES: usize = 1_000;

/// Reads a document, if it lists interfaces.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let Some(list) = document.value.as_array() else { return false };
    let is_interface = |v: &Value| v.get("ifname").is_some() && v.get("ifindex").is_some();
    if !list.first().is_some_and(is_interface) {
        return false;
    }
    let words = |v: Option<&Value>, key: Option<&str>| -> Vec<Box<str>> {
        let list = v.and_then(Value::as_array).into_iter().flatten().take(64);
        list.filter_map(|v| key.map_or(Some(v), |k| v.get(k)).and_then(Value::as_str))
            .map(Into::into)
            .collect()
    };
    sink.saw(SourceKind::Network);
    for value in list.iter().filter(|v| is_interface(v)).take(MAX_INTERFACES) {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(Box::<str>::from);
        let interface = Interface {
            name: text("ifname").unwrap_or_default(),
            state: text("operstate"),
            flags: words(value.get("flags"), None).join(",").into(),
            mtu: value.get("mtu").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
            addresses: words(value.get("addr_info"), Some("local")),
            speed_mbps: None,
            link_detected: None,
        };
        let fact = Fact::Net(Box::new(NetFact::Interface(interface)));
        sink.push(document.cite(sink), Who::default(), None, fact, document.bytes);
    }
    true
}
