// What the console asks the gateway, and as whom. A credential lives in this tab alone and is sent as a header: there is no cookie, so
// that no other page can act with it.

const KEY = "weir.credential";

/** Who asks: `{ kind: "none" | "key" | "token", secret, tenant }`. */
export function credential() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) || { kind: "none" };
  } catch {
    return { kind: "none" };
  }
}

export function signIn(value) {
  sessionStorage.setItem(KEY, JSON.stringify(value));
}

export function signOut() {
  sessionStorage.removeItem(KEY);
}

/** An answer that is no success: its status, the API's error type, and its sentence. */
export class ApiError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

function headers() {
  const { kind, secret, tenant } = credential();
  const all = { Accept: "application/json" };
  if (kind === "key") all.Authorization = `Bearer ${secret}`;
  if (kind === "token") all["X-Service-Token"] = secret;
  if (tenant) all["X-Service-Tenant-ID"] = tenant;
  return all;
}

export function query(params) {
  const pairs = Object.entries(params || {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return pairs.length ? `?${new URLSearchParams(pairs)}` : "";
}

async function ask(method, path, { params, body, signal, text, whole } = {}) {
  const all = headers();
  if (body !== undefined) all["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path + query(params), {
      method,
      headers: all,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The gateway does not answer. Is it running?");
  }
  if (!answer.ok && !(path === "/health" && answer.status === 503)) {
    const said = await answer.json().catch(() => ({}));
    const { type = "error", message = `The gateway answered ${answer.status}.` } = said.error || {};
    throw new ApiError(answer.status, type, message);
  }
  if (whole) return answer;
  if (answer.status === 204) return null;
  return text ? answer.text() : answer.json();
}

export const get = (path, params, signal) => ask("GET", path, { params, signal });
export const getText = (path, params, signal) => ask("GET", path, { params, signal, text: true });
/** The answer itself, to be read piece by piece. */
export const open = (path, params, signal) => ask("GET", path, { params, signal, whole: true });
export const post = (path, body) => ask("POST", path, { body });
export const put = (path, body) => ask("PUT", path, { body });
export const del = (path) => ask("DELETE", path);
