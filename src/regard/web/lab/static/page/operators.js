// The ONNX operators that Regard's graphs use, over typed arrays: a tensor is {dims, data}, with data a Float32Array, an
// Int32Array (all integers) or a Uint8Array (truth values). `OPERATORS[name](inputs, attributes)` gives the outputs.
import { timesColumns, timesRows, transposed } from "./products.js";

export const tensor = (dims, data) => ({ dims, data });
export const sizeOf = (dims) => dims.reduce((product, size) => product * size, 1);
export const KINDS = { f: Float32Array, i: Int32Array, b: Uint8Array };
const TYPES = { 1: Float32Array, 6: Int32Array, 7: Int32Array, 9: Uint8Array, 11: Float32Array };
const list = (given) => Array.from(given.data);
const axisOf = (axis, rank) => (axis < 0 ? axis + rank : axis);
const strides = (dims) => { const out = new Array(dims.length); for (let axis = dims.length - 1, step = 1; axis >= 0; step *= dims[axis--]) out[axis] = step; return out; };
const around = (dims, axis) => [sizeOf(dims.slice(0, axis)), dims[axis], sizeOf(dims.slice(axis + 1))];

// -- element by element --------------------------------------------------------------------------------------------------

const map = (of) => ([x]) => {
  const out = new Float32Array(x.data.length);
  for (let at = 0; at < out.length; at++) out[at] = of(x.data[at]);
  return [tensor(x.dims, out)];
};

function broadcast(...shapes) {
  const rank = Math.max(...shapes.map((dims) => dims.length)), out = new Array(rank).fill(1);
  for (const dims of shapes) dims.forEach((size, axis) => { const to = axis + rank - dims.length; if (size !== 1) { if (out[to] !== 1 && out[to] !== size) throw new Error(`shapes ${shapes.join(" and ")} do not match`); out[to] = size; } });
  return out;
}

// How far each axis of `dims` moves in a tensor of `own` size that is broadcast to it.
function steps(own, dims) {
  const plain = strides(own), out = new Array(dims.length).fill(0);
  own.forEach((size, axis) => { if (size !== 1) out[axis + dims.length - own.length] = plain[axis]; });
  return out;
}

// Calls each(place in the output, places in the inputs) for every element.
function walk(dims, moves, each) {
  const rank = dims.length, total = sizeOf(dims), at = new Array(rank).fill(0), places = moves.map(() => 0);
  for (let place = 0; place < total; place++) {
    each(place, places);
    for (let axis = rank - 1; axis >= 0; axis--) {
      at[axis]++;
      for (let one = 0; one < places.length; one++) places[one] += moves[one][axis];
      if (at[axis] < dims[axis]) break;
      for (let one = 0; one < places.length; one++) places[one] -= moves[one][axis] * dims[axis];
      at[axis] = 0;
    }
  }
}

const same = (a, b) => a.length === b.length && a.every((size, axis) => size === b[axis]);
const ending = (whole, end) => end.length <= whole.length && end.every((size, axis) => size === whole[axis + whole.length - end.length]);

const pairs = (of, type) => ([a, b]) => {
  const dims = same(a.dims, b.dims) ? a.dims : broadcast(a.dims, b.dims), count = sizeOf(dims);
  const out = new (type || a.data.constructor)(count), x = a.data, y = b.data;
  if (x.length === count && y.length === count) for (let at = 0; at < count; at++) out[at] = of(x[at], y[at]);
  else if (y.length === 1) { const value = y[0]; for (let at = 0; at < count; at++) out[at] = of(x[at], value); }
  else if (x.length === count && ending(dims, b.dims)) for (let at = 0, n = y.length; at < count; at++) out[at] = of(x[at], y[at % n]);
  else walk(dims, [steps(a.dims, dims), steps(b.dims, dims)], (at, [i, j]) => { out[at] = of(x[i], y[j]); });
  return [tensor(dims, out)];
};
const divide = ([a, b]) => pairs(a.data instanceof Int32Array ? (x, y) => Math.trunc(x / y) : (x, y) => x / y)([a, b]);
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// The error function, from the continued fraction and the series of the incomplete gamma function: exact to 1e-15.
function erf(x) {
  const z = Math.abs(x), square = z * z;
  if (z > 6) return Math.sign(x);
  if (z < 2.5) {
    let term = z, sum = z;
    for (let n = 1; Math.abs(term) > 1e-17 * sum && n < 200; n++) { term *= -square / n; sum += term / (2 * n + 1); }
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * sum;
  }
  let tail = 0;
  for (let n = 60; n > 0; n--) tail = n / 2 / (z + tail);
  return Math.sign(x) * (1 - Math.exp(-square) / Math.sqrt(Math.PI) / (z + tail));
}
const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
const geluByTanh = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));

// -- along an axis -------------------------------------------------------------------------------------------------------

const softmax = (logs) => ([x], { axis = -1 }) => {
  const [outer, size, inner] = around(x.dims, axisOf(axis, x.dims.length)), out = new Float32Array(x.data.length);
  for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) {
    const start = o * size * inner + i;
    let most = -Infinity, sum = 0;
    for (let s = 0; s < size; s++) most = Math.max(most, x.data[start + s * inner]);
    for (let s = 0; s < size; s++) sum += Math.exp(x.data[start + s * inner] - most);
    for (let s = 0; s < size; s++) { const less = x.data[start + s * inner] - most; out[start + s * inner] = logs ? less - Math.log(sum) : Math.exp(less) / sum; }
  }
  return [tensor(x.dims, out)];
};

const reduce = (first, join, finish = (value) => value) => ([x, axes], { keepdims = 1, noop_with_empty_axes = 0 }) => {
  const rank = x.dims.length, given = axes ? list(axes).map((axis) => axisOf(axis, rank)) : [];
  if (!given.length && noop_with_empty_axes) return [x];
  const gone = new Set(given.length ? given : x.dims.keys()), kept = x.dims.map((size, axis) => (gone.has(axis) ? 1 : size));
  const sums = new Float64Array(sizeOf(kept)).fill(first), move = steps(kept, x.dims), count = x.data.length / sums.length;
  walk(x.dims, [move], (at, [to]) => { sums[to] = join(sums[to], x.data[at]); });
  const out = new x.data.constructor(sums.length);
  for (let at = 0; at < out.length; at++) out[at] = finish(sums[at], count);
  return [tensor(keepdims ? kept : x.dims.filter((_, axis) => !gone.has(axis)), out)];
};

function normalize([x, scale, bias], { axis = -1, epsilon = 1e-5 }) {
  const size = sizeOf(x.dims.slice(axisOf(axis, x.dims.length))), out = new Float32Array(x.data.length);
  for (let start = 0; start < out.length; start += size) {
    let mean = 0, spread = 0;
    for (let at = 0; at < size; at++) mean += x.data[start + at];
    mean /= size;
    for (let at = 0; at < size; at++) spread += (x.data[start + at] - mean) ** 2;
    const by = 1 / Math.sqrt(spread / size + epsilon);
    for (let at = 0; at < size; at++) out[start + at] = (x.data[start + at] - mean) * by * scale.data[at] + (bias ? bias.data[at] : 0);
  }
  return [tensor(x.dims, out)];
}

function cumulate([x, axis], { exclusive = 0, reverse = 0 }) {
  const [outer, size, inner] = around(x.dims, axisOf(axis.data[0], x.dims.length)), out = new x.data.constructor(x.data.length);
  for (let o = 0; o < outer; o++) for (let i = 0; i < inner; i++) {
    let sum = 0;
    for (let s = 0; s < size; s++) {
      const at = (o * size + (reverse ? size - 1 - s : s)) * inner + i;
      if (exclusive) { out[at] = sum; sum += x.data[at]; } else { sum += x.data[at]; out[at] = sum; }
    }
  }
  return [tensor(x.dims, out)];
}

// -- products ------------------------------------------------------------------------------------------------------------

function multiply([a, b]) {
  if (b.rows) { // a weight, kept row by row: [N, K]
    const [K, N] = b.dims;
    return [tensor([...a.dims.slice(0, -1), N], timesRows(a.data, b.rows, a.data.length / K, K, N))];
  }
  const [x, y] = [a.dims.length === 1 ? [1, ...a.dims] : a.dims, b.dims.length === 1 ? [...b.dims, 1] : b.dims];
  const [M, K] = x.slice(-2), N = y.at(-1), before = broadcast(x.slice(0, -2), y.slice(0, -2)), out = new Float32Array(sizeOf(before) * M * N);
  walk(before, [steps(x.slice(0, -2), before), steps(y.slice(0, -2), before)], (at, [i, j]) => timesColumns(a.data, i * M * K, b.data, j * K * N, M, K, N, out, at * M * N));
  const dims = [...before, ...(a.dims.length === 1 ? [] : [M]), ...(b.dims.length === 1 ? [] : [N])];
  return [tensor(dims, out)];
}

function general([a, b, c], { alpha = 1, beta = 1, transA = 0, transB = 0 }) {
  const [M, K] = transA ? [a.dims[1], a.dims[0]] : a.dims, N = b.dims[transB ? 0 : 1];
  const x = transA ? transposed(a.data, K, M) : a.data, w = transB ? b.data : b.rows || transposed(b.data, K, N);
  const out = timesRows(x, w, M, K, N);
  if (alpha !== 1) for (let at = 0; at < out.length; at++) out[at] *= alpha;
  if (c) walk([M, N], [steps(c.dims, [M, N])], (at, [from]) => { out[at] += beta * c.data[from]; });
  return [tensor([M, N], out)];
}

// -- shapes --------------------------------------------------------------------------------------------------------------

const integers = (values) => tensor([values.length], Int32Array.from(values));

function transpose([x], { perm }) {
  const order = perm || [...x.dims.keys()].reverse(), dims = order.map((axis) => x.dims[axis]), plain = strides(x.dims);
  const long = order.filter((axis) => x.dims[axis] !== 1);
  if (long.every((axis, place) => !place || axis > long[place - 1])) return [tensor(dims, x.data)]; // only axes of size 1 move
  const out = new x.data.constructor(x.data.length);
  walk(dims, [order.map((axis) => plain[axis])], (at, [from]) => { out[at] = x.data[from]; });
  return [tensor(dims, out)];
}

function reshape([x, shape], { allowzero = 0 }) {
  const dims = list(shape).map((size, axis) => (size === 0 && !allowzero ? x.dims[axis] : size)), free = dims.indexOf(-1);
  if (free >= 0) dims[free] = x.data.length / (-sizeOf(dims) || 1);
  return [tensor(dims, x.data)];
}

function squeeze([x, axes]) {
  const gone = axes ? list(axes).map((axis) => axisOf(axis, x.dims.length)) : [...x.dims.keys()].filter((axis) => x.dims[axis] === 1);
  return [tensor(x.dims.filter((_, axis) => !gone.includes(axis)), x.data)];
}

function unsqueeze([x, axes]) {
  const rank = x.dims.length + axes.data.length, added = list(axes).map((axis) => axisOf(axis, rank)), left = [...x.dims];
  return [tensor(Array.from({ length: rank }, (_, axis) => (added.includes(axis) ? 1 : left.shift())), x.data)];
}

function expand([x, shape]) {
  const dims = broadcast(x.dims, list(shape));
  if (sizeOf(dims) === x.data.length) return [tensor(dims, x.data)];
  const out = new x.data.constructor(sizeOf(dims));
  walk(dims, [steps(x.dims, dims)], (at, [from]) => { out[at] = x.data[from]; });
  return [tensor(dims, out)];
}

function concat(all, { axis }) {
  const place = axisOf(axis, all[0].dims.length), dims = [...all[0].dims];
  dims[place] = all.reduce((sum, one) => sum + one.dims[place], 0);
  const [outer, size, inner] = around(dims, place), out = new all[0].data.constructor(outer * size * inner);
  let start = 0;
  for (const one of all) {
    const part = one.dims[place] * inner;
    for (let o = 0; o < outer; o++) out.set(one.data.subarray(o * part, (o + 1) * part), o * size * inner + start);
    start += part;
  }
  return [tensor(dims, out)];
}

function split([x, sizes], { axis = 0, num_outputs }) {
  const place = axisOf(axis, x.dims.length), [outer, size, inner] = around(x.dims, place);
  const each = Math.ceil(size / num_outputs), all = sizes ? list(sizes) : Array.from({ length: num_outputs }, (_, n) => Math.min(each, size - n * each));
  let start = 0;
  return all.map((count) => {
    const out = new x.data.constructor(outer * count * inner);
    for (let o = 0; o < outer; o++) out.set(x.data.subarray((o * size + start) * inner, (o * size + start + count) * inner), o * count * inner);
    start += count;
    return tensor(x.dims.map((old, at) => (at === place ? count : old)), out);
  });
}

function slice([x, starts, ends, axes, jumps]) {
  const rank = x.dims.length, dims = [...x.dims], move = strides(x.dims);
  let first = 0;
  starts.data.forEach((start, n) => {
    const axis = axes ? axisOf(axes.data[n], rank) : n, size = x.dims[axis], jump = jumps ? jumps.data[n] : 1;
    const within = (place, low, high) => Math.max(low, Math.min(high, place < 0 ? place + size : place));
    const [from, to] = jump > 0 ? [within(start, 0, size), within(ends.data[n], 0, size)] : [within(start, 0, size - 1), ends.data[n] < -size ? -1 : within(ends.data[n], -1, size - 1)];
    dims[axis] = Math.max(0, Math.ceil((to - from) / jump));
    first += from * move[axis];
    move[axis] *= jump;
  });
  if (same(dims, x.dims) && first === 0) return [x];
  const out = new x.data.constructor(sizeOf(dims));
  walk(dims, [move], (at, [from]) => { out[at] = x.data[first + from]; });
  return [tensor(dims, out)];
}

function pad([x, pads, value, axes], { mode = "constant" }) {
  if (mode !== "constant") throw new Error(`Pad has no mode ${mode} here`);
  const rank = x.dims.length, before = new Array(rank).fill(0), after = new Array(rank).fill(0), count = pads.data.length / 2;
  for (let n = 0; n < count; n++) { const axis = axes ? axisOf(axes.data[n], rank) : n; before[axis] = pads.data[n]; after[axis] = pads.data[n + count]; }
  const dims = x.dims.map((size, axis) => size + before[axis] + after[axis]), out = new x.data.constructor(sizeOf(dims)), fill = value ? value.data[0] : 0;
  const move = strides(x.dims), own = strides(dims), high = x.dims;
  for (let at = 0; at < out.length; at++) {
    let from = 0, inside = true;
    for (let axis = 0, rest = at; axis < rank; axis++) { const place = Math.trunc(rest / own[axis]) - before[axis]; rest %= own[axis]; if (place < 0 || place >= high[axis]) { inside = false; break; } from += place * move[axis]; }
    out[at] = inside ? x.data[from] : fill;
  }
  return [tensor(dims, out)];
}

function triangle([x, diagonal], { upper = 1 }) {
  const [rows, columns] = x.dims.slice(-2), k = diagonal ? diagonal.data[0] : 0, out = x.data.slice();
  for (let at = 0; at < out.length; at++) { const column = at % columns, row = Math.trunc(at / columns) % rows; if (upper ? column < row + k : column > row + k) out[at] = 0; }
  return [tensor(x.dims, out)];
}

// -- by index ------------------------------------------------------------------------------------------------------------

function gather([x, index], { axis = 0 }) {
  const place = axisOf(axis, x.dims.length), [outer, size, inner] = around(x.dims, place), count = index.data.length;
  const out = new x.data.constructor(outer * count * inner);
  for (let o = 0; o < outer; o++) for (let n = 0; n < count; n++) {
    const from = (o * size + axisOf(index.data[n], size)) * inner;
    if (inner === 1) out[o * count + n] = x.data[from];
    else out.set(x.data.subarray(from, from + inner), (o * count + n) * inner);
  }
  return [tensor([...x.dims.slice(0, place), ...index.dims, ...x.dims.slice(place + 1)], out)];
}

function gatherElements([x, index], { axis = 0 }) {
  const place = axisOf(axis, x.dims.length), move = strides(x.dims), out = new x.data.constructor(index.data.length), along = move[place];
  const others = [...move];
  others[place] = 0;
  walk(index.dims, [others], (at, [from]) => { out[at] = x.data[from + axisOf(index.data[at], x.dims[place]) * along]; });
  return [tensor(index.dims, out)];
}

// Where each row of the indices [..., depth] begins among the rows of x that have the given axes in common.
function places(x, index, common) {
  const depth = index.dims.at(-1), move = strides(x.dims), rows = index.data.length / depth, found = new Int32Array(rows);
  const each = sizeOf(index.dims.slice(common, -1)), block = common ? sizeOf(x.dims.slice(common)) : 0;
  for (let row = 0; row < rows; row++) {
    let at = Math.trunc(row / (each || 1)) * block;
    for (let n = 0; n < depth; n++) at += axisOf(index.data[row * depth + n], x.dims[common + n]) * move[common + n];
    found[row] = at;
  }
  return [found, sizeOf(x.dims.slice(common + depth))];
}

function gatherND([x, index], { batch_dims = 0 }) {
  const [found, size] = places(x, index, batch_dims), out = new x.data.constructor(found.length * size);
  found.forEach((from, row) => out.set(x.data.subarray(from, from + size), row * size));
  return [tensor([...index.dims.slice(0, -1), ...x.dims.slice(batch_dims + index.dims.at(-1))], out)];
}

function scatterND([x, index, updates], { reduction = "none" }) {
  if (reduction !== "none") throw new Error(`Pages do not support ScatterND with reduction ${reduction}.`);
  const [found, size] = places(x, index, 0), out = x.data.slice();
  found.forEach((to, row) => out.set(updates.data.subarray(row * size, (row + 1) * size), to));
  return [tensor(x.dims, out)];
}

function where([test, a, b]) {
  const dims = broadcast(test.dims, a.dims, b.dims), out = new a.data.constructor(sizeOf(dims));
  walk(dims, [steps(test.dims, dims), steps(a.dims, dims), steps(b.dims, dims)], (at, [t, i, j]) => { out[at] = test.data[t] ? a.data[i] : b.data[j]; });
  return [tensor(dims, out)];
}

function clip([x, low, high]) {
  const least = low ? low.data[0] : -Infinity, most = high ? high.data[0] : Infinity;
  return [tensor(x.dims, x.data.map((value) => Math.min(most, Math.max(least, value))))];
}

function range([start, end, step]) {
  const out = new start.data.constructor(Math.max(0, Math.ceil((end.data[0] - start.data[0]) / step.data[0])));
  for (let n = 0; n < out.length; n++) out[n] = start.data[0] + n * step.data[0];
  return [tensor([out.length], out)];
}

function cast([x], { to }) {
  const type = TYPES[to];
  if (!type) throw new Error(`Pages do not support the ONNX data type ${to}.`);
  if (x.data.constructor === type) return [x];
  const out = new type(x.data.length);
  for (let at = 0; at < out.length; at++) out[at] = to === 9 ? x.data[at] !== 0 : x.data[at];
  return [tensor(x.dims, out)];
}

const truth = Uint8Array;
export const OPERATORS = {
  Abs: map(Math.abs), Cos: map(Math.cos), Erf: map(erf), Exp: map(Math.exp), Floor: map(Math.floor), Log: map(Math.log), Reciprocal: map((x) => 1 / x), Relu: map((x) => (x > 0 ? x : 0)),
  Sigmoid: map(sigmoid), Sin: map(Math.sin), Softplus: map((x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)))), Sqrt: map(Math.sqrt), Tanh: map(Math.tanh),
  Neg: ([x]) => [tensor(x.dims, x.data.map((value) => -value))],
  Not: ([x]) => [tensor(x.dims, x.data.map((value) => (value ? 0 : 1)))],
  Elu: ([x], { alpha = 1 }) => map((value) => (value > 0 ? value : alpha * Math.expm1(value)))([x]),
  Gelu: ([x], { approximate = "none" }) => map(approximate === "tanh" ? geluByTanh : gelu)([x]),
  Add: pairs((x, y) => x + y), Sub: pairs((x, y) => x - y), Mul: pairs((x, y) => x * y), Div: divide, Pow: pairs((x, y) => x ** y),
  Max: (all) => [all.reduce((a, b) => pairs(Math.max)([a, b])[0])], Min: (all) => [all.reduce((a, b) => pairs(Math.min)([a, b])[0])],
  And: pairs((x, y) => x & y, truth), Or: pairs((x, y) => x | y, truth), Equal: pairs((x, y) => x === y, truth),
  Less: pairs((x, y) => x < y, truth), LessOrEqual: pairs((x, y) => x <= y, truth), Greater: pairs((x, y) => x > y, truth), GreaterOrEqual: pairs((x, y) => x >= y, truth),
  Where: where, Clip: clip, Cast: cast, Identity: ([x]) => [x],
  Softmax: softmax(false), LogSoftmax: softmax(true), LayerNormalization: normalize, CumSum: cumulate,
  ReduceMax: reduce(-Infinity, Math.max), ReduceMean: reduce(0, (sum, x) => sum + x, (sum, count) => sum / count), ReduceSum: reduce(0, (sum, x) => sum + x), ReduceL2: reduce(0, (sum, x) => sum + x * x, Math.sqrt),
  MatMul: multiply, Gemm: general,
  Shape: ([x], { start = 0, end }) => [integers(x.dims.slice(start, end))],
  ConstantOfShape: ([shape], { value }) => [tensor(list(shape), new (value ? KINDS[value[0]] : Float32Array)(sizeOf(list(shape))).fill(value ? value[1][0] : 0))],
  Range: range, Reshape: reshape, Transpose: transpose, Squeeze: squeeze, Unsqueeze: unsqueeze, Expand: expand, Concat: concat, Split: split, Slice: slice, Pad: pad, Trilu: triangle,
  Gather: gather, GatherElements: gatherElements, GatherND: gatherND, ScatterND: scatterND,
};
