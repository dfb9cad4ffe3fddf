// The ranking: means with their intervals, and the table with everything else.

/** Names that stand out in every chart: the fastest, the one that is named, `linux`, plain TCP on the best path, and the slowest. */
function notable(ranking) {
  const names = [ranking.rows[0].scheduler];
  const named = doc.decision?.named;
  if (ranking.rows.some((row) => row.scheduler === named)) names.push(named);
  if (ranking.rows.some((row) => row.scheduler === 'linux')) names.push('linux');
  if (ranking.best_tcp) names.push(ranking.best_tcp);
  const slow = ranking.rows.filter((row) => !row.single_path).at(-1);
  if (slow) names.push(slow.scheduler);
  return [...new Set(names)];
}

function rankingSummary(ranking) {
  const [first, ...others] = ranking.rows;
  const ties = others.filter((row) => row.standing === 'equal').length;
  const last = others[others.length - 1];
  const parts = [`${first.scheduler} has the least mean, ${time(first.fct_mean_s)}`];
  if (ties && first.standing === 'equal') parts.push(`${count(ties, 'other')} ${ties === 1 ? 'is' : 'are'} equal to it within 2 %`);
  if (last) parts.push(`the last, ${last.scheduler}, takes ${longer(last.fct_mean_s / first.fct_mean_s)}`);
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
        tcp: row.single_path,
        slower: row.standing === 'slower',
        colour: state.coloured.colour(row.scheduler),
      }));
      const { marginLeft, tickFormat } = nameAxis(rows.map((row) => row.name), width);
      const linux = rows.find((row) => row.name === 'linux');
      // Who is many times as far behind as the rest leaves the chart, instead of squashing it.
      // It reaches at least as far beyond the fastest as the links' bound lies before it.
      const bounds = ranking.rows.filter((row) => row.bound_s).map((row) => row.bound_s.capacity);
      const before = bounds.length ? Math.max(0, 1 - Math.min(...bounds) / rows[0].mean) : 0;
      const most = Math.max(1 + before, roomFor(rows.map((row) => ({ name: row.name, ratio: row.mean / rows[0].mean }))).most);
      const there = rows.filter((row) => row.mean <= rows[0].mean * most);
      const beyond = rows.filter((row) => !there.includes(row));
      const cut = Math.max(rows[0].mean * most, ...there.map((row) => row.high));
      const least = Math.min(...there.map((row) => row.low), ...ranking.rows.filter((row) => row.bound_s).map((row) => row.bound_s.capacity));
      const domain = beyond.length ? [least, cut] : undefined;
      const inSeconds = Math.max(...there.map((row) => row.high)) >= 2;
      return Plot.plot({
        ...plotBase(width),
        height: rows.length * rowHeight(22) + 64,
        marginBottom: 40,
        marginLeft,
        marginRight: 76,
        x: { label: inSeconds ? 'seconds →' : 'milliseconds →', grid: true, ...(domain ? { domain: domain.map((s) => (inSeconds ? s : s * 1e3)), insetLeft: 6 } : { nice: true }), transform: (s) => (inSeconds ? s : s * 1e3), ticks: Math.max(3, width / 110) },
        y: { domain: rows.map((row) => row.name), label: null, tickSize: 0, tickFormat },
        marks: [
          Plot.tickX(ranking.rows.filter((row) => row.bound_s && row.bound_s.capacity <= cut), { clip: true, y: 'scheduler', x: (row) => row.bound_s.capacity, stroke: colour('ink'), strokeOpacity: 0.55, strokeWidth: 1.5, inset: 3 }),
          linux && linux.mean <= cut ? Plot.ruleX([linux.mean], { stroke: colour('soft'), strokeDasharray: '3,3' }) : null,
          Plot.ruleY(there, { y: 'name', x1: 'low', x2: 'high', clip: beyond.length > 0, className: 'intervals', stroke: 'colour', strokeWidth: 7, strokeOpacity: 0.3, strokeLinecap: 'round' }),
          Plot.text(beyond, { y: 'name', frameAnchor: 'right', text: () => '▶', fill: 'colour', textAnchor: 'end' }),
          Plot.dot(there, { y: 'name', x: 'mean', fill: (row) => (row.slower ? colour('card') : row.colour), stroke: 'colour', strokeWidth: 2, r: 4.2, symbol: (row) => (row.tcp ? 'square' : 'circle') }),
          // In a column of their own.
          Plot.text(rows, { y: 'name', frameAnchor: 'right', text: (row) => time(row.mean), textAnchor: 'end', dx: 70, fill: colour('soft'), fontSize: 11 }),
        ],
      });
    },
    before: h('div', { class: 'legend', 'aria-hidden': 'true' },
      h('span', {}, h('i', { style: '--swatch: var(--soft); border-radius: 50%' }), 'not shown to be slower than the fastest by more than 2 %'),
      h('span', {}, h('i', { style: 'background: none; border: 2px solid var(--soft); border-radius: 50%' }), 'slower'),
      h('span', {}, h('i', { style: 'background: none; border: 2px solid var(--soft); border-radius: 0' }), 'plain TCP'),
      h('span', {}, 'bar: 95 % interval of the mean; dashed: linux, where the chart reaches it; tick: the earliest end that the links allow; ▶: beyond the chart')),
  });
}

function rankingTable(ranking) {
  const columns = ['scheduler', 'mean_s', 'interval_low_s', 'interval_high_s', 'p50_s', 'p95_s', 'standing',
    'versus_linux', 'versus_linux_p', 'versus_best_tcp', 'versus_best_tcp_p', 'bound_s', 'over_bound', 'repeated_bytes', 'retransmitted_segments',
    'timeouts', 'finished', 'runs'];
  const rows = ranking.rows.map((row) => [row.scheduler, row.fct_mean_s, ...(row.fct_mean_interval_s || [null, null]),
    row.fct_p50_s, row.fct_p95_s, row.standing, row.versus_linux?.ratio, row.versus_linux?.p,
    row.versus_best_tcp?.ratio, row.versus_best_tcp?.p, row.bound_s?.capacity, row.over_bound?.capacity, row.repeated_bytes_mean, row.retransmitted_segments_mean,
    row.timeouts_mean, row.finished_runs, row.runs]);
  return [columns, rows];
}

function versusCell(ratio) {
  if (!ratio) return h('td', {}, '–');
  if (ratio.finding === 'unfinished') return h('td', {}, 'unfinished');
  // Runs that are all alike are one course of events: there is nothing to be unsure of.
  const sure = ratio.p < 0.05 || ratio.finding === 'runs alike';
  const tone = !sure || ratio.ratio === 1 ? 'unsure' : ratio.ratio < 1 ? 'good' : 'bad';
  const title = ratio.interval ? `95 % interval ${change(ratio.interval[0])} to ${change(ratio.interval[1])}` : null;
  return h('td', { class: tone, title }, sure ? change(ratio.ratio) : `(${change(ratio.ratio)})`);
}

/** `1=` for all that are equal to the first, `?` where that is not decided; who is slower over all workloads has a number. */
function placeOf(ranking, row, place) {
  const over = doc.decision?.candidates.find((candidate) => candidate.scheduler === row.scheduler);
  if (row.standing === 'open') return over?.standing === 'slower' ? place + 1 : '?';
  if (row.standing === 'slower') return place + 1;
  return place > 0 || ranking.rows.filter((other) => other.standing === 'equal').length > 1 ? '1=' : '1';
}

/** Each path's share of the bytes sent, per cent: 89/11. */
function sharesOf(row) {
  const sent = row.paths.map((path) => path.bytes_mean ?? path.link_bytes_mean ?? 0);
  const all = sent.reduce((a, b) => a + b, 0);
  return all > 0 ? sent.map((bytes) => digits((bytes / all) * 100, 0)).join('/') : '–';
}

function sentAgain(count) {
  return count < 0.5 ? '0' : bytes(count);
}

function rankingNumbers(state) {
  const body = h('tbody', {});
  const tcp = h('th', {}, '');
  const table = h('table', {},
    h('thead', {}, h('tr', {}, ['Scheduler', 'Mean', '95 % interval', 'Median', '95th'].map((name) => h('th', { scope: 'col' }, name)),
      h('th', { scope: 'col' }, 'vs linux'), tcp, ['x link bound', '% by path', 'Duplicated', 'Reinjected', 'Retransmits', ''].map((name) => h('th', { scope: 'col' }, name)))),
    body);
  const redraw = () => {
    const ranking = state.ranking();
    tcp.textContent = `vs ${ranking.best_tcp || 'tcp'}`;
    body.replaceChildren(...ranking.rows.map((row, place) => h('tr', { class: place === 0 ? 'mark' : null },
      h('td', {}, `${placeOf(ranking, row, place)} `, row.scheduler),
      h('td', {}, time(row.fct_mean_s)),
      h('td', {}, row.fct_mean_interval_s ? row.fct_mean_interval_s.map(time).join(' – ') : '–'),
      h('td', {}, time(row.fct_p50_s)),
      h('td', {}, time(row.fct_p95_s)),
      versusCell(row.versus_linux),
      versusCell(row.versus_best_tcp),
      h('td', {}, row.over_bound ? `${digits(row.over_bound.capacity, 2)}×` : '–'),
      h('td', {}, sharesOf(row)),
      h('td', {}, sentAgain(row.scheduler_duplicated_bytes_mean)),
      h('td', {}, sentAgain(row.opportunistic_bytes_mean + row.reinjected_bytes_mean)),
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
    h('p', { class: 'keys' }, '1= : shown to be equal to the first within 2 %. ? : not decided. (…) : no significant difference (paired over seeds, Holm-corrected, 5 %). x link bound: the mean over the earliest end that the links allow. % by path: of the bytes sent. Duplicated by the scheduler, reinjected by the connection, retransmitted by subflows: per run.'))];
}
