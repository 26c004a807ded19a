//! Counters of network ports.

/// Names that tell of errors, in the forms of perfquery, sysfs and Ethernet drivers. Those that are noise on a healthy
/// port (relay errors, dropped management packets, time spent waiting for credit) are left out.
const ERRORS: [&str; 32] = [
    "SymbolErrorCounter",
    "LinkErrorRecoveryCounter",
    "LinkDownedCounter",
    "PortRcvErrors",
    "PortRcvRemotePhysicalErrors",
    "PortXmitDiscards",
    "LocalLinkIntegrityErrors",
    "ExcessiveBufferOverrunErrors",
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "local_ack_timeout_err",
    "packet_seq_err",
    "out_of_sequence",
    "rnr_nak_retry_err",
    "req_remote_access_errors",
    "roce_adp_retrans_to",
    "rx_icrc_encapsulated",
    "link_down_events_phy",
    "rx_symbol_err_phy",
    "rx_crc_errors_phy",
    "rx_discards_phy",
    "tx_discards_phy",
    "rx_crc_errors",
    "rx_fcs_errors",
    "rx_prio3_buf_discard",
    "rx_prio3_discards",
];

/// Whether a counter of this name tells of errors.
pub(crate) fn is_error_counter(name: &str) -> bool {
    ERRORS.contains(&name)
}
