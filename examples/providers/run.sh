#!/bin/sh
# One address: a call goes where its dialect or its model belongs.
set -eu
weir=${WEIR_URL:-http://127.0.0.1:8080}
key=${API_KEY:-sk-example}

ask() {
    curl -s -o /dev/null "$weir$1" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \
        -d "{\"model\":\"$2\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
}

ask /v1/chat/completions gpt-4o-mini
ask /v1/messages claude-sonnet-4-5
ask /v1/chat/completions qwen3-coder
curl -s -H "Authorization: Bearer $key" "$weir/api/v1/spans?limit=3&fields=model,tags"
echo
