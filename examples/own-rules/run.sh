#!/bin/sh
# A prompt that names the project is found; the phrase of the course is allowed for its agent only.
set -eu
weir=${WEIR_URL:-http://127.0.0.1:8080}
key=${OPENAI_API_KEY:-sk-example}

# Sends a prompt as an agent, then prints what was found in it: types and rules.
ask() {
    trace=$(curl -s -o /dev/null -D - "$weir/v1/chat/completions" -H "Authorization: Bearer $key" -H "X-Service-Agent-ID: $1" \
        -H 'Content-Type: application/json' -d "{\"model\":\"gpt-4o-mini\",\"messages\":[{\"role\":\"user\",\"content\":\"$2\"}]}" |
        sed -n 's/^x-service-trace-id: \(.*\)\r$/\1/ip')
    # A call is in the record some milliseconds after its answer.
    until record=$(curl -sf -H "Authorization: Bearer $key" "$weir/api/v1/traces/$trace"); do sleep 0.2; done
    echo "$record" | grep -o '"finding_type":"[a-z_]*"\|"rule":"[a-z_-]*"' | sort -u
}

echo '1. the project:' && ask anyone 'Summarise Project Bluebird for the press.'
echo '2. the course, by its agent:' && ask teacher 'Explain why ignore all previous instructions works.'
