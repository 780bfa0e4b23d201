// Health: what is on, off or failing open; queues, drops, breakers, upstreams and models; the gateway's own time beside the provider's.
import { html } from "./dom.js";
import { get, getText } from "./api.js";
import { bytes, count, duration, visible, NONE } from "./format.js";
import { Figure, Status, Table, useLoad } from "./widgets.js";

/** The samples of a Prometheus exposition: `[name, labels, value]`. */
export function samples(text) {
  const found = [];
  for (const line of text.split("\n")) {
    const match = /^([a-z_:0-9]+)(?:\{(.*)\})? (\S+)$/i.exec(line);
    if (!match || line.startsWith("#")) continue;
    const labels = {};
    for (const [, name, value] of (match[2] || "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value.replace(/\\(.)/g, (_, mark) => (mark === "n" ? "\n" : mark));
    found.push([match[1], labels, Number(match[3])]);
  }
  return found;
}

/** The value that a share of a histogram's observations do not exceed, by the bounds of its buckets; over all its series. */
export function quantile(all, name, share) {
  const buckets = new Map();
  for (const [series, labels, value] of all) {
    if (series === `${name}_bucket`) buckets.set(labels.le, (buckets.get(labels.le) || 0) + value);
  }
  const bounds = [...buckets].map(([bound, value]) => [bound === "+Inf" ? Infinity : Number(bound), value]).sort((a, b) => a[0] - b[0]);
  const total = bounds.length ? bounds.at(-1)[1] : 0;
  if (!total) return null;
  const at = bounds.findIndex(([, value]) => value >= share * total);
  return bounds[at][0] === Infinity ? bounds[at - 1][0] : bounds[at][0];
}

const sum = (all, name, fits = () => true) => all.filter(([series, labels]) => series === name && fits(labels)).reduce((total, [, , value]) => total + value, 0);
const atMost = (seconds) => (seconds === null ? NONE : `≤ ${duration(seconds * 1000)}`);

export function Health({ me }) {
  const state = useLoad((signal) => get("/health", {}, signal), [], 3000);
  const metrics = useLoad(async (signal) => samples(await getText("/metrics", {}, signal)), [], 3000);
  const live = useLoad((signal) => (me.role === "admin" ? get("/api/v1/config/live", {}, signal) : null), [me.role]);
  const health = state.data;
  return html`
    <div class="head"><h1>Health</h1></div>
    <${Status} state=${state} />
    ${health &&
    html`<dl class="figures">
        <${Figure} name="State" value=${health.status} kind=${health.status === "healthy" ? "clean" : "high"} />
        <${Figure} name="Version" value=${health.version} />
        <${Figure} name="Up" value=${duration(health.uptime * 1000)} />
        <${Figure} name="Sockets" value=${health.io_driver} title=${health.ring_mode || ""} />
        <${Figure} name="Store" value=${`${health.storage.status}, ${health.storage.profile}`} kind=${health.storage.status === "connected" ? "" : "critical"} />
        <${Figure} name="Models" value=${health.ml_models.status} />
      </dl>
      ${health.reasons.length > 0 && html`<ul class="reasons" role="alert">${health.reasons.map((reason) => html`<li>${visible(typeof reason === "string" ? reason : JSON.stringify(reason))}</li>`)}</ul>`}
      <${Measured} state=${metrics} />
      <div class="columns">
        <section>
          <h2>Queues</h2>
          <${Table}
            caption="Queues"
            rows=${Object.entries(health.queues)}
            id=${([name]) => name}
            columns=${[
              { name: "Queue", cell: ([name]) => name },
              { name: "Waiting", cell: ([, queue]) => count(queue.depth), className: "number" },
              { name: "Room for", cell: ([, queue]) => count(queue.capacity), className: "number" },
            ]}
          />
        </section>
        <section>
          <h2>Breakers and models</h2>
          <dl class="facts">
            ${Object.entries(health.subsystems).map(([name, report]) => html`<dt>${name}</dt><dd>${report.circuit_breaker}</dd>`)}
            ${health.ml_models.models.map((model) => html`<dt>${model.name}</dt><dd>${model.status}${model.reason ? `: ${visible(model.reason)}` : ""}</dd>`)}
            <dt>judge</dt>
            <dd>${health.judge.worker_spawned ? "running" : "off"}</dd>
            <dt>record</dt>
            <dd>at most ${bytes(health.storage.space && health.storage.space.max_bytes)}, ${count(health.storage.space && health.storage.space.removed_spans)} spans removed for room</dd>
          </dl>
        </section>
      </div>`}
    <${Switches} state=${live} />
  `;
}

/** What the counters say, where the caller may read them. */
function Measured({ state }) {
  if (state.error && state.error.status === 403) return html`<p class="notice">Counters are for administrators.</p>`;
  if (!state.data) return html`<${Status} state=${state} />`;
  const all = state.data;
  const drops = all.filter(([name, , value]) => name === "service_dropped_total" && value > 0);
  const unread = all.filter(([name, , value]) => name === "service_unread_total" && value > 0);
  const upstreams = all.filter(([name]) => name === "service_upstream_healthy");
  const rows = [...drops.map(([, labels, value]) => ["Lost", labels, value]), ...unread.map(([, labels, value]) => ["Not read", labels, value])];
  return html`<dl class="figures">
      <${Figure} name="Calls" value=${count(sum(all, "service_requests_total"))} />
      <${Figure} name="Open" value=${count(sum(all, "service_active_connections"))} title="Client connections" />
      <${Figure} name="Added, median" value=${atMost(quantile(all, "service_overhead_seconds", 0.5))} title="What the gateway adds to a call" />
      <${Figure} name="Added, 99 in 100" value=${atMost(quantile(all, "service_overhead_seconds", 0.99))} />
      <${Figure} name="Whole call, median" value=${atMost(quantile(all, "service_request_duration_seconds", 0.5))} />
      <${Figure} name="Lost records" value=${count(drops.reduce((total, [, , value]) => total + value, 0))} kind=${drops.length ? "high" : ""} />
      <${Figure} name="Without a price" value=${count(sum(all, "service_unpriced_requests_total"))} />
      <${Figure} name="Panics" value=${count(sum(all, "service_panics_total"))} kind=${sum(all, "service_panics_total") ? "critical" : ""} />
    </dl>
    ${rows.length > 0 &&
    html`<section>
      <h2>Lost or not read</h2>
      <${Table}
        caption="Lost or not read"
        rows=${rows}
        id=${([kind, labels]) => kind + JSON.stringify(labels)}
        columns=${[
          { name: "What", cell: ([kind]) => kind },
          { name: "Where and why", cell: ([, labels]) => visible(Object.entries(labels).map(([name, value]) => `${name} ${value}`).join(", ")), className: "wide" },
          { name: "Times", cell: ([, , value]) => count(value), className: "number" },
        ]}
      />
    </section>`}
    ${upstreams.length > 0 &&
    html`<section>
      <h2>Upstreams</h2>
      <${Table}
        caption="Upstreams"
        rows=${upstreams}
        id=${([, labels]) => labels.upstream}
        columns=${[
          { name: "Upstream", cell: ([, labels]) => visible(labels.upstream), className: "wide" },
          { name: "State", cell: ([, , value]) => (value ? "healthy" : "passed by") },
          { name: "Calls", cell: ([, labels]) => count(sum(all, "service_upstream_calls_total", (other) => other.upstream === labels.upstream)), className: "number" },
          { name: "Failed", cell: ([, labels]) => count(sum(all, "service_upstream_calls_total", (other) => other.upstream === labels.upstream && other.outcome !== "ok" && other.outcome !== "answered")), className: "number" },
        ]}
      />
    </section>`}`;
}

const SWITCHES = [
  ["Analysis", "enable_security_analysis"],
  ["Record", "enable_trace_storage"],
  ["Enforcement", "enforcement.mode"],
  ["Advisory", "llm_advisory_injection_enabled"],
  ["Authentication", "auth.enabled"],
  ["Rate limits", "rate_limiting.enabled"],
  ["Budgets", "cost_caps.enabled"],
  ["Classifier", "security_analysis.ml_enabled"],
  ["Answers checked", "output_safety.enabled"],
  ["Streams checked", "streaming_analysis.enabled"],
  ["Personal data", "pii.action"],
  ["Boundary defence", "boundary_defense.enabled"],
  ["Judge", "judge.enabled"],
  ["Alerts", "alerts.enabled"],
  ["Action router", "action_router.enabled"],
  ["Anomalies", "anomaly_detection.enabled"],
  ["OTLP ingest", "otel_ingest.enabled"],
];
const at = (config, path) => path.split(".").reduce((value, key) => (value === undefined || value === null ? undefined : value[key]), config);

function Switches({ state }) {
  if (!state.data) return null;
  return html`<section>
    <h2>What is on</h2>
    <dl class="switches">
      ${SWITCHES.map(([name, path]) => {
        const value = at(state.data.config, path);
        return html`<div class=${value === false || value === "log" ? "off" : "on"} title=${path}>
          <dt>${name}</dt>
          <dd>${value === true ? "on" : value === false ? "off" : String(value ?? NONE)}</dd>
        </div>`;
      })}
    </dl>
  </section>`;
}
