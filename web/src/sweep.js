// The page of a sweep: where each candidate wins, and by how much.

/** At most so many bins for an axis that was sampled. */
const MOST_BINS = 6;

/** The places along an axis: its levels, or bins of what was sampled. */
function placesOf(index) {
  const axis = doc.axes[index];
  if (axis.levels) {
    return withUnit(axis.levels.map((level) => signs(level.text)), (point) => point.at[index]);
  }
  const values = doc.points.map((point) => point.at[index]).sort((a, b) => a - b);
  const [low, high] = [values[0], values[values.length - 1]];
  const log = low > 0 && high / low > 12;
  const { times, unit } = readable(axis, high);
  const scale = log ? Math.log : (value) => value;
  const back = log ? Math.exp : (value) => value;
  const bins = Math.max(1, Math.min(MOST_BINS, Math.floor(values.length / 8)));
  const width = (scale(high) - scale(low)) / bins || 1;
  const edge = (i) => back(scale(low) + i * width);
  const short = (value) => Number(value.toPrecision(3)).toLocaleString('en');
  const names = Array.from({ length: bins }, (_, i) => `${short(edge(i) * times)} to ${short(edge(i + 1) * times)}${unit ? ` ${unit}` : ''}`);
  return withUnit(names, (point) => Math.min(bins - 1, Math.floor((scale(point.at[index]) - scale(low)) / width)));
}

/** What numbers of an axis are multiplied by to be read easily, and their unit then. */
function readable(axis, high) {
  const steps = {
    s: [[1, 'ms', 1e3]],
    'bit/s': [[1e6, 'kbit/s', 1e-3], [1e9, 'Mbit/s', 1e-6], [Infinity, 'Gbit/s', 1e-9]],
    B: [[1 << 20, 'KiB', 1 / 1024], [Infinity, 'MiB', 1 / (1 << 20)]],
  }[axis.unit] || [];
  const [, unit, times] = steps.find(([below]) => high < below) || [0, axis.unit === '1' ? '' : axis.unit, 1];
  if (axis.unit === '1' && /\.loss$/.test(axis.name)) return { times: 100, unit: '%' };
  return { times, unit };
}

/** The signs of print for those of a file. */
function signs(text) {
  return text.replace(/\s*\+-\s*/g, ' ± ').replace(/^-(?=\d)/, '−');
}

/** Places of an axis: a unit that all share stands once, in the axis' label. */
function withUnit(names, of) {
  const parts = names.map((name) => /^([−\d.,]+(?: to [−\d.,]+)?)\s+(\D.*)$/.exec(name));
  const shared = parts.every(Boolean) && parts.every((part) => part[2] === parts[0][2]);
  return { names, ticks: shared ? parts.map((part) => part[1].replace(/\d+\.\d+/g, (number) => String(+Number(number).toPrecision(3)))) : names, unit: shared ? parts[0][2] : '', of };
}

/** An axis' label: its name and, if its places don't say it, the unit. */
function axisLabel(view, index) {
  const { unit } = view.axes[index];
  return `${doc.axes[index].name}${unit ? `, ${unit}` : ''}`;
}

/**
 * What some points say together: by candidate the geometric mean of its time against the best of each point, and at
 * how many points it is the first or a tie with it.
 */
function together(points) {
  const scores = doc.runners.map((_, runner) => {
    let sum = 0;
    let there = 0;
    let [first, tied] = [0, 0];
    for (const point of points) {
      if (point.mean[runner] === null || point.best === null) continue;
      sum += Math.log(point.mean[runner] / point.mean[point.best]);
      there += 1;
      // As the command counts: who shares the least mean is first, too.
      if (point.mean[runner] <= point.mean[point.best]) first += 1;
      if (point.ties.includes(runner)) tied += 1;
    }
    return { runner, log: there === points.length ? sum / Math.max(1, there) : Infinity, first, tied };
  });
  const first = scores.reduce((a, b) => (b.log < a.log ? b : a));
  return { scores, first: Number.isFinite(first.log) ? first : null, points: points.length };
}

function sweepState() {
  const axes = doc.axes.map((_, i) => placesOf(i));
  const linux = doc.runners.indexOf('linux');
  return {
    axes,
    x: 0,
    y: doc.axes.length > 1 ? 1 : -1,
    // By axis: which of its places is looked at; -1: all of them.
    slice: doc.axes.map(() => -1),
    against: linux >= 0 ? linux : Math.max(0, doc.runners.findIndex((name) => name.startsWith('tcp '))),
    points() {
      return doc.points.filter((point) => this.slice.every((wanted, i) => wanted < 0 || i === this.x || i === this.y || axes[i].of(point) === wanted));
    },
    cells() {
      const cells = new Map();
      for (const point of this.points()) {
        const x = axes[this.x].of(point);
        const y = this.y < 0 ? 0 : axes[this.y].of(point);
        const key = x * 10000 + y;
        if (!cells.has(key)) cells.set(key, { x, y, points: [] });
        cells.get(key).points.push(point);
      }
      return [...cells.values()].map((cell) => {
        const said = together(cell.points);
        const against = said.scores[this.against].log;
        const winner = said.first ? said.first.runner : null;
        // A clear winner: alone in front at most points.
        const sure = cell.points.filter((point) => point.ties.length === 1 && point.ties[0] === winner).length * 2 > cell.points.length;
        return { ...cell, said, winner, sure, gain: said.first && Number.isFinite(against) ? Math.exp(said.first.log - against) : null };
      });
    },
  };
}

/** A place in `SERIES` for those that are first or tied most often, the same in every chart; the rest is grey. */
function seriesOf() {
  const { scores } = together(doc.points);
  const order = [...scores].sort((p, q) => q.tied - p.tied || p.log - q.log || p.runner - q.runner).map((score) => score.runner);
  return (runner) => (runner === null ? -1 : order.indexOf(runner) < SERIES.length ? order.indexOf(runner) : -1);
}

function swatchOf(series, runner) {
  const place = series(runner);
  return place < 0 ? 'grey' : SERIES[place];
}

/** In how many cells each wins, most first. */
function winsOf(cells) {
  const wins = new Map();
  for (const cell of cells) if (cell.winner !== null) wins.set(cell.winner, (wins.get(cell.winner) || 0) + 1);
  return [...wins].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

function winnerMap(view, choose) {
  const legend = h('div', { class: 'legend' });
  const series = seriesOf();
  const axisName = (i) => doc.axes[i].name;
  const words = (cell) => [`${axisName(view.x)} ${view.axes[view.x].names[cell.x]}`, view.y < 0 ? null : `${axisName(view.y)} ${view.axes[view.y].names[cell.y]}`].filter(Boolean).join(', ');
  return chart({
    title: () => 'Who finishes first, and by how much',
    name: () => fileName('winners', axisName(view.x), view.y < 0 ? '' : axisName(view.y)),
    before: legend,
    table: () => [[axisName(view.x), ...(view.y < 0 ? [] : [axisName(view.y)]), 'first', 'clear', `time_against_${doc.runners[view.against]}`, 'points'],
      view.cells().map((cell) => [view.axes[view.x].names[cell.x], ...(view.y < 0 ? [] : [view.axes[view.y].names[cell.y]]),
        cell.winner === null ? null : doc.runners[cell.winner], cell.sure, cell.gain, cell.points.length])],
    summary: () => {
      const cells = view.cells();
      const gains = cells.filter((cell) => cell.gain !== null).sort((a, b) => a.gain - b.gain);
      const parts = winsOf(cells).slice(0, 4).map(([runner, wins]) => `${doc.runners[runner]} in ${wins}`);
      const text = [`Of ${count(cells.length, 'cell')}, first: ${parts.join(', ')}; ${count(cells.filter((cell) => cell.sure).length, 'cell')} with a clear winner (the others, paler, are ties).`];
      if (gains.length) {
        text.push(`Against ${doc.runners[view.against]} the first gains most at ${words(gains[0])}: ${change(gains[0].gain)}; least at ${words(gains[gains.length - 1])}: ${change(gains[gains.length - 1].gain)}.`);
      }
      return text.join(' ');
    },
    draw: (width) => {
      const cells = view.cells();
      legend.replaceChildren(...winsOf(cells).map(([runner, wins]) => h('span', {}, h('i', { style: `--swatch: var(--${swatchOf(series, runner)})` }), `${doc.runners[runner]}: ${wins}`)));
      const xs = view.axes[view.x].names;
      const ys = view.y < 0 ? [''] : view.axes[view.y].names;
      const upward = view.y < 0 ? { marginLeft: 16, tickFormat: (name) => name } : nameAxis(view.axes[view.y].ticks, width, 0.3);
      const left = upward.marginLeft;
      const each = (width - left - 16) / xs.length;
      const along = fitting(view.axes[view.x].ticks, each);
      const bottom = along.turned ? along.height : 22;
      const fill = (cell) => d3.interpolateLab(colour('card'), colour(swatchOf(series, cell.winner)))(cell.sure ? 0.9 : 0.32);
      const label = (cell) => {
        if (cell.winner === null) return 'none';
        const name = doc.runners[cell.winner];
        const most = Math.floor((each - 8) / (each < 60 ? 5.6 : 6.8)) - (cell.sure ? 0 : 2);
        const fits = name.length <= most ? name : `${name.slice(0, Math.max(2, most - 1))}…`;
        return `${cell.sure ? '' : '≈ '}${fits}\n${cell.gain === null ? '' : change(cell.gain)}`;
      };
      const map = Plot.plot({
        ...plotBase(width),
        height: ys.length * 46 + (view.y < 0 ? 12 : 34) + bottom + 30,
        marginLeft: left,
        marginRight: 12,
        marginTop: view.y < 0 ? 12 : 34,
        marginBottom: bottom + 30,
        x: { domain: d3.range(xs.length), tickFormat: (i) => along.tickFormat(view.axes[view.x].ticks[i]), label: `${axisLabel(view, view.x)} →`, labelOffset: bottom + 24, tickSize: 0, tickRotate: along.turned ? -40 : 0, padding: 0.04 },
        y: { domain: d3.range(ys.length).reverse(), tickFormat: (i) => (view.y < 0 ? '' : upward.tickFormat(view.axes[view.y].ticks[i])), label: view.y < 0 ? null : `↑ ${axisLabel(view, view.y)}`, labelAnchor: 'top', labelOffset: left, tickSize: 0, padding: 0.06 },
        marks: [
          Plot.cell(cells, { x: 'x', y: 'y', fill, inset: 1, rx: 4 }),
          Plot.text(cells, { x: 'x', y: 'y', text: label, fill: (cell) => onto(fill(cell)), fontSize: each < 60 ? 9 : 11, lineHeight: 1.25 }),
          Plot.tip(cells, Plot.pointer({ x: 'x', y: 'y', fill: colour('card'), stroke: colour('line'), title: (cell) => `${words(cell)}\n${cell.said.scores.filter((score) => Number.isFinite(score.log)).sort((a, b) => a.log - b.log).slice(0, 6).map((score) => `${doc.runners[score.runner]}: ${change(Math.exp(score.log))} of the best`).join('\n')}` })),
        ],
      });
      // The cell under the pointer.
      map.addEventListener('click', () => { if (map.value) choose(map.value.points[0]); });
      return map;
    },
  });
}

/** How far each is behind the best, along the x axis. */
function alongAxis(view) {
  const series = seriesOf();
  const lines = () => {
    const { axes, x } = view;
    return axes[x].names.flatMap((_, place) => {
      const points = view.points().filter((point) => axes[x].of(point) === place);
      if (!points.length) return [];
      return together(points).scores.filter((score) => Number.isFinite(score.log)).map((score) => ({ place, runner: score.runner, name: doc.runners[score.runner], ratio: Math.exp(score.log) }));
    });
  };
  const front = () => {
    const { scores } = together(view.points());
    return scores.filter((score) => Number.isFinite(score.log)).sort((a, b) => a.log - b.log).filter((score) => series(score.runner) >= 0).map((score) => doc.runners[score.runner]);
  };
  return chart({
    title: () => `Time against the best, along ${doc.axes[view.x].name}`,
    name: () => fileName('along', doc.axes[view.x].name),
    table: () => [[doc.axes[view.x].name, 'candidate', 'ratio_to_best'], lines().map((line) => [view.axes[view.x].names[line.place], line.name, line.ratio])],
    summary: () => {
      const [best] = front();
      if (!best) return 'No candidate finished everywhere.';
      const of = lines().filter((line) => line.name === best).sort((a, b) => a.ratio - b.ratio);
      const say = (line) => `${change(line.ratio)} at ${view.axes[view.x].names[line.place]}`;
      return `Geometric means over the other axes. Closest to the best overall: ${best}, from ${say(of[0])} to ${say(of[of.length - 1])}.`;
    },
    draw: (width) => {
      const names = front();
      const all = lines().filter((line) => names.includes(line.name));
      const { ticks } = view.axes[view.x];
      const marginRight = Math.round(Math.min(150, width * 0.36));
      const along = fitting(ticks, (width - 62 - marginRight) / ticks.length);
      const bottom = along.turned ? along.height : 24;
      const plotHeight = 250;
      const { most, beyond } = roomFor(all);
      const top = new Set(beyond);
      // Where a line leaves the chart its label says how far it goes; else where it ends.
      const ends = names.map((name) => {
        const own = all.filter((line) => line.name === name);
        const end = own.reduce((a, b) => (b.place > a.place ? b : a));
        const far = Math.max(...own.map((line) => line.ratio));
        return { ...end, ratio: Math.min(end.ratio, most), words: top.has(name) ? `${name} ↑ ${change(far).replace(/\.\d/, '')}` : name };
      });
      const last = Math.max(...all.map((line) => line.place));
      const cut = Math.floor((marginRight - 10) / 6.6);
      return Plot.plot({
        ...plotBase(width),
        height: plotHeight + 30 + bottom + 28,
        marginTop: 30,
        marginLeft: 62,
        marginRight,
        marginBottom: bottom + 28,
        x: { type: 'point', domain: d3.range(ticks.length), tickFormat: (i) => along.tickFormat(ticks[i]), label: `${axisLabel(view, view.x)} →`, labelAnchor: 'center', labelOffset: bottom + 24, tickRotate: along.turned ? -40 : 0 },
        y: { grid: true, label: '↑ longer than the best', labelAnchor: 'top', domain: [1, most], tickFormat: (ratio) => (ratio === 1 ? '0 %' : `+${+((ratio - 1) * 100).toFixed(1)} %`), ticks: 5 },
        marks: [
          ...names.map((name) => {
            const own = all.filter((line) => line.name === name);
            const place = series(own[0].runner);
            return Plot.line(own, { x: 'place', y: 'ratio', stroke: colour(SERIES[place]), strokeWidth: 2.2, strokeDasharray: DASHED[place], clip: true });
          }),
          Plot.dot(all.filter((line) => line.ratio <= most), { x: 'place', y: 'ratio', fill: (line) => colour(swatchOf(series, line.runner)), r: 3 }),
          Plot.text(apart(ends, most, plotHeight), { x: () => last, y: 'ratio', text: (end) => (end.words.length <= cut ? end.words : `${end.words.slice(0, cut - 1)}…`), title: 'words', dx: 10, textAnchor: 'start', fill: (line) => colour(swatchOf(series, line.runner)), fontWeight: 600 }),
        ].flat(),
      });
    },
  });
}

/** Labels at the ends of lines, moved where they would lie on one another. */
function apart(ends, most, height) {
  const gap = ((most - 1) / height) * 16;
  const placed = [...ends].sort((a, b) => a.ratio - b.ratio).map((end) => ({ ...end }));
  for (let i = 1; i < placed.length; i += 1) placed[i].ratio = Math.max(placed[i].ratio, placed[i - 1].ratio + gap);
  for (let i = placed.length - 1, top = most; i >= 0; i -= 1, top -= gap) placed[i].ratio = Math.min(placed[i].ratio, top);
  return placed;
}

function standingsChart() {
  const all = together(doc.points);
  const rows = all.scores.map((score) => ({ ...score, name: doc.runners[score.runner] })).sort((a, b) => a.log - b.log || a.runner - b.runner);
  const finite = rows.filter((row) => Number.isFinite(row.log));
  const series = seriesOf();
  return chart({
    title: () => 'Over all points: time against the best of each',
    name: () => 'standings',
    table: () => [['candidate', 'ratio_to_best', 'first_points', 'no_significant_difference_from_first_points', 'points'], rows.map((row) => [row.name, Number.isFinite(row.log) ? Math.exp(row.log) : null, row.first, row.tied, all.points])],
    summary: () => {
      const most = [...rows].sort((a, b) => b.tied - a.tied)[0];
      const unfinished = rows.filter((row) => !Number.isFinite(row.log)).map((row) => row.name);
      return [`${finite.length ? `${finite[0].name} is closest to the best everywhere (geometric mean ${change(Math.exp(finite[0].log))}). ` : ''}${most.name} has the least mean at ${most.first} of ${count(all.points, 'point')}, and no significant difference from the least at ${most.tied}.`,
        unfinished.length ? `Not finished everywhere: ${unfinished.join(', ')}.` : ''].join(' ');
    },
    draw: (width) => {
      const { marginLeft, tickFormat } = nameAxis(rows.map((row) => row.name), width);
      const wide = width >= 480;
      // Values stand in columns of their own, right of the chart.
      const columns = [['longer by', 62, (row) => change(Math.exp(row.log))]];
      if (wide) columns.push(['first at', 122, (row) => `${row.first} of ${all.points}`], ['no difference at', 222, (row) => `${row.tied} of ${all.points}`]);
      const marginRight = columns.at(-1)[1] + 8;
      const { most } = roomFor(finite.map((row) => ({ name: row.name, ratio: Math.exp(row.log) })));
      const at = (row) => Math.min(Math.exp(row.log), most);
      const beyond = finite.filter((row) => Math.exp(row.log) > most);
      return Plot.plot({
        ...plotBase(width),
        height: finite.length * 24 + 78,
        marginTop: 24,
        marginLeft,
        marginRight,
        marginBottom: 44,
        x: { label: 'longer than the best of each point →', labelAnchor: 'center', labelOffset: 38, grid: true, domain: [1, most], tickFormat: (ratio) => (ratio === 1 ? '0 %' : `+${+((ratio - 1) * 100).toFixed(1)} %`), ticks: Math.max(2, width / 180) },
        y: { domain: finite.map((row) => row.name), label: null, tickSize: 0, tickFormat },
        marks: [
          Plot.ruleY(finite, { y: 'name', x1: () => 1, x2: at, stroke: colour('grey'), strokeOpacity: 0.5, strokeWidth: 5 }),
          Plot.dot(finite.filter((row) => !beyond.includes(row)), { y: 'name', x: at, fill: (row) => colour(swatchOf(series, row.runner)), r: 5, symbol: (row) => (row.name.startsWith('tcp ') ? 'square' : 'circle') }),
          // Further than the axis goes.
          Plot.text(beyond, { y: 'name', x: at, text: () => '▶', fill: (row) => colour(swatchOf(series, row.runner)), textAnchor: 'end' }),
          ...columns.flatMap(([title, dx, words]) => [
            Plot.text(finite, { y: 'name', frameAnchor: 'right', text: words, textAnchor: 'end', dx, fill: colour('soft'), fontSize: 11 }),
            Plot.text([title], { frameAnchor: 'top-right', text: (words) => words, textAnchor: 'end', dx, dy: -18, fill: colour('soft'), fontSize: 11 }),
          ]),
        ],
      });
    },
  });
}

/** What the playground is asked at a point: values as TOML has them, in other fields than the scenario's without quotation marks. */
function questionAt(number) {
  const { fields, values } = doc.questions;
  const fill = (name, text) => values[number].reduce((said, value, axis) => said.replaceAll(`@${axis}@`, () => (name === 'links' ? value : value.replace(/^"|"$/g, ''))), text);
  return Object.fromEntries(Object.entries(fields).map(([name, text]) => [name, fill(name, text)]));
}

/** Most points that are offered one by one. */
const MOST_OFFERED = 500;

/** The choice of a point to open in the playground. `show()` offers the points in view, `choose(point)` one of them. */
function pointAgain(view) {
  if (!doc.questions) return { place: null, show: () => {}, choose: () => {} };
  const options = h('select', { 'aria-label': 'Point', onchange: () => ask(questionAt(Number(options.value))) });
  const { place, ask } = againLink(h('label', {}, 'Point ', options, ' '));
  const number = new Map(doc.points.map((point, i) => [point, i]));
  const words = (i) => doc.questions.values[i].map((value, axis) => `${doc.axes[axis].name} ${signs(value.replace(/^"|"$/g, ''))}`).join(', ');
  const choose = (point) => {
    options.value = String(number.get(point));
    ask(questionAt(number.get(point)));
  };
  const show = () => {
    const points = view.points().slice(0, MOST_OFFERED);
    options.replaceChildren(...points.map((point) => h('option', { value: number.get(point) }, words(number.get(point)))));
    if (points.length) choose(points[0]);
  };
  return { place, show, choose };
}

function sweepPage() {
  const view = sweepState();
  const point = pointAgain(view);
  const map = winnerMap(view, point.choose);
  const along = alongAxis(view);
  const choose = h('div', { class: 'bar choose' });
  const select = (label, options, chosen, pick) => h('label', {}, label, h('b', { class: 'who' }, (options.find(([value]) => value === chosen) || ['', ''])[1]), h('select', { 'aria-label': label, onchange: (event) => { pick(Number(event.target.value)); refresh(); } },
    options.map(([value, text]) => h('option', { value, selected: value === chosen }, text))));
  const refresh = () => {
    const axes = doc.axes.map((axis, i) => [i, axis.name]);
    const group = h('div', { style: 'display: flex; flex-wrap: wrap; gap: .5rem 1rem' },
      select('across', axes.filter(([i]) => i !== view.y), view.x, (i) => { view.x = i; }),
      doc.axes.length > 1 ? select('up', axes.filter(([i]) => i !== view.x), view.y, (i) => { view.y = i; }) : null,
      doc.axes.map((axis, i) => (i === view.x || i === view.y ? null
        : select(axis.name, [[-1, 'all'], ...view.axes[i].names.map((name, place) => [place, name])], view.slice[i], (place) => { view.slice[i] = place; }))),
      select('gain against', doc.runners.map((name, i) => [i, name]), view.against, (i) => { view.against = i; }));
    choose.replaceChildren(group);
    point.show();
    map.redraw();
    along.redraw();
  };
  refresh();
  return [
    h('p', { class: 'kicker' }, `${doc.title}: ${doc.summary}. ${count(doc.points.length, 'point')}, ${count(doc.runs, 'run')} of each candidate at each.`),
    ...answer(doc.headline),
    section('map', 'Where each wins', 'Each cell is the candidate with the least mean completion time there, and its time against another’s. Choose what lies across and up; what isn’t shown is averaged (geometric means). ≈ : a tie.', choose, map, point.place, along),
    section('standings', 'Over all points', null, standingsChart()),
    originSection(),
  ];
}
