// Lets the scripts under tests/ import the npm packages that scripts/peers
// installs, which live outside the tree that Node would search.
//
// Import this file first and the packages with `await import(..)` after it: a
// static import would be resolved before the hook below exists.

import { existsSync } from 'node:fs';
import * as module from 'node:module';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

const tests = new URL('../', import.meta.url).href;
const folder = process.env.FONDACO_PEERS_DIR ?? fileURLToPath(new URL('../../target/peers', import.meta.url));

if (!existsSync(join(folder, 'npm.stamp'))) {
  console.error(`no npm packages in ${folder}: run scripts/peers first`);
  process.exit(2);
}
if (!module.registerHooks) {
  console.error(`Node ${process.version} is too old: run this with $FONDACO_NODE from ${join(folder, 'env')}`);
  process.exit(2);
}

const parentURL = pathToFileURL(join(folder, 'package.json')).href;
const isPackage = (specifier) => !/^(\.|\/|[a-z]+:)/.test(specifier) && !module.isBuiltin(specifier);

module.registerHooks({
  resolve(specifier, context, next) {
    const ours = context.parentURL?.startsWith(tests);
    return next(specifier, ours && isPackage(specifier) ? { ...context, parentURL } : context);
  },
});
