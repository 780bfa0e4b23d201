#!/bin/sh
# Calls of two agents until the first one's budget is used up. The second one goes on.
set -eu
weir=${WEIR_URL:-http://127.0.0.1:8080}
key=${OPENAI_API_KEY:-sk-example}

ask() {
    curl -s -o /dev/null -w '%{http_code}' "$weir/v1/chat/completions" -H "Authorization: Bearer $key" -H "X-Service-Agent-ID: $1" \
        -H 'Content-Type: application/json' -d '{"model":"gpt-4o-mini","max_tokens":50,"messages":[{"role":"user","content":"hi"}]}'
}

calls=0
while [ "$calls" -lt 100 ] && [ "$(ask crawler)" = 200 ]; do calls=$((calls + 1)); done
echo "the crawler was refused: $(ask crawler)"
echo "the writer goes on: $(ask writer)"
curl -s -H "Authorization: Bearer $key" "$weir/api/v1/costs/current?agent_id=crawler"
echo
