// The status page of a running proxy, in headless Chromium: `tests/status-stage` starts both.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';

const base = process.env.STATUS_PAGE;
const options = { skip: base ? false : 'tests/status-stage runs it' };
let browser;
before(async () => {
  if (!base) return;
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync'] });
});
after(() => browser?.close());

/** Opens the page; `state` answers in the proxy's place, where it is given. Fails the test for anything the page complains of. */
async function open(state) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const complaints = [];
  page.on('console', (message) => { if (['error', 'warning'].includes(message.type())) complaints.push(message.text()); });
  page.on('pageerror', (error) => complaints.push(error.stack));
  page.on('request', (request) => { if (!request.url().startsWith(base) && !request.url().startsWith('data:')) complaints.push(`fetches ${request.url()}`); });
  if (state) await page.route('**/state', (route) => route.fulfill({ json: state }));
  await page.goto(base);
  await page.waitForSelector('.link');
  return { page, complaints, done: async () => { assert.deepEqual(complaints, []); await page.close(); } };
}

test('a running proxy shows its links, a download over both, and why', options, async () => {
  const { page, done } = await open();
  const connection = page.locator('button.expand', { hasText: '10.9.9.9:80' }).first();
  await connection.waitFor({ timeout: 20000 });
  assert.match(await page.locator('h1').textContent(), /^Both links work: 1 connection, /);
  assert.deepEqual(await page.locator('.link h3').allTextContents(), ['up0', 'up1']);
  assert.match(await page.locator('.link').nth(1).textContent(), /metered.*of 500\sMB, anew on/);
  // Rates follow.
  await page.waitForFunction(() => /[1-9][\d.]*\sMbit/.test(document.querySelector('.rates b').textContent), null, { timeout: 20000 });
  await page.waitForFunction(() => document.querySelectorAll('.shares i').length === 2, null, { timeout: 20000 });
  await connection.click();
  assert.equal(await connection.getAttribute('aria-expanded'), 'true');
  const why = await page.locator('tr.details').textContent();
  assert.match(why, /Policy linux, since no rule fits\. Opened on up0\..*up0 active every link that works is used/);
  // It stays open, and in focus, when the next answer comes.
  const rate = await page.locator('h1').textContent();
  await page.waitForFunction((before) => document.querySelector('h1').textContent !== before, rate, { timeout: 20000 });
  assert.equal(await page.locator('tr.details').count(), 1);
  assert.equal(await page.evaluate(() => document.activeElement.dataset.key), await connection.getAttribute('data-key'));
  await done();
});

const link = (name, more) => ({
  interface: name, state: 'up', address: '192.0.2.7', metered: false, backup: false, price: 0, rate_limit_bits_per_s: null, rtt_s: 0.0123, probes_lost: 0,
  rate_down_bits_per_s: 1e6, rate_up_bits_per_s: 2e5, bytes_sent: 1000, bytes_received: 2000, quota: null, past: [[1, 2], [1e6, 2e5]], ...more,
});
const proxy = { kind: 'proxy', draining: false, age_s: 3725, listen: '127.0.0.1:1080', policy: 'fastest', rules: 2, connections_open: 0, connections_opened: 5, connections_failed: 1, connections_lost: 0, mib: { MPTcpExtMPTCPRetrans: 0, TcpOutSegs: 7 }, connections: [] };

test('a dead link, a used-up quota and hostile names are shown as what they are', options, async () => {
  const hostile = '<img src=x onerror=alert(1)>';
  const links = [link('wlan0', { state: 'dead', rtt_s: null, address: null }), link('wwan0', { state: 'over its quota', quota: { bytes: 1e9, carried: 2e9, until: '2026-12-12' } }), link('sat0')];
  const connections = [{ number: 7, client: '127.0.0.1:5', to: hostile, age_s: 61, multipath: false, scheduler: 'linux', bytes_up: 1, bytes_down: 2048, policy: hostile, rule: 1, opened_on: 'sat0', links: [{ interface: 'wlan0', role: 'not used', why: 'the link is dead' }], subflows: [], decisions: [{ what: '5 bytes on sat0', why: 'least srtt' }] }];
  const { page, done } = await open({ ...proxy, links, connections, connections_open: 1 });
  assert.match(await page.locator('h1').textContent(), /^1 of 3 links works: 1 connection, /);
  assert.equal(await page.locator('.pill.wrong').count(), 2);
  assert.equal(await page.locator('.link.idle').count(), 2);
  assert.equal(await page.locator('.meter i.full').count(), 1);
  assert.match(await page.locator('.kicker').textContent(), /policy fastest and 2 rules · running for 1\sh 2\smin · 5 connections opened, 1 not, 0 lost/);
  await page.locator('button.expand').click();
  assert.match(await page.locator('tr.details').textContent(), /from rule 1.*wlan0 not used the link is dead.*5 bytes on sat0 least srtt/);
  assert.equal(await page.locator('#page img').count(), 0);
  await page.locator('#counters summary').click();
  assert.match(await page.locator('#counters').textContent(), /1 that aren’t 0.*TcpOutSegs7/);
  await page.setViewportSize({ width: 380, height: 800 });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  assert.ok(wide <= 380, `${wide} pixels on a phone`);
  await done();
});

test('a gateway of which one answer is known has no rates yet, and two addresses of an interface have their own', options, async () => {
  const { page, done } = await open();
  let asked = 0;
  await page.route('**/state', async (route) => {
    asked += 1;
    if (asked > 2) return;
    const path = (number, bytes) => ({ device: `rope-gw${number}`, interface: 'eth0', address: `192.0.2.${number}`, ports: [80], state: 'up', bytes_sent: bytes * asked, bytes_received: 0 });
    route.fulfill({ json: { kind: 'gateway', draining: false, paths: [path(1, 1e6), path(2, 0)], connections_open: 0, connections_accepted: 0, connections_refused: 0, connections_unreachable: 0, connections_client_lost: 0, connections_backend_lost: 0, mib: {}, connections: [] } });
  });
  const headline = (pattern) => page.waitForFunction((words) => new RegExp(words).test(document.querySelector('h1')?.textContent), pattern, { timeout: 20000 });
  await headline('^Both addresses work: 0 connections$');
  await headline('^Both addresses work: 0 connections, ');
  const rates = await page.locator('.rates > b').allTextContents();
  assert.match(rates[0], /Mbit/);
  assert.match(rates[1], /^0\sbit/);
  assert.deepEqual(await page.locator('.link h3').allTextContents(), ['192.0.2.1', '192.0.2.2']);
  const swatches = await page.locator('.link').evaluateAll((cards) => cards.map((card) => card.style.getPropertyValue('--swatch')));
  assert.equal(swatches[0], swatches[1], 'one interface, one colour');
  await done();
});

test('a gateway has rates from its bytes, and a page without answers says so', options, async () => {
  let sent = 0;
  const { page, complaints } = await open();
  await page.route('**/state', (route) => {
    sent += 1e6;
    const paths = [{ device: 'rope-gw0', interface: 'eth0', address: '192.0.2.1', ports: [80, 443], state: 'up', bytes_sent: sent, bytes_received: 0 }];
    route.fulfill({ json: { kind: 'gateway', draining: true, paths, connections_open: 0, connections_accepted: 3, connections_refused: 0, connections_unreachable: 0, connections_client_lost: 1, connections_backend_lost: 1, mib: {}, connections: [] } });
  });
  await page.waitForFunction(() => /^The address works: 0 connections, [1-9][\d.]*\sMbit/.test(document.querySelector('h1')?.textContent), null, { timeout: 20000 });
  assert.match(await page.locator('.kicker').textContent(), /^Gateway · 3 connections accepted.*2 lost · ending/);
  assert.match(await page.locator('.link').textContent(), /ports80, 443/);
  assert.deepEqual(complaints, []);
  await page.unroute('**/state');
  await page.route('**/state', (route) => route.abort());
  await page.waitForFunction(() => /^No answer since .*: what is below is old\.$/.test(document.getElementById('stale').textContent), null, { timeout: 20000 });
  await page.close();
});
