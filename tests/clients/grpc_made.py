"""What the gRPC tests share: code made of the proto file, spans, and what the API says of them."""

import json
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request

from grpc_tools import protoc

PROTO = os.environ["PROTO_FOLDER"]
WEIR_URL = os.environ["WEIR_URL"]
made = tempfile.mkdtemp(dir=os.environ["WORK_FOLDER"])
failed = protoc.main(
    ["protoc", f"-I{PROTO}", f"--python_out={made}", f"--grpc_python_out={made}", "weir/traces/v1/traces.proto"]
)
assert failed == 0, "the proto file cannot be compiled"
sys.path.insert(0, made)

from weir.traces.v1 import traces_pb2 as pb  # noqa: E402
from weir.traces.v1 import traces_pb2_grpc as rpc  # noqa: E402

START = 1_795_000_000_000_000_000


def span(trace=1, number=1, **fields):
    """A span with what every span has; its id is 8 bytes."""
    defaults = dict(
        trace_id=trace.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        start_time_unix_nano=START,
        end_time_unix_nano=START + 1_500_000_000,
        operation_name="chat",
        provider="openai",
        model="gpt-4o",
        status_code=200,
    )
    return pb.Span(**{**defaults, **fields})


def said(role, text):
    return pb.Message(role=role, parts=[pb.Part(text=text)])


def api(path, **headers):
    """What the API answers, or the status that refuses it."""
    request = urllib.request.Request(f"{WEIR_URL}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code


def span_path(number):
    return f"/api/v1/spans/00000000-0000-0000-{number >> 48:04x}-{number & (1 << 48) - 1:012x}"


def eventually(probe, limit=20):
    end = time.monotonic() + limit
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < end, "this did not happen in time"
        time.sleep(0.05)
