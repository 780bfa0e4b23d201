// Cache: how each turn's prompt goes on from the one before, where it parts from it, and what the provider read from its cache.
import { html } from "./dom.js";
import { get } from "./api.js";
import { address } from "./route.js";
import { bytes, count, dollars, percent, time, visible, NONE } from "./format.js";
import { Figure, Filters, Pager, Status, Table, Words, useLoad } from "./widgets.js";

const FIELDS = [
  { name: "prompt_cache", label: "Show", options: [["", "all sessions"], ["broken", "with a broken prompt"], ["unused", "not used by the provider"]] },
  { name: "agent_id", label: "Agent" },
  { name: "client", label: "Client" },
  { name: "start_time", label: "From", placeholder: "2026-01-31T00:00:00Z" },
];

const COLUMNS = [
  { name: "Last call", cell: (session) => time(session.last_call_at), title: (session) => session.last_call_at },
  { name: "Session", cell: (session) => visible(session.session_id), className: "wide" },
  { name: "Agent or client", cell: (session) => visible(session.agent_id || session.client || NONE), className: "wide" },
  { name: "Model", cell: (session) => visible(session.model || NONE), className: "wide" },
  { name: "Calls", cell: (session) => count(session.calls), className: "number" },
  { name: "From cache", cell: ({ prompt_cache: sums }) => percent(sums.cached_tokens, sums.prompt_tokens), className: "number", title: ({ prompt_cache: sums }) => `${count(sums.cached_tokens)} of ${count(sums.prompt_tokens)} prompt tokens` },
  { name: "Broken", cell: ({ prompt_cache: sums }) => html`<span class=${sums.broken_calls ? "badge high" : ""}>${count(sums.broken_calls)}</span>`, className: "number" },
  { name: "Not used", cell: ({ prompt_cache: sums }) => html`<span class=${sums.unused_calls ? "badge medium" : ""}>${count(sums.unused_calls)}</span>`, className: "number" },
  { name: "Lost tokens", cell: ({ prompt_cache: sums }) => count(sums.lost_tokens), className: "number" },
  { name: "Lost", cell: ({ prompt_cache: sums }) => dollars(sums.lost_usd), className: "number" },
];

export function Cache({ params }) {
  const state = useLoad((signal) => get("/api/v1/sessions", { ...params, limit: 50 }, signal), [JSON.stringify(params)]);
  const rows = state.data ? state.data.data : [];
  const total = (field) => rows.reduce((sum, row) => sum + row.prompt_cache[field], 0);
  return html`
    <div class="head"><h1>Cache</h1></div>
    <p class="lead">
      Providers read a prompt that begins like the last one from a cache, for about a tenth of its price. One changed byte near the beginning, and
      everything behind it is paid for again. Each session shows where that happened, and whether the provider used what was equal.
    </p>
    <${Filters} page="cache" params=${params} fields=${FIELDS} />
    <${Status}
      state=${state}
      empty=${state.data && rows.length === 0 && (params.prompt_cache ? "No session has this. That is good news." : "No sessions yet. Coding agents name theirs by themselves; other clients send the header X-Service-Session-Id.")}
    />
    ${rows.length > 0 &&
    html`<dl class="figures">
        <${Figure} name="From cache" value=${percent(total("cached_tokens"), total("prompt_tokens"))} title="Share of the prompts' tokens in the sessions below" />
        <${Figure} name="Broken prompts" value=${count(total("broken_calls"))} kind=${total("broken_calls") ? "high" : ""} />
        <${Figure} name="Not used by the provider" value=${count(total("unused_calls"))} kind=${total("unused_calls") ? "high" : ""} />
        <${Figure} name="Lost tokens" value=${count(total("lost_tokens"))} />
        <${Figure} name="Lost" value=${dollars(total("lost_usd"))} />
      </dl>
      <${Table} caption="Sessions and what came of their prompts, newest first" columns=${COLUMNS} rows=${rows} id=${(row) => row.session_id} open=${(row) => address("session", { id: row.session_id, show: "cache" })} />
      <${Pager} page="cache" params=${params} list=${state.data} shown=${rows.length} />`}
  `;
}

const STATES = {
  first: ["unknown", "first"],
  kept: ["clean", "kept"],
  edited: ["low", "end edited"],
  broken: ["high", "broken"],
  started_over: ["medium", "started over"],
};
export const USES = {
  used: "the provider read it from its cache",
  partly_used: "the provider read a part of it from its cache",
  not_used: "the provider read nothing of it from its cache, although it could have",
  not_reported: "the provider does not say what it read from its cache",
  not_ready: "the call before had not ended when this one began",
  expired: "the call before is longer ago than caches keep",
  not_asked: "the request does not ask for caching, and this provider caches only what it is asked to",
  too_short: "too short for a cache",
};

/** What came of the prompt of one call, in words. */
export function explained(cache) {
  if (cache.state === "first") return "The first prompt of its session that is known here.";
  const equal = `${percent(cache.equal_bytes, cache.prompt_bytes)} of the prompt (${bytes(cache.equal_bytes)}) is byte for byte the one before`;
  const broke = cache.broke_at && cache.broke_at.says ? `; then ${cache.broke_at.says}` : "";
  const lost = cache.lost_tokens > 0 ? `. About ${count(cache.lost_tokens)} tokens were paid for again${cache.lost_usd === null ? "" : `, ${dollars(cache.lost_usd)}`}` : "";
  return `${equal}${broke}${lost}. Of the equal part: ${USES[cache.provider_use] || cache.provider_use}.`;
}

export function PromptState({ cache }) {
  const [kind, label] = STATES[cache.state] || ["unknown", cache.state];
  return html`<span class=${`badge ${kind}`} title=${explained(cache)}>${label}</span>`;
}

/** The turns of a session: how much of each prompt is equal, read from the cache, lost. */
export function Xray({ turns }) {
  const known = turns.filter((turn) => turn.prompt_cache);
  if (known.length === 0) return html`<p class="notice">The prompts of these calls were not compared: they have no answer, or their texts are not kept.</p>`;
  const widest = Math.max(...known.map((turn) => turn.prompt_cache.prompt_bytes));
  const width = (part) => `${Math.max(0, Math.min(100, (100 * part) / widest))}%`;
  return html`<section class="xray">
    <h2>Cache x-ray</h2>
    <p class="legend" aria-hidden="true">
      <span><span class="key read"></span>equal, read from the cache</span> <span><span class="key equal"></span>equal, not read</span>
      <span><span class="key lost"></span>behind a break, paid again</span> <span><span class="key new"></span>new</span>
    </p>
    <ol>
      ${known.map((turn) => {
        const cache = turn.prompt_cache;
        const used = cache.provider_use === "used" || cache.provider_use === "partly_used";
        const lost = cache.state === "broken" || cache.state === "edited" ? Math.min(Math.max(cache.previous_bytes - cache.equal_bytes, 0), cache.prompt_bytes - cache.equal_bytes) : 0;
        return html`<li>
          <a href=${address("trace", { id: turn.trace_id, span: turn.span_id })} aria-label=${`Turn ${turns.indexOf(turn) + 1}: ${explained(cache)}`}>
            <span class="turn-number">${turns.indexOf(turn) + 1}</span>
            <span class="track">
              <span class=${used ? "read" : "equal"} style=${{ width: width(cache.equal_bytes) }}></span><span class="lost" style=${{ width: width(lost) }}></span
              ><span class="new" style=${{ width: width(cache.prompt_bytes - cache.equal_bytes - lost) }}></span>
            </span>
            <span class="share">${turn.prompt_tokens ? `${Math.round((100 * (turn.cached_tokens || 0)) / turn.prompt_tokens)} % cached` : NONE}</span>
            <${PromptState} cache=${cache} />
          </a>
          ${cache.broke_at && cache.broke_at.says && html`<div class="why"><${Words} text=${cache.broke_at.says} />${cache.broke_at.path ? html` <code>${visible(cache.broke_at.path)}</code>` : ""}${cache.lost_tokens ? `, about ${count(cache.lost_tokens)} tokens${cache.lost_usd === null ? "" : ` (${dollars(cache.lost_usd)})`} lost` : ""}${" "}
            ${cache.previous_span_id && html`<a href=${address("diff", { a: cache.previous_span_id, b: turn.span_id })}>Compare</a>`}</div>`}
          ${cache.provider_use === "not_used" && html`<div class="why fault">${visible(turn.provider || "The provider")} read nothing from its cache, although ${count(cache.equal_tokens)} tokens were equal.</div>`}
        </li>`;
      })}
    </ol>
  </section>`;
}
