// Numbers as people write them, and a few sums.

function digits(value, places) {
  return value.toFixed(places);
}

/** Seconds for people: 132.1 ms, 2.345 s. */
function time(seconds) {
  if (!Number.isFinite(seconds)) return '–';
  const size = Math.abs(seconds);
  if (size < 0.001) return `${digits(seconds * 1e6, 0)}\u00a0µs`;
  if (size < 1) return `${digits(seconds * 1e3, 1)}\u00a0ms`;
  if (size < 100) return `${digits(seconds, 3)}\u00a0s`;
  return `${digits(seconds, 1)}\u00a0s`;
}

/** Bytes for people. */
function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let place = 0;
  while (Math.abs(count) >= 1024 && place < units.length - 1) {
    count /= 1024;
    place += 1;
  }
  const text = place === 0 || Number.isInteger(count) ? digits(count, 0) : digits(count, 1);
  return `${text}\u00a0${units[place]}`;
}

/** A ratio as a change: -31.5 %. The minus is a real one. */
function change(ratio) {
  const percent = (ratio - 1) * 100;
  if (Math.abs(percent) < 0.05) return '0.0\u00a0%';
  return `${percent < 0 ? '−' : '+'}${digits(Math.abs(percent), 1)}\u00a0%`;
}

/** A ratio of times in words: 166 % longer. */
function longer(ratio) {
  const percent = (ratio - 1) * 100;
  if (Math.abs(percent) < 0.5) return 'as long';
  return `${digits(Math.abs(percent), 0)}\u00a0% ${percent > 0 ? 'longer' : 'less'}`;
}

/** 1 run, 2 runs. */
function count(number, one, many) {
  return `${number.toLocaleString('en')} ${number === 1 ? one : many || `${one}s`}`;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
}

/** A round number at or above a value: axes that follow a zoom then stand still most of the time. */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((round) => round >= value * (1 - 1e-9));
}

/** The p-quantile of values in ascending order, as R's type 7. */
function quantile(sorted, p) {
  const place = (sorted.length - 1) * p;
  const low = Math.floor(place);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}
