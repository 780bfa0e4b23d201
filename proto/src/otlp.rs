//! The trace service of OpenTelemetry (`opentelemetry.proto.collector.trace.v1`), whose one method hands over the bytes of its message:
//! what they say is read by whoever knows the format's names.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder};
use tonic::codegen::Service;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::{ProstCodec, ProstEncoder};

/// Path of the method.
pub const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// `ExportTraceServiceResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Exported {
    /// What was not taken; left out where everything was.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// `ExportTracePartialSuccess`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartialSuccess {
    /// Spans that are not kept.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Takes what is exported.
pub trait Take: Send + Sync + 'static {
    /// Takes the bytes of one `ExportTraceServiceRequest`.
    fn take(&self, request: Request<Bytes>) -> impl Future<Output = Result<Exported, Status>> + Send;
}

/// The service over something that takes.
pub struct Server<T> {
    taking: Arc<T>,
    message_bytes_max: usize,
}

impl<T> Server<T> {
    /// With messages of so many bytes at most, unpacked.
    pub fn new(taking: T, message_bytes_max: usize) -> Self {
        Self { taking: Arc::new(taking), message_bytes_max }
    }
}

impl<T> Clone for Server<T> {
    fn clone(&self) -> Self {
        Self { taking: Arc::clone(&self.taking), message_bytes_max: self.message_bytes_max }
    }
}

impl<T> NamedService for Server<T> {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<T: Take> Service<http::Request<Body>> for Server<T> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Boxed<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        if request.uri().path() != EXPORT {
            return Box::pin(async { Ok(Status::unimplemented("the service has the method Export only").into_http()) });
        }
        let mut grpc = Grpc::new(RawCodec)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(self.message_bytes_max);
        let method = Method(Arc::clone(&self.taking));
        Box::pin(async move { Ok(grpc.unary(method, request).await) })
    }
}

struct Method<T>(Arc<T>);

impl<T: Take> UnaryService<Bytes> for Method<T> {
    type Response = Exported;
    type Future = Boxed<Result<Response<Exported>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let taking = Arc::clone(&self.0);
        Box::pin(async move { taking.take(request).await.map(Response::new) })
    }
}

/// Answers are encoded, requests stay bytes.
#[derive(Debug, Clone, Copy)]
struct RawCodec;

#[derive(Debug, Clone, Copy)]
struct RawDecoder;

impl Codec for RawCodec {
    type Encode = Exported;
    type Decode = Bytes;
    type Encoder = ProstEncoder<Exported>;
    type Decoder = RawDecoder;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<Exported, Exported>::default().encoder()
    }

    fn decoder(&mut self) -> RawDecoder {
        RawDecoder
    }
}

impl Decoder for RawDecoder {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }
}
