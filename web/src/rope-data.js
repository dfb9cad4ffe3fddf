// A traced run: from the compact columns of the document to arrays, and what follows from them.
// Times are microseconds from the run's start.

const KINDS = ['new', 'retransmitted', 'reinjected', 'duplicated'];

function undelta(values) {
  const result = new Float64Array(values.length);
  let sum = 0;
  for (let i = 0; i < values.length; i += 1) {
    sum += values[i];
    result[i] = sum;
  }
  return result;
}

function unrun(runs, into) {
  let place = 0;
  for (let i = 0; i < runs.length; i += 2) {
    into.fill(runs[i], place, place + runs[i + 1]);
    place += runs[i + 1];
  }
  return into;
}

function unrunAll(runs) {
  let length = 0;
  for (let i = 1; i < runs.length; i += 2) length += runs[i];
  return unrun(runs, new Float64Array(length));
}

/** Puts templates and numbers together: `#1` is a number with one decimal. */
function decodeReasons(raw) {
  const template = unrunAll(raw.template);
  const parts = raw.templates.map((text) => text.split(/(#[#0-9])/));
  const start = new Uint32Array(template.length + 1);
  const needs = parts.map((list) => list.filter((part) => /^#[0-9]$/.test(part)).length);
  for (let i = 0; i < template.length; i += 1) start[i + 1] = start[i] + needs[template[i]];
  return (index) => {
    if (index < 0 || index >= template.length) return null;
    let number = start[index];
    return parts[template[index]].map((part) => {
      if (part === '##') return '#';
      if (!/^#[0-9]$/.test(part)) return part;
      const decimals = Number(part[1]);
      const text = String(raw.numbers[number]).padStart(decimals + 1, '0');
      number += 1;
      return decimals ? `${text.slice(0, -decimals)}.${text.slice(-decimals)}` : text;
    }).join('');
  };
}

/** All arrays of a run. */
function decodeRope(raw) {
  const s = raw.segments;
  const n = s.count;
  const sent = undelta(s.sent);
  const arrived = new Float64Array(n);
  const acked = new Float64Array(n);
  const length = unrun(s.length, new Uint32Array(n));
  const jump = unrun(s.jump, new Float64Array(n));
  const offset = new Float64Array(n);
  let end = 0;
  for (let i = 0; i < n; i += 1) {
    arrived[i] = s.arrived[i] < 0 ? NaN : sent[i] + s.arrived[i];
    acked[i] = s.acked[i] < 0 ? NaN : sent[i] + s.acked[i];
    offset[i] = end + jump[i];
    end = offset[i] + length[i];
  }
  const waitFrom = undelta(raw.waits.from);
  // Of a run with too many segments to draw, one that is here stands for so many of its kind.
  const thinned = raw.thinned || null;
  return {
    ranking: raw.ranking,
    scheduler: raw.scheduler,
    run: raw.run,
    seed: raw.seed,
    outcome: raw.outcome,
    duration: raw.duration_us,
    bytes: raw.bytes,
    paths: raw.paths,
    shortened: raw.shortened === true,
    thinned,
    weights: thinned ? thinned.weights : [1, 1, 1, 1],
    count: n,
    sent,
    arrived,
    acked,
    offset,
    length,
    path: unrun(s.path, new Uint8Array(n)),
    kind: unrun(s.kind, new Uint8Array(n)),
    connection: unrun(s.connection, new Uint32Array(n)),
    reason: undelta(s.reason),
    reasonText: decodeReasons(raw.reasons),
    waits: {
      count: waitFrom.length,
      from: waitFrom,
      to: waitFrom.map((from, i) => from + raw.waits.to[i]),
      connection: unrun(raw.waits.connection, new Uint32Array(waitFrom.length)),
      reason: undelta(raw.waits.reason),
    },
    samples: raw.samples.map((sample) => ({
      connection: sample.connection,
      t: undelta(sample.t),
      windowLeft: unrunAll(sample.window_left),
      delivered: sample.delivered ? undelta(sample.delivered) : null,
      held: sample.held ? undelta(sample.held) : null,
      paths: sample.paths.map((path) => ({
        cwnd: unrunAll(path.cwnd),
        ssthresh: unrunAll(path.ssthresh),
        srtt: unrunAll(path.srtt),
        inFlight: unrunAll(path.in_flight),
      })),
    })),
  };
}

/** Numbers in a heap, least first. */
class Heap {
  constructor(less) {
    this.items = [];
    this.less = less;
  }

  get size() {
    return this.items.length;
  }

  push(item) {
    const { items, less } = this;
    let place = items.push(item) - 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if (!less(item, items[parent])) break;
      items[place] = items[parent];
      place = parent;
    }
    items[place] = item;
  }

  pop() {
    const { items, less } = this;
    const first = items[0];
    const last = items.pop();
    if (items.length) {
      let place = 0;
      for (;;) {
        let child = 2 * place + 1;
        if (child >= items.length) break;
        if (child + 1 < items.length && less(items[child + 1], items[child])) child += 1;
        if (!less(items[child], last)) break;
        items[place] = items[child];
        place = child;
      }
      items[place] = last;
    }
    return first;
  }
}

/** When a segment's mark ends: heard of, or at least arrived, or the run's end. */
function markEnd(rope, i) {
  if (!Number.isNaN(rope.acked[i])) return rope.acked[i];
  return rope.duration;
}

/**
 * Gives each segment a row in its lane, the lowest that is free while it is under way: a lane is as thick as its
 * subflow has segments in flight.
 */
function packRows(rope) {
  const row = new Uint32Array(rope.count);
  const rows = rope.paths.map(() => 0);
  const busy = rope.paths.map(() => new Heap((a, b) => a[0] < b[0]));
  const free = rope.paths.map(() => new Heap((a, b) => a < b));
  for (let i = 0; i < rope.count; i += 1) {
    const path = rope.path[i];
    while (busy[path].size && busy[path].items[0][0] <= rope.sent[i]) free[path].push(busy[path].pop()[1]);
    // What is rare in a thinned run stands for less than a row: it lies over the others.
    if (rows[path] > 0 && rope.weights[rope.kind[i]] < rope.weights[0]) {
      row[i] = busy[path].size % rows[path];
      continue;
    }
    if (!free[path].size) {
      free[path].push(rows[path]);
      rows[path] += 1;
    }
    row[i] = free[path].pop();
    busy[path].push([markEnd(rope, i), row[i]]);
  }
  return { row, rows };
}

/** What the receiver had in order, and what it held out of order, over time: steps. */
function inOrder(rope) {
  const order = [];
  for (let i = 0; i < rope.count; i += 1) if (!Number.isNaN(rope.arrived[i])) order.push(i);
  order.sort((a, b) => rope.arrived[a] - rope.arrived[b] || a - b);
  const streams = new Map();
  const t = [0];
  const delivered = [0];
  const held = [0];
  const lines = new Map();
  let allDelivered = 0;
  let allHeld = 0;
  for (const i of order) {
    let stream = streams.get(rope.connection[i]);
    if (!stream) {
      stream = { next: 0, ranges: [] };
      streams.set(rope.connection[i], stream);
      lines.set(rope.connection[i], { connection: rope.connection[i], t: [0], delivered: [0] });
    }
    let start = Math.max(rope.offset[i], stream.next);
    let end = rope.offset[i] + rope.length[i];
    if (end <= start) continue;
    const { ranges } = stream;
    // Ranges are disjoint and ascending; those that touch the new one join it.
    let low = 0;
    let high = ranges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ranges[middle][1] < start) low = middle + 1;
      else high = middle;
    }
    let last = low;
    while (last < ranges.length && ranges[last][0] <= end) {
      start = Math.min(start, ranges[last][0]);
      end = Math.max(end, ranges[last][1]);
      allHeld -= ranges[last][1] - ranges[last][0];
      last += 1;
    }
    ranges.splice(low, last - low, [start, end]);
    allHeld += end - start;
    if (ranges[0][0] <= stream.next) {
      const [from, to] = ranges.shift();
      allHeld -= to - from;
      allDelivered += to - stream.next;
      stream.next = to;
      const line = lines.get(rope.connection[i]);
      line.t.push(rope.arrived[i]);
      line.delivered.push(to);
    }
    t.push(rope.arrived[i]);
    delivered.push(allDelivered);
    held.push(allHeld);
  }
  return {
    t: Float64Array.from(t),
    delivered: Float64Array.from(delivered),
    held: Float64Array.from(held),
    lines: [...lines.values()].map((line) => ({ ...line, t: Float64Array.from(line.t), delivered: Float64Array.from(line.delivered) })),
  };
}

/** The same from samples, where not every segment is here. */
function sampledOrder(rope) {
  const lines = rope.samples.map((sample) => ({ connection: sample.connection, t: sample.t, delivered: sample.delivered }));
  if (lines.length === 1) return { t: lines[0].t, delivered: lines[0].delivered, held: rope.samples[0].held, lines };
  // Steps of all connections together.
  const steps = rope.samples.flatMap((sample, s) => Array.from(sample.t, (t, i) => [t, s, i])).sort((a, b) => a[0] - b[0]);
  const now = rope.samples.map(() => [0, 0]);
  const [t, delivered, held] = [[], [], []];
  for (const [at, s, i] of steps) {
    now[s] = [rope.samples[s].delivered[i], rope.samples[s].held[i]];
    t.push(at);
    delivered.push(now.reduce((sum, [value]) => sum + value, 0));
    held.push(now.reduce((sum, [, value]) => sum + value, 0));
  }
  return { t: Float64Array.from(t), delivered: Float64Array.from(delivered), held: Float64Array.from(held), lines };
}

/** Columns of the minimap. */
const OVERVIEW = 240;

/** By path: segments in flight on average in each part of the run. */
function overviewOf(rope) {
  const each = rope.duration / OVERVIEW;
  const lanes = rope.paths.map(() => new Float32Array(OVERVIEW));
  if (each <= 0) return lanes;
  for (let i = 0; i < rope.count; i += 1) {
    const [a, b] = [rope.sent[i] / each, Math.min(OVERVIEW, markEnd(rope, i) / each)];
    for (let bin = Math.floor(a); bin < b; bin += 1) {
      lanes[rope.path[i]][bin] += rope.weights[rope.kind[i]] * (Math.min(b, bin + 1) - Math.max(a, bin));
    }
  }
  return lanes;
}

/** The least span that a zoom shows, microseconds: about twenty segments, and no less than half a millisecond. */
function leastSpan(ropes) {
  const spans = ropes.filter((rope) => rope.count > 0).map((rope) => (20 * rope.duration) / rope.count);
  return Math.max(500, ...spans);
}

/** The last index whose value is at most `limit`; -1 if none. */
function lastAtMost(sorted, limit) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The greatest value of steps between two moments. */
function mostBetween(t, values, from, to) {
  let most = 0;
  for (let i = Math.max(0, lastAtMost(t, from)); i < t.length && t[i] <= to; i += 1) most = Math.max(most, values[i]);
  return most;
}

/** What the axes of a view must have room for between two moments. */
function extents(rope, from, to) {
  const result = { rows: rope.paths.map(() => 4), cwnd: 1, srtt: 1, held: mostBetween(rope.order.t, rope.order.held, from, to), low: Infinity, high: 0 };
  const first = lastAtMost(rope.sent, from - rope.longest - 1) + 1;
  const last = lastAtMost(rope.sent, to) + 1;
  for (let i = first; i < last; i += 1) {
    const lane = rope.path[i];
    // In segments: a row of a thinned run stands for several.
    const tall = (rope.row[i] + 1) * rope.weights[0];
    if (tall > result.rows[lane] && markEnd(rope, i) >= from) result.rows[lane] = tall;
    if (rope.arrived[i] >= from && rope.arrived[i] <= to) {
      const offset = rope.base.get(rope.connection[i]) + rope.offset[i];
      result.low = Math.min(result.low, offset);
      result.high = Math.max(result.high, offset + rope.length[i]);
    }
  }
  for (const line of rope.order.lines) {
    const base = rope.base.get(line.connection);
    const at = (t) => base + (line.delivered[Math.max(0, lastAtMost(line.t, t))] || 0);
    result.low = Math.min(result.low, at(from));
    result.high = Math.max(result.high, at(to));
  }
  for (const sample of rope.samples) {
    for (const path of sample.paths) {
      result.cwnd = Math.max(result.cwnd, mostBetween(sample.t, path.cwnd, from, to));
      result.srtt = Math.max(result.srtt, mostBetween(sample.t, path.srtt, from, to));
    }
  }
  if (result.low > result.high) result.low = result.high;
  return result;
}

/** Axes on which two runs can be compared. */
function axesOf(all) {
  const most = (of) => Math.max(...all.map(of));
  const low = Math.min(...all.map((one) => one.low));
  const high = Math.max(low + 1, most((one) => one.high));
  const room = (high - low) * 0.04;
  return {
    rows: all[0].rows.map((_, lane) => Math.ceil(roundUp(most((one) => one.rows[lane] || 4)))),
    cwnd: roundUp(most((one) => one.cwnd)),
    srtt: roundUp(most((one) => one.srtt)),
    held: Math.max(1, most((one) => one.held)),
    low: Math.max(0, low - room),
    high: high + room,
    // Without the room.
    first: low,
    last: high,
  };
}

/** A run made ready to be drawn. */
function prepareRope(raw) {
  const rope = decodeRope(raw);
  const { row, rows } = packRows(rope);
  const order = rope.thinned ? sampledOrder(rope) : inOrder(rope);
  let longest = 0;
  const ends = new Map();
  for (let i = 0; i < rope.count; i += 1) {
    longest = Math.max(longest, markEnd(rope, i) - rope.sent[i]);
    ends.set(rope.connection[i], Math.max(ends.get(rope.connection[i]) || 0, rope.offset[i] + rope.length[i]));
  }
  // Streams stand on one another, so that each has an in-order line of its own.
  const base = new Map();
  let height = 0;
  for (const connection of [...ends.keys()].sort((a, b) => a - b)) {
    base.set(connection, height);
    height += ends.get(connection);
  }
  const merged = [];
  for (let i = 0; i < rope.waits.count; i += 1) {
    const last = merged[merged.length - 1];
    if (last && rope.waits.from[i] <= last[1]) last[1] = Math.max(last[1], rope.waits.to[i]);
    else merged.push([rope.waits.from[i], rope.waits.to[i]]);
  }
  return {
    ...rope,
    row,
    rows,
    order,
    longest,
    base,
    merged,
    overview: overviewOf(rope),
    mostHeld: order.held.reduce((a, b) => Math.max(a, b), 0),
  };
}

/** What a run shows, in words. */
function ropeSummary(rope) {
  let kinds = [0, 0, 0, 0];
  let onPath = rope.paths.map(() => 0);
  let lost = 0;
  for (let i = 0; i < rope.count; i += 1) {
    kinds[rope.kind[i]] += 1;
    onPath[rope.path[i]] += 1;
    if (Number.isNaN(rope.arrived[i]) && rope.sent[i] + 1 < rope.duration && !Number.isNaN(rope.acked[i])) lost += 1;
  }
  if (rope.thinned) ({ kinds, paths: onPath, lost } = rope.thinned);
  const all = Math.max(1, onPath.reduce((a, b) => a + b, 0));
  const shares = rope.paths.map((name, i) => `${name} carried ${count(onPath[i], 'segment')} (${digits(100 * onPath[i] / all, 0)}\u00a0%)`);
  const waited = rope.merged.reduce((sum, [from, to]) => sum + to - from, 0);
  return [
    `${rope.scheduler}, run ${rope.run + 1} (seed ${rope.seed}): ${bytes(rope.bytes)} in ${time(rope.duration / 1e6)}.`,
    `${shares.join(', ')}.`,
    `${count(lost, 'segment')} lost, ${kinds[1]} retransmitted, ${kinds[2]} reinjected, ${kinds[3]} duplicated.`,
    rope.merged.length ? `For ${time(waited / 1e6)} in all, in ${count(rope.merged.length, 'stretch', 'stretches')}, nothing was sent because the scheduler waited.` : 'The scheduler never left all paths unused to wait for a better one.',
    `At most ${bytes(rope.mostHeld)} stood in the out-of-order queue.`,
    rope.thinned ? `Too many segments to draw: one in ${rope.weights[0].toLocaleString('en')} new ones is shown.` : '',
    rope.shortened ? 'Only this beginning of the flow was traced.' : '',
    rope.outcome === 'complete' ? '' : `The run did not complete: ${rope.outcome}.`,
  ].filter(Boolean).join(' ');
}

const ROPE_COLUMNS = ['sent_us', 'arrived_us', 'acked_us', 'path', 'kind', 'connection', 'offset', 'length', 'reason'];

function ropeRows(rope) {
  const number = (value) => (Number.isNaN(value) ? null : value);
  return Array.from({ length: rope.count }, (_, i) => [rope.sent[i], number(rope.arrived[i]), number(rope.acked[i]),
    rope.paths[rope.path[i]], KINDS[rope.kind[i]], rope.connection[i], rope.offset[i], rope.length[i], rope.reasonText(rope.reason[i])]);
}
