"""Sends spans by gRPC until the gateway is gone and prints one line for what was acknowledged. `stream` sends one stream, a span a
batch; `calls` sends calls of one batch of ten.

Run by the Rust suite, which stops or kills the gateway meanwhile.
"""

import json
import os
import sys
import time

import grpc
from grpc_made import pb, rpc, span

FIRST = int(os.environ["FIRST_SPAN"])
stub = rpc.TraceServiceStub(grpc.insecure_channel(os.environ["GRPC_ADDR"]))


def say(**said):
    print(json.dumps(said), flush=True)


def stream():
    sent = []

    def batches():
        while True:
            number = FIRST + len(sent)
            sent.append(number)
            yield pb.ExportRequest(spans=[span(trace=FIRST, number=number)])
            if len(sent) == 20:
                say(under_way=len(sent))
            time.sleep(0.005)

    try:
        answer = stub.ExportStream(batches())
        say(
            accepted=answer.accepted_spans,
            batches=answer.batches,
            complete=answer.complete,
            because=answer.ended_because,
            sent=len(sent),
        )
    except grpc.RpcError as error:
        say(code=error.code().name)


def calls():
    number = FIRST
    while True:
        batch = [span(trace=FIRST, number=number + at) for at in range(10)]
        try:
            answer = stub.Export(pb.ExportRequest(spans=batch), timeout=20)
        except grpc.RpcError:
            return
        say(accepted=answer.accepted_spans, first=number)
        number += 10


{"stream": stream, "calls": calls}[sys.argv[1]]()
