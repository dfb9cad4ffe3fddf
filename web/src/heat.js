// Heat maps: one cell for each setting of what was swept.

/** Every candidate's mean against the first's, for every workload of a comparison. */
function heatSections() {
  if (doc.rankings.length < 2) return [];
  const short = (ranking) => ranking.workload.replace(/^one flow of /, '');
  const columns = doc.rankings.map(short);
  const cells = doc.rankings.flatMap((ranking) => ranking.rows.map((row, place) => ({
    x: short(ranking),
    y: row.scheduler,
    ratio: row.fct_mean_s / ranking.rows[0].fct_mean_s,
    // As in the table: who is slower over all workloads isn't a tie here because it ran less.
    tie: typeof placeOf(ranking, row, place) === 'string',
    first: place === 0,
    mean: row.fct_mean_s,
  })));
  // In the order of the geometric mean over all workloads.
  const score = new Map();
  for (const cell of cells) score.set(cell.y, (score.get(cell.y) || 0) + Math.log(cell.ratio));
  const rows = [...score.keys()].sort((a, b) => score.get(a) - score.get(b));
  const figure = chart({
    title: () => 'Mean against the first, by workload, in per cent',
    name: () => 'by-workload',
    table: () => [['workload', 'scheduler', 'mean_s', 'ratio_to_first', 'not_slower'], cells.map((cell) => [cell.x, cell.y, cell.mean, cell.ratio, cell.tie])],
    summary: () => `${doc.decision?.fastest || rows[0]} is the fastest over all workloads together. First: ${doc.rankings.map((ranking) => `${ranking.rows[0].scheduler} with ${short(ranking)}`).join(', ')}. A dot (where cells are narrow, bold) marks who is not shown to be slower.`,
    draw: (width) => {
      const { marginLeft, tickFormat } = nameAxis(rows, width, 0.36);
      const each = (width - marginLeft - 20) / columns.length;
      // On a phone a cell has room for a whole number, and its mark is the text's weight.
      const narrow = each < 76;
      const heading = fitting(columns, each);
      const words = (cell) => {
        if (cell.first) return narrow ? '0' : `● ${time(cell.mean)}`;
        return narrow ? digits((cell.ratio - 1) * 100, 0) : `${cell.tie ? '● ' : ''}${change(cell.ratio)}`;
      };
      return Plot.plot({
        ...plotBase(width),
        height: rows.length * rowHeight(24) + 10 + (heading.turned ? 16 + heading.height : 34),
        marginLeft,
        marginTop: heading.turned ? 16 + heading.height : 34,
        marginBottom: 6,
        x: { domain: columns, axis: 'top', label: null, tickSize: 0, padding: 0.02, tickFormat: heading.tickFormat, tickRotate: heading.turned ? -40 : 0 },
        y: { domain: rows, label: null, tickSize: 0, padding: 0.06, tickFormat },
        marks: [
          Plot.cell(cells, { x: 'x', y: 'y', fill: (cell) => slower(cell.ratio), inset: 0.5, rx: 3 }),
          Plot.text(cells, { x: 'x', y: 'y', text: words, fill: (cell) => onto(slower(cell.ratio)), fontSize: 11, fontWeight: (cell) => (cell.tie && narrow ? 700 : 400) }),
        ],
      });
    },
  });
  return [section('workloads', 'Across workloads', null, figure)];
}

/** Slower is further from the card's colour along one hue; 3 times or more is its end. */
function slower(ratio) {
  const share = Math.min(1, Math.log(Math.max(1, ratio)) / Math.log(3));
  return d3.interpolateLab(colour('faint'), colour('heat'))(share);
}

/** Black or white, whichever is read better on a colour. */
function onto(background) {
  return d3.lab(background).l > 58 ? '#101418' : '#ffffff';
}
