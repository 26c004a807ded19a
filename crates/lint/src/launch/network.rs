//! Network interfaces that a launch file names.

use super::{Launch, Setting};

/// Variables that name interfaces.
const INTERFACES: &[&str] = &["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];

/// A value that is no name of an interface.
#[derive(Debug)]
pub(crate) struct Misnamed<'l> {
    pub(crate) setting: &'l Setting,
    pub(crate) what: &'static str,
    /// Whether the value is written down, and not computed.
    pub(crate) is_written: bool,
}

/// Values that readers of these variables take for names and that are none.
pub(crate) fn misnamed<'l>(launch: &'l Launch<'_>) -> Vec<Misnamed<'l>> {
    let mut found: Vec<Misnamed<'l>> = Vec::new();
    for setting in launch.settings.iter().filter(|setting| INTERFACES.contains(&setting.name.as_str())) {
        if let Some(value) = &setting.value {
            let is_list = value.starts_with(['^', '=']) && setting.name != "NCCL_SOCKET_IFNAME";
            let first = value.trim_start_matches(['^', '=']).split(',').next().unwrap_or_default();
            let is_address = first.parse::<std::net::Ipv4Addr>().is_ok();
            let what = match (is_list, is_address) {
                (true, _) => "marks such as ^ and = are NCCL's: this one is read as the name of an interface",
                (_, true) => "an address stands where the name of an interface is read",
                _ => continue,
            };
            found.push(Misnamed { setting, what, is_written: true });
            continue;
        }
        // What the script computes, here or in a variable that it puts in.
        let mentions = |name: &str| {
            ["$", "${"].iter().any(|mark| {
                setting.raw.match_indices(&format!("{mark}{name}")).any(|(at, text)| {
                    let next = setting.raw.get(at + text.len()..).and_then(|rest| rest.chars().next());
                    !next.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
                })
            })
        };
        // What a command is given says nothing of what it prints.
        let is_command = setting.raw.contains("$(") || setting.raw.contains('`');
        let sources = launch
            .assigned
            .iter()
            .filter(|one| !is_command && one.name != setting.name && mentions(&one.name));
        for source in std::iter::once(setting).chain(sources).filter(|one| prints_address(&one.raw)) {
            if !found.iter().any(|known| known.setting.at == source.at) {
                let what = "hostname -I prints an address, and the name of an interface is read";
                found.push(Misnamed { setting: source, what, is_written: false });
            }
        }
    }
    found
}

/// Whether a command prints an address of the host rather than the name of an interface.
fn prints_address(raw: &str) -> bool {
    let asks = ["hostname -I", "hostname -i", "hostname --all-ip", "hostname --ip"];
    let names =
        ["ip -", "ip addr", "ip route", "ip link", "ifconfig", "/sys/class/net", "netstat", "route -n"];
    asks.iter().any(|word| raw.contains(word)) && !names.iter().any(|word| raw.contains(word))
}
