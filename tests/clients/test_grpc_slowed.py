"""Who is slowed down by gRPC as by HTTP: a tenant over its rate, and an address that guesses at the admin key.

Run by the Rust suite, which names the listener and the credentials. A tenant may make three calls at once, and one a minute.
"""

import os
import queue
import time
import unittest

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc_made import pb, rpc

RATE = "makes more than"
GUESSES = "too many wrong credentials came from this address"


def retry_info(error):
    """In how many seconds a refused call may be made again."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    info = error_details_pb2.RetryInfo()
    return next(info.retry_delay.seconds for detail in status.details if detail.Unpack(info))


class Slowed(unittest.TestCase):
    def setUp(self):
        channel = grpc.insecure_channel(os.environ["GRPC_ADDR"])
        self.addCleanup(channel.close)
        self.stub = rpc.TraceServiceStub(channel)

    def send(self, key):
        """What becomes of a call without spans: None where it is answered."""
        return self.future(key).exception(60)

    def stream(self, key):
        """What becomes of a stream of one batch without spans: None where it is answered."""
        try:
            self.stub.ExportStream(iter([pb.ExportRequest()]), metadata=[("authorization", f"Bearer {key}")])
        except grpc.RpcError as error:
            return error
        return None

    def future(self, key):
        return self.stub.Export.future(pb.ExportRequest(), metadata=[("authorization", f"Bearer {key}")])

    def among(self, answers):
        """The next of the answers if it says that the credential was not looked at; waits for a twentieth of a second."""
        try:
            error = answers.get(timeout=0.05).exception(0)
        except queue.Empty:
            return None
        # Whoever waited in its place was let in, and then is under the rate of its tenant.
        if error is None or RATE in error.details():
            return None
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn(GUESSES, error.details())
        return error

    def test_a_tenant_over_its_rate_is_told_when_to_come_back_and_others_are_not(self):
        one, other = os.environ["OPERATOR"], os.environ["OTHER"]
        answers = [self.send(one) for _ in range(3)]
        self.assertEqual(answers, [None] * 3)
        # Another one a second is let in on a slow machine.
        error = next(error for error in iter(lambda: self.send(one) or False, None) if error)
        self.assertEqual(error.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn(RATE, error.details())
        self.assertEqual(retry_info(error), 1)
        error = next(error for error in iter(lambda: self.stream(one) or False, None) if error)
        self.assertIn(RATE, error.details())
        self.assertIsNone(self.send(other))

    def test_guesses_at_the_admin_key_cost_time_and_then_are_not_looked_at(self):
        # As long as the key: a guess. Twenty are free, each further one costs a quarter of a second, and none waits over five.
        began, wrong = time.monotonic(), "x" * len(os.environ["ADMIN"])
        guesses = [self.future(wrong) for _ in range(60)]
        # The right one is not looked at either: an answer at once would tell. A place among those who wait becomes free four times a
        # second, so it is sent more often than that until it is refused.
        right, answers = [], queue.Queue()
        while not (refused := self.among(answers)):
            right.append(self.future(os.environ["ADMIN"]))
            right[-1].add_done_callback(answers.put)
        self.assertIn(retry_info(refused), [5, 6])
        codes = [guess.code() for guess in guesses if guess.done()]
        # One more is free as nothing is due yet, and one for each thread that looks at another in the same moment.
        free = 20 + (time.monotonic() - began) / 0.25 + 1 + 2
        self.assertLessEqual(codes.count(grpc.StatusCode.UNAUTHENTICATED), free)
        # Whose credential is no guess never waits.
        self.assertIsNone(self.send(os.environ["KEY"]))
        [call.cancel() for call in guesses + right]


if __name__ == "__main__":
    unittest.main()
