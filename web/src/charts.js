// A chart in its frame: title, ways to save it, the drawing, and the same in words.

/** Colours of candidates; paths have others (`path-0` and on), so that no colour means two things. */
const SERIES = Array.from({ length: 7 }, (_, i) => `candidate-${i}`);

/** Who is in colour. A candidate has the same colour in every chart, and keeps it until another needs it. */
class Coloured {
  constructor() {
    this.slots = new Map();
    this.shown = new Set();
  }

  /** False: all colours are in use. */
  add(name) {
    if (this.shown.has(name)) return true;
    const inUse = new Set([...this.shown].map((other) => this.slots.get(other)));
    const kept = new Set(this.slots.values());
    const free = (also) => SERIES.findIndex((_, slot) => !inUse.has(slot) && !(also && kept.has(slot)));
    let slot = this.slots.get(name);
    if (slot === undefined || inUse.has(slot)) slot = free(true) >= 0 ? free(true) : free(false);
    if (slot < 0) return false;
    this.slots.set(name, slot);
    this.shown.add(name);
    return true;
  }

  /** Only these, as far as colours go. */
  choose(names) {
    this.shown = new Set();
    for (const name of names) this.add(name);
  }

  toggle(name) {
    if (!this.shown.delete(name)) this.add(name);
  }

  /** Index in `SERIES`; -1: grey. */
  slot(name) {
    return this.shown.has(name) ? this.slots.get(name) : -1;
  }

  colour(name) {
    const slot = this.slot(name);
    return colour(slot < 0 ? 'grey' : SERIES[slot]);
  }
}

/** Names along an axis, each with `each` pixels: as they are, or turned, and then cut at what fits. */
function fitting(names, each, most = 18) {
  const longest = Math.max(...names.map((name) => name.length));
  const turned = longest * 7 + 8 > each;
  const tickFormat = (name) => (turned && name.length > most ? `${name.slice(0, most - 1)}…` : name);
  return { turned, tickFormat, height: Math.ceil(Math.min(longest, most) * 7 * 0.64) + 12 };
}

/** Names beside an axis: the margin that they need, at most a share of the width, and what of a name fits into it. */
function nameAxis(names, width, share = 0.4) {
  const each = 7.2;
  const longest = Math.max(1, ...names.map((name) => name.length));
  const marginLeft = Math.round(Math.min(width * share, longest * each + 18));
  const most = Math.floor((marginLeft - 14) / each);
  return { marginLeft, tickFormat: (name) => (name.length <= most ? name : `${name.slice(0, Math.max(3, most - 1))}…`) };
}

/** A row's height: less on paper, so that a report is few pages. */
function rowHeight(onScreen) {
  return onPaper() ? Math.round(onScreen * 0.68) : onScreen;
}

/** Options that all plots share. */
function plotBase(width) {
  return {
    width,
    style: { background: 'transparent', fontSize: onPaper() ? '10.5px' : '12px', fontFamily: 'inherit', color: colour('ink') },
  };
}

/**
 * A figure that draws itself again when its width or the theme changes.
 * `draw(width)` gives an SVG element; `summary()` says in words what it shows; `table()` gives [columns, rows].
 */
function chart({ title, draw, summary, table, name, before }) {
  const place = h('div', { class: 'plot' });
  const caption = h('figcaption', {});
  const entries = [['SVG', () => save(`${name()}.svg`, 'image/svg+xml', svgText(place.querySelector('svg')))]];
  if (table) {
    entries.unshift(['CSV', () => save(`${name()}.csv`, 'text/csv', csv(...table()))]);
    entries.unshift(['JSON', () => {
      const [columns, rows] = table();
      const objects = rows.map((row) => Object.fromEntries(columns.map((column, i) => [column, row[i]])));
      save(`${name()}.json`, 'application/json', JSON.stringify(objects, null, 1));
    }]);
  }
  const heading = h('h3', {}, title());
  const figure = h('figure', {},
    h('div', { class: 'bar' }, heading, tools('this chart', entries)), before || null, place, caption);
  let width = 0;
  const redraw = () => {
    if (!place.clientWidth) return;
    width = place.clientWidth;
    heading.textContent = title();
    const svg = draw(width);
    svg.setAttribute('role', 'img');
    svg.setAttribute('aria-label', `${title()}. ${summary()}`);
    place.replaceChildren(svg);
    caption.textContent = summary();
  };
  redraws.add(redraw);
  new ResizeObserver(() => { if (Math.abs(place.clientWidth - width) > 1) redraw(); }).observe(place);
  figure.redraw = redraw;
  return figure;
}

/**
 * How far an axis goes, as a ratio to the best, and which names go beyond it: where some are several times as far behind as the nearer
 * half or more, they would squash it.
 */
function roomFor(lines) {
  const far = new Map();
  for (const line of lines) far.set(line.name, Math.max(far.get(line.name) || 0, line.ratio - 1));
  const order = [...far].sort((a, b) => a[1] - b[1]);
  let most = 0.01;
  let shown = 0;
  for (; shown < order.length; shown += 1) {
    if (shown * 2 >= order.length && order[shown][1] > 3 * most) break;
    most = Math.max(most, order[shown][1]);
  }
  return { most: 1 + roundUp(most * 1.04), beyond: order.slice(shown).map(([name]) => name) };
}
