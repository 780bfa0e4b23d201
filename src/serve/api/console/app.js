// The console: sign-in, the frame around the pages, and the keyboard.
import { html, render, useEffect, useRef, useState } from "./dom.js";
import { credential, get, signIn, signOut } from "./api.js";
import { go, onClick, useRoute } from "./route.js";
import { visible } from "./format.js";
import { isTyping } from "./widgets.js";
import { Calls, Live } from "./calls.js";
import { Session, Sessions, Trace } from "./traces.js";
import { Cache } from "./cache.js";
import { Diff } from "./diff.js";
import { FindingsPage } from "./findings.js";
import { Replay } from "./replay.js";
import { Money } from "./money.js";
import { Health } from "./health.js";
import { Settings } from "./settings.js";

const PAGES = [
  ["live", "Live", "l", Live],
  ["calls", "Calls", "c", Calls],
  ["sessions", "Sessions", "s", Sessions],
  ["cache", "Cache", "a", Cache],
  ["findings", "Findings", "f", FindingsPage],
  ["money", "Money", "m", Money],
  ["health", "Health", "h", Health],
  ["settings", "Settings", "e", Settings],
];
const INNER = { trace: ["calls", Trace], session: ["sessions", Session], diff: ["sessions", Diff], replay: ["findings", Replay] };

function App() {
  const route = useRoute();
  const [me, setMe] = useState(null);
  const [problem, setProblem] = useState(null);
  const [help, setHelp] = useState(false);
  const main = useRef(null);

  const identify = async () => {
    try {
      setMe(await get("/api/v1/auth/current"));
      setProblem(null);
    } catch (error) {
      setMe(null);
      setProblem(error);
    }
  };
  useEffect(() => void identify(), []);
  useKeyboard({ setHelp, main });

  const inner = INNER[route.page];
  const entry = PAGES.find(([name]) => name === (inner ? inner[0] : route.page));
  const Page = inner ? inner[1] : entry && entry[3];
  useEffect(() => {
    document.title = `${entry ? entry[1] : "Not found"} · Weir`;
    const link = document.querySelector(".bar nav [aria-current]");
    if (link) link.parentElement.scrollLeft = link.offsetLeft - 40;
  }, [route.page, me]);

  if (!me && !problem) return html`<p class="notice" role="status">Loading…</p>`;
  if (!me) return html`<${SignIn} problem=${problem} done=${identify} />`;
  return html`
    <a class="skip" href="#main">Skip to the page</a>
    <header class="bar" onClick=${onClick}>
      <a class="brand" href="/ui/live">Weir</a>
      <nav aria-label="Console">
        ${PAGES.map(([name, label, key]) => html`<a href=${`/ui/${name}`} title=${`g ${key}`} aria-current=${entry && entry[0] === name ? "page" : undefined}>${label}</a>`)}
      </nav>
      <${Who} me=${me} done=${identify} />
    </header>
    <main id="main" tabindex="-1" ref=${main} onClick=${onClick}>
      ${Page ? html`<${Page} key=${`${route.page}${route.params.id || ""}${route.params.b || ""}${me.tenant_id}`} params=${route.params} me=${me} />` : html`<p class="notice">There is no page of this name.</p>`}
    </main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}
  `;
}

const NIL = "00000000-0000-0000-0000-000000000000";
const nameOf = (tenant) => (tenant.id === NIL && tenant.name.endsWith(NIL) ? "default tenant" : visible(tenant.name).slice(0, 44));

/** Whose data is shown, and as whom. */
function Who({ me, done }) {
  const [tenants, setTenants] = useState([]);
  useEffect(() => {
    if (me.role === "admin") get("/api/v1/tenants", { limit: 500 }).then((list) => setTenants(list.data), () => setTenants([]));
  }, [me.role]);
  const choose = (event) => {
    signIn({ ...credential(), tenant: event.target.value || undefined });
    done();
  };
  const known = tenants.some((tenant) => tenant.id === me.tenant_id);
  return html`<div class="who">
    ${tenants.length > 0 &&
    html`<select aria-label="Tenant" value=${me.tenant_id} onChange=${choose}>
      ${!known && html`<option value=${me.tenant_id}>${me.tenant_id}</option>`}
      ${tenants.map((tenant) => html`<option value=${tenant.id}>${nameOf(tenant)}</option>`)}
    </select>`}
    <span class="role-name" title="What the credential allows">${me.role}</span>
    ${me.authentication && html`<button class="small" onClick=${() => (signOut(), done())}>Sign out</button>`}
  </div>`;
}

function SignIn({ problem, done }) {
  const [kind, setKind] = useState("key");
  const [secret, setSecret] = useState("");
  const tried = credential().kind !== "none";
  const submit = (event) => {
    event.preventDefault();
    signIn({ kind, secret: secret.trim() });
    done();
  };
  if (problem.status !== 401 && problem.status !== 403) {
    return html`<main class="sign-in"><h1>Weir</h1><p class="notice error" role="alert">${visible(problem.message)}</p><button onClick=${done}>Try again</button></main>`;
  }
  return html`<main class="sign-in">
    <h1>Weir</h1>
    <form onSubmit=${submit}>
      <label>
        <span>Sign in with</span>
        <select value=${kind} onChange=${(event) => setKind(event.target.value)}><option value="key">a key</option><option value="token">a tenant's token</option></select>
      </label>
      <label><span>${kind === "key" ? "Key" : "Token"}</span><input type="password" required autocomplete="off" value=${secret} onInput=${(event) => setSecret(event.target.value)} /></label>
      <button>Sign in</button>
      ${tried && html`<p class="notice error" role="alert">${visible(problem.message)}</p>`}
      <p class="gone">It is kept in this tab only, and forgotten when the tab is closed.</p>
    </form>
  </main>`;
}

const HELP = [
  ["j, k", "next and previous row"],
  ["Enter", "open the row"],
  ["/", "first filter"],
  ...PAGES.map(([, label, key]) => [`g ${key}`, label]),
  ["?", "this list"],
  ["Esc", "close, or leave a field"],
];

function Help({ close }) {
  const box = useRef(null);
  useEffect(() => box.current.focus(), []);
  return html`<div class="help" role="dialog" aria-modal="true" aria-label="Keys" tabindex="-1" ref=${box}>
    <h2>Keys</h2>
    <dl class="facts">${HELP.map(([key, what]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>
    <button onClick=${close}>Close</button>
  </div>`;
}

/** `g` and a letter go to a page, `/` to the first filter, `?` shows the keys. */
function useKeyboard({ setHelp, main }) {
  const leader = useRef(0);
  useEffect(() => {
    const press = (event) => {
      if (event.key === "Escape") {
        setHelp(false);
        if (isTyping(event)) event.target.blur();
        return;
      }
      if (isTyping(event) || event.metaKey || event.ctrlKey || event.altKey) return;
      const page = Date.now() - leader.current < 1200 && PAGES.find(([, , key]) => key === event.key);
      leader.current = event.key === "g" ? Date.now() : 0;
      if (page) {
        event.preventDefault();
        go(page[0]);
      } else if (event.key === "?") setHelp((former) => !former);
      else if (event.key === "/" && main.current) {
        const field = main.current.querySelector(".filters input, .filters select");
        if (field) {
          event.preventDefault();
          field.focus();
        }
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

render(html`<${App} />`, document.getElementById("app"));
