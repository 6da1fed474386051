// Parts that are changed while a model computes, by the names and rules of insight/interventions: "zero self/0[2]" removes a
// head, "mean layer/0/cell@3" replaces a state by its mean over the words, "swap embedding@2" takes the value of another text.
//
//   model.watch = recorder(found);      model.watch = changer(changes, found, those of the other text, met);
//
// A recorded part is an array of its columns, each an array: of a head h the components h·d … h·d + d − 1.
import { sizeOf, tensor } from "./operators.js";

// The part that a place is in (self/0 is layer/0/heads), and which component and column of it; null: all.
export function placeOf(text) {
  const [, name, index, column] = /^([^[\]@]+)(?:\[(\d+)\])?(?:@(\d+))?$/.exec(text) || [], [, kind, layer] = /^(self|cross)\/(\d+)$/.exec(name) || [];
  if (!name) throw new Error(`“${text}” does not name a part.`);
  const number = (digits) => (digits === undefined ? null : Number(digits));
  return { name, part: kind ? `layer/${layer}/${kind === "cross" ? "cross/" : ""}heads` : name, index: number(index), column: number(column) };
}

// Calls each(place, row, column, component, head or unit) for every number of a part: [R, H, T, d] of heads, [R, T, D] of others,
// and in a loop [R, D] at one column.
function every({ name, backwards }, { dims }, step, seen, each) {
  const heads = /(heads|weights)$/.test(name), flat = step !== null || dims.length < 3, axis = heads ? 2 : 1;
  const [R, H, T, D] = flat ? [dims[0], 1, 1, sizeOf(dims.slice(1))] : [dims[0], heads ? dims[1] : 1, dims[axis], sizeOf(dims.slice(axis + 1))];
  for (let row = 0, at = 0; row < R; row++) for (let head = 0; head < H; head++) for (let t = 0; t < T; t++) for (let d = 0; d < D; d++) each(at++, row, flat ? step : seen + (backwards ? T - 1 - t : t), head * D + d, heads ? head : d);
}

export const recorder = (found) => (part, value, step, seen) => {
  if (value) every(part, value, step, seen, (at, row, column, component, unit) => {
    if (row) return;
    const mine = found[part.name] ??= [];
    (mine[column ?? 0] ??= [])[component] = value.data[at];
    mine.units = unit + 1;
  });
  else found[part.name] = [[1]]; // an order of an n-gram
  return value;
};

// Replaces parts; `met` gets the names of all parts. `of(column, component, unit)` of a change says what is replaced.
export const replacer = (replaced, met = new Set()) => (part, value, step, seen) => {
  met.add(part.name);
  const mine = replaced.filter((one) => one.part === part.name);
  if (!value || !mine.length) return value || mine.length; // an order of an n-gram: is it removed?
  const data = value.data.slice();
  every(part, value, step, seen, (at, row, column, component, unit) => {
    for (const one of mine) if (one.of(column, component, unit)) data[at] = one.value(column ?? 0, component) ?? data[at];
  });
  return tensor(value.dims, data);
};

// The changes as a page lists them; `own` and `other`: the recorded parts of the text and of the one to swap with.
export function replacements(changes, own, other) {
  return changes.map((change) => {
    const [way, text] = change.split(" "), place = placeOf(text), mine = own[place.part], its = other?.[place.part];
    if ((way !== "zero" || place.column !== null) && place.part.startsWith("order/")) throw new Error("An n-gram order can only be removed, and only at all words at once.");
    if (way === "swap" && !other) throw new Error("Swapping needs a second text of equal length: enter one.");
    if (way === "swap" && mine && (place.column === null ? mine.length !== its.length : !its[place.column])) throw new Error(`The texts have ${mine.length} and ${its.length} tokens: swap ${place.name} at one word, or choose a text of equal length.`);
    const mean = way === "mean" && mine?.[0].map((_, at) => mine.reduce((sum, one) => sum + one[at], 0) / mine.length);
    return { ...place, of: (column, _, unit) => (place.index ?? unit) === unit && (place.column ?? column) === column, value: (column, at) => (way === "zero" ? 0 : way === "mean" ? mean[at] : its[column]?.[at]) };
  });
}
