// The page in headless Chromium. `web/test` makes the pages and names the browser.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
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
  await page.waitForFunction(() => document.querySelector('#rope figure[data-draw-ms], #map figure svg, .figures figure svg'));
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

/** Texts of each figure's drawing that lie on one another, or leave the figure. */
async function collisions(page) {
  return page.evaluate(() => {
    const found = [];
    for (const figure of document.querySelectorAll('figure')) {
      const frame = figure.getBoundingClientRect();
      const texts = [...figure.querySelectorAll('.plot svg text, h3, .tools, .legend span')]
        .filter((text) => text.textContent.trim() && !(text.ownerSVGElement && text.closest('[aria-label=tip]')))
        .map((text) => ({ words: text.textContent.trim(), box: text.getBoundingClientRect(), turned: /rotate/.test(text.getAttribute('transform') || '') }))
        .filter(({ box }) => box.width > 0);
      texts.forEach((one, i) => {
        if (one.box.left < frame.left - 1 || one.box.right > frame.right + 1) found.push(`${one.words} leaves its figure`);
        for (const other of texts.slice(i + 1)) {
          // A turned text's box is larger than the text.
          if (one.turned && other.turned) continue;
          const across = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
          const down = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
          if (across > 1 && down > 3) found.push(`${one.words} | ${other.words}`);
        }
      });
    }
    return found;
  });
}

const headlineLines = (page) => page.locator('h1').evaluate((h1) => Math.round(h1.clientHeight / parseFloat(getComputedStyle(h1).lineHeight)));

for (const [name, width] of [['many', 1280], ['many', 390], ['small', 1280], ['small', 390], ['sweep', 1280], ['sweep', 390], ['reproduction', 1280], ['reproduction', 390], ['huge', 390]]) {
  test(`no two labels lie on one another, and the headline is short: ${name}, ${width} pixels`, async () => {
    const { page, done } = await open(name, { viewport: { width, height: 900 } });
    assert.deepEqual(await collisions(page), []);
    assert.ok(await headlineLines(page) <= 3, await page.locator('h1').textContent());
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= width, `${wide}`);
    assert.doesNotMatch(await page.locator('main').innerText(), /\+-| -\d/);
    await done();
  });
}

test('no colour means two things, in light and in dark', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const { page, done } = await open('small', { colorScheme });
    const close = await page.evaluate(() => {
      const read = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
      const all = [...Array.from({ length: 8 }, (_, i) => `path-${i}`), ...Array.from({ length: 7 }, (_, i) => `candidate-${i}`), 'retransmitted', 'reinjected', 'duplicated'];
      const lab = all.map((name) => [name, d3.lab(read(name))]);
      const pairs = lab.flatMap(([a, one], i) => lab.slice(i + 1).map(([b, other]) => [a, b, Math.hypot(one.l - other.l, one.a - other.a, one.b - other.b)]));
      return pairs.filter(([, , distance]) => distance < 14).map(([a, b, distance]) => `${a} and ${b}: ${distance.toFixed(1)}`);
    });
    assert.deepEqual(close, [], colorScheme);
    await done();
  }
});

test('a candidate has one colour in every chart, and keeps it', async () => {
  const { page, done } = await open('small');
  const colours = () => page.evaluate(() => {
    const probe = document.createElement('i');
    document.body.append(probe);
    const plain = (colour) => { probe.style.color = colour; return getComputedStyle(probe).color; };
    const chips = Object.fromEntries([...document.querySelectorAll('.chips button[aria-pressed=true]')]
      .map((chip) => [chip.textContent, plain(getComputedStyle(chip.querySelector('i')).backgroundColor)]));
    const names = [...document.querySelectorAll('#ranking g[aria-label="y-axis tick label"] text')].map((text) => text.textContent);
    const dots = [...document.querySelectorAll('#ranking g[aria-label=dot] > *')].map((dot) => plain(dot.getAttribute('stroke')));
    const ends = Object.fromEntries([...document.querySelectorAll('#times figure:first-child g[aria-label=text] text')].map((text) => [text.textContent, plain(getComputedStyle(text).fill)]));
    probe.remove();
    return { chips, dots: Object.fromEntries(names.map((name, i) => [name, dots[i]])), ends };
  });
  const first = await colours();
  assert.ok(Object.keys(first.chips).length >= 3);
  assert.equal(new Set(Object.values(first.chips)).size, Object.keys(first.chips).length);
  for (const [name, chip] of Object.entries(first.chips)) {
    assert.equal(first.dots[name], chip, name);
    assert.equal(first.ends[name], chip, name);
  }
  await page.locator('.chips button[aria-pressed=false]').first().click();
  const later = await colours();
  for (const [name, chip] of Object.entries(first.chips)) assert.equal(later.chips[name], chip, name);
  assert.equal(Object.keys(later.chips).length, Object.keys(first.chips).length + 1);
  await done();
});

test('who is far off leaves the ranking’s chart instead of squashing it', async () => {
  const { page, done } = await open('many');
  await page.locator('#ranking .tabs button', { hasText: /^64 KiB$/ }).click();
  const [marks, values, rows] = await page.locator('#ranking figure').first().evaluate((figure) => [
    figure.querySelectorAll('g[aria-label=dot] > *').length,
    [...figure.querySelectorAll('g[aria-label=text] text')].map((text) => text.textContent),
    figure.querySelectorAll('g[aria-label="y-axis tick label"] text').length,
  ]);
  // TCP on LTE takes twice as long, all others differ by per cents.
  assert.equal(values.filter((text) => text === '▶').length, 1);
  assert.equal(marks, rows - 1);
  assert.equal(values.filter((text) => /\d\s(ms|s)$/.test(text)).length, rows);
  await done();
});

test('the end of a run crosses no label', async () => {
  const { page, done } = await open('small');
  for (const number of [0, 1]) {
    const drawing = await saved(page, page.locator('#rope figure').nth(number).locator('.tools').getByText('SVG', { exact: true }));
    const crossed = await page.evaluate((text) => {
      const place = document.createElement('div');
      place.innerHTML = text;
      document.body.append(place);
      const boxes = (selector) => [...place.querySelectorAll(selector)].map((element) => [element.textContent, element.getBoundingClientRect()]);
      const lines = boxes('rect[width="1.5"]').map(([, box]) => box);
      const texts = boxes('text');
      const hit = texts.filter(([, box]) => lines.some((line) => line.left < box.right && line.right > box.left && line.top < box.bottom - 2 && line.bottom > box.top + 2));
      place.remove();
      return { lines: lines.length, texts: texts.length, hit: hit.map(([words]) => words) };
    }, drawing.text);
    assert.ok(crossed.lines >= 6 && crossed.texts > 15, JSON.stringify(crossed));
    assert.deepEqual(crossed.hit, []);
  }
  await done();
});

test('lanes have their paths’ colours', async () => {
  const { page, done } = await open('many');
  const drawing = await saved(page, page.locator('#rope figure').first().locator('.tools').getByText('SVG', { exact: true }));
  const [wifi, lte] = await page.evaluate(() => [0, 1].map((i) => getComputedStyle(document.documentElement).getPropertyValue(`--path-${i}`).trim()));
  const rows = (fill) => [...drawing.text.matchAll(new RegExp(`<rect x="[\\d.]+" y="([\\d.]+)" width="[\\d.]+" height="[\\d.]+" fill="${fill}"`, 'g'))].map((found) => Number(found[1]));
  // Lane by lane: the first lane is above the second.
  const inLane = (fill, top, bottom) => rows(fill).filter((y) => y > top && y < bottom).length;
  const there = [inLane(wifi, 51, 149), inLane(lte, 51, 149), inLane(wifi, 169, 267), inLane(lte, 169, 267)];
  assert.ok(there[0] > 100 && there[1] === 0 && there[2] === 0 && there[3] > 100, `${there}`);
  await done();
});

test('nothing is sent where a wait is shown', async () => {
  const { page, done } = await open('many');
  const waits = await page.evaluate(() => {
    const { ropes } = JSON.parse(document.getElementById('document').textContent);
    const sum = (values) => { let at = 0; return values.map((value) => (at += value)); };
    return ropes.map((rope) => ({ sent: sum(rope.segments.sent), from: sum(rope.waits.from), length: rope.waits.to }));
  });
  let told = 0;
  for (const { sent, from, length } of waits) {
    from.forEach((at, i) => {
      told += 1;
      assert.ok(!sent.some((moment) => moment > at + 1 && moment < at + length[i] - 1), `${at} + ${length[i]}`);
    });
  }
  assert.ok(told > 0, 'some scheduler waits');
  await done();
});

test('zooming ends where there would be nothing to see, and the strip beneath moves what is shown', async () => {
  const { page, done } = await open('small', { viewport: { width: 1280, height: 1400 } });
  await toRope(page);
  await canvas(page).focus();
  const whole = await range(page);
  for (let i = 0; i < 60; i += 1) await page.keyboard.press('+');
  await page.waitForTimeout(100);
  const near = await range(page);
  assert.ok(near[1] - near[0] >= 500, `${near}`);
  assert.ok(near[1] - near[0] < (whole[1] - whole[0]) / 4, `${near}`);
  const box = await canvas(page).boundingBox();
  // A press at a quarter of the strip shows that moment.
  await page.mouse.click(box.x + 54 + (box.width - 62) / 4, box.y + box.height - 18);
  const there = await changed(page, near);
  const middle = (there[0] + there[1]) / 2 / whole[1];
  assert.ok(Math.abs(middle - 0.25) < 0.02, `${middle}`);
  await done();
});

test('a large flow keeps its rope, thinned, and says so', async () => {
  const { page, done } = await open('huge');
  const words = await page.locator('#rope figcaption').allTextContents();
  assert.equal(words.length, 2);
  for (const text of words) {
    assert.match(text, /one in \d+ new ones is shown/);
    const carried = [...text.matchAll(/carried ([\d,]+) segments/g)].map((found) => Number(found[1].replaceAll(',', '')));
    assert.ok(carried[0] + carried[1] > 200000, text);
    assert.match(text, /in \d+\.\d+\ss/);
  }
  const ms = await page.locator('#rope figure').first().evaluate((figure) => Number(figure.dataset.drawMs));
  assert.ok(ms < 1500, `${ms}`);
  await done();
});

test('a sweep’s axes have units, and one far off leaves room for the rest', async () => {
  const { page, done } = await open('sweep');
  const texts = await page.locator('#map figure').evaluateAll((all) => all.map((figure) => [...figure.querySelectorAll('svg text')].map((text) => text.textContent)));
  assert.ok(texts[0].includes('path.lte.rtt, ms ± 8 ms →') && texts[0].includes('↑ path.wifi.loss, %'), texts[0].join('; '));
  assert.ok(texts[1].some((text) => /^tcp lte ↑ \+\d+/.test(text)), texts[1].join('; '));
  const percents = texts[1].map((text) => /^\+([\d.]+) %$/.exec(text)).filter(Boolean).map((found) => Number(found[1]));
  assert.ok(Math.max(...percents) < 60, `${percents}`);
  // The command counts the same first places.
  const standings = await page.evaluate(() => {
    const { points, runners } = JSON.parse(document.getElementById('document').textContent);
    return runners.map((_, who) => points.filter((point) => point.mean[who] <= point.mean[point.best]).length);
  });
  const shown = await page.locator('#standings g[aria-label=text] text').allTextContents();
  for (const first of standings) assert.ok(shown.includes(`${first} of 12`), `${first}: ${shown}`);
  await done();
});

test('a reproduction has a square for each claim, and each figure with what the paper prints', async () => {
  const { page, done } = await open('reproduction');
  const { papers, verdicts } = await page.evaluate(() => JSON.parse(document.getElementById('document').textContent));
  const [paper] = papers;
  assert.match(await page.locator('h1').textContent(), new RegExp(`of ${paper.claims.length} claims of cfs-2019`));
  // A square leads to its claim, whose verdict it names.
  const squares = await page.locator('.square').evaluateAll((all) => all.map((square) => ({
    label: square.getAttribute('aria-label'), colour: getComputedStyle(square).backgroundColor, row: document.querySelector(square.getAttribute('href'))?.textContent,
    own: getComputedStyle(document.querySelector(`${square.getAttribute('href')} .verdict i`)).backgroundColor,
  })));
  assert.equal(squares.length, paper.claims.length);
  for (const { label, row, colour, own } of squares) {
    const [verdict, ...text] = label.split(': ');
    assert.ok(verdicts.includes(verdict) && row.includes(text.join(': ')) && row.includes(verdict), label);
    assert.equal(colour, own);
  }
  // Only what was run is drawn; rings are published numbers, discs and diamonds measured ones.
  const figures = paper.figures.filter((figure) => figure.cells.some((cell) => cell.as_ruled));
  assert.equal(await page.locator('.figures figure').count(), figures.length);
  const [times] = figures;
  const marks = await page.locator('.figures figure').first().evaluate((figure) => [...figure.querySelectorAll('g[aria-label=dot]')].map((group) => group.children.length));
  const cells = (field) => times.cells.filter((cell) => cell[field] !== null).length;
  assert.deepEqual(marks, [cells('as_ruled'), cells('fitted'), cells('published')]);
  assert.ok(marks.every((many) => many === 15), `${marks}`);
  const near = times.cells.filter((cell) => Math.abs(cell.fitted.mean / cell.published - 1) <= 0.25).length;
  assert.match(await page.locator('.figures figcaption').first().textContent(), new RegExp(`fitted, ${near} of 15 published numbers are within 25 %`));
  const table = await saved(page, page.locator('.figures figure').first().locator('.tools').getByText('CSV', { exact: true }));
  assert.match(table.text, /\r\nCFS,128 KB,s,published,1\.64,1\.64,1\.64\r\n/);
  assert.equal(table.text.trimEnd().split('\r\n').length, 1 + 45);
  const drawing = await saved(page, page.locator('.figures figure').first().locator('.tools').getByText('SVG', { exact: true }));
  assert.doesNotMatch(drawing.text, /NaN|undefined|var\(/);
  assert.doesNotMatch(await page.locator('main').textContent(), /NaN|undefined|Infinity|\[object/);
  await done();
});

test('the command and the page say the same', async () => {
  const { page, done } = await open('many');
  const text = readFileSync(`${process.env.PAGES}/many.txt`, 'utf8');
  const plain = (words) => words.replaceAll('\u00a0', ' ').replaceAll('−', '-').replace(/\s+/g, ' ').trim();
  const said = plain(text).replaceAll('`', '');
  for (const part of ['h1', '.named', 'main > .lead']) {
    const sentences = (await page.locator(part).allTextContents()).flatMap((words) => plain(words).split(/(?<=\.) /));
    for (const words of sentences) assert.ok(said.includes(words.replace(/\.$/, '')), words);
  }
  for (const workload of ['64 KiB', '256 KiB', '1 MiB', '4 MiB']) {
    await page.locator('#ranking .tabs button', { hasText: new RegExp(`^${workload}$`) }).click();
    const rows = await page.locator('#ranking table tbody tr').evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
    const lines = text.split(`One flow of ${workload}\n`)[1].split('\n\n')[0].split('\n').filter((line) => /\d m?s /.test(line));
    assert.equal(rows.length, lines.length);
    // The command rounds to three digits.
    const same = (exact, rounded) => {
      const [, sign, number, unit] = /^\(?([-+]?)([\d.]+) ?(.*?)\)?$/.exec(exact) || [];
      const [, otherSign, short, otherUnit] = /^\(?([-+]?)([\d.]+) ?(.*?)\)?$/.exec(rounded) || [];
      const digit = 10 ** -(short.split('.')[1] || '').length;
      return sign === otherSign && unit === otherUnit && exact.startsWith('(') === rounded.startsWith('(') && Math.abs(number - short) <= digit * 0.51 + 1e-9;
    };
    rows.forEach(([name, mean, , , p95, linux, tcp], i) => {
      const [, place, who, ...told] = /^\s*(\S+)\s+(tcp \S+|\S+)\s+([\d.]+ m?s)\s+(?:[\d.]+ %|-)\s+([\d.]+ m?s)\s+(\(?[-+]?[\d.]+ %\)?|-)\s+(\(?[-+]?[\d.]+ %\)?|-)\s/.exec(lines[i]) || [];
      assert.equal(plain(name), `${place} ${who}`, lines[i]);
      [mean, p95, linux, tcp].map((field) => plain(field).replace('–', '-')).forEach((field, column) => {
        assert.ok(field === told[column] || same(field, told[column]), `${workload}, ${name}: ${field} and ${told[column]}`);
      });
    });
  }
  await done();
});

/** Pages of a PDF. */
const pagesOf = (pdf) => [...pdf.toString('latin1').matchAll(/\/Type\s*\/Page\b(?!s)/g)].length;

for (const name of ['many', 'small', 'large', 'huge', 'sweep', 'reproduction']) {
  test(`printed in colour on at most four pages: ${name}`, async () => {
    const { page, done } = await open(name, { colorScheme: 'dark' });
    const screen = await page.evaluate(() => document.querySelector('figure').clientWidth);
    await page.evaluate(() => addEventListener('beforeprint', () => {
      window.printed = {
        // Charts are drawn for the paper's width, in the light colours, and ropes as lines.
        figure: document.querySelector('figure').clientWidth,
        theme: document.documentElement.dataset.theme,
        ropes: document.querySelectorAll('#rope figure .rope svg').length,
        exact: getComputedStyle(document.querySelector('.legend i, .chips i')).printColorAdjust,
      };
    }));
    const pdf = await page.pdf({ format: 'A4' });
    assert.ok(pagesOf(pdf) >= 1 && pagesOf(pdf) <= 4, `${pagesOf(pdf)} pages`);
    const printed = await page.evaluate(() => window.printed);
    assert.equal(printed.theme, 'light');
    assert.ok(printed.figure < 700 && printed.figure > 600, `${printed.figure}`);
    assert.equal(printed.ropes, ['sweep', 'reproduction'].includes(name) ? 0 : 2);
    // Afterwards all is as it was.
    await page.waitForTimeout(100);
    assert.equal(await page.evaluate(() => document.querySelector('figure').clientWidth), screen);
    assert.equal(await page.locator('.rope svg').count(), 0);
    await page.emulateMedia({ media: 'print' });
    assert.equal(await page.evaluate(() => getComputedStyle(document.querySelector('.legend')).printColorAdjust), 'exact');
    await done();
  });
}

test('on paper there is no furniture', async () => {
  const { page, done } = await open('small');
  await page.emulateMedia({ media: 'print' });
  assert.ok(await page.locator('.top').isHidden());
  assert.ok(await page.locator('figure .tools').first().isHidden());
  const paper = await page.pdf({ format: 'A4' });
  assert.ok(paper.length > 20000);
  await done();
});
