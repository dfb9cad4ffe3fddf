// The page in headless Chromium. `web/test` makes the pages and names the browser.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const address = (name) => pathToFileURL(`${process.env.PAGES}/${name}.html`).href;
let browser;
before(async () => {
  browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
});
after(() => browser.close());

/** Opens a page and fails the test for anything it complains of or fetches. */
async function open(name, options = {}) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 }, ...options });
  const complaints = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.stack));
  page.on('request', (request) => { if (!/^(file|data|blob):/.test(request.url())) complaints.push(`fetches ${request.url()}`); });
  await page.goto(address(name));
  await page.waitForFunction(() => document.querySelector('#rope figure[data-draw-ms], #map figure svg'));
  return { page, done: async () => { assert.deepEqual(complaints, []); await page.close(); } };
}

const canvas = (page, number = 0) => page.locator('#rope canvas[tabindex]').nth(number);
const range = (page, number = 0) => page.locator('#rope figure').nth(number).evaluate((figure) => [Number(figure.dataset.from), Number(figure.dataset.to)]);

/** Waits until the time axis isn't what it was. */
async function changed(page, from) {
  await page.waitForFunction(([a, b]) => {
    const { dataset } = document.querySelector('#rope figure');
    return Number(dataset.from) !== a || Number(dataset.to) !== b;
  }, from);
  return range(page);
}

/** Scrolls to the rope and waits until a wheel is no longer taken for the page's. */
async function toRope(page) {
  await page.evaluate(() => { document.documentElement.style.scrollBehavior = 'auto'; document.getElementById('rope').scrollIntoView(); });
  await page.waitForTimeout(400);
  return canvas(page).boundingBox();
}

test('every section is there, and every chart says in words what it shows', async () => {
  const { page, done } = await open('small');
  assert.deepEqual(await page.locator('main > section').evaluateAll((all) => all.map((one) => one.id)), ['ranking', 'times', 'workloads', 'rope', 'origin']);
  const figures = await page.locator('figure').evaluateAll((all) => all.map((figure) => ({
    words: figure.querySelector('figcaption').textContent,
    label: figure.querySelector('[role=img]').getAttribute('aria-label'),
  })));
  assert.equal(figures.length, 6);
  for (const { words, label } of figures) {
    assert.ok(words.length > 40 && label.includes(words), words);
    assert.doesNotMatch(`${words} ${label}`, /NaN|undefined|null|Infinity/);
  }
  assert.match(await page.locator('h1').textContent(), /schedulers|TCP|can't be compared/);
  assert.ok(await page.locator('h1').evaluate((h1) => h1.clientHeight / parseFloat(getComputedStyle(h1).lineHeight) < 3.2));
  await done();
});

test('the choice of workload changes every chart', async () => {
  const { page, done } = await open('small');
  const words = () => page.locator('#ranking figcaption, #times figcaption, #rope figcaption').allTextContents();
  const before = await words();
  await page.locator('#ranking .tabs button', { hasText: '256 KiB' }).click();
  await page.waitForFunction((old) => document.querySelector('#rope figcaption').textContent !== old, before[3]);
  const now = await words();
  now.forEach((text, i) => assert.notEqual(text, before[i]));
  assert.deepEqual(await page.locator('.tabs button[aria-pressed=true]').allTextContents(), ['256 KiB', '256 KiB', '256 KiB']);
  await done();
});

test('the wheel zooms both runs about the pointer', async () => {
  const { page, done } = await open('small');
  const box = await toRope(page);
  const whole = await range(page);
  const x = box.x + box.width / 2;
  await page.mouse.move(x, box.y + 100);
  await page.mouse.wheel(0, -300);
  const near = await changed(page, whole);
  assert.ok(near[1] - near[0] < (whole[1] - whole[0]) * 0.6, `${near}`);
  assert.deepEqual(await range(page, 1), near);
  // The moment under the pointer stays there.
  const moment = ([from, to]) => from + (to - from) * ((x - box.x - 54) / (box.width - 62));
  assert.ok(Math.abs(moment(near) - moment(whole)) < (whole[1] - whole[0]) * 0.01);
  await page.mouse.dblclick(x, box.y + 100);
  assert.deepEqual(await changed(page, near), whole);
  await done();
});

test('dragging pans, and never beyond the run', async () => {
  const { page, done } = await open('small');
  const box = await toRope(page);
  const whole = await range(page);
  await canvas(page).focus();
  await page.keyboard.press('+');
  const near = await changed(page, whole);
  await page.mouse.move(box.x + 300, box.y + 100);
  await page.mouse.down();
  await page.mouse.move(box.x + 200, box.y + 100, { steps: 4 });
  await page.mouse.up();
  const later = await changed(page, near);
  assert.ok(later[0] > near[0] && Math.abs(later[1] - later[0] - (near[1] - near[0])) <= 2, `${near} ${later}`);
  for (let i = 0; i < 30; i += 1) await page.keyboard.press('ArrowRight');
  await page.waitForTimeout(100);
  assert.ok((await range(page))[1] <= whole[1] + 1);
  await done();
});

test('the keyboard goes from segment to segment and hears the reason', async () => {
  const { page, done } = await open('small');
  await toRope(page);
  await canvas(page).focus();
  const tip = page.locator('#tip');
  const heard = [];
  for (let i = 0; i < 3; i += 1) {
    await page.keyboard.press('n');
    await tip.waitFor({ state: 'visible' });
    await page.waitForFunction((old) => document.getElementById('tip').textContent !== old, heard.at(-1) || '');
    heard.push(await tip.textContent());
  }
  for (const text of heard) assert.match(text, /bytes \d+ to \d+sent .*\sms, arrived /);
  assert.equal(await tip.getAttribute('aria-live'), 'polite');
  await page.keyboard.press('Escape');
  assert.ok(await tip.isHidden());
  await done();
});

test('hovering over a segment tells the scheduler’s reason', async () => {
  const { page, done } = await open('small');
  const box = await toRope(page);
  await page.locator('#rope select').first().selectOption('blest');
  await page.waitForTimeout(100);
  const reasons = new Set();
  for (let i = 1; i < 20; i += 1) {
    await page.mouse.move(box.x + 54 + ((box.width - 62) * i) / 24, box.y + 130);
    const why = page.locator('#tip .why');
    if (await why.count()) reasons.add(await why.textContent());
  }
  assert.ok([...reasons].some((reason) => /srtt|window|lambda/.test(reason)), [...reasons].join('; '));
  await page.mouse.move(5, 5);
  assert.ok(await page.locator('#tip').isHidden());
  await done();
});

test('light and dark are drawn in their own colours', async () => {
  const { page, done } = await open('small', { colorScheme: 'dark' });
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const drawing = () => page.locator('#rope canvas').first().evaluate((element) => element.toDataURL());
  const dark = [await background(), await drawing()];
  const button = page.locator('#theme');
  await button.click();
  assert.match(await button.textContent(), /Light/);
  await page.waitForTimeout(100);
  const light = [await background(), await drawing()];
  assert.notEqual(light[0], dark[0]);
  assert.notEqual(light[1], dark[1]);
  await button.click();
  await page.waitForTimeout(100);
  assert.deepEqual([await background(), await drawing()], dark);
  await done();
});

test('a phone shows everything without scrolling sideways', async () => {
  const { page, done } = await open('small', { viewport: { width: 375, height: 720 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 });
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide[0] <= wide[1], `${wide}`);
  for (const box of await page.locator('figure svg, #rope canvas').evaluateAll((all) => all.map((one) => one.getBoundingClientRect().toJSON()))) {
    assert.ok(box.left >= 0 && box.right <= 376, JSON.stringify(box));
  }
  assert.equal(await page.locator('#rope canvas').first().evaluate((element) => element.width / element.clientWidth), 2);
  await done();
});

test('a hundred thousand segments stay smooth', async () => {
  const { page, done } = await open('large');
  const box = await toRope(page);
  assert.match(await page.locator('#rope figcaption').first().textContent(), /12\d(\.\d)?\sMiB/);
  const spent = [];
  await page.mouse.move(box.x + 300, box.y + 100);
  for (let i = 0; i < 16; i += 1) {
    const from = await range(page);
    await page.mouse.wheel(0, i < 8 ? -120 : 120);
    if (i < 8) await changed(page, from);
    await page.waitForTimeout(20);
    spent.push(await page.locator('#rope figure').first().evaluate((figure) => Number(figure.dataset.drawMs)));
  }
  spent.sort((a, b) => a - b);
  // The least is what drawing takes; what is above it, the machine took for something else.
  assert.ok(spent[0] < 60, `milliseconds: ${spent}`);
  await done();
});

/** Presses a button and reads what the page hands to the browser for saving; how a browser saves isn't the page's. */
async function saved(page, button) {
  await page.evaluate(() => {
    const blobs = new Map();
    const made = (window.madeObjectURL ??= URL.createObjectURL);
    URL.createObjectURL = (blob) => { const url = made.call(URL, blob); blobs.set(url, blob); return url; };
    window.handed = undefined;
    HTMLAnchorElement.prototype.click = function click() { window.handed = { name: this.download, blob: blobs.get(this.href) }; };
  });
  await button.click();
  await page.waitForFunction(() => window.handed);
  return page.evaluate(async () => ({ name: window.handed.name, text: await window.handed.blob.text() }));
}

test('everything can be taken away', async () => {
  const { page, done } = await open('small');
  const figures = page.locator('figure');
  for (let i = 0; i < await figures.count(); i += 1) {
    const tools = figures.nth(i).locator('.tools');
    const table = await saved(page, tools.getByText('CSV', { exact: true }));
    const objects = JSON.parse((await saved(page, tools.getByText('JSON', { exact: true }))).text);
    const lines = table.text.trimEnd().split('\r\n');
    assert.equal(lines.length, objects.length + 1, table.name);
    assert.ok(objects.length > 2);
    const drawing = await saved(page, tools.getByText('SVG', { exact: true }));
    const problem = await page.evaluate((text) => new DOMParser().parseFromString(text, 'image/svg+xml').querySelector('parsererror')?.textContent, drawing.text);
    assert.equal(problem, undefined, drawing.name);
    assert.doesNotMatch(drawing.text, /NaN|undefined|var\(/);
  }
  const all = JSON.parse((await saved(page, page.getByText('All data as JSON'))).text);
  assert.equal(all.kind, 'comparison');
  await done();
});

test('a sweep shows who wins where, across and up as one chooses', async () => {
  const { page, done } = await open('sweep');
  assert.match(await page.locator('h1').textContent(), /closest to the best over all 12 points/);
  const cells = () => page.locator('#map figure').first().locator('g[aria-label=cell] rect').count();
  const words = () => page.locator('#map figcaption').first().textContent();
  assert.equal(await cells(), 6);
  const all = await words();
  assert.match(all, /^Of 6 cells, first: /);
  assert.doesNotMatch(all, /NaN|undefined|null|Infinity/);
  await page.getByLabel('workload.size', { exact: true }).selectOption('128 KiB');
  assert.notEqual(await words(), all);
  await page.getByLabel('across', { exact: true }).selectOption('workload.size');
  assert.equal(await cells(), 4);
  const tools = page.locator('#map figure').first().locator('.tools');
  const table = await saved(page, tools.getByText('CSV', { exact: true }));
  assert.equal(table.text.trimEnd().split('\r\n').length, 5);
  assert.match(table.text, /^workload\.size,path\.wifi\.loss,first,clear,time_against_linux,points\r\n/);
  await page.setViewportSize({ width: 375, height: 700 });
  await page.waitForTimeout(200);
  const wide = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(wide[0] <= wide[1], `${wide}`);
  await done();
});

test('on paper there is no furniture', async () => {
  const { page, done } = await open('small');
  await page.emulateMedia({ media: 'print' });
  assert.ok(await page.locator('.top').isHidden());
  assert.ok(await page.locator('figure .tools').first().isHidden());
  const paper = await page.pdf({ format: 'A4' });
  assert.ok(paper.length > 20000);
  await done();
});
