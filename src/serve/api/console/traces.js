// Traces and sessions: the calls of one piece of work, in time and as a conversation.
import { html, useState } from "./dom.js";
import { get } from "./api.js";
import { address } from "./route.js";
import { count, dollars, duration, time, visible, NONE } from "./format.js";
import { Copy, Figure, Filters, Pager, Score, Status, StatusCode, Table, useLoad } from "./widgets.js";
import { Span } from "./calls.js";
import { PromptState, Xray } from "./cache.js";

/** When each call of a trace ran, and when its answer began; the tries at upstreams below. */
function Waterfall({ spans, selected, link }) {
  const from = Math.min(...spans.map((span) => Date.parse(span.start_time)));
  const to = Math.max(...spans.map((span) => Date.parse(span.start_time) + span.duration_ms), from + 0.001);
  const place = (ms) => `${Math.max(0, Math.min(100, (100 * ms) / (to - from)))}%`;
  return html`<ol class="waterfall" aria-label="The calls in time">
    ${spans.map((span) => {
      const start = Date.parse(span.start_time) - from;
      const tries = (span.events || []).filter((event) => event.event_type === "upstream_attempt");
      return html`<li class=${span.span_id === selected ? "at" : ""}>
        <a href=${link(span)} aria-current=${span.span_id === selected ? "true" : undefined}>
          <span class="name">${visible(span.operation_name)} ${visible(span.model || "")}</span>
          <span class="track">
            <span class=${`bar ${span.status_code >= 400 || span.error_type ? "failed" : ""}`} style=${{ left: place(start), width: place(span.duration_ms) }}></span>
            ${span.time_to_first_token_ms !== null && html`<span class="first-byte" style=${{ left: place(start + span.time_to_first_token_ms) }} title="first byte of the answer"></span>`}
          </span>
          <span class="took">${duration(span.duration_ms)}</span>
        </a>
        ${tries.map((event) => html`<div class="try">${visible(event.description)}</div>`)}
      </li>`;
    })}
  </ol>`;
}

/** Children behind their parents, each with its depth. */
function ordered(spans) {
  return [...spans].sort((a, b) => a.start_time.localeCompare(b.start_time));
}

export function Trace({ params }) {
  const state = useLoad((signal) => get(`/api/v1/traces/${encodeURIComponent(params.id)}`, {}, signal), [params.id]);
  const spans = state.data ? ordered(state.data.spans) : [];
  const at = Math.max(0, spans.findIndex((span) => span.span_id === params.span));
  const span = spans[at];
  return html`
    <div class="head">
      <h1>Trace</h1>
      <code>${params.id}</code> <${Copy} text=${params.id || ""} label="Copy id" />
    </div>
    <${Status} state=${state} />
    ${span &&
    html`<dl class="figures">
        <${Figure} name="Calls" value=${count(spans.length)} />
        <${Figure} name="Score" value=${html`<${Score} value=${state.data.security_score} />`} />
        <${Figure} name="Cost" value=${dollars(spans.reduce((sum, one) => sum + (one.estimated_cost_usd || 0), 0))} />
        <${Figure} name="Began" value=${time(spans[0].start_time)} />
        ${span.session_id && html`<${Figure} name="Session" value=${html`<a href=${address("session", { id: span.session_id })}>${visible(span.session_id)}</a>`} />`}
      </dl>
      <${Waterfall} spans=${spans} selected=${span.span_id} link=${(one) => address("trace", { id: params.id, span: one.span_id })} />
      <${Span} key=${span.span_id} span=${span} before=${spans[at - 1]} />`}
  `;
}

const SESSION_FIELDS = [
  { name: "agent_id", label: "Agent" },
  { name: "client", label: "Client" },
  { name: "start_time", label: "First seen from", placeholder: "2026-01-31T00:00:00Z" },
];
const SESSION_COLUMNS = [
  { name: "Last call", cell: (session) => time(session.last_call_at), title: (session) => session.last_call_at },
  { name: "Session", cell: (session) => visible(session.session_id), className: "wide" },
  { name: "Client", cell: (session) => visible(session.client || NONE) },
  { name: "Agent", cell: (session) => visible(session.agent_id || NONE), className: "wide" },
  { name: "Model", cell: (session) => visible(session.model || NONE), className: "wide" },
  { name: "Calls", cell: (session) => count(session.calls), className: "number" },
  { name: "Failed", cell: (session) => count(session.failed_calls), className: "number" },
  { name: "Tokens", cell: (session) => count(session.total_tokens), className: "number" },
  { name: "Cost", cell: (session) => dollars(session.total_cost_usd), className: "number" },
  { name: "Worst", cell: (session) => html`<${Score} value=${session.security_score} />` },
];

export function Sessions({ params }) {
  const state = useLoad((signal) => get("/api/v1/sessions", { ...params, limit: 50 }, signal), [JSON.stringify(params)]);
  const rows = state.data ? state.data.data : [];
  return html`
    <div class="head"><h1>Sessions</h1></div>
    <${Filters} page="sessions" params=${params} fields=${SESSION_FIELDS} />
    <${Status}
      state=${state}
      empty=${state.data && rows.length === 0 && "No sessions yet. Coding agents name theirs by themselves; other clients send the header X-Service-Session-Id."}
    />
    ${rows.length > 0 &&
    html`<${Table} caption="Sessions, newest first" columns=${SESSION_COLUMNS} rows=${rows} id=${(row) => row.session_id} open=${(row) => address("session", { id: row.session_id })} />
      <${Pager} page="sessions" params=${params} list=${state.data} shown=${rows.length} />`}
  `;
}

const TURNS = "span_id,trace_id,start_time,end_time,duration_ms,time_to_first_token_ms,model,operation_name,status_code,error_type,security_score,total_tokens,prompt_tokens,cached_tokens,estimated_cost_usd,events,prompt_cache,provider";
const TURNS_MAX = 200;

/** One session: its turns oldest first, each showing what is new in it. */
export function Session({ params }) {
  const state = useLoad(
    (signal) => get("/api/v1/spans", { session_id: params.id, limit: TURNS_MAX, texts: false, fields: TURNS, cursor: params.cursor }, signal),
    [params.id, params.cursor],
  );
  const turns = state.data ? [...state.data.data].reverse() : [];
  const total = (field) => turns.reduce((sum, turn) => sum + (turn[field] || 0), 0);
  return html`
    <div class="head"><h1>Session</h1><code>${visible(params.id || "")}</code> <${Copy} text=${params.id || ""} label="Copy id" /></div>
    <${Status} state=${state} empty=${state.data && turns.length === 0 && "No call of this session is on record."} />
    ${turns.length > 0 &&
    html`<dl class="figures">
        <${Figure} name="Turns" value=${count(turns.length)} />
        <${Figure} name="Tokens" value=${count(total("total_tokens"))} />
        <${Figure} name="From cache" value=${count(total("cached_tokens"))} title="Prompt tokens that the provider says it read from its cache" />
        <${Figure} name="Cost" value=${dollars(total("estimated_cost_usd"))} />
        <${Figure} name="Worst score" value=${html`<${Score} value=${Math.max(...turns.map((turn) => turn.security_score || 0))} />`} />
        <${Figure} name="Lasted" value=${duration(Date.parse(turns.at(-1).end_time) - Date.parse(turns[0].start_time))} />
      </dl>
      ${state.data.next_cursor && html`<p class="notice">Only the latest ${TURNS_MAX} turns are shown. <a href=${address("session", { id: params.id, cursor: state.data.next_cursor })}>Older turns</a></p>`}
      ${turns.some((turn) => turn.prompt_cache) && html`<${Xray} turns=${turns} />`}
      <ol class="turns">
        ${turns.map((turn, at) => html`<${Turn} key=${turn.span_id} turn=${turn} before=${turns[at - 1]} number=${at + 1} open=${turns.length <= 3 || at === turns.length - 1} />`)}
      </ol>`}
  `;
}

function Turn({ turn, before, number, open }) {
  const [opened, setOpened] = useState(open);
  return html`<li class="turn">
    <button class="turn-head" aria-expanded=${opened} onClick=${() => setOpened(!opened)}>
      <span class="number">${number}</span> <span>${time(turn.start_time)}</span> <span class="wide">${visible(turn.model || "")}</span>
      <${StatusCode} span=${turn} /> <${Score} value=${turn.security_score} />
      <span>${count(turn.total_tokens)} tokens</span>
      <span>${turn.prompt_tokens ? `${Math.round((100 * (turn.cached_tokens || 0)) / turn.prompt_tokens)} % cached` : ""}</span>
      ${turn.prompt_cache && turn.prompt_cache.state !== "first" && turn.prompt_cache.state !== "kept" && html`<${PromptState} cache=${turn.prompt_cache} />`}
      <span>${dollars(turn.estimated_cost_usd)}</span> <span>${duration(turn.duration_ms)}</span>
    </button>
    ${opened && html`<${TurnBody} id=${turn.span_id} beforeId=${before && before.span_id} />`}
  </li>`;
}

function TurnBody({ id, beforeId }) {
  const state = useLoad(
    async (signal) => {
      const one = get(`/api/v1/spans/${id}`, {}, signal);
      const former = beforeId ? get(`/api/v1/spans/${beforeId}`, { fields: "messages,span_id" }, signal) : null;
      return { span: await one, before: former && (await former) };
    },
    [id, beforeId],
  );
  return html`<${Status} state=${state} />${state.data && html`<${Span} span=${state.data.span} before=${state.data.before} />`}`;
}
