// How values are written for people. Pure functions: text in, text out.

export const NONE = "–";

export function time(iso) {
  if (!iso) return NONE;
  const at = new Date(iso);
  const same = at.toDateString() === new Date().toDateString();
  const clock = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return same ? clock : `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${clock}`;
}

export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

export const micros = (us) => (us === null || us === undefined ? NONE : duration(us / 1000));

export function count(value) {
  return value === null || value === undefined ? NONE : value.toLocaleString("en-US");
}

export function dollars(value) {
  if (value === null || value === undefined) return NONE;
  if (value === 0) return "$0";
  if (value < 0.01) return `$${value.toPrecision(2)}`;
  return `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[at]}`;
}

export const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0)} %` : NONE);

/** Controls and marks that would change how the text around them reads, written out. Line breaks and tabs stay. */
export function visible(text) {
  return text.replace(
    /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (mark) => `\u27e8U+${mark.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`,
  );
}

/** The class of a score, as the thresholds of flags and refusals divide it. */
export function scoreClass(score) {
  if (score === null || score === undefined) return "unknown";
  return score >= 85 ? "critical" : score >= 60 ? "high" : score >= 30 ? "medium" : score > 0 ? "low" : "clean";
}
