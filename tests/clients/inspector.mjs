// The Inspector's command line as an MCP client: a process for each request. It
// takes the road that road.mjs describes, as far as it can.
//
//   $FONDACO_NODE tests/clients/inspector.mjs --url URL [--mode legacy|auto|pin] …

import '../peers/packages.mjs';
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { readOptions } from './road.mjs';
import { skip } from './road.mjs';
import { take } from './road.mjs';

const execute = promisify(execFile);
const program = fileURLToPath(import.meta.resolve('@modelcontextprotocol/inspector/clients/launcher/build/index.js'));
const options = readOptions(['legacy', 'auto', 'pin']);
// It keeps a catalog and tokens in its user's home, which is not ours to write to.
const home = mkdtempSync(join(tmpdir(), 'fondaco-inspector-'));
process.on('exit', () => rmSync(home, { recursive: true, force: true }));

/** What the command line answers by its exit code where a tool says isError, or is not in its list. */
const TOOL_FAILED = 5;

/** Runs one command; answers {code, result, error}. */
async function inspect(method, ...more) {
  const words = ['--cli', '--server-url', options.url, '--transport', 'http', '--format', 'json', '--quiet'];
  if (options.token) words.push('--header', `Authorization: Bearer ${options.token}`);
  words.push('--protocol-era', options.mode === 'pin' ? 'modern' : options.mode, '--method', method, ...more);
  const run = execute(process.execPath, [program, ...words], { env: { ...process.env, HOME: home } });
  const { code = 0, stdout, stderr } = await run.catch((failed) => failed);
  const { result } = JSON.parse(stdout || '{}');
  const { error } = JSON.parse(stderr.split('\n').find((line) => line.startsWith('{"error"')) ?? '{}');
  assert.ok([0, TOOL_FAILED].includes(code), error?.message ?? stderr);
  return { code, result, error };
}

const call = (name, args, ...more) =>
  inspect('tools/call', '--tool-name', name, '--tool-args-json', JSON.stringify(args), ...more);

/** What a request's params are in words of the command line. */
const WORDS = {
  'resources/read': ({ uri }) => ['--uri', uri],
  'prompts/get': ({ name, arguments: given }) => [
    '--prompt-name', name, '--prompt-args', ...Object.entries(given).map(([key, value]) => `${key}=${value}`),
  ],
};

await take(
  {
    async connect() {
      const { result } = await inspect('initialize');
      return { revision: result.protocolVersion, tools: result.capabilities.tools };
    },
    call: async (name, args) => (await call(name, args)).result,
    request: async (method, params) => (await inspect(method, ...(WORDS[method]?.(params) ?? []))).result,
    steps: {
      async pages(road) {
        const { tools } = (await inspect('tools/list')).result;
        const names = tools.map((tool) => tool.name);
        for (const prefix of options.prefix) assert.ok(names.includes(`${prefix}echo`), `no ${prefix}echo in ${names}`);
        assert.equal(new Set(names).size, names.length, `a name comes twice: ${names}`);
        if (!options.direct) assert.ok(names.length > road.options.pageSize, `only ${names.length} tools, all on one page`);
        return `${names.length} tools; it follows the cursors itself`;
      },
      async parallel(road) {
        const load = ['--load', '--load-requests', '20', '--load-concurrency', '20'];
        const { result } = await call(road.named('echo'), { text: 'x' }, ...load);
        assert.equal(result.ok, 20, JSON.stringify(result));
        return 'by --load, which compares no answers';
      },
      async unknown_tool(road) {
        const { code, error } = await call(road.named('no_such_tool'), {});
        assert.equal(code, TOOL_FAILED);
        assert.equal(error.code, 'tool_not_found', error.message);
        return 'told by the list, without a call';
      },
      progress: () => skip('the command line does not show progress'),
      completion: () => skip('the command line does not complete'),
      elicitation: () => skip('the command line answers no questions'),
      listen: () => skip('the command line does not listen'),
      cancel: () => skip('the command line has no way to cancel a call'),
    },
  },
  options,
);
