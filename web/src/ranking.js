// The ranking: means with their intervals, and the table with everything else.

/** Names that stand out in every chart: the winner, `linux`, plain TCP on the best path. */
function notable(ranking) {
  const names = [ranking.rows[0].scheduler];
  if (ranking.rows.some((row) => row.scheduler === 'linux')) names.push('linux');
  if (ranking.best_tcp) names.push(ranking.best_tcp);
  return [...new Set(names)];
}

function rankingSummary(ranking) {
  const [first, ...others] = ranking.rows;
  const ties = others.filter((row) => row.ties_with_best).length;
  const last = others[others.length - 1];
  const parts = [`${first.scheduler} has the least mean, ${time(first.fct_mean_s)}`];
  if (ties) parts.push(`${count(ties, 'other')} cannot be told apart from it`);
  if (last) parts.push(`the last, ${last.scheduler}, takes ${change(last.fct_mean_s / first.fct_mean_s)}`);
  return `${parts.join('; ')}.`;
}

function rankingChart(state) {
  return chart({
    title: () => (/completion/.test(state.ranking().measure) ? `Mean completion time, ${state.ranking().workload}` : state.ranking().workload),
    name: () => fileName('ranking', state.ranking().workload),
    summary: () => rankingSummary(state.ranking()),
    table: () => rankingTable(state.ranking()),
    draw: (width) => {
      const ranking = state.ranking();
      const rows = ranking.rows.map((row) => ({
        name: row.scheduler,
        mean: row.fct_mean_s,
        low: row.fct_mean_interval_s ? row.fct_mean_interval_s[0] : row.fct_mean_s,
        high: row.fct_mean_interval_s ? row.fct_mean_interval_s[1] : row.fct_mean_s,
        kind: row.single_path ? 'tcp' : row.ties_with_best ? 'tie' : 'other',
      }));
      const longest = Math.max(...rows.map((row) => row.name.length));
      const shade = { tie: colour('new'), other: colour('grey'), tcp: colour('reinjected') };
      const linux = rows.find((row) => row.name === 'linux');
      const inSeconds = Math.max(...rows.map((row) => row.high)) >= 2;
      return Plot.plot({
        ...plotBase(width),
        height: rows.length * 22 + 64,
        marginBottom: 40,
        marginLeft: Math.min(width * 0.4, longest * 7.2 + 18),
        marginRight: 64,
        x: { label: inSeconds ? 'seconds →' : 'milliseconds →', grid: true, nice: true, transform: (s) => (inSeconds ? s : s * 1e3), ticks: Math.max(3, width / 110) },
        y: { domain: rows.map((row) => row.name), label: null, tickSize: 0 },
        marks: [
          Plot.tickX(ranking.rows.filter((row) => row.bound_s), { y: 'scheduler', x: (row) => row.bound_s.capacity, stroke: colour('ink'), strokeOpacity: 0.55, strokeWidth: 1.5, inset: 3 }),
          linux ? Plot.ruleX([linux.mean], { stroke: colour('soft'), strokeDasharray: '3,3' }) : null,
          Plot.ruleY(rows, { y: 'name', x1: 'low', x2: 'high', stroke: (row) => shade[row.kind], strokeWidth: 7, strokeOpacity: 0.3, strokeLinecap: 'round' }),
          Plot.dot(rows, { y: 'name', x: 'mean', fill: (row) => shade[row.kind], r: 4.5, symbol: (row) => (row.kind === 'tcp' ? 'square' : 'circle') }),
          Plot.text(rows, { y: 'name', x: 'high', text: (row) => time(row.mean), textAnchor: 'start', dx: 9, fill: colour('soft'), stroke: colour('card'), strokeWidth: 4, fontSize: 11 }),
        ],
      });
    },
    before: h('div', { class: 'legend', 'aria-hidden': 'true' },
      h('span', {}, h('i', { style: '--swatch: var(--new); border-radius: 50%' }), 'the first, and ties with it'),
      h('span', {}, h('i', { style: '--swatch: var(--grey); border-radius: 50%' }), 'slower'),
      h('span', {}, h('i', { style: '--swatch: var(--reinjected)' }), 'plain TCP'),
      h('span', {}, 'bar: 95 % interval of the mean; dashed: linux; tick: the earliest end that the links allow')),
  });
}

function rankingTable(ranking) {
  const columns = ['scheduler', 'mean_s', 'interval_low_s', 'interval_high_s', 'p50_s', 'p95_s', 'ties_with_best',
    'versus_linux', 'versus_linux_p', 'versus_best_tcp', 'versus_best_tcp_p', 'bound_s', 'over_bound', 'repeated_bytes', 'retransmitted_segments',
    'timeouts', 'finished', 'runs'];
  const rows = ranking.rows.map((row) => [row.scheduler, row.fct_mean_s, ...(row.fct_mean_interval_s || [null, null]),
    row.fct_p50_s, row.fct_p95_s, row.ties_with_best, row.versus_linux?.ratio, row.versus_linux?.p,
    row.versus_best_tcp?.ratio, row.versus_best_tcp?.p, row.bound_s?.capacity, row.over_bound?.capacity, row.repeated_bytes_mean, row.retransmitted_segments_mean,
    row.timeouts_mean, row.finished_runs, row.runs]);
  return [columns, rows];
}

function versusCell(ratio) {
  if (!ratio) return h('td', {}, '–');
  if (ratio.finding === 'unfinished') return h('td', {}, 'unfinished');
  const sure = ratio.p < 0.05;
  const tone = !sure ? 'unsure' : ratio.ratio < 1 ? 'good' : 'bad';
  const title = ratio.interval ? `95 % interval ${change(ratio.interval[0])} to ${change(ratio.interval[1])}` : null;
  return h('td', { class: tone, title }, sure ? change(ratio.ratio) : `(${change(ratio.ratio)})`);
}

function rankingNumbers(state) {
  const body = h('tbody', {});
  const tcp = h('th', {}, '');
  const table = h('table', {},
    h('thead', {}, h('tr', {}, ['Scheduler', 'Mean', '95 % interval', 'Median', '95th'].map((name) => h('th', { scope: 'col' }, name)),
      h('th', { scope: 'col' }, 'vs linux'), tcp, ['/ bound', 'Repeated', 'Retransmitted', ''].map((name) => h('th', { scope: 'col' }, name)))),
    body);
  const redraw = () => {
    const ranking = state.ranking();
    tcp.textContent = `vs ${ranking.best_tcp || 'tcp'}`;
    body.replaceChildren(...ranking.rows.map((row, place) => h('tr', { class: place === 0 ? 'mark' : null },
      h('td', {}, `${place + 1}${place && row.ties_with_best ? '=' : ''} `, row.scheduler),
      h('td', {}, time(row.fct_mean_s)),
      h('td', {}, row.fct_mean_interval_s ? row.fct_mean_interval_s.map(time).join(' – ') : '–'),
      h('td', {}, time(row.fct_p50_s)),
      h('td', {}, time(row.fct_p95_s)),
      versusCell(row.versus_linux),
      versusCell(row.versus_best_tcp),
      h('td', {}, row.over_bound ? `${digits(row.over_bound.capacity, 2)}×` : '–'),
      h('td', {}, row.repeated_bytes_mean < 0.5 ? '0' : bytes(row.repeated_bytes_mean)),
      h('td', {}, digits(row.retransmitted_segments_mean, 1)),
      h('td', {}, row.finished_runs < row.runs ? h('span', { class: 'bad' }, `${row.runs - row.finished_runs} of ${row.runs} unfinished`) : ''))));
  };
  redraw();
  redraws.add(redraw);
  const warnings = h('div', { class: 'warnings' });
  const warn = () => warnings.replaceChildren(...(state.ranking().warnings || []).map((text) => h('p', { class: 'lead' }, ...prose(text))));
  warn();
  state.listen(warn);
  return [warnings, h('details', {},
    h('summary', {}, 'All numbers'),
    h('div', { class: 'scroll' }, table),
    h('p', { class: 'keys' }, '= : a tie with the first (paired over seeds, Holm-corrected, 5 %). (…) : no significant difference. / bound: the mean over the earliest end that the links allow. Repeated: bytes that the scheduler duplicated or the connection reinjected, per run.'))];
}
