// The road that every Node client of this folder takes through all that a caller
// does, a line per step: `ok STEP (REMARK)`, `skip STEP: REASON` where the client
// has no way to take it, or `FAILED STEP: ERROR`. road.py is the same road in Python.
//
//   SCRIPT --url URL [--token TOKEN] [--mode MODE] [--expect fixture|demo]
//       [--prefix P --backend modern|legacy]… [--page-size N] [--direct]
//
// --mode       pin (2026-07-28, the default), auto, or legacy (the handshake), of
//              those that the client has; auto may end in either era
// --expect     whose tools are behind URL: a server of tests/fixtures, or the demo backend
// --prefix     what the gateway puts before the backend's tool names (default: nothing);
//              given twice, the road leads to both backends
// --backend    how the gateway speaks to that backend (default: modern)
// --page-size  the gateway's page size (default 5, or with the demo backend 500)
// --direct     URL is the fixture server itself: no pages, no token to keep
//
// Exit 0 only if no step failed.

import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';

export const MODERN = '2026-07-28';
export const HANDSHAKE = '2025-11-25';
const REVISIONS = { pin: [MODERN], auto: [MODERN, HANDSHAKE], legacy: [HANDSHAKE] };
/** What no result of a handshake revision has. */
const MODERN_MEMBERS = ['resultType', 'ttlMs', 'cacheScope'];
const STEP_MS = 30_000;
/** The name that a client gives who is asked for one. */
export const NAME = 'Ada';

/** What is there beside tools, and what is seen of it. */
const DOCUMENTS = {
  fixture: {
    resource: { uri: 'test://static-text', says: /static text resource/ },
    template: { uri: 'test://template/{id}/data', made: 'test://template/n7/data', says: /n7/ },
    prompt: { name: 'test_prompt_with_arguments', arguments: { arg1: 'hé', arg2: 'b' }, says: /hé.*b/ },
    completion: { name: 'arg1', value: 'te', says: 'testing' },
    watched: 'test://watched-resource',
  },
  demo: {
    resource: { uri: 'demo://note/1', says: /./ },
    template: { uri: 'demo://note/{id}', made: 'demo://note/2', says: /./ },
    prompt: { name: 'greet', arguments: { name: 'Hédi' }, says: /Hédi/ },
    completion: { name: 'name', value: 'A', says: 'Ada' },
  },
};

/** Reads the command line of a client that has these modes. */
export function readOptions(modes) {
  const { values } = parseArgs({
    options: {
      url: { type: 'string' },
      token: { type: 'string' },
      mode: { type: 'string', default: modes[0] },
      expect: { type: 'string', default: 'fixture' },
      prefix: { type: 'string', multiple: true, default: [''] },
      backend: { type: 'string', multiple: true, default: [] },
      'page-size': { type: 'string' },
      direct: { type: 'boolean', default: false },
    },
  });
  const known = values.backend.every((era) => ['modern', 'legacy'].includes(era));
  if (!values.url || !modes.includes(values.mode) || !['fixture', 'demo'].includes(values.expect) || !known) {
    console.error(`needs --url URL; modes: ${modes.join(', ')}; see the head of road.mjs`);
    process.exit(2);
  }
  const fixture = values.expect === 'fixture';
  return { ...values, fixture, pageSize: Number(values['page-size'] ?? (fixture ? 5 : 500)) };
}

/** Why a step is not taken. */
class Skipped extends Error {}

/** Ends a step that the client has no way to take. */
export function skip(reason) {
  throw new Skipped(reason);
}

const textOf = (result) => result.content.map((block) => block.text).join('');

/**
 * One client on its road. `client` is what an SDK is behind:
 *   connect()                             negotiates; answers {revision, tools}: whether tools are advertised
 *   page(cursor)                          one page of tools/list
 *   listAll()                             the client's own walk over all pages, if it has one
 *   call(name, args, {signal, onprogress})
 *   request(method, params)               any other request
 *   listen(uri, heard)                    from now on heard('tools') and heard(URI) are called as the
 *                                         server tells of changed tools and of this resource; answers
 *                                         how to stop. A client that can be asked answers NAME.
 *   codeOf(error)                         the code of a protocol error, else undefined
 *   sessionId()                           of the connection; absent where the client does not show it
 *   close()                               ends the session and the connection
 *   steps                                 what it does in place of a step of that name, if anything
 */
class Road {
  constructor(client, options) {
    this.client = client;
    this.options = options;
    this.backend = { prefix: '', era: 'modern' };
    this.revision = undefined;
  }

  named(tool) {
    return `${this.backend.prefix}${tool}`;
  }

  /** What a backend's URI becomes: its prefix is its name and `_`. */
  uri(own) {
    return this.backend.prefix === '' ? own : `${this.backend.prefix.replace(/_$/, '')}+${own}`;
  }

  documents() {
    return DOCUMENTS[this.options.expect];
  }

  /** Every entry of a list, page by page. */
  async all(method, member) {
    const entries = [];
    let cursor;
    do {
      const page = await this.client.request(method, cursor === undefined ? {} : { cursor });
      this.checkMembers(page);
      entries.push(...page[member]);
      cursor = page.nextCursor;
    } while (cursor !== undefined && entries.length < 1000);
    return entries;
  }

  async contents(uri) {
    const result = await this.client.request('resources/read', { uri });
    this.checkMembers(result);
    assert.deepEqual(result.contents.map((content) => content.uri), [uri]);
    return result.contents[0].text;
  }

  async call(tool, args, how = {}) {
    const result = await this.client.call(this.named(tool), args, how);
    this.checkMembers(result);
    return result;
  }

  /** A client whose SDK strips what it does not know passes in vain; the others are enough. */
  checkMembers(result) {
    if (this.revision !== HANDSHAKE) return;
    for (const member of MODERN_MEMBERS) assert.ok(!(member in result), `a handshake result has ${member}`);
  }

  /** What `slow` is asked for, to work this long. */
  work(ms) {
    return this.options.fixture ? { ms } : { steps: 10, delay_ms: ms / 10 };
  }

  async connect() {
    const { revision, tools } = await this.client.connect();
    assert.ok(REVISIONS[this.options.mode].includes(revision), `negotiated ${revision}`);
    assert.ok(tools, 'no tools are advertised');
    this.revision = revision;
    return revision;
  }

  session() {
    const id = this.client.sessionId?.();
    if (this.revision === MODERN) {
      assert.equal(id, undefined, `a session in ${MODERN}`);
      return `none in ${MODERN}`;
    }
    if (!this.client.sessionId) skip('the client does not show its session');
    if (this.options.direct && id === undefined) return 'the server keeps none';
    assert.match(id ?? '', /^[\x21-\x7e]+$/, `the session id is ${id}`);
  }

  async pages() {
    const pages = [];
    let cursor;
    do {
      const page = await this.client.page(cursor);
      this.checkMembers(page);
      pages.push(page.tools.map((tool) => tool.name));
      cursor = page.nextCursor;
    } while (cursor !== undefined && pages.length < 100);
    const names = pages.flat();
    assert.equal(new Set(names).size, names.length, `a name is on two pages: ${names}`);
    for (const prefix of this.options.prefix) assert.ok(names.includes(`${prefix}echo`), `no ${prefix}echo in ${names}`);
    const all = await this.client.listAll?.();
    if (all) assert.deepEqual(all.tools.map((tool) => tool.name), names, "the SDK's own walk sees another list");
    if (!this.options.direct) checkPages(pages, names, this.options.pageSize);
    return `${names.length} tools on ${pages.length} page(s)`;
  }

  async text() {
    const result = await this.call('echo', { text: 'héllo "wörld" \u{1f6a2}\n' });
    assert.equal(textOf(result), 'héllo "wörld" \u{1f6a2}\n');
    assert.ok(!result.isError, 'isError is set');
  }

  async structured() {
    const result = await this.call('add', { a: 2, b: 40 });
    assert.ok(!result.isError, `isError: ${textOf(result)}`);
    const content = result.structuredContent;
    assert.ok(Object.values(content ?? {}).includes(42), `structuredContent is ${JSON.stringify(content)}`);
  }

  async is_error() {
    const result = this.options.fixture ? await this.call('fail', {}) : await this.call('echo', {});
    assert.equal(result.isError, true);
    assert.ok(textOf(result).length > 0, 'the error has no text');
  }

  async parallel() {
    const markers = Array.from({ length: 20 }, (_, i) => `marker ${i} ${Math.random()}`);
    const results = await Promise.all(markers.map((text) => this.call('echo', { text })));
    assert.deepEqual(results.map(textOf), markers);
  }

  async progress() {
    const seen = [];
    await this.call('slow', this.work(500), { onprogress: ({ progress }) => seen.push(progress) });
    assert.ok(seen.length >= 2, `${seen.length} progress notifications, wanted at least 2`);
    assert.ok(seen.every((value, i) => i === 0 || value > seen[i - 1]), `progress does not increase: ${seen}`);
    return `${seen.length} notifications`;
  }

  async cancel() {
    const before = this.options.fixture ? await this.cancelledCount() : 0;
    const abort = new AbortController();
    const began = Date.now();
    // Progress shows that the backend is at work, so the abort cannot come too early.
    const how = { signal: abort.signal, onprogress: () => abort.abort('enough') };
    await assert.rejects(this.call('slow', this.work(10_000), how));
    assert.ok(Date.now() - began < 8_000, `the call ended after ${Date.now() - began} ms only`);
    if (!this.options.fixture) return 'the demo backend keeps no count';
    for (const deadline = Date.now() + 5_000; (await this.cancelledCount()) === before; await sleep(50)) {
      assert.ok(Date.now() < deadline, 'the backend did not notice within 5 s');
    }
    return 'noticed by the backend';
  }

  async cancelledCount() {
    return (await this.call('cancelled_count', {})).structuredContent.count;
  }

  async unknown_tool() {
    let result;
    try {
      result = await this.call('no_such_tool', {});
    } catch (error) {
      const code = this.client.codeOf(error);
      assert.notEqual(code, undefined, `not a protocol error: ${error}`);
      assert.equal(code, -32602, error.message);
      return;
    }
    // The Python SDK's server answers so; a gateway knows its catalog better.
    assert.ok(this.options.direct && result.isError, `a result, not an error: ${textOf(result)}`);
    return "the server's own answer: isError";
  }

  async read() {
    const { resource } = this.documents();
    const listed = (await this.all('resources/list', 'resources')).map(({ uri }) => uri);
    assert.ok(listed.includes(this.uri(resource.uri)), `no ${this.uri(resource.uri)} in ${listed}`);
    assert.match(await this.contents(this.uri(resource.uri)), resource.says);
    return `${listed.length} resources`;
  }

  async templates() {
    const { template } = this.documents();
    const listed = (await this.all('resources/templates/list', 'resourceTemplates')).map(({ uriTemplate }) => uriTemplate);
    assert.ok(listed.includes(this.uri(template.uri)), `no ${this.uri(template.uri)} in ${listed}`);
    assert.match(await this.contents(this.uri(template.made)), template.says);
  }

  async prompts() {
    const { prompt } = this.documents();
    const name = this.named(prompt.name);
    const listed = (await this.all('prompts/list', 'prompts')).map((entry) => entry.name);
    assert.ok(listed.includes(name), `no ${name} in ${listed}`);
    const result = await this.client.request('prompts/get', { name, arguments: prompt.arguments });
    this.checkMembers(result);
    assert.match(result.messages.map(({ content }) => content.text).join(''), prompt.says);
    return `${listed.length} prompts`;
  }

  async completion() {
    const { prompt, completion } = this.documents();
    const { says, ...argument } = completion;
    const ref = { type: 'ref/prompt', name: this.named(prompt.name) };
    const { completion: found } = await this.client.request('completion/complete', { ref, argument });
    assert.ok(found.values.includes(says), `no ${says} in ${found.values}`);
  }

  async elicitation() {
    if (!this.options.fixture) return 'the demo backend does not ask for names';
    const result = await this.call('ask_name', {});
    assert.equal(textOf(result), `Hello, ${NAME}!`);
    return this.revision === MODERN ? 'by a second round' : 'by a request in the session';
  }

  async listen() {
    if (!this.options.fixture) return 'the demo backend does not change';
    const uri = this.uri(this.documents().watched);
    const heard = new Set();
    const stop = await this.client.listen(uri, (what) => heard.add(what));
    // Said again until it is heard: a session's stream opens beside its requests.
    for (const deadline = Date.now() + 20_000; heard.size < 2; await sleep(500)) {
      assert.ok(Date.now() < deadline, `heard only of ${[...heard]} within 20 s`);
      for (const kind of ['tool', 'resource']) await this.call(`test_trigger_${kind}_change`, {});
    }
    assert.deepEqual([...heard].sort(), [uri, 'tools'].sort());
    await stop();
    return this.revision === MODERN ? 'by subscriptions/listen' : 'by the GET stream and resources/subscribe';
  }

  async mirrored_header() {
    assert.match(textOf(await this.call('region_lookup', { region: 'eu-wést' })), /eu-wést/);
  }

  async token_stays() {
    const { options } = this;
    if (!options.fixture) return 'the demo backend sees no headers';
    const headers = JSON.parse(textOf(await this.call('whoami_headers', {})));
    const modern = options.direct ? this.revision === MODERN : this.backend.era === 'modern';
    assert.equal(headers['mcp-method'], modern ? 'tools/call' : undefined, 'the header Mcp-Method');
    assert.equal(headers['mcp-protocol-version'], modern ? MODERN : HANDSHAKE, 'the header MCP-Protocol-Version');
    if (options.direct) return 'no gateway, nothing to keep';
    assert.equal('mcp-session-id' in headers, !modern, 'the header Mcp-Session-Id');
    assert.ok(options.token, 'a gateway needs --token');
    assert.ok(!JSON.stringify(headers).includes(options.token), 'the token reached the backend');
  }

  async close() {
    const id = this.client.sessionId?.();
    await this.client.close?.();
    if (this.revision !== MODERN && !this.client.sessionId) skip('the client does not show its session');
    if (id === undefined) return 'no session to end';
    const reply = await fetch(this.options.url, {
      method: 'POST',
      headers: {
        ...(this.options.token && { authorization: `Bearer ${this.options.token}` }),
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        'mcp-protocol-version': this.revision,
        'mcp-session-id': id,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }),
    });
    assert.equal(reply.status, 404, `the ended session answers ${reply.status}`);
    return 'the ended session answers 404';
  }
}

function checkPages(pages, names, pageSize) {
  for (const page of pages.slice(0, -1)) assert.equal(page.length, pageSize, `a page has ${page.length} tools, not ${pageSize}`);
  assert.ok(pages.length > 1 || names.length <= pageSize, `one page only: is the gateway's page size ${pageSize}?`);
  assert.deepEqual(names, [...names].sort(), 'the list is not in name order');
}

/** What `step` ends with, or an error once it takes longer. */
async function within(ms, step) {
  const over = new AbortController();
  const late = sleep(ms, 'late', { signal: over.signal }).catch(() => undefined);
  const first = await Promise.race([step, late]).finally(() => over.abort());
  assert.notEqual(first, 'late', `no end after ${ms / 1000} s`);
  return first;
}

/** The steps in order; those of `EACH` once for every backend. */
const FIRST = ['connect', 'session', 'pages'];
const CALLS = ['text', 'structured', 'is_error', 'parallel', 'progress', 'cancel', 'mirrored_header', 'token_stays'];
const EACH = [...CALLS, 'read', 'templates', 'prompts', 'completion', 'elicitation', 'listen'];
const LAST = ['unknown_tool', 'close'];

/** Takes the road and ends the process. */
export async function take(client, options) {
  const road = new Road(client, options);
  let failures = 0;

  const step = async (name) => {
    const label = options.prefix.length > 1 && EACH.includes(name) ? `${name} of ${road.backend.prefix}` : name;
    try {
      const remark = await within(STEP_MS, client.steps?.[name] ? client.steps[name](road) : road[name]());
      console.log(`ok ${label}${remark ? ` (${remark})` : ''}`);
    } catch (error) {
      if (error instanceof Skipped) {
        console.log(`skip ${label}: ${error.message}`);
        return;
      }
      failures += 1;
      console.log(`FAILED ${label}: ${String(error?.message ?? error).replace(/\s*\n\s*/g, ' ')}`);
    }
  };

  const backends = options.prefix.map((prefix, i) => ({ prefix, era: options.backend[i] ?? 'modern' }));
  road.backend = backends[0];
  for (const name of FIRST) {
    await step(name);
    if (road.revision === undefined) break;
  }
  if (road.revision !== undefined) {
    for (road.backend of backends) for (const name of EACH) await step(name);
    for (const name of LAST) await step(name);
  }
  console.log(failures === 0 ? 'all steps passed' : `${failures} step(s) failed`);
  process.exit(failures === 0 ? 0 : 1);
}
