// A conversation as a conversation: who said what, tool calls and results, findings where they stand in the text.
import { html, useState } from "./dom.js";
import { bytes, visible } from "./format.js";
import { Copy, Severity } from "./widgets.js";

// Longer texts are cut until somebody asks for all: one of some megabytes would hold up the page.
const SHOWN = 4000;
const STEP = 16384;

/** Where the findings stand in `text`: `[start, end, finding]`, in order and without overlap. */
export function marks(text, findings) {
  const found = [];
  for (const finding of findings) {
    const words = finding.evidence;
    let start = words ? text.indexOf(words) : -1;
    let end = start + (words || "").length;
    if (start < 0 && finding.span) [start, end] = characters(text, finding.span);
    if (start >= 0 && end > start) found.push([start, end, finding]);
  }
  found.sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  let behind = 0;
  return found.filter(([start, end]) => {
    const keeps = start >= behind;
    if (keeps) behind = end;
    return keeps;
  });
}

/** Byte offsets of UTF-8 as offsets of characters; `[-1, -1]` where they are not of this text. */
function characters(text, { start, end }) {
  if (text.length > 1 << 20) return [-1, -1];
  const whole = new TextEncoder().encode(text);
  if (end > whole.length) return [-1, -1];
  const decoder = new TextDecoder();
  return [decoder.decode(whole.subarray(0, start)).length, decoder.decode(whole.subarray(0, end)).length];
}

// Browsers lay a word out anew for each line that it is broken into: a long one takes the square of its length, unless it says where it
// may be broken.
const WORD = 200;

/** A text whose long words may be broken, as pieces. */
function breakable(text) {
  if (!/\S{400}/.test(text)) return [text];
  return text.split(new RegExp(`(\\S{${WORD}})`)).flatMap((piece) => (piece.length >= WORD ? [piece, html`<wbr />`] : [piece]));
}

export function Text({ text, findings = [], mono, shown = SHOWN }) {
  const [limit, setLimit] = useState(shown);
  const cut = text.length > limit ? text.slice(0, limit) : text;
  const pieces = [];
  let at = 0;
  for (const [start, end, finding] of marks(text, findings)) {
    if (start >= cut.length) break;
    pieces.push(...breakable(visible(cut.slice(at, start))));
    pieces.push(
      html`<mark class=${finding.severity.toLowerCase()} title=${`${finding.finding_type}, ${finding.severity}: ${finding.description}`}
        >${breakable(visible(cut.slice(start, end)))}</mark
      >`,
    );
    at = Math.min(end, cut.length);
  }
  pieces.push(...breakable(visible(cut.slice(at))));
  return html`<div class=${`text ${mono ? "mono" : ""}`} dir="auto">
    ${pieces}${text.length > limit &&
    html`<span class="cut">
      … ${bytes(text.length - limit)} more
      <button class="small" onClick=${() => setLimit(limit + STEP)}>Show ${text.length - limit > STEP ? "more" : "all"}</button>
    </span>`}
  </div>`;
}

const LABELS = { tool_call: "calls", tool_result: "result of", reasoning: "reasoning", tool_definition: "tool", file: "file" };

// System prompts are long and mostly known: their beginning says which one it is.
const SHOWN_OF_SYSTEM = 400;

function Part({ part, findings, role }) {
  const here = findings.filter((finding) => (part.findings || []).includes(finding.id));
  const label = LABELS[part.type] || (part.type === "text" ? "" : part.type.replaceAll("_", " "));
  const text = part.text ?? (part.value === undefined ? null : JSON.stringify(part.value, null, 2));
  const isCode = part.type !== "text" && part.type !== "reasoning";
  const body =
    text === null
      ? html`<div class="text gone">${part.file ? `${part.file.media_type || "file"} ${bytes(part.file.bytes)}` : "not kept"}</div>`
      : html`<${Text} text=${text} findings=${here} mono=${isCode} shown=${role === "system" && here.length === 0 ? SHOWN_OF_SYSTEM : SHOWN} />`;
  const head = (label || part.name) && html`<span class="label">${label} ${part.name && html`<code>${visible(part.name)}</code>`}</span>`;
  const folded = part.type === "reasoning" || part.type === "tool_definition";
  const badges = here.map((finding) => html`<span class="found"><${Severity} value=${finding.severity} /> ${finding.finding_type}</span>`);
  if (folded) return html`<details class=${`part ${part.type}`} open=${here.length > 0}><summary>${head} ${badges}</summary>${body}</details>`;
  return html`<div class=${`part ${part.type}`}>${head} ${badges} ${body}</div>`;
}

/** One message. */
export function Message({ message, findings }) {
  const role = message.side === "response" && !message.role ? "assistant" : message.role || "unknown";
  return html`<article class=${`message ${role.toLowerCase().replace(/[^a-z]/g, "")} ${message.side}`}>
    <header><span class="role">${visible(role)}</span>${message.side === "response" ? html` <span class="side">answer</span>` : ""}</header>
    ${message.parts.map((part) => html`<${Part} part=${part} findings=${findings} role=${role} />`)}
  </article>`;
}

const sameMessage = (a, b) => a && b && a.role === b.role && JSON.stringify(a.parts.map(plain)) === JSON.stringify(b.parts.map(plain));
const plain = ({ type, name, text, value }) => [type, name, text, value];

/** How many of this call's messages the call before it had sent already, or was answered with. */
export function repeated(messages, before) {
  let count = 0;
  while (count < messages.length && messages[count].side === "request" && sameMessage(messages[count], before[count])) count += 1;
  return count;
}

/** The messages of a span; those that the call before it had too are folded. */
export function Conversation({ span, before }) {
  const [all, setAll] = useState(false);
  const messages = span.messages || [];
  const findings = span.security_findings || [];
  const known = before && !all ? repeated(messages, before.messages || []) : 0;
  if (messages.length === 0) {
    return html`<div class="conversation">
      ${span.prompt && html`<article class="message user"><header><span class="role">prompt</span></header><${Text} text=${span.prompt} findings=${findings} /></article>`}
      ${span.response && html`<article class="message assistant response"><header><span class="role">response</span></header><${Text} text=${span.response} findings=${findings} /></article>`}
      ${!span.prompt && !span.response && html`<p class="gone">No texts are kept of this call.</p>`}
    </div>`;
  }
  return html`<div class="conversation">
    ${known > 0 &&
    html`<button class="fold" onClick=${() => setAll(true)}>${known} earlier ${known === 1 ? "message" : "messages"}, as in the turn before</button>`}
    ${messages.slice(known).map((message) => html`<${Message} message=${message} findings=${findings} />`)}
  </div>`;
}

/** The findings of a span as a list. */
export function Findings({ findings }) {
  if (!findings || findings.length === 0) return null;
  return html`<ul class="findings">
    ${findings.map(
      (finding) => html`<li>
        <${Severity} value=${finding.severity} /> <strong>${finding.finding_type}</strong> ${Math.round(finding.confidence * 100)} %${" "}
        <span class="by">${finding.detector}${finding.metadata && finding.metadata.rule ? `, rule ${finding.metadata.rule}` : ""}</span>
        <div>${visible(finding.description)}</div>
        ${finding.evidence && html`<div class="text mono evidence" dir="auto">${visible(finding.evidence)}</div>`}
      </li>`,
    )}
  </ul>`;
}

/** What a shell needs to ask the same again. */
export function curlOf(span, request) {
  const quoted = JSON.stringify(request).replaceAll("'", "'\\''");
  return `curl ${location.origin}${PATHS[span.operation_name] || "/v1/chat/completions"} -H 'Content-Type: application/json' -d '${quoted}'`;
}
const PATHS = { messages: "/v1/messages", responses: "/v1/responses", embedding: "/v1/embeddings", chat: "/api/chat", generate: "/api/generate" };

export function CopyRequest({ span, load }) {
  return html`<${Copy} label="Copy as curl" text=${async () => curlOf(span, await load())} />`;
}
