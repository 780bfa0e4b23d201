"""The official Anthropic library through Weir, with a tool. Needs `pip install anthropic`."""

import json
import os
import time
import urllib.request

import anthropic

WEIR = os.environ.get("WEIR_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("ANTHROPIC_API_KEY", "sk-ant-example")

client = anthropic.Anthropic(base_url=WEIR, api_key=KEY)
weather = {"name": "weather", "description": "The weather of a city.", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
answer = client.messages.create(
    model="claude-sonnet-4-5",
    max_tokens=200,
    tools=[weather],
    messages=[{"role": "user", "content": "What should I wear in Graz today?"}],
)
for block in answer.content:
    print(block.type, getattr(block, "text", None) or getattr(block, "input", ""))

request = urllib.request.Request(f"{WEIR}/api/v1/spans?limit=1&fields=model,prompt_tokens,completion_tokens,messages", headers={"x-api-key": KEY})
spans = []
while not spans:  # A call is in the record some milliseconds after its answer.
    time.sleep(0.1)
    spans = json.load(urllib.request.urlopen(request))["data"]
print("recorded:", json.dumps(spans[0])[:200])
