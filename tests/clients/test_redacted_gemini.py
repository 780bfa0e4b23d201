"""Google's client library where answers are redacted (`pii.redact_answers`): it reads what the provider said with tags in the place of
personal data.

Run by the Rust suite, which names the gateway in WEIR_URLS, as `redacts`.
"""

import asyncio
import json
import os
import unittest

from google import genai
from google.genai import types

MODEL = "gemini-2.5-flash"
QUESTION = "Whom do I write to?"
SAID = "Write to jane.doe@example.com, card 4111 1111 1111 1111, about 12 apples."
READ = "Write to [PII:EMAIL], card [PII:CREDIT_CARD], about 12 apples."


class Gemini(unittest.TestCase):
    def setUp(self):
        url = json.loads(os.environ["WEIR_URLS"])["redacts"]
        options = types.HttpOptions(base_url=url, headers={"x-fake-reply": SAID})
        self.client = genai.Client(api_key="made-up", http_options=options)

    def test_whole_and_streamed(self):
        self.assertEqual(self.client.models.generate_content(model=MODEL, contents=QUESTION).text, READ)
        chunks = self.client.models.generate_content_stream(model=MODEL, contents=QUESTION)
        self.assertEqual("".join(chunk.text or "" for chunk in chunks), READ)

    def test_asynchronously(self):
        async def ask():
            models = self.client.aio.models
            whole = await models.generate_content(model=MODEL, contents=QUESTION)
            chunks = [chunk async for chunk in await models.generate_content_stream(model=MODEL, contents=QUESTION)]
            return whole.text, "".join(chunk.text or "" for chunk in chunks)

        self.assertEqual(asyncio.run(ask()), (READ, READ))


if __name__ == "__main__":
    unittest.main()
