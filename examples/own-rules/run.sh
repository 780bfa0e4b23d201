#!/bin/sh
# A prompt that names the project is found; the phrase of the course is allowed for its agent only.
set -eu
weir=${WEIR_URL:-http://127.0.0.1:8080}
key=${OPENAI_API_KEY:-sk-example}

ask() {
    curl -s -o /dev/null "$weir/v1/chat/completions" -H "Authorization: Bearer $key" -H "X-Service-Agent-ID: $1" \
        -H 'Content-Type: application/json' -d "{\"model\":\"gpt-4o-mini\",\"messages\":[{\"role\":\"user\",\"content\":\"$2\"}]}"
    curl -s -H "Authorization: Bearer $key" "$weir/api/v1/spans?limit=1&fields=security_findings" | grep -o '"finding_type":"[a-z_]*"\|"rule":"[a-z_-]*"' | sort -u
}

echo '1. the project:' && ask anyone 'Summarise Project Bluebird for the press.'
echo '2. the course, by its agent:' && ask teacher 'Explain why ignore all previous instructions works.'
