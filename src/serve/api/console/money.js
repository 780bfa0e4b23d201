// Money: what was spent, by whom and on what, over time; budgets; what has no price.
import { html, useEffect, useRef } from "./dom.js";
import { get, getText } from "./api.js";
import { address } from "./route.js";
import { count, dollars, percent, time, visible, NONE } from "./format.js";
import { samples } from "./health.js";
import { Figure, Filters, Status, Table, useLoad } from "./widgets.js";

const RANGES = [["1", "24 hours"], ["7", "7 days"], ["30", "30 days"], ["90", "90 days"]];
const FIELDS = [
  { name: "days", label: "Time", options: [["", "24 hours"], ...RANGES.slice(1)] },
  { name: "group_by", label: "By", options: [["", "model"], ["agent", "agent"], ["session", "session"], ["client", "client"], ["tenant", "tenant"]] },
  { name: "what", label: "Show", options: [["", "cost"], ["tokens", "tokens"], ["calls", "calls"]] },
];
const VALUE = { "": "total_cost_usd", tokens: "total_tokens", calls: "calls" };
const LINES = 7;

export function Money({ params, me }) {
  const days = Number(params.days || 1);
  const by = params.group_by || "model";
  const field = VALUE[params.what || ""] || VALUE[""];
  const state = useLoad(
    (signal) => {
      const end = new Date();
      const start = new Date(end - days * 86400000);
      return get("/api/v1/costs/series", { start_time: start.toISOString(), end_time: end.toISOString(), bucket: days > 3 ? "day" : "hour", group_by: by }, signal);
    },
    [days, by],
  );
  const budgets = useLoad((signal) => get("/api/v1/costs/current", {}, signal), []);
  const points = state.data ? state.data.data : [];
  const sums = new Map();
  for (const point of points) {
    const sum = sums.get(point.name) || { name: point.name, calls: 0, failed_calls: 0, total_tokens: 0, total_cost_usd: 0 };
    for (const key of ["calls", "failed_calls", "total_tokens", "total_cost_usd"]) sum[key] += point[key];
    sums.set(point.name, sum);
  }
  const rows = [...sums.values()].sort((a, b) => b[field] - a[field] || b.calls - a.calls);
  const others = (state.data && state.data.others) || [];
  const rest = { calls: 0, failed_calls: 0, total_tokens: 0, total_cost_usd: 0 };
  for (const point of others) for (const key of Object.keys(rest)) rest[key] += point[key];
  const all = (key) => rows.reduce((sum, row) => sum + row[key], rest[key]);
  const link = { model: "model", agent: "agent_id", session: "session_id", client: "client" }[by];
  const columns = [
    { name: by[0].toUpperCase() + by.slice(1), cell: (row) => visible(row.name ?? (by === "tenant" ? "this tenant" : `no ${by}`)), className: "wide" },
    { name: "Cost", cell: (row) => dollars(row.total_cost_usd), className: "number" },
    { name: "Share", cell: (row) => percent(row.total_cost_usd, all("total_cost_usd")), className: "number" },
    { name: "Tokens", cell: (row) => count(row.total_tokens), className: "number" },
    { name: "Calls", cell: (row) => count(row.calls), className: "number" },
    { name: "Failed", cell: (row) => count(row.failed_calls), className: "number" },
    { name: "A call", cell: (row) => dollars(row.calls ? row.total_cost_usd / row.calls : 0), className: "number" },
  ];
  return html`
    <div class="head"><h1>Money</h1></div>
    <${Filters} page="money" params=${params} fields=${FIELDS} />
    <${Status} state=${state} empty=${state.data && points.length === 0 && "No calls in this time."} />
    ${points.length > 0 &&
    html`<dl class="figures">
        <${Figure} name="Cost" value=${dollars(all("total_cost_usd"))} />
        <${Figure} name="Tokens" value=${count(all("total_tokens"))} />
        <${Figure} name="Calls" value=${count(all("calls"))} />
        <${Figure} name="Failed" value=${`${count(all("failed_calls"))} (${percent(all("failed_calls"), all("calls"))})`} />
      </dl>
      <${Chart} range=${state.data} points=${points} names=${rows.slice(0, LINES).map((row) => row.name)} field=${field} label=${name(field)} />
      ${state.data.partial && html`<p class="notice">Not all of it could be summed up in the time of a read: figures are too low. Choose a shorter time.</p>`}
      ${state.data.truncated && !state.data.partial && html`<p class="notice">${count(rows.length)} are shown by themselves. The others come to ${dollars(rest.total_cost_usd)} in ${count(rest.calls)} calls, which the sums above hold.</p>`}
      <${Table} caption=${`Spent by ${by}`} columns=${columns} rows=${rows} id=${(row) => row.name ?? ""} open=${link ? (row) => (row.name === null ? address("calls") : address("calls", { [link]: row.name })) : undefined} />`}
    <${Unpriced} me=${me} />
    <${Budgets} state=${budgets} />
  `;
}

const name = (field) => ({ total_cost_usd: "USD", total_tokens: "tokens", calls: "calls" })[field];

/** Models whose calls count nowhere, where the caller may read the counters. */
function Unpriced({ me }) {
  const state = useLoad(async (signal) => (me.role === "admin" ? samples(await getText("/metrics", {}, signal)) : []), [me.role]);
  const rows = (state.data || []).filter(([name, , value]) => name === "service_unpriced_requests_total" && value > 0);
  if (rows.length === 0) return null;
  return html`<section>
    <h2>Without a price</h2>
    <p class="lead">Calls of these models cost nothing here and count against no budget. Prices of your own: <code>cost_estimation.custom_models</code>. Counted since the last start.</p>
    <${Table}
      caption="Models without a price"
      rows=${rows}
      id=${([, labels]) => `${labels.provider} ${labels.model}`}
      open=${([, labels]) => address("calls", { model: labels.model })}
      columns=${[
        { name: "Model", cell: ([, labels]) => visible(labels.model), className: "wide" },
        { name: "Provider", cell: ([, labels]) => visible(labels.provider), className: "wide" },
        { name: "Calls", cell: ([, , value]) => count(value), className: "number" },
      ]}
    />
  </section>`;
}

function Budgets({ state }) {
  if (state.error) {
    return html`<section><h2>Budgets</h2><p class="notice">${state.error.status === 404 ? "No budgets are set: switch cost_caps on to have some." : state.error.message}</p></section>`;
  }
  if (!state.data) return null;
  const kinds = [["tenant", "tenant_windows"], ["agent", "windows"], ["key", "key_windows"]];
  const windows = kinds.flatMap(([scope, field]) => (state.data[field] || []).map((window) => ({ ...window, scope })));
  return html`<section>
    <h2>Budgets</h2>
    ${windows.length === 0
      ? html`<p class="notice">No budget applies here.</p>`
      : html`<ul class="budgets">
          ${windows.map((window) => {
            const limit = window.hard_limit_usd ?? window.soft_limit_usd;
            const share = limit ? Math.min(1, window.current_spend_usd / limit) : 0;
            return html`<li>
              <span class="wide">${window.scope}, ${window.window}${window.resets_at ? `, until ${time(window.resets_at)}` : ""}</span>
              <meter min="0" max="1" low="0.7" high="0.9" optimum="0" value=${share} aria-label=${`${window.scope} ${window.window}`}>${percent(share, 1)}</meter>
              <span class="number">${dollars(window.current_spend_usd)} of ${limit ? dollars(limit) : NONE}${window.reserved_usd ? `, ${dollars(window.reserved_usd)} reserved` : ""}</span>
            </li>`;
          })}
        </ul>`}
  </section>`;
}

const COLOURS = ["#2a78b8", "#d1720f", "#2f8f5b", "#b5397f", "#7a5bc7", "#8a6d1d", "#c0392b"];

/** The beginnings of all buckets, in seconds: those in which nothing was used are zeros, not gaps. */
export function buckets({ start_time, end_time, bucket }, points) {
  const step = bucket === "day" ? 86400 : 3600;
  const first = Math.floor(Date.parse(start_time) / 1000 / step) * step;
  const last = Math.max(first + step, Math.floor(Date.parse(end_time) / 1000 / step) * step);
  const times = new Set(points.map((point) => Date.parse(point.start_time) / 1000));
  for (let at = first; at <= last; at += step) times.add(at);
  return [...times].sort((a, b) => a - b);
}

/** Lines over time, one a group. uPlot is a global: its file is a plain script. */
function Chart({ points, names, field, label, range }) {
  const place = useRef(null);
  useEffect(() => {
    const times = buckets(range, points);
    const values = names.map((one) => {
      const at = new Map(points.filter((point) => point.name === one).map((point) => [Date.parse(point.start_time) / 1000, point[field]]));
      return times.map((second) => at.get(second) || 0);
    });
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const axis = { stroke: dark ? "#b6c2cc" : "#45525e", grid: { stroke: dark ? "#2a343d" : "#e2e7eb" }, ticks: { stroke: dark ? "#2a343d" : "#e2e7eb" } };
    const plot = new window.uPlot(
      {
        width: place.current.clientWidth,
        height: 240,
        padding: [null, 28, null, null],
        cursor: { drag: { x: false, y: false } },
        series: [{}, ...names.map((one, at) => ({ label: visible(one ?? "none").slice(0, 40), stroke: COLOURS[at % COLOURS.length], width: 2, points: { show: times.length < 40 } }))],
        axes: [axis, { ...axis, size: 70, label }],
        scales: { x: { range: [times[0], times.at(-1)] }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      },
      [times, ...values],
      place.current,
    );
    const resize = new ResizeObserver(() => plot.setSize({ width: place.current.clientWidth, height: 240 }));
    resize.observe(place.current);
    return () => {
      resize.disconnect();
      plot.destroy();
    };
  }, [points, field]);
  return html`<figure class="chart" ref=${place} role="img" aria-label=${`${label} over time; the table below has the sums`}></figure>`;
}
