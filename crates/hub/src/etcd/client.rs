//! Calls to etcd, each with a deadline. If a member fails, the next one of the address is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::uri::PathAndQuery;
use prost::Message;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::proto::{
    CompactionRequest, CompactionResponse, Compare, KeyValue, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, PutRequest,
    PutResponse, RangeRequest, RangeResponse, RequestOp, ResponseHeader, TxnOp, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::OpenError;
use crate::address::EtcdAddress;

/// Largest answer of etcd, bytes; a page of a list is far smaller.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// Keys in one page of a list: at most 32 MiB with the longest digests.
const PAGE: i64 = 256;
/// etcd closes connections that ping more often than every 5 s.
const PING: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(3);

/// Why a call failed.
#[derive(Clone, Debug)]
pub(super) struct EtcdFailure {
    pub(super) code: Code,
    pub(super) why: String,
}

impl EtcdFailure {
    fn deadline(after: Duration) -> Self {
        Self { code: Code::DeadlineExceeded, why: format!("no answer within {after:?}") }
    }

    /// Whether the lease that a key should be attached to is gone.
    pub(super) fn is_lease_lost(&self) -> bool {
        self.code == Code::NotFound && self.why.contains("lease")
    }

    /// Whether another member may succeed.
    fn is_of_the_member(&self) -> bool {
        matches!(self.code, Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Internal)
    }
}

impl From<Status> for EtcdFailure {
    fn from(status: Status) -> Self {
        // The message says only "transport error"; its source has the details.
        let mut why = status.message().to_owned();
        let mut source = std::error::Error::source(&status);
        while let Some(error) = source {
            let text = error.to_string();
            if !why.ends_with(&text) {
                why = format!("{why}: {text}");
            }
            source = error.source();
        }
        Self { code: status.code(), why }
    }
}

/// The members of one etcd.
#[derive(Clone)]
pub(super) struct Client {
    channels: Arc<[Channel]>,
    /// Index of the member in use.
    current: Arc<AtomicUsize>,
    /// The newest revision seen in an answer. An etcd that lost its data counts from the start.
    revision: Arc<AtomicI64>,
}

impl Client {
    /// `n_connections` clients, each with a connection to every member. A client connects at its first call.
    pub(super) fn all(address: &EtcdAddress) -> Result<Vec<Self>, OpenError> {
        let revision = Arc::new(AtomicI64::new(0));
        let mut clients = Vec::new();
        for number in 0..address.n_connections.max(1) {
            let mut channels = Vec::new();
            for endpoint in &address.endpoints {
                let endpoint = Endpoint::from_shared(format!("http://{endpoint}")).map_err(|error| {
                    OpenError::Address { address: endpoint.clone(), why: error.to_string() }
                })?;
                let channel = endpoint
                    .connect_timeout(CONNECT)
                    .tcp_nodelay(true)
                    .http2_keep_alive_interval(PING)
                    .keep_alive_timeout(PING / 2)
                    .keep_alive_while_idle(true)
                    .connect_lazy();
                channels.push(channel);
            }
            clients.push(Self {
                channels: channels.into(),
                // Spreads the load over the members.
                current: Arc::new(AtomicUsize::new(number)),
                revision: revision.clone(),
            });
        }
        Ok(clients)
    }

    /// The newest revision seen in an answer.
    pub(super) fn revision(&self) -> i64 {
        self.revision.load(Ordering::Relaxed)
    }

    pub(super) fn saw(&self, header: Option<&ResponseHeader>) {
        if let Some(header) = header {
            self.revision.store(header.revision, Ordering::Relaxed);
        }
    }

    /// A client for one call, and the index of its member.
    async fn grpc(&self) -> Result<(Grpc<Channel>, usize), EtcdFailure> {
        let member = self.current.load(Ordering::Relaxed);
        let Some(channel) = self.channels.get(member % self.channels.len().max(1)) else {
            return Err(EtcdFailure {
                code: Code::Unavailable,
                why: "the address names no etcd member".to_owned(),
            });
        };
        let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        grpc.ready().await.map_err(|error| EtcdFailure::from(Status::from_error(error.into())))?;
        Ok((grpc, member))
    }

    fn failed(&self, member: usize, failure: &EtcdFailure) {
        if failure.is_of_the_member() {
            // Many calls may fail at once: they advance by one member in all.
            let next = member.wrapping_add(1);
            self.current.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed).ok();
        }
    }

    async fn within<T>(
        &self,
        deadline: Duration,
        call: impl Future<Output = Result<T, EtcdFailure>>,
    ) -> Result<T, EtcdFailure> {
        let member = self.current.load(Ordering::Relaxed);
        let answer = tokio::time::timeout(deadline, call).await;
        let answer = answer.unwrap_or_else(|_| Err(EtcdFailure::deadline(deadline)));
        answer.inspect_err(|failure| self.failed(member, failure))
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q, deadline: Duration) -> Result<A, EtcdFailure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.within(deadline, async {
            let (mut grpc, _) = self.grpc().await?;
            let codec = ProstCodec::<Q, A>::default();
            let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(path), codec).await?;
            Ok(answer.into_inner())
        })
        .await
    }

    async fn stream<Q, A>(
        &self,
        path: &'static str,
        requests: impl tokio_stream::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, EtcdFailure>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let (mut grpc, _) = self.grpc().await?;
        let codec = ProstCodec::<Q, A>::default();
        let answer = grpc.streaming(Request::new(requests), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    pub(super) async fn put(&self, put: PutRequest, deadline: Duration) -> Result<(), EtcdFailure> {
        let answer: PutResponse = self.unary("/etcdserverpb.KV/Put", put, deadline).await?;
        self.saw(answer.header.as_ref());
        Ok(())
    }

    /// Applies all of `ops` and returns their revision; None if a comparison failed.
    pub(super) async fn txn(
        &self,
        compare: Vec<Compare>,
        ops: Vec<TxnOp>,
        deadline: Duration,
    ) -> Result<Option<i64>, EtcdFailure> {
        let success = ops.into_iter().map(|op| RequestOp { request: Some(op) }).collect();
        let txn = TxnRequest { compare, success };
        let answer: TxnResponse = self.unary("/etcdserverpb.KV/Txn", txn, deadline).await?;
        self.saw(answer.header.as_ref());
        let revision = answer.header.map_or(0, |header| header.revision);
        Ok(answer.succeeded.then_some(revision))
    }

    /// All keys below a prefix at one revision, which is in the returned header along with the cluster's id.
    pub(super) async fn list(
        &self,
        prefix: &[u8],
        keys_only: bool,
        deadline: Duration,
    ) -> Result<(Vec<KeyValue>, ResponseHeader), EtcdFailure> {
        let until = Instant::now() + deadline;
        let range_end = end_of(prefix);
        let mut all = Vec::new();
        let mut from = prefix.to_vec();
        let mut at: Option<ResponseHeader> = None;
        loop {
            let revision = at.as_ref().map_or(0, |at| at.revision);
            let range =
                RangeRequest { key: from, range_end: range_end.clone(), limit: PAGE, revision, keys_only };
            let left = until.saturating_duration_since(Instant::now());
            let answer: RangeResponse = self.unary("/etcdserverpb.KV/Range", range, left).await?;
            self.saw(answer.header.as_ref());
            let header = at.get_or_insert(answer.header.unwrap_or_default());
            let last = answer.kvs.last().map(|kv| kv.key.clone());
            all.extend(answer.kvs);
            match last {
                Some(mut last) if answer.more => {
                    last.push(0);
                    from = last;
                }
                _ => return Ok((all, header.clone())),
            }
        }
    }

    pub(super) async fn get(&self, key: &[u8], deadline: Duration) -> Result<Option<KeyValue>, EtcdFailure> {
        let range = RangeRequest { key: key.to_vec(), ..RangeRequest::default() };
        let answer: RangeResponse = self.unary("/etcdserverpb.KV/Range", range, deadline).await?;
        self.saw(answer.header.as_ref());
        Ok(answer.kvs.into_iter().next())
    }

    pub(super) async fn compact(&self, revision: i64, deadline: Duration) -> Result<(), EtcdFailure> {
        let compact = CompactionRequest { revision };
        match self.unary::<_, CompactionResponse>("/etcdserverpb.KV/Compact", compact, deadline).await {
            // Another client compacted first.
            Err(failure) if failure.code == Code::OutOfRange => Ok(()),
            other => other.map(drop),
        }
    }

    /// Grants a lease: its id, its time to live, and its revision.
    pub(super) async fn grant(
        &self,
        ttl: Duration,
        deadline: Duration,
    ) -> Result<(i64, Duration, i64), EtcdFailure> {
        // Rounded up to whole seconds.
        let grant = LeaseGrantRequest { ttl_s: ttl.as_secs_f64().ceil() as i64 };
        let answer: LeaseGrantResponse =
            self.unary("/etcdserverpb.Lease/LeaseGrant", grant, deadline).await?;
        self.saw(answer.header.as_ref());
        let ttl = Duration::from_secs(answer.ttl_s.max(1).cast_unsigned());
        Ok((answer.id, ttl, answer.header.map_or(0, |header| header.revision)))
    }

    /// Renews a lease and returns its time to live; None if it is gone. It opens one short stream each time: a long
    /// stream that hangs could not be distinguished from an idle one.
    pub(super) async fn renew(&self, id: i64, deadline: Duration) -> Result<Option<Duration>, EtcdFailure> {
        self.within(deadline, async {
            let request = LeaseKeepAliveRequest { id };
            let mut answers: Streaming<LeaseKeepAliveResponse> =
                self.stream("/etcdserverpb.Lease/LeaseKeepAlive", tokio_stream::once(request)).await?;
            let answer = answers.message().await?.ok_or_else(|| EtcdFailure {
                code: Code::Unavailable,
                why: "etcd ended the stream of a lease".to_owned(),
            })?;
            self.saw(answer.header.as_ref());
            let ttl_s = u64::try_from(answer.ttl_s).unwrap_or(0);
            Ok((ttl_s > 0).then(|| Duration::from_secs(ttl_s)))
        })
        .await
    }

    pub(super) async fn revoke(&self, id: i64, deadline: Duration) -> Result<(), EtcdFailure> {
        let revoke = LeaseRevokeRequest { id };
        self.unary::<_, LeaseRevokeResponse>("/etcdserverpb.Lease/LeaseRevoke", revoke, deadline)
            .await
            .map(drop)
    }

    /// Opens a watch on a prefix and returns once etcd has created it.
    pub(super) async fn watch(
        &self,
        prefix: &[u8],
        from: i64,
        deadline: Duration,
    ) -> Result<(Streaming<WatchResponse>, WatchResponse), EtcdFailure> {
        let create = WatchCreateRequest {
            key: prefix.to_vec(),
            range_end: end_of(prefix),
            start_revision: from,
            progress_notify: true,
            fragment: true,
        };
        self.within(deadline, async {
            // Ending the request stream would end the watch.
            let requests = tokio_stream::once(WatchRequest { create_request: Some(create) })
                .chain(tokio_stream::pending());
            let mut answers = self.stream("/etcdserverpb.Watch/Watch", requests).await?;
            match answers.message().await? {
                Some(first) => Ok((answers, first)),
                None => Err(EtcdFailure {
                    code: Code::Unavailable,
                    why: "etcd ended a watch before it began".to_owned(),
                }),
            }
        })
        .await
    }
}

/// The first key after all that begin with `prefix`.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}
