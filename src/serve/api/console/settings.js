// Settings: flags, tenants, keys, alerts and the audit log, as far as the caller's role reaches. What it does not is not shown, and the API
// refuses it all the same.
import { html, useState } from "./dom.js";
import { del, get, post, put } from "./api.js";
import { address } from "./route.js";
import { count, time, visible, NONE } from "./format.js";
import { Reports } from "./export.js";
import { Copy, Severity, Status, Table, useLoad } from "./widgets.js";

const SECTIONS = [
  ["flags", "Flags", "admin"],
  ["alerts", "Alerts", "viewer"],
  ["reports", "Reports", "viewer"],
  ["tenants", "Tenants", "admin"],
  ["keys", "Keys", "admin"],
  ["audit", "Audit", "admin"],
  ["config", "All settings", "admin"],
];
const RANK = { viewer: 0, operator: 1, admin: 2 };

export function Settings({ params, me }) {
  const allowed = SECTIONS.filter(([, , role]) => RANK[me.role] >= RANK[role]);
  const section = allowed.some(([name]) => name === params.section) ? params.section : allowed[0][0];
  const Page = { flags: Flags, alerts: Alerts, reports: ReportsOf, tenants: Tenants, keys: Keys, audit: Audit, config: Config }[section];
  return html`
    <div class="head"><h1>Settings</h1></div>
    <nav class="tabs" aria-label="Settings">
      ${allowed.map(([name, label]) => html`<a href=${address("settings", { section: name })} aria-current=${name === section ? "page" : undefined}>${label}</a>`)}
    </nav>
    <${Page} params=${params} me=${me} />
  `;
}

/** Runs a change and says what came of it. */
function useChange(reload) {
  const [said, setSaid] = useState(null);
  const change = async (work, done) => {
    try {
      const answer = await work();
      setSaid({ text: typeof done === "function" ? done(answer) : done });
      reload();
      return answer;
    } catch (error) {
      setSaid({ text: error.message, failed: true });
      return null;
    }
  };
  const notice = said && html`<p class=${`notice ${said.failed ? "error" : ""}`} role="status">${visible(said.text)}</p>`;
  return [change, notice];
}

const ABOUT = {
  analyzer_guard_a_enabled: "The first guard model of yours looks at prompts.",
  analyzer_guard_b_enabled: "The second guard model of yours looks at prompts.",
  analyzer_jailbreak_enabled: "Rules for jailbreaks look at prompts.",
  analyzer_ml_enabled: "The classifier in the binary looks at prompts and results of tools.",
  boundary_defense_enabled: "What tools bring is fenced in before it is forwarded.",
  boundary_defense_shadow_mode: "The same, counted and not done.",
  cost_caps_enabled: "Budgets and token caps refuse what goes over them.",
  enforcement_mode: "What becomes of a finding: recorded, flagged to the client, or refused.",
  llm_advisory_injection_enabled: "A system message tells the model what was found.",
  llm_judge_enabled: "A model judges what detectors doubt.",
  operating_point: "Fewer false alarms, or fewer misses.",
  over_defence: "Milder findings where harmless texts use the words of attacks.",
  rate_limiting_enabled: "Each tenant has a rate of calls.",
};
const CHOICES = { enforcement_mode: ["log", "flag", "block"], operating_point: ["high_precision", "balanced", "high_recall"] };

function Flags({ me }) {
  const state = useLoad((signal) => get("/api/v1/config/features", {}, signal), []);
  const [change, notice] = useChange(state.reload);
  const mayChange = me.role === "admin";
  const set = (name, value) =>
    change(
      () => put("/api/v1/config/features", { [name]: value }),
      (answer) => `${name} is ${value} now${answer && answer.persisted === false ? ", until the next restart: there is no configuration file to keep it in" : ""}.`,
    );
  return html`<${Status} state=${state} />${notice}
    ${state.data &&
    html`<ul class="flags">
      ${Object.entries(state.data).map(
        ([name, value]) => html`<li>
          <label>
            <span class="wide"><code>${name}</code>${ABOUT[name] && html`<span class="about">${ABOUT[name]}</span>`}</span>
            ${!mayChange
              ? html`<strong>${String(value)}</strong>`
              : typeof value === "boolean"
                ? html`<input type="checkbox" checked=${value} onChange=${(event) => set(name, event.target.checked)} />`
                : html`<select value=${value} onChange=${(event) => set(name, event.target.value)}>
                    ${(CHOICES[name] || [value]).map((choice) => html`<option value=${choice}>${choice}</option>`)}
                  </select>`}
          </label>
        </li>`,
      )}
    </ul>`}`;
}

function Alerts({ me }) {
  const state = useLoad((signal) => get("/api/v1/alerts", { limit: 100 }, signal), [], 10000);
  const [change, notice] = useChange(state.reload);
  const rows = state.data ? state.data.data : [];
  const columns = [
    { name: "Last", cell: (alert) => time(alert.last_at) },
    { name: "Severity", cell: (alert) => html`<${Severity} value=${alert.severity} />` },
    { name: "Type", cell: (alert) => alert.finding_type },
    { name: "Channel", cell: (alert) => alert.channel },
    { name: "Findings", cell: (alert) => count(alert.count), className: "number" },
    { name: "Told", cell: (alert) => (alert.notified_at ? time(alert.notified_at) : "not yet accepted"), title: (alert) => `not told yet: ${alert.suppressed}` },
    { name: "State", cell: (alert) => `${alert.state}${alert.acknowledged_by ? ` by ${visible(alert.acknowledged_by)}` : ""}${alert.escalated_to ? `, escalated to ${alert.escalated_to}` : ""}` },
    {
      name: "",
      cell: (alert) =>
        alert.state === "open" && RANK[me.role] >= RANK.operator
          ? html`<button class="small" onClick=${() => change(() => post(`/api/v1/alerts/${alert.id}/ack`), "Acknowledged: it goes to no further channel.")}>Acknowledge</button>`
          : "",
    },
    {
      name: "",
      cell: (alert) =>
        alert.state !== "resolved" && RANK[me.role] >= RANK.operator
          ? html`<button class="small" onClick=${() => change(() => post(`/api/v1/alerts/${alert.id}/redeliver`), `${alert.channel} is told once more; "Told" says when it has accepted that.`)}>Tell again</button>`
          : "",
    },
  ];
  return html`<${Status} state=${state} empty=${state.data && rows.length === 0 && "No channel was told anything."} />${notice}
    ${rows.length > 0 && html`<${Table} caption="Alerts, newest first" columns=${columns} rows=${rows} id=${(alert) => alert.id} open=${(alert) => (alert.trace_id ? address("trace", { id: alert.trace_id, span: alert.span_id }) : address("findings", { finding_type: alert.finding_type }))} />`}`;
}

const ReportsOf = ({ me }) => html`<${Reports} mayAsk=${RANK[me.role] >= RANK.operator} />`;

function Tenants() {
  const state = useLoad((signal) => get("/api/v1/tenants", { limit: 200 }, signal), []);
  const [change, notice] = useChange(state.reload);
  const [name, setName] = useState("");
  const columns = [
    { name: "Name", cell: (tenant) => visible(tenant.name), className: "wide" },
    { name: "Id", cell: (tenant) => html`<code>${tenant.id}</code> <${Copy} text=${tenant.id} />` },
    { name: "Plan", cell: (tenant) => visible(tenant.plan || NONE) },
    { name: "Created", cell: (tenant) => time(tenant.created_at) },
    { name: "", cell: (tenant) => html`<${Sure} label="Delete" question=${`Delete ${tenant.name} with all its records and keys?`} act=${() => change(() => del(`/api/v1/tenants/${tenant.id}`), `${tenant.name} is deleted.`)} />` },
  ];
  const create = async (event) => {
    event.preventDefault();
    if (await change(() => post("/api/v1/tenants", { name }), `${name} is created.`)) setName("");
  };
  return html`<${Status} state=${state} />${notice}
    <form class="line" onSubmit=${create}>
      <label><span>New tenant</span><input required value=${name} onInput=${(event) => setName(event.target.value)} placeholder="Name" /></label>
      <button>Create</button>
    </form>
    ${state.data && html`<${Table} caption="Tenants" columns=${columns} rows=${state.data.data} id=${(tenant) => tenant.id} />`}`;
}

function Keys({ me }) {
  const state = useLoad((signal) => get("/api/v1/auth/keys", { limit: 200 }, signal), []);
  const [change, notice] = useChange(state.reload);
  const [made, setMade] = useState(null);
  const [form, setForm] = useState({ name: "", role: "operator", tenant_id: "" });
  const edit = (field) => (event) => setForm({ ...form, [field]: event.target.value });
  const create = async (event) => {
    event.preventDefault();
    const key = await change(() => post("/api/v1/auth/keys", { ...form, tenant_id: form.tenant_id || me.tenant_id }), (answer) => `The key ${answer.name} is made.`);
    setMade(key);
  };
  const columns = [
    { name: "Name", cell: (key) => visible(key.name || NONE), className: "wide" },
    { name: "Begins with", cell: (key) => html`<code>${key.key_prefix}</code>` },
    { name: "Role", cell: (key) => key.role },
    { name: "Tenant", cell: (key) => html`<code>${key.tenant_id}</code>` },
    { name: "Limits", cell: (key) => (key.access ? visible(JSON.stringify(key.access)) : NONE), className: "wide" },
    { name: "Last used", cell: (key) => time(key.last_used_at) },
    { name: "", cell: (key) => (key.revoked_at ? `revoked ${time(key.revoked_at)}` : html`<${Sure} label="Revoke" question=${`Revoke ${key.name || key.key_prefix}? Calls under way with it end.`} act=${() => change(() => del(`/api/v1/auth/keys/${key.id}`), `${key.name || key.key_prefix} is revoked.`)} />`) },
  ];
  return html`<${Status} state=${state} />${notice}
    ${made && html`<p class="notice" role="alert">This is shown once: <code>${made.key}</code> <${Copy} text=${made.key} /></p>`}
    <form class="line" onSubmit=${create}>
      <label><span>New key</span><input required value=${form.name} onInput=${edit("name")} placeholder="Name" /></label>
      <label><span>Role</span><select value=${form.role} onChange=${edit("role")}><option>viewer</option><option>operator</option><option>admin</option></select></label>
      <label><span>Tenant</span><input value=${form.tenant_id} onInput=${edit("tenant_id")} placeholder="id, or empty for yours" /></label>
      <button>Create</button>
    </form>
    ${state.data && state.data.data.length === 0 && html`<p class="notice">No key yet. A key lets a program or a person in, with a role and, if you like, limits.</p>`}
    ${state.data && state.data.data.length > 0 && html`<${Table} caption="Keys" columns=${columns} rows=${state.data.data} id=${(key) => key.id} />`}`;
}

function Audit() {
  const state = useLoad((signal) => get("/api/v1/audit", { limit: 200 }, signal), []);
  const columns = [
    { name: "Time", cell: (entry) => time(entry.timestamp), title: (entry) => entry.timestamp },
    { name: "Action", cell: (entry) => entry.action },
    { name: "By", cell: (entry) => visible(entry.actor || NONE), className: "wide" },
    { name: "Of", cell: (entry) => visible(entry.target || NONE), className: "wide" },
    { name: "Detail", cell: (entry) => visible(typeof entry.detail === "string" ? entry.detail : JSON.stringify(entry.detail ?? NONE)), className: "wide" },
  ];
  return html`<${Status} state=${state} empty=${state.data && state.data.data.length === 0 && "No administrative event yet."} />
    ${state.data &&
    html`<p class=${`notice ${state.data.chain.intact ? "" : "error"}`}>
        ${state.data.chain.intact ? `The chain of ${count(state.data.chain.entries)} entries is whole` : `The chain is broken at entry ${state.data.chain.first_bad_seq}`}, as checked ${time(state.data.chain.verified_at)}.
      </p>
      <${Table} caption="Audit log, newest first" columns=${columns} rows=${state.data.data} id=${(entry) => entry.seq} />`}`;
}

/** Every setting by its path. */
function flatten(value, path = "", found = []) {
  if (value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length > 0) {
    for (const [key, part] of Object.entries(value)) flatten(part, path ? `${path}.${key}` : key, found);
  } else found.push([path, value]);
  return found;
}

function Config() {
  const state = useLoad((signal) => get("/api/v1/config/live", {}, signal), []);
  const [word, setWord] = useState("");
  const rows = state.data ? flatten(state.data.config).filter(([path]) => path.includes(word)) : [];
  const columns = [
    { name: "Setting", cell: ([path]) => html`<code>${path}</code>`, className: "wide" },
    { name: "Value", cell: ([, value]) => html`<code>${visible(JSON.stringify(value))}</code>`, className: "wide" },
    { name: "From", cell: ([path]) => (state.data.sources || {})[path] || "default" },
  ];
  return html`<${Status} state=${state} />
    <form class="filters" onSubmit=${(event) => event.preventDefault()}><label><span>Find</span><input value=${word} onInput=${(event) => setWord(event.target.value)} placeholder="part of a path" /></label></form>
    ${state.data && html`<${Table} caption="Settings in effect" columns=${columns} rows=${rows} id=${([path]) => path} />`}`;
}

/** A button that asks before it acts. */
function Sure({ label, question, act }) {
  const [asks, setAsks] = useState(false);
  if (!asks) return html`<button class="small" onClick=${() => setAsks(true)}>${label}</button>`;
  return html`<span role="alertdialog" aria-label=${question} class="sure">
    ${visible(question)} <button class="small danger" onClick=${() => (setAsks(false), act())}>${label}</button> <button class="small" onClick=${() => setAsks(false)}>Keep</button>
  </span>`;
}
