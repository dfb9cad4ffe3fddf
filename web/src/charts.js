// A chart in its frame: title, ways to save it, the drawing, and the same in words.

const SERIES = ['new', 'retransmitted', 'path-0', 'duplicated', 'reinjected', 'path-1', 'path-6'];

/** Options that all plots share. */
function plotBase(width) {
  return {
    width,
    style: { background: 'transparent', fontSize: '12px', fontFamily: 'inherit', color: colour('ink') },
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
