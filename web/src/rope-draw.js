// The rope: lanes of segments, the in-order line, the out-of-order queue, cwnd and srtt, on one time axis; beneath, the
// whole run with what part of it is shown.
// Draws on anything that has a canvas context's methods, so that the SVG one saves is the picture one sees.

/** More marks than this in view are drawn as sums for each column of pixels. */
const MOST_MARKS = 8000;

/** Where everything stands. */
function ropeLayout(width, paths) {
  const narrow = width < 480;
  const left = narrow ? 44 : 54;
  const right = 8;
  const laneHeight = paths > 4 ? 56 : narrow ? 72 : 96;
  const layout = { width, left, right, inner: Math.max(10, width - left - right), lanes: [], panels: {} };
  let y = 24;
  layout.strip = { top: y, height: 7 };
  y += 7 + 5;
  layout.lanesTop = y;
  for (let i = 0; i < paths; i += 1) {
    layout.lanes.push({ top: y + 16, height: laneHeight });
    y += 16 + laneHeight + 6;
  }
  layout.lanesEnd = y - 6;
  for (const [name, height] of [['order', narrow ? 96 : 124], ['held', 50], ['cwnd', 72], ['srtt', 64]]) {
    y += 24;
    layout.panels[name] = { top: y, height };
    y += height;
  }
  layout.bottom = y;
  layout.map = { top: y + 30, height: 26 };
  layout.height = y + 30 + 26 + 6;
  return layout;
}

/** Colours of the theme, read once for a drawing. */
function ropeColours(paths) {
  const names = ['ink', 'soft', 'grid', 'line', 'grey', 'accent', 'card', 'wait', 'wait-back', 'faint'];
  const colours = Object.fromEntries(names.map((name) => [name, colour(name)]));
  colours.paths = paths.map((_, i) => colour(`path-${i % 8}`));
  // A new segment has the colour of its path, a repetition that of its kind.
  const again = KINDS.map((kind) => (kind === 'new' ? null : colour(kind)));
  colours.of = (kind, path) => again[kind] || colours.paths[path];
  return colours;
}

/** The parts of a layout that have the time axis: lanes and panels. */
function framesOf(layout) {
  return [...layout.lanes, ...Object.values(layout.panels)];
}

/** Round steps for an axis. */
function ticks(from, to, most) {
  const raw = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
  const result = [];
  for (let at = Math.ceil(from / step) * step; at <= to + step * 1e-9; at += step) result.push(at);
  return { step, values: result };
}

function timeLabel(micros, step, to) {
  if (step >= 1e6 || (to >= 2e6 && step >= 1e5)) return `${+(micros / 1e6).toFixed(1)} s`;
  if (step >= 1e3) return `${+(micros / 1e3).toFixed(1)} ms`;
  return `${+(micros / 1e3).toFixed(3)} ms`;
}

/** The scale of a view: time to x and back. */
function scaleOf(view) {
  const { layout, from, to } = view;
  const perMicro = layout.inner / (to - from);
  return {
    x: (t) => layout.left + (t - from) * perMicro,
    t: (x) => from + (x - layout.left) / perMicro,
    perMicro,
  };
}

/** Indices of segments that may be in view. */
function visible(rope, from, to) {
  return [lastAtMost(rope.sent, from - rope.longest - 1) + 1, lastAtMost(rope.sent, to) + 1];
}

/** view: { rope, layout, colours, from, to, axes } with axes from `axesOf`. */
function drawRope(ctx, view) {
  const { rope, layout, colours, from, to } = view;
  const scale = scaleOf(view);
  ctx.font = '11px system-ui, "Liberation Sans", sans-serif';
  drawTimeAxis(ctx, view, scale);
  ctx.save();
  ctx.beginPath();
  ctx.rect(layout.left, 0, layout.inner, layout.height);
  ctx.clip();
  drawWaits(ctx, view, scale);
  drawGrid(ctx, view, scale);
  const [first, last] = visible(rope, from, to);
  if (last - first > MOST_MARKS) drawSums(ctx, view, scale, first, last);
  else drawMarks(ctx, view, scale, first, last);
  drawOrder(ctx, view, scale, first, last);
  drawHeld(ctx, view, scale);
  drawSamples(ctx, view, scale);
  drawEnd(ctx, view, scale);
  ctx.restore();
  drawLabels(ctx, view);
  drawMap(ctx, view);
}

function drawGrid(ctx, view, scale) {
  const { layout, colours, from, to } = view;
  ctx.fillStyle = colours.grid;
  for (const at of ticks(from, to, Math.max(2, layout.inner / 90)).values) {
    for (const { top, height } of framesOf(layout)) ctx.fillRect(scale.x(at), top, 1, height);
  }
}

/** The whole run, small: segments in flight by path, and the part that is shown. */
function drawMap(ctx, view) {
  const { rope, layout, colours, from, to, whole } = view;
  const { top, height } = layout.map;
  const x = (t) => layout.left + (t / whole) * layout.inner;
  const bins = rope.overview[0].length;
  const most = Math.max(1, ...Array.from({ length: bins }, (_, bin) => rope.overview.reduce((sum, lane) => sum + lane[bin], 0)));
  const width = x(rope.duration / bins) - layout.left;
  ctx.fillStyle = colours.faint;
  ctx.fillRect(layout.left, top, layout.inner, height);
  for (let bin = 0; bin < bins; bin += 1) {
    let bottom = top + height;
    rope.overview.forEach((lane, path) => {
      const tall = (lane[bin] / most) * (height - 3);
      ctx.fillStyle = colours.paths[path];
      ctx.fillRect(layout.left + bin * width, bottom - tall, width + 0.3, tall);
      bottom -= tall;
    });
  }
  ctx.fillStyle = colours.card;
  ctx.globalAlpha = 0.7;
  ctx.fillRect(layout.left, top, x(from) - layout.left, height);
  ctx.fillRect(x(to), top, Math.max(0, layout.left + layout.inner - x(to)), height);
  ctx.globalAlpha = 1;
  ctx.strokeStyle = colours.soft;
  ctx.lineWidth = 1;
  ctx.strokeRect(x(from) + 0.5, top + 0.5, Math.max(2, x(to) - x(from) - 1), height - 1);
  ctx.fillStyle = colours.soft;
  ctx.textAlign = 'right';
  ctx.fillText('all', layout.left - 5, top + height / 2 + 4);
}

function drawTimeAxis(ctx, view, scale) {
  const { layout, colours, from, to } = view;
  const { step, values } = ticks(from, to, Math.max(2, layout.inner / 90));
  ctx.textBaseline = 'alphabetic';
  for (const at of values) {
    const x = scale.x(at);
    if (x < layout.left - 0.5 || x > layout.left + layout.inner + 0.5) continue;
    ctx.fillStyle = colours.soft;
    ctx.textAlign = x > layout.left + layout.inner - 18 ? 'right' : x < layout.left + 14 ? 'left' : 'center';
    ctx.fillText(timeLabel(at, step, to), x, 14);
    ctx.fillText(timeLabel(at, step, to), x, layout.bottom + 16);
  }
}

/** Times in which nothing was sent because the scheduler waited: a strip, and a shade behind the lanes. */
function drawWaits(ctx, view, scale) {
  const { rope, layout, colours, from, to } = view;
  let pixel = -1;
  for (const [start, end] of rope.merged) {
    if (end < from || start > to) continue;
    const x = scale.x(start);
    const width = Math.max(0.75, (end - start) * scale.perMicro);
    // Of many waits within one pixel, one is drawn.
    if (x + width <= pixel) continue;
    pixel = Math.floor(x + width) + (width < 1 ? 1 : 0);
    ctx.fillStyle = colours['wait-back'];
    for (const { top, height } of layout.lanes) ctx.fillRect(x, top, width, height);
    ctx.fillStyle = colours.wait;
    ctx.fillRect(x, layout.strip.top, width, layout.strip.height);
  }
}

function laneRowHeight(view, lane) {
  return (layoutLane(view, lane).height / view.axes.rows[lane]) * view.rope.weights[0];
}

function layoutLane(view, lane) {
  return view.layout.lanes[lane];
}

/** Every segment a bar: full while it travels, pale while its acknowledgement does, an outline if it was lost. */
function drawMarks(ctx, view, scale, first, last) {
  const { rope, colours, to } = view;
  const heights = rope.paths.map((_, lane) => laneRowHeight(view, lane));
  const bar = (i, start, end, least) => {
    const lane = layoutLane(view, rope.path[i]);
    const rows = heights[rope.path[i]];
    const height = Math.max(least, rows > 4 ? rows - 1 : rows * 0.85);
    const bottom = lane.top + lane.height - rope.row[i] * rows;
    const x = scale.x(start);
    return [x, bottom - height, Math.max(0.8, (end - start) * scale.perMicro), height];
  };
  // What is rare comes last, and is never thinner than one can see.
  const groups = rope.paths.map((_, path) => [0, path]).concat([[3, -1], [2, -1], [1, -1]]);
  for (const [kind, path] of groups) {
    ctx.fillStyle = colours.of(kind, path);
    ctx.strokeStyle = colours.of(kind, path);
    ctx.lineWidth = 1;
    const least = kind ? 1.8 : 0.5;
    for (const pass of ['pale', 'full', 'lost']) {
      ctx.globalAlpha = { pale: 0.36, full: 1, lost: 0.9 }[pass];
      for (let i = first; i < last; i += 1) {
        if (rope.kind[i] !== kind || (path >= 0 && rope.path[i] !== path)) continue;
        const lost = Number.isNaN(rope.arrived[i]);
        if (lost !== (pass === 'lost')) continue;
        const end = Math.min(markEnd(rope, i), to + 1e6);
        if (pass === 'lost') {
          const [x, y, width, height] = bar(i, rope.sent[i], end, 1.2);
          if (height >= 3 && width >= 3) {
            ctx.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
          } else {
            ctx.globalAlpha = 0.5;
            ctx.fillRect(x, y + height / 2 - 0.4, width, 0.8);
          }
        } else if (pass === 'pale') {
          ctx.fillRect(...bar(i, rope.arrived[i], end, least));
        } else {
          ctx.fillRect(...bar(i, rope.sent[i], Math.min(rope.arrived[i], end), least));
        }
      }
    }
  }
  ctx.globalAlpha = 1;
}

/** For each column of pixels and each kind, how many segments were in flight on average. */
function drawSums(ctx, view, scale, first, last) {
  const { rope, layout, colours } = view;
  const columns = Math.ceil(layout.inner);
  const sums = rope.paths.map(() => KINDS.map(() => new Float32Array(columns + 2)));
  const steps = rope.paths.map(() => KINDS.map(() => new Float32Array(columns + 2)));
  for (let i = first; i < last; i += 1) {
    const a = Math.max(0, scale.x(rope.sent[i]) - layout.left);
    const b = Math.min(columns, scale.x(markEnd(rope, i)) - layout.left);
    if (b <= a) continue;
    const from = Math.floor(a);
    const to = Math.floor(b);
    const sum = sums[rope.path[i]][rope.kind[i]];
    // In rows: of a thinned run a row is as many segments as one new one stands for.
    const weight = rope.weights[rope.kind[i]] / rope.weights[0];
    if (from === to) {
      sum[from] += (b - a) * weight;
      continue;
    }
    const step = steps[rope.path[i]][rope.kind[i]];
    sum[from] += (from + 1 - a) * weight;
    sum[to] += (b - to) * weight;
    step[from + 1] += weight;
    step[to] -= weight;
  }
  rope.paths.forEach((_, index) => {
    const lane = layoutLane(view, index);
    const rows = laneRowHeight(view, index);
    const base = new Float32Array(columns);
    for (const kind of [0, 3, 2, 1]) {
      ctx.fillStyle = colours.of(kind, index);
      ctx.globalAlpha = kind ? 1 : 0.85;
      let open = 0;
      for (let x = 0; x < columns; x += 1) {
        open += steps[index][kind][x];
        const value = open + sums[index][kind][x];
        if (value <= 0.001) continue;
        const height = Math.max(kind ? 1.8 : 0.4, value * rows);
        ctx.fillRect(layout.left + x, lane.top + lane.height - base[x] - height, 1, height);
        base[x] += height;
      }
    }
  });
  ctx.globalAlpha = 1;
}

/** Arrivals by their place in the stream, and the line below which all is there. */
function drawOrder(ctx, view, scale, first, last) {
  const { rope, layout, colours } = view;
  const panel = layout.panels.order;
  const y = (offset) => streamY(view, offset);
  ctx.save();
  ctx.beginPath();
  ctx.rect(layout.left, panel.top - 1, layout.inner, panel.height + 2);
  ctx.clip();
  const lines = rope.order.lines.map((line) => [rope.base.get(line.connection), stepsInView(line.t, line.delivered, view, scale)]);
  for (const [base, steps] of lines) {
    ctx.fillStyle = colours.soft;
    ctx.globalAlpha = 0.12;
    ctx.beginPath();
    ctx.moveTo(layout.left, y(base));
    for (const [x, value] of steps) ctx.lineTo(x, y(base + value));
    ctx.lineTo(steps[steps.length - 1][0], y(base));
    ctx.closePath();
    ctx.fill();
  }
  // Of many marks on one pixel, one is drawn.
  const across = Math.ceil(layout.inner) + 2;
  const seen = new Uint8Array(across * (panel.height + 8));
  const size = last - first < 1500 ? 2.4 : 1.4;
  const groups = rope.paths.map((_, path) => [0, path]).concat([[3, -1], [2, -1], [1, -1]]);
  for (const [kind, path] of groups) {
    ctx.fillStyle = colours.of(kind, path);
    ctx.globalAlpha = kind ? 1 : 0.75;
    for (let i = first; i < last; i += 1) {
      if (rope.kind[i] !== kind || (path >= 0 && rope.path[i] !== path) || Number.isNaN(rope.arrived[i])) continue;
      const px = scale.x(rope.arrived[i]);
      const py = middleY(view, i);
      if (py < panel.top - 3 || py > panel.top + panel.height + 3) continue;
      const column = Math.round(px - layout.left);
      if (column < 0 || column >= across) continue;
      const cell = Math.round(py - panel.top + 3) * across + column;
      if (seen[cell] & (1 << kind)) continue;
      seen[cell] |= 1 << kind;
      ctx.fillRect(px - size / 2, py - size / 2, size, size);
    }
  }
  ctx.globalAlpha = 1;
  for (const [base, steps] of lines) strokeSteps(ctx, steps, (value) => y(base + value), colours.ink, lines.length > 1 ? 1 : 1.5);
  ctx.restore();
}

/** A stream position's height in the panel of arrivals. */
function streamY(view, offset) {
  const panel = view.layout.panels.order;
  return panel.top + panel.height - (offset - view.axes.low) / (view.axes.high - view.axes.low) * panel.height;
}

/** The height of a segment's middle. */
function middleY(view, i) {
  const { rope } = view;
  return streamY(view, rope.base.get(rope.connection[i]) + rope.offset[i] + rope.length[i] / 2);
}

/** A step function's corners in view, at most a few for each pixel. */
function stepsInView(t, values, view, scale) {
  const { layout, from, to } = view;
  const corners = [];
  let i = Math.max(0, lastAtMost(t, from));
  let pixel = -Infinity;
  let before = values[i] || 0;
  corners.push([layout.left, before]);
  for (; i < t.length && t[i] <= to; i += 1) {
    const x = Math.max(layout.left, scale.x(t[i]));
    if (x - pixel < 0.5) {
      // Within half a pixel only the last value counts.
      corners[corners.length - 1][1] = values[i];
    } else {
      corners.push([x, before], [x, values[i]]);
      pixel = x;
    }
    before = values[i];
  }
  const end = Math.min(layout.left + layout.inner, scale.x(Math.min(to, view.rope.duration)));
  corners.push([end, before]);
  return corners;
}

function strokeSteps(ctx, corners, y, stroke, width, dash) {
  ctx.strokeStyle = stroke;
  ctx.lineWidth = width;
  ctx.setLineDash(dash || []);
  ctx.beginPath();
  corners.forEach(([x, value], i) => (i ? ctx.lineTo(x, y(value)) : ctx.moveTo(x, y(value))));
  ctx.stroke();
  ctx.setLineDash([]);
}

function drawHeld(ctx, view, scale) {
  const { rope, layout, colours } = view;
  const panel = layout.panels.held;
  const y = (value) => panel.top + panel.height - value / view.axes.held * panel.height;
  const steps = stepsInView(rope.order.t, rope.order.held, view, scale);
  ctx.beginPath();
  ctx.moveTo(layout.left, panel.top + panel.height);
  for (const [x, value] of steps) ctx.lineTo(x, y(value));
  ctx.lineTo(steps[steps.length - 1][0], panel.top + panel.height);
  ctx.closePath();
  ctx.fillStyle = colours.soft;
  ctx.globalAlpha = 0.45;
  ctx.fill();
  ctx.globalAlpha = 1;
}

/** Lines of one subflow each: told apart by colour and by dashes. */
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [1, 3], [10, 4], [4, 4], [12, 3, 3, 3]];

function drawSamples(ctx, view, scale) {
  const { rope, layout, colours } = view;
  for (const name of ['cwnd', 'srtt']) {
    const panel = layout.panels[name];
    const most = view.axes[name];
    const y = (value) => panel.top + panel.height - value / most * panel.height;
    for (const sample of rope.samples) {
      sample.paths.forEach((path, index) => {
        const there = path[name].findIndex((value) => value > 0);
        if (there < 0) return;
        const steps = stepsInView(sample.t.subarray(there), path[name].subarray(there), view, scale)
          .filter(([x]) => x >= scale.x(sample.t[there]));
        strokeSteps(ctx, steps, y, colours.paths[index], 1.6, DASHES[index % DASHES.length]);
      });
    }
  }
}

/** The moment at which the run was over: a line through lanes and panels, not through the labels between them. */
function drawEnd(ctx, view, scale) {
  const { rope, layout, colours, to } = view;
  if (rope.duration >= to) return;
  const x = scale.x(rope.duration);
  ctx.fillStyle = colours.ink;
  for (const { top, height } of framesOf(layout)) ctx.fillRect(x, top, 1.5, height);
}

function drawLabels(ctx, view) {
  const { rope, layout, colours } = view;
  const text = (what, x, y, fill, align) => {
    ctx.fillStyle = fill;
    ctx.textAlign = align || 'left';
    ctx.fillText(what, x, y);
  };
  const frame = (panel) => {
    ctx.fillStyle = colours.line;
    ctx.fillRect(layout.left, panel.top + panel.height, layout.inner, 1);
  };
  layout.lanes.forEach((lane, i) => {
    frame(lane);
    ctx.fillStyle = colours.paths[i];
    ctx.fillRect(layout.left + 2, lane.top - 12, 8, 8);
    text(`${rope.paths[i]}: segments in flight`, layout.left + 15, lane.top - 4, colours.soft);
    text(String(view.axes.rows[i]), layout.left - 5, lane.top + 8, colours.soft, 'right');
    text('0', layout.left - 5, lane.top + lane.height, colours.soft, 'right');
  });
  const panels = {
    order: ['arrivals, and the in-order line', `${bytes(view.axes.first)} to ${bytes(Math.round(view.axes.last))}`],
    held: ['out-of-order queue', `up to ${bytes(Math.round(view.axes.held))}`],
    cwnd: ['cwnd, segments', '', String(view.axes.cwnd)],
    srtt: ['srtt', '', time(view.axes.srtt / 1e6)],
  };
  for (const [name, [title, top, gutter]] of Object.entries(panels)) {
    const panel = layout.panels[name];
    frame(panel);
    text(title, layout.left + 2, panel.top - 5, colours.soft);
    // Long labels stand above the axis where the gutter is narrow.
    if (top) text(top, layout.left + layout.inner, panel.top - 5, colours.soft, 'right');
    if (gutter) text(gutter.replace(/\.0+(?=\s)/, ''), layout.left - 5, panel.top + 9, colours.soft, 'right');
    if (gutter) text('0', layout.left - 5, panel.top + panel.height, colours.soft, 'right');
    if (name === 'cwnd') {
      let x = layout.left + 100;
      // Names are cut where they would leave the picture.
      const most = Math.floor(((layout.inner - 104) / rope.paths.length - 34) / 7);
      rope.paths.forEach((whole, i) => {
        if (most < 3) return;
        const path = whole.length <= most ? whole : `${whole.slice(0, most - 1)}…`;
        ctx.strokeStyle = colours.paths[i];
        ctx.lineWidth = 2;
        ctx.setLineDash(DASHES[i % DASHES.length]);
        ctx.beginPath();
        ctx.moveTo(x, panel.top - 9);
        ctx.lineTo(x + 20, panel.top - 9);
        ctx.stroke();
        ctx.setLineDash([]);
        text(path, x + 24, panel.top - 5, colours.soft);
        x += 34 + path.length * 7;
      });
    }
  }
}

/** The segment at a point of the lanes or of the arrivals; -1 if there is none. */
function segmentAt(view, px, py) {
  const { rope, layout } = view;
  const scale = scaleOf(view);
  const t = scale.t(px);
  const slack = 2 / scale.perMicro;
  const [first, last] = visible(rope, t - slack, t + slack);
  const lane = layout.lanes.findIndex((l) => py >= l.top - 2 && py <= l.top + l.height + 2);
  let best = -1;
  let nearest = Infinity;
  if (lane >= 0) {
    const rows = laneRowHeight(view, lane);
    const { top, height } = layoutLane(view, lane);
    const wanted = (top + height - py) / rows - 0.5;
    for (let i = first; i < last; i += 1) {
      if (rope.path[i] !== lane || rope.sent[i] - slack > t || markEnd(rope, i) + slack < t) continue;
      // What is rare is easier to hit.
      const distance = Math.abs(rope.row[i] - wanted) - (rope.kind[i] ? 2 / rows : 0);
      if (distance < nearest && distance * rows < 10) {
        nearest = distance;
        best = i;
      }
    }
    return best;
  }
  const panel = layout.panels.order;
  if (py < panel.top - 4 || py > panel.top + panel.height + 4) return -1;
  const reach = 8 / scale.perMicro;
  const [a, b] = visible(rope, t - reach, t + reach);
  for (let i = a; i < b; i += 1) {
    if (Number.isNaN(rope.arrived[i]) || Math.abs(rope.arrived[i] - t) > reach) continue;
    const distance = Math.hypot((rope.arrived[i] - t) * scale.perMicro, middleY(view, i) - py);
    if (distance < nearest && distance < 8) {
      nearest = distance;
      best = i;
    }
  }
  return best;
}

/** The pointer's moment, the segment under it, and other copies of its bytes. */
function drawOverlay(ctx, view, at, segment) {
  const { rope, layout, colours } = view;
  const scale = scaleOf(view);
  ctx.save();
  ctx.beginPath();
  ctx.rect(layout.left, 0, layout.inner, layout.height);
  ctx.clip();
  if (at !== null) {
    ctx.fillStyle = colours.soft;
    ctx.globalAlpha = 0.6;
    for (const { top, height } of framesOf(layout)) ctx.fillRect(scale.x(at), top, 1, height);
    ctx.globalAlpha = 1;
  }
  if (segment >= 0) {
    const start = rope.offset[segment];
    const end = start + rope.length[segment];
    for (let i = 0; i < rope.count; i += 1) {
      if (rope.connection[i] !== rope.connection[segment] || rope.offset[i] >= end || rope.offset[i] + rope.length[i] <= start) continue;
      const lane = layoutLane(view, rope.path[i]);
      const rows = laneRowHeight(view, rope.path[i]);
      const height = Math.max(3, rows - 1);
      const x = scale.x(rope.sent[i]);
      const y = lane.top + lane.height - rope.row[i] * rows - height;
      ctx.strokeStyle = colours.ink;
      ctx.lineWidth = i === segment ? 1.6 : 1;
      ctx.setLineDash(i === segment ? [] : [3, 2]);
      ctx.strokeRect(x - 1, y - 1, Math.max(2, (markEnd(rope, i) - rope.sent[i]) * scale.perMicro) + 2, height + 2);
      ctx.setLineDash([]);
      if (!Number.isNaN(rope.arrived[i])) {
        const py = middleY(view, i);
        ctx.beginPath();
        ctx.rect(scale.x(rope.arrived[i]) - 3.5, py - 3.5, 7, 7);
        ctx.stroke();
      }
    }
  }
  ctx.restore();
}
