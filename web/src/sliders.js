// Sliders for the links: each changes one clause of its line.

/** A slider: its name, range, whether it is logarithmic, and the clause that its link's numbers give. */
const SLIDERS = [
  { key: 'down', label: 'Down', unit: 'Mbit/s', from: 0.5, to: 1000, log: true, clause: rateClause },
  { key: 'up', label: 'Up', unit: 'Mbit/s', from: 0.5, to: 1000, log: true, clause: rateClause },
  { key: 'rtt', label: 'Round trip', unit: 'ms', from: 1, to: 1000, log: true, clause: timeClause },
  { key: 'spread', label: 'Jitter', unit: 'ms', from: 0, to: 100, clause: timeClause },
  { key: 'loss', label: 'Loss', unit: '%', from: 0, to: 10, clause: (now) => (now.loss > 0 ? `${now.loss} %` : 'none') },
  { key: 'queue', label: 'Queue', unit: 'packets', from: 4, to: 4000, log: true, whole: true, clause: (now) => `queue ${now.queue} packets` },
];

function rateClause(now) {
  return now.down === now.up ? `${now.down} Mbit/s` : `${now.down}/${now.up} Mbit/s`;
}

function timeClause(now) {
  // A spread is at most the time itself.
  const spread = Math.min(now.spread, now.rtt);
  return spread > 0 ? `${now.rtt} ms +-${spread} ms` : `${now.rtt} ms`;
}

/** Steps of a slider. */
const STEPS = 200;

function toStep({ from, to, log }, value) {
  // The lower part of a linear one is where it matters: a square.
  const share = log ? Math.log(value / from) / Math.log(to / from) : Math.sqrt((value - from) / (to - from));
  return Math.round(STEPS * Math.min(1, Math.max(0, share)));
}

/** A value with two digits, so that it reads well. */
function fromStep({ from, to, log, whole }, step) {
  const share = step / STEPS;
  const value = log ? from * (to / from) ** share : from + (to - from) * share ** 2;
  if (value === 0) return 0;
  const scale = 10 ** (Math.floor(Math.log10(value)) - 1);
  const round = Number((Math.round(value / scale) * scale).toPrecision(3));
  return whole ? Math.round(round) : round;
}

/**
 * Sliders for links as the engine has told them. `change(place, line, what)` is called with what one of them says, a clause or a list
 * of changes over time, and returns the link's new line.
 */
function sliders(change) {
  const place = h('div', { class: 'links sliders' });
  let rows = [];
  const row = (index) => {
    const heading = h('h3', {});
    const inputs = SLIDERS.map((slider) => {
      const output = h('output', {});
      const input = h('input', { type: 'range', min: 0, max: STEPS, step: 1 });
      input.addEventListener('input', () => {
        const { link, numbers } = rows[index];
        numbers[slider.key] = fromStep(slider, Number(input.value));
        told(index);
        change(link.place, link.line, { clause: slider.clause(numbers) });
      });
      return { slider, input, output, field: h('label', {}, h('span', {}, slider.label), input, output) };
    });
    const line = timeline((changes) => change(rows[index].link.place, rows[index].link.line, { changes }));
    const card = h('div', { class: 'link', style: `--swatch: var(--path-${index % 8})` }, h('header', {}, heading), inputs.map(({ field }) => field), line.place);
    return { card, heading, inputs, line };
  };
  /** What the numbers are, in words beside the sliders. */
  const told = (index) => {
    const { numbers, inputs } = rows[index];
    for (const { slider, input, output } of inputs) {
      const value = numbers[slider.key];
      output.textContent = value === null ? 'as written' : `${Number(value.toPrecision(4))} ${slider.unit}`;
      input.setAttribute('aria-valuetext', output.textContent);
      input.setAttribute('aria-label', `${slider.label} of ${numbers.name}`);
    }
  };
  const show = (links) => {
    if (links.length !== rows.length) {
      rows = links.map((_, index) => row(index));
      place.replaceChildren(...rows.map(({ card }) => card));
    }
    place.hidden = !links.length;
    links.forEach((link, index) => {
      const now = rows[index];
      Object.assign(now, { link, numbers: { ...link.numbers } });
      // A trace has no rate to change; the other half of what a slider writes must be known too.
      if (now.numbers.up === null || now.numbers.down === null) now.numbers.up = now.numbers.down = null;
      now.heading.replaceChildren(h('i', { class: 'swatch' }), link.numbers.name);
      for (const { slider, input } of now.inputs) {
        const value = now.numbers[slider.key];
        input.disabled = value === null;
        // Not the one that is being moved.
        if (value !== null && document.activeElement !== input) input.value = toStep(slider, value);
      }
      told(index);
      now.line.show(link, link.numbers);
    });
  };
  return { place, show, placeOf: (card) => rows.find((one) => one.card === card)?.link.place };
}
