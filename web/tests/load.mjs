// The page's parts that need no page, for tests: each file is a script, so its names are read out of it.
import { readFileSync } from 'node:fs';

export function load(files, names) {
  const text = files.map((file) => readFileSync(new URL(`../src/${file}`, import.meta.url), 'utf8')).join('\n');
  return new Function(`'use strict';\n${text}\nreturn { ${names.join(', ')} };`)();
}
