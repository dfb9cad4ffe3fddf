// A link's rate over time as a line that one can edit: outages, and other rates from a time on.

const [LINE_WIDTH, LINE_HEIGHT, LINE_FOOT] = [360, 76, 16];

/** A time as the links' language has it. */
function duration(seconds) {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : `${+seconds.toFixed(2)} s`;
}

/** A change as a clause of a link's line. */
function changeClause(item) {
  if (item.rate !== undefined) return `${+item.rate.toPrecision(3)} Mbit/s at ${duration(item.at)}`;
  const again = item.every ? ` every ${duration(item.every)}` : '';
  return `outage ${duration(item.for)}${again && item.every === item.at ? '' : ` at ${duration(item.at)}`}${again}`;
}

/** The line of one link; `change(clauses)` is called with all its changes, and returns the link's new line. */
function timeline(change) {
  const svg = (tag, attributes) => {
    const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };
  const line = svg('path', { fill: 'none', stroke: 'var(--swatch)', 'stroke-width': 2, 'stroke-linejoin': 'round' });
  const ground = svg('path', { fill: 'none', stroke: 'var(--line)', d: `M0 ${LINE_HEIGHT - LINE_FOOT}H${LINE_WIDTH}` });
  const words = svg('g', { 'font-size': 10, fill: 'var(--soft)' });
  const marks = svg('g', {});
  const picture = svg('svg', { viewBox: `-8 -8 ${LINE_WIDTH + 16} ${LINE_HEIGHT + 8}`, role: 'group' });
  picture.append(ground, line, words, marks);
  const button = (text, make) => h('button', { type: 'button', class: 'small', onclick: () => { items.push(make()); edited(); marks.lastChild.focus(); } }, text);
  const place = h('div', { class: 'timeline' }, picture, h('div', {},
    button('+ outage', () => ({ at: free(), for: 0.2 })), ' ',
    button('+ other rate', () => ({ at: free(), rate: Math.max(0.5, rateNow / 4) }))));
  let items = [];
  let [name, rateNow] = ['', 1];
  /** The link's line as it is now, and those that it was before: what the engine still says of them is old. */
  let now = null;
  const stale = new Set();

  const span = () => Math.max(2, ...items.map((item) => 1.25 * (item.at + (item.for ?? 0))));
  const top = () => 1.05 * Math.max(rateNow, ...items.map((item) => item.rate ?? 0));
  const x = (seconds) => LINE_WIDTH * Math.min(1, seconds / span());
  const y = (rate) => (LINE_HEIGHT - LINE_FOOT) * (1 - rate / top());
  /** A time after all that is there. */
  const free = () => +(0.5 + Math.max(0, ...items.map((item) => item.at + (item.for ?? 0)))).toFixed(2);

  /** When the link is down, within what is shown. */
  const outages = () => items.filter((item) => item.for).flatMap((item) => {
    const found = [];
    for (let at = item.at; at < span() && found.length < 200; at += item.every || Infinity) found.push([at, at + item.for]);
    return found;
  });
  const draw = () => {
    const down = outages();
    const rates = [{ at: 0, rate: rateNow }, ...items.filter((item) => item.rate !== undefined).sort((a, b) => a.at - b.at)];
    const times = [...new Set([0, ...rates.map(({ at }) => at), ...down.flat(), span()])].filter((at) => at <= span()).sort((a, b) => a - b);
    const rateAt = (at) => (down.some(([from, to]) => from <= at && at < to) ? 0 : rates.findLast((one) => one.at <= at).rate);
    line.setAttribute('d', times.map((at, i) => `${i ? 'H' : 'M'}${x(at)}${i ? 'V' : ' '}${y(rateAt(at))}`).join(''));
    const text = (at, anchor, said) => {
      const element = svg('text', { x: at, y: LINE_HEIGHT - 3, 'text-anchor': anchor });
      element.textContent = said;
      return element;
    };
    words.replaceChildren(text(0, 'start', '0 s'), text(LINE_WIDTH, 'end', duration(span())));
    picture.setAttribute('aria-label', `Rate of ${name} over time: ${items.length ? items.map(changeClause).join(', ') : 'the same throughout'}`);
    while (marks.children.length > handles().length) marks.lastChild.remove();
    handles().forEach((handle, i) => {
      const mark = marks.children[i] ?? marks.appendChild(newMark(i));
      mark.setAttribute('cx', x(handle.at()));
      mark.setAttribute('cy', y(handle.level()));
      mark.setAttribute('aria-label', `${handle.label} of ${name}`);
      mark.setAttribute('aria-valuenow', handle.at().toFixed(2));
      mark.setAttribute('aria-valuetext', changeClause(handle.item));
    });
  };
  /** What can be moved: an outage's begin and end, a rate. */
  const handles = () => items.flatMap((item, i) => {
    const number = items.length > 1 ? ` ${i + 1}` : '';
    const set = (seconds) => { item.at = Math.max(0.01, seconds); };
    if (item.rate !== undefined) return [{ item, label: `Rate${number}`, at: () => item.at, level: () => item.rate, set, scale: (factor) => { item.rate = Math.min(10000, Math.max(0.1, item.rate * factor)); } }];
    return [
      { item, label: `Outage${number}: begin`, at: () => item.at, level: () => 0, set },
      { item, label: `Outage${number}: end`, at: () => item.at + item.for, level: () => 0, set: (seconds) => { item.for = Math.max(0.01, Math.min(seconds - item.at, item.every ? item.every - 0.01 : Infinity)); } },
    ];
  });
  const edited = async () => {
    for (const item of items) for (const key of ['at', 'for']) if (item[key]) item[key] = +item[key].toFixed(2);
    draw();
    if (now !== null) stale.add(now);
    now = null;
    now = await change(items.map(changeClause));
  };
  const newMark = (index) => {
    const mark = svg('circle', { r: 6, tabindex: 0, role: 'slider', fill: 'var(--card)', stroke: 'var(--swatch)', 'stroke-width': 2 });
    const handle = () => handles()[index];
    mark.addEventListener('keydown', (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const factor = { ArrowUp: 1.1, ArrowDown: 1 / 1.1 }[event.key];
      if (step) handle().set(handle().at() + step * (event.shiftKey ? 0.5 : 0.05));
      else if (factor && handle().scale) handle().scale(factor);
      else if (event.key === 'Delete' || event.key === 'Backspace') {
        items = items.filter((item) => item !== handle().item);
        (marks.children[index - 1] ?? place.querySelector('button')).focus();
      } else return;
      event.preventDefault();
      edited();
    });
    mark.addEventListener('pointerdown', (event) => {
      mark.setPointerCapture(event.pointerId);
      // What is shown stays as wide and high while it is dragged.
      const scale = (LINE_WIDTH + 16) / picture.getBoundingClientRect().width;
      const [seconds, most, begun] = [span(), top(), { at: handle().at(), level: handle().level() }];
      mark.onpointermove = (moved) => {
        handle().set(begun.at + (moved.clientX - event.clientX) * scale / LINE_WIDTH * seconds);
        const level = begun.level - (moved.clientY - event.clientY) * scale / (LINE_HEIGHT - LINE_FOOT) * most;
        if (handle().scale) handle().scale(Math.max(0.1, level) / handle().level());
        edited();
      };
    });
    mark.addEventListener('lostpointercapture', () => { mark.onpointermove = null; });
    return mark;
  };
  /** What the engine says of the link. */
  const show = (link, numbers) => {
    place.hidden = numbers.down === null || !numbers.changes;
    if (place.hidden) return;
    [name, rateNow] = [numbers.name, numbers.down];
    if (link.line === now || !stale.has(link.line)) {
      now = link.line;
      stale.clear();
      items = numbers.changes.map((item) => ({ ...item }));
    }
    draw();
  };
  return { place, show };
}
