//! Names of hosts.

use ringleader_model::Host;
use ringleader_model::address::short_name;

/// A host name up to its first dot; an address as it is.
pub(crate) fn host_of(value: &str) -> Host {
    short_name(value).into()
}
