//! The fabric and the network: what their tools print, anywhere in a file.
//!
//! | tool | identified by |
//! |---|---|
//! | ibstat | `CA 'mlx5_0'`, `Port 1:` |
//! | ibstatus | `Infiniband device 'mlx5_0' port 1 status:` |
//! | ibv_devinfo | `hca_id: mlx5_0`, `port: 1` |
//! | `rdma link` | `link mlx5_0/1 state ACTIVE physical_state LINK_UP` |
//! | mlxlink | `Operational Info` |
//! | sysfs | `/sys/class/infiniband/mlx5_0/ports/1/state:4: ACTIVE` |
//! | perfquery | `# Port counters: Lid 1 port 1` |
//! | show_gids | `DEV PORT INDEX GID` |
//! | ibdiagnet | `-E- …`, `-I- Stage … Warnings … Errors` |
//! | `ip addr`, `ip -br addr`, `ip route` | `2: eth0: <…> mtu 1500`, `eth0 UP 192.0.2.2/24`, `default via … dev …` |
//! | ethtool, `ethtool -S` | `Settings for eth0:`, `NIC statistics:` |
//! | ss, netstat | `LISTEN 0 128 0.0.0.0:29500 …` |
//! | nc, ncat, ping | their sentences |
//! | perftest | `RDMA_Write BW Test` |
//!
//! `ip -j addr`, `rdma -j link` and `mlxlink --json` are read as documents.
//!
//! Sources: linux-rdma/rdma-core infiniband-diags and libibverbs/examples, iproute2, ethtool, iputils, netcat-openbsd,
//! linux-rdma/perftest, NVIDIA's mft and ibutils2. A shell's line above a table names the device where the table does not.

mod counters;
mod json;
mod links;
mod ports;
mod reach;

use std::sync::Arc;

use ringleader_model::{Fact, Host, NetFact, PortCounters, SourceKind};

use crate::ground::{Line, LineReader, Sink, TableSpan, Wants, shell};

pub(crate) use json::read_json;

/// Lines of other things after which a block is over.
const MAX_GAP_LINES: u32 = 40;
/// Longest line that can be ours.
const MAX_LINE: usize = 600;

/// Headings and sentences of the tools, and commands above them.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        vec![
            "/sys/class/infiniband",
            ": <",
            " state ",
            " via ",
            " dev ",
            "% packet loss",
            "LISTEN",
            "CA '",
            "hca_id:",
            "Infiniband device '",
            "Operational Info",
            "Port 0",
            "BW Test",
            "BW average[",
            "Couldn't ",
            "Unable to ",
            "Failed ",
            "Completion with error",
            "Settings for ",
            "NIC statistics:",
            "Connection to ",
            "nc: ",
            "(UNKNOWN) [",
            "Ncat: ",
            "PING ",
            "ping: ",
            "/dev/tcp/",
            "unreachable ",
            "blackhole ",
            "prohibit ",
        ]
    },
    begins: |line| {
        let line = line.trim_ascii();
        [&b"DEV"[..], b"port:", b"-I- ", b"-E- ", b"-W- ", b"#"].iter().any(|s| line.starts_with(s))
            || links::is_brief(line)
            || shell::may_be_command(line)
    },
};

/// What the fabric's and the network's tools print.
#[derive(Default)]
pub(crate) struct FabricReader {
    open: Option<OpenBlock>,
    /// Device that a heading named, for the ports below it.
    device: Option<Box<str>>,
    /// The command above.
    asked: Option<Box<str>>,
    /// Host of the prompt before it.
    host: Option<Host>,
    /// The last line of ibdiagnet's summary.
    in_stages: Option<u32>,
    /// Below show_gids' heading.
    in_gids: bool,
    is_cut: bool,
}

/// A block of several lines.
struct OpenBlock {
    form: FabricForm,
    fact: NetFact,
    /// mlxlink prints state and counters in one.
    counters: PortCounters,
    /// perftest's unit, once its table's heading was there: gigabits or mebibytes.
    in_gigabits: Option<bool>,
    span: TableSpan,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FabricForm {
    Ibstat,
    Ibstatus,
    Devinfo,
    Mlxlink,
    Perfquery,
    Ethtool,
    EthtoolStats,
    Sysfs,
    IpAddr,
    Ping,
    Perftest,
}

impl LineReader for FabricReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let body = line.body.trim_ascii();
        let Some(&first) = body.first() else {
            self.in_gids = false;
            return false;
        };
        if self.is_cut || body.len() > MAX_LINE {
            return false;
        }
        let is_over = |o: &OpenBlock| line.number > o.span.last_line.saturating_add(MAX_GAP_LINES);
        if self.open.as_ref().is_some_and(is_over) {
            self.close(sink);
        }
        if self.open.is_none() && self.device.is_none() && !self.in_gids && !may_begin(first, body) {
            return false;
        }
        let Ok(text) = std::str::from_utf8(body) else { return false };
        if self.goes_on(text, line, sink) || self.begins(first, text, line, sink) {
            return true;
        }
        if let Some(command) = shell::command(text) {
            self.close(sink);
            self.asked = Some(command.into());
            self.host = shell::host(text).map(Arc::from).or(self.host.take());
            self.device = None;
            self.in_gids = false;
        }
        false
    }

    fn awake_until(&self) -> u32 {
        if self.open.is_some() || self.in_gids { u32::MAX } else { 0 }
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.close(sink);
    }
}

/// Whether a line that begins so is worth a closer look while nothing is open: most lines of a program are not.
fn may_begin(first: u8, body: &[u8]) -> bool {
    let any = |starts: &[&str]| starts.iter().any(|s| body.starts_with(s.as_bytes()));
    match first {
        b'0'..=b'9' | b'#' | b'/' | b'-' | b'+' | b'$' | b'=' | b'[' => true,
        b'C' => any(&["CA '", "Connection to ", "Couldn't "]),
        b'D' => any(&["DEV"]),
        b'F' => any(&["From ", "Failed "]),
        b'I' => any(&["Infiniband device '"]),
        b'L' => any(&["LISTEN"]),
        b'N' => any(&["NIC statistics:", "Ncat: "]),
        b'O' => any(&["Operational Info"]),
        b'P' => any(&["PING "]),
        b'R' => any(&["RDMA_", "RDMA "]),
        b'S' => any(&["Settings for ", "Send "]),
        b'U' => any(&["Unable to Connect"]),
        b'(' => any(&["(UNKNOWN) ["]),
        _ => {
            any(&[
                "hca_id:",
                "link ",
                "default ",
                "unreachable ",
                "blackhole ",
                "nc: ",
                "ping: ",
                "tcp",
                "bash: ",
            ]) || links::is_brief(body)
                || memchr::memmem::find(body, b"@").is_some()
        }
    }
}

impl FabricReader {
    fn begins(&mut self, first: u8, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        match first {
            b'/' => self.sysfs(text, line, sink),
            b'#' => self.perfquery(text, line, sink) || self.perftest_table(text, line, sink),
            b'0'..=b'9' => {
                self.ip_addr(text, line, sink)
                    || self.rdma_link(text, line, sink)
                    || self.route(text, line, sink)
                    || self.ping_summary(text, line, sink)
            }
            b'-' => self.ibdiagnet(text, line, sink),
            b'L' | b't' => self.listener(text, line, sink) || self.interface_in_brief(text, line, sink),
            _ => {
                self.port(text, line, sink)
                    || self.rdma_link(text, line, sink)
                    || self.gids(text, line, sink)
                    || self.ethtool(text, line, sink)
                    || self.perftest(text, line, sink)
                    || self.reach(text, line, sink)
                    || self.route(text, line, sink)
                    || self.interface_in_brief(text, line, sink)
            }
        }
    }

    fn goes_on(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(open) = &mut self.open else { return false };
        let taken = match open.form {
            FabricForm::Ibstat | FabricForm::Ibstatus | FabricForm::Devinfo => ports::field(open, text),
            FabricForm::Mlxlink => ports::mlxlink_field(open, text, line.number),
            FabricForm::Perfquery => counters::field(open, text, line.number),
            FabricForm::EthtoolStats => counters::statistic(open, text, line.number),
            FabricForm::Ethtool | FabricForm::IpAddr => links::field(open, text),
            FabricForm::Ping => reach::ping_line(open, text),
            FabricForm::Perftest => reach::perftest_line(open, text, line.number),
            FabricForm::Sysfs => false,
        };
        if taken {
            open.span.add(line, sink);
        }
        taken
    }

    /// Opens a block.
    fn open(&mut self, form: FabricForm, fact: NetFact, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.close(sink);
        let span = self.span(line, sink);
        self.open =
            Some(OpenBlock { form, fact, counters: PortCounters::default(), in_gigabits: None, span });
    }

    fn span(&self, line: &Line<'_>, sink: &Sink<'_>) -> TableSpan {
        let mut span = TableSpan::begin(line, sink);
        span.on(self.host.as_ref());
        span
    }

    /// A fact of one line.
    fn push(&mut self, fact: NetFact, line: &Line<'_>, sink: &mut Sink<'_>) {
        self.close(sink);
        self.span(line, sink).push(SourceKind::Network, Fact::Net(Box::new(fact)), sink);
    }

    fn close(&mut self, sink: &mut Sink<'_>) {
        let Some(OpenBlock { fact, counters, span, .. }) = self.open.take() else { return };
        if !counters.errors.is_empty() {
            let fact = Fact::Net(Box::new(NetFact::Counters(counters)));
            span.clone().push(SourceKind::Network, fact, sink);
        }
        let is_empty = match &fact {
            NetFact::Port(port) => port.state.is_none() && port.phys_state.is_none(),
            NetFact::Counters(counters) => counters.errors.is_empty() && counters.moved.is_none(),
            _ => false,
        };
        if !is_empty {
            span.push(SourceKind::Network, Fact::Net(Box::new(fact)), sink);
        }
    }

    /// The device that the command above names.
    fn asked_device(&self, program: &str, flags: &[&str]) -> Option<&str> {
        let command = self.asked.as_deref().filter(|c| shell::runs(c, program))?;
        shell::argument(command, flags)
    }
}

#[cfg(test)]
mod tests;
