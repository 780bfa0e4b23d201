// The AI SDK through Weir. Needs `npm install ai @ai-sdk/openai`.

import { createOpenAI } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

const weir = process.env.WEIR_URL ?? "http://127.0.0.1:8080";
const openai = createOpenAI({ baseURL: `${weir}/v1`, apiKey: process.env.OPENAI_API_KEY ?? "sk-example" });

// A session groups calls in the record; without the header each call is one by itself.
const headers = { "X-Service-Session-Id": "example-of-the-ai-sdk" };

const { text } = await generateText({ model: openai.chat("gpt-4o-mini"), prompt: "Name a river.", headers });
console.log("answer:", text);

let pieces = 0;
for await (const _ of streamText({ model: openai.chat("gpt-4o-mini"), prompt: "Count to ten.", headers }).textStream) pieces += 1;
console.log("pieces of the stream:", pieces);
