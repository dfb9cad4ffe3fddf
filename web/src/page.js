// The page put together.

/** Which workload is shown; whoever shows it listens. */
const state = {
  index: 0,
  listeners: [],
  coloured: new Coloured(),
  ranking: () => doc.rankings[state.index],
  listen: (hear) => state.listeners.push(hear),
  choose(index) {
    state.index = index;
    state.coloured.choose(notable(state.ranking()));
    redrawAll();
    for (const hear of state.listeners) hear();
  },
};

function section(id, title, lead, ...children) {
  const contents = document.getElementById('contents');
  contents.append(h('a', { href: `#${id}` }, title));
  return h('section', { id, 'aria-label': title },
    h('header', {}, h('h2', {}, title), ['ranking', 'times', 'rope'].includes(id) ? workloadTabs() : null),
    lead ? h('p', { class: 'lead' }, ...prose(lead)) : null, children);
}

/** The choice of workload, the same wherever it stands. */
function workloadTabs() {
  if (!doc.rankings || doc.rankings.length < 2) return null;
  const names = doc.rankings.map((ranking) => ranking.workload.replace(/^one flow of /, ''));
  const bar = tabs('Workload', names, state.index, (i) => { if (i !== state.index) state.choose(i); });
  state.listen(() => [...bar.children].forEach((button, i) => button.setAttribute('aria-pressed', String(i === state.index))));
  return bar;
}

function pathWords(path) {
  const link = doc.direction === 'upload' ? path.up : path.down;
  const parts = [link.rate, `${+path.rtt_ms.toFixed(2)} ms`];
  // As it is given: of the round trip, both directions together.
  if (path.rtt_jitter) parts[1] += ` ± ${path.rtt_jitter}`;
  if (link.loss !== 'none') parts.push(`${link.loss} loss`);
  // A number and its unit stay on one line.
  return parts.join(', ').replace(/(\d|±) /g, '$1\u00a0');
}

function facts() {
  const ranking = state.ranking();
  const [first] = ranking.rows;
  const list = h('dl', { class: 'facts' });
  const redraw = () => {
    const now = state.ranking();
    const [winner] = now.rows;
    // The headline is about the one that is named, over all workloads: here it is that one with this workload.
    const named = now.rows.find((row) => row.scheduler === doc.decision?.named && !row.single_path) || winner;
    const versus = (ratio, name) => (ratio?.ratio ? h('div', { class: 'fact' }, h('dt', {}, `${named.scheduler} against ${name}${doc.rankings.length > 1 ? `, ${now.workload.replace(/^one flow of /, '')}` : ''}`),
      h('dd', { class: ratio.p >= 0.05 ? 'unsure' : ratio.ratio < 1 ? 'good' : 'bad' }, change(ratio.ratio),
        h('small', {}, ratio.finding === 'runs alike' ? 'nothing is random here' : ratio.finding === 'too few runs' ? ratio.finding : ratio.p >= 0.05 ? 'no significant difference' : ratio.interval ? `95 % interval ${change(ratio.interval[0])} to ${change(ratio.interval[1])}` : ''))) : null);
    list.replaceChildren(...[
      h('div', { class: 'fact' }, h('dt', {}, `fastest with ${now.workload}`), h('dd', {}, winner.scheduler,
        h('small', {}, `mean ${time(winner.fct_mean_s)}${winner.fct_mean_interval_s ? `, 95 % within ${winner.fct_mean_interval_s.map(time).join(' to ')}` : ''}`))),
      versus(named.versus_linux, 'linux'),
      versus(named.versus_best_tcp, now.best_tcp),
      ...doc.paths.map((path) => h('div', { class: 'fact' }, h('dt', {}, `path ${path.name}`), h('dd', { style: 'font-size: 1.05rem' }, pathWords(path),
        h('small', {}, `queue ${(doc.direction === 'upload' ? path.up : path.down).queue}`)))),
    ].filter(Boolean));
  };
  if (first) redraw();
  state.listen(redraw);
  return list;
}

/** A link to the playground, `before` what it says of it; `ask(question)` is what it opens with. */
function againLink(before) {
  const link = h('a', { href: 'playground.html' }, 'Change something and run again');
  const ask = (asked) => toAddress(asked).then((address) => { link.href = `playground.html#${address}`; }, () => { /* this browser can't compress: the page opens with its own example */ });
  return { place: h('p', { class: 'tools again' }, before, link, ...prose(': in `playground.html` beside this page, which `ropewalk playground` writes.')), ask };
}

/** A link to the playground with this question. */
function again() {
  if (!doc.asked) return null;
  const { without, ...asked } = doc.asked;
  const { place, ask } = againLink(null);
  if (without) place.append(...prose(` It has no field for \`${without}\`.`));
  ask(asked);
  return place;
}

function originSection() {
  return section('origin', 'How this was made', null, h('div', { class: 'origin' },
    h('p', { class: 'lead' }, 'Every candidate ran on the same simulated paths with the same seeds; the same command gives the same numbers on any machine.'),
    h('pre', {}, doc.command),
    again(),
    h('p', { class: 'lead' }, `Ropewalk ${doc.version}. ${doc.runs ? `${count(doc.runs, 'run')} of each, seeds from ${doc.seed}${doc.congestion ? `, congestion control ${doc.congestion}` : ''}. ` : ''}Intervals are percentile bootstraps of the mean; differences are geometric means of paired ratios over seeds, with Holm’s correction where several are compared with the first.`),
    h('div', { class: 'tools' }, h('button', { type: 'button', onclick: () => save(`${fileName('ropewalk', doc.scenario || doc.title || 'report')}.json`, 'application/json', JSON.stringify(doc, null, 1)) }, 'All data as JSON'), ' ',
      h('button', { type: 'button', onclick: () => print() }, 'Print'))));
}

/** The group and its gain; who is named; the names; what else a reader must know. */
function answer(headline, tag = 'h1') {
  // What is in brackets stands beneath, so that the headline is short.
  const [, before, aside, after] = /^(.*?) \((.*?)\)(.*)$/.exec(headline.sentence) || [null, headline.sentence, '', ''];
  const sentence = `${before}${after}`;
  const says = { fastest: 'fastest', equal: 'equal', likely: 'likely equal', open: 'not decided', slower: 'slower' };
  return [
    h(tag, {}, ...prose(sentence)),
    aside ? h('p', { class: 'named' }, ...prose(`${aside[0].toUpperCase()}${aside.slice(1)}.`)) : null,
    headline.named ? h('p', { class: 'named' }, ...prose(headline.named)) : null,
    headline.groups?.length ? h('dl', { class: 'groups' }, headline.groups.flatMap(({ title, names }) => [
      h('dt', {}, says[title]),
      h('dd', {}, names.map((name) => h('span', {}, name.replace(/ ([+-])/, '\u00a0$1').replace('\u00a0-', '\u00a0−').replace(/ %/, '\u00a0%')))),
    ])) : null,
    headline.notes.length ? h('p', { class: 'lead' }, ...prose(headline.notes.join(' '))) : null,
  ].filter(Boolean);
}

function comparisonPage() {
  // The most telling workload first: the largest with a trace.
  const traced = new Set(doc.ropes.map((rope) => rope.ranking));
  state.index = Math.max(0, doc.rankings.findLastIndex((_, i) => traced.has(i)));
  if (doc.rankings.length) state.coloured.choose(notable(state.ranking()));
  const kicker = `${doc.scenario}: ${doc.summary}. ${doc.direction}, ${doc.congestion}, ${doc.fixed_runs ? '' : 'up to '}${count(doc.runs, 'run')} of each.`;
  const parts = [h('p', { class: 'kicker' }, kicker), ...answer(doc.headline)];
  if (doc.interrupted) parts.push(h('p', { class: 'bad' }, 'Interrupted: only runs that every candidate finished are here.'));
  if (!doc.rankings.length) return parts;
  parts.push(facts(), ...rankingSections(), ...heatSections());
  if (doc.ropes.length) parts.push(ropePart());
  parts.push(originSection());
  return parts;
}

function ropePart() {
  return section('rope', 'The rope', 'One run in time: each subflow a lane, each segment a bar from sent to acknowledged. A lane is as thick as its subflow has segments in flight; a bar tells the scheduler’s reason.', ...ropeSection(state));
}

/** What follows a change of the numbers without being made again. */
function rankingSections() {
  return [
    section('ranking', 'Ranking', null, rankingChart(state), ...rankingNumbers(state)),
    section('times', 'All runs', 'Each run is a point: a flow’s time from connect to the last byte, or what the workload’s title says. Choose who is in colour.', ...distribution(state)),
  ];
}
