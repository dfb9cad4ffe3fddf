// Completion times of all runs: cumulative distributions and boxes.

/** Told apart by dashes as well as by colour. */
const DASHED = [null, '7 3', '2 2', '9 3 2 3', '4 4', '12 3', '1 3'];

function distribution(state) {
  const chips = h('div', { class: 'chips', role: 'group', 'aria-label': 'Schedulers in colour' });
  const { coloured } = state;
  const refresh = () => {
    const ranking = state.ranking();
    chips.replaceChildren(...ranking.rows.map((row) => {
      const swatch = swatchOf(row.scheduler);
      return h('button', {
        type: 'button', 'aria-pressed': String(coloured.shown.has(row.scheduler)), style: swatch ? `--swatch: var(--${swatch})` : null,
        onclick: () => {
          coloured.toggle(row.scheduler);
          redrawAll();
        },
      }, h('i', {}), row.scheduler);
    }));
  };
  const swatchOf = (name) => {
    const slot = coloured.slot(name);
    return slot < 0 ? null : SERIES[slot];
  };
  // A run that didn't finish has no time.
  const done = (row) => (row.fct_s || []).filter((value) => value !== null);
  const times = (ranking) => ranking.rows.filter((row) => done(row).length);
  const unit = (ranking) => (Math.max(...times(ranking).map((row) => row.fct_p95_s ?? Infinity)) >= 2
    ? { label: 'seconds →', scale: 1 } : { label: 'milliseconds →', scale: 1e3 });
  const table = () => [['scheduler', 'run', 'fct_s'],
    times(state.ranking()).flatMap((row) => row.fct_s.map((value, run) => [row.scheduler, run, value]))];

  refresh();
  redraws.add(refresh);
  const cdf = chart({
    title: () => 'Share of runs done by then',
    name: () => fileName('cdf', state.ranking().workload),
    table,
    summary: () => {
      const parts = [...coloured.shown].map((name) => {
        const row = state.ranking().rows.find((other) => other.scheduler === name);
        if (!row) return null;
        const sorted = done(row).sort((a, b) => a - b);
        return `${name}: half of the runs within ${time(quantile(sorted, 0.5))}, nine of ten within ${time(quantile(sorted, 0.9))}`;
      });
      return `${parts.filter(Boolean).join('; ')}.`;
    },
    draw: (width) => {
      const ranking = state.ranking();
      const { label, scale } = unit(ranking);
      const steps = times(ranking).flatMap((row) => {
        const sorted = done(row).sort((a, b) => a - b);
        return [{ name: row.scheduler, x: sorted[0] * scale, y: 0 },
          ...sorted.map((value, i) => ({ name: row.scheduler, x: value * scale, y: (i + 1) / sorted.length }))];
      });
      const back = steps.filter((step) => !coloured.shown.has(step.name));
      const front = steps.filter((step) => coloured.shown.has(step.name));
      // One far tail must not squeeze everything else.
      const all = times(ranking).filter((row) => coloured.shown.has(row.scheduler)).flatMap(done).sort((a, b) => a - b);
      const domain = all.length ? [all[0] * scale * 0.97, all.at(-1) * scale * 1.03] : undefined;
      return Plot.plot({
        ...plotBase(width),
        height: onPaper() ? 250 : 340,
        marginLeft: 44,
        marginBottom: 38,
        x: { label, grid: true, domain, clamp: true, ticks: Math.max(3, width / 110) },
        y: { label: null, grid: true, percent: true, tickFormat: (value) => `${value} %`, ticks: 5 },
        marks: [
          Plot.line(back, { x: 'x', y: 'y', z: 'name', curve: 'step-after', stroke: colour('grey'), strokeOpacity: 0.35, strokeWidth: 1, clip: true }),
          ...[...coloured.shown].map((name) => Plot.line(front.filter((step) => step.name === name), {
            x: 'x', y: 'y', curve: 'step-after', stroke: colour(swatchOf(name)), strokeWidth: 2.2, strokeDasharray: DASHED[coloured.slot(name)], clip: true,
          })),
          // Names where a distribution leaves room.
          ...[...coloured.shown].map((name, i) => Plot.text([name], {
            frameAnchor: 'bottom-right', dx: -8, dy: -10 - 17 * (coloured.shown.size - 1 - i), fill: colour(swatchOf(name)), fontWeight: 600, stroke: colour('card'), strokeWidth: 4,
          })),
          Plot.ruleY([0], { stroke: colour('line') }),
          Plot.tip(front, Plot.pointer({ x: 'x', y: 'y', title: (step) => `${step.name}\n${digits(step.y * 100, 0)} % within ${time(step.x / scale)}`, fill: colour('card'), stroke: colour('line') })),
        ],
      });
    },
  });
  const boxes = chart({
    title: () => 'Spread over the runs',
    name: () => fileName('boxes', state.ranking().workload),
    table,
    summary: () => {
      const rows = times(state.ranking()).map((row) => {
        const sorted = done(row).sort((a, b) => a - b);
        return { name: row.scheduler, spread: (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / quantile(sorted, 0.5) };
      }).sort((a, b) => a.spread - b.spread);
      if (rows.length < 2) return 'One candidate.';
      const say = (row) => `${row.name} (middle half within ${digits(row.spread * 100, 1)} % of its median)`;
      return `Steadiest: ${say(rows[0])}; least steady: ${say(rows.at(-1))}. Box: middle half; line: median; whiskers: 1.5 times the box; dots: runs beyond.`;
    },
    draw: (width) => {
      const ranking = state.ranking();
      const { label, scale } = unit(ranking);
      const rows = times(ranking);
      const data = rows.flatMap((row) => done(row).map((value) => ({ name: row.scheduler, value: value * scale })));
      const { marginLeft, tickFormat } = nameAxis(rows.map((row) => row.scheduler), width);
      return Plot.plot({
        ...plotBase(width),
        height: Math.max(onPaper() ? 250 : 340, rows.length * rowHeight(18) + 50),
        marginLeft,
        marginBottom: 38,
        x: { label, grid: true, nice: true, ticks: Math.max(3, width / 110) },
        y: { domain: rows.map((row) => row.scheduler), label: null, tickSize: 0, tickFormat },
        marks: [
          Plot.boxX(data, {
            x: 'value', y: 'name', r: 1.6, strokeWidth: 1.4, stroke: colour('ink'),
            fill: (point) => (swatchOf(point.name) ? colour(swatchOf(point.name)) : colour('grey')), fillOpacity: 0.75,
          }),
        ],
      });
    },
  });
  return [chips, h('div', { class: 'pair' }, cdf, boxes)];
}
