"""Sends spans by gRPC and prints a line for what became of them. `stream` sends one stream without an end, a span a batch; `quiet`
one batch of a stream whose end never comes; `calls` calls of one batch of ten; `held` one call whose text is HELD.

Run by the Rust suite, which stops or kills the gateway meanwhile, or takes away the credential.
"""

import json
import os
import sys
import threading
import time

import grpc
from grpc_made import pb, rpc, said, span

FIRST = int(os.environ["FIRST_SPAN"])
METADATA = [("authorization", f"Bearer {os.environ['KEY']}")] if "KEY" in os.environ else []
stub = rpc.TraceServiceStub(grpc.insecure_channel(os.environ["GRPC_ADDR"]))


def say(**said):
    print(json.dumps(said), flush=True)


def told(error):
    say(code=error.code().name, because=error.details())


def stream_of(batches, sent):
    try:
        answer = stub.ExportStream(batches, metadata=METADATA)
        say(
            accepted=answer.accepted_spans,
            batches=answer.batches,
            complete=answer.complete,
            because=answer.ended_because,
            sent=len(sent),
        )
    except grpc.RpcError as error:
        told(error)


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

    stream_of(batches(), sent)


def quiet():
    sent = []

    def batches():
        sent.append(FIRST)
        yield pb.ExportRequest(spans=[span(trace=FIRST, number=FIRST)])
        say(under_way=1)
        # gRPC asks for the next one as soon as this one is on its way.
        threading.Event().wait()

    stream_of(batches(), sent)


def calls():
    number = FIRST
    while True:
        batch = [span(trace=FIRST, number=number + at) for at in range(10)]
        try:
            answer = stub.Export(pb.ExportRequest(spans=batch), metadata=METADATA, timeout=20)
        except grpc.RpcError as error:
            return told(error)
        say(accepted=answer.accepted_spans, first=number)
        number += 10


def held():
    batch = [span(trace=FIRST, number=FIRST, input=[said("user", os.environ["HELD"])])]
    call = stub.Export.future(pb.ExportRequest(spans=batch), metadata=METADATA, timeout=60)
    try:
        say(accepted=call.result().accepted_spans)
    except grpc.RpcError as error:
        told(error)


{"stream": stream, "quiet": quiet, "calls": calls, "held": held}[sys.argv[1]]()
