"""Google's official client, directly against the provider and through the one address of a gateway with several upstreams: the
answers have to be equal, and every call has to leave a trace.

Run by the Rust suite, which names both in PROVIDER_URL and WEIR_URL.
"""

import json
import os
import time
import unittest
import urllib.error
import urllib.request

from google import genai
from google.genai import types

PROVIDER_URL = os.environ["PROVIDER_URL"]
WEIR_URL = os.environ["WEIR_URL"]
KEY = "gemini-client-tests"
MODEL = "gemini-2.5-flash"
QUESTION = "Which river is the longest?"


def client(url):
    return genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=url))


def spans():
    """What is recorded of this client, by the tenant its key names."""
    request = urllib.request.Request(f"{WEIR_URL}/api/v1/spans?limit=100", headers={"x-goog-api-key": KEY})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["data"]


def newest(count):
    """The newest span, once there are `count`."""
    end = time.monotonic() + 20
    while len(found := spans()) < count:
        if time.monotonic() > end:
            raise AssertionError(f"{len(found)} spans instead of {count}")
        time.sleep(0.02)
    return found[0]


class Gemini(unittest.TestCase):
    maxDiff = None

    def both(self, ask):
        direct, through = ask(client(PROVIDER_URL)), ask(client(WEIR_URL))
        self.assertEqual(through, direct)
        return through

    def check(self, count, streaming):
        span = newest(count)
        expected = {
            "provider": "gemini",
            "model": MODEL,
            "prompt": QUESTION,
            "response": "Foxes are small canids.",
            "prompt_tokens": 10,
            "completion_tokens": 9,
            "streaming": streaming,
            "status_code": 200,
        }
        self.assertEqual({name: span[name] for name in expected}, expected)
        # 10 tokens at 3 dollars for a million, and 9 at 5.
        self.assertAlmostEqual(span["estimated_cost_usd"], 75e-6, places=9)

    def test_an_answer_and_a_stream(self):
        def whole(gemini):
            return gemini.models.generate_content(model=MODEL, contents=QUESTION).text

        def stream(gemini):
            return [chunk.text for chunk in gemini.models.generate_content_stream(model=MODEL, contents=QUESTION)]

        self.both(whole)
        self.check(1, False)
        self.both(stream)
        self.check(2, True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
