"""Official client libraries where the gateway says no: requests that are blocked or flagged, answers that are withheld, streams that
are stopped. Each has to raise the exception its users catch, to read a stopped stream to an end in order, and not to ask again.

Run by the Rust suite, which starts both ends and names the gateways in WEIR_URLS: `prompt_injection` is blocked, `secret_leakage` in a
request flagged, and answers stop at critical findings; at `stops` with hold-back, at `unheld` without it. To a request with the field
`x-fake-arguments` the provider streams a call of a tool with these arguments, a word at a time.
"""

import asyncio
import json
import os
import unittest

import anthropic
import ollama
import openai
from shared import ATTACK, HARMLESS, LEAKING, SECRET, check_stopped

WEIR_URLS = json.loads(os.environ["WEIR_URLS"])
WEIR_URL = WEIR_URLS["stops"]
MODEL = "fake-large"
QUESTION = "Which river is the longest?"
LEAK = {"x-fake-reply": LEAKING}
UNLEAKED = {"x-fake-reply": HARMLESS}
# A tool's name, what it takes, and a call in which something stands that stops.
TOOL = "keep_note"
SCHEMA = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
CALL = {"x-fake-arguments": json.dumps({"note": LEAKING})}


class Attempts:
    """Counts the requests that a client really sends, and keeps the newest answer's fields."""

    def __init__(self):
        self.count, self.headers = 0, None

    def note(self, request):
        self.count += 1

    async def note_async(self, request):
        self.count += 1

    def note_answer(self, response):
        self.headers = response.headers

    async def note_answer_async(self, response):
        self.headers = response.headers


class Case(unittest.TestCase):
    # Whether the gateway holds words back until it has seen what follows them.
    held, url = True, WEIR_URL

    def setUp(self):
        self.attempts = Attempts()
        self.hooks = {"request": [self.attempts.note], "response": [self.attempts.note_answer]}
        self.async_hooks = {"request": [self.attempts.note_async], "response": [self.attempts.note_answer_async]}

    def check_flagged(self):
        """The newest answer says so, and was asked for once since the last look."""
        headers = self.attempts.headers
        self.assertEqual(headers["x-service-flagged"], "true")
        self.assertEqual(headers["x-service-finding-type"], "secret_leakage")
        self.assertIn(headers["x-service-severity"], ("High", "Critical"))
        self.check_once()
        self.attempts.count, self.attempts.headers = 0, None

    def check_once(self):
        self.assertEqual(self.attempts.count, 1, "it was asked again")

    def check_stopped(self, text):
        check_stopped(self, text, self.held)
        self.check_once()

    def check_cut_call(self, arguments):
        """What came of a call's arguments: its beginning, and no more of the key than may have come."""
        check_stopped(self, arguments, self.held, says_why=False)
        with self.assertRaises(json.JSONDecodeError):
            json.loads(arguments)

    def check_refused(self, error, kind):
        self.assertEqual(error.status_code, 403)
        self.assertIn(kind, str(error.body))
        self.check_once()


class OfOpenAI(Case):
    def setUp(self):
        super().setUp()
        http = openai.DefaultHttpxClient(event_hooks=self.hooks)
        # With the library's own number of retries.
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="sk-stops", http_client=http)
        self.addCleanup(self.client.close)

    def later(self):
        http = openai.DefaultAsyncHttpxClient(event_hooks=self.async_hooks)
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="sk-stops", http_client=http)

    def ask(self, text=QUESTION, **more):
        messages = [{"role": "user", "content": text}]
        return self.client.chat.completions.create(model=MODEL, messages=messages, **more)


class OpenAI(OfOpenAI):
    def test_a_blocked_request(self):
        for stream in (False, True):
            self.attempts.count = 0
            with self.assertRaises(openai.PermissionDeniedError) as caught:
                self.ask(ATTACK, stream=stream)
            self.check_refused(caught.exception, "security_enforcement_blocked")
            self.assertIn("prompt_injection", caught.exception.message)

    def test_a_blocked_request_of_responses(self):
        for stream in (False, True):
            self.attempts.count = 0
            with self.assertRaises(openai.PermissionDeniedError) as caught:
                self.client.responses.create(model=MODEL, input=ATTACK, stream=stream)
            self.check_refused(caught.exception, "security_enforcement_blocked")
            self.assertIn("prompt_injection", caught.exception.message)

    def test_a_flagged_request(self):
        self.assertEqual(self.ask(SECRET).choices[0].finish_reason, "stop")
        self.check_flagged()
        self.assertEqual(list(self.ask(SECRET, stream=True))[-1].choices[0].finish_reason, "stop")
        self.check_flagged()
        self.assertEqual(self.client.responses.create(model=MODEL, input=SECRET).status, "completed")
        self.check_flagged()
        events = list(self.client.responses.create(model=MODEL, input=SECRET, stream=True))
        self.assertEqual(events[-1].type, "response.completed")
        self.check_flagged()

    def test_a_withheld_answer(self):
        with self.assertRaises(openai.PermissionDeniedError) as caught:
            self.ask(extra_headers=LEAK)
        self.check_refused(caught.exception, "output_safety_blocked")
        self.attempts.count = 0
        with self.assertRaises(openai.PermissionDeniedError) as caught:
            self.client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=5000, extra_headers=LEAK)
        self.check_refused(caught.exception, "output_safety_blocked")

    def test_what_codex_is_told_is_no_parse_error_for_the_library(self):
        """A client of that name gets 400, and a failed response: the library reads both."""
        named = {"user-agent": "codex_exec/0.169.0 (Debian 12.0.0; x86_64)"}
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.responses.create(model=MODEL, input=ATTACK, stream=True, extra_headers=named)
        self.assertEqual(caught.exception.code, "security_enforcement_blocked")
        self.check_once()
        self.attempts.count = 0
        events = list(self.client.responses.create(model=MODEL, input=QUESTION, stream=True, extra_headers={**named, **LEAK}))
        error = events[-1].response.error
        self.assertEqual((events[-1].type, events[-1].response.status, error.code), ("response.failed", "failed", "invalid_prompt"))
        self.assertIn("secret_leakage (Critical)", error.message)
        self.check_stopped("".join(event.delta for event in events if event.type == "response.output_text.delta"))

    def test_what_is_harmless_comes_whole(self):
        whole = self.ask(extra_headers=UNLEAKED).choices[0].message.content
        streamed = self.ask(stream=True, extra_headers=UNLEAKED)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in streamed if c.choices), whole)
        self.assertIn("behind399", whole)

    def test_asynchronously(self):
        async def all_of():
            async with self.later() as client:
                ask = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "extra_headers": LEAK}
                with self.assertRaises(openai.PermissionDeniedError) as caught:
                    await client.chat.completions.create(**ask)
                self.check_refused(caught.exception, "output_safety_blocked")
                self.attempts.count = 0
                flagged = {"model": MODEL, "messages": [{"role": "user", "content": SECRET}]}
                await client.chat.completions.create(**flagged)
                self.check_flagged()
                chunks = [chunk async for chunk in await client.chat.completions.create(**flagged, stream=True)]
                self.assertEqual(chunks[-1].choices[0].finish_reason, "stop")
                self.check_flagged()
                blocked = {"model": MODEL, "messages": [{"role": "user", "content": ATTACK}]}
                for stream in (False, True):
                    self.attempts.count = 0
                    with self.assertRaises(openai.PermissionDeniedError) as caught:
                        await client.chat.completions.create(**blocked, stream=stream)
                    self.check_refused(caught.exception, "security_enforcement_blocked")

        asyncio.run(all_of())


class OpenAIStops(OfOpenAI):
    def test_a_stopped_stream(self):
        chunks = list(self.ask(stream=True, extra_headers=LEAK))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "content_filter")
        self.assertEqual({chunk.id for chunk in chunks}, {chunks[0].id})
        self.check_stopped("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices))

    def test_a_stopped_stream_by_the_helper(self):
        messages = [{"role": "user", "content": QUESTION}]
        with self.client.chat.completions.stream(model=MODEL, messages=messages, extra_headers=LEAK) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            with self.assertRaises(openai.ContentFilterFinishReasonError):
                stream.get_final_completion()
        self.check_stopped(text)

    def test_a_stopped_completion_of_a_text(self):
        ask = {"model": MODEL, "prompt": QUESTION, "max_tokens": 5000, "extra_headers": LEAK}
        chunks = list(self.client.completions.create(**ask, stream=True))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "content_filter")
        self.assertEqual({(chunk.id, chunk.object) for chunk in chunks}, {(chunks[0].id, "text_completion")})
        self.check_stopped("".join(chunk.choices[0].text for chunk in chunks))

    def test_a_stopped_response(self):
        events = list(self.client.responses.create(model=MODEL, input=QUESTION, stream=True, extra_headers=LEAK))
        self.assertEqual(events[-1].type, "response.incomplete")
        self.assertEqual(events[-1].response.incomplete_details.reason, "content_filter")
        self.check_stopped("".join(event.delta for event in events if event.type == "response.output_text.delta"))

    def test_asynchronously(self):
        async def all_of():
            async with self.later() as client:
                ask = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "extra_headers": LEAK}
                chunks = [chunk async for chunk in await client.chat.completions.create(**ask, stream=True)]
                self.assertEqual(chunks[-1].choices[0].finish_reason, "content_filter")
                self.check_stopped("".join(c.choices[0].delta.content or "" for c in chunks if c.choices))
                self.attempts.count = 0
                leak = {"model": MODEL, "input": QUESTION, "extra_headers": LEAK}
                events = [event async for event in await client.responses.create(**leak, stream=True)]
                self.assertEqual(events[-1].type, "response.incomplete")
                self.check_stopped("".join(event.delta for event in events if event.type == "response.output_text.delta"))

        asyncio.run(all_of())

    TOOLS = [{"type": "function", "function": {"name": TOOL, "description": "Keeps it.", "parameters": SCHEMA}}]

    def test_inside_an_open_tool_call(self):
        chunks = list(self.ask(stream=True, tools=self.TOOLS, extra_headers=CALL))
        self.assertEqual(chunks[-1].choices[0].finish_reason, "content_filter")
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        calls = [call for delta in deltas for call in delta.tool_calls or []]
        self.assertEqual({call.index for call in calls}, {0})
        self.check_cut_call("".join(call.function.arguments or "" for call in calls))
        self.assertIn("secret_leakage (Critical)", "".join(delta.content or "" for delta in deltas))
        self.check_once()
        self.attempts.count = 0
        messages = [{"role": "user", "content": QUESTION}]
        with self.client.chat.completions.stream(model=MODEL, messages=messages, tools=self.TOOLS, extra_headers=CALL) as stream:
            kinds = {event.type for event in stream}
            self.assertIn("tool_calls.function.arguments.delta", kinds)
            with self.assertRaises(openai.ContentFilterFinishReasonError):
                stream.get_final_completion()
        self.check_once()

    def test_a_response_inside_an_open_tool_call(self):
        tools = [{"type": "function", "name": TOOL, "description": "Keeps it.", "parameters": SCHEMA, "strict": False}]
        ask = {"model": MODEL, "input": QUESTION, "tools": tools, "extra_headers": CALL}
        events = list(self.client.responses.create(**ask, stream=True))
        self.assertEqual((events[-1].type, events[-1].response.incomplete_details.reason), ("response.incomplete", "content_filter"))
        self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
        self.check_cut_call("".join(event.delta for event in events if event.type == "response.function_call_arguments.delta"))
        self.check_once()
        self.attempts.count = 0
        with self.client.responses.stream(**ask) as stream:
            kinds = [event.type for event in stream]
        self.assertEqual(kinds[-1], "response.incomplete")
        self.assertNotIn("response.function_call_arguments.done", kinds)
        self.check_once()


class OpenAIStopsUnheld(OpenAIStops):
    held, url = False, WEIR_URLS["unheld"]


class OfAnthropic(Case):
    def setUp(self):
        super().setUp()
        http = anthropic.DefaultHttpxClient(event_hooks=self.hooks)
        self.client = anthropic.Anthropic(base_url=self.url, api_key="sk-stops", http_client=http)
        self.addCleanup(self.client.close)

    def later(self):
        http = anthropic.DefaultAsyncHttpxClient(event_hooks=self.async_hooks)
        return anthropic.AsyncAnthropic(base_url=self.url, api_key="sk-stops", http_client=http)

    @staticmethod
    def asked(text=QUESTION, **more):
        return {"model": MODEL, "max_tokens": 5000, "messages": [{"role": "user", "content": text}], **more}


class Anthropic(OfAnthropic):
    def test_a_blocked_request(self):
        with self.assertRaises(anthropic.PermissionDeniedError) as caught:
            self.client.messages.create(**self.asked(ATTACK))
        self.check_refused(caught.exception, "security_enforcement_blocked")
        self.attempts.count = 0
        with self.assertRaises(anthropic.PermissionDeniedError) as caught:
            with self.client.messages.stream(**self.asked(ATTACK)) as stream:
                stream.get_final_message()
        self.check_refused(caught.exception, "security_enforcement_blocked")

    def test_a_flagged_request(self):
        self.assertEqual(self.client.messages.create(**self.asked(SECRET)).stop_reason, "end_turn")
        self.check_flagged()
        with self.client.messages.stream(**self.asked(SECRET)) as stream:
            self.assertEqual(stream.get_final_message().stop_reason, "end_turn")
        self.check_flagged()

    def test_a_withheld_answer(self):
        with self.assertRaises(anthropic.PermissionDeniedError) as caught:
            self.client.messages.create(**self.asked(extra_headers=LEAK))
        self.check_refused(caught.exception, "output_safety_blocked")

    def test_asynchronously(self):
        async def all_of():
            async with self.later() as client:
                with self.assertRaises(anthropic.PermissionDeniedError) as caught:
                    await client.messages.create(**self.asked(extra_headers=LEAK))
                self.check_refused(caught.exception, "output_safety_blocked")
                self.attempts.count = 0
                await client.messages.create(**self.asked(SECRET))
                self.check_flagged()
                async with client.messages.stream(**self.asked(SECRET)) as stream:
                    self.assertEqual((await stream.get_final_message()).stop_reason, "end_turn")
                self.check_flagged()
                with self.assertRaises(anthropic.PermissionDeniedError) as caught:
                    async with client.messages.stream(**self.asked(ATTACK)) as stream:
                        await stream.get_final_message()
                self.check_refused(caught.exception, "security_enforcement_blocked")

        asyncio.run(all_of())


class AnthropicStops(OfAnthropic):
    def test_a_stopped_stream(self):
        with self.client.messages.stream(**self.asked(extra_headers=LEAK)) as stream:
            events = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, events[-1]), ("refusal", "message_stop"))
        self.check_stopped(final.content[0].text)

    def test_a_stopped_stream_asynchronously(self):
        async def all_of():
            async with self.later() as client, client.messages.stream(**self.asked(extra_headers=LEAK)) as stream:
                final = await stream.get_final_message()
            self.assertEqual(final.stop_reason, "refusal")
            self.check_stopped(final.content[0].text)

        asyncio.run(all_of())

    def test_inside_an_open_tool_call(self):
        tools = [{"name": TOOL, "description": "Keeps it.", "input_schema": SCHEMA}]
        with self.client.messages.stream(**self.asked(tools=tools, extra_headers=CALL)) as stream:
            events = list(stream)
            final = stream.get_final_message()
        self.assertEqual((final.stop_reason, events[-1].type), ("refusal", "message_stop"))
        call, said = final.content
        self.assertEqual((call.type, call.name, said.type), ("tool_use", TOOL, "text"))
        self.check_cut_call("".join(event.partial_json for event in events if event.type == "input_json"))
        self.assertIn("secret_leakage (Critical)", said.text)
        self.check_once()


class AnthropicStopsUnheld(AnthropicStops):
    held, url = False, WEIR_URLS["unheld"]


class OfOllama(Case):
    def client(self, headers=None):
        client = ollama.Client(host=self.url, event_hooks=self.hooks, headers=headers)
        self.addCleanup(client.close)
        return client


class Ollama(OfOllama):
    def test_what_is_refused_raises(self):
        for text, headers, kind in [(ATTACK, None, "prompt_injection"), (QUESTION, LEAK, "secret_leakage")]:
            self.attempts.count = 0
            with self.assertRaises(ollama.ResponseError) as caught:
                self.client(headers).chat(model=MODEL, messages=[{"role": "user", "content": text}])
            self.assertEqual(caught.exception.status_code, 403)
            self.assertIn(kind, caught.exception.error)
            self.check_once()

    def test_a_flagged_request(self):
        messages = [{"role": "user", "content": SECRET}]
        self.assertTrue(self.client().chat(model=MODEL, messages=messages).done)
        self.check_flagged()
        self.assertTrue(list(self.client().chat(model=MODEL, messages=messages, stream=True))[-1].done)
        self.check_flagged()

    def test_what_is_refused_or_flagged_asynchronously(self):
        async def all_of():
            client = ollama.AsyncClient(host=WEIR_URL, event_hooks=self.async_hooks)
            messages = [{"role": "user", "content": SECRET}]
            self.assertTrue((await client.chat(model=MODEL, messages=messages)).done)
            self.check_flagged()
            parts = [part async for part in await client.chat(model=MODEL, messages=messages, stream=True)]
            self.assertTrue(parts[-1].done)
            self.check_flagged()
            with self.assertRaises(ollama.ResponseError) as caught:
                await client.chat(model=MODEL, messages=[{"role": "user", "content": ATTACK}])
            self.assertEqual(caught.exception.status_code, 403)
            self.assertIn("prompt_injection", caught.exception.error)
            self.check_once()

        asyncio.run(all_of())


class OllamaStops(OfOllama):
    def test_a_stopped_stream(self):
        messages = [{"role": "user", "content": QUESTION}]
        parts = list(self.client(LEAK).chat(model=MODEL, messages=messages, stream=True))
        self.assertTrue(parts[-1].done)
        self.check_stopped("".join(part.message.content or "" for part in parts))

    def test_a_stopped_stream_asynchronously(self):
        async def all_of():
            client = ollama.AsyncClient(host=self.url, event_hooks=self.async_hooks, headers=LEAK)
            messages = [{"role": "user", "content": QUESTION}]
            stream = await client.chat(model=MODEL, messages=messages, stream=True)
            parts = [part async for part in stream]
            self.assertTrue(parts[-1].done)
            self.check_stopped("".join(part.message.content or "" for part in parts))

        asyncio.run(all_of())


class OllamaStopsUnheld(OllamaStops):
    held, url = False, WEIR_URLS["unheld"]


if __name__ == "__main__":
    unittest.main(verbosity=2)
