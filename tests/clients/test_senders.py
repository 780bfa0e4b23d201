"""Real applications that report their calls: the official OpenAI and Anthropic clients, instrumented by one of the usual senders, which
exports to Weir by OTLP. Two calls of each client go straight to the provider, the third one passes the gateway.

Run by the Rust suite, which names the ends in PROVIDER_URL and WEIR_URL, and the sender in SENDER.
"""

import contextlib
import json
import os
import unittest
import urllib.request

from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PROVIDER_URL = os.environ["PROVIDER_URL"]
WEIR_URL = os.environ["WEIR_URL"]
SENDER = os.environ["SENDER"]
SESSION, USER = "session-7", "ann"
# Whoever reports a call and makes it are the same tenant.
TENANT = {"x-service-tenant-id": "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10"}
STEER = TENANT | {"x-fake-cached-tokens": "16", "x-fake-cache-write-tokens": "8", "x-fake-reasoning-tokens": "5"}
SYSTEM = "You answer for a shop that sells boots, coats and umbrellas. " * 3
ORDER, RESULT, QUESTION = "Please call get_weather for Oslo.", "rain, 4 degrees", "Boots or coats?"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ABSENT = None

# What a cell holds where it is not what the client was told itself: ABSENT where the sender does not send it. All else is checked to be
# there, by client, and for its streamed call in addition. Anthropic's interface counts no tokens of reasoning, OpenAI's none that are
# written to a cache.
STREAMED = {
    # OpenLLMetry leaves out what a stream's last chunk says of reasoning, counts a token of `message_start` once more, and does not
    # say that the helper `messages.stream` streams.
    "openai streamed": {"reasoning": ABSENT},
    "anthropic streamed": {"streaming": False, "completion": "one more"},
}
TABLE = {
    "openllmetry": {"openai": {"session": ABSENT}, "anthropic": {"session": ABSENT, "user": ABSENT}} | STREAMED,
    "openinference": {},
    "traceloop": STREAMED,
    "langfuse": {
        "openai": {"finish": ABSENT},
        "openai streamed": {"finish": "stop"},
        "anthropic streamed": STREAMED["anthropic streamed"],
    },
}
# Which instrumentation reports the spans of each client.
SCOPES = {
    "openllmetry": ("opentelemetry.instrumentation.openai.v1", "opentelemetry.instrumentation.anthropic"),
    "openinference": ("openinference.instrumentation.openai", "openinference.instrumentation.anthropic"),
    "traceloop": ("opentelemetry.instrumentation.openai.v1", "opentelemetry.instrumentation.anthropic"),
    "langfuse": ("langfuse-sdk", "opentelemetry.instrumentation.anthropic"),
}
# Dollars for a million tokens by the makers' lists: of the prompt, read from a cache, written to one, of the answer.
PRICES = {"gpt-4o": (2.5, 1.25, 0, 10), "claude-sonnet-4-5": (3, 0.3, 3.75, 15)}
# Senders have their own words for why an answer ended.
ENDINGS = {"tool_call": "tool_calls", "tool_use": "tool_calls", "end_turn": "stop"}


def exporter():
    return OTLPSpanExporter(endpoint=f"{WEIR_URL}/v1/traces", headers=TENANT)


def plain_provider():
    provider = TracerProvider()
    # What an application's processor gathers comes in one request, as it does by default within five seconds.
    provider.add_span_processor(BatchSpanProcessor(exporter(), schedule_delay_millis=60_000))
    trace.set_tracer_provider(provider)


def openllmetry():
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    plain_provider()
    OpenAIInstrumentor().instrument()
    AnthropicInstrumentor().instrument()
    return contextlib.nullcontext()


def openinference():
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.anthropic import AnthropicInstrumentor
    from openinference.instrumentation.openai import OpenAIInstrumentor

    plain_provider()
    OpenAIInstrumentor().instrument()
    AnthropicInstrumentor().instrument()
    return using_attributes(session_id=SESSION, user_id=USER)


def traceloop():
    from traceloop.sdk import Traceloop

    Traceloop.init(app_name="shop", exporter=exporter(), telemetry_enabled=False)
    Traceloop.set_association_properties({"session_id": SESSION, "user_id": USER})
    return contextlib.nullcontext()


def langfuse():
    from langfuse import Langfuse, propagate_attributes
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor

    Langfuse(
        public_key="pk",
        secret_key="sk",
        base_url="http://127.0.0.1:9",
        span_exporter=exporter(),
        should_export_span=lambda span: True,
        flush_interval=60,
    )
    AnthropicInstrumentor().instrument()
    return propagate_attributes(session_id=SESSION, user_id=USER)


def traced(request):
    """What an instrumented HTTP client does: it names the span that is current."""
    propagate.inject(request.headers)


class Asked:
    """What an application said, was told, and used; by call."""

    def __init__(self):
        self.calls = []

    def note(self, client, said, told, **cells):
        self.calls.append({"client": client, "conversation": said + [told], **cells})


def openai_calls(asked):
    import openai as plain

    if SENDER == "langfuse":
        from langfuse.openai import openai
    else:
        openai = plain
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": PARAMETERS}}]
    options = {"model": "gpt-4o", "user": USER}
    direct = openai.OpenAI(base_url=f"{PROVIDER_URL}/v1", api_key="sk-x", max_retries=0, default_headers=STEER)
    hooks = plain.DefaultHttpxClient(event_hooks={"request": [traced]})
    through = openai.OpenAI(
        base_url=f"{WEIR_URL}/v1", api_key="sk-x", max_retries=0, default_headers=STEER, http_client=hooks
    )

    def used(usage):
        return {
            "model": "gpt-4o",
            "provider": "openai",
            "prompt": usage.prompt_tokens,
            "completion": usage.completion_tokens,
            "cached": usage.prompt_tokens_details.cached_tokens,
            "cache_write": ABSENT,
            "reasoning": usage.completion_tokens_details.reasoning_tokens,
        }

    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": ORDER}]
    said = [("system", "text", SYSTEM), ("user", "text", ORDER)]
    answer = direct.chat.completions.create(messages=messages, tools=tools, **options)
    call = answer.choices[0].message.tool_calls[0]
    told = ("assistant", "tool_call", call.function.name, json.loads(call.function.arguments))
    asked.note("openai", said, told, streaming=False, tools=True, finish="tool_calls", **used(answer.usage))
    messages.append(answer.choices[0].message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": RESULT})
    said = said + [told, ("tool", "tool_result", RESULT)]
    answer = direct.chat.completions.create(messages=messages, tools=tools, **options)
    told = ("assistant", "text", answer.choices[0].message.content)
    asked.note("openai", said, told, streaming=False, tools=True, finish="stop", **used(answer.usage))
    messages = [messages[0], {"role": "user", "content": QUESTION}]
    stream = through.chat.completions.create(
        messages=messages, stream=True, stream_options={"include_usage": True}, **options
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    usage = used(chunks[-1].usage)
    said = [("system", "text", SYSTEM), ("user", "text", QUESTION)]
    asked.note("openai", said, ("assistant", "text", text), streaming=True, tools=False, finish="stop", **usage)


def anthropic_calls(asked):
    import anthropic

    tools = [{"name": "get_weather", "description": "w", "input_schema": PARAMETERS}]
    options = {"model": "claude-sonnet-4-5", "max_tokens": 500, "system": SYSTEM, "metadata": {"user_id": USER}}
    direct = anthropic.Anthropic(base_url=PROVIDER_URL, api_key="sk-x", max_retries=0, default_headers=STEER)
    hooks = anthropic.DefaultHttpxClient(event_hooks={"request": [traced]})
    through = anthropic.Anthropic(
        base_url=WEIR_URL, api_key="sk-x", max_retries=0, default_headers=STEER, http_client=hooks
    )

    def used(usage):
        cached, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
        return {
            "model": "claude-sonnet-4-5",
            "provider": "anthropic",
            "prompt": usage.input_tokens + cached + written,
            "completion": usage.output_tokens,
            "cached": cached,
            "cache_write": written,
            "reasoning": ABSENT,
        }

    messages = [{"role": "user", "content": ORDER}]
    said = [("system", "text", SYSTEM), ("user", "text", ORDER)]
    answer = direct.messages.create(messages=messages, tools=tools, **options)
    use = answer.content[-1]
    told = ("assistant", "tool_call", use.name, use.input)
    asked.note("anthropic", said, told, streaming=False, tools=True, finish="tool_calls", **used(answer.usage))
    messages.append({"role": "assistant", "content": [part.model_dump(exclude_none=True) for part in answer.content]})
    result = {"type": "tool_result", "tool_use_id": use.id, "content": RESULT}
    messages.append({"role": "user", "content": [result]})
    said = said + [told, ("tool", "tool_result", RESULT)]
    answer = direct.messages.create(messages=messages, tools=tools, **options)
    told = ("assistant", "text", answer.content[0].text)
    asked.note("anthropic", said, told, streaming=False, tools=True, finish="stop", **used(answer.usage))
    messages = [{"role": "user", "content": QUESTION}]
    with through.messages.stream(messages=messages, **options) as stream:
        answer = stream.get_final_message()
    said = [("system", "text", SYSTEM), ("user", "text", QUESTION)]
    told = ("assistant", "text", answer.content[0].text)
    asked.note("anthropic", said, told, streaming=True, tools=False, finish="stop", **used(answer.usage))


def flush():
    if SENDER == "langfuse":
        from langfuse import get_client

        get_client().flush()
    assert trace.get_tracer_provider().force_flush(20_000)


def api(path):
    with urllib.request.urlopen(urllib.request.Request(f"{WEIR_URL}{path}", headers=TENANT), timeout=20) as answer:
        return json.load(answer)


def conversation(span):
    """Who said what, but for the tools that were offered, and the tools."""
    flat, offered = [], []
    for message in span["messages"]:
        for part in message["parts"]:
            if part["type"] == "tool_call":
                flat.append((message["role"], "tool_call", part["name"], json.loads(part["text"])))
            elif part["type"] == "tool_definition":
                offered.append(part["name"])
            else:
                flat.append((message["role"], part["type"], part["text"]))
    return flat, offered


def cost(call):
    """What a call costs by what the client was told, in dollars."""
    new, read, written, answered = PRICES[call["model"]]
    cached, kept = call["cached"] or 0, call["cache_write"] or 0
    fresh = call["prompt"] - cached - kept
    return (fresh * new + cached * read + kept * written + call["completion"] * answered) / 1e6


def said(value, name=""):
    """All that a value says, JSON in texts included: the name that a piece stands under, and the piece."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{", '"'):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if isinstance(value, dict) or hasattr(value, "items"):
        for inner, piece in value.items():
            yield from said(piece, f"{name}.{inner}")
    elif isinstance(value, (list, tuple)):
        for piece in value:
            yield from said(piece, name)
    else:
        yield name, value


def at_source(span):
    """Of a span as its sender exported it, which of the cells that some senders leave out it says."""
    pieces = [*said(dict(span.attributes)), *said(dict(span.resource.attributes))]
    for event in span.events:
        pieces += said(dict(event.attributes))
    named = [(name.lower(), value) for name, value in pieces]

    def has(words, says):
        return any(any(word in name for word in words) and says(value) for name, value in named)

    return {
        "session": any(value == SESSION for _, value in named),
        "user": any(value == USER for _, value in named),
        "reasoning": has(["reasoning"], lambda value: value == 5),
        "finish": has(["finish_reason", "stop_reason"], lambda value: isinstance(value, str) and value != ""),
        "streaming": has(["stream"], lambda value: value is True) or "completion_start_time" in str(named),
        "completion": {value for name, value in named if "output_tokens" in name or "completion_tokens" in name},
    }


class Senders(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        around = globals()[SENDER]()
        # What is exported to the gateway, as it is before anybody has read it.
        cls.exported = InMemorySpanExporter()
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(cls.exported))
        cls.asked = Asked()
        with trace.get_tracer("shop").start_as_current_span("turn") as turn, around:
            openai_calls(cls.asked)
            anthropic_calls(cls.asked)
        flush()
        cls.root = turn.get_span_context()
        cls.spans = api(f"/api/v1/traces/{cls.root.trace_id:032x}")["spans"]

    def report(self, call):
        """The sender's span of a call; there is one."""
        scope = SCOPES[SENDER][call["client"] == "anthropic"]
        fits = [
            span
            for span in self.spans
            if span.get("attributes", {}).get("otel.scope.name") == scope
            and span["operation_name"] == "chat_completion"
            and conversation(span)[0][-1] == call["conversation"][-1]
        ]
        self.assertEqual(len(fits), 1, call["conversation"][-1])
        return fits[0]

    def proxied(self):
        return [span for span in self.spans if "reported" not in span["tags"]]

    def test_the_conversation_is_the_clients_own(self):
        for call in self.asked.calls:
            with self.subTest(client=call["client"], finish=call["finish"], streaming=call["streaming"]):
                said, offered = conversation(self.report(call))
                self.assertEqual(said, call["conversation"])
                self.assertEqual(offered, ["get_weather"] if call["tools"] else [])

    def test_every_cell_is_what_the_client_was_told_or_absent_at_the_source(self):
        for call in self.asked.calls:
            with self.subTest(client=call["client"], finish=call["finish"], streaming=call["streaming"]):
                span = self.report(call)
                kept = span["attributes"]
                # What passed the gateway is counted there; the counters of the report are kept beside.
                counted = {"prompt": "input_tokens", "completion": "output_tokens", "cached": "cache_read.input_tokens"}
                counted["reasoning"] = "reasoning.output_tokens"
                names = {"prompt": "prompt_tokens", "completion": "completion_tokens", "cached": "cached_tokens"}
                names["reasoning"] = "reasoning_tokens"
                cells = {
                    name: kept.get(f"gen_ai.usage.{counted[name]}") if call["streaming"] else span[names[name]]
                    for name in names
                }
                cells["cache_write"] = kept.get("gen_ai.usage.cache_write.input_tokens")
                cells["finish"] = ENDINGS.get(span["finish_reason"], span["finish_reason"])
                cells |= {name: span[name] for name in ("model", "provider", "streaming")}
                cells |= {"session": span["session_id"], "user": kept.get("user.id")}
                expected = {name: value for name, value in call.items() if name in cells}
                expected |= {"session": SESSION, "user": USER}
                expected |= TABLE[SENDER].get(call["client"], {})
                if call["streaming"]:
                    expected |= TABLE[SENDER].get(f"{call['client']} streamed", {})
                if expected["completion"] == "one more":
                    expected["completion"] = call["completion"] + 1
                self.assertEqual(cells, expected)

    def test_what_is_absent_was_not_exported(self):
        exported = {f"{span.context.span_id:016x}": at_source(span) for span in self.exported.get_finished_spans()}
        for call in self.asked.calls:
            with self.subTest(client=call["client"], finish=call["finish"], streaming=call["streaming"]):
                source = exported["".join(self.report(call)["span_id"].split("-")[-2:])]
                other = dict(TABLE[SENDER].get(call["client"], {}))
                if call["streaming"]:
                    other |= TABLE[SENDER].get(f"{call['client']} streamed", {})
                if other.get("completion") == "one more":
                    self.assertIn(call["completion"] + 1, source["completion"])
                    self.assertNotIn(call["completion"], source["completion"])
                # What the table does not name is there, so that it would be seen if it were what the table calls absent.
                cells = {"session": True, "user": True, "finish": True}
                cells["reasoning"] = call["reasoning"] is not ABSENT
                if call["streaming"]:
                    cells["streaming"] = True
                cells |= {name: bool(value) for name, value in other.items() if name != "completion"}
                self.assertEqual({name: source[name] for name in cells}, cells)

    def test_every_call_costs_what_its_tokens_do_once(self):
        for call in self.asked.calls:
            with self.subTest(client=call["client"], finish=call["finish"], streaming=call["streaming"]):
                report, through = self.report(call), None
                if call["streaming"]:
                    through = next(span for span in self.proxied() if span["span_id"] == report["tags"]["counted_by"])
                    self.assertIsNone(report["estimated_cost_usd"])
                self.assertAlmostEqual((through or report)["estimated_cost_usd"], cost(call), places=9)
        total = sum(span["estimated_cost_usd"] or 0 for span in self.spans)
        self.assertAlmostEqual(total, sum(map(cost, self.asked.calls)), places=9)

    def test_the_trace_is_one_tree(self):
        known = {span["span_id"] for span in self.spans}
        roots = [span for span in self.spans if span["parent_span_id"] is None]
        self.assertEqual([span["span_id"][-12:] for span in roots], [f"{self.root.span_id:016x}"[-12:]])
        self.assertEqual([span["span_id"] for span in self.spans if span["parent_span_id"] not in known | {None}], [])
        self.assertEqual(len(self.proxied()), 2, "those that passed the gateway")

    def test_each_call_is_counted_once_whoever_reports_it(self):
        total = sum(call["prompt"] + call["completion"] for call in self.asked.calls)
        self.assertEqual(sum(span["total_tokens"] or 0 for span in self.spans), total)
        self.assertEqual(api("/api/v1/stats")["total_tokens"], total)
        by = {span["tags"].get("counted_by") for span in map(self.report, self.asked.calls)}
        self.assertEqual(by, {None} | {span["span_id"] for span in self.proxied()})


if __name__ == "__main__":
    unittest.main()
