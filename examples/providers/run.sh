#!/bin/sh
# One address: a call goes where its dialect or its model belongs.
set -eu
weir=${WEIR_URL:-http://127.0.0.1:8080}
key=${API_KEY:-sk-example}

# Asks a model on a path, then prints where the call went.
ask() {
    trace=$(curl -s -o /dev/null -D - "$weir$1" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' \
        -d "{\"model\":\"$2\",\"max_tokens\":50,\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" |
        sed -n 's/^x-service-trace-id: \(.*\)\r$/\1/ip')
    # A call is in the record some milliseconds after its answer.
    until record=$(curl -sf -H "Authorization: Bearer $key" "$weir/api/v1/traces/$trace"); do sleep 0.2; done
    echo "$2: $(echo "$record" | grep -o '"upstream":"[a-z-]*"' | head -1)"
}

ask /v1/chat/completions gpt-4o-mini
ask /v1/messages claude-sonnet-4-5
ask /v1/chat/completions qwen3-coder
