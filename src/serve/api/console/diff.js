// Two calls beside each other: which lines of the later prompt are new, which of the former are gone.
import { html } from "./dom.js";
import { get } from "./api.js";
import { address } from "./route.js";
import { count, time, visible } from "./format.js";
import { Figure, Status, Words, useLoad } from "./widgets.js";
import { explained } from "./cache.js";

const WANTED = "span_id,trace_id,start_time,model,messages,prompt_cache,prompt,request";
// Lines that are compared one with another; longer stretches count as replaced as a whole.
const COMPARED = 1500;
const AROUND = 3;
const SHOWN = 2000;

/** The prompt as lines: settings and tools first, then what was said. */
export function lines(span) {
  const all = [`model: ${span.model || "none"}`];
  const { messages, input, contents, system, tools, model, ...rest } = span.request || {};
  for (const [name, value] of Object.entries(rest)) all.push(`${name}: ${JSON.stringify(value)}`);
  // In the order in which providers read them, whatever the order of the body.
  const rank = (message) => ({ tools: 0, system: 1, developer: 1 })[message.role] ?? 2;
  const sent = (span.messages || []).filter((one) => one.side === "request");
  for (const message of [...sent].sort((one, other) => rank(one) - rank(other))) {
    all.push(`── ${message.role}`);
    for (const part of message.parts) {
      const head = part.name ? `${part.type} ${part.name}: ` : part.type === "text" ? "" : `${part.type}: `;
      const text = part.value === undefined || part.value === null ? part.text || "(not kept)" : JSON.stringify(part.value, null, 1);
      all.push(...(head + text).split("\n"));
    }
  }
  return all;
}

/** `[kind, line]`: "=" in both, "-" gone, "+" new. */
export function compared(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [from, to] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const same = (list) => list.map((line) => ["=", line]);
  return [...same(a.slice(0, start)), ...middle(from, to), ...same(end ? a.slice(-end) : [])];
}

function middle(a, b) {
  const replaced = () => [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  if (a.length === 0 || b.length === 0 || a.length > COMPARED || b.length > COMPARED) return replaced();
  const width = b.length + 1;
  const longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const out = [];
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) {
      out.push(["=", a[i]]);
      i += 1;
      j += 1;
    } else if (longest[(i + 1) * width + j] >= longest[i * width + j + 1]) out.push(["-", a[i++]]);
    else out.push(["+", b[j++]]);
  }
  return [...out, ...a.slice(i).map((line) => ["-", line]), ...b.slice(j).map((line) => ["+", line])];
}

/** The lines around what differs; the others as how many they are. */
function folded(all) {
  const near = new Uint8Array(all.length);
  all.forEach(([kind], at) => {
    if (kind !== "=") near.fill(1, Math.max(0, at - AROUND), Math.min(all.length, at + AROUND + 1));
  });
  const out = [];
  let left = 0;
  all.forEach((line, at) => {
    if (near[at]) {
      if (left) out.push(["…", left]);
      left = 0;
      out.push(line);
    } else left += 1;
  });
  if (left) out.push(["…", left]);
  return out;
}

const NAMES = { "+": "added", "-": "gone", "=": "same" };

/** Where a changed line differs from the one that it replaces, so that one letter in a long line is seen. */
function Line({ kind, line, other }) {
  const text = line.length > SHOWN ? `${line.slice(0, SHOWN)} …` : line;
  if (other === undefined) return html`<div class=${`diff-line ${NAMES[kind]}`}><span class="mark" aria-label=${NAMES[kind]}>${kind}</span>${visible(text)}</div>`;
  let start = 0;
  while (start < line.length && line[start] === other[start]) start += 1;
  let end = 0;
  while (end < line.length - start && end < other.length - start && line.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [head, tail] = [line.slice(Math.max(0, start - 200), start), line.slice(line.length - end, line.length - end + 200)];
  return html`<div class=${`diff-line ${NAMES[kind]}`}><span class="mark" aria-label=${NAMES[kind]}>${kind}</span>${start > 200 ? "… " : ""}${visible(head)}<b>${visible(line.slice(start, line.length - end).slice(0, SHOWN))}</b>${visible(tail)}${end > 200 ? " …" : ""}</div>`;
}

export function Diff({ params }) {
  const state = useLoad(
    async (signal) => {
      const one = (id) => get(`/api/v1/spans/${encodeURIComponent(id)}`, { fields: WANTED }, signal);
      const [a, b] = await Promise.all([one(params.a), one(params.b)]);
      return { a, b, lines: compared(lines(a), lines(b)) };
    },
    [params.a, params.b],
  );
  const found = state.data;
  const number = (kind) => (found ? found.lines.filter(([one]) => one === kind).length : 0);
  const shown = found ? folded(found.lines) : [];
  return html`
    <div class="head"><h1>Two turns</h1></div>
    <${Status} state=${state} />
    ${found &&
    html`<dl class="figures">
        <${Figure} name="Earlier" value=${html`<a href=${address("trace", { id: found.a.trace_id, span: found.a.span_id })}>${time(found.a.start_time)}</a>`} />
        <${Figure} name="Later" value=${html`<a href=${address("trace", { id: found.b.trace_id, span: found.b.span_id })}>${time(found.b.start_time)}</a>`} />
        <${Figure} name="Lines added" value=${count(number("+"))} />
        <${Figure} name="Lines gone" value=${count(number("-"))} />
      </dl>
      ${found.b.prompt_cache && found.b.prompt_cache.previous_span_id === found.a.span_id && html`<p class="notice"><${Words} text=${explained(found.b.prompt_cache)} /></p>`}
      <div class="diff" role="group" aria-label="What differs between the two prompts" tabindex="0">
        ${shown.slice(0, SHOWN).map(([kind, line], at) => {
          if (kind === "…") return html`<div class="diff-line skipped">${count(line)} ${line === 1 ? "line" : "lines"} the same</div>`;
          const [before, behind] = [shown[at - 1] || [], shown[at + 1] || []];
          const other = kind === "-" && behind[0] === "+" && before[0] !== "-" ? behind[1] : kind === "+" && before[0] === "-" && (shown[at - 2] || [])[0] !== "-" ? before[1] : undefined;
          return html`<${Line} kind=${kind} line=${line} other=${other} />`;
        })}
        ${number("+") + number("-") === 0 && html`<div class="diff-line skipped">The two prompts are the same.</div>`}
      </div>`}
  `;
}
