#!/usr/bin/env bash
# The whole of MCP through Fondaco, with curl alone, in both eras: discover, list,
# call, read, listen, confirm; then a session of the handshake era that does the same and ends.
#
#   cargo run --release -- dev --env-file .env.dev     # in another terminal
#   set -a && . ./.env.dev && examples/e2e.sh
#
# FONDACO_URL and FONDACO_TOKEN are what `dev` writes. Every step says what it does
# and shows the answer; the first that is not as it should be ends the script.
set -euo pipefail

: "${FONDACO_URL:?is what \`fondaco dev --env-file\` writes}" "${FONDACO_TOKEN:?is what it writes, too}"
modern=2026-07-28
handshake=2025-11-25
head=$(mktemp)
trap 'rm -f "$head"' EXIT

# post BODY [CURL OPTION…]: what the gateway answers.
post() {
    local body=$1
    shift
    curl --silent --show-error --max-time 20 "$FONDACO_URL" -H "Authorization: Bearer $FONDACO_TOKEN" \
        -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' "$@" -d "$body"
}

# ask METHOD NAME PARAMS [CURL OPTION…]: a request of 2026-07-28. PARAMS are members, each with a comma at
# its end; NAME is the tool's or prompt's name or the resource's URI, or empty.
ask() {
    local name=()
    if [[ -n $2 ]]; then name=(-H "Mcp-Name: $2"); fi
    post '{"jsonrpc":"2.0","id":1,"method":"'"$1"'","params":{'"$3"'"_meta":{
        "io.modelcontextprotocol/protocolVersion":"'$modern'",
        "io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}' \
        -H "MCP-Protocol-Version: $modern" -H "Mcp-Method: $1" "${name[@]}" "${@:4}"
}

# in_session METHOD PARAMS [CURL OPTION…]: a request of the handshake era, PARAMS being an object.
in_session() {
    local method=$1 params=$2
    shift 2
    post '{"jsonrpc":"2.0","id":1,"method":"'"$method"'","params":'"$params"'}' \
        -H "Mcp-Session-Id: $session" -H "MCP-Protocol-Version: $handshake" "$@"
}

# step WHAT EXPECTED ANSWER: shows the answer, which has to contain what is expected.
step() {
    printf '%s\n    %.160s\n' "$1" "$3"
    if [[ $3 != *"$2"* ]]; then
        printf 'e2e: %s: no %s in\n%s\n' "$1" "$2" "$3" >&2
        exit 1
    fi
}

echo "== $modern: every request stands for itself"
step 'discover the server' '"supportedVersions":["2026-07-28"]' "$(ask server/discover '' '')"
step 'list its tools' '"name":"add"' "$(ask tools/list '' '')"
step 'call one' '"structuredContent":{"result":5}' "$(ask tools/call add '"name":"add","arguments":{"a":2,"b":3},')"
step 'list its resources' 'demo://note/1' "$(ask resources/list '' '')"
step 'read one' '"contents":[' "$(ask resources/read demo://note/1 '"uri":"demo://note/1",')"
step 'get a prompt' 'Ada' "$(ask prompts/get greet '"name":"greet","arguments":{"name":"Ada"},')"
step 'complete an argument' '"values":' "$(ask completion/complete '' \
    '"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"name","value":"A"},')"
# A stream has no end: it is left after a second.
step 'listen to changes' 'notifications/subscriptions/acknowledged' "$(ask subscriptions/listen '' \
    '"notifications":{"toolsListChanged":true,"resourceSubscriptions":["demo://note/1"]},' --no-buffer --max-time 1 2> "$head" || true)"
asked=$(ask tools/call confirm '"name":"confirm","arguments":{"action":"ship it"},')
step 'call what asks back' '"resultType":"input_required"' "$asked"
state=$(sed -n 's/.*"requestState":"\([^"]*\)".*/\1/p' <<< "$asked")
step 'answer, with the state that came with the question' 'ship it' "$(ask tools/call confirm \
    '"name":"confirm","arguments":{"action":"ship it"},"requestState":"'"$state"'",
     "inputResponses":{"confirm":{"action":"accept","content":{"confirm":true}}},')"
step 'what is unknown is refused' '"code":-32602' "$(ask tools/call nothing '"name":"nothing","arguments":{},')"

echo "== $handshake: a session"
opened=$(post '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"'$handshake'",
    "capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}' -D "$head")
step 'open it' '"protocolVersion":"2025-11-25"' "$opened"
session=$(sed -n 's/^mcp-session-id: *//ip' "$head" | tr -d '\r')
post '{"jsonrpc":"2.0","method":"notifications/initialized"}' -H "Mcp-Session-Id: $session"
step 'list the tools' '"name":"add"' "$(in_session tools/list '{}')"
step 'call one' '"structuredContent":{"result":5}' "$(in_session tools/call '{"name":"add","arguments":{"a":2,"b":3}}')"
step 'read a resource' '"contents":[' "$(in_session resources/read '{"uri":"demo://note/1"}')"
step 'subscribe to it' '"result":{}' "$(in_session resources/subscribe '{"uri":"demo://note/1"}')"
post '' -X DELETE -H "Mcp-Session-Id: $session" > "$head"
step 'it is over' '404' "$(in_session ping '{}' -o "$head" -w '%{http_code}')"

echo "all of it went well"
