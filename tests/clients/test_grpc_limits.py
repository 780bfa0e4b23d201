"""How long the gRPC listener waits for whom, where that is a second each.

Run by the Rust suite, which names the listener.
"""

import os
import threading
import time
import unittest

import grpc
from grpc_made import pb, rpc, said, span

SILENT = "no batch was complete within 1 s; open a new stream"


class Limits(unittest.TestCase):
    def setUp(self):
        channel = grpc.insecure_channel(os.environ["GRPC_ADDR"])
        self.addCleanup(channel.close)
        self.stub = rpc.TraceServiceStub(channel)
        self.enough = threading.Event()
        self.addCleanup(self.enough.set)

    def silent_behind(self, *batches):
        yield from batches
        self.enough.wait(60)

    def test_each_is_ended_in_its_time_and_told_why(self):
        def steady():
            for number in range(10, 15):
                yield pb.ExportRequest(spans=[span(number=number)])
                self.enough.wait(0.3)

        began = time.monotonic()
        nothing = self.stub.ExportStream.future(self.silent_behind(), timeout=30)
        one = self.stub.ExportStream.future(self.silent_behind(pb.ExportRequest(spans=[span(number=1)])), timeout=30)
        steady = self.stub.ExportStream.future(steady(), timeout=30)
        words = [said("user", "think for long about this")]
        slow = self.stub.Export.future(pb.ExportRequest(spans=[span(number=20, input=words)]), timeout=30)
        error = nothing.exception()
        self.assertEqual((error.code(), error.details()), (grpc.StatusCode.DEADLINE_EXCEEDED, SILENT))
        self.assertGreaterEqual(time.monotonic() - began, 1)
        # What had come is kept, and told.
        answer = one.result()
        self.assertEqual((answer.accepted_spans, answer.batches), (1, 1))
        self.assertEqual((answer.complete, answer.ended_because), (False, SILENT))
        # Longer than the limit altogether, and each batch in time.
        answer = steady.result()
        self.assertEqual((answer.accepted_spans, answer.complete), (5, True))
        error = slow.exception()
        message = "the call was not complete within 1 s; send it again, or less at once"
        self.assertEqual((error.code(), error.details()), (grpc.StatusCode.DEADLINE_EXCEEDED, message))


if __name__ == "__main__":
    unittest.main()
