"""Batches for which no memory is free: refused with a time after which they may be sent again, and nothing stays held.

Run by the Rust suite, whose gateway has one MiB for all bodies.
"""

import os
import unittest

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_made import pb, rpc, span
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

LARGE = "a" * (2 * 1024 * 1024)


class Memory(unittest.TestCase):
    def setUp(self):
        self.channel = grpc.insecure_channel(os.environ["GRPC_ADDR"])
        self.addCleanup(self.channel.close)
        self.stub = rpc.TraceServiceStub(self.channel)

    def told(self, call, request):
        with self.assertRaises(grpc.RpcError) as raised:
            call(request, timeout=60)
        error = raised.exception
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("no memory is free", error.details())
        status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        self.assertTrue(status.details[0].Unpack(retry), status)
        self.assertEqual(retry.retry_delay.seconds, 1)

    def test_large_batches_are_told_and_small_ones_taken(self):
        large = pb.ExportRequest(spans=[span(trace=0x900, number=0x901, operation_name=LARGE)])
        self.told(self.stub.Export, large)
        reported = Span(trace_id=b"\x09" * 16, span_id=b"\x09" * 8, start_time_unix_nano=1, end_time_unix_nano=2, name=LARGE)
        otlp = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=[reported])])])
        self.told(TraceServiceStub(self.channel).Export, otlp)
        # A stream waits for room, and is told when it has waited long enough.
        self.told(lambda request, timeout: self.stub.ExportStream(iter([request]), timeout=timeout), large)
        small = [pb.ExportRequest(spans=[span(trace=0x900, number=number)]) for number in (0x902, 0x903)]
        self.assertEqual(self.stub.Export(small[0]).accepted_spans, 1)
        answer = self.stub.ExportStream(iter(small[1:]))
        self.assertEqual((answer.accepted_spans, answer.complete), (1, True), answer)


if __name__ == "__main__":
    unittest.main()
