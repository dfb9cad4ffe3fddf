// The question in the page's address, compressed: `#` and base64url of raw deflate of JSON.

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

/** The fields' names, as the engine has them. */
const FIELDS = ['links', 'sizes', 'direction', 'schedulers', 'congestion', 'budget', 'seed', 'value', 'rule'];

/** Text of files that is put into an address, bytes: `LONGEST_IN_ADDRESS` in crates/cli. */
const LARGEST_IN_ADDRESS = 200_000;

/** A question as the part of an address after `#`. */
async function toAddress(asked) {
  const given = Object.fromEntries(Object.entries(asked).filter(([name, value]) => value && name !== 'files'));
  // Recorded links are in it as far as addresses go.
  if (asked.files && JSON.stringify(asked.files).length <= LARGEST_IN_ADDRESS) given.files = asked.files;
  if (!Object.keys(given).length) return '';
  const packed = await through(new TextEncoder().encode(JSON.stringify(given)), new CompressionStream('deflate-raw'));
  return btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join('')).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
}

/** The question that an address has; none where it has none, or one that can't be read. */
async function fromAddress(text) {
  if (!text) return null;
  try {
    const packed = Uint8Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));
    const found = JSON.parse(new TextDecoder().decode(await through(packed, new DecompressionStream('deflate-raw'))));
    const asked = Object.fromEntries(FIELDS.filter((name) => typeof found[name] === 'string').map((name) => [name, found[name]]));
    const files = Object.entries(found.files || {}).filter(([, text]) => typeof text === 'string');
    return { ...asked, files: Object.fromEntries(files) };
  } catch {
    return null;
  }
}
