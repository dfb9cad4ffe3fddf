// A scheduler of one's own: a rule in a small editor.

/** Rules to begin with. */
const RULES = {
  'lowest round trip': `// The value of the last line is the decision: a subflow, or () to wait.
let best = ();
for subflow in view.available {
    if best == () || subflow.srtt < best.srtt { best = subflow; }
}
if best != () { say(\`\${best} has the lowest srtt, \${best.srtt / MS} ms\`); }
best`,
  'in turns': `// \`state\` lasts as long as the connection.
if !("turn" in state) { state.turn = 0; }
let free = view.available;
if free.len == 0 { return (); }
state.turn += 1;
free[state.turn % free.len]`,
  'first to deliver': `// The subflow on which the next byte arrives first, with room or not: one that is full is waited for.
let best = ();
let least = 0;
for subflow in view.usable {
    let queued = (subflow.in_flight + 1) * subflow.mss;
    let rate = max(1, subflow.cwnd * subflow.mss / max(1, subflow.srtt / MS));
    let arrives = subflow.srtt / 2 + queued * MS / rate / 2;
    if best == () || arrives < least { best = subflow; least = arrives; }
}
if best != () { say(\`\${best} delivers first, in about \${least / MS} ms\`); }
best`,
};

/** The editor around the field; `begin(text)` puts a rule into it. */
function ruleEditor(field, begin) {
  const told = h('p', { class: 'bad', role: 'status' });
  const names = (list) => list.flatMap((name, i) => [i ? ', ' : '', h('code', {}, name)]);
  const place = h('details', { class: 'rule' }, h('summary', {}, 'A scheduler of your own'),
    h('div', { class: 'chips', role: 'group', 'aria-label': 'Begin with a rule' },
      Object.entries(RULES).map(([name, text]) => h('button', { type: 'button', onclick: () => begin(text) }, name)),
      h('button', { type: 'button', onclick: () => begin('') }, 'none')),
    field, told,
    h('small', {}, 'Of a subflow: ', ...names(['srtt', 'min_rtt', 'rttvar', 'cwnd', 'in_flight', 'window_space', 'mss', 'delivery_rate', 'pacing_rate', 'lost_total', 'in_recovery', 'backup', 'id']),
      '. Of the view: ', ...names(['subflows', 'usable', 'available', 'unsent', 'room', 'now', 'declared_size']), '. Times are ns. Or ', ...names(['send(subflow, bytes)', 'wait_until(time)', 'say(reason)']), '.'));
  /** What became of its runs. */
  const hear = (answered) => {
    const rows = answered.rankings.flatMap((ranking) => ranking.rows).filter((row) => row.scheduler === 'mine' && row.unfinished);
    told.textContent = rows.length ? `mine: ${rows[0].unfinished}` : '';
    if (rows.length) place.open = true;
  };
  return { place, hear };
}
