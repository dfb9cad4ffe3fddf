// Everything that is shown can be taken away: as CSV, JSON, SVG or PNG.

function save(name, type, content) {
  const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = h('a', { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** A file name from words. */
function fileName(...words) {
  return words.join('-').toLowerCase().replace(/[^a-z0-9.]+/g, '-').replace(/^-+|-+$/g, '');
}

function csv(columns, rows) {
  const field = (value) => {
    const text = value === null || value === undefined ? '' : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns, ...rows].map((row) => row.map(field).join(',')).join('\r\n') + '\r\n';
}

/** A drawing as a file of its own: the page's colours are written into it. */
function svgText(svg) {
  const copy = svg.cloneNode(true);
  const from = [svg, ...svg.querySelectorAll('*')];
  const to = [copy, ...copy.querySelectorAll('*')];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const name of ['fill', 'stroke', 'color']) {
      if (/var\(|currentColor/i.test(element.getAttribute(name) || '')) to[i].setAttribute(name, style[name]);
    }
    if (element.tagName === 'text') {
      to[i].setAttribute('fill', style.fill);
      to[i].setAttribute('font-family', 'sans-serif');
    }
  });
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  const background = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  background.setAttribute('width', '100%');
  background.setAttribute('height', '100%');
  background.setAttribute('fill', colour('card'));
  copy.prepend(background);
  return new XMLSerializer().serializeToString(copy);
}

/** Buttons that save: `[['CSV', () => ...], ...]`. */
function tools(what, entries) {
  return h('div', { class: 'tools' }, entries.map(([label, act]) => h('button', {
    type: 'button', class: 'small', 'aria-label': `Save ${what} as ${label}`, title: `Save as ${label}`, onclick: act,
  }, label)));
}
