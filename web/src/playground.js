// The laboratory in a page: the question, the comparison as it runs, the answer.

/** Times of the page, ms from its opening: what tests and people ask. */
const times = {};

function playgroundPage() {
  const place = h('div', { id: 'answer', 'aria-live': 'off' }, h('p', { class: 'lead' }, 'The engine is being loaded.'));
  const bar = h('progress', { max: 1, value: 0, 'aria-label': 'Share of the budget' });
  const status = h('span', { id: 'status', role: 'status' }, '');
  const stop = h('button', { type: 'button', disabled: true }, 'Stop');
  const command = h('pre', { id: 'command' });
  const copied = (button, text) => {
    const word = button.textContent;
    const told = (now) => { button.textContent = now; setTimeout(() => { button.textContent = word; }, 1500); };
    // Where a page may not write there, the text is marked, to be copied by hand.
    (navigator.clipboard?.writeText(text()) ?? Promise.reject()).then(() => told('Copied'), () => {
      getSelection().selectAllChildren(command);
      told('Marked: copy it');
    });
  };
  let laboratory = null;
  let timer = 0;
  let built = '';

  const show = (answered, isFinal) => {
    const open = document.querySelector('#answer details')?.open;
    const chosen = state.index;
    doc = answered;
    const same = `${answered.command}\n${answered.rankings.map((ranking) => ranking.workload).join()}`;
    if (!isFinal && built === same) {
      document.getElementById('headline').replaceChildren(...answer(doc.headline, 'h2'));
      for (const hear of state.listeners) hear();
      redrawAll();
      return;
    }
    redraws.clear();
    state.listeners.length = 0;
    document.getElementById('contents').replaceChildren();
    const isNew = built !== same;
    built = same;
    state.index = isNew ? Math.max(0, doc.rankings.length - 1) : Math.min(chosen, doc.rankings.length - 1);
    if (doc.rankings.length) state.coloured.choose(notable(state.ranking()));
    const height = place.offsetHeight;
    place.style.minHeight = isNew ? '' : `${height}px`;
    const headline = h('div', { id: 'headline' }, answer(doc.headline, 'h2'));
    const parts = doc.rankings.length ? [facts(), ...rankingSections()] : [];
    if (isFinal && doc.rankings.length) {
      parts.push(...heatSections());
      if (doc.ropes.length) parts.push(ropePart());
      parts.push(originSection());
    }
    place.replaceChildren(headline, ...parts);
    redrawAll();
    place.style.minHeight = '';
    if (open) document.querySelector('#answer details').open = true;
    for (const name of ['ranking', 'rope']) document.getElementById(name)?.removeAttribute('aria-live');
  };
  const hear = {
    refused: (errors) => {
      refuse(errors);
      stop.disabled = true;
      status.textContent = 'Not run: see above.';
      place.dataset.state = 'refused';
    },
    begun: (summary) => {
      refuse([]);
      question.show(summary.links);
      command.textContent = summary.command;
      times.begun = performance.now();
      delete times.decided;
    },
    answer: (answered, isFinal) => {
      // Before every candidate has one run there is nothing to say.
      if (!isFinal && !answered.rankings.length) return;
      question.hear(answered);
      show(answered, isFinal);
      // Another question may be about to be asked.
      if (!isFinal || timer) return;
      times.decided ??= performance.now();
      place.dataset.state = doc.ropes.length || !doc.rankings.length ? 'traced' : 'decided';
    },
    progress: (share, now) => {
      bar.value = now === 'ended' ? 1 : share;
      stop.disabled = now === 'ended';
      stop.textContent = now === 'stopped' ? 'Go on' : 'Stop';
      const made = (performance.now() - times.begun) / 1e3;
      status.textContent = { running: `${digits(share * 100, 0)} % of the budget`, stopped: `Stopped at ${digits(share * 100, 0)} % of the budget`, ended: `Decided in ${digits(Math.max(0, made), 1)} s` }[now];
    },
    broke: (message) => {
      refuse([{ text: `error: the engine panicked, and was started again\n${message}` }]);
      place.dataset.state = 'broke';
    },
  };
  const changed = (asked) => {
    clearTimeout(timer);
    refuse([], 'file');
    place.dataset.state = 'running';
    timer = setTimeout(async () => {
      timer = 0;
      laboratory?.compare(asked);
      const address = await toAddress(asked);
      // A page from a file may not be allowed to.
      try { history.replaceState(null, '', address ? `#${address}` : location.pathname + location.search); } catch { /* the address stays */ }
    }, 180);
  };
  const question = questionForm(changed, (asked) => laboratory.clerk.ask(asked));
  stop.addEventListener('click', () => laboratory.toggle());
  const start = async () => {
    try {
      const module = await engineModule();
      laboratory = new Laboratory(module, hear);
      const about = await laboratory.about();
      times.ready = performance.now();
      document.documentElement.dataset.ready = digits(times.ready, 0);
      question.known(about);
      changed(question.asked());
    } catch (error) {
      refuse([{ text: `error: this browser can't run the engine (${error.message}); needed: WebAssembly, workers and DecompressionStream` }]);
    }
  };
  const begin = async () => {
    const given = (await fromAddress(location.hash.slice(1))) || (Object.keys(doc.asked || {}).length ? doc.asked : null);
    if (given) question.set(given);
    addEventListener('hashchange', async () => {
      const other = await fromAddress(location.hash.slice(1));
      if (!other) return;
      question.set(other);
      changed(question.asked());
    });
    // The form is drawn before the engine is unpacked.
    requestAnimationFrame(() => setTimeout(start));
  };
  const share = h('button', { type: 'button' }, 'Copy address');
  share.addEventListener('click', () => copied(share, () => location.href));
  const copy = h('button', { type: 'button' }, 'Copy as command line');
  copy.addEventListener('click', () => copied(copy, () => command.textContent));
  begin();
  return [
    h('h1', {}, 'Which Multipath TCP scheduler finishes first on your links?'),
    question.form,
    h('pre', { id: 'refused', role: 'alert', hidden: true }),
    h('div', { class: 'running' }, stop, bar, status, h('span', { class: 'tools' }, share, ' ', copy)),
    command,
    place,
  ];
}

initTheme();
document.getElementById('page').append(...playgroundPage());
