"""Google's official client where the gateway says no: requests that are blocked or flagged, answers that are withheld, streams that are
stopped; and where it redacts. It has to raise the error its users catch, to read a stopped stream to an end in order, and, with its
retries switched on, not to ask again.

Run by the Rust suite, which names the provider in PROVIDER_URL and the gateway in WEIR_URLS, as `stops`: `prompt_injection` is blocked,
`secret_leakage` in a request flagged, personal data redacted, and answers stop at critical findings; and, as `unheld`, one that does the
same without hold-back. What the provider has received
since it was last asked, it says at `/seen`.
"""

import asyncio
import json
import os
import unittest
import urllib.request

from google import genai
from google.genai import errors, types
from shared import ATTACK, LEAKING, SECRET, check_stopped

PROVIDER_URL = os.environ["PROVIDER_URL"]
WEIR_URLS = json.loads(os.environ["WEIR_URLS"])
WEIR_URL = WEIR_URLS["stops"]
MODEL = "gemini-2.5-flash"
QUESTION = "Which river is the longest?"
ADDRESS = "jane.roe@example.org"


def seen():
    """The bodies of the requests that the provider has received since it was last asked."""
    with urllib.request.urlopen(f"{PROVIDER_URL}/seen", timeout=10) as answer:
        return [json.loads(body) for _, body in json.load(answer)]


class Stops(unittest.TestCase):
    def setUp(self):
        self.sent = 0
        seen()

    def note(self, request):
        self.sent += 1

    async def note_later(self, request):
        self.sent += 1

    def client(self, url=WEIR_URL, reply=None):
        options = types.HttpOptions(
            base_url=url,
            headers={"x-fake-reply": reply} if reply else {},
            client_args={"event_hooks": {"request": [self.note]}},
            async_client_args={"event_hooks": {"request": [self.note_later]}},
            retry_options=types.HttpRetryOptions(attempts=3, initial_delay=0.01),
        )
        return genai.Client(api_key="gemini-stops", http_options=options)

    def each_way(self, text, reply=None, url=WEIR_URL):
        """What comes of asking whole and streamed, synchronously and not: chunks, or the error that was raised."""

        def whole():
            with self.client(url, reply) as client:
                return [client.models.generate_content(model=MODEL, contents=text)]

        def streamed():
            with self.client(url, reply) as client:
                return list(client.models.generate_content_stream(model=MODEL, contents=text))

        async def whole_later():
            async with self.client(url, reply).aio as client:
                return [await client.models.generate_content(model=MODEL, contents=text)]

        async def streamed_later():
            async with self.client(url, reply).aio as client:
                return [chunk async for chunk in await client.models.generate_content_stream(model=MODEL, contents=text)]

        ways = {
            "whole": whole,
            "streamed": streamed,
            "whole async": lambda: asyncio.run(whole_later()),
            "streamed async": lambda: asyncio.run(streamed_later()),
        }
        for name, ask in ways.items():
            self.sent = 0
            try:
                came = ask()
            except errors.APIError as error:
                came = error
            yield name, came
            self.assertEqual(self.sent, 1, f"{name}: it was asked again")

    def check_refused(self, error, kind, names):
        self.assertIsInstance(error, errors.ClientError)
        self.assertEqual((error.code, error.status), (403, "PERMISSION_DENIED"))
        self.assertIn(names, error.message)
        self.assertEqual(error.details["error"]["type"], kind)

    def test_a_blocked_request(self):
        for _, error in self.each_way(ATTACK):
            self.check_refused(error, "security_enforcement_blocked", "prompt_injection")
        self.assertEqual(seen(), [], "nothing of it reaches the provider")

    def test_a_flagged_request(self):
        for _, chunks in self.each_way(SECRET):
            for chunk in chunks:
                headers = {name.lower(): value for name, value in chunk.sdk_http_response.headers.items()}
                self.assertEqual(headers["x-service-flagged"], "true")
                self.assertEqual(headers["x-service-finding-type"], "secret_leakage")
            self.assertEqual(chunks[-1].candidates[0].finish_reason, types.FinishReason.STOP)
        self.assertEqual(len(seen()), 4)

    def test_an_answer_with_a_key_in_it(self):
        for name, held in [("stops", True), ("unheld", False)]:
            for way, came in self.each_way(QUESTION, LEAKING, url=WEIR_URLS[name]):
                if way.startswith("whole"):
                    self.check_refused(came, "output_safety_blocked", "secret_leakage")
                    continue
                self.assertEqual(came[-1].candidates[0].finish_reason, types.FinishReason.SAFETY)
                check_stopped(self, "".join(chunk.text or "" for chunk in came), held)
            self.assertEqual(len(seen()), 4)

    def test_what_is_rewritten_is_answered_as_ever(self):
        text = f"Write to {ADDRESS} that it is raining."
        direct = ["".join(chunk.text for chunk in chunks) for _, chunks in self.each_way(text, url=PROVIDER_URL)]
        sent = seen()
        through = ["".join(chunk.text for chunk in chunks) for _, chunks in self.each_way(text)]
        self.assertEqual(through, direct)
        self.assertEqual(seen(), json.loads(json.dumps(sent).replace(ADDRESS, "[PII:EMAIL]")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
