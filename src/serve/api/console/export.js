// Long work and how far it is: a list taken as a file, and reports while they are built.
import { html, useRef, useState } from "./dom.js";
import { get, open, post } from "./api.js";
import { bytes, count, time, visible, NONE } from "./format.js";
import { Status, Table, useLoad } from "./widgets.js";

// A browser holds a file in memory until it is saved; what is longer is curl's.
const BYTES_MAX = 256 << 20;

/** Offers a text as a file. */
function save(pieces, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(pieces, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** Takes a whole list as JSON lines, and says how far it is. */
export function Export({ path, params, total, name }) {
  const [state, setState] = useState(null);
  const stop = useRef(null);
  const run = async () => {
    stop.current = new AbortController();
    const { cursor, ...filters } = params;
    let [lines, size, said] = [0, 0, 0];
    const pieces = [];
    try {
      const answer = await open(path, { ...filters, format: "jsonl" }, stop.current.signal);
      const reader = answer.body.getReader();
      for (let step = await reader.read(); !step.done; step = await reader.read()) {
        pieces.push(step.value);
        size += step.value.length;
        for (const byte of step.value) if (byte === 10) lines += 1;
        if (size > BYTES_MAX) throw new Error(`This is more than ${bytes(BYTES_MAX)}. Narrow the list, or take it with curl: ${path}?format=jsonl`);
        if (performance.now() - said > 100) {
          said = performance.now();
          setState({ lines, size });
        }
      }
      save(pieces, `${name}.jsonl`, "application/x-ndjson");
      setState({ lines, size, done: true });
    } catch (error) {
      stop.current.abort();
      setState(error.name === "AbortError" ? null : { failed: error.message });
    }
  };
  const busy = state && !state.done && !state.failed;
  return html`<span class="export">
    ${!busy && html`<button onClick=${run}>Export</button>`}
    ${busy && html`<progress max=${Math.max(total || 0, state.lines) || 1} value=${state.lines} aria-label="Exported"></progress> <button class="small" onClick=${() => stop.current.abort()}>Stop</button>`}
    ${state && html`<span role="status">${state.failed ? visible(state.failed) : `${count(state.lines)} ${state.done ? "saved" : `of ${count(total)}`}, ${bytes(state.size)}`}</span>`}
  </span>`;
}

const KINDS = [["soc2", "SOC 2"], ["gdpr", "GDPR"], ["hipaa", "HIPAA"]];

/** Reports: what there is, what is being built, and a new one. */
export function Reports({ mayAsk }) {
  const state = useLoad((signal) => get("/api/v1/reports", { limit: 100 }, signal), [], 3000);
  const [kind, setKind] = useState("soc2");
  const [said, setSaid] = useState(null);
  const rows = state.data ? state.data.data : [];
  const ask = async (event) => {
    event.preventDefault();
    const end = new Date();
    try {
      await post("/api/v1/reports/generate", { report_type: kind, period_start: new Date(end - 30 * 86400000).toISOString(), period_end: end.toISOString() });
      setSaid({ text: "It is being built: one report after another, in the background." });
      state.reload();
    } catch (error) {
      setSaid({ text: error.message, failed: true });
    }
  };
  const load = async (report) => save([JSON.stringify(await get(`/api/v1/reports/${report.id}`), null, 2)], `${report.report_type}-${report.id}.json`, "application/json");
  const columns = [
    { name: "Asked", cell: (report) => time(report.created_at) },
    { name: "About", cell: (report) => (KINDS.find(([name]) => name === report.report_type) || [0, report.report_type])[1] },
    { name: "From", cell: (report) => time(report.period_start) },
    { name: "To", cell: (report) => time(report.period_end) },
    { name: "State", cell: (report) => (report.status === "pending" ? html`<progress aria-label="being built"></progress> being built` : `${report.status}${report.error ? `: ${visible(report.error)}` : ""}`), className: "wide" },
    { name: "", cell: (report) => (report.status === "complete" ? html`<button class="small" onClick=${() => load(report)}>Save</button>` : NONE) },
  ];
  return html`<${Status} state=${state} empty=${state.data && rows.length === 0 && "No report yet."} />
    ${said && html`<p class=${`notice ${said.failed ? "error" : ""}`} role="status">${visible(said.text)}</p>`}
    ${mayAsk &&
    html`<form class="line" onSubmit=${ask}>
      <label><span>New report, last 30 days</span><select value=${kind} onChange=${(event) => setKind(event.target.value)}>${KINDS.map(([name, label]) => html`<option value=${name}>${label}</option>`)}</select></label>
      <button>Build</button>
    </form>`}
    ${rows.length > 0 && html`<${Table} caption="Reports, newest first" columns=${columns} rows=${rows} id=${(report) => report.id} />`}`;
}
