// A driver for the client scenarios of @modelcontextprotocol/conformance. The
// suite's mock server is the only backend of a tenant; what it judges is how the
// gateway asks it. The driver is the gateway's caller and does what a scenario
// wants done. It speaks the handshake era, where every header of 2026-07-28 towards
// the backend can only come from the gateway; and 2026-07-28 where it is asked for
// something, as clients of that revision alone are.
//
//   client.mjs URL       with MCP_CONFORMANCE_SCENARIO, as the suite sets it, and
//                        FONDACO_BIN, the gateway's program
//
// Exit 0 once all is done; what was asked is judged by the suite alone.

import '../peers/packages.mjs';
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const old = await import('@modelcontextprotocol/sdk/client/index.js');
const oldTransport = await import('@modelcontextprotocol/sdk/client/streamableHttp.js');
const modern = await import('@modelcontextprotocol/client');

const execute = promisify(execFile);
const { FONDACO_BIN: program, MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_CONTEXT: context } = process.env;
const mock = process.argv.at(-1);
const READY_MS = 20_000;

/** What a caller does in each scenario; the rest lists the tools and is done. */
const SCENARIOS = {
  'tools_call': (client) => client.callTool({ name: 'add_numbers', arguments: { a: 5, b: 3 } }),

  async 'http-standard-headers'(client) {
    for (const name of ['test_headers', 'my-hyphenated-tool']) await client.callTool({ name, arguments: {} });
    for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },

  async 'http-custom-headers'(client) {
    for (const call of JSON.parse(context).toolCalls) await client.callTool(call);
  },

  // Every tool that is offered is called, with whatever it requires.
  async 'http-invalid-tool-headers'(client, tools) {
    for (const { name, inputSchema } of tools) {
      const required = (inputSchema.required ?? []).map((key) => [key, 'value']);
      await client.callTool({ name, arguments: Object.fromEntries(required) });
    }
  },

  // The call in between comes while the first is asking.
  async 'sep-2322-client-request-state'(client) {
    const call = (name) => client.callTool({ name, arguments: {} });
    asked = () => call('test_mrtr_unrelated');
    await call('test_mrtr_echo_state');
    asked = undefined;
    for (const name of ['test_mrtr_no_state', 'test_mrtr_no_result_type']) await call(name);
  },

  async 'json-schema-2020-12-preservation'(client, tools) {
    const { inputSchema: schema } = tools.find(({ name }) => name === 'json_schema_2020_12_tool');
    await client.callTool({ name: 'json_schema_echo', arguments: { schema } });
  },
};

/** What is done before the next question is answered. */
let asked;

const ABOUT = { name: 'conformance-driver', version: '1.0.0' };
const ASKS_BACK = 'sep-2322-client-request-state';

/** Connects a caller of the handshake era, or one of 2026-07-28 that can be asked, and accepts. */
async function connect(endpoint, headers) {
  const url = new URL(endpoint);
  if (scenario !== ASKS_BACK) {
    const client = new old.Client(ABOUT);
    await client.connect(new oldTransport.StreamableHTTPClientTransport(url, { requestInit: { headers } }));
    return client;
  }
  const capabilities = { elicitation: { form: {} } };
  const client = new modern.Client(ABOUT, { capabilities, versionNegotiation: { mode: { pin: '2026-07-28' } } });
  client.setRequestHandler('elicitation/create', async () => {
    await asked?.();
    return { action: 'accept', content: { confirmed: true } };
  });
  await client.connect(new modern.StreamableHTTPClientTransport(url, { requestInit: { headers } }));
  return client;
}

/** A port where nothing listens. */
async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts the gateway with the mock server behind it; `endpoint` is the tenant's. */
async function startGateway(folder) {
  const listen = `127.0.0.1:${await freePort()}`;
  const backend = { kind: 'mcp', url: mock, prefix: '' };
  const tenant = { issuers: [{ shared: `http://${listen}/dev-issuer` }], backends: { mock: backend } };
  writeFileSync(join(folder, 'tenants.yaml'), JSON.stringify({ tenants: { conformance: tenant } }));
  const words = ['dev', '--listen', listen, '--admin', '127.0.0.1:0', '--data-dir', join(folder, 'data')];
  const gateway = spawn(program, [...words, '--tenants', join(folder, 'tenants.yaml')], { stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [gateway.stdout, gateway.stderr]) stream.on('data', (chunk) => (said += chunk));
  for (const deadline = Date.now() + READY_MS; !said.includes('"mcpServers"'); await sleep(50)) {
    assert.ok(Date.now() < deadline && gateway.exitCode === null, `the gateway is not ready:\n${said}`);
  }
  return { gateway, endpoint: `http://${listen}/t/conformance/mcp` };
}

async function token(folder, endpoint) {
  const words = ['token', '--data-dir', join(folder, 'data'), '--tenant', 'conformance', '--sub', 'driver', '--aud', endpoint];
  return (await execute(program, words)).stdout.trim();
}

assert.ok(program && scenario && mock, 'needs FONDACO_BIN, MCP_CONFORMANCE_SCENARIO and the URL of the mock server');
const folder = mkdtempSync(join(tmpdir(), 'fondaco-conformance-'));
const { gateway, endpoint } = await startGateway(folder);
try {
  const headers = { Authorization: `Bearer ${await token(folder, endpoint)}` };
  const client = await connect(endpoint, headers);
  const { tools } = await client.listTools();
  await SCENARIOS[scenario]?.(client, tools);
  await client.close();
} finally {
  gateway.kill();
  rmSync(folder, { recursive: true, force: true });
}
