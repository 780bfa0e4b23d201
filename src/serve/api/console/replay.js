// Replay: what a change of rules or settings would make of the calls on record, tried in the background. The form is filled from the
// address, and a replay that was begun is an address of its own: the page may be left, loaded again or sent to a colleague.
import { html, useState } from "./dom.js";
import { del, get, post } from "./api.js";
import { address, go } from "./route.js";
import { count, percent, time, visible, NONE } from "./format.js";
import { Copy, Figure, Severity, Status, Table, useLoad } from "./widgets.js";

const HOURS = [["1", "the last hour"], ["24", "the last 24 hours"], ["168", "the last 7 days"], ["720", "the last 30 days"], ["", "all that is on record"]];
const LIMITS = ["100", "1000", "10000", "100000"];
const POINTS = [["", "as it is"], ["high_precision", "high_precision"], ["balanced", "balanced"], ["high_recall", "high_recall"]];
const MODES = [["", "as it is"], ["log", "log"], ["flag", "flag"], ["block", "block"]];
const LEVELS = [["", "as it is"], ...["Info", "Low", "Medium", "High", "Critical"].map((name) => [name, name])];
const AGAINST = [["current", "the rules and settings in force"], ["record", "what was found at the time"]];
const UNDER_WAY = ["waiting", "running"];
const STATE = { waiting: "waits for its turn", running: "under way", done: "done", cancelled: "cancelled", failed: "failed" };
const LACK = {
  no_texts: "no texts are kept of them: not compared",
  masked: "credentials or personal data are masked: what was found of them counts as found again",
  changes: "what their tools said before is not known: findings of a change count as found again",
  cut: "only a part of a text is kept, or was looked at",
  unread: "something of them was never read",
  no_parts: "whose words stand where is not kept: all count as the user's and the model's",
  not_analysed: "they were not analysed when they were sent: not compared",
  timeout: "the time for an analysis was over before all had been looked at",
  failed: "a detector failed on them: not compared",
  models: "models of yours are not asked again",
};
const EXAMPLE = `rules:
  - id: project-name
    type: data_leakage
    severity: High
    about: Names a project that nobody outside may know of
    scope: [user, tool]
    before: 16
    literals: [bluebird]
    pattern: 'project bluebird'
    hits: ['tell me about Project Bluebird']
    misses: ['a bluebird sings']
`;

export function Replay({ params, me }) {
  if (me.role === "viewer") return html`<div class="head"><h1>Replay</h1></div><p class="notice">Trying a change takes the role operator.</p>`;
  return params.id ? html`<${One} id=${params.id} key=${params.id} />` : html`<${Begin} params=${params} />`;
}

const number = (text) => (text === "" || text === undefined ? undefined : Number(text));
const filled = (all) => Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== ""));

/** What the API is sent for a filled form. */
function requestOf(form) {
  return {
    ...filled({
      start_time: form.hours ? new Date(Date.now() - Number(form.hours) * 3600000).toISOString() : "",
      limit: number(form.limit),
      finding_type: form.finding_type,
      agent_id: form.agent_id,
      model: form.model,
      rules: form.rules.trim() ? form.rules : "",
      against: form.against,
    }),
    without: form.without.split(/[\s,]+/).filter(Boolean),
    settings: filled({
      operating_point: form.operating_point,
      ml_threshold: number(form.ml_threshold),
      jailbreak_threshold: number(form.jailbreak_threshold),
      finding_threshold: number(form.finding_threshold),
      flag_threshold: number(form.flag_threshold),
      block_threshold: number(form.block_threshold),
      enforcement_mode: form.enforcement_mode,
      enforcement_min_severity: form.enforcement_min_severity,
    }),
  };
}

function Begin({ params }) {
  const state = useLoad((signal) => get("/api/v1/replays", {}, signal), [], 3000);
  const [form, setForm] = useState({ hours: "168", limit: "1000", finding_type: "", agent_id: "", model: "", rules: "", without: "", against: "current", ...params });
  const [problem, setProblem] = useState(null);
  const set = (name) => (event) => setForm({ ...form, [name]: event.target.value });
  const begin = async (event) => {
    event.preventDefault();
    setProblem(null);
    try {
      go("replay", { id: (await post("/api/v1/replays", requestOf(form))).id });
    } catch (error) {
      setProblem(error);
    }
  };
  const text = (name, label, more = {}) => html`<label><span>${label}</span><input value=${form[name] || ""} onInput=${set(name)} ...${more} /></label>`;
  const choice = (name, label, options) =>
    html`<label><span>${label}</span><select value=${form[name] || ""} onChange=${set(name)}>${options.map(([value, said]) => html`<option value=${value}>${said}</option>`)}</select></label>`;
  const share = { type: "number", min: 0, max: 1, step: "any", placeholder: "as it is" };
  return html`
    <div class="head"><h1>Try a change</h1></div>
    <p class="lead">What would a change of rules or settings make of the calls on record? Each is looked at once more, in the background; nothing is written, and nothing in force changes.</p>
    <form class="replay-form" onSubmit=${begin}>
      <fieldset>
        <legend>The change</legend>
        <label class="rules">
          <span>Rules and allow rules, in the form of a rule file. They come on top of your rules folder's; the same id takes a rule's place.</span>
          <textarea rows="9" spellcheck="false" value=${form.rules} onInput=${set("rules")} placeholder=${"allow:\n  - {id: …, about: …, phrases: […]}"}></textarea>
        </label>
        <div class="line">
          <button type="button" class="small" onClick=${() => setForm({ ...form, rules: `${form.rules}${form.rules && !form.rules.endsWith("\n") ? "\n" : ""}${EXAMPLE}` })}>Add an example of a rule</button>
          ${form.rules && html`<${Copy} text=${form.rules} label="Copy" />`}
        </div>
        <div class="line">
          ${text("without", "Without these rules of yours (ids)")} ${choice("operating_point", "Operating point", POINTS)} ${text("ml_threshold", "Classifier's threshold", share)}
          ${text("jailbreak_threshold", "Jailbreak threshold", share)} ${text("finding_threshold", "Second stage: finding from", share)} ${text("flag_threshold", "flagged from", share)} ${text("block_threshold", "refused from", share)}
          ${choice("enforcement_mode", "Enforcement", MODES)} ${choice("enforcement_min_severity", "From severity", LEVELS)}
        </div>
      </fieldset>
      <fieldset>
        <legend>The calls</legend>
        <div class="line">
          ${choice("hours", "Of", HOURS)} ${choice("limit", "At most", LIMITS.map((limit) => [limit, `the newest ${count(Number(limit))}`]))}
          ${text("finding_type", "With a finding of type")} ${text("agent_id", "Agent")} ${text("model", "Model")} ${choice("against", "Compare with", AGAINST)}
        </div>
      </fieldset>
      <button>Try it</button>
      ${problem && html`<p class="notice error" role="alert">${visible(problem.message)}</p>`}
    </form>
    <${Status} state=${state} />
    ${state.data &&
    state.data.data.length > 0 &&
    html`<h2>Tried since the gateway's start</h2>
      <${Table} caption="Replays, newest first" columns=${LIST} rows=${state.data.data} id=${(one) => one.id} open=${(one) => address("replay", { id: one.id })} />`}
  `;
}

const LIST = [
  { name: "Begun", cell: (one) => time(one.created_at), title: (one) => one.created_at },
  { name: "State", cell: (one) => STATE[one.state] || one.state },
  { name: "Looked at", cell: (one) => `${count(one.read)}${one.expected === null ? "" : ` of ${count(one.expected)}`}`, className: "number" },
  { name: "Would change", cell: (one) => count(one.changed), className: "number" },
];

/** One replay: how far it is, and what came of it. */
function One({ id }) {
  const [over, setOver] = useState(false);
  const [problem, setProblem] = useState(null);
  const state = useLoad(
    async (signal) => {
      const one = await get(`/api/v1/replays/${encodeURIComponent(id)}`, {}, signal);
      setOver(!UNDER_WAY.includes(one.state));
      return one;
    },
    [id, over],
    over ? 0 : 700,
  );
  const one = state.data;
  const end = async () => {
    try {
      await del(`/api/v1/replays/${encodeURIComponent(id)}`);
      if (over) go("replay");
      else state.reload();
    } catch (error) {
      setProblem(error);
    }
  };
  return html`
    <div class="head">
      <h1>Replay</h1>
      <a class="button" href=${address("replay", one ? paramsOf(one.request) : {})}>Change it and try again</a>
      ${one && html`<button onClick=${end}>${over ? "Forget it" : "Cancel"}</button>`}
    </div>
    ${problem && html`<p class="notice error" role="alert">${visible(problem.message)}</p>`}
    <${Status} state=${state} />
    ${one && html`<${Result} one=${one} over=${over} />`}
  `;
}

/** The form's fields of a request. */
function paramsOf({ rules, without, settings, finding_type, agent_id, model, limit, against }) {
  return { rules, without: (without || []).join(" "), finding_type, agent_id, model, limit, against, ...settings };
}

function Result({ one, over }) {
  const sum = one.summary;
  const differs = ([, type]) => type.new + type.gone + type.severity_changed;
  const types = Object.entries(sum.by_type).sort((a, b) => differs(b) - differs(a));
  const agents = Object.entries(sum.by_agent).filter(([, agent]) => agent.changed > 0);
  const gained = types.reduce((all, [, type]) => all + type.new, 0);
  const lost = types.reduce((all, [, type]) => all + type.gone, 0);
  return html`
    <p role="status" class="progress">
      <span>${STATE[one.state] || one.state}: ${count(one.read)}${one.expected === null ? "" : ` of ${count(one.expected)}`} calls looked at${one.stopped_by === "limit" ? "; there are older ones, which were not asked for" : ""}${one.stopped_by === "time" ? "; a replay takes a quarter of an hour at most" : ""}</span>
      <progress max=${one.expected || 1} value=${over && one.state === "done" ? one.expected || 1 : one.read} aria-label="Calls looked at">${percent(one.read, one.expected || 1)}</progress>
    </p>
    ${one.error && html`<p class="notice error" role="alert">${visible(one.error)}</p>`}
    <dl class="figures">
      <${Figure} name="Calls that would change" value=${count(sum.changed)} />
      <${Figure} name="Findings gained" value=${count(gained)} title="By call and type" />
      <${Figure} name="Findings lost" value=${count(lost)} title="By call and type" />
      <${Figure} name="Blocked in addition" value=${count(one.newly_blocked)} kind=${one.newly_blocked ? "critical" : ""} />
      <${Figure} name="Blocked no longer" value=${count(one.no_longer_blocked)} />
    </dl>
    ${over && sum.changed === 0 && one.state === "done" && html`<p class="notice">${sum.compared === 0 ? "No call could be compared: none fits, or none has its texts on record." : "Nothing would be different in these calls."}</p>`}
    ${types.length > 0 &&
    html`<h2>By type</h2>
      <${Table} caption="Findings by type" columns=${TYPES} rows=${types} id=${([name]) => name} />`}
    ${one.changes.length > 0 &&
    html`<h2>Calls that would change</h2>
      <${Table} caption="Calls that would change, newest first" columns=${CHANGES} rows=${one.changes} id=${(change) => change.span_id} open=${(change) => address("trace", { id: change.trace_id, span: change.span_id })} />
      ${one.changes_truncated && html`<p class="notice">Only the newest ${count(one.changes.length)} are shown here. The figures count all of them.</p>`}`}
    ${agents.length > 1 &&
    html`<h2>By agent</h2>
      <${Table} caption="Calls by agent" columns=${AGENTS} rows=${agents} id=${([name]) => name} />`}
    <details open=${!over}>
      <summary>What was tried, and how faithful it is</summary>
      <dl class="facts">
        ${one.request.rules && html`<dt>Rules</dt><dd><pre class="text mono">${visible(one.request.rules)}</pre></dd>`}
        ${one.request.without.length > 0 && html`<dt>Without</dt><dd>${visible(one.request.without.join(", "))}</dd>`}
        ${Object.entries(one.request.settings).filter(([, value]) => value !== null).map(([name, value]) => html`<dt>${name}</dt><dd>${String(value)}</dd>`)}
        <dt>Compared with</dt><dd>${AGAINST.find(([name]) => name === one.request.against)[1]}</dd>
        <dt>Calls from</dt><dd>${one.request.start_time ? time(one.request.start_time) : "the first"}${one.request.finding_type ? `, with a finding of type ${visible(one.request.finding_type)}` : ""}${one.request.agent_id ? `, agent ${visible(one.request.agent_id)}` : ""}${one.request.model ? `, model ${visible(one.request.model)}` : ""}</dd>
        ${Object.entries(sum.lacks).map(([name, calls]) => html`<dt>Not faithful</dt><dd>${count(calls)} calls: ${LACK[name] || name}</dd>`)}
        ${sum.not_asked.map(({ name, what }) => html`<dt>Not asked</dt><dd><code>${name}</code>: ${what}</dd>`)}
      </dl>
    </details>
  `;
}

const TYPES = [
  { name: "Type", cell: ([name]) => name },
  { name: "Calls before", cell: ([, type]) => count(type.spans_before), className: "number" },
  { name: "Calls after", cell: ([, type]) => count(type.spans_after), className: "number" },
  { name: "Gained", cell: ([, type]) => count(type.new), className: "number" },
  { name: "Lost", cell: ([, type]) => count(type.gone), className: "number" },
  { name: "Severity differs", cell: ([, type]) => count(type.severity_changed), className: "number" },
];
const AGENTS = [
  { name: "Agent", cell: ([name]) => visible(name || "no agent"), className: "wide" },
  { name: "Calls", cell: ([, agent]) => count(agent.spans), className: "number" },
  { name: "Would change", cell: ([, agent]) => count(agent.changed), className: "number" },
  { name: "Blocked before", cell: ([, agent]) => count(agent.blocked_before), className: "number" },
  { name: "Blocked after", cell: ([, agent]) => count(agent.blocked_after), className: "number" },
];
const said = (severity) => (severity ? html`<${Severity} value=${severity} />` : html`<span class="gone">nothing</span>`);
const CHANGES = [
  { name: "Time", cell: (change) => time(change.start_time), title: (change) => change.start_time },
  { name: "Agent", cell: (change) => visible(change.agent_id || NONE), className: "wide" },
  { name: "Model", cell: (change) => visible(change.model || NONE), className: "wide" },
  {
    name: "Findings",
    cell: (change) => Object.entries(change.findings).map(([name, { before, after }]) => html`<div>${name}: ${said(before)} → ${said(after)}</div>`),
    className: "wide",
  },
  { name: "Request", cell: (change) => (change.decision_before === change.decision_after ? change.decision_after : html`${change.decision_before} → <strong>${change.decision_after}</strong>`) },
];
