//! TCPStore, rendezvous, sockets, Gloo, monitored barrier, missing back end.
//!
//! `torch.distributed.DistStoreError: Timed out after 9 seconds waiting for clients. 3/4 clients joined.` and its like
//! are written by pytorch/pytorch `torch/csrc/distributed/c10d/{TCPStore,TCPStoreLibUvBackend,socket}.cpp` and
//! `torch/distributed/elastic/rendezvous`; `[…/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.42]:12345`
//! by facebookincubator/gloo.

use ringleader_model::{GlooEvent, Rank, RankSet, StoreEvent, TorchEvent};

use super::desync::rank_list;
use super::scan::{after, between, clip, count_after, digits, number_after};

/// Bytes of a statement that are kept in an event.
const MAX_TEXT: usize = 1_000;

/// What a message says of store, sockets, Gloo or barrier.
pub(super) fn read(text: &str) -> Option<TorchEvent> {
    barrier(text)
        .or_else(|| gloo(text).map(TorchEvent::Gloo))
        .or_else(|| store(text).map(TorchEvent::Store))
        .or_else(|| no_nccl(text))
}

fn first_line(text: &str) -> Box<str> {
    clip(text.lines().next().unwrap_or_default(), MAX_TEXT).into()
}

/// Words of the rendezvous.
const RENDEZVOUS: [&str; 8] = [
    "RendezvousConnectionError",
    "RendezvousTimeoutError",
    "RendezvousClosedError",
    "RendezvousStateError",
    "RendezvousGracefulExitError",
    "keep-alive heartbeat",
    "have been removed from the rendezvous",
    "no more keep-alive",
];

/// Words of a connection to the store that broke.
const LOST: [&str; 8] = [
    "Failed to recv, got 0 bytes",
    "recvValueWithTimeout failed",
    "recvValue failed",
    "recvVector failed",
    "sendBytes failed",
    "Connection was likely closed",
    "\"should dump\" flag on TCPStore",
    "TCPStore server has shut down",
];

fn store(text: &str) -> Option<StoreEvent> {
    if text.contains("The client socket has timed out after ") {
        let address =
            between(text, "while trying to connect to ", ").").map(close_bracket).unwrap_or_default();
        return Some(StoreEvent::ConnectTimeout { address: address.into(), text: first_line(text) });
    }
    if text.contains("EADDRINUSE")
        || text.contains("Address already in use")
        || text.contains("address already in use")
    {
        return Some(StoreEvent::AddressInUse { port: port(text) });
    }
    if let Some(rest) =
        after(text, " clients joined").and_then(|_| between(text, "waiting for clients. ", " clients joined"))
    {
        let (joined, expected) = rest.split_once('/')?;
        return Some(StoreEvent::ClientsMissing {
            joined: joined.parse().ok()?,
            expected: expected.parse().ok()?,
        });
    }
    if text.contains("gai error")
        || text.contains("gaierror")
        || text.contains("Name or service not known")
        || text.contains("Temporary failure in name resolution")
    {
        let name = between(text, "addresses of (", ",").unwrap_or_default();
        return Some(StoreEvent::Unresolved { name: name.trim().into(), text: first_line(text) });
    }
    if let Some(rest) = after(text, "The client socket has failed to connect to ") {
        let address = rest.split([' ', ',']).next().unwrap_or_default().trim_end_matches('.');
        let errno = number_after(rest, "(errno: ").and_then(|n| i32::try_from(n).ok());
        return Some(StoreEvent::ConnectFailed { address: address.into(), errno, text: first_line(text) });
    }
    if let Some(rest) = after(text, "TCP client failed to connect/validate to host ") {
        let address = rest.split(' ').next().unwrap_or_default();
        return Some(StoreEvent::ConnectFailed {
            address: address.into(),
            errno: None,
            text: first_line(text),
        });
    }
    if let Some(rest) = between(text, "The server socket on ", " has timed out, will retry") {
        return Some(StoreEvent::ConnectFailed { address: rest.into(), errno: None, text: first_line(text) });
    }
    if text.contains("The server socket has failed to ") {
        return Some(StoreEvent::ConnectFailed {
            address: Box::default(),
            errno: number_after(text, "errno: ")
                .or_else(|| number_after(text, "code: -"))
                .and_then(|n| i32::try_from(n).ok()),
            text: first_line(text),
        });
    }
    let setter =
        after(text, "retrieving ncclUniqueId from [").and_then(|t| digits(t).0.parse().ok()).map(Rank);
    if let Some(rest) = after(text, "ait timeout after ") {
        let keys = after(rest, "keys: ").map(first_line).unwrap_or_default();
        return Some(StoreEvent::WaitTimeout {
            keys: keys.trim_end().trim_end_matches(". This may indicate").into(),
            setter,
        });
    }
    if text.contains("Socket Timeout") {
        return Some(StoreEvent::WaitTimeout { keys: Box::default(), setter });
    }
    if RENDEZVOUS.iter().any(|words| text.contains(words)) {
        return Some(StoreEvent::Rendezvous { text: first_line(text) });
    }
    let broken = text.contains("Broken pipe") || text.contains("Connection reset by peer");
    if LOST.iter().any(|words| text.contains(words))
        || (broken && (text.contains("SocketImpl") || text.contains("TCPStore")))
    {
        return Some(StoreEvent::ConnectionLost { text: first_line(text) });
    }
    setter.map(|rank| StoreEvent::WaitTimeout { keys: Box::default(), setter: Some(rank) })
}

/// `(10.0.0.1, 29500` gets back the bracket at which it was cut.
fn close_bracket(address: &str) -> String {
    if address.starts_with('(') { format!("{})", address.trim_end_matches(')')) } else { address.to_owned() }
}

fn port(text: &str) -> Option<u16> {
    count_after(text, "port: ")
        .or_else(|| {
            between(text, "to bind to ", " ")
                .and_then(|a| a.rsplit_once(':'))
                .and_then(|(_, p)| p.parse().ok())
        })
        .or_else(|| {
            between(text, "to listen on ", " ")
                .and_then(|a| a.rsplit_once(':'))
                .and_then(|(_, p)| p.parse().ok())
        })
        .and_then(|port| u16::try_from(port).ok())
}

fn gloo(text: &str) -> Option<GlooEvent> {
    let of_gloo = text.contains("gloo/") || text.contains("Gloo ") || text.contains("GLOO_SOCKET_IFNAME");
    if !of_gloo {
        return None;
    }
    if let Some(rest) = after(text, "Connection closed by peer ") {
        let peer = rest.split([' ', ',']).next().unwrap_or_default().trim_end_matches('.');
        return Some(GlooEvent::ClosedByPeer { peer: peer.into() });
    }
    if text.contains("Using the loopback address as fallback") {
        return Some(GlooEvent::LoopbackFallback);
    }
    if text.contains("Timed out waiting ") && text.contains("operation to complete") {
        return Some(GlooEvent::TimedOut);
    }
    let fails = text.contains("Connection refused")
        || text.contains("Connect timeout")
        || text.contains("connectFullMesh failed");
    if fails {
        let remote = after(text, "remote=")
            .or_else(|| after(text, "Connect timeout "))
            .or_else(|| after(text, " connect "))
            .map(|t| t.split([' ', ',', ')']).next().unwrap_or(t))
            .filter(|t| t.starts_with('['))
            .map(|t| t.trim_end_matches(':'))
            .unwrap_or_default();
        return Some(GlooEvent::ConnectFailed { remote: remote.into(), text: first_line(text) });
    }
    text.contains("gloo/transport").then(|| GlooEvent::Other { text: first_line(text) })
}

fn barrier(text: &str) -> Option<TorchEvent> {
    let (before, _) = text.split_once(" failed to pass monitoredBarrier")?;
    let list = before.rsplit_once("Ranks ").or_else(|| before.rsplit_once("Rank "))?.1;
    let absent: RankSet = rank_list(list);
    (!absent.is_empty()).then_some(TorchEvent::BarrierMissed { absent })
}

fn no_nccl(text: &str) -> Option<TorchEvent> {
    const WORDS: [&str; 4] = [
        "doesn't have NCCL built in",
        "ProcessGroupNCCL is only supported with GPUs",
        "NCCL is not available",
        "built without NCCL",
    ];
    WORDS.iter().any(|w| text.contains(w)).then(|| TorchEvent::NoNccl { text: first_line(text) })
}
