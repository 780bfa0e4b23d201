//! The listener from its start to its end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tonic::codec::CompressionEncoding;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};
use weir_config::vocab::TenantId;
use weir_proto::v1::trace_service_server::TraceServiceServer;
use weir_proto::{DESCRIPTORS, otlp};

use super::admission::{Admission, Admitting};
use super::bounds::{CALLS_PER_CONNECTION, MESSAGE_BYTES_MAX, METADATA_BYTES_MAX, Times};
use super::export::Exporter;
use super::listening::Listening;
use super::otlp::OtlpExporter;
use super::places::Places;
use crate::ingest::Intake;
use crate::process::Process;
use crate::rt::{self, TlsAcceptor};

/// Threads: with two, one that decodes a large batch leaves the others a thread.
const THREADS: usize = 2;
/// Bytes that a sender may have on the way: of a call, and of a connection.
const WINDOW_BYTES: (u32, u32) = (1024 * 1024, 4 * 1024 * 1024);
/// How long answers that have been made may take to leave at the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// The running listener.
pub(crate) struct Serving {
    addr: SocketAddr,
    runtime: Runtime,
    stop: watch::Sender<bool>,
    places: Places<TenantId>,
    task: JoinHandle<Result<(), tonic::transport::Error>>,
}

/// Serves gRPC on `listener`, over TLS with `tls`.
pub(crate) fn start(
    listener: TcpListener,
    tls: Option<Arc<TlsAcceptor>>,
    process: &Arc<Process>,
    intake: Intake,
    times: Times,
) -> io::Result<Serving> {
    let addr = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(THREADS)
        .thread_name("weir-grpc")
        // Calls on their way to the provider go first.
        .on_thread_start(rt::give_way_often)
        .enable_all()
        .build()?;
    let (stop, stopping) = watch::channel(false);
    let admission = Admission::new(Arc::clone(process), times.call, stopping.clone());
    let places = admission.places();
    let registry = Arc::clone(&process.parts.registry);
    let listener = {
        let _entered = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let listening = Listening { listener, tls, registry, times, stopping: stopping.clone() };
    let exporter =
        Exporter { process: Arc::clone(process), intake, batch_limit: times.batch, stopping: stopping.clone() };
    let task = runtime.spawn(serve(listening, admission, exporter, stopping));
    Ok(Serving { addr, runtime, stop, places, task })
}

impl Serving {
    /// The address; the port is the real one when 0 was asked for.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// No call is let in any more, streams end behind the batch they are at, and health says so.
    pub(crate) fn drain(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for the calls under way. False where some were cut, because they took longer than `within`.
    pub(crate) fn stop(self, within: Duration) -> bool {
        self.drain();
        let Self { runtime, places, mut task, .. } = self;
        let clean = runtime.block_on(async {
            let emptied = places.emptied(within).await;
            // Who only watches our health has no end of its own.
            let _ended = tokio::time::timeout(FAREWELL, &mut task).await.is_ok();
            emptied
        });
        runtime.shutdown_background();
        clean
    }
}

async fn serve(
    listening: Listening,
    admission: Admission,
    exporter: Exporter,
    stopping: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let (reporter, health) = health_reporter();
    reporter.set_serving::<TraceServiceServer<Exporter>>().await;
    let takes_otlp = exporter.process.parts.settings.load().otel_ingest.enabled;
    let exporter = Arc::new(exporter);
    let otlp = takes_otlp.then(|| otlp::Server::new(OtlpExporter(Arc::clone(&exporter)), MESSAGE_BYTES_MAX));
    if takes_otlp {
        reporter.set_service_status(<otlp::Server<OtlpExporter> as NamedService>::NAME, ServingStatus::Serving).await;
    }
    tokio::spawn(say_stopping(reporter, stopping.clone()));
    let export = TraceServiceServer::from_arc(exporter)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let described = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let (reflection, older) = match (described().build_v1(), described().build_v1alpha()) {
        (Ok(reflection), Ok(older)) => (Some(reflection), Some(older)),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "gRPC reflection is not served: the descriptors of this build cannot be read");
            (None, None)
        }
    };
    let ping = Some(listening.times.ping);
    let connections = listening.connections();
    Server::builder()
        .initial_stream_window_size(WINDOW_BYTES.0)
        .initial_connection_window_size(WINDOW_BYTES.1)
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .http2_keepalive_interval(ping)
        .http2_keepalive_timeout(ping)
        .http2_max_header_list_size(METADATA_BYTES_MAX)
        .layer(tower::layer::layer_fn(move |inner| Admitting { admission: admission.clone(), inner }))
        .add_service(export)
        .add_optional_service(otlp)
        .add_service(health)
        .add_optional_service(reflection)
        .add_optional_service(older)
        .serve_with_incoming_shutdown(connections, stopped(stopping))
        .await
}

async fn stopped(mut stopping: watch::Receiver<bool>) {
    // Whoever would say so is gone: it is over as well.
    let _over = stopping.wait_for(|stopping| *stopping).await.is_err();
}

async fn say_stopping(reporter: HealthReporter, stopping: watch::Receiver<bool>) {
    stopped(stopping).await;
    reporter.set_not_serving::<TraceServiceServer<Exporter>>().await;
    for service in ["", <otlp::Server<OtlpExporter> as NamedService>::NAME] {
        reporter.set_service_status(service, ServingStatus::NotServing).await;
    }
}
