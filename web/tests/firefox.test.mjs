// The laboratory in headless Firefox: it decides, and its runs are the native engine's to the byte.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { askEngine } from './engine.mjs';
import { firefox, whyNoFirefox } from './firefox.mjs';

const file = `${process.env.PAGES}/playground.html`;
const skip = whyNoFirefox() ?? (existsSync(file) ? false : 'there is no page: Rust has no target wasm32-unknown-unknown here');

/** Waits until the expression is true. */
async function until(page, expression) {
  for (let tries = 0; tries < 600; tries += 1) {
    if (await page.evaluate(`Boolean(${expression})`)) return;
    await new Promise((end) => setTimeout(end, 100));
  }
  assert.fail(`never: ${expression}; ${await page.evaluate('document.getElementById("refused").textContent')}`);
}

test('Firefox decides a question, with a rule of one’s own', { skip }, async () => {
  const page = await firefox(pathToFileURL(file).href);
  try {
    await until(page, 'document.documentElement.dataset.ready');
    const asked = { links: 'a: 10 Mbit/s, 20 ms, 0.5 %\nb: 5 Mbit/s, 60 ms', sizes: '64 KiB', schedulers: 'minrtt,redundant', budget: '30 ms', rule: 'view.available[0]' };
    for (const [name, value] of Object.entries(asked)) {
      await page.evaluate(`(() => { const field = document.getElementById('ask-${name}'); field.value = ${JSON.stringify(value)}; field.dispatchEvent(new Event('input')); })()`);
    }
    await until(page, 'document.getElementById("answer").dataset.state === "running"');
    await until(page, 'document.getElementById("answer").dataset.state === "traced"');
    const rows = await page.evaluate('[...document.querySelectorAll("#ranking tbody tr")].map((row) => row.textContent)');
    for (const name of ['minrtt', 'redundant', 'mine', 'linux', 'tcp a', 'tcp b']) assert.ok(rows.some((row) => row.includes(name)), name);
    const lines = readFileSync(`${process.env.PAGES}/questions.jsonl`, 'utf8').trim().split('\n').map((line) => JSON.parse(line)).filter((line) => line.made);
    const questions = lines.slice(0, 60).flatMap(({ asked }) => [{ call: 'prepare', asked }, { call: 'run', jobs: [[0, 0, 0], [0, 1, 0]] }]);
    const answers = await page.evaluate(`(${askEngine})(${JSON.stringify(questions.map((question) => JSON.stringify(question)))})`);
    lines.slice(0, 60).forEach((line, i) => assert.equal(answers[i * 2 + 1], line.made, line.asked.links));
  } finally {
    assert.deepEqual(await page.close(), []);
  }
});
