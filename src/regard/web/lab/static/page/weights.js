// The numbers of the page, as exchange/page_weights.py packs them: base64 of compressed bytes, and a table.

const CHUNK = 1 << 20; // letters at a time: a multiple of 4

// The bytes of base64, compressed, in steps that `progress(share)` hears of.
export async function unpacked(letters, progress = () => {}) {
  const stream = new DecompressionStream("deflate-raw"), writer = stream.writable.getWriter(), reader = stream.readable.getReader();
  const feeding = (async () => {
    for (let at = 0; at < letters.length; at += CHUNK) {
      await writer.write(bytesOf(letters.slice(at, at + CHUNK)));
      progress(Math.min(1, (at + CHUNK) / letters.length));
    }
    await writer.close();
  })();
  const parts = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
  }
  await feeding;
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let start = 0;
  for (const part of parts) { all.set(part, start); start += part.length; }
  return all.buffer;
}

function bytesOf(letters) {
  const text = atob(letters), out = new Uint8Array(text.length);
  for (let at = 0; at < out.length; at++) out[at] = text.charCodeAt(at);
  return out;
}

const PLAIN = { float32: Float32Array, int32: Int32Array, uint32: Uint32Array, uint16: Uint16Array, uint8: Uint8Array };

// The arrays of the table, each when it is first asked for.
export function arraysOf(table, buffer) {
  const made = new Array(table.length);
  const get = (place) => (made[place] ??= read(table[place]));
  function read({ type, count, offset, row, scale, middle }) {
    if (PLAIN[type]) return new PLAIN[type](buffer, offset, count);
    const out = new Float32Array(count);
    if (type === "float16") {
      const halves = new Uint16Array(buffer, offset, count);
      for (let at = 0; at < count; at++) out[at] = HALF[halves[at]];
      return out;
    }
    const bytes = new Int8Array(buffer, offset, count), sizes = get(scale), middles = get(middle);
    for (let at = 0; at < count; at++) { const of = Math.trunc(at / row); out[at] = bytes[at] * sizes[of] + middles[of]; }
    return out;
  }
  return new Proxy(made, { get: (_, place) => get(place) });
}

// The value of each of the 65,536 numbers in half precision.
const HALF = (() => {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
    table[bits] = sign * (exponent === 0 ? fraction * 2 ** -24 : exponent === 31 ? (fraction ? NaN : Infinity) : (1 + fraction / 1024) * 2 ** (exponent - 15));
  }
  return table;
})();
