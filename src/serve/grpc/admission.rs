//! Lets calls in: settles who sends a call, and whether there is a place for it, before a byte of its message is read; and tells the
//! log and the metrics what became of it.
//!
//! Health and reflection are for everybody, as `/health` and the API's description are; what this listener does not know needs a
//! caller before it is even called unknown. Invariant: nobody gets past without a [`Sender`]; strangers hold no place.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::{Code, Status};
use weir_config::vocab::{Role, TenantId, Timestamp};

use super::bounds::CALLS_MAX;
use super::listening::Peer;
use super::places::{Place, Places};
use super::status;
use crate::admit::attempts::Price;
use crate::admit::connections::ClientKey;
use crate::admit::rate::Verdict;
use crate::admit::{CallerCache, Denied, Presented, blocked};
use crate::exchange::{Caller, Refusal};
use crate::ops::exchanges::Exchange;
use crate::process::Process;

/// Services that ask for no credential.
const OPEN: [&str; 3] =
    ["/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/", "/grpc.reflection.v1alpha.ServerReflection/"];
/// Calls that last as long as their sender wishes.
const STREAMS: [&str; 1] = ["/weir.traces.v1.TraceService/ExportStream"];

/// How often a stream that brings nothing is looked after: what ends a call to the provider is looked for as often.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What calls are let in by.
#[derive(Clone)]
pub(super) struct Admission {
    process: Arc<Process>,
    places: Places<TenantId>,
    call_limit: Duration,
    stopping: watch::Receiver<bool>,
}

/// A sender that has been let in.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) caller: Caller,
    /// What it was let in by.
    memory: Arc<CallerCache>,
    address: Address,
}

impl Sender {
    /// Refuses it where its credential has been taken away meanwhile, or its address is turned away.
    pub(super) fn may_send(&self) -> Result<(), Status> {
        if self.memory.is_over() {
            return Err(Status::unauthenticated("the credential has been taken away"));
        }
        self.address.may_send().map_err(|refusal| status::of(&refusal))
    }

    /// Waits until it may send no more, and says why.
    pub(super) async fn shut_out(&self) -> Status {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if let Err(why) = self.may_send() {
                return why;
            }
        }
    }
}

/// Where a call comes from.
#[derive(Clone)]
struct Address {
    client: Option<ClientKey>,
    process: Arc<Process>,
}

impl Address {
    /// Refuses what comes from an address that the action router has blocked.
    fn may_send(&self) -> Result<(), Refusal> {
        let now_s = Timestamp::now().micros().div_euclid(1_000_000);
        let blocked = self.process.parts.policy.blocked.as_ref();
        let left_s = blocked.zip(self.client).and_then(|(blocked, client)| blocked.left_s(client, now_s));
        left_s.map_or(Ok(()), |left_s| Err(blocked::refusal(left_s)))
    }
}

impl Admission {
    pub(super) fn new(process: Arc<Process>, call_limit: Duration, stopping: watch::Receiver<bool>) -> Self {
        Self { process, places: Places::new(CALLS_MAX), call_limit, stopping }
    }

    /// The places of calls under way.
    pub(super) fn places(&self) -> Places<TenantId> {
        self.places.clone()
    }

    async fn admit(
        &self,
        metadata: &http::HeaderMap,
        client: Option<ClientKey>,
    ) -> Result<(Sender, Place<TenantId>), Refused> {
        let parts = &self.process.parts;
        let address = Address { client, process: Arc::clone(&self.process) };
        address.may_send().map_err(|refusal| Refused { tenant: None, refusal })?;
        let fields = metadata.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
        let (presented, mut memory) = (Presented::read(fields), CallerCache::default());
        let tries = self.wait_for_turn(client, parts.policy.guard.tries(&memory, &presented)).await?;
        let now_s = u32::try_from(Timestamp::now().micros() / 1_000_000).unwrap_or(0);
        let caller = parts.policy.guard.caller(&mut memory, &presented, Role::Operator, now_s);
        if let (Err(Denied::Unknown), Some(client), true) = (&caller, client, tries > 0) {
            self.process.attempts.failed(client, tries, self.process.now_ns() / 1_000_000);
        }
        let caller = caller.map_err(|denied| Refused {
            tenant: denied.caller().map(|caller| caller.tenant_id),
            refusal: denied.into(),
        })?;
        let tenant = caller.tenant_id;
        let refused = |refusal| Refused { tenant: Some(tenant), refusal };
        self.process.caller_within_key_rate(&self.process.parts.settings.load(), &caller).map_err(refused)?;
        self.within_rate(tenant).map_err(refused)?;
        let place = self.places.enter(tenant).ok_or_else(|| {
            parts.registry.shared().dropped("grpc_calls", "full", 1);
            refused(crowded())
        })?;
        Ok((Sender { caller, memory: Arc::new(memory), address }, place))
    }

    /// Who has guessed the admin key wrong often waits before the next try is looked at; how many tries then count.
    async fn wait_for_turn(&self, client: Option<ClientKey>, tries: u32) -> Result<u32, Refused> {
        let Some(client) = client.filter(|_| tries > 0) else { return Ok(tries) };
        match self.process.attempts.price(client, tries, self.process.now_ns() / 1_000_000) {
            Price::Free => Ok(tries),
            Price::Wait(wait) => {
                tokio::time::sleep(wait).await;
                Ok(0)
            }
            Price::TooMany { retry_after_s } => {
                let message = "too many wrong credentials came from this address, so that this one was not looked at; wait, \
                               or use an API key, which never waits";
                let refusal = Refusal::new(429, "rate_limit_exceeded", message).header("Retry-After", retry_after_s);
                Err(Refused { tenant: None, refusal })
            }
        }
    }

    /// Takes one call from the bucket that the tenant's calls of the API have.
    fn within_rate(&self, tenant: TenantId) -> Result<(), Refusal> {
        let settings = self.process.parts.settings.load();
        let limits = &settings.rate_limiting;
        if !limits.enabled {
            return Ok(());
        }
        let Verdict::Limited { retry_after_ns } = self.process.own_rates.take(tenant, limits, self.process.now_ns())
        else {
            return Ok(());
        };
        let seconds = retry_after_ns.div_ceil(1_000_000_000).max(1);
        let limit = limits.tenant_overrides.get(&tenant).copied().unwrap_or(limits.default);
        let message = format!(
            "tenant {tenant} makes more than {} calls per second (burst {}); retry after {seconds} s, or raise \
             `rate_limiting`",
            limit.requests_per_second, limit.burst_size
        );
        Err(Refusal::new(429, "rate_limit_exceeded", message).header("Retry-After", seconds))
    }

    /// The line of the log, and of the access log.
    fn tell(&self, path: &str, tenant_id: Option<TenantId>, reason: Option<&'static str>, code: Code, took: Duration) {
        let parts = &self.process.parts;
        parts.registry.shared().rpc(method_of(path), code_name(code));
        let path = if parts.policy.redaction.is_exposed(path) { "(holds a credential)" } else { path };
        let exchange = Exchange {
            trace_id: None,
            tenant_id,
            method: "GRPC",
            path,
            status: Some(status::http(code)),
            reason: reason.or((code != Code::Ok).then(|| code_name(code))),
            detail: None,
            by_us: true,
            bytes: 0,
            took,
            upstream: Duration::ZERO,
            model: None,
        };
        if parts.edge.exchanges.wants(&exchange) {
            parts.edge.exchanges.tell(&exchange, self.process.now_s());
        }
        if parts.edge.exchanges.has_access_log() {
            parts.edge.exchanges.access(&exchange);
        }
    }
}

/// Who was not let in, and why.
struct Refused {
    tenant: Option<TenantId>,
    refusal: Refusal,
}

fn crowded() -> Refusal {
    let message = "as many calls of this tenant are under way as may be while others ask; try again in a second";
    Refusal::new(429, "api_saturated", message).header("Retry-After", 1)
}

/// The method as the metrics name it.
fn method_of(path: &str) -> &'static str {
    const KNOWN: [(&str, &str); 5] = [
        ("/weir.traces.v1.TraceService/ExportStream", "ExportStream"),
        ("/weir.traces.v1.TraceService/Export", "Export"),
        (weir_proto::otlp::EXPORT, "OtlpExport"),
        ("/grpc.health.v1.Health/", "Health"),
        ("/grpc.reflection.", "Reflection"),
    ];
    KNOWN.iter().find(|(start, _)| path.starts_with(start)).map_or("other", |(_, name)| name)
}

/// The code in the words of the gRPC specification.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// The services behind the admission.
#[derive(Clone)]
pub(super) struct Admitting<S> {
    pub(super) admission: Admission,
    pub(super) inner: S,
}

impl<S> tower::Service<http::Request<Body>> for Admitting<S>
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        // The one that is ready is the one that is called.
        let ready = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, ready);
        Box::pin(answer(self.admission.clone(), inner, request))
    }
}

async fn answer<S>(
    admission: Admission,
    inner: S,
    mut request: http::Request<Body>,
) -> Result<http::Response<Body>, Infallible>
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible> + Send,
    S::Future: Send,
{
    let started = Instant::now();
    let path = request.uri().path().to_owned();
    if OPEN.iter().any(|service| path.starts_with(service)) {
        let response = within(admission.call_limit, &path, inner, request).await;
        admission.tell(&path, None, None, code_of(&response), started.elapsed());
        return Ok(response);
    }
    let client = request.extensions().get::<Peer>().map(|peer| ClientKey::from(peer.0));
    let stopping = *admission.stopping.borrow();
    let admitted = if stopping { None } else { Some(admission.admit(request.headers(), client).await) };
    let (response, tenant, reason) = match admitted {
        None => (status::stopping().into_http(), None, Some("shutting_down")),
        Some(Err(Refused { tenant, refusal })) => (status::of(&refusal).into_http(), tenant, Some(refusal.error_type)),
        Some(Ok((sender, _place))) => {
            let tenant = sender.caller.tenant_id;
            request.extensions_mut().insert(sender);
            (within(admission.call_limit, &path, inner, request).await, Some(tenant), None)
        }
    };
    admission.tell(&path, tenant, reason, code_of(&response), started.elapsed());
    Ok(response)
}

/// The answer, in the time that a call has.
async fn within<S>(limit: Duration, path: &str, mut inner: S, request: http::Request<Body>) -> http::Response<Body>
where
    S: tower::Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
{
    let call = inner.call(request);
    let answered = if STREAMS.contains(&path) { Ok(call.await) } else { tokio::time::timeout(limit, call).await };
    match answered {
        Ok(Ok(response)) => sized(response),
        Ok(Err(never)) => match never {},
        Err(_) => {
            let message =
                format!("the call was not complete within {} s; send it again, or less at once", limit.as_secs());
            Status::deadline_exceeded(message).into_http()
        }
    }
}

/// A message beyond the bound is a matter of resources, which senders know how to deal with.
fn sized(response: http::Response<Body>) -> http::Response<Body> {
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::OutOfRange => Status::resource_exhausted(status.message()).into_http(),
        _ => response,
    }
}

/// What an answer says in its head; one that has a message says it behind that, and that it worked.
fn code_of(response: &http::Response<Body>) -> Code {
    Status::from_header_map(response.headers()).map_or(Code::Ok, |status| status.code())
}
