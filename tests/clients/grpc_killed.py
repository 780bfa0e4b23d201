"""Reports spans by gRPC to gateways that are killed: a line of orders on standard input, lines of what became of it on standard output.
`calls` sends calls of a batch each, `streams` streams of three batches. The first batch has 300 spans, the next one ten, and so on.

    {"do": "send", "addr": …, "first": …}     one call or stream after the other until one is not answered; a line for each
    {"do": "resend", "addr": …, "first": …}   the one that begins with this span, once

Run by the Rust suite.
"""

import json
import sys

import grpc
from grpc_made import pb, rpc, said, span

HOW = sys.argv[1]


def batches(first):
    """The batches of a call or stream that begins with this span; each is a trace of its own, and every span a call of 1,100 tokens."""
    out, sizes = [], [300 if first // 1_000 % 2 == 0 else 10] if HOW == "calls" else [10, 300, 10]
    for size in sizes:
        usage = pb.Usage(prompt_tokens=1000, completion_tokens=100, cached_tokens=400, reasoning_tokens=30)
        said_there = dict(input=[said("user", "hello")], output=[said("assistant", "hi")], usage=usage)
        out.append(pb.ExportRequest(spans=[span(trace=first, number=first + at, **said_there) for at in range(size)]))
        first += size
    return out


def report(stub, first):
    whole = batches(first)
    answer = stub.Export(whole[0], timeout=20) if HOW == "calls" else stub.ExportStream(iter(whole), timeout=20)
    if HOW == "streams" and not answer.complete:
        return None, answer.ended_because
    kept = answer.accepted_spans + answer.duplicate_spans
    assert kept == sum(len(batch.spans) for batch in whole), answer
    return dict(first=first, spans=kept, duplicates=answer.duplicate_spans), None


for line in sys.stdin:
    order = json.loads(line)
    with grpc.insecure_channel(order["addr"]) as channel:
        stub, first, again = rpc.TraceServiceStub(channel), order["first"], order["do"] == "send"
        while True:
            try:
                answer, why = report(stub, first)
            except grpc.RpcError as error:
                answer, why = None, f"{error.code().name}: {error.details()}"
            print(json.dumps(answer or dict(unanswered=first, because=why)), flush=True)
            if not (answer and again):
                break
            first += 1_000
