"""Fifty streams at once with each official client, synchronous and asynchronous, plain and gzip-compressed: through Weir
each stream has to say what it says directly, and leave a trace of its own that says the same.

Run by the Rust suite, which starts both ends and names them in PROVIDER_URL and WEIR_URL.
"""

import asyncio
import concurrent.futures
import json
import os
import time
import unittest
import urllib.error
import urllib.request

import anthropic
import ollama
import openai

PROVIDER_URL = os.environ["PROVIDER_URL"]
WEIR_URL = os.environ["WEIR_URL"]
KEY = "sk-client-tests"
MODEL = "fake-large"
STREAMS = 50
FRAMES = {"x-fake-frame-ms": "5", "x-fake-frames": "20"}


def question(number):
    return [{"role": "user", "content": f"question {number}"}]


def trace(trace_id, key):
    """The trace, as soon as it can be read by the tenant the key names."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{WEIR_URL}/api/v1/traces/{trace_id}", headers=headers)
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code != 404 or time.monotonic() > end:
                raise
        time.sleep(0.01)


class Seen:
    """What the answers' heads say."""

    def __init__(self):
        self.trace_ids = []
        self.codings = []

    def note(self, response):
        self.trace_ids.append(response.headers.get("x-service-trace-id"))
        self.codings.append(response.headers.get("content-encoding"))

    async def note_async(self, response):
        self.note(response)


def openai_sync(url, headers, seen):
    http = openai.DefaultHttpxClient(event_hooks={"response": [seen.note]}, timeout=60)
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, http_client=http)

    def one(number):
        stream = client.chat.completions.create(
            model=MODEL, messages=question(number), stream=True, extra_headers=headers
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)

    with http, concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        return list(pool.map(one, range(STREAMS)))


async def openai_async(url, headers, seen):
    async with openai.DefaultAsyncHttpxClient(event_hooks={"response": [seen.note_async]}, timeout=60) as http:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0, http_client=http)

        async def one(number):
            stream = await client.chat.completions.create(
                model=MODEL, messages=question(number), stream=True, extra_headers=headers
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

        return await asyncio.gather(*(one(number) for number in range(STREAMS)))


def anthropic_sync(url, headers, seen):
    http = anthropic.DefaultHttpxClient(event_hooks={"response": [seen.note]}, timeout=60)
    client = anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, http_client=http)

    def one(number):
        with client.messages.stream(
            model=MODEL, max_tokens=500, messages=question(number), extra_headers=headers
        ) as stream:
            return "".join(stream.text_stream)

    with http, concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        return list(pool.map(one, range(STREAMS)))


async def anthropic_async(url, headers, seen):
    async with anthropic.DefaultAsyncHttpxClient(event_hooks={"response": [seen.note_async]}, timeout=60) as http:
        client = anthropic.AsyncAnthropic(base_url=url, api_key=KEY, max_retries=0, http_client=http)

        async def one(number):
            async with client.messages.stream(
                model=MODEL, max_tokens=500, messages=question(number), extra_headers=headers
            ) as stream:
                return "".join([text async for text in stream.text_stream])

        return await asyncio.gather(*(one(number) for number in range(STREAMS)))


def ollama_sync(url, headers, seen):
    client = ollama.Client(host=url, headers=headers, event_hooks={"response": [seen.note]}, timeout=60)

    def one(number):
        parts = client.chat(model=MODEL, messages=question(number), stream=True)
        return "".join(part["message"]["content"] or "" for part in parts)

    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        texts = list(pool.map(one, range(STREAMS)))
    client.close()
    return texts


async def ollama_async(url, headers, seen):
    client = ollama.AsyncClient(host=url, headers=headers, event_hooks={"response": [seen.note_async]}, timeout=60)

    async def one(number):
        parts = await client.chat(model=MODEL, messages=question(number), stream=True)
        return "".join([part["message"]["content"] or "" async for part in parts])

    return await asyncio.gather(*(one(number) for number in range(STREAMS)))


class FiftyStreams(unittest.TestCase):
    maxDiff = None

    def check(self, ask, key):
        for headers in (FRAMES, FRAMES | {"x-fake-encoding": "gzip"}):
            direct, through = Seen(), Seen()
            expected = self.run_one(ask, PROVIDER_URL, headers, direct)
            got = self.run_one(ask, WEIR_URL, headers, through)
            self.assertEqual(got, expected)
            self.assertTrue(all(expected), "an empty answer proves nothing")
            coding = headers.get("x-fake-encoding")
            self.assertEqual(set(direct.codings), {coding})
            self.assertEqual(through.codings, direct.codings)
            self.assertEqual(len(set(through.trace_ids)), STREAMS)
            answered = {}
            for trace_id in through.trace_ids:
                span = trace(trace_id, key)["spans"][0]
                answered[span["prompt"]] = span["response"]
            self.assertEqual(answered, {f"question {number}": text for number, text in enumerate(expected)})

    @staticmethod
    def run_one(ask, url, headers, seen):
        result = ask(url, headers, seen)
        return asyncio.run(result) if asyncio.iscoroutine(result) else result

    def test_openai(self):
        self.check(openai_sync, KEY)

    def test_openai_async(self):
        self.check(openai_async, KEY)

    def test_anthropic(self):
        self.check(anthropic_sync, KEY)

    def test_anthropic_async(self):
        self.check(anthropic_async, KEY)

    def test_ollama(self):
        self.check(ollama_sync, None)

    def test_ollama_async(self):
        self.check(ollama_async, None)


if __name__ == "__main__":
    unittest.main(verbosity=2)
