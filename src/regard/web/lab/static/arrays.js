// Arrays as report/packed_arrays.py sends them: {about, arrays: {name: {shape, data, low, high}}}.

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  for (const one of header.arrays) {
    const start = 4 + length + one.offset;
    const count = one.shape.reduce((product, size) => product * size, 1);
    arrays[one.name] = { shape: one.shape, low: one.low, high: one.high, data: typed(one.type, buffer, start, count) };
  }
  return { about: header.about, arrays };
}

function typed(type, buffer, start, count) {
  if (type === "uint8") return new Uint8Array(buffer, start, count);
  if (type === "float32") return new Float32Array(buffer, start, count);
  if (type === "int32") return new Int32Array(buffer, start, count);
  const halves = new Uint16Array(buffer, start, count);
  const wide = new Float32Array(count);
  for (let place = 0; place < count; place++) wide[place] = fromHalf(halves[place]);
  return wide;
}

function fromHalf(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

// The number that a byte stands for in an array from `in_bytes`.
export const valueAt = (array, place) =>
  array.data instanceof Uint8Array ? array.low + (array.data[place] / 255) * (array.high - array.low) : array.data[place];
