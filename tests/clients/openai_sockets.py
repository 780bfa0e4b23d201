"""The official OpenAI client on its sockets (Responses and Realtime), asked directly and through Weir.

`serve` prints its port and plays the provider until its standard input ends; `ask PROVIDER WEIR` asks both the same and fails loudly
where anything differs.
"""

import json
import sys
import threading

from openai import OpenAI
from websockets.sync.server import serve


def response_events(number, text):
    response = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "gpt-5", "status": "in_progress",
                "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    content = {"type": "output_text", "text": text, "annotations": []}
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [content]}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    usage = {"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 400}, "output_tokens": 200,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1200}
    yield {"type": "response.created", "response": response}
    yield {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress", "content": []}}
    for word in text.split(" "):
        yield {"type": "response.output_text.delta", "delta": word + " ", "logprobs": [], **place}
    yield {"type": "response.output_text.done", "text": text, "logprobs": [], **place}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    yield {"type": "response.completed", "response": {**response, "status": "completed", "output": [item], "usage": usage}}


def realtime_events(number, text):
    response = {"id": f"resp_{number}", "object": "realtime.response", "status": "in_progress", "output": []}
    place = {"response_id": response["id"], "item_id": f"item_{number}", "output_index": 0, "content_index": 0}
    item = {"type": "message", "id": f"item_{number}", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": text}]}
    usage = {"total_tokens": 150, "input_tokens": 100, "output_tokens": 50, "input_token_details": {"text_tokens": 100},
             "output_token_details": {"text_tokens": 50}}
    yield {"type": "response.created", "response": response}
    for word in text.split(" "):
        yield {"type": "response.output_text.delta", "delta": word + " ", **place}
    yield {"type": "response.output_text.done", "text": text, **place}
    yield {"type": "response.done", "response": {**response, "status": "completed", "output": [item], "usage": usage}}


def play(connection):
    is_realtime = "/realtime" in connection.request.path
    count = 0

    def send(event):
        nonlocal count
        count += 1
        connection.send(json.dumps({**event, "event_id": f"event_{count}", "sequence_number": count}))

    if is_realtime:
        send({"type": "session.created", "session": {"type": "realtime", "object": "realtime.session", "id": "sess_1"}})
    asked = 0
    for message in connection:
        event = json.loads(message)
        if event["type"] == "session.update":
            send({"type": "session.updated", "session": {**event["session"], "object": "realtime.session", "id": "sess_1"}})
        elif event["type"] == "response.create":
            asked += 1
            text = f"Größe {asked} of the foxes 🦊 is small, " + "and so on " * 50
            for told in (realtime_events if is_realtime else response_events)(asked, text):
                send(told)


def run_server():
    server = serve(play, "127.0.0.1", 0, max_size=None)
    print(server.socket.getsockname()[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def until(connection, last):
    seen = []
    for event in connection:
        seen.append(event.to_dict())
        if event.type == last:
            return seen
    raise AssertionError(f"{last} never came: {seen[-1:]}")


def ask(url):
    client = OpenAI(api_key="sk-test", base_url=f"{url}/v1")
    seen = []
    with client.responses.connect() as connection:
        for question in ["what are foxes", "how large are they"]:
            connection.send({"type": "response.create", "model": "gpt-5", "input": question})
            seen += until(connection, "response.completed")
    with client.realtime.connect(model="gpt-realtime") as connection:
        connection.session.update(session={"type": "realtime", "instructions": "be kind to foxes"})
        seen += until(connection, "session.updated")
        content = [{"type": "input_text", "text": "say hello"}]
        connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        connection.response.create()
        seen += until(connection, "response.done")
    return seen


if sys.argv[1] == "serve":
    run_server()
else:
    direct, through = ask(sys.argv[2]), ask(sys.argv[3])
    assert direct == through, (direct, through)
    print(f"{len(direct)} events, the same")
