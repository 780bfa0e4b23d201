// The official clients for Node.js, directly against the provider and through a gateway: the answers have to be equal, and each call
// has to leave a record that says what was asked, answered and used. Run by the Rust suite, which names both ends in PROVIDER_URL and
// WEIR_URL. Prints how many calls went through the gateway.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { AzureOpenAI } from "openai";

const { PROVIDER_URL, WEIR_URL } = process.env;
const KEY = "sk-clients-of-node";
const MODEL = "fake-large";
const SYSTEM = "You are a geographer.";
const QUESTION = "Which river is the longest?";
const TOOL_QUESTION = "Use get_weather for Paris.";
const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = {
    chat: [{ type: "function", function: { name: "get_weather", description: "w", parameters: schema } }],
    messages: [{ name: "get_weather", description: "w", input_schema: schema }],
};
const asks = {
    chat: { model: MODEL, messages: [{ role: "system", content: SYSTEM }, { role: "user", content: QUESTION }] },
    messages: { model: MODEL, max_tokens: 300, system: SYSTEM, messages: [{ role: "user", content: QUESTION }] },
    responses: { model: MODEL, instructions: SYSTEM, input: QUESTION },
};

const clients = (url, more) => ({
    openai: new OpenAI({ baseURL: `${url}/v1`, apiKey: KEY, maxRetries: 0, ...more }),
    azure: new AzureOpenAI({ endpoint: url, apiKey: KEY, apiVersion: "2024-10-21", deployment: MODEL, maxRetries: 0, ...more }),
    anthropic: new Anthropic({ baseURL: url, apiKey: KEY, maxRetries: 0, ...more }),
});

let trace;
const noting = async (...args) => {
    const answer = await fetch(...args);
    trace = answer.headers.get("x-service-trace-id");
    return answer;
};
const [direct, through] = [clients(PROVIDER_URL), clients(WEIR_URL, { fetch: noting })];

/** The record of the last call, as soon as it can be read. */
async function record() {
    assert.ok(trace, "the answer names no trace");
    const end = Date.now() + 20_000;
    while (true) {
        const answer = await fetch(`${WEIR_URL}/api/v1/traces/${trace}`, { headers: { authorization: `Bearer ${KEY}` } });
        if (answer.status === 200) {
            const { spans } = await answer.json();
            assert.equal(spans.length, 1);
            return spans[0];
        }
        assert.ok(answer.status === 404 && Date.now() < end, `the record: ${answer.status}`);
        await sleep(10);
    }
}

async function listed(stream) {
    const events = [];
    for await (const event of await stream) events.push(event);
    return events;
}

const chatUsage = ({ prompt_tokens, completion_tokens }) => [prompt_tokens, completion_tokens];
const inOut = ({ input_tokens, output_tokens }) => [input_tokens, output_tokens];
const chunksText = (events) => events.map((event) => event.choices[0]?.delta.content ?? "").join("");
const textOf = (content) => content.filter(({ type }) => type === "text").map(({ text }) => text).join("");

// Of each way to ask: the provider it is known by, the call, and of its answer the text, the tokens and the end; of a call of the tool
// its arguments.
const whole = { stream: false };
const chatStream = { stream: true, stream_options: { include_usage: true } };
const chat = (who) => ({
    [`${who} chat`]: {
        ...whole,
        ask: (c) => c[who].chat.completions.create(asks.chat),
        said: (a) => [a.choices[0].message.content, ...chatUsage(a.usage), a.choices[0].finish_reason],
    },
    [`${who} chat streamed`]: {
        stream: true,
        ask: (c) => listed(c[who].chat.completions.create({ ...asks.chat, ...chatStream })),
        said: (events) => [chunksText(events), ...chatUsage(events.at(-1).usage), "stop"],
    },
    [`${who} tool`]: {
        ...whole,
        ask: (c) => c[who].chat.completions.create({ ...asks.chat, messages: [{ role: "user", content: TOOL_QUESTION }], tools: tools.chat }),
        said: (a) => [null, ...chatUsage(a.usage), "tool_calls"],
        called: (a) => JSON.parse(a.choices[0].message.tool_calls[0].function.arguments),
    },
});
const cases = {
    ...chat("openai"),
    ...chat("azure"),
    "openai responses": {
        ...whole,
        ask: (c) => c.openai.responses.create(asks.responses),
        said: (a) => [a.output_text, ...inOut(a.usage), "completed"],
    },
    "openai responses streamed": {
        stream: true,
        ask: (c) => listed(c.openai.responses.create({ ...asks.responses, stream: true })),
        said: (events) => {
            const text = events.filter(({ type }) => type === "response.output_text.delta").map(({ delta }) => delta).join("");
            return [text, ...inOut(events.at(-1).response.usage), "completed"];
        },
    },
    "anthropic messages": {
        ...whole,
        ask: (c) => c.anthropic.messages.create(asks.messages),
        said: (a) => [textOf(a.content), ...inOut(a.usage), "end_turn"],
    },
    "anthropic messages streamed": {
        stream: true,
        ask: (c) => c.anthropic.messages.stream(asks.messages).finalMessage(),
        said: (a) => [textOf(a.content), ...inOut(a.usage), "end_turn"],
    },
    "anthropic tool": {
        ...whole,
        ask: (c) => c.anthropic.messages.create({ ...asks.messages, messages: [{ role: "user", content: TOOL_QUESTION }], tools: tools.messages }),
        said: (a) => [null, ...inOut(a.usage), "tool_use"],
        called: (a) => a.content.find(({ type }) => type === "tool_use").input,
    },
};

const plain = (value) => JSON.parse(JSON.stringify(value, (key, part) => (key === "_request_id" ? undefined : part)));
for (const [name, { ask, said, called, stream }] of Object.entries(cases)) {
    const answer = await ask(through);
    const span = await record();
    assert.deepEqual(plain(answer), plain(await ask(direct)), name);
    const [text, prompt, completion, finish] = said(answer);
    const { model, prompt_tokens, completion_tokens, total_tokens, tokens_estimated, finish_reason, streaming, status_code } = span;
    assert.deepEqual(
        { model, prompt_tokens, completion_tokens, total_tokens, tokens_estimated, finish_reason, streaming, status_code },
        {
            model: MODEL, prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion,
            tokens_estimated: false, finish_reason: finish, streaming: stream, status_code: 200,
        },
        name,
    );
    const provider = name.startsWith("azure") ? "azure_openai" : name.split(" ")[0];
    assert.equal(span.provider, provider, name);
    assert.notEqual(span.security_score, null, name);
    const words = span.messages.map(({ role, parts }) => [role === "developer" ? "system" : role, parts.map(({ text }) => text ?? "").join("")]);
    if (called) {
        const calls = span.events.filter(({ event_type }) => event_type === "tool_call");
        assert.deepEqual(calls.map(({ data }) => JSON.parse(data.arguments)), [called(answer)], name);
        assert.ok(words.some(([role, said]) => role === "user" && said === TOOL_QUESTION), `${name}: ${JSON.stringify(words)}`);
        continue;
    }
    assert.ok(text.trim().length > 0, `${name} said nothing`);
    assert.deepEqual(words.toSorted(), [["assistant", text], ["system", SYSTEM], ["user", QUESTION]], name);
}
console.log(`${Object.keys(cases).length} calls, each with its record`);
