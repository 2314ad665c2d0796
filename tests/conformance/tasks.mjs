// Judges the suite's tasks scenarios at a URL, one by one, since they are of an
// extension and in no suite; compares with tasks.json, in both directions.
//
//   $FONDACO_NODE tests/conformance/tasks.mjs --url URL [--token TOKEN | --direct]
//
// --direct says that the URL is tests/fixtures/tasks.mjs itself, which has to pass
// what waits for the gateway, too. Exit 0: exactly what is expected. 1: something differs.

import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { failed } from './expected.mjs';
import { startProxy } from './proxy.mjs';

/** How many scenarios run at a time. */
const AT_A_TIME = 2;
const TIMEOUT_MS = 60_000;
const PROGRAM = join(process.env.FONDACO_PEERS_DIR, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');

const expected = JSON.parse(readFileSync(new URL('tasks.json', import.meta.url), 'utf8'));

/** Runs the suite's command line; resolves to its output. */
async function command(...args) {
  const child = spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT_MS });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve));
  return output;
}

/** One scenario's checks. */
async function checks(name, url) {
  const folder = mkdtempSync(join(tmpdir(), 'fondaco-tasks-'));
  try {
    const output = await command('server', '--url', url, '--scenario', name, '-o', folder);
    const left = readdirSync(folder).map((entry) => join(folder, entry, 'checks.json'));
    if (left.length !== 1) throw new Error(`${name} left no result:\n${output.slice(-2000)}`);
    return JSON.parse(readFileSync(left[0], 'utf8'));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What differs from what is expected of a scenario; nothing if nothing does. */
function differences(name, found, direct) {
  const failures = found.filter(failed).map(({ id, status, errorMessage = '' }) => `${id}: ${status} ${errorMessage}`);
  const succeeded = found.some(({ status }) => status === 'SUCCESS');
  if (name in expected.skipped) {
    const ran = found.filter(({ status }) => status !== 'SKIPPED').map(({ id, status }) => `${id}: ${status}`);
    return ran.length > 0 ? ['it has checks now: move it in tasks.json', ...ran] : [];
  }
  if (name in expected.waits && !direct) {
    return failures.length === 0 ? ['it passes now: move it in tasks.json'] : [];
  }
  return succeeded ? failures : ['no check succeeded', ...failures];
}

const { values } = parseArgs({
  options: { url: { type: 'string' }, token: { type: 'string' }, direct: { type: 'boolean', default: false } },
});
const listed = [...(await command('list', '--server')).matchAll(/^ {2}- (tasks-\S+)/gm)].map((match) => match[1]);
const known = [...expected.passes, ...Object.keys(expected.waits), ...Object.keys(expected.skipped)];
let differ = 0;
for (const name of [...listed.filter((n) => !known.includes(n)), ...known.filter((n) => !listed.includes(n))]) {
  console.log(`WRONG ${name}: tasks.json and the suite do not both have it`);
  differ += 1;
}
const url = await startProxy(values.url, values.token);
const waiting = [...known];
const work = async () => {
  for (let name = waiting.shift(); name; name = waiting.shift()) {
    const found = await checks(name, url);
    const lines = differences(name, found, values.direct);
    differ += lines.length > 0;
    const passed = found.filter(({ status }) => status === 'SUCCESS').length;
    console.log(`${lines.length > 0 ? 'WRONG' : 'ok   '} ${name}: ${passed} passed`);
    for (const line of lines) console.log(`      ${line}`);
  }
};
await Promise.all(Array.from({ length: AT_A_TIME }, work));
console.log(`${known.length} scenarios of tasks; ${differ} differ`);
process.exitCode = differ === 0 ? 0 : 1;
