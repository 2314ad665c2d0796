// The conformance suite's judge: runs the suite through the proxy, reads each
// check's status from the files it leaves, and compares with expected.json.
// Started by `run`, which finds Node and the suite.

import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { startProxy } from './proxy.mjs';

const REVISION = '2026-07-28';
const TIMEOUT_MS = 5 * 60_000;
const CLI = join(process.env.FONDACO_PEERS_DIR, 'node_modules/@modelcontextprotocol/conformance/dist/index.js');

class DidNotRun extends Error {}

/** Runs the suite's command line; resolves to its output. Its exit code says nothing that the files do not. */
async function suite(args) {
  const child = spawn(process.execPath, [CLI, ...args], { stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT_MS });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  const [code, signal] = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (...how) => resolve(how));
  });
  if (signal) throw new DidNotRun(`the suite was ended by ${signal} after ${TIMEOUT_MS / 1000} s\n${output.slice(-2000)}`);
  return { code, output };
}

/** The names of all server scenarios of the revision, extensions left out. */
async function allScenarios() {
  const { output } = await suite(['list', '--server', '--spec-version', REVISION]);
  const names = [...output.matchAll(/^ {2}- (\S+) \[/gm)].map((match) => match[1]);
  if (names.length === 0) throw new DidNotRun(`the suite lists no scenarios:\n${output}`);
  return names;
}

/** Runs everything against `url`; scenario name to its checks. */
async function results(url, folder) {
  const { output } = await suite(['server', '--url', url, '--suite', 'all', '--spec-version', REVISION, '-o', folder]);
  const found = new Map();
  for (const entry of readdirSync(folder)) {
    const name = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(entry)?.[1];
    if (name) found.set(name, JSON.parse(readFileSync(join(folder, entry, 'checks.json'), 'utf8')));
  }
  if (found.size === 0) throw new DidNotRun(`the suite left no results:\n${output.slice(-2000)}`);
  return found;
}

/** A WARNING counts as failed: a served feature has none, and an unserved one often has nothing worse. */
const failed = (check) => check.status === 'FAILURE' || check.status === 'WARNING';
const say = (check) => `${check.id}: ${check.status} ${check.errorMessage ?? ''}`.trim();

/** What differs between one scenario's checks and what is expected of it; empty when nothing does. */
function differences(name, checks, expected) {
  const failures = checks.filter(failed);
  const partly = expected.partly[name];
  const named = partly !== undefined || expected.pass.includes(name);
  if (!checks.some((check) => check.status === 'SUCCESS')) return named ? ['no check succeeded'] : [];
  if (expected.pass.includes(name)) return failures.map(say);
  if (partly) {
    const ids = new Set(failures.map((check) => check.id));
    return [
      ...failures.filter((check) => !partly.includes(check.id)).map(say),
      ...partly.filter((id) => !ids.has(id)).map((id) => `${id} passes now: take it off the list "partly"`),
    ];
  }
  return failures.length > 0 ? [] : ['passes now: move it to the list "pass"'];
}

async function judge(url, token, folder) {
  const expected = JSON.parse(readFileSync(new URL('expected.json', import.meta.url), 'utf8'));
  const names = await allScenarios();
  const found = await results(await startProxy(url, token), folder);
  const unknown = [...expected.pass, ...Object.keys(expected.partly)].filter((name) => !names.includes(name));
  let wrong = unknown.length;
  for (const name of unknown) console.log(`WRONG ${name}: the suite has no such scenario`);
  for (const name of names) {
    const checks = found.get(name) ?? [];
    const lines = differences(name, checks, expected);
    wrong += lines.length > 0;
    const passed = checks.filter((check) => check.status === 'SUCCESS').length;
    const count = `${passed} passed, ${checks.filter(failed).length} failed`;
    const named = expected.pass.includes(name) || name in expected.partly;
    console.log(`${lines.length > 0 ? 'WRONG' : named ? 'ok   ' : 'later'} ${name}: ${count}`);
    for (const line of lines) console.log(`      ${line}`);
  }
  console.log(`${names.length} scenarios, ${expected.pass.length} must pass, ${Object.keys(expected.partly).length} in part; ${wrong} differ`);
  return wrong === 0;
}

const { values } = parseArgs({
  options: { url: { type: 'string' }, token: { type: 'string' }, keep: { type: 'string' } },
});
const folder = values.keep ?? mkdtempSync(join(tmpdir(), 'fondaco-conformance-'));
try {
  if (!values.url) throw new DidNotRun('--url is missing');
  process.exitCode = (await judge(values.url, values.token, folder)) ? 0 : 1;
} catch (error) {
  if (!(error instanceof DidNotRun)) throw error;
  console.error(`tests/conformance/run: ${error.message}`);
  process.exitCode = 2;
} finally {
  if (!values.keep) rmSync(folder, { recursive: true, force: true });
}
