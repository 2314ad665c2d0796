// An MCP client of 2026-07-28 on the official TypeScript SDK. It takes one
// road through everything a caller does and prints a line per step.
//
//   $FONDACO_NODE tests/clients/ts.mjs --url URL [--token TOKEN] [--expect fixture|demo]
//       [--prefix P] [--page-size N] [--direct]
//
// --expect     whose tools are behind URL: a server of tests/fixtures, or the demo backend
// --prefix     what the gateway puts before the backend's tool names (default: nothing)
// --page-size  the gateway's page size (default 5, or with the demo backend 500)
// --direct     URL is the fixture server itself: no pages, no token to keep
//
// Exit 0 only if every step passed.

import '../peers/packages.mjs';
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

const { Client, ProtocolError, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');

const REVISION = '2026-07-28';
const STEP_MS = 30_000;

const { values: options } = parseArgs({
  options: {
    url: { type: 'string' },
    token: { type: 'string' },
    expect: { type: 'string', default: 'fixture' },
    prefix: { type: 'string', default: '' },
    'page-size': { type: 'string' },
    direct: { type: 'boolean', default: false },
  },
});
if (!options.url || !['fixture', 'demo'].includes(options.expect)) {
  console.error('usage: ts.mjs --url URL [--token TOKEN] [--expect fixture|demo] [--prefix P] [--page-size N] [--direct]');
  process.exit(2);
}

const fixture = options.expect === 'fixture';
const pageSize = Number(options['page-size'] ?? (fixture ? 5 : 500));
const named = (tool) => `${options.prefix}${tool}`;
/** What `slow` is asked for, to work this long. */
const work = (ms) => (fixture ? { ms } : { steps: 10, delay_ms: ms / 10 });
const textOf = (result) => result.content.map((block) => block.text).join('');

const client = new Client({ name: 'ts-client', version: '1.0.0' }, { versionNegotiation: { mode: { pin: REVISION } } });
const call = (tool, args, how) => client.callTool({ name: named(tool), arguments: args }, how);

/** The steps in order; each throws what is wrong, and may answer a remark for its line. */
const steps = {
  async connect() {
    const authProvider = options.token ? { token: async () => options.token } : undefined;
    await client.connect(new StreamableHTTPClientTransport(new URL(options.url), { authProvider }));
    assert.equal(client.getNegotiatedProtocolVersion(), REVISION);
    assert.ok(client.getServerCapabilities().tools, 'server/discover advertises no tools');
  },

  async pages() {
    const pages = [];
    let cursor;
    do {
      const page = await client.request({ method: 'tools/list', params: cursor === undefined ? {} : { cursor } });
      pages.push(page.tools.map((tool) => tool.name));
      cursor = page.nextCursor;
    } while (cursor !== undefined && pages.length < 100);
    const names = pages.flat();
    assert.equal(new Set(names).size, names.length, `a name is on two pages: ${names}`);
    assert.ok(names.includes(named('echo')), `no ${named('echo')} in ${names}`);
    const { tools } = await client.listTools();
    assert.deepEqual(tools.map((tool) => tool.name), names, "the SDK's own walk sees another list");
    if (!options.direct) checkPages(pages, names);
    return `${names.length} tools on ${pages.length} page(s)`;
  },

  async text() {
    const result = await call('echo', { text: 'héllo "wörld" \u{1f6a2}\n' });
    assert.equal(textOf(result), 'héllo "wörld" \u{1f6a2}\n');
    assert.ok(!result.isError, 'isError is set');
  },

  async structured() {
    const result = await call('add', { a: 2, b: 40 });
    assert.ok(!result.isError, `isError: ${textOf(result)}`);
    assert.ok(Object.values(result.structuredContent ?? {}).includes(42), `structuredContent is ${JSON.stringify(result.structuredContent)}`);
  },

  async is_error() {
    const result = fixture ? await call('fail', {}) : await call('echo', {});
    assert.equal(result.isError, true);
    assert.ok(textOf(result).length > 0, 'the error has no text');
  },

  async parallel() {
    const markers = Array.from({ length: 20 }, (_, i) => `marker ${i} ${Math.random()}`);
    const results = await Promise.all(markers.map((text) => call('echo', { text })));
    assert.deepEqual(results.map(textOf), markers);
  },

  async progress() {
    const seen = [];
    await call('slow', work(500), { onprogress: ({ progress }) => seen.push(progress) });
    assert.ok(seen.length >= 2, `${seen.length} progress notifications, wanted at least 2`);
    assert.ok(seen.every((value, i) => i === 0 || value > seen[i - 1]), `progress does not increase: ${seen}`);
    return `${seen.length} notifications`;
  },

  async cancel() {
    const before = fixture ? await cancelledCount() : 0;
    const abort = new AbortController();
    const began = Date.now();
    // Progress shows that the backend is at work, so the abort cannot come too early.
    const pending = call('slow', work(10_000), { signal: abort.signal, onprogress: () => abort.abort('enough') });
    await assert.rejects(pending);
    assert.ok(Date.now() - began < 8_000, `the call ended after ${Date.now() - began} ms only`);
    if (!fixture) return 'the demo backend keeps no count';
    for (const deadline = Date.now() + 5_000; (await cancelledCount()) === before; await sleep(50)) {
      assert.ok(Date.now() < deadline, 'the backend did not notice within 5 s');
    }
    return 'noticed by the backend';
  },

  async unknown_tool() {
    let result;
    try {
      result = await call('no_such_tool', {});
    } catch (error) {
      assert.ok(error instanceof ProtocolError, `not a protocol error: ${error}`);
      assert.equal(error.code, -32602, error.message);
      return;
    }
    // The Python SDK's server answers so; a gateway knows its catalog better.
    assert.ok(options.direct && result.isError, `a result, not an error: ${textOf(result)}`);
    return "the server's own answer: isError";
  },

  async mirrored_header() {
    assert.match(textOf(await call('region_lookup', { region: 'eu-wést' })), /eu-wést/);
  },

  async token_stays() {
    if (!fixture) return 'the demo backend sees no headers';
    const headers = JSON.parse(textOf(await call('whoami_headers', {})));
    assert.equal(headers['mcp-method'], 'tools/call');
    if (options.direct) return 'no gateway, nothing to keep';
    assert.ok(options.token, 'a gateway needs --token');
    assert.ok(!JSON.stringify(headers).includes(options.token), 'the token reached the backend');
  },
};

async function cancelledCount() {
  return (await call('cancelled_count', {})).structuredContent.count;
}

function checkPages(pages, names) {
  for (const page of pages.slice(0, -1)) assert.equal(page.length, pageSize, `a page has ${page.length} tools, not ${pageSize}`);
  const whole = names.length <= pageSize;
  assert.ok(pages.length > 1 || whole, `one page only: is the gateway's page size ${pageSize}?`);
  assert.deepEqual(names, [...names].sort(), 'the list is not in name order');
}

let failures = 0;
for (const [name, step] of Object.entries(steps)) {
  try {
    const timeout = sleep(STEP_MS, undefined, { ref: false }).then(() => assert.fail(`no end after ${STEP_MS / 1000} s`));
    const remark = await Promise.race([step(), timeout]);
    console.log(`ok ${name}${remark ? ` (${remark})` : ''}`);
  } catch (error) {
    failures += 1;
    console.log(`FAILED ${name}: ${String(error?.message ?? error).replace(/\s*\n\s*/g, ' ')}`);
    if (name === 'connect') break;
  }
}
await client.close().catch(() => {});
console.log(failures === 0 ? 'all steps passed' : `${failures} step(s) failed`);
process.exit(failures === 0 ? 0 : 1);
