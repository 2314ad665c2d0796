// What is expected of a run, from expected.json: see README.md beside this file.

import { readFileSync } from 'node:fs';

const groups = JSON.parse(readFileSync(new URL('expected.json', import.meta.url), 'utf8'));

/** A WARNING counts as failed: a served feature has none, and an unserved one often has nothing worse. */
export const failed = (check) => check.status === 'FAILURE' || check.status === 'WARNING';
const say = (check) => `${check.id}: ${check.status} ${check.errorMessage ?? ''}`.trim();

/** Every scenario that expected.json names. */
export function named() {
  return Object.values(groups).flatMap(({ scenarios = [], checks = {} }) => [...scenarios, ...Object.keys(checks)]);
}

/**
 * What `subject` (`fixture`, `gateway/modern` or `gateway/legacy`) has to show
 * in a suite: `pass`, the scenarios that must pass, and `but`, by scenario, the
 * checks of these that must fail. All other scenarios must fail.
 */
export function expectation(suite, subject) {
  const [pass, but] = [new Set(), {}];
  for (const { served, suites = [suite], scenarios = [], checks = {} } of Object.values(groups)) {
    if (!suites.includes(suite)) continue;
    if (served.some((name) => name === subject || subject.startsWith(`${name}/`))) {
      for (const name of scenarios) pass.add(name);
    } else {
      for (const [name, ids] of Object.entries(checks)) but[name] = [...(but[name] ?? []), ...ids];
    }
  }
  return { pass, but };
}

/** What differs between one scenario's checks and what is expected of it; empty when nothing does. */
export function differences(name, checks, { pass, but }) {
  const failures = checks.filter(failed);
  const succeeded = checks.some((check) => check.status === 'SUCCESS');
  if (!pass.has(name)) {
    return succeeded && failures.length === 0 ? ['passes now: say in expected.json that its group is served'] : [];
  }
  if (!succeeded) return ['no check succeeded'];
  const excused = but[name] ?? [];
  const ids = new Set(failures.map((check) => check.id));
  return [
    ...failures.filter((check) => !excused.includes(check.id)).map(say),
    ...excused.filter((id) => !ids.has(id)).map((id) => `${id} passes now: say in expected.json that its group is served`),
  ];
}
