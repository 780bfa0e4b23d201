"""Frameworks over the official libraries: what their users get is in the record, with its model, roles, texts, tokens and tool
calls, streamed and not. Each case uses a key of its own, and so has a tenant of its own whose spans are all its own.

Run by the Rust suite, which starts both ends and names the gateway in WEIR_URL; the versions are those of `frameworks_pins.txt`.
"""

import asyncio
import json
import os
import time
import unittest
import urllib.request

os.environ.update(LANGSMITH_TRACING="false", OPENAI_AGENTS_DISABLE_TRACING="1", LITELLM_LOCAL_MODEL_COST_MAP="True")

WEIR_URL = os.environ["WEIR_URL"]
BASE = f"{WEIR_URL}/v1"
MODEL = "fake-large"
SYSTEM = "You are a geographer."
QUESTION = "Which river is the longest?"
TOOL_QUESTION = "Use get_weather for Paris."


def read(path, key):
    request = urllib.request.Request(f"{WEIR_URL}{path}", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def get_weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"rain in {city}"


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.key = f"sk-{self.id().rsplit('.', 1)[-1]}"

    def spans(self, count):
        """The spans of this case in the order of their calls, as soon as all are there."""
        end = time.monotonic() + 20
        while True:
            listed = read("/api/v1/spans?limit=100", self.key)["data"]
            if len(listed) >= count or time.monotonic() > end:
                break
            time.sleep(0.02)
        self.assertEqual(len(listed), count)
        listed.sort(key=lambda span: span["start_time"])
        return [read(f"/api/v1/spans/{span['span_id']}", self.key) for span in listed]

    def whole(self, span, streaming):
        """What every record of a call has."""
        self.assertEqual((span["model"], span["streaming"], span["status_code"]), (MODEL, streaming, 200))
        self.assertIsNone(span["error_type"])
        self.assertIsNotNone(span["security_score"])
        self.assertGreater(span["prompt_tokens"], 0)
        self.assertGreater(span["completion_tokens"], 0)
        self.assertEqual(span["total_tokens"], span["prompt_tokens"] + span["completion_tokens"])

    def said(self, span):
        """Who says what in it."""
        return [(m["role"], "".join(p.get("text") or "" for p in m["parts"])) for m in span["messages"]]

    def check_chat(self, span, answer, streaming, finish="stop"):
        """A question with a system prompt, and its answer."""
        self.assertTrue(answer.strip())
        self.whole(span, streaming)
        self.assertEqual(span["finish_reason"], finish)
        # In the order of the wire: a system prompt outside of the messages may stand behind them.
        said = [("system" if role == "developer" else role, text) for role, text in self.said(span)]
        self.assertEqual(sorted(said), sorted([("system", SYSTEM), ("user", QUESTION), ("assistant", answer)]))
        self.assertEqual(said[-1], ("assistant", answer))

    def check_tool_call(self, span, arguments, streaming, finish="tool_calls"):
        """A call of the tool, with what it was called with."""
        self.whole(span, streaming)
        self.assertEqual(span["finish_reason"], finish)
        calls = [event for event in span["events"] if event["event_type"] == "tool_call"]
        self.assertEqual(len(calls), 1, span["events"])
        self.assertEqual(json.loads(calls[0]["data"]["arguments"]), arguments)
        parts = [part for message in span["messages"] for part in message["parts"]]
        self.assertIn("get_weather", [part["name"] for part in parts if part["type"] == "tool_call"], parts)

    def check_tool_result(self, span, text, answer, streaming):
        """The call after it, with what the tool brought and the answer."""
        self.whole(span, streaming)
        said = self.said(span)
        self.assertTrue(any(text in words for role, words in said if role in ("tool", "user")), said)
        self.assertEqual(said[-1], ("assistant", answer))


class Langchain(Case):
    ASK = [("system", SYSTEM), ("user", QUESTION)]

    def openai(self, **more):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=MODEL, base_url=BASE, api_key=self.key, max_retries=0, **more)

    def anthropic(self):
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=MODEL, base_url=WEIR_URL, api_key=self.key, max_retries=0, max_tokens=300)

    def test_langchain_chat(self):
        answer = self.openai().invoke(self.ASK)
        self.check_chat(self.spans(1)[0], answer.content, False)
        self.assertEqual(self.spans(1)[0]["total_tokens"], answer.usage_metadata["total_tokens"])

    def test_langchain_chat_stream(self):
        answer = "".join(chunk.content for chunk in self.openai(stream_usage=True).stream(self.ASK))
        self.check_chat(self.spans(1)[0], answer, True)

    def test_langchain_tool(self):
        from langchain_core.tools import tool

        for_tool = self.openai().bind_tools([tool(get_weather)])
        call = for_tool.invoke(TOOL_QUESTION).tool_calls[0]
        self.assertEqual(call["name"], "get_weather")
        self.check_tool_call(self.spans(1)[0], call["args"], False)

    def test_langchain_tool_stream(self):
        from langchain_core.tools import tool

        whole = None
        for chunk in self.openai(stream_usage=True).bind_tools([tool(get_weather)]).stream(TOOL_QUESTION):
            whole = chunk if whole is None else whole + chunk
        self.check_tool_call(self.spans(1)[0], whole.tool_calls[0]["args"], True)

    def test_langchain_responses(self):
        answer = self.openai(use_responses_api=True).invoke(self.ASK)
        self.check_chat(self.spans(1)[0], answer.text, False, "completed")

    def test_langchain_messages(self):
        answer = self.anthropic().invoke(self.ASK)
        self.check_chat(self.spans(1)[0], answer.text, False, "end_turn")

    def test_langchain_messages_stream(self):
        answer = "".join(chunk.text for chunk in self.anthropic().stream(self.ASK))
        self.check_chat(self.spans(1)[0], answer, True, "end_turn")

    def test_langchain_messages_tool(self):
        from langchain_core.tools import tool

        call = self.anthropic().bind_tools([tool(get_weather)]).invoke(TOOL_QUESTION).tool_calls[0]
        self.check_tool_call(self.spans(1)[0], call["args"], False, "tool_use")


class LlamaIndex(Case):
    def llm(self):
        from llama_index.llms.openai_like import OpenAILike

        return OpenAILike(
            model=MODEL, api_base=BASE, api_key=self.key, is_chat_model=True, is_function_calling_model=True, max_retries=0
        )

    def ask(self):
        from llama_index.core.llms import ChatMessage

        return [ChatMessage(role="system", content=SYSTEM), ChatMessage(role="user", content=QUESTION)]

    def test_llama_index_chat(self):
        answer = self.llm().chat(self.ask()).message.content
        self.check_chat(self.spans(1)[0], answer, False)

    def test_llama_index_chat_stream(self):
        answer = "".join(piece.delta or "" for piece in self.llm().stream_chat(self.ask()))
        self.check_chat(self.spans(1)[0], answer, True)

    def test_llama_index_tool(self):
        from llama_index.core.tools import FunctionTool

        llm = self.llm()
        answer = llm.chat_with_tools([FunctionTool.from_defaults(get_weather)], user_msg=TOOL_QUESTION)
        call = llm.get_tool_calls_from_response(answer)[0]
        self.check_tool_call(self.spans(1)[0], call.tool_kwargs, False)


class Litellm(Case):
    ASK = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]

    def complete(self, model, base, **more):
        import litellm

        litellm.suppress_debug_info = True
        return litellm.completion(model=model, api_base=base, api_key=self.key, num_retries=0, **more)

    def test_litellm_chat(self):
        answer = self.complete(f"openai/{MODEL}", BASE, messages=self.ASK)
        self.check_chat(self.spans(1)[0], answer.choices[0].message.content, False)

    def test_litellm_chat_stream(self):
        stream = self.complete(f"openai/{MODEL}", BASE, messages=self.ASK, stream=True)
        answer = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        self.check_chat(self.spans(1)[0], answer, True)

    def test_litellm_tool(self):
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        tools = [{"type": "function", "function": {"name": "get_weather", "description": "w", "parameters": parameters}}]
        ask = [{"role": "user", "content": TOOL_QUESTION}]
        answer = self.complete(f"openai/{MODEL}", BASE, messages=ask, tools=tools)
        arguments = answer.choices[0].message.tool_calls[0].function.arguments
        self.check_tool_call(self.spans(1)[0], json.loads(arguments), False)

    def test_litellm_messages(self):
        answer = self.complete(f"anthropic/{MODEL}", WEIR_URL, messages=self.ASK, max_tokens=300)
        self.check_chat(self.spans(1)[0], answer.choices[0].message.content, False, "end_turn")


class Instructor(Case):
    def test_instructor_tool(self):
        import instructor
        import openai
        import pydantic

        class get_weather(pydantic.BaseModel):
            """What is asked of a city."""

            city: str

        client = instructor.from_openai(openai.OpenAI(base_url=BASE, api_key=self.key, max_retries=0))
        ask = [{"role": "user", "content": TOOL_QUESTION}]
        got = client.chat.completions.create(model=MODEL, messages=ask, response_model=get_weather, max_retries=0)
        self.check_tool_call(self.spans(1)[0], {"city": got.city}, False)


class PydanticAi(Case):
    def agent(self, **more):
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=BASE, api_key=self.key))
        return Agent(model, **more)

    def test_pydantic_ai_chat(self):
        answer = self.agent(system_prompt=SYSTEM).run_sync(QUESTION).output
        self.check_chat(self.spans(1)[0], answer, False)

    def test_pydantic_ai_chat_stream(self):
        async def run():
            async with self.agent(system_prompt=SYSTEM).run_stream(QUESTION) as result:
                return await result.get_output()

        answer = asyncio.run(run())
        self.check_chat(self.spans(1)[0], answer, True)

    def test_pydantic_ai_agent(self):
        seen = []

        def get_weather(city: str) -> str:
            """Tells the weather of a city."""
            seen.append(city)
            return f"rain in {city}"

        answer = self.agent(tools=[get_weather]).run_sync(TOOL_QUESTION).output
        first, second = self.spans(2)
        self.check_tool_call(first, {"city": seen[0]}, False)
        self.check_tool_result(second, f"rain in {seen[0]}", answer, False)


class OpenaiAgents(Case):
    def agent(self, responses=False, **more):
        import agents
        import openai

        client = openai.AsyncOpenAI(base_url=BASE, api_key=self.key, max_retries=0)
        kind = agents.OpenAIResponsesModel if responses else agents.OpenAIChatCompletionsModel
        return agents.Agent(name="geographer", model=kind(model=MODEL, openai_client=client), **more)

    def run_agent(self, agent, question, streamed=False):
        import agents

        async def run():
            if not streamed:
                return (await agents.Runner.run(agent, question)).final_output
            result = agents.Runner.run_streamed(agent, question)
            async for _ in result.stream_events():
                pass
            return result.final_output

        return asyncio.run(run())

    def test_openai_agents_chat(self):
        answer = self.run_agent(self.agent(instructions=SYSTEM), QUESTION)
        self.check_chat(self.spans(1)[0], answer, False)

    def test_openai_agents_chat_stream(self):
        answer = self.run_agent(self.agent(instructions=SYSTEM), QUESTION, streamed=True)
        self.check_chat(self.spans(1)[0], answer, True)

    def test_openai_agents_responses(self):
        answer = self.run_agent(self.agent(responses=True, instructions=SYSTEM), QUESTION)
        self.check_chat(self.spans(1)[0], answer, False, "completed")

    def test_openai_agents_responses_stream(self):
        answer = self.run_agent(self.agent(responses=True, instructions=SYSTEM), QUESTION, streamed=True)
        self.check_chat(self.spans(1)[0], answer, True, "completed")

    def tool_loop(self, responses, streamed, finish):
        import agents

        seen = []

        @agents.function_tool
        def get_weather(city: str) -> str:
            """Tells the weather of a city."""
            seen.append(city)
            return f"rain in {city}"

        answer = self.run_agent(self.agent(responses, tools=[get_weather]), TOOL_QUESTION, streamed)
        first, second = self.spans(2)
        self.check_tool_call(first, {"city": seen[0]}, streamed, finish)
        self.check_tool_result(second, f"rain in {seen[0]}", answer, streamed)

    def test_openai_agents_tool(self):
        self.tool_loop(False, False, "tool_calls")

    def test_openai_agents_tool_stream(self):
        self.tool_loop(False, True, "tool_calls")

    def test_openai_agents_responses_tool(self):
        self.tool_loop(True, False, "completed")


if __name__ == "__main__":
    unittest.main()
