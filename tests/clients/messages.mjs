// The nine messages that an introduction to MCP shows (lists, a read, a get, a
// call, completions), as a session of 2025-11-25 sends them and as 2026-07-28
// does. Every result of the session has to fit the official SDK's schemas and
// to have nothing of the later revision; both have to say the same.
//
//   $FONDACO_NODE tests/clients/messages.mjs --url URL --token TOKEN
//
// URL is an endpoint with the demo backend under the prefix "". Exit 0 only if
// every message passed.

import '../peers/packages.mjs';
import assert from 'node:assert/strict';
import { parseArgs } from 'node:util';

const types = await import('@modelcontextprotocol/sdk/types.js');

const HANDSHAKE = '2025-11-25';
const MODERN = '2026-07-28';
const LATER = ['resultType', 'ttlMs', 'cacheScope'];

const { values: options } = parseArgs({ options: { url: { type: 'string' }, token: { type: 'string' } } });

/** Method, params, the schema of its result, and what of the result both eras have to say alike. */
const MESSAGES = [
  ['resources/list', {}, types.ListResourcesResultSchema, (result) => result.resources],
  ['resources/templates/list', {}, types.ListResourceTemplatesResultSchema, (result) => result.resourceTemplates],
  ['resources/read', { uri: 'demo://note/1' }, types.ReadResourceResultSchema, (result) => result.contents],
  ['prompts/list', {}, types.ListPromptsResultSchema, (result) => result.prompts],
  ['prompts/get', { name: 'greet', arguments: { name: 'Ada' } }, types.GetPromptResultSchema, (result) => result.messages],
  [
    'completion/complete',
    { ref: { type: 'ref/prompt', name: 'greet' }, argument: { name: 'name', value: 'A' } },
    types.CompleteResultSchema,
    (result) => result.completion,
  ],
  [
    'completion/complete',
    { ref: { type: 'ref/resource', uri: 'demo://note/{id}' }, argument: { name: 'id', value: '1' } },
    types.CompleteResultSchema,
    (result) => result.completion,
  ],
  ['tools/list', {}, types.ListToolsResultSchema, (result) => result.tools],
  ['tools/call', { name: 'add', arguments: { a: 2, b: 3 } }, types.CallToolResultSchema, (result) => result.content],
];

async function post(message, headers) {
  const response = await fetch(options.url, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${options.token}`,
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: JSON.stringify({ jsonrpc: '2.0', ...message }),
  });
  const text = await response.text();
  return { status: response.status, session: response.headers.get('mcp-session-id'), body: text && JSON.parse(text) };
}

async function open() {
  const params = { protocolVersion: HANDSHAKE, capabilities: {}, clientInfo: { name: 'messages', version: '1.0.0' } };
  const opened = await post({ id: 0, method: 'initialize', params });
  assert.equal(opened.status, 200, JSON.stringify(opened));
  types.InitializeResultSchema.parse(opened.body.result);
  assert.equal(opened.body.result.protocolVersion, HANDSHAKE);
  const headers = { 'mcp-session-id': opened.session, 'mcp-protocol-version': HANDSHAKE };
  assert.equal((await post({ method: 'notifications/initialized' }, headers)).status, 202);
  return (id, method, params) => post({ id, method, params }, headers);
}

const modern = (id, method, params) => {
  const name = params.name ?? params.uri;
  return post(
    {
      id,
      method,
      params: {
        ...params,
        _meta: {
          'io.modelcontextprotocol/protocolVersion': MODERN,
          'io.modelcontextprotocol/clientCapabilities': {},
        },
      },
    },
    { 'mcp-protocol-version': MODERN, 'mcp-method': method, ...(name && { 'mcp-name': name }) },
  );
};

const inSession = await open();
let failures = 0;
for (const [place, [method, params, schema, said]] of MESSAGES.entries()) {
  try {
    const [then, now] = [await inSession(place + 1, method, params), await modern(place + 1, method, params)];
    for (const { status, body } of [then, now]) {
      assert.equal(status, 200, JSON.stringify(body));
      assert.ok(body.result, JSON.stringify(body));
      assert.equal(body.id, place + 1);
    }
    schema.parse(then.body.result);
    for (const member of LATER) assert.ok(!(member in then.body.result), `${member} in a result of ${HANDSHAKE}`);
    assert.equal(now.body.result.resultType, 'complete');
    assert.ok(said(then.body.result), `nothing in ${JSON.stringify(then.body.result)}`);
    assert.deepEqual(said(then.body.result), said(now.body.result));
    console.log(`ok ${method}`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED ${method}: ${String(error?.message ?? error).replace(/\s*\n\s*/g, ' ')}`);
  }
}
console.log(failures === 0 ? `all ${MESSAGES.length} messages passed` : `${failures} message(s) failed`);
process.exit(failures === 0 ? 0 : 1);
