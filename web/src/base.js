// What every part of the page uses: elements, the theme, the tip.

/** The document that the page is about. The playground makes others. */
let doc = JSON.parse(document.getElementById('document').textContent);

/**
 * An element. `attributes` may hold listeners (`onclick`); children are nodes or text.
 */
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'style') element.style.cssText = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Text with `names` in backticks, as nodes. */
function prose(text) {
  const tied = text.replace(/(\d) %/g, '$1\u00a0%');
  return tied.split('`').map((part, i) => (i % 2 ? h('code', {}, part) : part));
}

// Colours come from the style sheet, so that canvas and charts follow the theme.

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Called when colours or sizes have changed and charts must be drawn again. */
const redraws = new Set();

function redrawAll() {
  for (const redraw of redraws) redraw();
}

const THEMES = ['auto', 'light', 'dark'];

const SYSTEM_IS_DARK = matchMedia('(prefers-color-scheme: dark)');

function setTheme(theme) {
  const system = SYSTEM_IS_DARK.matches ? 'dark' : 'light';
  document.documentElement.dataset.theme = theme === 'auto' ? system : theme;
  const button = document.getElementById('theme');
  button.textContent = { auto: '◐ Auto', light: '☀ Light', dark: '☾ Dark' }[theme];
  button.setAttribute('aria-label', `Colours: ${theme}. Press to change.`);
  button.dataset.theme = theme;
}

function initTheme() {
  let saved = null;
  // A page opened from a file may not be allowed to remember anything.
  try { saved = localStorage.getItem('ropewalk-theme'); } catch { saved = null; }
  setTheme(THEMES.includes(saved) ? saved : 'auto');
  document.getElementById('theme').addEventListener('click', (event) => {
    const next = THEMES[(THEMES.indexOf(event.currentTarget.dataset.theme) + 1) % THEMES.length];
    setTheme(next);
    try { localStorage.setItem('ropewalk-theme', next); } catch { /* not remembered */ }
    redrawAll();
  });
  SYSTEM_IS_DARK.addEventListener('change', () => {
    setTheme(document.getElementById('theme').dataset.theme);
    redrawAll();
  });
  // Paper is white: charts are drawn in light colours for it.
  let before = 'auto';
  addEventListener('beforeprint', () => {
    before = document.getElementById('theme').dataset.theme;
    setTheme('light');
    // The page is as wide as the paper while it is drawn for it.
    document.documentElement.classList.add('paper');
    redrawAll();
  });
  addEventListener('afterprint', () => {
    setTheme(before);
    document.documentElement.classList.remove('paper');
    redrawAll();
  });
}

/** On paper: the page is being printed. */
function onPaper() {
  return document.documentElement.classList.contains('paper');
}

// The tip beside the pointer; also what a screen reader says of a mark.

function showTip(x, y, ...children) {
  const tip = document.getElementById('tip');
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - 16 - box.width : x + 16;
  const top = y + 16 + box.height > innerHeight - 8 ? y - 12 - box.height : y + 16;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - box.width - 8))}px`;
  tip.style.top = `${Math.max(8, top)}px`;
}

function hideTip() {
  document.getElementById('tip').hidden = true;
}

/** A row of buttons of which one is pressed. */
function tabs(label, names, chosen, choose) {
  const buttons = names.map((name, i) => h('button', {
    type: 'button', 'aria-pressed': String(i === chosen), onclick: () => pick(i),
  }, name));
  function pick(i) {
    buttons.forEach((button, j) => button.setAttribute('aria-pressed', String(i === j)));
    choose(i);
  }
  return h('div', { class: 'tabs', role: 'group', 'aria-label': label }, buttons);
}
