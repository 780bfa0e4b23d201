"""Senders that find no room: told at once in a call, held up in a stream, and taken once there is some.

Run by the Rust suite, which has filled all places before. They are free again once the file GO is there.
"""

import os
import pathlib
import threading
import unittest

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_made import pb, rpc, span
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

WHO = [("x-service-tenant-id", os.environ["TENANT"])]


class Full(unittest.TestCase):
    def setUp(self):
        self.channel = grpc.insecure_channel(os.environ["GRPC_ADDR"])
        self.addCleanup(self.channel.close)
        self.stub = rpc.TraceServiceStub(self.channel)

    def told(self, call, request):
        with self.assertRaises(grpc.RpcError) as raised:
            call(request, metadata=WHO, timeout=60)
        error = raised.exception
        self.assertEqual(error.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn(os.environ["BECAUSE"], error.details())
        status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        self.assertTrue(status.details[0].Unpack(retry), status)
        self.assertEqual(retry.retry_delay.seconds, 1)

    def test_a_call_is_told_and_a_stream_waits(self):
        batch = pb.ExportRequest(spans=[span(trace=0x900, number=0x901)])
        self.told(self.stub.Export, batch)
        reported = Span(trace_id=b"\x09" * 16, span_id=b"\x09" * 8, start_time_unix_nano=1, end_time_unix_nano=2)
        otlp = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[ScopeSpans(spans=[reported])])])
        self.told(TraceServiceStub(self.channel).Export, otlp)
        sent = threading.Event()

        def batches():
            yield pb.ExportRequest(spans=[span(trace=0x900, number=0x902)])
            # gRPC asks for the next one when it has sent the first.
            sent.set()

        stream = self.stub.ExportStream.future(batches(), metadata=WHO, timeout=60)
        self.assertTrue(sent.wait(30))
        self.told(self.stub.Export, batch)
        self.assertFalse(stream.done(), "it waits for room")
        pathlib.Path(os.environ["GO"]).touch()
        answer = stream.result()
        self.assertEqual((answer.accepted_spans, answer.batches, answer.complete), (1, 1, True), answer)
        self.assertEqual(self.stub.Export(batch, metadata=WHO).accepted_spans, 1)


if __name__ == "__main__":
    unittest.main()
