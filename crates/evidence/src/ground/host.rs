//! Names of hosts.

use ringleader_model::Host;

/// A host name up to its first dot; an address as it is.
pub(crate) fn host_of(value: &str) -> Host {
    let is_address = value.parse::<std::net::IpAddr>().is_ok();
    let short = if is_address { value } else { value.split('.').next().unwrap_or(value) };
    short.into()
}
