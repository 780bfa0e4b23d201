// Findings: triage by type, rule, agent, model and tool; what silences one for good is a line of YAML to copy.
import { html } from "./dom.js";
import { get } from "./api.js";
import { address } from "./route.js";
import { count, time, visible, NONE } from "./format.js";
import { Copy, Filters, Pager, Score, Severity, Status, Table, useLoad } from "./widgets.js";

const FIELDS = [
  { name: "finding_type", label: "Type" },
  { name: "agent_id", label: "Agent" },
  { name: "model", label: "Model" },
  { name: "security_score_min", label: "Score", options: [["", "any"], ["60", "60 and more"], ["85", "85 and more"]] },
  { name: "by", label: "Group by", options: [["", "type"], ["rule", "rule"], ["agent", "agent"], ["model", "model"], ["detector", "detector"]] },
];
const WANTED = "span_id,trace_id,start_time,model,agent_id,client,security_score,security_findings,enforcement";
const ORDER = ["Critical", "High", "Medium", "Low", "Info"];

const groupOf = {
  "": ({ finding }) => finding.finding_type,
  rule: ({ finding }) => (finding.metadata && finding.metadata.rule) || finding.detector,
  agent: ({ span }) => span.agent_id || span.client || "no agent",
  model: ({ span }) => span.model || "no model",
  detector: ({ finding }) => finding.detector,
};

/** What came of a prompt is no matter of security: the page Cache has it. */
const isOfCache = (finding) => finding.detector === "prompt_cache";

/** A YAML string that holds any text: YAML takes JSON's strings. */
const quoted = (text) => JSON.stringify(text);

/** A line for the `allow` list of a rules folder that turns this finding into a remark. */
export function allowRule({ span, finding }) {
  const id = `allow-${finding.finding_type.replaceAll("_", "-")}-${finding.id.slice(-6)}`;
  const agents = span.agent_id ? `, agents: [${quoted(span.agent_id)}]` : "";
  return `- {id: ${id}, about: "Harmless here.", phrases: [${quoted(finding.evidence || "")}], types: [${finding.finding_type}]${agents}}`;
}

export function FindingsPage({ params, me }) {
  const mayTry = me.role !== "viewer";
  const { by = "", group, cursor, ...filters } = params;
  const state = useLoad(
    (signal) => get("/api/v1/spans", { ...(filters.finding_type ? {} : { security_score_min: 1 }), ...filters, cursor, limit: 200, texts: false, fields: WANTED }, signal),
    [JSON.stringify(filters), cursor],
  );
  const found = (state.data ? state.data.data : []).flatMap((span) => (span.security_findings || []).filter((finding) => !isOfCache(finding) || filters.finding_type).map((finding) => ({ span, finding })));
  const name = groupOf[by] || groupOf[""];
  const groups = new Map();
  for (const one of found) {
    const key = name(one);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(one);
  }
  const rows = [...groups].map(([key, all]) => ({ key, all, worst: ORDER.find((word) => all.some(({ finding }) => finding.severity === word)) }));
  rows.sort((a, b) => ORDER.indexOf(a.worst) - ORDER.indexOf(b.worst) || b.all.length - a.all.length);
  const shown = group ? groups.get(group) || [] : found.slice(0, 100);
  return html`
    <div class="head"><h1>Findings</h1></div>
    <${Filters} page="findings" params=${params} fields=${FIELDS} />
    <${Status} state=${state} empty=${state.data && found.length === 0 && "Nothing was found in these calls."} />
    ${found.length > 0 &&
    html`<div class="split">
      <div>
        <h2>${count(found.length)} findings in ${count(state.data.data.length)} calls</h2>
        <ul class="groups">
          ${rows.map(
            (row) => html`<li>
              <a class=${row.key === group ? "at" : ""} aria-current=${row.key === group ? "true" : undefined} href=${address("findings", { ...params, group: row.key === group ? "" : row.key })}>
                <${Severity} value=${row.worst} /> <span class="wide">${visible(row.key)}</span> <span class="number">${count(row.all.length)}</span>
              </a>
            </li>`,
          )}
        </ul>
      </div>
      <div>
        ${group && html`<h2>${visible(group)}</h2>`}
        ${mayTry && group && html`<p><a class="button" href=${address("replay", { finding_type: shown[0] && shown[0].finding.finding_type })}>Try a change of rules over such calls</a></p>`}
        <${Table}
          caption="Findings, newest first"
          columns=${mayTry ? [...COLUMNS.slice(0, -1), ALLOW_OR_TRY] : COLUMNS}
          rows=${shown}
          id=${({ span, finding }) => `${span.span_id}${finding.id}`}
          open=${({ span }) => address("trace", { id: span.trace_id, span: span.span_id })}
        />
        <${Pager} page="findings" params=${params} list=${state.data} shown=${state.data.data.length} />
      </div>
    </div>`}
  `;
}

const COLUMNS = [
  { name: "Time", cell: ({ span }) => time(span.start_time), title: ({ span }) => span.start_time },
  { name: "Severity", cell: ({ finding }) => html`<${Severity} value=${finding.severity} />` },
  { name: "Type and rule", cell: ({ finding }) => html`${finding.finding_type}<div class="gone">${(finding.metadata && finding.metadata.rule) || finding.detector}</div>` },
  { name: "Words", cell: ({ finding }) => html`<span class="text mono evidence" dir="auto">${visible(finding.evidence || NONE)}</span>`, className: "wide" },
  { name: "Agent or client", cell: ({ span }) => visible(span.agent_id || span.client || NONE), className: "wide" },
  { name: "Score", cell: ({ span }) => html`<${Score} value=${span.security_score} />` },
  { name: "Allow", cell: (one) => one.finding.evidence && html`<${Copy} label="Copy allow rule" text=${allowRule(one)} />` },
];

/** The line to copy, and the page where it is tried on calls that have such a finding before it is put into the rules. */
const ALLOW_OR_TRY = {
  name: "Allow",
  cell: (one) =>
    one.finding.evidence &&
    html`<div class="stacked">
      <${Copy} label="Copy allow rule" text=${allowRule(one)} />
      <a class="button small" href=${address("replay", { rules: `allow:\n  ${allowRule(one)}\n`, finding_type: one.finding.finding_type })}>What would it change?</a>
    </div>`,
};
