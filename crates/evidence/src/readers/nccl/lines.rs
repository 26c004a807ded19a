//! The lines whose fields are read: COLL, the life of a communicator, channels, back-traces.
//!
//! Each function asks for the whole of its form, so that a line that was cut or torn gives nothing rather than a wrong
//! number.

use memchr::memmem;
use ringleader_model::{OpKind, PciAddress};

use super::header::is_origin;
use crate::ground::scan::Scan;

/// `AllReduce: opCount 2c sendbuff 0x… recvbuff 0x… count 1 datatype 7 op 0 root 0 comm 0x… [nranks=4] stream 0x…`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CollLine {
    pub(super) kind: OpKind,
    pub(super) op_count: u64,
    pub(super) count: u64,
    pub(super) datatype: u8,
    pub(super) redop: u8,
    pub(super) root: i32,
    pub(super) comm: u64,
    pub(super) n_ranks: u32,
}

/// What a line that may be a COLL line turned out to be.
pub(super) enum MaybeColl {
    Coll(CollLine),
    /// It began like one and broke off.
    Broken,
    /// `AllReduce: 4 Bytes -> Algo …`.
    Tuning,
    No,
}

/// Reads a COLL line. The name is the API's without `nccl`.
#[inline]
pub(super) fn coll(text: &[u8]) -> MaybeColl {
    let Some(colon) = text.iter().take(24).position(|b| !b.is_ascii_alphanumeric()) else {
        return MaybeColl::No;
    };
    let Some((name, rest)) = text.split_at_checked(colon) else { return MaybeColl::No };
    let mut scan = Scan(rest);
    if scan.lit(b": opCount ").is_none() {
        return match rest {
            [b':', b' ', b'0'..=b'9', ..] if memmem::find(rest, b" Bytes -> ").is_some() => MaybeColl::Tuning,
            _ => MaybeColl::No,
        };
    }
    coll_fields(name, scan).map_or(MaybeColl::Broken, MaybeColl::Coll)
}

#[inline]
fn coll_fields(name: &[u8], mut scan: Scan<'_>) -> Option<CollLine> {
    let op_count = scan.hex()?;
    scan.lit(b" sendbuff ")?;
    scan.word()?;
    scan.lit(b" recvbuff ")?;
    scan.word()?;
    scan.lit(b" count ")?;
    let count = scan.dec()?;
    scan.lit(b" datatype ")?;
    let datatype = u8::try_from(scan.dec()?).ok()?;
    scan.lit(b" op ")?;
    // Numbers of user-made reductions grow without bound; all of them are "made by the caller".
    let redop = scan.dec()?.min(255) as u8;
    scan.lit(b" root ")?;
    let root = i32::try_from(scan.int()?).ok()?;
    scan.lit(b" comm ")?;
    let comm = scan.pointer()?;
    scan.lit(b" [nranks=")?;
    let n_ranks = scan.dec32()?;
    scan.lit(b"] stream ")?;
    if scan.0.is_empty() {
        return None;
    }
    let kind = match name {
        b"AllReduce" => OpKind::AllReduce,
        b"AllGather" => OpKind::AllGather,
        b"ReduceScatter" => OpKind::ReduceScatter,
        _ => OpKind::from_nccl(std::str::from_utf8(name).ok()?),
    };
    Some(CollLine { kind, op_count, count, datatype, redop, root, comm, n_ranks })
}

/// What a line says of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommEvent {
    InitStart,
    InitComplete,
    Destroyed,
    Aborted,
    Revoked,
    /// Its placement on nodes.
    Placed,
}

/// `ncclCommSplit comm 0x… rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 parent 0x… color 0 key 0- Init START`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommLine<'a> {
    pub(super) event: CommEvent,
    pub(super) api: Option<&'a [u8]>,
    pub(super) ptr: u64,
    pub(super) rank: u32,
    pub(super) n_ranks: u32,
    pub(super) cuda_dev: Option<u32>,
    pub(super) nvml_dev: Option<u32>,
    pub(super) gpu: Option<PciAddress>,
    pub(super) comm_id: Option<u64>,
    pub(super) parent: Option<u64>,
    pub(super) color: Option<i64>,
}

/// Reads a line about the life of a communicator: `[Rank 0] API comm POINTER KEY VALUE … - EVENT`.
pub(super) fn life(text: &[u8], cut: bool) -> Option<CommLine<'_>> {
    let mut scan = Scan(text);
    if scan.lit(b"[Rank ").is_some() {
        scan.dec()?;
        scan.lit(b"] ")?;
    }
    let mut api = None;
    if scan.lit(b"comm ").is_none() {
        api = Some(scan.word()?);
        scan.lit(b" comm ")?;
    }
    let ptr = scan.pointer()?;
    let (mut rank, mut n_ranks) = (None, None);
    let mut life = CommLine {
        event: CommEvent::Placed,
        api,
        ptr,
        rank: 0,
        n_ranks: 0,
        cuda_dev: None,
        nvml_dev: None,
        gpu: None,
        comm_id: None,
        parent: None,
        color: None,
    };
    loop {
        // 2.23 glues the dash to the last number of a split: `key 0- Init START`.
        let _ = scan.lit(b" ");
        if scan.lit(b"- ").is_some() {
            life.event = event(scan.0)?;
            break;
        }
        if scan.0.is_empty() {
            if cut {
                return None;
            }
            break;
        }
        let key = scan.word()?;
        scan.lit(b" ")?;
        match key {
            b"rank" => rank = Some(scan.dec32()?),
            b"nranks" | b"nRanks" => n_ranks = Some(scan.dec32()?),
            b"cudaDev" => life.cuda_dev = u32::try_from(scan.int()?).ok(),
            b"nvmlDev" => life.nvml_dev = u32::try_from(scan.int()?).ok(),
            b"busId" => life.gpu = Some(PciAddress::from_nccl_bus_id(scan.hex()?)),
            b"commId" => life.comm_id = Some(scan.pointer()?),
            b"parent" => life.parent = Some(scan.pointer()?),
            b"color" => life.color = Some(scan.int()?),
            _ if scan.pointer().is_some() || scan.int().is_some() => {}
            _ => return None,
        }
    }
    (life.rank, life.n_ranks) = (rank?, n_ranks?);
    Some(life)
}

fn event(text: &[u8]) -> Option<CommEvent> {
    let events = [
        (&b"Init START"[..], CommEvent::InitStart),
        (b"Init COMPLETE", CommEvent::InitComplete),
        (b"Destroy COMPLETE", CommEvent::Destroyed),
        (b"Abort START", CommEvent::Aborted),
        (b"Abort COMPLETE", CommEvent::Aborted),
        (b"Revoke START", CommEvent::Revoked),
        (b"Revoke COMPLETE", CommEvent::Revoked),
    ];
    events.into_iter().find_map(|(words, event)| text.starts_with(words).then_some(event))
}

/// `Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel<'a> {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) is_send: Option<bool>,
    pub(super) transport: &'a [u8],
}

/// Reads a channel line; the ring listing `Channel 00/24 : 0 1 2 3` is none.
pub(super) fn channel(text: &[u8]) -> Option<Channel<'_>> {
    let mut scan = Scan(text);
    scan.lit(b"Channel ")?;
    number_of(&mut scan)?;
    let from = scan.dec32()?;
    device(&mut scan)?;
    scan.lit(b" -> ")?;
    let to = scan.dec32()?;
    device(&mut scan)?;
    let is_send = direction(&mut scan);
    scan.lit(b" via ")?;
    let transport = scan.0.trim_ascii_end();
    // Before 2.8 the communicator followed.
    let end = memmem::find(transport, b" comm ").unwrap_or(transport.len());
    let transport = transport.get(..end).filter(|t| !t.is_empty())?;
    Some(Channel { from, to, is_send, transport })
}

/// `CollNet 00/0 : 8 [send] via COLLNET/IB/0/GDRDMA`: a rank and its switch.
pub(super) fn collnet(text: &[u8]) -> Option<Channel<'_>> {
    let mut scan = Scan(text);
    scan.lit(b"CollNet ")?;
    number_of(&mut scan)?;
    let rank = scan.dec32()?;
    let is_send = direction(&mut scan);
    scan.lit(b" via ")?;
    let transport = scan.0.trim_ascii_end();
    (!transport.is_empty()).then_some(Channel { from: rank, to: rank, is_send, transport })
}

/// `00/0 : `.
fn number_of(scan: &mut Scan<'_>) -> Option<()> {
    scan.dec()?;
    if scan.lit(b"/").is_some() {
        scan.dec()?;
    }
    scan.lit(b" : ")
}

/// `[1b000]`: bus id until 2.18.1, NVML index since.
fn device(scan: &mut Scan<'_>) -> Option<()> {
    scan.lit(b"[")?;
    scan.hex()?;
    scan.lit(b"]")
}

fn direction(scan: &mut Scan<'_>) -> Option<bool> {
    scan.lit(b" [send]").map(|()| true).or_else(|| scan.lit(b" [receive]").map(|()| false))
}

/// `init.cc:1582 -> 5 [Async thread]`: where an error passed, and its code.
pub(super) fn backtrace(text: &[u8]) -> Option<(&[u8], u8)> {
    let at = memmem::find(text.get(..160).unwrap_or(text), b" -> ")?;
    let origin = text.get(..at)?;
    let mut code = Scan(text.get(at + 4..)?);
    let result = u8::try_from(code.dec()?).ok()?;
    let ends = matches!(code.0, [] | [b' ', ..]);
    (ends && is_origin(origin)).then_some((origin, result))
}
