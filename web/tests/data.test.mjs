// What the page works out from a trace, against plain ways of doing the same.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './load.mjs';

const { prepareRope, leastSpan, decodeReasons, axesOf, extents, ropeSummary, csv, time, bytes, change, roundUp, quantile } = load(
  ['numbers.js', 'rope-data.js', 'download.js'],
  ['prepareRope', 'leastSpan', 'decodeReasons', 'axesOf', 'extents', 'ropeSummary', 'csv', 'time', 'bytes', 'change', 'roundUp', 'quantile'],
);

/** Numbers that look random and are always the same. */
function random(seed) {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const runs = (values) => values.flatMap((value) => [value, 1]);
const deltas = (values) => values.map((value, i) => value - (i ? values[i - 1] : 0));

/** A trace in the document's form from plain segments. */
function raw(segments, more = {}) {
  let end = 0;
  const jump = segments.map((s) => {
    const distance = s.offset - end;
    end = s.offset + s.length;
    return distance;
  });
  return {
    ranking: 0, scheduler: 'x', run: 0, seed: 1, outcome: 'complete', duration_us: 100000, bytes: 1000, paths: ['a', 'b'],
    segments: {
      count: segments.length,
      sent: deltas(segments.map((s) => s.sent)),
      arrived: segments.map((s) => (s.arrived === null ? -1 : s.arrived - s.sent)),
      acked: segments.map((s) => (s.acked === null ? -1 : s.acked - s.sent)),
      path: runs(segments.map((s) => s.path)),
      kind: runs(segments.map((s) => s.kind || 0)),
      jump: runs(jump),
      length: runs(segments.map((s) => s.length)),
      connection: runs(segments.map((s) => s.connection || 0)),
      reason: deltas(segments.map(() => -1)),
    },
    waits: { connection: [], from: [], to: [], reason: [] },
    reasons: { templates: [], template: [], numbers: [] },
    samples: [],
    ...more,
  };
}

function randomTrace(seed) {
  const next = random(seed);
  const segments = [];
  let sent = 0;
  for (let i = 0; i < 400; i += 1) {
    sent += next(200);
    const arrived = next(10) ? sent + 500 + next(9000) : null;
    segments.push({
      sent, arrived, acked: next(12) ? sent + 10000 + next(5000) : null, path: next(2), kind: next(4), connection: next(3), offset: 100 * next(120), length: 100 + 50 * next(3),
    });
  }
  return segments;
}

test('the in-order line and the out-of-order queue are what a byte map says', () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    const segments = randomTrace(seed);
    const { order } = prepareRope(raw(segments));
    const have = new Map();
    const arrivals = segments.map((s, i) => [s.arrived, i]).filter(([at]) => at !== null).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    for (const [at, i] of arrivals) {
      const s = segments[i];
      if (!have.has(s.connection)) have.set(s.connection, new Set());
      const bytesThere = have.get(s.connection);
      for (let b = s.offset; b < s.offset + s.length; b += 1) bytesThere.add(b);
      let inOrder = 0;
      let held = 0;
      for (const there of have.values()) {
        let line = 0;
        while (there.has(line)) line += 1;
        inOrder += line;
        held += there.size - line;
      }
      let step = order.t.length - 1;
      while (order.t[step] > at) step -= 1;
      // Several arrivals may share a moment: the last of them counts.
      if (arrivals.filter(([other]) => other === at).at(-1)[1] !== i) continue;
      assert.deepEqual([order.delivered[step], order.held[step]], [inOrder, held], `seed ${seed}, segment ${i}`);
    }
  }
});

test('no two segments share a row while both are under way, and rows are as few as can be', () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    const rope = prepareRope(raw(randomTrace(seed)));
    const end = (i) => (Number.isNaN(rope.acked[i]) ? rope.duration : rope.acked[i]);
    const most = [0, 0];
    for (let i = 0; i < rope.count; i += 1) {
      let together = 1;
      for (let j = 0; j < i; j += 1) {
        if (rope.path[i] !== rope.path[j] || end(j) <= rope.sent[i]) continue;
        together += 1;
        assert.notEqual(rope.row[i], rope.row[j], `seed ${seed}: ${i} and ${j}`);
      }
      most[rope.path[i]] = Math.max(most[rope.path[i]], together);
    }
    assert.deepEqual(rope.rows, most);
  }
});

test('axes have room for what is in view', () => {
  const rope = prepareRope(raw(randomTrace(7)));
  const axes = axesOf([extents(rope, 10000, 20000)]);
  for (let i = 0; i < rope.count; i += 1) {
    const end = Number.isNaN(rope.acked[i]) ? rope.duration : rope.acked[i];
    if (rope.sent[i] > 20000 || end < 10000) continue;
    assert.ok(rope.row[i] < axes.rows[rope.path[i]]);
    if (rope.arrived[i] < 10000 || rope.arrived[i] > 20000) continue;
    const offset = rope.base.get(rope.connection[i]) + rope.offset[i];
    assert.ok(offset >= axes.low && offset + rope.length[i] <= axes.high);
  }
});

test('of a thinned run the samples say what the receiver has, and the totals are the whole run’s', () => {
  const segments = Array.from({ length: 10 }, (_, i) => ({ sent: 1000 * i, arrived: 1000 * i + 500, acked: 1000 * i + 900, path: i % 2, offset: 700 * i, length: 100 }));
  const sample = (connection) => ({ connection, t: [0, 5000, 4000], delivered: [0, 3000, 3500], held: [0, 800, -800], window_left: [9, 3], paths: [] });
  const thinned = { weights: [7, 1, 1, 1], kinds: [70, 2, 0, 0], paths: [40, 32], lost: 3 };
  const rope = prepareRope(raw(segments, { thinned, samples: [sample(0)] }));
  assert.deepEqual([...rope.order.delivered], [0, 3000, 6500]);
  assert.deepEqual([...rope.order.held], [0, 800, 0]);
  assert.match(ropeSummary(rope), /a carried 40 segments \(56\s%\).* 3 segments lost, 2 retransmitted.*At most 800\sB.*one in 7 new ones/);
  // One new segment stands for seven.
  assert.ok(Math.abs(rope.overview[0].reduce((sum, value) => sum + value, 0) / 240 * 100000 - 5 * 7 * 900) < 1);
  // Two connections: their sums.
  const both = prepareRope(raw(segments, { thinned, samples: [sample(0), sample(1)] }));
  assert.deepEqual([both.order.delivered.at(-1), Math.max(...both.order.held)], [13000, 1600]);
});

test('rare segments of a thinned run don’t make its lanes higher, and lanes are measured in segments', () => {
  const segments = Array.from({ length: 60 }, (_, i) => ({ sent: 10 * i, arrived: 10 * i + 5000, acked: 10 * i + 9000, path: 0, kind: i % 3 ? 1 : 0, offset: 100 * i, length: 100 }));
  const thinned = { weights: [7, 1, 1, 1], kinds: [140, 40, 0, 0], paths: [180, 0], lost: 0 };
  const rope = prepareRope(raw(segments, { thinned, samples: [{ connection: 0, t: [0], delivered: [0], held: [0], window_left: [9, 1], paths: [] }] }));
  assert.deepEqual(rope.rows, [20, 0]);
  assert.equal(extents(rope, 0, 10000).rows[0], 140);
});

test('the least span of a zoom has some twenty segments', () => {
  const segments = Array.from({ length: 100 }, (_, i) => ({ sent: 1000 * i, arrived: 1000 * i + 500, acked: 1000 * i + 900, path: 0, offset: 100 * i, length: 100 }));
  assert.equal(leastSpan([prepareRope(raw(segments))]), 20000);
  assert.equal(leastSpan([]), 500);
});

test('reasons are put together again', () => {
  const reason = decodeReasons({ templates: ['least srtt, #1 ms', 'path ##2 of #0', 'plain'], template: [0, 2, 1, 1, 2, 1], numbers: [289, 5, 7] });
  assert.deepEqual([0, 1, 2, 3, 4, -1].map(reason), ['least srtt, 28.9 ms', 'least srtt, 0.5 ms', 'path #2 of 7', 'plain', null, null]);
});

test('a summary names what was lost and repeated', () => {
  const words = ropeSummary(prepareRope(raw([
    { sent: 0, arrived: null, acked: 50, path: 0, offset: 0, length: 500 },
    { sent: 10, arrived: 30, acked: 45, path: 1, offset: 500, length: 500 },
    { sent: 46, arrived: 60, acked: 70, path: 0, offset: 0, length: 500, kind: 1 },
  ])));
  assert.match(words, /a carried 2 segments \(67\s%\), b carried 1 segment \(33\s%\)/);
  assert.match(words, /1 segment lost, 1 retransmitted, 0 reinjected, 0 duplicated/);
  assert.match(words, /At most 500\sB stood in the out-of-order queue/);
});

test('numbers are as people write them', () => {
  // A number and its unit stay on one line.
  const tied = (text) => text.replace(' ', '\u00a0');
  assert.deepEqual([0.0000004, 0.0123, 0.9999, 1.5, 250].map(time), ['0 µs', '12.3 ms', '999.9 ms', '1.500 s', '250.0 s'].map(tied));
  assert.deepEqual([0, 1000, 1536, 1 << 20].map(bytes), ['0 B', '1000 B', '1.5 KiB', '1 MiB'].map(tied));
  assert.deepEqual([1, 0.685, 1.2].map(change), ['0.0 %', '−31.5 %', '+20.0 %'].map(tied));
  assert.deepEqual([0, 1, 130, 168, 9.9].map(roundUp), [1, 1, 150, 200, 10]);
  assert.ok(Math.abs(quantile([1, 2, 3, 4, 10], 0.95) - 8.8) < 1e-12);
});

test('fields of CSV are quoted where they must be', () => {
  assert.equal(csv(['a', 'b'], [['x,y', 'say "hi"'], [null, 'two\nlines']]), 'a,b\r\n"x,y","say ""hi"""\r\n,"two\nlines"\r\n');
});
