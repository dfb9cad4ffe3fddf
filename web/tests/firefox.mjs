// Headless Firefox, driven by WebDriver BiDi: a page, what is evaluated in it, and what it complains of.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Why there is none; null: there is. */
export function whyNoFirefox() {
  if (!process.env.FIREFOX) return 'there is no Firefox here';
  return globalThis.WebSocket ? null : 'node has no WebSocket: version 22, or 20 with --experimental-websocket';
}

/** Starts it. `evaluate(expression)` awaits the expression's value, which must be JSON; `close()` tells the complaints. */
export async function firefox(address) {
  const profile = mkdtempSync(join(tmpdir(), 'firefox-'));
  const program = spawn(process.env.FIREFOX, ['--headless', '--no-remote', '--profile', profile, '--remote-debugging-port', '0'], { stdio: ['ignore', 'ignore', 'pipe'] });
  const complaints = [];
  const waiting = new Map();
  let next = 0;
  const socket = await new Promise((found, fail) => {
    let said = '';
    program.on('exit', () => fail(new Error(`Firefox ended: ${said}`)));
    program.stderr.on('data', (text) => {
      said += text;
      const at = /WebDriver BiDi listening on (ws:\S+)/.exec(said)?.[1];
      if (at) found(new WebSocket(`${at}/session`));
    });
  });
  await new Promise((open, fail) => { socket.onopen = open; socket.onerror = fail; });
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.method === 'log.entryAdded' && ['error', 'warn'].includes(message.params.level)) complaints.push(message.params.text);
    if (message.method === 'network.beforeRequestSent' && !/^(file|data|blob|about):/.test(message.params.request.url)) complaints.push(`fetches ${message.params.request.url}`);
    const asked = waiting.get(message.id);
    if (!asked) return;
    waiting.delete(message.id);
    if (message.type === 'error') asked.fail(new Error(`${message.error}: ${message.message}`));
    else asked.hear(message.result);
  };
  const call = (method, params) => new Promise((hear, fail) => {
    next += 1;
    waiting.set(next, { hear, fail });
    socket.send(JSON.stringify({ id: next, method, params }));
  });
  await call('session.new', { capabilities: {} });
  await call('session.subscribe', { events: ['log.entryAdded', 'network.beforeRequestSent'] });
  const { context } = await call('browsingContext.create', { type: 'tab' });
  await call('browsingContext.navigate', { context, url: address, wait: 'complete' });
  const evaluate = async (expression) => {
    const told = await call('script.evaluate', { expression: `Promise.resolve(${expression}).then(JSON.stringify)`, target: { context }, awaitPromise: true });
    if (told.type === 'exception') throw new Error(told.exceptionDetails.text);
    return told.result.value === undefined ? undefined : JSON.parse(told.result.value);
  };
  const close = async () => {
    const ended = new Promise((end) => program.on('exit', end));
    socket.close();
    program.kill();
    await ended;
    rmSync(profile, { recursive: true, force: true });
    return complaints;
  };
  return { evaluate, close };
}
