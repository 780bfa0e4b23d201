// The AI SDK of several makers, directly against each provider and through the one address of a gateway: the answers have to be
// equal. Run by the Rust suite, which names all in OPENAI_URL, ANTHROPIC_URL, GEMINI_URL and WEIR_URL. Prints how many calls went
// through the gateway, by maker.

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const { OPENAI_URL, ANTHROPIC_URL, GEMINI_URL, WEIR_URL } = process.env;
const prompt = "Which river is the longest?";

const makers = {
    openai: (url) => {
        const maker = createOpenAI({ baseURL: `${url}/v1`, apiKey: "sk-ai-sdk" });
        return [maker.chat("fake-large"), maker.responses("fake-large")];
    },
    anthropic: (url) => [createAnthropic({ baseURL: `${url}/v1`, apiKey: "sk-ai-sdk" })("fake-large")],
    gemini: (url) => [createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: "gemini-ai-sdk" })("gemini-2.5-flash")],
};

async function whole(model) {
    const { text, usage, finishReason } = await generateText({ model, prompt, maxRetries: 0 });
    return { text, usage, finishReason };
}

async function streamed(model) {
    const stream = streamText({ model, prompt, maxRetries: 0, onError: ({ error }) => { throw error; } });
    const pieces = [];
    for await (const piece of stream.textStream) pieces.push(piece);
    return { pieces, usage: await stream.usage, finishReason: await stream.finishReason };
}

const calls = {};
for (const [name, direct] of Object.entries({ openai: OPENAI_URL, anthropic: ANTHROPIC_URL, gemini: GEMINI_URL })) {
    calls[name] = 0;
    const [own, through] = [makers[name](direct), makers[name](WEIR_URL)];
    for (const at of own.keys()) {
        for (const ask of [whole, streamed]) {
            const answer = await ask(through[at]);
            assert.deepEqual(answer, await ask(own[at]), `${name} ${ask.name}`);
            assert.ok((answer.text ?? answer.pieces.join("")).length > 0, `${name} ${ask.name} said nothing`);
            calls[name] += 1;
        }
    }
}
console.log(JSON.stringify(calls));
