// Copies the libraries of package.json here as their authors publish them: `npm ci && npm run vendor`.
import { copyFileSync } from 'node:fs';

const web = new URL('..', import.meta.url);
const files = {
  'd3.min.js': 'd3/dist/d3.min.js',
  'd3.LICENSE': 'd3/LICENSE',
  'plot.umd.min.js': '@observablehq/plot/dist/plot.umd.min.js',
  'plot.LICENSE': '@observablehq/plot/LICENSE',
};
for (const [to, from] of Object.entries(files)) {
  copyFileSync(new URL(`node_modules/${from}`, web), new URL(`vendor/${to}`, web));
}
