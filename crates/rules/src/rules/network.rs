//! IP between hosts: links, routes, names, ports, interfaces.

pub(super) mod firewall_or_port;
pub(super) mod hostname_resolution;
pub(super) mod interface_state;
pub(super) mod network_link_down;
pub(super) mod network_unreachable;
pub(super) mod no_route;
pub(super) mod path_test;
pub(super) mod port_in_use;
pub(super) mod wrong_interface;
pub(super) mod wrong_transport;
