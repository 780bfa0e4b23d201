// Every state of the console is an address: the page is the path below /ui, everything else its query.
import { useEffect, useState } from "./dom.js";

const listeners = new Set();

export function current() {
  const page = location.pathname.replace(/^\/ui\/?/, "") || "live";
  return { page, params: Object.fromEntries(new URLSearchParams(location.search)) };
}

export function address(page, params = {}) {
  const pairs = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `/ui/${page}${pairs.length ? `?${new URLSearchParams(pairs)}` : ""}`;
}

/** Goes to a page. With `replace` the address changes without a step in the browser's history, as while a filter is typed. */
export function go(page, params, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", address(page, params));
  if (!replace) scrollTo(0, 0);
  listeners.forEach((listen) => listen());
}

addEventListener("popstate", () => listeners.forEach((listen) => listen()));

export function useRoute() {
  const [route, setRoute] = useState(current);
  useEffect(() => {
    const listen = () => setRoute(current());
    listeners.add(listen);
    return () => listeners.delete(listen);
  }, []);
  return route;
}

/** Lets a plain click on a link of the console change the page without loading it; with a modifier the browser does as usual. */
export function onClick(event) {
  const link = event.target.closest && event.target.closest("a[href^='/ui']");
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const target = new URL(link.href);
  history.pushState(null, "", target.pathname + target.search);
  scrollTo(0, 0);
  listeners.forEach((listen) => listen());
}
