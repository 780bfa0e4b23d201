"""Who may send spans by gRPC, over TLS: credentials in metadata, roles, tenants.

Run by the Rust suite, which names the listeners, the certificate and the credentials.
"""

import os
import unittest

import grpc
from grpc_made import pb, rpc, span

ADDR = os.environ["GRPC_ADDR"]
KEYS = {name: os.environ[name] for name in ["OPERATOR", "VIEWER", "OTHER", "TOKEN", "TENANT", "OTHER_TENANT", "ADMIN"]}


class Auth(unittest.TestCase):
    def setUp(self):
        with open(os.environ["CA_FILE"], "rb") as file:
            trust = grpc.ssl_channel_credentials(file.read())
        self.channel = grpc.secure_channel(ADDR, trust, options=[("grpc.ssl_target_name_override", "localhost")])
        self.addCleanup(self.channel.close)
        self.stub = rpc.TraceServiceStub(self.channel)

    def send(self, number, *metadata):
        return self.stub.Export(pb.ExportRequest(spans=[span(number=number)]), metadata=metadata)

    def code(self, number, *metadata):
        with self.assertRaises(grpc.RpcError) as raised:
            self.send(number, *metadata)
        return raised.exception.code()

    def test_without_a_valid_credential_nothing_is_taken(self):
        for metadata in [
            [],
            [("authorization", "Bearer svc_" + "0" * 64)],
            [("authorization", "Basic eDp5")],
            [("x-service-token", "nobody")],
            [("x-service-tenant-id", KEYS["TENANT"])],
        ]:
            self.assertEqual(self.code(1, *metadata), grpc.StatusCode.UNAUTHENTICATED, metadata)

    def test_a_stream_is_refused_before_its_first_batch(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.stub.ExportStream(iter([pb.ExportRequest(spans=[span(number=2)])]))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAUTHENTICATED)

    def test_reading_is_not_enough_and_other_tenants_are_out_of_reach(self):
        viewer, operator = ("authorization", f"Bearer {KEYS['VIEWER']}"), ("authorization", f"Bearer {KEYS['OPERATOR']}")
        self.assertEqual(self.code(3, viewer), grpc.StatusCode.PERMISSION_DENIED)
        elsewhere = ("x-service-tenant-id", KEYS["OTHER_TENANT"])
        self.assertEqual(self.code(3, operator, elsewhere), grpc.StatusCode.PERMISSION_DENIED)
        self.assertEqual(self.send(3, operator, ("x-service-tenant-id", KEYS["TENANT"])).accepted_spans, 1)

    def test_key_and_token_name_the_same_tenant_and_another_has_ids_of_its_own(self):
        self.assertEqual(self.send(4, ("authorization", f"Bearer {KEYS['OPERATOR']}")).accepted_spans, 1)
        self.assertEqual(self.send(4, ("x-service-token", KEYS["TOKEN"])).duplicate_spans, 1)
        self.assertEqual(self.send(4, ("authorization", f"Bearer {KEYS['OTHER']}")).accepted_spans, 1)
        self.assertEqual(self.send(5, ("x-api-key", KEYS["OPERATOR"])).accepted_spans, 1)

    def test_plain_text_is_no_tls(self):
        with grpc.insecure_channel(ADDR) as channel:
            with self.assertRaises(grpc.RpcError) as raised:
                rpc.TraceServiceStub(channel).Export(pb.ExportRequest(), timeout=20)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)


if __name__ == "__main__":
    unittest.main()
