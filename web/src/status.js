// The status page of a running proxy or gateway: asks for its state every second and shows it.

const PERIOD = 1000;
const KEPT = 120;

/** An SVG element. */
function s(tag, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Bits per second for people: 38.2 Mbit/s. */
function rate(bits) {
  if (!Number.isFinite(bits)) return '–';
  for (const [size, unit] of [[1e9, 'Gbit/s'], [1e6, 'Mbit/s'], [1e3, 'kbit/s']]) {
    if (bits >= size) return `${digits(bits / size, bits / size < 10 ? 2 : 1)}\u00a0${unit}`;
  }
  return `${digits(bits, 0)}\u00a0bit/s`;
}

/** Bytes as quotas are written: in powers of ten. */
function decimal(count) {
  const [size, unit] = [[1e12, 'TB'], [1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']].find(([size]) => count >= size) || [1, 'B'];
  const value = count / size;
  return `${Number.isInteger(value) ? value : digits(value, value < 10 ? 2 : 1)}\u00a0${unit}`;
}

/** A time span for people, in its two largest units: 3 h 12 min. */
function span(seconds) {
  const units = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const at = Math.max(0, units.findIndex(([size]) => seconds >= size));
  if (seconds < 1) return '0\u00a0s';
  const [[size, unit], next] = [units[at], units[at + 1]];
  const rest = next ? Math.floor((seconds % size) / next[0]) : 0;
  const first = `${Math.floor(seconds / size)}\u00a0${unit}`;
  return rest ? `${first} ${rest}\u00a0${next[1]}` : first;
}

/** What is remembered between answers: the links' rates, and which connections are open on the page. */
const memory = { links: new Map(), open: new Set(), failed: 0, at: null, pressed: 'bytes' };

/** A gateway may have several addresses on one interface, each with a device of its own. */
const keyOf = (link) => link.device || link.interface;

/** A gateway counts bytes; a proxy tells rates too. Notes what each link carries now. */
function remember(links, now) {
  for (const link of links) {
    let own = memory.links.get(keyOf(link));
    if (!own) {
      own = { past: (link.past || []).slice(0, -1).map(([down, up]) => ({ down, up })) };
      memory.links.set(keyOf(link), own);
    }
    let { rate_down_bits_per_s: down, rate_up_bits_per_s: up } = link;
    if (down === undefined) {
      const seconds = own.at ? (now - own.at) / 1000 : 0;
      const per = (bytes, before) => Math.max(0, bytes - before) * 8 / seconds;
      // Seen from the client: what the gateway sends comes down.
      [down, up] = [per(link.bytes_sent, own.sent), per(link.bytes_received, own.received)];
      Object.assign(own, { at: now, sent: link.bytes_sent, received: link.bytes_received });
      // It takes two answers to know a rate.
      if (!(seconds > 0)) continue;
    }
    own.past.push({ down, up });
    own.past.splice(0, Math.max(0, own.past.length - KEPT));
  }
}

/** What a link carries now, where that is known. */
function current(link) {
  return memory.links.get(keyOf(link)).past.at(-1) || { down: NaN, up: NaN };
}

/** The links of either kind, in one form. */
function linksOf(status) {
  return status.links || (status.paths || []).map((path) => ({ ...path, kind: 'path' }));
}

/** The last two minutes: what came down above the line, what went up below it. */
function sparkline(link, most, number) {
  const own = memory.links.get(keyOf(link));
  const [width, height, base] = [240, 72, 58];
  const x = (i) => width - (own.past.length - 1 - i) * (width / (KEPT - 1));
  const down = (point) => base - point.down / most * (base - 3);
  const up = (point) => base + point.up / most * (height - base - 3);
  const line = (y) => own.past.map((point, i) => `${i ? 'L' : 'M'}${digits(x(i), 1)} ${digits(y(point), 1)}`).join('');
  const area = (y) => (own.past.length > 1 ? `${line(y)}L${width} ${base}L${digits(x(0), 1)} ${base}Z` : '');
  const ink = `var(--path-${number % 8})`;
  const now = current(link);
  const highest = Math.max(0, ...own.past.map((point) => point.down));
  return s('svg', {
    viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'spark', role: 'img',
    'aria-label': `${link.kind === 'path' ? link.address : link.interface}, last two minutes: ${rate(now.down)} down now, at most ${rate(highest)}; ${rate(now.up)} up`,
  },
  s('line', { x1: 0, x2: width, y1: base, y2: base, stroke: 'var(--line)', 'vector-effect': 'non-scaling-stroke' }),
  s('path', { d: area(down), fill: ink, 'fill-opacity': 0.2 }),
  s('path', { d: line(down), fill: 'none', stroke: ink, 'stroke-width': 2, 'stroke-linejoin': 'round', 'vector-effect': 'non-scaling-stroke' }),
  s('path', { d: area(up), fill: ink, 'fill-opacity': 0.32 }));
}

const WORKS = new Set(['up']);

function pill(text, kind) {
  return h('span', { class: `pill ${kind}` }, text);
}

function quotaBar({ bytes: most, carried, until }) {
  const share = Math.min(1, carried / Math.max(1, most));
  const words = `${decimal(carried)} of ${decimal(most)}, anew on ${until}`;
  return h('div', { class: 'quota' },
    h('div', { class: 'meter', role: 'meter', 'aria-valuemin': 0, 'aria-valuemax': most, 'aria-valuenow': carried, 'aria-label': `quota: ${words}` },
      h('i', { class: share >= 1 ? 'full' : share > 0.85 ? 'near' : '', style: `width: ${digits(share * 100, 1)}%` })),
    h('small', {}, words));
}

function linkCard(link, number, most) {
  const now = current(link);
  const works = WORKS.has(link.state);
  const name = link.kind === 'path' ? link.address : link.interface;
  const facts = [];
  const fact = (name, value) => facts.push(h('div', {}, h('dt', {}, name), h('dd', {}, value)));
  if (link.kind === 'path') {
    fact('interface', link.interface);
    fact('ports', link.ports.join(', '));
    fact('carried down', bytes(link.bytes_sent));
    fact('carried up', bytes(link.bytes_received));
  } else {
    fact('round trip', link.rtt_s === null ? 'not yet known' : time(link.rtt_s));
    fact('probes lost', `${digits(link.probes_lost * 100, link.probes_lost > 0 && link.probes_lost < 0.1 ? 1 : 0)}\u00a0%`);
    fact('carried down', bytes(link.bytes_received));
    fact('carried up', bytes(link.bytes_sent));
    fact('address', link.address || 'none');
    if (link.price) fact('price', String(link.price));
    if (link.rate_limit_bits_per_s) {
      const [down, up] = [link.rate_limit_bits_per_s, link.rate_limit_up_bits_per_s ?? link.rate_limit_bits_per_s];
      fact('at most', down === up ? rate(down) : `${rate(down)} down, ${rate(up)} up`);
    }
  }
  return h('article', { class: `link${works ? '' : ' idle'}`, style: `--swatch: var(--path-${number % 8})`, 'aria-label': `link ${name}` },
    h('header', {}, h('h3', {}, h('i', { class: 'swatch', 'aria-hidden': 'true' }), name),
      h('span', { class: 'pills' },
        link.metered ? pill('metered', '') : null, link.backup ? pill('backup', '') : null,
        pill(link.state, works ? 'fine' : 'wrong'))),
    h('p', { class: 'rates' }, h('b', {}, rate(now.down)), ' down', h('span', {}, h('b', {}, rate(now.up)), ' up')),
    sparkline(link, most, number),
    h('p', { class: 'axis', 'aria-hidden': 'true' }, h('span', {}, '2 min ago'), h('span', {}, `full height ${rate(most)}`), h('span', {}, 'now')),
    h('dl', { class: 'small-facts' }, facts),
    link.quota ? quotaBar(link.quota) : null);
}

/** Which link carried how much of a connection, of its open subflows. */
function shares(connection, order) {
  const carried = order.map((name) => connection.subflows.filter((one) => one.interface === name)
    .reduce((sum, one) => sum + one.bytes_sent + one.bytes_received, 0));
  const all = carried.reduce((a, b) => a + b, 0);
  const words = order.map((name, i) => (carried[i] ? `${name} ${digits(carried[i] / all * 100, 0)}\u00a0%` : null)).filter(Boolean).join(', ') || 'nothing yet';
  return h('div', { class: 'shares', role: 'img', 'aria-label': words, title: words },
    all ? carried.map((part, i) => (part ? h('i', { style: `width: ${part / all * 100}%; background: var(--path-${i % 8})` }) : null)) : null);
}

function details(connection) {
  const parts = [];
  if (connection.links) {
    const rule = connection.rule ? `from rule ${connection.rule}` : 'since no rule fits';
    parts.push(h('h4', {}, 'Why these links'), h('p', { class: 'lead' }, 'Policy ', h('code', {}, connection.policy), `, ${rule}. Opened on ${connection.opened_on}.`),
      h('ul', { class: 'why' }, connection.links.map((link) => h('li', {}, h('b', {}, link.interface), ' ',
        pill(link.role, link.role === 'active' ? 'fine' : link.role === 'stands by' ? '' : 'wrong'), ` ${link.why}`))));
  }
  parts.push(h('h4', {}, 'Subflows'), h('div', { class: 'scroll' }, h('table', {},
    h('thead', {}, h('tr', {}, ['link', 'from', 'to', 'state', 'srtt', 'cwnd', 'sent', 'again', 'received'].map((name, i) => h('th', { class: i < 4 ? 'left' : null }, name)))),
    h('tbody', {}, connection.subflows.map((one) => h('tr', {},
      h('td', {}, one.interface || '–'), h('td', { class: 'left' }, one.local), h('td', { class: 'left' }, one.remote),
      h('td', { class: 'left' }, one.backup ? `${one.status}, backup` : one.status), h('td', {}, one.srtt_s ? time(one.srtt_s) : '–'), h('td', {}, String(one.cwnd_segments)),
      h('td', {}, bytes(one.bytes_sent)), h('td', {}, bytes(one.bytes_retransmitted)), h('td', {}, bytes(one.bytes_received))))))));
  parts.push(h('h4', {}, 'The scheduler’s last decisions'), connection.decisions.length
    ? h('ol', { class: 'why' }, connection.decisions.map((one) => h('li', {}, h('b', {}, one.what), ' ', h('span', { class: 'dim' }, one.why))))
    : h('p', { class: 'lead' }, 'None in the last fifth of a second: this end sent nothing. What the other end sends, its own scheduler decides.'));
  return parts;
}

function connectionRows(connection, order) {
  const key = String(connection.number);
  const isOpen = memory.open.has(key);
  const toggle = () => {
    if (!memory.open.delete(key)) memory.open.add(key);
    draw(memory.status);
  };
  const kind = connection.multipath ? `${count(connection.subflows.length, 'subflow')}` : 'plain TCP';
  const row = h('tr', { class: isOpen ? 'opened' : null },
    h('td', {}, h('button', { class: 'expand', type: 'button', 'aria-expanded': String(isOpen), 'data-key': key, onclick: toggle }, h('span', { 'aria-hidden': 'true' }, isOpen ? '▾ ' : '▸ '), connection.to)),
    h('td', { class: 'left' }, connection.client), h('td', { class: 'left' }, shares(connection, order)), h('td', { class: 'left' }, kind), h('td', { class: 'left' }, connection.scheduler),
    h('td', {}, bytes(connection.bytes_down)), h('td', {}, bytes(connection.bytes_up)), h('td', {}, span(connection.age_s)));
  return isOpen ? [row, h('tr', { class: 'details' }, h('td', { colspan: 8 }, details(connection)))] : [row];
}

function headline(status, links) {
  const up = links.filter((link) => WORKS.has(link.state)).length;
  const sum = (key) => links.reduce((total, link) => total + current(link)[key], 0);
  // A gateway has addresses, of which one interface may have several.
  const [one, many] = status.kind === 'gateway' ? ['address', 'addresses'] : ['link', 'links'];
  const which = links.length === 1 ? (up ? `The ${one} works` : `The ${one} doesn’t work`)
    : up === links.length ? `${links.length === 2 ? 'Both' : `All ${links.length}`} ${many} work` : up ? `${up} of ${links.length} ${many} ${up === 1 ? 'works' : 'work'}` : `No ${one} works`;
  const rates = Number.isFinite(sum('down')) ? `, ${rate(sum('down'))} down, ${rate(sum('up'))} up` : '';
  return `${which}: ${count(status.connections_open, 'connection')}${rates}`;
}

function kicker(status) {
  const parts = status.kind === 'proxy'
    ? [`Proxy at ${status.listen}`, `policy ${status.policy}${status.rules ? ` and ${count(status.rules, 'rule')}` : ''}`, `running for ${span(status.age_s)}`,
      `${count(status.connections_opened, 'connection')} opened, ${status.connections_failed} not, ${status.connections_lost} lost`]
    : ['Gateway', `${count(status.connections_accepted, 'connection')} accepted, ${status.connections_refused} refused, ${status.connections_unreachable} without a server, ${status.connections_client_lost + status.connections_backend_lost} lost`];
  if (status.draining) parts.push('ending: no new connections');
  return parts.join(' · ');
}

function counters(mib) {
  const rows = Object.entries(mib).filter(([, value]) => value > 0);
  return h('details', { id: 'counters', open: memory.counters ? '' : null, ontoggle: (event) => { memory.counters = event.currentTarget.open; } },
    h('summary', {}, `The engine’s counters, by the kernel’s names (${rows.length} that aren’t 0)`),
    h('div', { class: 'counters' }, rows.map(([name, value]) => h('div', {}, h('span', {}, name), h('b', {}, value.toLocaleString('en'))))));
}

function draw(status) {
  memory.status = status;
  const links = linksOf(status);
  const order = [...new Set(links.map((link) => link.interface))];
  const most = roundUp(Math.max(1e5, ...links.flatMap((link) => memory.links.get(keyOf(link)).past.flatMap(({ down, up }) => [down, up]))));
  const focused = document.activeElement?.dataset?.key;
  const shown = [...status.connections].sort((a, b) => (memory.pressed === 'age' ? a.age_s - b.age_s : (b.bytes_down + b.bytes_up) - (a.bytes_down + a.bytes_up))).slice(0, 200);
  document.title = `${headline(status, links)} · Ropewalk`;
  document.getElementById('page').replaceChildren(
    h('p', { class: 'kicker' }, kicker(status)),
    h('h1', { id: 'headline' }, headline(status, links)),
    h('p', { id: 'stale', class: 'bad', role: 'status', hidden: true }),
    h('section', { id: 'links', 'aria-label': 'Links' }, h('div', { class: 'links' }, links.map((link) => linkCard(link, order.indexOf(link.interface), most)))),
    h('section', { id: 'connections', 'aria-label': 'Connections' },
      h('header', {}, h('h2', {}, 'Connections'), tabs('Order', ['most bytes first', 'newest first'], memory.pressed === 'age' ? 1 : 0, (i) => { memory.pressed = i ? 'age' : 'bytes'; draw(memory.status); })),
      shown.length ? h('figure', {}, h('div', { class: 'scroll' }, h('table', { class: 'connections' },
        h('thead', {}, h('tr', {}, ['to', 'client', 'links', 'kind', 'scheduler', 'down', 'up', 'age'].map((name, i) => h('th', { class: i < 5 ? 'left' : null }, name)))),
        h('tbody', {}, shown.flatMap((one) => connectionRows(one, order))))),
      status.connections_open > shown.length ? h('figcaption', {}, `${shown.length} of ${status.connections_open} are shown.`) : null)
        : h('p', { class: 'lead' }, 'There is none now.')),
    counters(status.mib));
  if (focused) document.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
}

async function ask() {
  try {
    const answer = await fetch(`state${location.search}`, { cache: 'no-store' });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    const status = await answer.json();
    memory.at = new Date();
    remember(linksOf(status), performance.now());
    draw(status);
  } catch (error) {
    const stale = document.getElementById('stale');
    const since = memory.at ? ` since ${memory.at.toLocaleTimeString()}` : '';
    if (!stale) document.getElementById('page').replaceChildren(h('p', { id: 'stale', class: 'bad', role: 'status' }, `No answer: ${error.message}`));
    else Object.assign(stale, { hidden: false, textContent: `No answer${since}: what is below is old.` });
  }
  // A page that nobody looks at asks seldom.
  setTimeout(ask, document.hidden ? 10 * PERIOD : PERIOD);
}

initTheme();
ask();
