"""Reports one call to a model by OTLP/HTTP in JSON, as an OpenTelemetry exporter would, and reads it back. Standard library only."""

import json
import os
import secrets
import time
import urllib.request

WEIR = os.environ.get("WEIR_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("OPENAI_API_KEY", "sk-example")


def ask(path, body=None):
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    return json.load(urllib.request.urlopen(urllib.request.Request(WEIR + path, data, headers)))


def attribute(name, value):
    return {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}


trace, now = secrets.token_hex(16), time.time_ns()
span = {
    "traceId": trace,
    "spanId": secrets.token_hex(8),
    "name": "chat gpt-4o-mini",
    "kind": 3,
    "startTimeUnixNano": str(now - 800_000_000),
    "endTimeUnixNano": str(now),
    "attributes": [
        attribute("gen_ai.operation.name", "chat"),
        attribute("gen_ai.provider.name", "openai"),
        attribute("gen_ai.request.model", "gpt-4o-mini"),
        attribute("gen_ai.usage.input_tokens", 12),
        attribute("gen_ai.usage.output_tokens", 34),
    ],
}
ask("/v1/traces", {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [span]}]}]})
(stored,) = ask("/api/v1/spans?limit=1")["data"]
print("recorded:", stored["model"], stored["total_tokens"], "tokens,", f"{stored['estimated_cost_usd']:.7f}", "USD")
