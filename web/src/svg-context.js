// What of a canvas context the rope's drawing uses, writing SVG: the saved picture is the one that is seen.

const SVG = 'http://www.w3.org/2000/svg';

class SvgContext {
  constructor(width, height, background) {
    this.fillStyle = '#000';
    this.strokeStyle = '#000';
    this.lineWidth = 1;
    this.globalAlpha = 1;
    this.textAlign = 'left';
    this.font = '';
    this.dash = [];
    this.path = [];
    this.clips = 0;
    this.parts = [`<svg xmlns="${SVG}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="11">`,
      `<rect width="100%" height="100%" fill="${background}"/>`];
    this.open = [];
  }

  static number(value) {
    return String(Math.round(value * 100) / 100);
  }

  paint(kind) {
    const n = SvgContext.number;
    const alpha = this.globalAlpha === 1 ? '' : ` opacity="${n(this.globalAlpha)}"`;
    if (kind === 'fill') return `fill="${this.fillStyle}"${alpha}`;
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
    return `fill="none" stroke="${this.strokeStyle}" stroke-width="${n(this.lineWidth)}"${dash}${alpha}`;
  }

  box(x, y, width, height, kind) {
    const n = SvgContext.number;
    this.parts.push(`<rect x="${n(x)}" y="${n(y)}" width="${n(Math.max(0, width))}" height="${n(Math.max(0, height))}" ${this.paint(kind)}/>`);
  }

  fillRect(x, y, width, height) { this.box(x, y, width, height, 'fill'); }

  strokeRect(x, y, width, height) { this.box(x, y, width, height, 'stroke'); }

  fillText(text, x, y) {
    const n = SvgContext.number;
    const anchor = { left: 'start', right: 'end', center: 'middle' }[this.textAlign];
    const safe = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
    this.parts.push(`<text x="${n(x)}" y="${n(y)}" text-anchor="${anchor}" ${this.paint('fill')}>${safe}</text>`);
  }

  beginPath() { this.path = []; }

  moveTo(x, y) { this.path.push(`M${SvgContext.number(x)} ${SvgContext.number(y)}`); }

  lineTo(x, y) { this.path.push(`L${SvgContext.number(x)} ${SvgContext.number(y)}`); }

  rect(x, y, width, height) {
    const n = SvgContext.number;
    this.path.push(`M${n(x)} ${n(y)}h${n(width)}v${n(height)}h${n(-width)}z`);
  }

  closePath() { this.path.push('z'); }

  fill() { this.parts.push(`<path d="${this.path.join('')}" ${this.paint('fill')}/>`); }

  stroke() { this.parts.push(`<path d="${this.path.join('')}" ${this.paint('stroke')}/>`); }

  setLineDash(dash) { this.dash = dash; }

  save() { this.open.push(0); }

  clip() {
    this.clips += 1;
    this.parts.push(`<clipPath id="c${this.clips}"><path d="${this.path.join('')}"/></clipPath><g clip-path="url(#c${this.clips})">`);
    this.open[this.open.length - 1] += 1;
  }

  restore() {
    this.parts.push('</g>'.repeat(this.open.pop() || 0));
  }

  toString() {
    return `${this.parts.join('\n')}\n</svg>\n`;
  }
}
