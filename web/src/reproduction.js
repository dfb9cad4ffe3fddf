// The page of a reproduction: the grid of claims, and each paper's figures with published beside measured.

/** A verdict's colour, by its place from the best to the least. */
const VERDICTS = Array.from({ length: 8 }, (_, i) => `verdict-${i}`);

/** Where measured values come from: their field in a cell, and in words. */
const SETTINGS = [['as_ruled', 'as assumed'], ['fitted', 'fitted']];

function swatch(verdict, words) {
  return h('span', { class: 'verdict' }, h('i', { style: `--swatch: var(--${VERDICTS[verdict]})` }), words);
}

/** Three significant digits. */
function significant(value) {
  if (value === null || value === undefined) return '–';
  const size = Math.abs(value);
  const text = digits(size, size >= 1000 || size === 0 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3);
  return `${value < 0 ? '−' : ''}${text}`;
}

/** How many claims of some papers have a verdict. */
function tally(papers, verdict) {
  return papers.reduce((sum, paper) => sum + paper.claims.filter((claim) => claim.verdict === verdict).length, 0);
}

function reproductionHeadline() {
  const all = doc.papers.reduce((sum, paper) => sum + paper.claims.length, 0);
  const [plain, inferred] = [tally(doc.papers, 0), tally(doc.papers, 1)];
  const papers = doc.papers.length === 1 ? doc.papers[0].name : `${doc.papers.length} papers`;
  const more = inferred ? `, ${inferred} more under a setting inferred from other numbers` : '';
  return {
    sentence: `${plain} of ${count(all, 'claim')} of ${papers} ${plain === 1 ? 'is' : 'are'} reproduced${more}.`,
    notes: [`${tally(doc.papers, 6)} ${tally(doc.papers, 6) === 1 ? 'is' : 'are'} not; what became of the others is below.`],
  };
}

/** One square per claim, and the number of each verdict. */
function claimGrid() {
  const square = (paper, claim, i) => h('a', {
    class: 'square', href: `#${paper.name}-claim-${i}`, style: `--swatch: var(--${VERDICTS[claim.verdict]})`,
    title: `${doc.verdicts[claim.verdict]}: ${printed(claim.text)}`, 'aria-label': `${doc.verdicts[claim.verdict]}: ${printed(claim.text)}`,
  });
  const order = (paper) => paper.claims.map((claim, i) => [claim, i]).sort((a, b) => a[0].verdict - b[0].verdict || a[1] - b[1]);
  const used = doc.verdicts.map((_, i) => i).filter((i) => tally(doc.papers, i) > 0);
  const line = (name, papers, squares) => h('tr', {}, h('th', { scope: 'row', class: 'left' }, name),
    h('td', { class: 'left' }, h('div', { class: 'squares' }, squares)),
    used.map((i) => h('td', {}, tally(papers, i) || '–')));
  return h('figure', { class: 'claims' },
    h('div', { class: 'legend' }, used.map((i) => swatch(i, doc.verdicts[i]))),
    h('div', { class: 'scroll' }, h('table', {},
      h('thead', {}, h('tr', {}, h('th', { class: 'left', scope: 'col' }, 'Paper'), h('th', { class: 'left', scope: 'col' }, 'Claims'),
        used.map((i) => h('th', { scope: 'col', title: doc.verdicts[i] }, h('i', { class: 'dot', style: `--swatch: var(--${VERDICTS[i]})` }), h('span', { class: 'unseen' }, doc.verdicts[i]))))),
      h('tbody', {}, doc.papers.map((paper) => line(h('a', { href: `#${paper.name}` }, paper.name), [paper], order(paper).map(([claim, i]) => square(paper, claim, i)))),
        doc.papers.length > 1 ? line('all', doc.papers, null) : null))),
    h('figcaption', {}, 'A square is a claim, from reproduced to not reproduced; it leads to what was measured.'));
}

/** A paper's claims, each with what decided it. */
function claimTable(paper) {
  const hasFit = paper.claims.some((claim) => claim.fitted);
  return h('div', { class: 'scroll' }, h('table', { class: 'claims' },
    h('thead', {}, h('tr', {}, ['Claim', 'Verdict', 'Agree', 'As assumed', ...(hasFit ? ['Fitted'] : [])].map((name) => h('th', { scope: 'col', class: 'left' }, name)))),
    h('tbody', {}, paper.claims.flatMap((claim, i) => [h('tr', { id: `${paper.name}-claim-${i}`, class: claim.note ? 'noted' : '' },
      h('td', { class: 'left' }, printed(claim.text)),
      h('td', { class: 'left' }, swatch(claim.verdict, doc.verdicts[claim.verdict])),
      h('td', { class: 'left', 'data-name': 'Agree' }, claim.agree === '-' ? '–' : claim.agree),
      h('td', { class: 'left', 'data-name': 'As assumed' }, claim.as_ruled ? printed(claim.as_ruled) : '–'),
      hasFit ? h('td', { class: 'left', 'data-name': 'Fitted' }, claim.fitted ? printed(claim.fitted) : '–') : null),
    // What was found about it has the table's whole width.
    claim.note ? h('tr', {}, h('td', { class: 'left note', colspan: hasFit ? 5 : 4 }, ...prose(printed(claim.note)))) : null]))));
}

/** The signs of print: a minus, and values with their unit on one line. */
function printed(text) {
  return text.replace(/(^|[\s[(,])-(?=\d)/g, '$1−').replace(/(\d) %/g, '$1\u00a0%');
}

/** The measured values of a figure, in rows of plain fields. */
function pointsOf(figure) {
  return figure.cells.flatMap((cell) => {
    const at = { row: figure.rows[cell.row], column: cell.column, name: figure.columns[cell.column], x: figure.x ? figure.x[cell.column] : cell.column, unit: cell.unit || '' };
    const points = SETTINGS.filter(([field]) => cell[field]).map(([field, words]) => {
      const { mean: value, interval } = cell[field];
      return { ...at, kind: words, value, low: interval ? interval[0] : value, high: interval ? interval[1] : value };
    });
    if (cell.published !== null) points.unshift({ ...at, kind: 'published', value: cell.published, low: cell.published, high: cell.published });
    return points;
  });
}

/** Whether an axis of these values is better logarithmic: the smallest would be squashed otherwise. */
function wantsLog(values) {
  const positive = values.filter((value) => value > 0);
  return positive.length === values.length && Math.max(...positive) / Math.min(...positive) > 8;
}

function slotOf(figure, row) {
  return figure.rows.indexOf(row) % SERIES.length;
}

/** Marks of published, ruled and fitted points: rings, discs, diamonds. */
function pointMarks(figure, points, place) {
  const stroke = (point) => colour(SERIES[slotOf(figure, point.row)]);
  const of = (kind) => points.filter((point) => point.kind === kind);
  return [
    Plot.link(points.filter((point) => point.high > point.low), { ...place.both, y1: 'low', y2: 'high', stroke, strokeWidth: 1.4 }),
    Plot.dot(of('as assumed'), { ...place.one, y: 'value', fill: stroke, r: 3.4 }),
    Plot.dot(of('fitted'), { ...place.one, y: 'value', fill: colour('card'), stroke, strokeWidth: 1.8, symbol: 'diamond', r: 4.2 }),
    Plot.dot(of('published'), { ...place.one, y: 'value', stroke, strokeWidth: 2, r: 5.6 }),
    Plot.tip(points, Plot.pointer({ ...place.one, y: 'value', fill: colour('card'), stroke: colour('line'), title: (point) => `${point.row}, ${point.name}\n${point.kind}: ${significant(point.value)} ${point.unit}` })),
  ];
}

/** Values over a number, as the paper's curve. */
function drawCurve(figure, points, width) {
  const values = points.flatMap((point) => [point.low, point.high]);
  const line = (kind, more) => figure.rows.map((row) => Plot.line(points.filter((point) => point.kind === kind && point.row === row), {
    x: 'x', y: 'value', stroke: colour(SERIES[slotOf(figure, row)]), strokeOpacity: 0.75, strokeWidth: 1.8, strokeDasharray: DASHED[slotOf(figure, row)], ...more,
  }));
  const logX = wantsLog(figure.x);
  const { ticks, turned } = roomy(figure, logX, width - 120);
  const longest = Math.max(...figure.columns.map((name) => name.length));
  const bottom = turned ? Math.ceil(longest * 4.6) + 20 : 36;
  const nameAt = (x) => figure.columns[d3.leastIndex(figure.x, (a, b) => Math.abs(a - x) - Math.abs(b - x))];
  return Plot.plot({
    ...plotBase(width),
    height: 258 + bottom,
    marginLeft: 56,
    marginRight: 44,
    marginTop: 26,
    marginBottom: bottom,
    x: { type: logX ? 'log' : 'linear', axis: null, inset: 10 },
    y: valueAxis(values, points[0].unit),
    marks: [Plot.axisX(ticks, { text: nameAt, tickRotate: turned ? -40 : 0, label: null }), ...valueMarks(values, points[0].unit), ...line('as assumed'), ...line('fitted', { strokeOpacity: 0.4 }), ...line('published', { strokeOpacity: 0.25 }),
      ...pointMarks(figure, points, { one: { x: 'x' }, both: { x1: 'x', x2: 'x' } })],
  });
}

/** The places along an axis that are named: all of them, turned if need be, or those whose names don't lie on one another. */
function roomy(figure, log, width) {
  const scale = (x) => (log ? Math.log(x) : x);
  const [low, high] = [Math.min(...figure.x), Math.max(...figure.x)].map(scale);
  const at = (i) => ((scale(figure.x[i]) - low) / (high - low || 1)) * width;
  const half = (i) => figure.columns[i].length * 3.5 + 5;
  const kept = [];
  const order = d3.sort(figure.x.keys(), (i) => figure.x[i]);
  for (const i of order) {
    const last = kept.at(-1);
    if (last === undefined || at(i) - at(last) > half(i) + half(last)) kept.push(i);
  }
  const turned = kept.length < order.length && d3.pairs(order).every(([a, b]) => at(b) - at(a) >= 15);
  return { ticks: (turned ? order : kept).map((i) => figure.x[i]), turned };
}

/** An axis of values: logarithmic, with ticks at 1, 2 and 5, where the least would be squashed. */
function valueAxis(values, unit) {
  if (!wantsLog(values)) return { type: 'linear', grid: true, label: `↑ ${unit}`, labelAnchor: 'top', tickFormat: significantTick, zero: true, nice: true, ticks: 5 };
  return { type: 'log', axis: null, domain: [Math.min(...values) * 0.85, Math.max(...values) * 1.15] };
}

/** The ticks of a logarithmic axis: Plot would leave some of them without a number. */
function valueMarks(values, unit) {
  if (!wantsLog(values)) return [];
  const [low, high] = [Math.min(...values) * 0.85, Math.max(...values) * 1.15];
  const powers = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1);
  const all = powers.flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)).filter((tick) => tick >= low && tick <= high);
  const ticks = all.length > 9 ? all.filter((tick) => Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9) : all;
  return [Plot.gridY(ticks), Plot.axisY(ticks, { text: significantTick, label: `↑ ${unit}`, labelAnchor: 'top' })];
}

function significantTick(value) {
  return `${value < 0 ? '−' : ''}${+Math.abs(value).toPrecision(6)}`;
}

/** Values of named conditions, a group for each, a place in it for each row. */
function drawGroups(figure, points, width, columns) {
  const values = points.flatMap((point) => [point.low, point.high]);
  const log = wantsLog(values);
  const names = columns.map((i) => figure.columns[i]);
  const heading = fitting(names, (width - 70) / columns.length, 28);
  const place = (point) => columns.indexOf(point.column) + ((figure.rows.indexOf(point.row) + 0.5) / figure.rows.length - 0.5) * 0.7;
  const bottom = heading.turned ? heading.height + 8 : 30;
  return Plot.plot({
    ...plotBase(width),
    height: 250 + bottom + 26,
    marginLeft: 56,
    marginTop: 26,
    marginBottom: bottom,
    x: { type: 'linear', domain: [-0.5, columns.length - 0.5], ticks: columns.map((_, i) => i), tickFormat: (i) => heading.tickFormat(names[i] ?? ''), tickSize: 0, tickRotate: heading.turned ? -40 : 0, label: null },
    y: valueAxis(values, points[0].unit),
    marks: [
      ...valueMarks(values, points[0].unit),
      Plot.ruleX(columns.slice(1).map((_, i) => i + 0.5), { stroke: colour('grid') }),
      log ? null : Plot.ruleY([0], { stroke: colour('line') }),
      ...pointMarks(figure, points, { one: { x: place }, both: { x1: place, x2: place } }),
    ],
  });
}

/** The labels of a figure's curves; a label has one curve as assumed, and may have one in the fitted setting. */
const curveLabels = (figure) => [...new Set(figure.curves.map((curve) => curve.label))];

/** A measure over time: mean, and one standard deviation around it. Dotted: in the fitted setting. */
function drawSeries(figure, width) {
  const labels = curveLabels(figure);
  const points = figure.curves.flatMap((curve, i) => curve.points.map(([x, value, deviation]) => ({ i, x, value, low: value - deviation, high: value + deviation })));
  const stroke = (i) => colour(SERIES[i % SERIES.length]);
  return Plot.plot({
    ...plotBase(width),
    height: 280,
    marginLeft: 56,
    marginTop: 26,
    marginBottom: 42,
    x: { label: 'seconds →', labelAnchor: 'center', labelOffset: 36, ticks: Math.max(3, width / 110) },
    y: { grid: true, label: `↑ ${figure.metric}`, labelAnchor: 'top', nice: true, tickFormat: significantTick, ticks: 5 },
    marks: figure.curves.flatMap((curve, i) => {
      const own = points.filter((point) => point.i === i);
      const row = labels.indexOf(curve.label);
      const dash = curve.setting === 'fitted' ? '1.5 4' : DASHED[row % DASHED.length];
      return [
        Plot.areaY(own, { x: 'x', y1: 'low', y2: 'high', fill: stroke(row), fillOpacity: 0.13 }),
        Plot.line(own, { x: 'x', y: 'value', stroke: stroke(row), strokeWidth: 1.8, strokeDasharray: dash }),
      ];
    }),
  });
}

/** Columns of one unit each: a figure of several measures is several drawings. */
function panelsOf(figure) {
  const panels = [];
  for (const [i] of figure.columns.entries()) {
    const cell = figure.cells.find((one) => one.column === i && one.unit !== null);
    const unit = cell ? cell.unit : null;
    const last = panels.at(-1);
    if (last && last.unit === unit) last.columns.push(i);
    else panels.push({ unit, columns: [i] });
  }
  return panels;
}

function figureTable(figure) {
  if (figure.curves.length) {
    return [['curve', 'setting', 'seconds', 'mean', 'deviation'], figure.curves.flatMap((curve) => curve.points.map((point) => [curve.label, curve.setting, ...point]))];
  }
  return [['row', 'column', 'unit', 'kind', 'value', 'low', 'high'], pointsOf(figure).map((point) => [point.row, point.name, point.unit, point.kind, point.value, point.low, point.high])];
}

/** How near measured is to published, in words. */
function figureSummary(figure) {
  if (figure.curves.length) return `${figure.metric} over time of ${curveLabels(figure).join(', ')}: the mean, and one standard deviation around it.`;
  const near = SETTINGS.map(([field, words]) => {
    const both = figure.cells.filter((cell) => cell.published !== null && cell[field]);
    if (!both.length) return null;
    const inside = both.filter((cell) => (figure.against ? Math.abs(cell[field].mean - cell.published) <= 10 : Math.abs(cell[field].mean / cell.published - 1) <= 0.25)).length;
    return `${words}, ${inside} of ${both.length} published numbers are within ${figure.against ? '10 points' : '25 %'}`;
  }).filter(Boolean);
  const what = figure.against ? `Changes against ${figure.against}. ` : '';
  if (near.length) return `${what}${near.map((part, i) => (i ? part : part[0].toUpperCase() + part.slice(1))).join('; ')}.`;
  const rows = figure.rows.filter((row) => row !== figure.against);
  return `${what}The paper prints no numbers for this; measured: ${rows.join(', ')} at ${figure.columns.join(', ')}.`;
}

function figureChart(paper, figure) {
  const rows = figure.curves.length ? curveLabels(figure) : figure.rows.filter((row) => row !== figure.against);
  const slot = (row, i) => (figure.curves.length ? i : slotOf(figure, row)) % SERIES.length;
  const there = new Set(figure.curves.length ? [] : pointsOf(figure).map((point) => point.kind));
  const key = h('div', { class: 'legend' }, rows.map((row, i) => h('span', {}, h('i', { style: `--swatch: var(--${SERIES[slot(row, i)]})` }), row)),
    there.has('published') ? h('span', {}, h('i', { style: 'background: none; border: 2px solid var(--soft); border-radius: 50%' }), 'published') : null,
    there.has('as assumed') ? h('span', {}, h('i', { style: '--swatch: var(--soft); border-radius: 50%; scale: .8' }), 'measured, as assumed') : null,
    there.has('fitted') ? h('span', {}, h('i', { style: 'background: none; border: 2px solid var(--soft); border-radius: 1px; rotate: 45deg; scale: .75' }), 'measured, fitted') : null,
    there.size ? h('span', {}, 'bar: 95 %') : null,
    figure.curves.some((curve) => curve.setting === 'fitted') ? h('span', {}, 'dotted: fitted') : null);
  const draw = (columns) => (width) => {
    if (figure.curves.length) return drawSeries(figure, width);
    const points = pointsOf(figure).filter((point) => columns.includes(point.column) && Number.isFinite(point.value));
    if (figure.x && columns.length === figure.columns.length && columns.length > 2) return drawCurve(figure, points, width);
    return drawGroups(figure, points, width, columns);
  };
  const panels = figure.curves.length ? [{ columns: [] }] : panelsOf(figure);
  // Side by side where there are several measures.
  const each = (width) => (width >= 640 ? Math.min(panels.length, 3) : 1);
  return chart({
    title: () => figure.title,
    name: () => fileName(paper.name, figure.id),
    before: key,
    table: () => figureTable(figure),
    summary: () => figureSummary(figure),
    draw: (width) => {
      if (panels.length === 1) return draw(panels[0].columns)(width);
      const across = each(width);
      const drawings = panels.map((panel) => draw(panel.columns)(Math.floor(width / across)));
      const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
      let [x, y, tall] = [0, 0, 0];
      drawings.forEach((drawing, i) => {
        if (i && i % across === 0) [x, y, tall] = [0, y + tall + 8, 0];
        drawing.setAttribute('x', x);
        drawing.setAttribute('y', y);
        x += Number(drawing.getAttribute('width'));
        tall = Math.max(tall, Number(drawing.getAttribute('height')));
        svg.append(drawing);
      });
      for (const [name, value] of [['width', width], ['height', y + tall], ['viewBox', `0 0 ${width} ${y + tall}`]]) svg.setAttribute(name, value);
      return svg;
    },
  });
}

/** What the paper leaves open in its scheduler's own rule: each value, and what the claims that judge it say. */
function readingParts(readings) {
  const head = ['What', 'Value', 'Judged by', 'Agree', 'Measured'].map((name) => h('th', { class: 'left', scope: 'col' }, name));
  const row = (read) => ([label, agree, cells, detail]) => h('tr', {}, [read.name, label === read.best ? h('strong', {}, label) : label, (read['judged-by'] ?? []).join(', '),
    `${agree} of ${cells}`, detail].map((cell) => h('td', { class: 'left' }, cell)));
  return [
    h('p', {}, 'What it leaves open in its scheduler’s own rule, which no row of the baseline can tell: each value ran in the fitted setting, and the claims named judge it; the others test it.'),
    h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {}, head)), h('tbody', {}, readings.flatMap((read) => read.tried.map(row(read)))))),
  ];
}

/** What the paper leaves open, and what a fit of it found. */
function openParts(paper) {
  const { fitted } = paper;
  const parts = [];
  if (fitted?.none) parts.push(h('p', { class: 'lead' }, `Nothing was fitted: ${fitted.none}.`));
  if (fitted && !fitted.none) {
    parts.push(h('p', { class: 'lead' }, ...prose(`Fitted to ${fitted.rows.join(', ')} of ${fitted.figures.join(', ') || 'no table'}, tested on the other rows and on ${fitted.held_out.join(', ')}: \`${fitted.command}\` tried ${fitted.tried.toLocaleString('en')} settings. Root mean square of the logarithm of measured over published: ${digits(fitted.distance, 3)} in the best, ${digits(fitted.ruled, 3)} as assumed.`)));
    parts.push(h('div', { class: 'scroll' }, h('table', {},
      h('thead', {}, h('tr', {}, ['Setting', 'Best', '80 % of the last population', 'Distance grows by'].map((name) => h('th', { class: 'left', scope: 'col' }, name)))),
      h('tbody', {}, fitted.values.map((value) => h('tr', {}, h('td', { class: 'left' }, value.name), h('td', { class: 'left' }, value.best), h('td', { class: 'left' }, value.region),
        h('td', { class: 'left' }, `${printed(digits(value.matters[0], 3))} to ${printed(digits(value.matters[1], 3))}`)))))));
    if (fitted.choice) parts.push(h('p', {}, fitted.choice));
    if (fitted.readings?.length) parts.push(...readingParts(fitted.readings));
  }
  const list = (items) => h('ul', {}, items.map((item) => h('li', {}, ...prose(item))));
  return [
    h('details', {}, h('summary', {}, 'Assumptions: what the paper doesn’t say and was decided'), list([...paper.assumptions, `Opportunistic retransmission and penalisation of every scheduler: \`${paper.mechanisms}\`.`])),
    parts.length || paper.open.length ? h('details', {}, h('summary', {}, 'What the paper leaves open, and what was fitted'), parts,
      paper.open.length ? list(paper.open.map((open) => `${open.name}: ${open.main} as assumed; also run: ${open.others.join('; ')}. ${open.why}.`)) : null) : null,
  ].filter(Boolean);
}

function paperSection(paper) {
  // Of a paper of which only a part was run, that part.
  const figures = paper.figures.filter((figure) => figure.curves.length || figure.cells.some((cell) => cell.as_ruled));
  return section(paper.name, paper.name, null,
    h('h3', {}, paper.title),
    h('p', { class: 'lead' }, `${paper.source}. Measured on: ${paper.testbed}.`),
    paper.summary ? h('p', {}, ...prose(printed(paper.summary))) : null,
    claimTable(paper), ...openParts(paper),
    h('div', { class: 'pair figures' }, figures.map((figure) => figureChart(paper, figure))),
    h('p', { class: 'keys' }, ...prose(`Again: \`ropewalk-papers reproduce run ${paper.name}\`, ${count(paper.runs, 'run')}, ${time(paper.computing_s)} of computing.`)));
}

function reproductionPage() {
  return [
    h('p', { class: 'kicker' }, `What ${doc.papers.length === 1 ? 'a paper' : 'papers'} on Multipath TCP ${doc.papers.length === 1 ? 'says' : 'say'}, repeated in ${doc.world === 'simulated' ? 'simulations' : 'real time'}.`),
    ...answer(reproductionHeadline()),
    section('claims', 'Claims', 'A claim is a number of comparisons. One counts if its p-value is below 5 % after Holm’s correction over the claim; a tie is the same runs, or a difference whose whole 95 % interval is within 2 % and that doesn’t count; it is reproduced if three quarters of the comparisons that are no ties agree. An inferred setting was fitted to some of the baseline’s numbers; the other rows test it.', claimGrid()),
    ...doc.papers.map(paperSection),
    section('origin', 'How this was made', null, h('div', { class: 'origin' }, h('pre', {}, doc.command),
      h('p', { class: 'lead' }, `Ropewalk ${doc.version}. The same command gives the same ${doc.world === 'simulated' ? 'numbers on any machine' : 'experiments'}.`),
      h('div', { class: 'tools' }, h('button', { type: 'button', onclick: () => save('reproduction.json', 'application/json', JSON.stringify(doc, null, 1)) }, 'All data as JSON'), ' ', h('button', { type: 'button', onclick: () => print() }, 'Print')))),
  ];
}
