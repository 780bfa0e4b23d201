"""boto3's Bedrock client, with its own retries, where the gateway says no: a request that is blocked or flagged, and a stream that is
stopped, whose checksums botocore verifies.

Run by the Rust suite, which names the gateway in WEIR_URLS, as `stops`: `prompt_injection` is blocked, `secret_leakage` in a request
flagged, and answers stop at critical findings. Whatever is asked, the provider streams 200 words, a private key, and more words.
"""

import json
import os
import unittest

import boto3
from shared import ATTACK, SECRET

WEIR_URL = json.loads(os.environ["WEIR_URLS"])["stops"]
MODEL = "m"
QUESTION = "Tell me a long story."


class Bedrock(unittest.TestCase):
    def setUp(self):
        keys = {"aws_access_key_id": "made-up", "aws_secret_access_key": "made-up", "region_name": "eu-west-1"}
        self.client = boto3.client("bedrock-runtime", endpoint_url=WEIR_URL, **keys)
        self.addCleanup(self.client.close)

    @staticmethod
    def asked(text):
        return {"modelId": MODEL, "messages": [{"role": "user", "content": [{"text": text}]}]}

    def test_a_blocked_request(self):
        body = json.dumps({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [{"role": "user", "content": ATTACK}]})
        for ask in (
            lambda: self.client.converse(**self.asked(ATTACK)),
            lambda: self.client.converse_stream(**self.asked(ATTACK)),
            lambda: self.client.invoke_model(modelId=MODEL, body=body),
        ):
            with self.assertRaises(self.client.exceptions.AccessDeniedException) as caught:
                ask()
            said = caught.exception.response
            self.assertIn("prompt_injection", said["Error"]["Message"])
            self.assertEqual((said["ResponseMetadata"]["HTTPStatusCode"], said["ResponseMetadata"]["RetryAttempts"]), (403, 0))

    def test_a_flagged_request_and_a_stopped_stream(self):
        for text, flagged in [(SECRET, "true"), (QUESTION, None)]:
            said = self.client.converse_stream(**self.asked(text))
            self.assertEqual(said["ResponseMetadata"]["HTTPHeaders"].get("x-service-flagged"), flagged)
            events = list(said["stream"])
            self.assertEqual(events[-1], {"messageStop": {"stopReason": "content_filtered"}})
            deltas = [event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event]
            text = "".join(deltas)
            self.assertIn("before50 ", text)
            self.assertIn("secret_leakage (Critical)", text)
            self.assertNotIn("BEGIN", text)
            self.assertNotIn("behind", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
