//! Counters of network ports that tell of errors, in the forms of perfquery, sysfs, `ethtool -S` and mlxlink.
//!
//! Counters that are noise on a healthy port (relay errors, dropped management packets, time spent waiting for credit) are left
//! out. Source: Linux Documentation/ABI/stable/sysfs-class-infiniband; linux-rdma/rdma-core perfquery; counters of the mlx5 driver.

/// What it means that a counter grows between two readings that a person took, in the order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The link went down.
    Down,
    /// The link recovered from errors by itself.
    Recovered,
    /// Answers are late or refused.
    Refused,
    /// Bits are lost.
    Bits,
    /// Packets find no buffer.
    Discarded,
}

impl Growth {
    /// All, in the order of precedence.
    pub const ALL: [Self; 5] = [Self::Down, Self::Recovered, Self::Refused, Self::Bits, Self::Discarded];
}

/// What it means that a counter of sysfs grows while somebody looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortTrouble {
    /// The link itself went down.
    Down,
    /// Bits were lost on the cable or in the port.
    Physical,
    /// Packets or answers were lost somewhere on the path, or the peer does not keep up.
    Transport,
    /// Not an error by itself.
    Shown,
}

impl PortTrouble {
    /// All, the worst first.
    pub const ALL: [Self; 4] = [Self::Down, Self::Physical, Self::Transport, Self::Shown];
}

/// One counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounter {
    /// Its name, as printed.
    pub name: &'static str,
    /// Readers of counters keep it as an error.
    pub is_error: bool,
    /// What its growth means between two readings, if that alone tells something.
    pub growth: Option<Growth>,
    /// What its growth means on a port that is looked at.
    pub trouble: Option<PortTrouble>,
}

impl PortCounter {
    const fn error(name: &'static str) -> Self {
        Self { name, is_error: true, growth: None, trouble: None }
    }

    /// Of a port that is looked at only.
    const fn looked_at(name: &'static str, trouble: PortTrouble) -> Self {
        Self { name, is_error: false, growth: None, trouble: Some(trouble) }
    }

    /// As mlxlink prints it: its reader knows the name.
    const fn of_mlxlink(name: &'static str, growth: Growth) -> Self {
        Self { name, is_error: false, growth: Some(growth), trouble: None }
    }

    const fn grows(self, growth: Growth) -> Self {
        Self { growth: Some(growth), ..self }
    }

    const fn on_port(self, trouble: PortTrouble) -> Self {
        Self { trouble: Some(trouble), ..self }
    }
}

/// All counters. Who shows several shows them in this order.
pub const COUNTERS: [PortCounter; 49] = [
    PortCounter::error("LinkDownedCounter").grows(Growth::Down),
    PortCounter::error("link_downed").grows(Growth::Down).on_port(PortTrouble::Down),
    PortCounter::error("link_down_events_phy").grows(Growth::Down),
    PortCounter::of_mlxlink("Link Down Counter", Growth::Down),
    PortCounter::error("LinkErrorRecoveryCounter").grows(Growth::Recovered),
    PortCounter::error("link_error_recovery").grows(Growth::Recovered).on_port(PortTrouble::Physical),
    PortCounter::of_mlxlink("Link Error Recovery Counter", Growth::Recovered),
    PortCounter::error("SymbolErrorCounter").grows(Growth::Bits),
    PortCounter::error("symbol_error").grows(Growth::Bits).on_port(PortTrouble::Physical),
    PortCounter::of_mlxlink("Symbol Errors", Growth::Bits),
    PortCounter::error("PortRcvErrors").grows(Growth::Bits),
    PortCounter::error("port_rcv_errors").grows(Growth::Bits).on_port(PortTrouble::Physical),
    PortCounter::error("PortRcvRemotePhysicalErrors"),
    PortCounter::error("port_rcv_remote_physical_errors").on_port(PortTrouble::Physical),
    PortCounter::error("LocalLinkIntegrityErrors"),
    PortCounter::error("local_link_integrity_errors").on_port(PortTrouble::Physical),
    PortCounter::error("ExcessiveBufferOverrunErrors"),
    PortCounter::error("excessive_buffer_overrun_errors").on_port(PortTrouble::Physical),
    PortCounter::error("PortXmitDiscards"),
    PortCounter::error("port_xmit_discards").on_port(PortTrouble::Transport),
    PortCounter::looked_at("port_xmit_constraint_errors", PortTrouble::Transport),
    PortCounter::looked_at("port_rcv_constraint_errors", PortTrouble::Transport),
    PortCounter::error("local_ack_timeout_err").grows(Growth::Refused).on_port(PortTrouble::Transport),
    PortCounter::error("packet_seq_err").grows(Growth::Bits).on_port(PortTrouble::Transport),
    PortCounter::error("out_of_sequence").on_port(PortTrouble::Transport),
    PortCounter::looked_at("implied_nak_seq_err", PortTrouble::Transport),
    PortCounter::error("rnr_nak_retry_err").grows(Growth::Refused).on_port(PortTrouble::Transport),
    PortCounter::looked_at("req_transport_retries_exceeded", PortTrouble::Transport),
    PortCounter::looked_at("req_rnr_retries_exceeded", PortTrouble::Transport),
    PortCounter::error("req_remote_access_errors").grows(Growth::Refused).on_port(PortTrouble::Transport),
    PortCounter::looked_at("resp_remote_access_errors", PortTrouble::Transport),
    PortCounter::looked_at("roce_adp_retrans", PortTrouble::Transport),
    PortCounter::error("roce_adp_retrans_to").on_port(PortTrouble::Transport),
    PortCounter::looked_at("out_of_buffer", PortTrouble::Transport),
    PortCounter::error("rx_symbol_err_phy").grows(Growth::Bits),
    PortCounter::error("rx_crc_errors_phy").grows(Growth::Bits),
    PortCounter::error("rx_crc_errors").grows(Growth::Bits),
    PortCounter::error("rx_fcs_errors").grows(Growth::Bits),
    PortCounter::error("rx_icrc_encapsulated").grows(Growth::Bits).on_port(PortTrouble::Physical),
    PortCounter::of_mlxlink("Effective Physical Errors", Growth::Bits),
    PortCounter::error("rx_discards_phy").grows(Growth::Discarded),
    PortCounter::error("tx_discards_phy").grows(Growth::Discarded),
    PortCounter::error("rx_prio3_buf_discard").grows(Growth::Discarded),
    PortCounter::error("rx_prio3_discards").grows(Growth::Discarded),
    PortCounter::looked_at("np_cnp_sent", PortTrouble::Shown),
    PortCounter::looked_at("rp_cnp_handled", PortTrouble::Shown),
    PortCounter::looked_at("np_ecn_marked_roce_packets", PortTrouble::Shown),
    PortCounter::looked_at("roce_slow_restart", PortTrouble::Shown),
    PortCounter::looked_at("roce_slow_restart_trans", PortTrouble::Shown),
];

/// Whether a reader keeps a counter of this name as an error.
pub fn is_error(name: &str) -> bool {
    COUNTERS.iter().any(|counter| counter.is_error && counter.name == name)
}

/// Names of counters whose growth means this, in order.
pub fn growing(growth: Growth) -> impl Iterator<Item = &'static str> {
    COUNTERS.iter().filter(move |counter| counter.growth == Some(growth)).map(|counter| counter.name)
}

/// Counters of a port that is looked at, the worst first, and what their growth means.
pub fn of_port() -> impl Iterator<Item = (&'static str, PortTrouble)> {
    PortTrouble::ALL.into_iter().flat_map(|trouble| {
        let of_it = COUNTERS.iter().filter(move |counter| counter.trouble == Some(trouble));
        of_it.map(move |counter| (counter.name, trouble))
    })
}

#[cfg(test)]
mod tests {
    use super::{COUNTERS, Growth, growing, is_error, of_port};

    #[test]
    fn each_counter_stands_once() {
        for (at, counter) in COUNTERS.iter().enumerate() {
            assert!(COUNTERS.iter().skip(at + 1).all(|other| other.name != counter.name), "{}", counter.name);
        }
    }

    #[test]
    fn errors_of_readers_and_names_of_one_tool() {
        assert!(is_error("symbol_error") && is_error("rx_prio3_discards"));
        // mlxlink's reader knows it; congestion control is no error.
        assert!(!is_error("Symbol Errors") && !is_error("np_cnp_sent"));
        let refused: Vec<&str> = growing(Growth::Refused).collect();
        assert_eq!(refused, ["local_ack_timeout_err", "rnr_nak_retry_err", "req_remote_access_errors"]);
        assert_eq!(of_port().next().map(|(name, _)| name), Some("link_downed"));
    }
}
