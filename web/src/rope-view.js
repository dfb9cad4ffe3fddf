// The rope view: one or two runs drawn in time, on one axis that zooms and pans for both.

/** Moments of scrolling the page: a wheel that is turning for the page doesn't begin to zoom a picture. */
let scrolledAt = -1e9;
addEventListener('scroll', () => { scrolledAt = performance.now(); }, { passive: true });

function ropeSection(state) {
  const all = doc.ropes.map((raw) => ({ raw, ready: null }));
  const ready = (entry) => {
    if (!entry.ready) entry.ready = prepareRope(entry.raw);
    return entry.ready;
  };
  const here = () => all.filter((entry) => entry.raw.ranking === state.index);
  const axis = { from: 0, to: 1, whole: 1 };
  const views = [];
  const place = h('div', { class: 'ropes' });
  const empty = h('p', { class: 'lead', hidden: true }, 'No run of this workload was traced.');

  const wholeRange = () => {
    axis.whole = Math.max(1000, ...views.map((view) => (view.rope ? view.rope.duration : 0))) * 1.02;
    axis.from = 0;
    axis.to = axis.whole;
  };
  let asked = false;
  const drawNow = () => {
    asked = false;
    const shown = views.map((view) => view.rope).filter(Boolean);
    if (!shown.length) return;
    const axes = axesOf(shown.map((rope) => extents(rope, axis.from, axis.to)));
    for (const view of views) view.draw(axes);
  };
  const drawAll = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(drawNow);
  };
  const control = {
    axis,
    drawAll,
    hover: (at) => { for (const view of views) view.crosshair(at); },
    /** Zooms by a factor about a moment. */
    zoom(factor, about) {
      const least = leastSpan(views.map((view) => view.rope).filter(Boolean));
      const span = Math.min(axis.whole, Math.max(least, (axis.to - axis.from) * factor));
      const share = (about - axis.from) / (axis.to - axis.from);
      control.show(about - share * span, span);
    },
    show(from, span) {
      axis.from = Math.max(0, Math.min(from, axis.whole - span));
      axis.to = axis.from + span;
      drawAll();
    },
    pan(micros) {
      control.show(axis.from + micros, axis.to - axis.from);
    },
    whole() {
      control.show(0, axis.whole);
    },
  };
  const choose = (number, entry) => {
    views[number].set(entry ? ready(entry) : null);
    wholeRange();
    drawAll();
  };
  const refresh = () => {
    const entries = here();
    empty.hidden = entries.length > 0;
    place.hidden = entries.length === 0;
    if (!entries.length) return;
    const names = entries.map((entry) => entry.raw.scheduler);
    // The first that is no plain TCP beside `linux`, or whatever comes next.
    const ranking = state.ranking();
    const first = Math.max(0, entries.findIndex((entry) => !ranking.rows.find((row) => row.scheduler === entry.raw.scheduler)?.single_path));
    let second = names.indexOf('linux');
    if (second < 0 || second === first) second = entries.findIndex((_, i) => i !== first);
    views[0].offer(names, first);
    views[1].offer(names, second);
    views[0].set(ready(entries[first]));
    views[1].set(second < 0 ? null : ready(entries[second]));
    wholeRange();
    drawAll();
  };
  for (const number of [0, 1]) {
    const view = ropePanel(control, (chosen) => choose(number, here()[chosen]));
    views.push(view);
    place.append(view.figure);
  }
  redraws.add(() => { for (const view of views) view.restyle(); drawNow(); });
  state.listen(refresh);
  refresh();
  const names = doc.paths.map((path) => path.name);
  const legend = h('div', { class: 'legend' },
    names.map((name, i) => h('span', {}, h('i', { style: `--swatch: var(--path-${i % 8})` }), `new, on ${name}`)),
    [['retransmitted', 'retransmitted on its subflow'], ['reinjected', 'reinjected on another subflow'], ['duplicated', 'duplicated by the scheduler']]
      .map(([kind, words]) => h('span', {}, h('i', { style: `--swatch: var(--${kind})` }), words)),
    h('span', {}, h('i', { style: '--swatch: var(--path-0); opacity: .36' }), 'paler: arrived, its acknowledgement under way'),
    h('span', {}, h('i', { style: 'background: none; border: 1.5px solid var(--path-0)' }), 'lost'),
    h('span', {}, h('i', { style: '--swatch: var(--wait)' }), 'nothing is sent: the scheduler waits'));
  const buttons = h('div', { class: 'tools' },
    h('button', { type: 'button', onclick: () => control.zoom(0.5, (axis.from + axis.to) / 2) }, 'Zoom in'),
    h('button', { type: 'button', onclick: () => control.zoom(2, (axis.from + axis.to) / 2) }, 'Zoom out'),
    h('button', { type: 'button', onclick: () => control.whole() }, 'Whole run'));
  const keys = h('p', { class: 'keys' },
    'Wheel or pinch zooms, drag pans, a double click shows the whole run; the strip beneath is the whole run, and moves what is shown. With a picture in focus: ',
    ...['←', '→', ' pan, ', '+', '−', ' zoom, ', '0', ' whole run, ', 'N', 'P', ' next and previous segment, ', 'W', ' next wait.']
      .map((text) => (text.length === 1 ? h('kbd', {}, text) : text)));
  return [h('div', { class: 'bar choose' }, legend, buttons), empty, place, keys];
}

/** One run: its picture, the choice of scheduler, its words. */
function ropePanel(control, choose) {
  const select = h('select', { 'aria-label': 'Scheduler', onchange: () => choose(select.selectedIndex) });
  const base = h('canvas', {});
  const overlay = h('canvas', {
    tabindex: '0', role: 'img', 'aria-roledescription': 'picture of a run',
    style: 'position: absolute; inset: 0',
  });
  const paper = h('div', {});
  const box = h('div', { class: 'rope', style: 'position: relative' }, base, overlay, paper);
  const caption = h('figcaption', {});
  const heading = h('span', {});
  const figure = h('figure', {},
    h('div', { class: 'bar' }, h('label', {}, select, h('b', { class: 'who' }), heading),
      tools('this run', [
        ['CSV', () => save(`${name()}.csv`, 'text/csv', csv(ROPE_COLUMNS, ropeRows(panel.rope)))],
        ['JSON', () => save(`${name()}.json`, 'application/json', JSON.stringify(ropeRows(panel.rope)
          .map((row) => Object.fromEntries(ROPE_COLUMNS.map((column, i) => [column, row[i]])))))],
        ['SVG', () => save(`${name()}.svg`, 'image/svg+xml', drawn())],
        ['PNG', () => base.toBlob((blob) => save(`${name()}.png`, 'image/png', blob))],
      ])),
    box, caption);
  const panel = { figure, rope: null, chosen: -1, at: null };
  let view = null;
  const name = () => fileName('rope', panel.rope.scheduler, `run-${panel.rope.run + 1}`);
  const drawn = () => {
    const context = new SvgContext(view.layout.width, view.layout.height, view.colours.card);
    drawRope(context, view);
    return context.toString();
  };

  panel.offer = (names, chosen) => {
    select.replaceChildren(...names.map((text, i) => h('option', { selected: i === chosen }, text)));
  };
  panel.set = (rope) => {
    panel.rope = rope;
    panel.chosen = -1;
    figure.hidden = !rope;
    if (!rope) return;
    const words = ropeSummary(rope);
    caption.textContent = words;
    overlay.setAttribute('aria-label', words);
    heading.textContent = `${rope.shortened ? `the first ${bytes(rope.bytes)}:` : 'done after'} ${time(rope.duration / 1e6)}`;
    figure.querySelector('.who').textContent = rope.scheduler;
    view = null;
  };
  panel.restyle = () => { view = null; };
  panel.draw = (axes) => {
    if (!panel.rope || !box.clientWidth) return;
    const width = box.clientWidth;
    if (!view || view.layout.width !== width) {
      const layout = ropeLayout(width, panel.rope.paths.length);
      const ratio = Math.min(3, window.devicePixelRatio || 1);
      for (const canvas of [base, overlay]) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(layout.height * ratio);
        canvas.style.height = `${layout.height}px`;
        canvas.style.width = `${width}px`;
        canvas.getContext('2d').setTransform(ratio, 0, 0, ratio, 0, 0);
      }
      view = { rope: panel.rope, layout, colours: ropeColours(panel.rope.paths) };
    }
    view.from = control.axis.from;
    view.to = control.axis.to;
    view.whole = control.axis.whole;
    view.axes = axes;
    const context = base.getContext('2d');
    context.clearRect(0, 0, view.layout.width, view.layout.height);
    const start = performance.now();
    drawRope(context, view);
    figure.dataset.drawMs = (performance.now() - start).toFixed(1);
    figure.dataset.from = String(Math.round(view.from));
    figure.dataset.to = String(Math.round(view.to));
    // Paper gets lines instead of pixels.
    paper.innerHTML = onPaper() ? drawn() : '';
    panel.crosshair(panel.at);
  };
  panel.crosshair = (at) => {
    panel.at = at;
    if (!view || !view.axes) return;
    const context = overlay.getContext('2d');
    context.clearRect(0, 0, view.layout.width, view.layout.height);
    drawOverlay(context, view, at, panel.chosen);
  };

  /** What a segment was, for the tip. */
  const segmentWords = (i) => {
    const { rope } = panel;
    const at = (value) => time(value / 1e6);
    const lines = [
      h('b', {}, `${rope.paths[rope.path[i]]}: ${KINDS[rope.kind[i]]}, ${rope.base.size > 1 ? `connection ${rope.connection[i]}, ` : ''}bytes ${rope.offset[i]} to ${rope.offset[i] + rope.length[i]}`),
      `sent ${at(rope.sent[i])}, `,
      Number.isNaN(rope.arrived[i]) ? (Number.isNaN(rope.acked[i]) ? 'not yet arrived' : 'lost') : `arrived ${at(rope.arrived[i])}`,
      Number.isNaN(rope.acked[i]) ? ', not acknowledged in this run' : `, acknowledged ${at(rope.acked[i])}`,
    ];
    const reason = rope.reasonText(rope.reason[i]);
    const why = reason || (rope.kind[i] === 1 ? 'the subflow’s own retransmission: no scheduler is asked'
      : rope.kind[i] === 2 ? 'reinjected by the connection after a loss or timeout' : null);
    if (why) lines.push(h('span', { class: 'why' }, why));
    return lines;
  };
  /** What holds at a moment, where no segment is meant. */
  const momentWords = (t) => {
    const { rope } = panel;
    const step = lastAtMost(rope.order.t, t);
    const lines = [h('b', {}, time(t / 1e6))];
    if (step >= 0) lines.push(`${bytes(rope.order.delivered[step])} in order, ${bytes(rope.order.held[step])} out of order`);
    for (const sample of rope.samples.slice(0, 1)) {
      const i = lastAtMost(sample.t, t);
      if (i < 0) continue;
      sample.paths.forEach((path, index) => {
        if (path.cwnd[i] > 0) {
          lines.push(h('br', {}), `${rope.paths[index]}: cwnd ${path.cwnd[i]}, ${path.inFlight[i]} in flight, srtt ${time(path.srtt[i] / 1e6)}`);
        }
      });
    }
    const wait = waitAt(t);
    if (wait >= 0) lines.push(h('span', { class: 'why' }, `waits: ${rope.reasonText(rope.waits.reason[wait]) || 'no reason given'}`));
    return lines;
  };
  const waitAt = (t) => {
    const { waits } = panel.rope;
    let i = lastAtMost(waits.from, t);
    for (let steps = 0; i >= 0 && steps < 50; i -= 1, steps += 1) if (waits.to[i] >= t) return i;
    return -1;
  };
  const tell = (px, py, x, y) => {
    const t = scaleOf(view).t(px);
    panel.chosen = segmentAt(view, px, py);
    control.hover(t);
    showTip(x, y, ...(panel.chosen >= 0 ? segmentWords(panel.chosen) : momentWords(t)));
  };

  // Pointer: hover, drag, pinch.
  const down = new Map();
  const local = (event) => {
    const box = overlay.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  let pinch = 0;
  let onMap = false;
  const inMap = (y) => y >= view.layout.map.top - 4;
  const moveTo = (x) => {
    const { left, inner } = view.layout;
    const { axis } = control;
    const span = axis.to - axis.from;
    control.show(((x - left) / inner) * axis.whole - span / 2, span);
  };
  overlay.addEventListener('pointerdown', (event) => {
    const [x, y] = local(event);
    onMap = Boolean(view && view.axes) && inMap(y);
    if (onMap) {
      hideTip();
      moveTo(x);
    }
    down.set(event.pointerId, event.clientX);
    overlay.setPointerCapture(event.pointerId);
    if (down.size === 1) overlay.classList.add('dragging');
    pinch = 0;
  });
  const up = (event) => {
    down.delete(event.pointerId);
    overlay.classList.remove('dragging');
    pinch = 0;
  };
  overlay.addEventListener('pointerup', up);
  overlay.addEventListener('pointercancel', up);
  overlay.addEventListener('pointermove', (event) => {
    if (!view || !view.axes) return;
    const [x, y] = local(event);
    if (down.has(event.pointerId) && onMap) {
      moveTo(x);
      return;
    }
    if (down.has(event.pointerId)) {
      const before = down.get(event.pointerId);
      down.set(event.pointerId, event.clientX);
      if (down.size === 2) {
        const [a, b] = [...down.values()];
        const distance = Math.max(10, Math.abs(a - b));
        const middle = (a + b) / 2 - overlay.getBoundingClientRect().left;
        if (pinch) control.zoom(pinch / distance, scaleOf(view).t(middle));
        pinch = distance;
      } else if (event.clientX !== before) {
        hideTip();
        control.pan((before - event.clientX) / scaleOf(view).perMicro);
      }
      return;
    }
    if (inMap(y)) {
      panel.chosen = -1;
      hideTip();
      control.hover(null);
    } else {
      tell(x, y, event.clientX, event.clientY);
    }
  });
  overlay.addEventListener('click', (event) => {
    if (view && view.axes && !inMap(local(event)[1])) tell(...local(event), event.clientX, event.clientY);
  });
  overlay.addEventListener('pointerleave', () => {
    panel.chosen = -1;
    control.hover(null);
    hideTip();
  });
  overlay.addEventListener('dblclick', () => control.whole());
  overlay.addEventListener('wheel', (event) => {
    if (!view || !view.axes || (performance.now() - scrolledAt < 250 && !event.ctrlKey)) return;
    const { axis } = control;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      control.pan(event.deltaX / scaleOf(view).perMicro);
      return;
    }
    // A whole run can't become more whole: the wheel is the page's then.
    if (event.deltaY > 0 && axis.to - axis.from >= axis.whole * 0.999) return;
    event.preventDefault();
    hideTip();
    control.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), scaleOf(view).t(local(event)[0]));
  }, { passive: false });

  // Keyboard.
  const reveal = (t) => {
    const { axis } = control;
    if (t < axis.from || t > axis.to) control.show(t - (axis.to - axis.from) / 2, axis.to - axis.from);
  };
  const step = (by) => {
    const { rope } = panel;
    const from = panel.chosen < 0 ? lastAtMost(rope.sent, control.axis.from) : panel.chosen;
    panel.chosen = Math.max(0, Math.min(rope.count - 1, from + by));
    reveal(rope.sent[panel.chosen]);
    pointAt(rope.sent[panel.chosen], segmentWords(panel.chosen));
  };
  const nextWait = () => {
    const { rope } = panel;
    const after = panel.at === null ? control.axis.from - 1 : panel.at;
    const i = lastAtMost(rope.waits.from, after) + 1;
    if (i >= rope.waits.count) return;
    panel.chosen = -1;
    reveal(rope.waits.from[i]);
    pointAt(rope.waits.from[i], momentWords(rope.waits.from[i]));
  };
  const pointAt = (t, words) => {
    control.hover(t);
    const box = overlay.getBoundingClientRect();
    requestAnimationFrame(() => showTip(box.left + scaleOf(view).x(t), Math.max(80, box.top + view.layout.lanesTop + 20), ...words));
  };
  const actions = {
    ArrowLeft: (a) => control.pan(-(a.to - a.from) / 8),
    ArrowRight: (a) => control.pan((a.to - a.from) / 8),
    '+': (a) => control.zoom(0.7, panel.at ?? (a.from + a.to) / 2),
    '=': (a) => control.zoom(0.7, panel.at ?? (a.from + a.to) / 2),
    '-': (a) => control.zoom(1 / 0.7, panel.at ?? (a.from + a.to) / 2),
    0: () => control.whole(),
    Home: () => control.whole(),
    n: () => step(1),
    p: () => step(-1),
    w: nextWait,
    Escape: () => { panel.chosen = -1; control.hover(null); hideTip(); },
  };
  overlay.addEventListener('keydown', (event) => {
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action || !view || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (!'npw'.includes(event.key.toLowerCase())) hideTip();
    action(control.axis);
  });
  overlay.addEventListener('blur', () => { hideTip(); });
  new ResizeObserver(() => { if (view && view.layout.width !== box.clientWidth) { view = null; control.drawAll(); } }).observe(box);
  return panel;
}
