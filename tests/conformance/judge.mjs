// The conformance suites' judge: runs one of them through the proxy, reads each
// check's status from the files it leaves, and compares with what is expected.
// Started by `run`, which finds Node and the suites.

import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { differences, expectation, failed, named } from './expected.mjs';
import { startProxy } from './proxy.mjs';

const TIMEOUT_MS = 5 * 60_000;
const CURRENT = '@modelcontextprotocol/conformance';

/** By what is asked for with --suite: the package, how to list its scenarios and how to run all of them. */
const SUITES = {
  '2026-07-28': {
    from: CURRENT,
    list: ['--spec-version', '2026-07-28'],
    all: ['--suite', 'all', '--spec-version', '2026-07-28'],
  },
  // Runs what was added after the release besides; `list --requirements` would leave that out.
  '2025-11-25': {
    from: CURRENT,
    list: ['--spec-version', '2025-11-25'],
    all: ['--requirements', '2025-11-25'],
  },
  '0.1.16': { from: 'conformance-0.1', list: [], all: ['--suite', 'all'] },
};

/** What is judged: the fixture server, or the gateway before it in an era. */
const SUBJECTS = ['fixture', 'gateway/modern', 'gateway/legacy'];

class DidNotRun extends Error {}

/** Runs a suite's command line; resolves to its output. Its exit code says nothing that the files do not. */
async function command(from, args) {
  const program = join(process.env.FONDACO_PEERS_DIR, 'node_modules', from, 'dist/index.js');
  const child = spawn(process.execPath, [program, ...args], { stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT_MS });
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
  const signal = await new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (_code, signal) => resolve(signal));
  });
  if (signal) throw new DidNotRun(`the suite was ended by ${signal} after ${TIMEOUT_MS / 1000} s\n${output.slice(-2000)}`);
  return output;
}

/** The names of all server scenarios of a suite, extensions left out. */
async function scenarios({ from, list }) {
  const output = await command(from, ['list', '--server', ...list]);
  const names = [...output.matchAll(/^ {2}- (\S+) \[/gm)].map((match) => match[1]);
  if (names.length === 0) throw new DidNotRun(`the suite lists no scenarios:\n${output}`);
  return names;
}

/** Runs everything against `url`; scenario name to its checks. */
async function results({ from, all }, url, folder) {
  const output = await command(from, ['server', '--url', url, ...all, '-o', folder]);
  const found = new Map();
  for (const entry of readdirSync(folder)) {
    const name = /^server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z$/.exec(entry)?.[1];
    if (name) found.set(name, JSON.parse(readFileSync(join(folder, entry, 'checks.json'), 'utf8')));
  }
  if (found.size === 0) throw new DidNotRun(`the suite left no results:\n${output.slice(-2000)}`);
  return found;
}

async function judge({ suite, url, token, subject }, folder) {
  const known = Object.fromEntries(
    await Promise.all(Object.entries(SUITES).map(async ([name, how]) => [name, await scenarios(how)])),
  );
  const unknown = named().filter((name) => !Object.values(known).some((names) => names.includes(name)));
  for (const name of unknown) console.log(`WRONG ${name}: no suite has such a scenario`);

  const expected = expectation(suite, subject);
  const found = await results(SUITES[suite], await startProxy(url, token), folder);
  let wrong = unknown.length;
  let passing = 0;
  for (const name of known[suite]) {
    const checks = found.get(name) ?? [];
    const lines = differences(name, checks, expected);
    const must = expected.pass.has(name);
    passing += must;
    wrong += lines.length > 0;
    const count = `${checks.filter((check) => check.status === 'SUCCESS').length} passed, ${checks.filter(failed).length} failed`;
    console.log(`${lines.length > 0 ? 'WRONG' : must ? 'ok   ' : 'later'} ${name}: ${count}`);
    for (const line of lines) console.log(`      ${line}`);
  }
  console.log(`${suite}, ${subject}: ${known[suite].length} scenarios, ${passing} must pass; ${wrong} differ`);
  return wrong === 0;
}

const { values } = parseArgs({
  options: {
    suite: { type: 'string' },
    url: { type: 'string' },
    token: { type: 'string' },
    before: { type: 'string' },
    direct: { type: 'boolean', default: false },
    keep: { type: 'string' },
  },
});
const folder = values.keep ?? mkdtempSync(join(tmpdir(), 'fondaco-conformance-'));
try {
  if (!values.url) throw new DidNotRun('--url is missing');
  if (!(values.suite in SUITES)) throw new DidNotRun(`--suite is one of ${Object.keys(SUITES).join(', ')}`);
  const subjects = [values.direct && 'fixture', values.before && `gateway/${values.before}`].filter(Boolean);
  const [subject] = subjects;
  if (subjects.length !== 1 || !SUBJECTS.includes(subject)) {
    throw new DidNotRun('say one of --direct, --before modern and --before legacy');
  }
  process.exitCode = (await judge({ ...values, subject }, folder)) ? 0 : 1;
} catch (error) {
  if (!(error instanceof DidNotRun)) throw error;
  console.error(`tests/conformance/run: ${error.message}`);
  process.exitCode = 2;
} finally {
  if (!values.keep) rmSync(folder, { recursive: true, force: true });
}
