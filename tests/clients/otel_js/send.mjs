// The official OpenTelemetry SDK for JavaScript reports an agent's step and a call within it, in the encoding that argv names. Prints the
// ids as a line of JSON. Run by the Rust suite, which names the gateway in WEIR_URL.
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { SpanKind, SpanStatusCode, context, trace } = require("@opentelemetry/api");
const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");
const { OTLPTraceExporter: Json } = require("@opentelemetry/exporter-trace-otlp-http");
const { OTLPTraceExporter: Protobuf } = require("@opentelemetry/exporter-trace-otlp-proto");

const [encoding, compression] = process.argv.slice(2);
const Exporter = encoding === "json" ? Json : Protobuf;
const exporter = new Exporter({ url: `${process.env.WEIR_URL}/v1/traces`, compression });
const failed = [];
const send = exporter.export.bind(exporter);
exporter.export = (spans, done) => send(spans, (result) => (result.code && failed.push(result), done(result)));
const provider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter)] });
const tracer = provider.getTracer("shop");

const step = tracer.startSpan("step", { attributes: { "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk" } });
const around = trace.setSpan(context.active(), step);
const said = (role, content) => JSON.stringify([{ role, parts: [{ type: "text", content }] }]);
const call = tracer.startSpan("chat gpt-4o", { kind: SpanKind.CLIENT }, around);
call.setAttributes({
  "gen_ai.operation.name": "chat",
  "gen_ai.provider.name": "openai",
  "gen_ai.request.model": "gpt-4o",
  "gen_ai.input.messages": said("user", "Wie heißt der Fluß? 🌊"),
  "gen_ai.output.messages": said("assistant", "Donau"),
  "gen_ai.usage.input_tokens": 120,
  "gen_ai.usage.output_tokens": 30,
  "gen_ai.response.finish_reasons": ["stop"],
  "app.share": 0.25,
  "app.large": 9007199254740991,
  "app.is_new": true,
  "app.colors": ["blue", "green"],
});
call.addEvent("retry", { attempt: 2 });
call.end();
step.setStatus({ code: SpanStatusCode.ERROR, message: "the till is closed" });
step.end();
await provider.shutdown();
if (failed.length) throw new Error(JSON.stringify(failed));
const ids = (span) => span.spanContext();
console.log(JSON.stringify({ trace: ids(call).traceId, call: ids(call).spanId, step: ids(step).spanId }));
