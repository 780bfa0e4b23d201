"""The official OpenAI library through Weir: a call, a stream, and the traces they left. Needs `pip install openai`."""

import json
import os
import time
import urllib.request

import openai

WEIR = os.environ.get("WEIR_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("OPENAI_API_KEY", "sk-example")

# The one line that changes in an application.
client = openai.OpenAI(base_url=f"{WEIR}/v1", api_key=KEY)

question = [{"role": "user", "content": "Why is the sky blue? One sentence."}]
answer = client.chat.completions.with_raw_response.create(model="gpt-4o-mini", messages=question)
print("trace:", answer.headers["x-service-trace-id"])
print("answer:", answer.parse().choices[0].message.content)

words = 0
for piece in client.chat.completions.create(model="gpt-4o-mini", messages=question, stream=True):
    words += len(piece.choices)
print("pieces of the stream:", words)

# The same key reads the record: it names the tenant.
request = urllib.request.Request(f"{WEIR}/api/v1/spans?limit=2", headers={"Authorization": f"Bearer {KEY}"})
spans = []
while len(spans) < 2:  # A call is in the record some milliseconds after its answer.
    time.sleep(0.1)
    spans = json.load(urllib.request.urlopen(request))["data"]
for span in spans:
    print("recorded:", span["model"], span["total_tokens"], "tokens, score", span["security_score"])
