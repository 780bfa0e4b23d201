"""boto3's Bedrock client, directly against the provider and through Weir: botocore checks the checksums of every message,
and the events have to be equal.

Run by the Rust suite, which starts both ends and names them in PROVIDER_URL and WEIR_URL.
"""

import json
import os
import unittest

import boto3
from botocore.config import Config

MODEL = "claude-unit"


def client(url):
    """A client that signs for made-up credentials and never retries."""
    config = Config(retries={"total_max_attempts": 1}, read_timeout=20)
    keys = {"aws_access_key_id": "made-up", "aws_secret_access_key": "made-up", "region_name": "eu-west-1"}
    return boto3.client("bedrock-runtime", endpoint_url=url, config=config, **keys)


class Bedrock(unittest.TestCase):
    maxDiff = None

    def both(self, ask):
        """What the client makes of the answer, directly and through Weir."""
        direct, through = (ask(client(os.environ[name])) for name in ("PROVIDER_URL", "WEIR_URL"))
        self.assertEqual(direct, through)
        return through

    def test_converse_stream(self):
        messages = [{"role": "user", "content": [{"text": "Tell me about foxes"}]}]
        events = self.both(lambda bedrock: list(bedrock.converse_stream(modelId=MODEL, messages=messages)["stream"]))
        self.assertEqual(events[1]["contentBlockDelta"]["delta"], {"text": "Foxes are red."})
        self.assertEqual(events[-1]["metadata"]["usage"]["outputTokens"], 200)

    def test_invoke_model_with_response_stream(self):
        body = json.dumps({"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]})

        def ask(bedrock):
            stream = bedrock.invoke_model_with_response_stream(modelId=MODEL, body=body)["body"]
            return [json.loads(event["chunk"]["bytes"]) for event in stream]

        self.assertEqual([chunk["type"] for chunk in self.both(ask)][-1], "message_stop")


if __name__ == "__main__":
    unittest.main()
