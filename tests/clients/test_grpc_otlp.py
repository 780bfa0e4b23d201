"""The official OpenTelemetry SDK with its gRPC exporter against the gRPC listener.

Run by the Rust suite, which names both listeners in WEIR_URL and GRPC_ADDR.
"""

import os
import unittest

import grpc
from grpc_made import START, api
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult

ADDR = os.environ["GRPC_ADDR"]
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Kept(SimpleSpanProcessor):
    """Exports each span by itself and remembers whether it was taken."""

    def __init__(self, exporter):
        super().__init__(exporter)
        self.outcomes = []
        export = exporter.export
        exporter.export = lambda spans: self.outcomes.append(export(spans)) or self.outcomes[-1]


class Otlp(unittest.TestCase):
    def trace(self, **exporter):
        kept = Kept(OTLPSpanExporter(endpoint=f"http://{ADDR}", insecure=True, **exporter))
        provider = TracerProvider()
        provider.add_span_processor(kept)
        with provider.get_tracer("tests").start_as_current_span("chat gpt-4o") as span:
            span.set_attribute("gen_ai.operation.name", "chat")
            span.set_attribute("gen_ai.provider.name", "openai")
            span.set_attribute("gen_ai.request.model", "gpt-4o")
            span.set_attribute("gen_ai.usage.input_tokens", 120)
            span.set_attribute("gen_ai.usage.output_tokens", 30)
            span.set_attribute("app.color", "blue")
            ids = span.get_span_context()
        provider.shutdown()
        self.assertEqual(kept.outcomes, [SpanExportResult.SUCCESS])
        return ids

    def check(self, ids):
        kept = api(f"/api/v1/spans/00000000-0000-0000-{ids.span_id >> 48:04x}-{ids.span_id & (1 << 48) - 1:012x}")
        self.assertEqual(kept["trace_id"].replace("-", ""), f"{ids.trace_id:032x}")
        self.assertEqual((kept["model"], kept["provider"]), ("gpt-4o", "openai"))
        self.assertEqual((kept["prompt_tokens"], kept["completion_tokens"]), (120, 30))

    def test_a_span_of_the_sdk_is_kept(self):
        self.check(self.trace())

    def test_gzip_is_taken(self):
        self.check(self.trace(compression=grpc.Compression.Gzip))

    def test_what_is_rejected_is_named_and_counted_and_the_rest_is_kept(self):
        good = dict(trace_id=bytes(range(16)), span_id=(0xABCDE).to_bytes(8, "big"), start_time_unix_nano=START)
        good["end_time_unix_nano"] = START + 1
        bad = [{"span_id": b"1"}, {"trace_id": bytes(16)}, {"end_time_unix_nano": 7}, {"start_time_unix_nano": 0}]
        reasons = ["span 1: `spanId` has 1 bytes; it must have 8 (16 hexadecimal digits in JSON)"]
        reasons += ["span 2: `trace_id` and `span_id` must not be all zero"]
        reasons += ["span 3: `end_time` is before `start_time`"]
        reasons += ["span 4: `start_time` is before the year 2000; set the clock or the field"]
        spans = [Span(**good)] + [Span(**{**good, "span_id": bytes([9] * 8), **fields}) for fields in bad]
        request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=spans)])])
        with grpc.insecure_channel(ADDR) as channel:
            answer = TraceServiceStub(channel).Export(request)
        self.assertEqual(answer.partial_success.rejected_spans, 4)
        self.assertEqual(answer.partial_success.error_message, "; ".join(reasons))
        self.assertIsInstance(api("/api/v1/spans/00000000-0000-0000-0000-0000000abcde"), dict)

    def test_what_is_no_request_is_an_invalid_argument(self):
        with grpc.insecure_channel(ADDR) as channel:
            call = channel.unary_unary(EXPORT, request_serializer=bytes, response_deserializer=bytes)
            self.assertEqual(call(b""), b"")
            with self.assertRaises(grpc.RpcError) as raised:
                call(b"\x0a\x7f")
        self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)


if __name__ == "__main__":
    unittest.main()
