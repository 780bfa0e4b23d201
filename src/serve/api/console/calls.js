// Calls: as they end (live), as a list that is searched, and one of them opened.
import { html, useEffect, useRef, useState } from "./dom.js";
import { get } from "./api.js";
import { address, current } from "./route.js";
import { count, dollars, duration, micros, time, visible, NONE } from "./format.js";
import { Copy, Filters, Pager, Score, Status, StatusCode, Table, Words, useLoad } from "./widgets.js";
import { PromptState, explained } from "./cache.js";
import { Export } from "./export.js";
import { Conversation, CopyRequest, Findings, Text } from "./conversation.js";

const LISTED =
  "span_id,trace_id,start_time,duration_ms,overhead_us,model,provider,operation_name,status_code,error_type,security_score,security_findings,enforcement,total_tokens,estimated_cost_usd,agent_id,session_id,client,streaming";

const FIELDS = [
  { name: "model", label: "Model" },
  { name: "agent_id", label: "Agent" },
  { name: "session_id", label: "Session" },
  { name: "status", label: "Status", placeholder: "429, 5xx" },
  { name: "finding_type", label: "Finding" },
  {
    name: "security_score_min",
    label: "Score",
    options: [["", "any"], ["1", "with findings"], ["60", "60 and more"], ["85", "85 and more"]],
  },
];
const MORE = [
  { name: "provider", label: "Provider" },
  { name: "client", label: "Client" },
  { name: "operation_name", label: "Operation" },
  { name: "duration_min_ms", label: "At least ms", type: "number" },
  { name: "cost_min_usd", label: "At least $", type: "number" },
  { name: "start_time", label: "From", placeholder: "2026-01-31T00:00:00Z" },
  { name: "end_time", label: "To", placeholder: "2026-01-31T23:59:59Z" },
];

const worst = (span) => (span.security_findings || []).map((finding) => finding.finding_type).filter((type, at, all) => all.indexOf(type) === at);

export const COLUMNS = [
  { name: "Time", cell: (span) => time(span.start_time), title: (span) => span.start_time },
  { name: "Model", cell: (span) => visible(span.model || NONE), className: "wide" },
  { name: "Status", cell: (span) => html`<${StatusCode} span=${span} />` },
  { name: "Score", cell: (span) => html`<${Score} value=${span.security_score} />` },
  { name: "Findings", cell: (span) => visible(worst(span).join(", ")) || NONE, className: "wide" },
  { name: "Tokens", cell: (span) => count(span.total_tokens), className: "number" },
  { name: "Cost", cell: (span) => dollars(span.estimated_cost_usd), className: "number" },
  { name: "Time taken", cell: (span) => duration(span.duration_ms), className: "number" },
  { name: "Added", cell: (span) => micros(span.overhead_us), className: "number", title: () => "What the gateway added to the call" },
  { name: "Agent or client", cell: (span) => visible(span.agent_id || span.client || NONE), className: "wide" },
];

/** Calls as they end. The newest fifty are asked for each second and a half while the page is looked at. */
export function Live({ params }) {
  const [paused, setPaused] = useState(false);
  const [opened, setOpened] = useState(null);
  const seen = useRef(null);
  const filters = Object.fromEntries(FIELDS.map((field) => [field.name, params[field.name]]));
  const state = useLoad(
    (signal) => get("/api/v1/spans", { ...filters, limit: 50, texts: false, fields: LISTED }, signal),
    [JSON.stringify(filters), paused],
    paused ? 0 : 1500,
  );
  const rows = state.data ? state.data.data : [];
  const fresh = new Set(seen.current ? rows.map((row) => row.span_id).filter((id) => !seen.current.has(id)) : []);
  useEffect(() => {
    if (state.data) seen.current = new Set(rows.map((row) => row.span_id));
  }, [state.data]);
  return html`
    <div class="head">
      <h1>Live</h1>
      <span class=${`pulse ${paused ? "off" : ""}`} role="status">${paused ? "paused" : "following"}</span>
      <button onClick=${() => setPaused(!paused)}>${paused ? "Follow" : "Pause"}</button>
    </div>
    <${Filters} page="live" params=${params} fields=${FIELDS} />
    <${Status} state=${state} empty=${state.data && rows.length === 0 && "No calls of this tenant yet. Point a client at the gateway, and each call appears here as it ends. The key of a call names its tenant: choose that tenant at the top."} />
    ${rows.length > 0 &&
    html`<${Table}
      caption="The newest calls"
      columns=${COLUMNS}
      rows=${rows}
      id=${(span) => span.span_id}
      fresh=${fresh}
      opened=${opened}
      toggle=${(span) => setOpened(opened === span.span_id ? null : span.span_id)}
      detail=${(span) => html`<${Opened} id=${span.span_id} />`}
    />`}
  `;
}

/** All calls, searched. */
export function Calls({ params }) {
  const [more, setMore] = useState(MORE.some((field) => params[field.name]));
  const fields = more ? [...FIELDS, ...MORE] : FIELDS;
  const state = useLoad((signal) => get("/api/v1/spans", { ...params, limit: 50, texts: false, fields: LISTED }, signal), [JSON.stringify(params)]);
  return html`
    <div class="head"><h1>Calls</h1>${!more && html`<button onClick=${() => setMore(true)}>More filters</button>`}${state.data && state.data.data.length > 0 && html`<${Export} path="/api/v1/spans" params=${params} total=${state.data.total} name="calls" />`}</div>
    <${Filters} page="calls" params=${params} fields=${fields} />
    <${Status} state=${state} empty=${state.data && state.data.data.length === 0 && "No call fits. Clear a filter, or look further back."} />
    ${state.data &&
    state.data.data.length > 0 &&
    html`<${Table}
        caption="Calls, newest first"
        columns=${COLUMNS}
        rows=${state.data.data}
        id=${(span) => span.span_id}
        open=${(span) => address("trace", { id: span.trace_id, span: span.span_id })}
      />
      <${Pager} page="calls" params=${params} list=${state.data} shown=${state.data.data.length} />`}
  `;
}

/** The call before this one: as its prompt was compared, else the one shown before it. */
const formerOf = (span, before) => (span.prompt_cache && span.prompt_cache.previous_span_id) || (before && before.span_id);

/** A call opened below its row. */
function Opened({ id }) {
  const state = useLoad((signal) => get(`/api/v1/spans/${id}`, {}, signal), [id]);
  return html`<${Status} state=${state} />${state.data && html`<${Span} span=${state.data} />`}`;
}

const requestOf = async (span) => (await get(`/api/v1/spans/${span.span_id}`, { fields: "request,messages,model" })).request ?? bodyOf(span);
const bodyOf = (span) => ({
  model: span.model,
  messages: (span.messages || [])
    .filter((message) => message.side === "request")
    .map((message) => ({ role: message.role || "user", content: message.parts.map((part) => part.text || "").join("\n") })),
});

/** The record as the API gives it, with the request as it was sent. */
function Raw({ id }) {
  const state = useLoad(async (signal) => {
    const [span, sent] = await Promise.all([get(`/api/v1/spans/${id}`, {}, signal), get(`/api/v1/spans/${id}`, { fields: "request" }, signal)]);
    return JSON.stringify({ ...span, ...sent }, null, 2);
  }, [id]);
  return html`<${Status} state=${state} />${state.data && html`<div class="raw"><${Copy} text=${state.data} label="Copy JSON" /><${Text} text=${state.data} mono /></div>`}`;
}

/** Everything about one call. */
export function Span({ span, before }) {
  const [raw, setRaw] = useState(false);
  return html`<section class="span" aria-label=${`Call ${span.span_id}`}>
    <dl class="facts">
      <dt>Provider</dt>
      <dd>${visible(span.provider)}${span.tags && span.tags.upstream ? `, upstream ${visible(span.tags.upstream)}` : ""}</dd>
      <dt>Operation</dt>
      <dd>${visible(span.operation_name)}${span.streaming ? ", streamed" : ""}${span.finish_reason ? `, ended by ${visible(span.finish_reason)}` : ""}</dd>
      <dt>Tokens</dt>
      <dd>
        ${count(span.prompt_tokens)} in${span.cached_tokens ? ` (${count(span.cached_tokens)} from the provider's cache)` : ""}, ${count(span.completion_tokens)}${" "}
        out${span.reasoning_tokens ? ` (${count(span.reasoning_tokens)} for reasoning)` : ""}${span.tokens_estimated ? ", estimated" : ""}
      </dd>
      <dt>Cost</dt>
      <dd>${span.estimated_cost_usd === null ? "no price is known for this model" : dollars(span.estimated_cost_usd)}</dd>
      <dt>Time</dt>
      <dd>${duration(span.duration_ms)}, first byte after ${duration(span.time_to_first_token_ms)}, ${micros(span.overhead_us)} of it added by the gateway</dd>
      <dt>Looked at by</dt>
      <dd>${(span.detectors || []).join(", ") || "nothing"}${span.enforcement !== "none" ? html`, <strong>${span.enforcement}</strong>` : ""}</dd>
      ${span.agent_id && html`<dt>Agent</dt><dd><a href=${address("calls", { agent_id: span.agent_id })}>${visible(span.agent_id)}</a></dd>`}
      ${span.session_id && html`<dt>Session</dt><dd><a href=${address("session", { id: span.session_id })}>${visible(span.session_id)}</a></dd>`}
      ${span.prompt_cache && html`<dt>Prompt cache</dt><dd><${PromptState} cache=${span.prompt_cache} /> <${Words} text=${explained(span.prompt_cache)} /></dd>`}
      ${span.error_type && html`<dt>Error</dt><dd>${visible(span.error_type)}: ${visible(span.error_message || "")}</dd>`}
      ${Object.keys(span.tags || {}).length > 0 &&
      html`<dt>Tags</dt><dd>${Object.entries(span.tags).map(([name, value]) => html`<span class="tag">${visible(name)}=${visible(value)}</span> `)}</dd>`}
    </dl>
    <div class="tools">
      ${current().page !== "trace" && html`<a class="button small" href=${address("trace", { id: span.trace_id, span: span.span_id })}>Open the trace</a>`}
      <${CopyRequest} span=${span} load=${() => requestOf(span)} />
      <button class="small" aria-expanded=${raw} onClick=${() => setRaw(!raw)}>Raw</button>
      ${formerOf(span, before) && html`<a class="button small" href=${address("diff", { a: formerOf(span, before), b: span.span_id })}>Compare with the turn before</a>`}
    </div>
    ${raw && html`<${Raw} id=${span.span_id} />`}
    <${Findings} findings=${span.security_findings} />
    <${Conversation} span=${span} before=${before} />
  </section>`;
}
