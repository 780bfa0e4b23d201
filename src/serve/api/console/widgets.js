// Pieces that several pages are made of: loading, tables that the keyboard walks, filters, badges.
import { html, useCallback, useEffect, useRef, useState } from "./dom.js";
import { address, go } from "./route.js";
import { scoreClass, visible, NONE } from "./format.js";

/** Loads something, again whenever `deps` change, and every `every` milliseconds while the page is looked at. */
export function useLoad(load, deps, every = 0) {
  const [state, setState] = useState({ loading: true });
  const again = useRef(() => {});
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const run = async () => {
      clearTimeout(timer);
      try {
        const data = await load(stop.signal);
        if (!stop.signal.aborted) setState({ data, loading: false });
      } catch (error) {
        if (stop.signal.aborted) return;
        setState((former) => ({ data: former.data, error, loading: false }));
      }
      if (every && !stop.signal.aborted) timer = setTimeout(() => (document.hidden ? wait() : run()), every);
    };
    const wait = () => {
      timer = setTimeout(() => (document.hidden ? wait() : run()), 500);
    };
    again.current = run;
    setState((former) => ({ data: former.data, loading: true }));
    run();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, deps);
  return { ...state, reload: useCallback(() => again.current(), []) };
}

/** What there is to say while nothing is shown: an error with what to do, or that it is loading. */
export function Status({ state, empty }) {
  if (state.error) {
    return html`<div class="notice error" role="alert">
      <strong>${state.error.type === "unreachable" ? "No answer" : `Error ${state.error.status || ""}`}</strong> ${state.error.message}
      ${state.reload && html`<button onClick=${state.reload}>Try again</button>`}
    </div>`;
  }
  if (state.loading && !state.data) return html`<div class="notice" role="status">Loading…</div>`;
  if (empty) return html`<div class="notice" role="status">${empty}</div>`;
  return null;
}

export function Score({ value }) {
  return html`<span class=${`badge score ${scoreClass(value)}`} title="Security score, 0 clean to 100">${value ?? NONE}</span>`;
}

export function Severity({ value }) {
  return html`<span class=${`badge severity ${value.toLowerCase()}`}>${value}</span>`;
}

export function StatusCode({ span }) {
  const code = span.status_code;
  const kind = code === null ? "unknown" : code >= 500 ? "critical" : code >= 400 ? "high" : "clean";
  return html`<span class=${`badge ${kind}`} title=${span.error_type || ""}>${code ?? "none"}</span>`;
}

export function Copy({ text, label = "Copy" }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(typeof text === "function" ? await text() : text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      setDone(false);
    }
  };
  return html`<button class="small" onClick=${copy} aria-live="polite">${done ? "Copied" : label}</button>`;
}

/** Whether a key press is meant for what is typed into. */
export const isTyping = (event) => /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) || event.target.isContentEditable;

/**
 * A table whose rows j and k walk and Enter opens. A column: `{ name, title, cell(row), className }`; the first column of a row holds the
 * link that opens it. `open(row)` gives the address, or `toggle(row)` opens it in place, with `detail(row)` below it.
 */
export function Table({ caption, columns, rows, id, open, detail, opened, toggle, fresh }) {
  const [at, setAt] = useState(-1);
  const body = useRef(null);
  useEffect(() => {
    const press = (event) => {
      if (isTyping(event) || event.metaKey || event.ctrlKey || event.altKey) return;
      const step = { j: 1, ArrowDown: 0, k: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const links = body.current ? [...body.current.querySelectorAll("tr.row .first")] : [];
      const next = Math.max(0, Math.min(links.length - 1, at + step));
      setAt(next);
      if (links[next]) links[next].focus();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [at, rows]);
  const first = (row, cell) =>
    toggle
      ? html`<button class="link first" aria-expanded=${opened === id(row)} onClick=${() => toggle(row)}>${cell}</button>`
      : open
        ? html`<a class="first" href=${open(row)}>${cell}</a>`
        : cell;
  return html`<div class="scroll">
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>
          ${columns.map((column) => html`<th scope="col" class=${column.className || ""}>${column.name}</th>`)}
        </tr>
      </thead>
      <tbody ref=${body}>
        ${rows.map((row, number) => [
          html`<tr key=${id(row)} class=${`row${number === at ? " at" : ""}${fresh && fresh.has(id(row)) ? " fresh" : ""}`}>
            ${columns.map(
              (column, place) =>
                html`<td class=${column.className || ""} title=${column.title ? column.title(row) : undefined}>
                  ${place === 0 ? first(row, column.cell(row)) : column.cell(row)}
                </td>`,
            )}
          </tr>`,
          detail &&
          opened === id(row) &&
          html`<tr key=${`${id(row)}+`} class="detail">
            <td colspan=${columns.length}>${detail(row)}</td>
          </tr>`,
        ])}
      </tbody>
    </table>
  </div>`;
}

/** Fields that narrow a list; each is a parameter of the address. A field: `{ name, label, type, options, placeholder }`. */
export function Filters({ page, params, fields }) {
  const change = (name) => (event) => {
    const { cursor, ...rest } = params;
    go(page, { ...rest, [name]: event.target.value }, { replace: true });
  };
  const isSet = fields.some((field) => params[field.name]);
  const keep = Object.fromEntries(Object.entries(params).filter(([name]) => name !== "cursor" && !fields.some((field) => field.name === name)));
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    ${fields.map(
      (field) => html`<label>
        <span>${field.label}</span>
        ${field.options
          ? html`<select value=${params[field.name] || ""} onChange=${change(field.name)}>
              ${field.options.map(([value, label]) => html`<option value=${value}>${label}</option>`)}
            </select>`
          : html`<input type=${field.type || "text"} value=${params[field.name] || ""} placeholder=${field.placeholder || ""} onChange=${change(field.name)} />`}
      </label>`,
    )}
    ${isSet && html`<a class="button" href=${address(page, keep)}>Clear</a>`}
  </form>`;
}

/** Steps through a list by its cursors; the browser's back button leads to the page before. */
export function Pager({ page, params, list, shown }) {
  const { cursor, ...rest } = params;
  const total = list.total === undefined ? "" : ` of ${list.total.toLocaleString("en-US")}${list.total_is_exact === false ? "+" : ""}`;
  return html`<nav class="pager" aria-label="Pages">
    ${cursor && html`<a class="button" href=${address(page, rest)}>Newest</a>`}
    <span>${shown.toLocaleString("en-US")} shown${total}</span>
    ${list.next_cursor && html`<a class="button" rel="next" href=${address(page, { ...rest, cursor: list.next_cursor })}>Older</a>`}
  </nav>`;
}

/** A sentence in which names stand between backticks. */
export function Words({ text }) {
  return text.split("`").map((piece, at) => (at % 2 ? html`<code>${visible(piece)}</code>` : visible(piece)));
}

/** A number with its name. */
export function Figure({ name, value, kind, title }) {
  return html`<div class=${`figure ${kind || ""}`} title=${title || ""}><dt>${name}</dt><dd>${value}</dd></div>`;
}
