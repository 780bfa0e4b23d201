"""Official client libraries where answers are redacted (`pii.redact_answers`): each reads, whole and streamed, synchronous and
asynchronous, what the provider said with tags in the place of personal data, and asks once.

Run by the Rust suite, which names the gateways in WEIR_URLS: `redacts` before the fake provider, `converse` before one that speaks
Bedrock.
"""

import asyncio
import json
import os
import unittest

import anthropic
import boto3
import ollama
import openai
from shared import TraceIds

URLS = json.loads(os.environ["WEIR_URLS"])
WEIR_URL = URLS["redacts"]
KEY = "sk-redacted"
MODEL = "fake-large"
QUESTION = "Whom do I write to?"
MESSAGES = [{"role": "user", "content": QUESTION}]
# In a stream the card comes in four pieces.
SAID = "Write to jane.doe@example.com, card 4111 1111 1111 1111, about 12 apples."
READ = "Write to [PII:EMAIL], card [PII:CREDIT_CARD], about 12 apples."
FIELDS = {"x-fake-reply": SAID}


class OpenAi(unittest.TestCase):
    def setUp(self):
        self.ids = TraceIds()
        more = {"base_url": f"{WEIR_URL}/v1", "api_key": KEY, "default_headers": FIELDS}
        self.client = openai.OpenAI(http_client=openai.DefaultHttpxClient(event_hooks=self.ids.hooks()), **more)
        hooks = self.ids.async_hooks()
        self.asynchronous = lambda: openai.AsyncOpenAI(http_client=openai.DefaultAsyncHttpxClient(event_hooks=hooks), **more)

    def check(self, *texts):
        self.assertEqual(list(texts), [READ] * len(texts))
        self.assertEqual(len(self.ids.seen), len(texts))

    def test_chats(self):
        ask = {"model": MODEL, "messages": MESSAGES}
        whole = self.client.chat.completions.create(**ask).choices[0].message.content
        chunks = list(self.client.chat.completions.create(**ask, stream=True))
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        with self.client.chat.completions.stream(**ask) as stream:
            helped = stream.get_final_completion().choices[0].message.content
        self.check(whole, streamed, helped)

    def test_completions(self):
        ask = {"model": MODEL, "prompt": QUESTION, "max_tokens": 500}
        whole = self.client.completions.create(**ask).choices[0].text
        streamed = "".join(chunk.choices[0].text for chunk in self.client.completions.create(**ask, stream=True) if chunk.choices)
        self.check(whole, streamed)

    def test_responses(self):
        ask = {"model": MODEL, "input": QUESTION}
        whole = self.client.responses.create(**ask).output_text
        events = list(self.client.responses.create(**ask, stream=True))
        deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(events[-1].type, "response.completed")
        with self.client.responses.stream(**ask) as stream:
            helped = stream.get_final_response().output_text
        self.check(whole, deltas, helped)

    def test_asynchronously(self):
        async def ask():
            async with self.asynchronous() as client:
                whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
                stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
                chunks = [chunk async for chunk in stream]
                return whole.choices[0].message.content, "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)

        self.check(*asyncio.run(ask()))


class Anthropic(unittest.TestCase):
    more = {"base_url": WEIR_URL, "api_key": KEY, "default_headers": FIELDS}
    ask = {"model": MODEL, "max_tokens": 500, "messages": MESSAGES}

    def test_messages(self):
        client = anthropic.Anthropic(**self.more)
        self.assertEqual(client.messages.create(**self.ask).content[0].text, READ)
        with client.messages.stream(**self.ask) as stream:
            self.assertEqual("".join(stream.text_stream), READ)
            self.assertEqual(stream.get_final_message().content[0].text, READ)

    def test_asynchronously(self):
        async def ask():
            async with anthropic.AsyncAnthropic(**self.more) as client:
                whole = await client.messages.create(**self.ask)
                async with client.messages.stream(**self.ask) as stream:
                    return whole.content[0].text, await stream.get_final_text()

        self.assertEqual(asyncio.run(ask()), (READ, READ))


class Ollama(unittest.TestCase):
    def test_chats(self):
        client = ollama.Client(host=WEIR_URL, headers=FIELDS)
        self.assertEqual(client.chat(model=MODEL, messages=MESSAGES).message.content, READ)
        parts = client.chat(model=MODEL, messages=MESSAGES, stream=True)
        self.assertEqual("".join(part.message.content for part in parts), READ)

    def test_asynchronously(self):
        async def ask():
            client = ollama.AsyncClient(host=WEIR_URL, headers=FIELDS)
            parts = [part async for part in await client.chat(model=MODEL, messages=MESSAGES, stream=True)]
            return "".join(part.message.content for part in parts)

        self.assertEqual(asyncio.run(ask()), READ)


class Bedrock(unittest.TestCase):
    def test_a_converse_stream(self):
        keys = {"aws_access_key_id": "made-up", "aws_secret_access_key": "made-up", "region_name": "eu-west-1"}
        client = boto3.client("bedrock-runtime", endpoint_url=URLS["converse"], **keys)
        self.addCleanup(client.close)
        stream = client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": QUESTION}]}])["stream"]
        events = list(stream)
        deltas = [event["contentBlockDelta"]["delta"]["text"] for event in events if "contentBlockDelta" in event]
        self.assertEqual("".join(deltas), READ)
        self.assertIn("messageStop", events[-2])


if __name__ == "__main__":
    unittest.main()
