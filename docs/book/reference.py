#!/usr/bin/env python3
"""Writes the reference pages of the book from a built gateway: settings, commands, API, metrics and errors.

    docs/book/reference.py --weir target/debug/weir            # writes docs/book/src/reference/*.md
    docs/book/reference.py --weir target/debug/weir --check    # fails when a page is not what it would write

The gateway is started once, on loopback, without a provider and with everything in memory.
"""

import argparse
import difflib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "docs/book/src/reference"
MADE = "<!-- Made by docs/book/reference.py from the program itself. Do not edit. -->\n\n"


def cell(text):
    """Text for one cell of a table: one line, no bar that would end it, no names that only the source knows."""
    text = re.sub(r"\[(`[^`]+`)\](?!\()", r"\1", " ".join(str(text).split())).replace("`None`", "null")
    return text.replace("|", "\\|")


def prose(text):
    """Words for one cell: outside of code, what stands in angle brackets would be taken for HTML and not shown."""
    return "".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(re.split(r"(`[^`]*`)", cell(text))))


# --- settings ---

def kinds(schema):
    """What a schema accepts, in a few words."""
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in schema["enum"])
    if "anyOf" in schema or "oneOf" in schema:
        return " or ".join(dict.fromkeys(kinds(one) for one in schema.get("anyOf") or schema["oneOf"]))
    kind = schema.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        return f"list of {kinds(schema.get('items', {}))}"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f"{kind}, {low} to {high}"
    if low is not None:
        return f"{kind}, at least {low}"
    return kind


def variables():
    """The environment variable of each setting, from the example file, which a test holds to the catalogue."""
    found, comment, path = {}, "", []
    for line in (ROOT / "config/service.example.yaml").read_text().splitlines():
        if line.startswith("# ") or line.strip().startswith("# "):
            comment += " " + line.strip()[2:]
            continue
        key = re.match(r"^(\s*)#?( *)([a-z_0-9]+):", line)
        if key:
            depth = (len(key.group(1)) + len(key.group(2))) // 2
            path = path[:depth] + [key.group(3)]
            variable = re.search(r"Variable: ([A-Z_0-9]+)", comment)
            if variable:
                found[".".join(path)] = variable.group(1)
        comment = ""
    return found


def settings(weir):
    schema = json.loads(subprocess.check_output([weir, "config", "schema"]))
    by_name = variables()
    groups = {"": []}

    def walk(prefix, node):
        for name, one in sorted(node["properties"].items()):
            path = f"{prefix}.{name}" if prefix else name
            if "properties" in one and "default" not in one:
                walk(path, one)
            else:
                top = path.split(".")[0] if "." in path else ""
                groups.setdefault(top, []).append((path, one))

    walk("", schema)
    lines = ["# Settings\n", MADE.strip(), "",
             "Every setting can be left out. `config/service.example.yaml` has them with longer explanations and examples. The column SIGHUP says what",
             "a reload does with a change in the file: in force; its files are read again; at the next start, where the cell is empty.", ""]
    for top, rows in sorted(groups.items()):
        lines += [f"## `{top}`" if top else "## Top level", "", "| Setting | Default | SIGHUP | Accepted | What it does |", "|---|---|---|---|---|"]
        for path, one in rows:
            about = prose(one.get("description", ""))
            variable = by_name.get(path)
            about += f" Variable: `{variable}`." if variable else ""
            default = json.dumps(one["default"], ensure_ascii=False) if "default" in one else ""
            default = default if len(default) <= 60 else "see the example file"
            accepted = cell(kinds(one))
            accepted = accepted if len(accepted) <= 300 else "see the example file"
            reload = {"at the next start": "", "its files are read again": "its files"}.get(one.get("x-on-reload"), one.get("x-on-reload", ""))
            lines.append(f"| `{path}` | {f'`{cell(default)}`' if default else ''} | {reload} | {accepted} | {about} |")
        lines.append("")
    return "\n".join(lines)


# --- commands ---

def commands(weir):
    lines = ["# Commands\n", MADE.strip(), ""]

    def page(words):
        text = subprocess.check_output([weir, *words, "--help"], text=True, env={"COLUMNS": "100", "NO_COLOR": "1"})
        lines.extend([f"## `{' '.join(['weir', *words])}`", "", "```text", text.rstrip(), "```", ""])
        listed = re.search(r"^Commands:\n((?:  .*\n|\n)+)", text, re.M)
        for name in re.findall(r"^  ([a-z-]+)", listed.group(1), re.M) if listed else []:
            if name != "help":
                page([*words, name])

    page([])
    return "\n".join(lines)


# --- API and metrics, from a running gateway ---

def ask(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
        return answer.read().decode()


def shape(schema):
    """What a value is, in a few words; a record that stands below by its name."""
    if schema is True or not schema:
        return "any"
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const']).strip(chr(34))}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in schema["enum"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(shape(one) for one in schema[several]))
    kind = schema.get("type", "any")
    kinds = kind if isinstance(kind, list) else [kind]
    if "array" in kinds:
        items = f"list of {shape(schema.get('items', True))}"
        return " or ".join(items if one == "array" else one for one in kinds)
    if kinds == ["object"] and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {shape(schema['additionalProperties'])}"
    low, high, form = schema.get("minimum"), schema.get("maximum"), schema.get("format")
    text = " or ".join(kinds)
    if form in ("uuid", "date-time", "date", "ip"):
        text = text.replace("string", {"date-time": "time (RFC 3339)", "ip": "address"}.get(form, form))
    if low is not None and high is not None:
        return f"{text}, {low} to {high}"
    return text


def fields(schema, prefix="", depth=0):
    """Rows of an object: path, what it is, whether it must be there, what it means. Objects within are opened twice."""
    rows, required = [], schema.get("required", [])
    for name, one in schema.get("properties", {}).items():
        one = {} if one is True else one
        path = f"{prefix}{name}"
        rows.append((path, shape(one), name in required, one.get("description", "")))
        inner = next((part for part in [one, *one.get("anyOf", []), *one.get("oneOf", [])] if "properties" in part), None)
        listed = one.get("items")
        if inner and depth < 2:
            rows += fields(inner, f"{path}.", depth + 1)
        elif isinstance(listed, dict) and "properties" in listed and depth < 2:
            rows += fields(listed, f"{path}[].", depth + 1)
    return rows


def taken(schema):
    """The body of a request as a table."""
    rows = fields(schema)
    if not rows:
        return [f"Body: {shape(schema)}.", ""]
    return ["| Field of the body | Type | Needed | What |", "|---|---|---|---|"] + [
        f"| `{name}` | {cell(kind)} | {'yes' if needed else ''} | {prose(what)} |" for name, kind, needed, what in rows] + [""]


def sent(answer):
    """What an answer holds, in the formats there are."""
    shapes = dict.fromkeys(
        shape(content["schema"]) if "json" in kind and "schema" in content else f"`{kind}`"
        for kind, content in answer.get("content", {}).items())
    return " or ".join(shapes)


def api(document):
    lines = ["# API\n", MADE.strip(), "",
             "A running gateway shows this as a page to try out (`/swagger-ui`) and serves it whole (`/api-doc/openapi.json`). What answers hold stands",
             "under [records](#records).", ""]
    for path, methods in sorted(document["paths"].items()):
        for method, one in methods.items():
            if method not in ("get", "post", "put", "delete", "patch"):
                continue
            lines += [f"## `{method.upper()} {path}`", ""]
            about = one.get("summary") or one.get("description") or ""
            lines += [" ".join(about.split()), ""] if about else []
            rows = [(p["name"], p["in"], p.get("description", "")) for p in one.get("parameters", []) if "name" in p]
            if rows:
                lines += ["| Parameter | In | What |", "|---|---|---|"]
                lines += [f"| `{name}` | {place} | {prose(what)} |" for name, place, what in rows] + [""]
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            lines += taken(body) if body is not None else []
            answers = sorted(one.get("responses", {}).items())
            if answers:
                lines += ["| Answer | When | Holds |", "|---|---|---|"]
                lines += [f"| {code} | {prose(answer.get('description', ''))} | {cell(sent(answer))} |" for code, answer in answers] + [""]
    lines += ["## Records", "", "Fields of JSON that answers hold. A field that can be null is always there.", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}", ""]
        about = " ".join(schema.get("description", "").split())
        lines += [about, ""] if about else []
        rows = fields(schema)
        if rows:
            lines += ["| Field | Type | What |", "|---|---|---|"]
            lines += [f"| `{path}` | {cell(kind)} | {prose(what)} |" for path, kind, _, what in rows] + [""]
        else:
            lines += [f"{shape(schema)[:1].upper()}{shape(schema)[1:]}.", ""]
    return "\n".join(lines)


def metrics(text):
    lines = ["# Metrics\n", MADE.strip(), "",
             "What `/metrics` shows of a gateway that has just started. Metrics of features that are off, and of events that have not happened yet,",
             "appear with the first of them.", "", "| Metric | Type | What it counts |", "|---|---|---|"]
    kinds_of = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    for name, about in sorted(re.findall(r"^# HELP (\S+) (.*)$", text, re.M)):
        lines.append(f"| `{name}` | {kinds_of.get(name, '')} | {prose(about)} |")
    return "\n".join(lines) + "\n"


def running(weir):
    """The OpenAPI document and the metrics of a gateway that is started for it and stopped."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "service.yaml"
        file.write_text("listen_addr: 127.0.0.1:0\nupstream_url: http://127.0.0.1:9\nstorage: {profile: memory}\n")
        log = open(pathlib.Path(folder) / "log", "w+")
        process = subprocess.Popen([weir, "--config", str(file), "--log-format", "json"], stderr=log, cwd=folder)
        try:
            for _ in range(600):
                address = re.search(r"127\.0\.0\.1:([1-9]\d*)", pathlib.Path(log.name).read_text().replace("127.0.0.1:9\"", ""))
                if address:
                    break
                if process.poll() is not None:
                    sys.exit(f"the gateway ended: {pathlib.Path(log.name).read_text()}")
                time.sleep(0.1)
            else:
                sys.exit(f"the gateway does not say where it listens: {pathlib.Path(log.name).read_text()}")
            return json.loads(ask(address.group(0), "/api-doc/openapi.json")), ask(address.group(0), "/metrics")
        finally:
            process.terminate()
            process.wait(30)


# --- errors ---

STATUS = {"BAD_REQUEST": 400, "UNAUTHORIZED": 401, "FORBIDDEN": 403, "NOT_FOUND": 404, "METHOD_NOT_ALLOWED": 405, "CONFLICT": 409,
          "PAYLOAD_TOO_LARGE": 413, "UNSUPPORTED_MEDIA_TYPE": 415, "TOO_MANY_REQUESTS": 429, "INTERNAL_SERVER_ERROR": 500,
          "SERVICE_UNAVAILABLE": 503, "MISDIRECTED_REQUEST": 421}


# What each code means; a code without a line here, and a line without a code, ends this script.
MEANINGS = {
    "immutable": "The flag or setting cannot be changed while the gateway runs; change the file and restart.",
    "invalid_request": "The request cannot be read, or a value is out of its range; the message names the field, the value and what is accepted. 408: it did not arrive in time.",
    "streaming_disabled": "The operator has switched streams off (`enable_streaming`); ask without `stream`.",
    "authentication_error": "No credential, or one that is unknown or was revoked; send a key or a tenant token of this gateway.",
    "content_not_redacted": "What was to be redacted could not be, so it was not sent; the message says why.",
    "ip_blocked": "The address is blocked after too many wrong credentials; wait as long as the message says.",
    "key_limited": "The key is limited (models, upstreams, budgets) and may not do this; use another key of the tenant.",
    "model_not_allowed": "The tenant's or key's access list does not hold this model.",
    "operation_not_allowed": "The access list does not hold this operation; an administrator names it in `allowed_operations`.",
    "output_safety_blocked": "The answer held what `output_safety` stops; it is in the record.",
    "permission_denied": "The role does not reach, or the credential belongs to another tenant. 426: sockets are refused here; ask by HTTP.",
    "security_enforcement_blocked": "The request was taken for an attack (`enforcement.mode: block`); the message names the findings.",
    "upstream_not_allowed": "The access list does not hold this upstream.",
    "not_found": "There is no such record, tenant, key or path, or it belongs to another tenant.",
    "upstream_not_found": "No upstream has this name; the message lists the names there are.",
    "method_not_allowed": "The path takes another method; `Allow` lists them.",
    "conflict": "It exists already, or was changed by somebody else since you read it; read it again.",
    "request_too_large": "The body is larger than `max_request_size_bytes`; send less, or raise the setting.",
    "unsupported_media_type": "The body's type or coding cannot be read where it has to be.",
    "api_saturated": "Too many questions to the API at once; ask again after `Retry-After`.",
    "rate_limit_exceeded": "The tenant or key sends more than its limit allows; wait for `Retry-After` seconds.",
    "cost_cap_exceeded": "A budget or token cap does not allow the call (status by `cost_caps.status`, 429 by default); the message names the cap, what is spent and when it resets.",
    "internal_error": "A fault in Weir; the log has the reason under the trace id. Please report it.",
    "upstream_connect_error": "The provider could not be reached; the message says at which address and why.",
    "upstream_protocol_error": "The provider's answer is no valid HTTP, or it ended the connection before it.",
    "bodies_saturated": "Bodies that are held at the moment fill `server.max_body_memory_bytes`; send it again.",
    "golden_set_unavailable": "The golden set cannot be read or judged; the message says why.",
    "ml_pipeline_saturated": "Too many texts wait for analysis and `enforcement` does not let them pass unread; send it again.",
    "provider_key_unavailable": "The key lent for this provider cannot be unsealed or read; an administrator sets it again.",
    "redaction_saturated": "Too much waits for redaction; send it again.",
    "service_starting": "The gateway is starting; ask again in a second.",
    "shutting_down": "The gateway is stopping; ask the next one.",
    "storage_timeout": "The question took longer than two seconds; ask for less (a shorter time, a filter).",
    "storage_unavailable": "The record cannot be read or written at the moment; `/health` says why.",
    "too_many_connections": "The gateway has as many connections as it may (`max_connections`).",
    "upstream_timeout": "The provider did not answer within `timeout_ms`.",
}


def errors():
    """Codes that the sources give with a status: `Refusal::new(403, "code", ...)` and `Self::new(StatusCode::FORBIDDEN, "code", ...)`."""
    found = set()
    for path in sorted((ROOT / "src").rglob("*.rs")):
        text = path.read_text()
        text = text.split("#[cfg(test)]\nmod tests {")[0]
        for status, code in re.findall(r'new\(\s*(\d{3}|StatusCode::[A-Z_]+),\s*"([a-z_]+)"', text):
            status = STATUS.get(status.rsplit(":", 1)[-1], status)
            found.add((int(status), code)) if str(status).isdigit() else None
        # Codes that a function of their file makes a refusal of: the status stands in that function.
        for code in re.findall(r'refusal\(\s*"([a-z_]+)"', text):
            status = re.search(r"fn refusal\(.*?Refusal::new\((\d{3})", text, re.S)
            found.add((int(status.group(1)), code)) if status else None
        # A code whose status a setting names: by its default.
        for code in re.findall(r'Refusal::new\(status, "([a-z_]+)"', text):
            found.add((429, code))
    unknown = sorted({code for _, code in found} - MEANINGS.keys())
    if unknown or MEANINGS.keys() - {code for _, code in found}:
        sys.exit(f"MEANINGS in {__file__} and the codes of the sources differ: {unknown}, {sorted(MEANINGS.keys() - {code for _, code in found})}")
    lines = ["# Errors\n", MADE.strip(), "",
             "An error of Weir's own is JSON in the form of the dialect that the client speaks; `code` is one of these, and the message says what was",
             "wrong, what is accepted and what to do. Errors of the provider pass unchanged.", "", "| Status | Code | What it means, and what to do |", "|---|---|---|"]
    lines += [f"| {status} | `{code}` | {MEANINGS[code]} |" for status, code in sorted(found)]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, help="the built gateway")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    arguments = parser.parse_args()
    weir = str(pathlib.Path(arguments.weir).resolve())
    document, shown = running(weir)
    pages = {"settings": settings(weir), "commands": commands(weir), "api": api(document), "metrics": metrics(shown), "errors": errors()}
    differ = []
    for name, text in pages.items():
        path = PAGES / f"{name}.md"
        text = text.rstrip() + "\n"
        kept = path.read_text() if path.exists() else ""
        if kept != text and arguments.check:
            differ += list(difflib.unified_diff(kept.splitlines(), text.splitlines(), str(path), "made now", lineterm="", n=0))[:20]
        elif kept != text:
            path.write_text(text)
    if differ:
        sys.exit("\n".join(differ) + "\nthe reference is not up to date: docs/book/reference.py --weir target/debug/weir")


if __name__ == "__main__":
    main()
