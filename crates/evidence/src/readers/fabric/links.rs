//! Interfaces and routes: iproute2 and ethtool.

use ringleader_model::{Interface, NetFact, Route};

use super::{FabricForm, FabricReader, OpenBlock};
use crate::ground::{Line, Sink};

/// Addresses of one interface that are kept.
const MAX_ADDRESSES: usize = 64;

const STATES: [&str; 6] = ["UP", "DOWN", "UNKNOWN", "LOWERLAYERDOWN", "DORMANT", "NOTPRESENT"];

/// Whether a line's second word is a state, as in `ip -br`.
pub(super) fn is_brief(body: &[u8]) -> bool {
    let mut words = body.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let (_, state) = (words.next(), words.next());
    state.is_some_and(|s| STATES.iter().any(|known| known.as_bytes() == s))
}

impl FabricReader {
    /// `2: eth0: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 1000`.
    pub(super) fn ip_addr(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some((index, rest)) = text.split_once(": ") else { return false };
        if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
            return false;
        }
        let Some((name, rest)) = rest.split_once(": <") else { return false };
        let Some((flags, rest)) = rest.split_once("> ") else { return false };
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let after = |key: &str| {
            let at = words.iter().position(|w| *w == key)?;
            words.get(at + 1).copied()
        };
        let Some(mtu) = after("mtu") else { return false };
        let interface = Interface {
            name: name.split('@').next().unwrap_or(name).into(),
            state: after("state").map(Into::into),
            flags: flags.into(),
            mtu: mtu.parse().ok(),
            ..Interface::default()
        };
        self.open(FabricForm::IpAddr, NetFact::Interface(interface), line, sink);
        true
    }

    /// `eth0             UP             192.0.2.2/24 fe80::1/64`, or with a link address and flags.
    pub(super) fn interface_in_brief(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if !is_brief(text.as_bytes()) {
            return false;
        }
        let mut words = text.split_ascii_whitespace();
        let (Some(name), Some(state)) = (words.next(), words.next()) else { return false };
        let rest: Vec<&str> = words.collect();
        let is_address = |w: &&str| w.contains('/') && w.contains(['.', ':']);
        let is_link = rest.first().is_some_and(|w| w.matches(':').count() == 5 && w.len() == 17);
        let is_number = |w: &&str| w.bytes().all(|b| b.is_ascii_digit());
        if !is_link && !rest.iter().all(|w| is_address(w) || matches!(*w, "metric" | "peer") || is_number(w))
        {
            return false;
        }
        let interface = Interface {
            name: name.split('@').next().unwrap_or(name).into(),
            state: Some(state.into()),
            flags: rest
                .iter()
                .find_map(|w| w.strip_prefix('<')?.strip_suffix('>'))
                .unwrap_or_default()
                .into(),
            addresses: rest.iter().copied().filter(is_address).take(MAX_ADDRESSES).map(address).collect(),
            networks: rest.iter().take(MAX_ADDRESSES).filter_map(|w| Interface::network_of(w)).collect(),
            ..Interface::default()
        };
        self.push(NetFact::Interface(interface), line, sink);
        true
    }

    /// `default via 192.0.2.1 dev eth0`, `192.0.2.0/24 dev eth0 proto kernel scope link linkdown`.
    pub(super) fn route(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let (kind, rest) = match words.as_slice() {
            [kind @ ("unreachable" | "blackhole" | "prohibit"), rest @ ..] => (Some(*kind), rest),
            rest => (None, rest),
        };
        let [to, tail @ ..] = rest else { return false };
        let is_network =
            *to == "default" || to.split('/').next().is_some_and(|a| a.parse::<std::net::IpAddr>().is_ok());
        if !is_network || (kind.is_none() && !matches!(tail.first(), Some(&("via" | "dev")))) {
            return false;
        }
        let after = |key: &str| {
            let at = tail.iter().position(|w| *w == key)?;
            tail.get(at + 1).map(|w| (*w).into())
        };
        let route = Route {
            to: (*to).into(),
            via: after("via"),
            device: after("dev"),
            is_dead: kind.is_some() || tail.contains(&"linkdown") || tail.contains(&"dead"),
        };
        self.push(NetFact::Route(route), line, sink);
        true
    }

    /// `Settings for eth0:` and `NIC statistics:`.
    pub(super) fn ethtool(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if text == "NIC statistics:" {
            self.nic_statistics(line, sink);
            return true;
        }
        let Some(name) = text.strip_prefix("Settings for ").and_then(|r| r.strip_suffix(':')) else {
            return false;
        };
        let interface = Interface { name: name.into(), ..Interface::default() };
        self.open(FabricForm::Ethtool, NetFact::Interface(interface), line, sink);
        true
    }
}

fn address(word: &str) -> Box<str> {
    word.split('/').next().unwrap_or(word).into()
}

/// A line below an interface's heading.
pub(super) fn field(open: &mut OpenBlock, text: &str) -> bool {
    let NetFact::Interface(interface) = &mut open.fact else { return false };
    if open.form == FabricForm::IpAddr {
        let mut words = text.split_ascii_whitespace();
        return match words.next() {
            Some("inet" | "inet6") => {
                let found = words.next().filter(|w| w.contains('/'));
                if interface.addresses.len() < MAX_ADDRESSES {
                    interface.addresses.extend(found.map(address));
                    interface.networks.extend(found.and_then(Interface::network_of));
                }
                found.is_some()
            }
            Some(word) => word.starts_with("link/") || word == "valid_lft" || word == "altname",
            None => false,
        };
    }
    let Some((key, value)) = text.split_once(':') else { return false };
    let value = value.trim();
    match key.trim() {
        "Speed" => interface.speed_mbps = value.strip_suffix("Mb/s").and_then(|n| n.parse().ok()),
        "Link detected" => interface.link_detected = Some(value.starts_with("yes")),
        "Duplex"
        | "Auto-negotiation"
        | "Port"
        | "PHYAD"
        | "Transceiver"
        | "MDI-X"
        | "Supports Wake-on"
        | "Wake-on"
        | "Supported ports"
        | "Supported link modes"
        | "Advertised link modes"
        | "Supported FEC modes"
        | "Advertised FEC modes"
        | "Link partner advertised link modes"
        | "Current message level" => {}
        _ => return false,
    }
    true
}
