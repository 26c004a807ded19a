//! Network cards and links: mlx5_core, bnxt_en, EFA and Ethernet drivers in general, bonding, software bridges.
//!
//! ```text
//! mlx5_core 0000:5e:00.0: device's health compromised - reached miss count
//! mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN
//! bnxt_en 0000:01:00.0 eth0: NIC Link is Down
//! br77: port 3(vh2) entered disabled state
//! ```

use ringleader_knowledge::driver;
use ringleader_model::{KernelEventKind, LinkMedium, LinkState, NicTrouble, PciAddress};

use super::fields::{after, between, pci};
use super::statements::FamilyAnswer;

pub(super) fn read(text: &str) -> FamilyAnswer {
    if let Some(told) = bridge(text) {
        return told;
    }
    if let Some(rest) = after(text, "NETDEV WATCHDOG: ") {
        // `eth0 (mlx5_core): transmit queue 3 timed out`; newer kernels put the driver behind `CPU: 4:`.
        let (name, rest) = rest.split_once(" (").unwrap_or((rest, ""));
        let driver = rest.split(')').next().unwrap_or_default();
        let kind = KernelEventKind::NicTrouble {
            driver: driver.into(),
            interface: Some(name.into()),
            trouble: NicTrouble::TransmitTimeout,
        };
        return FamilyAnswer::event(None, kind);
    }
    if let Some((name, state)) = bond(text) {
        return link(name, state, LinkMedium::Ethernet);
    }
    if let Some(head) = text.strip_suffix(": link becomes ready") {
        let name = head.rsplit([' ', ':']).next().unwrap_or_default();
        return if is_interface(name) {
            link(name, LinkState::Up, LinkMedium::Ethernet)
        } else {
            FamilyAnswer::Nothing
        };
    }
    card(text).unwrap_or(FamilyAnswer::Nothing)
}

fn link(name: &str, state: LinkState, medium: LinkMedium) -> FamilyAnswer {
    link_of(None, "", name, state, medium)
}

fn link_of(
    device: Option<PciAddress>,
    driver: &str,
    name: &str,
    state: LinkState,
    medium: LinkMedium,
) -> FamilyAnswer {
    let kind = KernelEventKind::Link { interface: name.into(), driver: driver.into(), state, medium };
    FamilyAnswer::event(device, kind)
}

fn is_interface(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@'))
}

/// `br77: port 3(vh2) entered disabled state`, `vh2 (unregistering): left promiscuous mode`,
/// `vh2: left promiscuous mode`.
fn bridge(text: &str) -> Option<FamilyAnswer> {
    if let Some((_, rest)) = text.split_once(": port ") {
        let name = between(rest, "(", ")")?;
        let state = match rest.rsplit_once(" entered ")?.1 {
            "disabled state" => LinkState::Down,
            "forwarding state" => LinkState::Up,
            _ => return Some(FamilyAnswer::Part),
        };
        return Some(link(name, state, LinkMedium::Bridge));
    }
    let head = text
        .strip_suffix(": left promiscuous mode")
        .or_else(|| text.strip_suffix(" left promiscuous mode"))?;
    let head = head.strip_prefix("device ").unwrap_or(head);
    let (name, state) = match head.strip_suffix(" (unregistering)") {
        Some(name) => (name, LinkState::Removed),
        None => (head, LinkState::Down),
    };
    is_interface(name).then(|| link(name, state, LinkMedium::Bridge))
}

/// `bond0: (slave eth0): link status definitely down, disabling slave`, and the older
/// `bonding: bond0: link status definitely down for interface eth0, disabling it`. Of the bond itself:
/// `bond0: now running without any active interface!`, and `bond0: (slave eth1): making interface the new active one`.
fn bond(text: &str) -> Option<(&str, LinkState)> {
    let text = text.strip_prefix("bonding: ").unwrap_or(text);
    let state = if text.contains("without any active interface") {
        Some(LinkState::Down)
    } else {
        text.contains("the new active one").then_some(LinkState::Up)
    };
    if let Some(state) = state {
        let (name, _) = text.split_once(": ")?;
        return is_interface(name).then_some((name, state));
    }
    let (head, rest) = text.split_once("link status definitely ")?;
    let state = if rest.starts_with("down") { LinkState::Down } else { LinkState::Up };
    let name = between(head, "(slave ", ")")
        .or_else(|| Some(after(rest, "for interface ")?.split([',', ' ']).next().unwrap_or_default()))?;
    is_interface(name).then_some((name, state))
}

/// `driver 0000:0c:00.0[ name]: message`; mlx5 and ib devices also speak as `infiniband mlx5_0: …`.
fn card(text: &str) -> Option<FamilyAnswer> {
    let (driver, rest) = text.split_once(' ')?;
    if driver == "infiniband" {
        let (name, message) = rest.split_once(": ")?;
        return message
            .contains("dump error cqe")
            .then(|| trouble(None, driver, Some(name), NicTrouble::Completion));
    }
    let (place, message) = rest.split_once(": ")?;
    let mut words = place.split_ascii_whitespace();
    let Some(device) = words.next().and_then(pci) else {
        // `tg3`-like drivers of virtual machines name no address: `vmxnet3 eth0: NIC Link is Down`.
        let name = place.trim();
        let state = net_link(message)?;
        return (is_driver(driver) && is_interface(name))
            .then(|| link_of(None, driver, name, state, LinkMedium::Ethernet));
    };
    let name = words.next().filter(|n| is_interface(n));
    if let Some(port) = after(message, "Link ").filter(|_| message.starts_with("Port: ")) {
        let state = match port.split_ascii_whitespace().next()? {
            "DOWN" => LinkState::Down,
            "ACTIVE" => LinkState::Up,
            _ => return Some(FamilyAnswer::Part),
        };
        return Some(link_of(Some(device), driver, name.unwrap_or(driver), state, LinkMedium::InfiniBand));
    }
    if let Some(state) = net_link(message) {
        let inner = message.split_once(": ").map(|(n, _)| n).filter(|n| is_interface(n));
        return Some(link_of(
            Some(device),
            driver,
            name.or(inner).unwrap_or(driver),
            state,
            LinkMedium::Ethernet,
        ));
    }
    let sort = sort_of(driver, message)?;
    Some(trouble(Some(device), driver, name, sort))
}

fn is_driver(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_') && name.len() > 2
}

/// `NIC Link is Down`, `Link is Up`, `Link down`, `eth2: Link up`.
fn net_link(message: &str) -> Option<LinkState> {
    let message = message.split_once(": ").filter(|(n, _)| is_interface(n)).map_or(message, |(_, m)| m);
    // igb names the interface once more: `igb: eth0 NIC Link is Down`.
    let message = match message.split_once(" NIC Link ") {
        Some((name, _)) if is_interface(name) => message.get(name.len() + 1..).unwrap_or(message),
        _ => message,
    };
    let rest = message.strip_prefix("NIC ").unwrap_or(message);
    let rest = rest.strip_prefix("Link ").or_else(|| rest.strip_prefix("link "))?;
    let word = rest.strip_prefix("is ").unwrap_or(rest).split([' ', ',', '.', '-']).next()?;
    match word.to_ascii_lowercase().as_str() {
        "down" => Some(LinkState::Down),
        "up" => Some(LinkState::Up),
        _ => None,
    }
}

fn trouble(
    device: Option<PciAddress>,
    driver: &str,
    interface: Option<&str>,
    sort: NicTrouble,
) -> FamilyAnswer {
    let kind = KernelEventKind::NicTrouble {
        driver: driver.into(),
        interface: interface.map(Into::into),
        trouble: sort,
    };
    FamilyAnswer::event(device, kind)
}

/// What a card's message is about; None for the many that mean nothing.
fn sort_of(driver: &str, message: &str) -> Option<NicTrouble> {
    let has = |words: &[&str]| words.iter().any(|w| message.contains(w));
    if !driver::tells_trouble(driver) {
        return None;
    }
    // A restricted function may not read some registers; nothing follows from it.
    if has(&["ACCESS_REG", "QUERY_"]) && has(&["bad resource", "bad parameter", "bad operation"]) {
        return None;
    }
    if has(&[
        "health compromised",
        "firmware internal error",
        "Fatal error, firmware",
        "PCI reads still not working",
        "FW fatal error",
        "Firmware fatal",
        "firmware fatal",
        "Device is in failed state",
    ]) {
        Some(NicTrouble::Dead)
    } else if has(&["No done completion", "timeout. Will cause a leak", "Completion timeout", "cmd timeout"])
    {
        Some(NicTrouble::CommandTimeout)
    } else if has(&["TX timeout", "transmit queue", "Tx timeout"]) {
        Some(NicTrouble::TransmitTimeout)
    } else if has(&["Cable error", "Cable unplugged", "High Temperature", "Bad unsupported EEPROM"]) {
        Some(NicTrouble::Module)
    } else if has(&["insufficient power"]) {
        Some(NicTrouble::Power)
    } else if has(&["dump error cqe", "CQ error on CQN"]) {
        Some(NicTrouble::Completion)
    } else if driver == "efa" && has(&["rror", "ailed", "imeout", "timed out"]) {
        Some(NicTrouble::Other)
    } else {
        None
    }
}
