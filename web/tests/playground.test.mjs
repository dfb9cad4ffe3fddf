// The laboratory in headless Chromium. `web/test` makes the page, and the questions with the native engine's answers.
import assert from 'node:assert/strict';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';
import { askEngine } from './engine.mjs';

const file = `${process.env.PAGES}/playground.html`;
const skip = existsSync(file) ? false : 'there is no page: Rust has no target wasm32-unknown-unknown here';
const address = pathToFileURL(file).href;
let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
});
after(() => browser.close());

/** Small enough to be decided at once. */
const SMALL = { links: 'a: 10 Mbit/s, 20 ms, 0.5 %\nb: 5 Mbit/s, 60 ms', sizes: '64 KiB', schedulers: 'minrtt,redundant', budget: '30 ms' };

/** Opens the page, and fails the test for anything it complains of or fetches. */
async function open({ ask = SMALL, ...options } = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  const complaints = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.stack));
  page.on('request', (request) => { if (!/^(file|data|blob):/.test(request.url())) complaints.push(`fetches ${request.url()}`); });
  await page.goto(address);
  // The form is there before the engine is.
  assert.equal(await page.locator('#ask-links').count(), 1);
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  if (ask) await fill(page, ask);
  return { page, done: async () => { assert.deepEqual(complaints, []); await page.close(); } };
}

async function fill(page, asked) {
  for (const [name, value] of Object.entries(asked)) {
    const field = page.locator(`#ask-${name}`);
    if (name === 'direction') await field.selectOption(value);
    else await field.fill(value);
  }
  await page.waitForFunction(() => document.getElementById('answer').dataset.state === 'running');
}

const settled = (page, state = 'traced') => page.waitForFunction((wanted) => document.getElementById('answer').dataset.state === wanted, state);

test('links that are typed are decided, ranked and drawn', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  assert.match(await page.locator('#headline h2').textContent(), /equal|faster|fastest|as fast as|gains nothing/);
  assert.deepEqual(await page.locator('#answer > section').evaluateAll((all) => all.map((one) => one.id)), ['ranking', 'times', 'rope', 'origin']);
  assert.match(await page.locator('#command').textContent(), /^ropewalk compare --path 'a: 10 Mbit\/s, 20 ms, 0.5 %' --path 'b: /);
  assert.match(await page.locator('#status').textContent(), /Decided in/);
  for (const words of await page.locator('figcaption').allTextContents()) assert.doesNotMatch(words, /NaN|undefined|null|Infinity/);
  // Another question takes its place.
  await fill(page, { links: 'dsl-line: dsl' });
  await page.waitForFunction(() => /dsl-line/.test(document.querySelector('#answer .facts')?.textContent));
  await done();
});

test('the page has at most 2.5 MB', { skip }, () => {
  assert.ok(statSync(file).size <= 2.5e6, `${statSync(file).size} bytes`);
});

test('the address has the question, and the same address gives the same numbers', { skip }, async () => {
  const numbers = (page) => page.locator('#ranking table').innerText();
  const { page, done } = await open();
  await settled(page);
  const url = page.url();
  assert.match(url, /#[\w-]{20,}$/);
  const first = await numbers(page);
  await done();
  const other = await browser.newPage();
  await other.goto(url);
  await settled(other);
  assert.equal(await other.inputValue('#ask-links'), SMALL.links);
  assert.equal(await numbers(other), first);
  // What can't be read is as if nothing were there.
  await other.goto(`${address}#%%broken`);
  await other.reload();
  await other.waitForFunction(() => document.documentElement.dataset.ready);
  assert.match(await other.inputValue('#ask-links'), /^wifi/);
  await other.close();
});

test('it stops and goes on', { skip }, async () => {
  const { page, done } = await open({ ask: { ...SMALL, sizes: '1 MiB, 4 MiB', schedulers: '', budget: '300 ms' } });
  const button = page.locator('.running button').first();
  await page.waitForFunction(() => /^[1-9]/.test(document.getElementById('status').textContent));
  await button.click();
  assert.equal(await button.textContent(), 'Go on');
  const told = await page.locator('#status').textContent();
  assert.match(told, /^Stopped at/);
  await page.waitForTimeout(300);
  assert.equal(await page.locator('#status').textContent(), told);
  await button.click();
  await settled(page);
  await done();
});

test('what is refused is told with its place, and the page lives on', { skip }, async () => {
  const { page, done } = await open({ ask: null });
  await fill(page, { ...SMALL, links: 'a: 10 Mbit/s, 20 parsecs' });
  await page.locator('#refused').waitFor();
  assert.match(await page.locator('#refused').textContent(), /`parsecs`[^]*links:1:\d+[^]*20 ms/);
  assert.equal(await page.getAttribute('#ask-links', 'aria-invalid'), 'true');
  await fill(page, { links: SMALL.links });
  await settled(page);
  assert.ok(await page.locator('#refused').isHidden());
  await done();
});

test('a slider changes its clause of the line, and nothing else', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  const slider = page.locator('.sliders input[aria-label="Round trip of b"]');
  await slider.focus();
  await page.keyboard.press('ArrowRight');
  await page.waitForFunction(() => /b: 5 Mbit\/s, 6[1-9](\.\d)? ms$/.test(document.getElementById('ask-links').value));
  assert.match(await page.inputValue('#ask-links'), /^a: 10 Mbit\/s, 20 ms, 0.5 %\n/);
  assert.ok(await slider.evaluate((one) => one === document.activeElement));
  await settled(page);
  await page.locator('.sliders input[aria-label="Loss of a"]').fill('0');
  await page.waitForFunction(() => /^a: 10 Mbit\/s, 20 ms, none\n/.test(document.getElementById('ask-links').value));
  await done();
});

test('outages and other rates are drawn as a line, which pointer and keyboard edit', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  const links = (pattern) => page.waitForFunction((wanted) => new RegExp(wanted).test(document.getElementById('ask-links').value), pattern);
  const card = page.locator('.link').first();
  await card.getByRole('button', { name: '+ outage' }).click();
  await links('^a: 10 Mbit/s, 20 ms, 0.5 %, outage 200 ms at 500 ms\n');
  await page.keyboard.press('ArrowLeft');
  await links('outage 150 ms at 500 ms');
  await page.keyboard.press('Shift+Tab');
  await page.keyboard.press('Shift+ArrowRight');
  await links('outage 150 ms at 1 s');
  assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^Outage: begin of a$/);
  await card.getByRole('button', { name: '+ other rate' }).click();
  await page.keyboard.press('ArrowUp');
  await links('outage 150 ms at 1 s, 2\.75 Mbit/s at 1\.65 s\n');
  await settled(page);
  assert.ok(await page.locator('#refused').isHidden());
  const mark = card.locator('circle').last();
  const box = await mark.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x - 60, box.y - 8, { steps: 4 });
  await page.mouse.up();
  await links('outage 150 ms at 1 s, [3-5][.\\d]* Mbit/s at 1[.\\d]* s\n');
  // The line follows what is typed.
  await fill(page, { links: 'a: starlink, 10 Mbit/s at 2 s\nb: 5 Mbit/s, 60 ms' });
  await page.waitForFunction(() => document.querySelectorAll('.link:first-child circle').length === 1);
  await settled(page);
  await card.locator('circle').focus();
  await page.keyboard.press('Delete');
  await links('^a: starlink, outage none\n');
  await done();
});

test('measurements, traces and scenarios are taken from files', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  const file = (name, mimeType, text) => ({ name, mimeType, buffer: Buffer.from(text) });
  const picker = page.locator('#question input[type=file]');
  const links = (pattern) => page.waitForFunction((wanted) => new RegExp(wanted).test(document.getElementById('ask-links').value), pattern);
  await picker.setInputFiles(file('lte.down', 'text/plain', '1\n2\n3\n5\n8\n13\n'));
  await links('\nlte: trace lte.down$');
  // It has a rate now, and still no round trip.
  await page.locator('#refused').waitFor();
  assert.match(await page.locator('#refused').textContent(), /round-trip time[^]*links:3:1/);
  await fill(page, { links: `${SMALL.links}\nlte: 40 ms, trace lte.down` });
  await settled(page);
  assert.match(await page.locator('.facts').textContent(), /trace lte\.down/);
  // In the address too.
  const other = await browser.newPage();
  await other.goto(page.url());
  await settled(other);
  assert.match(await other.locator('.facts').textContent(), /trace lte\.down/);
  await other.close();
  await picker.setInputFiles(file('mine.toml', 'text/plain', '[[path]]\nname = "only"\nrate = "5 Mbit/s"\nrtt = "20 ms"\n'));
  await links('^\\[\\[path');
  await settled(page);
  assert.match(await page.locator('.facts').textContent(), /path only/);
  // A measurement that is dropped on a link changes that link.
  await fill(page, SMALL);
  await settled(page);
  const ping = '64 bytes from 192.0.2.1: icmp_seq=1 ttl=60 time=41.0 ms\n64 bytes from 192.0.2.1: icmp_seq=2 ttl=60 time=42.0 ms\n';
  const dropped = await page.evaluateHandle((text) => { const data = new DataTransfer(); data.items.add(new File([text], 'ping.txt')); return data; }, ping);
  await page.locator('.link').nth(1).dispatchEvent('drop', { dataTransfer: dropped });
  await links('^a: 10 Mbit/s, 20 ms, 0.5 %\\nb: 5 Mbit/s, 4\\d');
  // A question is saved as a scenario.
  await fill(page, { links: 'a: starlink, outage none\nb: dsl' });
  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Save as scenario file' }).click()]);
  assert.equal(download.suggestedFilename(), 'scenario.toml');
  const saved = readFileSync(await download.path(), 'utf8');
  assert.match(saved, /preset = "starlink"/);
  await picker.setInputFiles(file('scenario.toml', 'text/plain', saved));
  await page.waitForFunction((text) => document.getElementById('ask-links').value === text, saved);
  await settled(page);
  await picker.setInputFiles(file('x.txt', 'text/plain', 'nothing of a kind'));
  await page.locator('#refused', { hasText: 'no measurement of a known kind' }).waitFor();
  await done();
});

test('a rule of one’s own is raced against the others, and one that goes wrong ends its runs only', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  const rows = () => page.locator('#ranking tbody tr').allTextContents();
  const row = async (name) => (await rows()).find((text) => text.includes(name));
  await page.locator('.rule summary').click();
  for (const rule of ['lowest round trip', 'in turns', 'first to deliver']) {
    await page.getByRole('button', { name: rule }).click();
    await page.waitForFunction(() => document.getElementById('answer').dataset.state === 'running');
    await settled(page);
    assert.ok(await page.locator('#refused').isHidden());
    assert.match(await row('mine'), /ms/);
  }
  assert.match(await page.locator('#command').textContent(), /without `mine`/);
  // It is in the address.
  const other = await browser.newPage();
  await other.goto(page.url());
  await settled(other);
  assert.equal(await other.inputValue('#ask-rule'), await page.inputValue('#ask-rule'));
  assert.deepEqual(await other.locator('#ranking tbody tr').allTextContents(), await rows());
  await other.close();
  await fill(page, { rule: 'let turn = 0;\nloop { turn += 1; }' });
  await settled(page);
  assert.match(await page.locator('.rule [role=status]').textContent(), /failed: line 2 of the rule: more than 10000 operations in one decision/);
  assert.match(await row('mine'), /unfinished/);
  assert.doesNotMatch(await row('minrtt'), /unfinished/);
  await fill(page, { rule: '"wifi"' });
  await settled(page);
  assert.match(await page.locator('.rule [role=status]').textContent(), /type string; allowed: a subflow/);
  await fill(page, { rule: 'view.available[0];\nlet = 4' });
  await page.locator('#refused', { hasText: 'rule:2:5' }).waitFor();
  await fill(page, { rule: '' });
  await settled(page);
  assert.equal(await row('mine'), undefined);
  await done();
});

test('a trace of 2 GB is refused in words', { skip }, async () => {
  const { page, done } = await open();
  await page.locator('#question input[type=file]').setInputFiles(`${process.env.PAGES}/large.down`);
  await page.locator('#refused', { hasText: '`large.down` is larger than' }).waitFor();
  await fill(page, SMALL);
  await settled(page);
  await done();
});

test('a report opens the playground with its question', { skip }, async () => {
  const page = await browser.newPage();
  await page.goto(pathToFileURL(`${process.env.PAGES}/again.html`).href);
  await page.waitForFunction(() => /#./.test(document.querySelector('#origin a')?.href));
  await page.locator('#origin a').click();
  await page.waitForURL(/playground\.html#/);
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  assert.deepEqual([await page.inputValue('#ask-links'), await page.inputValue('#ask-sizes')], ['wifi-lte', '256 KiB, 1 MiB']);
  await page.close();
});

test('a sweep opens the playground with one of its points', { skip }, async () => {
  const page = await browser.newPage();
  await page.goto(pathToFileURL(`${process.env.PAGES}/sweep.html`).href);
  const link = page.locator('#map .again a');
  const address = () => link.getAttribute('href');
  await page.waitForFunction(() => /#./.test(document.querySelector('#map .again a').href));
  const first = await address();
  assert.equal(await page.locator('#map .again option').count(), 12);
  // The choice of what is shown is the choice of points; a cell of the map is its first one.
  await page.locator('#map select[aria-label="workload.size"]').selectOption({ label: '1 MiB' });
  assert.equal(await page.locator('#map .again option').count(), 6);
  const cell = await page.locator('#map figure svg g[aria-label="cell"] rect').last().boundingBox();
  await page.mouse.click(cell.x + cell.width / 2, cell.y + cell.height / 2);
  await page.waitForFunction((old) => document.querySelector('#map .again a').getAttribute('href') !== old, first);
  const chosen = await page.locator('#map .again select').evaluate((select) => select.selectedOptions[0].textContent);
  await link.click();
  await page.waitForURL(/playground\.html#/);
  await settled(page);
  assert.equal(await page.inputValue('#ask-schedulers'), 'linux, minrtt, ecf');
  const said = await page.inputValue('#ask-links');
  for (const value of chosen.split(', ').map((words) => words.split(' ').slice(1).join(' ').replace(' ± ', ' +-'))) assert.ok(said.includes(`"${value}"`), `${value} in ${said}`);
  assert.match(await page.locator('.facts').textContent(), /lte/);
  await page.close();
});

test('many questions later the tab holds no more memory', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  const session = await page.context().newCDPSession(page);
  const processes = await browser.newBrowserCDPSession();
  /** Bytes of the page's own memory, and of its process with the workers' engines. */
  const held = async () => {
    await session.send('HeapProfiler.collectGarbage');
    const { processInfo } = await processes.send('SystemInfo.getProcessInfo');
    const resident = ({ id }) => Number(readFileSync(`/proc/${id}/statm`, 'utf8').split(' ')[1]) * 4096;
    const all = processInfo.filter(({ type }) => type === 'renderer').map(resident).reduce((sum, one) => sum + one, 0);
    return { own: (await session.send('Runtime.getHeapUsage')).usedSize, all };
  };
  const ask = async (number) => {
    await fill(page, { seed: String(number) });
    await settled(page);
  };
  for (let number = 1; number <= 5; number += 1) await ask(number);
  const before = await held();
  for (let number = 6; number <= 55; number += 1) await ask(number);
  const now = await held();
  const both = `${JSON.stringify(before)} bytes after 5 questions, ${JSON.stringify(now)} after 55`;
  assert.ok(now.own < before.own * 1.3 + 2e6 && now.all < before.all * 1.2 + 30e6, both);
  await done();
});

test('native and in Chromium, runs and refusals are the same to the byte', { skip }, async () => {
  const { page, done } = await open();
  await settled(page);
  const lines = readFileSync(`${process.env.PAGES}/questions.jsonl`, 'utf8').trim().split('\n').map((line) => JSON.parse(line));
  let [runs, refused] = [0, 0];
  for (let from = 0; from < lines.length; from += 50) {
    const some = lines.slice(from, from + 50);
    const answers = await page.evaluate(askEngine, some.flatMap(({ asked }) => [
      { call: 'check', asked }, { call: 'prepare', asked }, { call: 'run', jobs: [[0, 0, 0], [0, 1, 0]] }]).map((question) => JSON.stringify(question)));
    some.forEach((line, i) => {
      assert.equal(answers[i * 3], line.checked, JSON.stringify(line.asked));
      refused += /^{"errors"/.test(line.checked);
      if (!line.made) return;
      assert.equal(answers[i * 3 + 2], line.made, line.asked.links);
      runs += 2;
    });
  }
  assert.ok(runs >= 600 && refused > 150, `${runs} runs, ${refused} refusals`);
  await done();
});

test('on a phone, in the dark, with the keyboard alone', { skip }, async () => {
  const { page, done } = await open({ viewport: { width: 390, height: 800 }, colorScheme: 'dark' });
  await settled(page);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  await page.focus('#ask-links');
  const reached = new Set();
  for (let i = 0; i < 50; i += 1) {
    await page.keyboard.press('Tab');
    reached.add(await page.evaluate(() => document.activeElement.id || document.activeElement.textContent));
  }
  for (const name of ['ask-sizes', 'ask-schedulers', '+ dsl', 'Copy address']) assert.ok(reached.has(name), name);
  // Every field has a name.
  for (const field of await page.locator('#question input, #question select, #question textarea').all()) {
    assert.ok(await field.evaluate((one) => one.labels?.length || one.getAttribute('aria-label')));
  }
  await done();
});
