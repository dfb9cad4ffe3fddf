// The question: the fields of the playground.

/** What a reader sees first. */
const FIRST = { links: 'wifi: 50/20 Mbit/s, 30 ms +-6 ms, 0.5 %\nlte: 20/10 Mbit/s, 60 ms, queue 400 packets', sizes: '256 KiB, 1 MiB, 4 MiB' };

/** The form; `changed(asked)` hears of every change; `engine(question)` asks the engine. */
function questionForm(changed, engine) {
  const fields = {};
  /** Files that links name: traces that were dropped. */
  let files = {};
  const field = (name, label, element, note) => {
    fields[name] = element;
    element.id = `ask-${name}`;
    element.addEventListener('input', () => changed(asked()));
    return h('div', { class: `field ${name}` }, h('label', { for: element.id }, label), element, note ? h('small', {}, ...prose(note)) : null);
  };
  const text = (attributes) => h('input', { type: 'text', spellcheck: 'false', autocomplete: 'off', ...attributes });
  const asked = () => {
    const said = Object.fromEntries(FIELDS.map((name) => [name, fields[name].value]));
    const named = Object.entries(files).filter(([name]) => said.links.includes(name));
    return named.length ? { ...said, files: Object.fromEntries(named) } : said;
  };
  const set = (values) => {
    for (const name of FIELDS) fields[name].value = values[name] ?? '';
    if (values.rule) rule.place.open = true;
    files = values.files || {};
    fit();
  };
  const setLine = (place, line) => {
    const lines = links.value.split('\n');
    while (lines.length <= place) lines.push('');
    lines[place] = line;
    links.value = lines.join('\n');
    fit();
    changed(asked());
  };
  const links = h('textarea', { rows: 3, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', wrap: 'off' });
  const fit = () => {
    for (const [area, least, most] of [[links, 3, 16], [fields.rule, 9, 24]]) area.rows = Math.max(least, Math.min(most, area.value.split('\n').length + 1));
  };
  links.addEventListener('input', fit);

  const knobs = sliders(async (place, line, what) => {
    const told = await engine({ call: 'reword', line: links.value.split('\n')[place] ?? line, ...what });
    setLine(place, told.line);
    return told.line.trim();
  });
  const kinds = h('div', { class: 'chips', role: 'group', 'aria-label': 'Add a link' });
  const scenarios = h('select', { 'aria-label': 'Built-in scenarios' }, h('option', { value: '' }, 'Built-in scenarios …'));
  const rule = ruleEditor(
    field('rule', 'Rule', h('textarea', { rows: 9, spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', wrap: 'off' }), 'It runs as `mine`, beside the others.'),
    (text) => { fields.rule.value = text; fit(); changed(asked()); fields.rule.focus(); });
  const noted = h('p', { class: 'lead', role: 'status' });
  const schedulers = h('datalist', { id: 'schedulers' });
  const congestion = h('datalist', { id: 'congestion' });
  const form = h('form', { id: 'question', 'aria-label': 'Your links', onsubmit: (event) => { event.preventDefault(); changed(asked()); } },
    field('links', 'Links, one a line', links, 'name: rate (down/up), round trip ± spread, loss. Or a scenario file.'),
    h('div', { class: 'bar' }, kinds, scenarios),
    knobs.place,
    h('div', { class: 'fields' },
      field('sizes', 'Flow sizes', text({ placeholder: 'the scenario’s; else a page, 1 MiB, 16 MiB' })),
      field('direction', 'Direction', h('select', {}, h('option', { value: '' }, 'the scenario’s'), h('option', { value: 'download' }, 'download'), h('option', { value: 'upload' }, 'upload'))),
      field('schedulers', 'Schedulers', text({ placeholder: 'the usual ones', list: 'schedulers' })),
      field('congestion', 'Congestion control', text({ placeholder: 'cubic', list: 'congestion' })),
      field('budget', 'Budget', text({ placeholder: '10s' })),
      field('seed', 'First seed', text({ placeholder: '1', inputmode: 'numeric' })),
      field('value', 'What bytes are worth', text({ placeholder: 'a second is worth 5 MB of lte' }))),
    rule.place, noted, schedulers, congestion);
  links.setAttribute('aria-describedby', 'refused');
  set(FIRST);

  /** Adds a link of a kind, with a name that isn't taken. */
  const add = (kind) => {
    const lines = links.value.split('\n').filter((line) => line.trim());
    const isFile = lines.some((line) => /^\s*\[/.test(line)) || (lines.length === 1 && !lines[0].includes(':'));
    const kept = isFile ? [] : lines;
    const taken = new Set(kept.map((line) => line.split(':')[0].trim()));
    let name = kind;
    for (let number = 2; taken.has(name); number += 1) name = `${kind}-${number}`;
    links.value = [...kept, `${name}: ${kind}`].join('\n');
    fit();
    changed(asked());
  };
  const known = (about) => {
    kinds.replaceChildren(...about.kinds.map(([name, link, source]) => h('button', { type: 'button', title: `${link} (${source})`, onclick: () => add(name) }, `+ ${name}`)));
    scenarios.append(...about.scenarios.map(([name, summary]) => h('option', { value: name }, `${name}: ${summary}`)));
    scenarios.addEventListener('change', () => {
      if (!scenarios.value) return;
      set({ links: scenarios.value, rule: fields.rule.value });
      scenarios.value = '';
      changed(asked());
    });
    schedulers.replaceChildren(...about.schedulers.map(([name, summary]) => h('option', { value: name }, summary)));
    congestion.replaceChildren(...about.congestion.map(([name, summary]) => h('option', { value: name }, summary)));
  };
  /** A file dropped on a link changes that link; anywhere else it is a scenario, or a measurement of a new link. */
  const take = async (file, place) => {
    if (file.size > LARGEST_FILE) {
      refuse([{ text: `error: \`${file.name}\` is larger than ${bytes(LARGEST_FILE)}` }], 'file');
      return;
    }
    const content = await file.text();
    if (/\.toml$/.test(file.name)) {
      set({ ...asked(), links: content });
      changed(asked());
      return;
    }
    const lines = links.value.split('\n');
    const last = lines.findLastIndex((line) => line.trim());
    const where = place ?? last + 1;
    const line = lines[where]?.trim() ? lines[where] : `${file.name.replace(/\..*$/, '').replace(/[^\w.-]/g, '-')}: `;
    const told = await engine({ call: 'measured', line, name: file.name, text: content });
    if (told.errors) {
      refuse(told.errors, 'file');
      return;
    }
    if (told.attach) files = { ...files, [file.name]: content };
    noted.textContent = told.notes.join(' ');
    setLine(where, told.line);
  };
  /** The line of the field that is under a pointer. */
  const lineAt = (event) => {
    const box = links.getBoundingClientRect();
    const style = getComputedStyle(links);
    const at = Math.floor((event.clientY - box.top - parseFloat(style.paddingTop) + links.scrollTop) / parseFloat(style.lineHeight));
    return links.value.split('\n')[at]?.trim() ? at : undefined;
  };
  form.addEventListener('dragover', (event) => event.preventDefault());
  form.addEventListener('drop', async (event) => {
    event.preventDefault();
    const card = event.target.closest('.link');
    const place = card ? knobs.placeOf(card) : event.target === links ? lineAt(event) : undefined;
    for (const file of event.dataTransfer.files) await take(file, place);
  });
  const picker = h('input', { type: 'file', multiple: true, 'aria-label': 'A scenario, a measurement or a trace', onchange: async () => {
    for (const file of picker.files) await take(file);
    picker.value = '';
  } });
  const saver = h('button', { type: 'button', onclick: async () => {
    const told = await engine({ call: 'file', asked: asked() });
    refuse(told.errors || [], 'file');
    if (!told.errors) save('scenario.toml', 'application/toml', told.text);
  } }, 'Save as scenario file');
  form.querySelector('.bar').append(h('label', {}, 'ping, iperf3, ss, trace, scenario: ', picker), saver);
  return { form, asked, set, known, show: knobs.show, hear: rule.hear };
}

/** Largest file that is read, bytes. */
const LARGEST_FILE = 16 << 20;

/** Shows what isn't allowed in a `file` or the question; none: everything is. What is said of a file stays when a question begins. */
function refuse(errors, of = 'question') {
  const place = document.getElementById('refused');
  if (!errors.length && place.dataset.of !== of) return;
  place.dataset.of = of;
  place.hidden = !errors.length;
  place.textContent = errors.map((error) => error.text).join('\n\n');
  document.getElementById('ask-links')?.setAttribute('aria-invalid', String(errors.length > 0 && of === 'question'));
}
