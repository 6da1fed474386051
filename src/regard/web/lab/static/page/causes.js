// What causes a prediction, as insight/interventions computes it: changed parts, what each layer would predict, and how much
// is lost without each part.
import { recorder, replacements, replacer } from "./changing.js";
import { largest, logSoftmax, randomStream } from "./sampling.js";
import { through, tokensOf } from "./tracing.js";

const DRAWS = 8, MOST = 1e9; // draws of the control for each size; components of a part, at most
const nameOf = (part) => part.replace(/^layer\/(\d+)\/(cross\/)?heads$/, (_, layer, cross) => `${cross ? "cross" : "self"}/${layer}`);

// What `ask` computes while `watch` sees every part.
function watched(model, watch, ask) {
  model.watch = watch;
  const done = () => { model.watch = null; };
  try {
    const found = ask();
    if (found?.finally) return found.finally(done);
    done();
    return found;
  } catch (error) { done(); throw error; }
}

function recorded(run, text, written) {
  const found = {};
  return { found, ...watched(run.model, recorder(found), () => through(run, text, written)) };
}

// `texts`: the one that is read, and the one to swap with.
export async function changed(run, [text, other], written, changes, ask) {
  const own = recorded(run, text, written).found, its = other ? recorded(run, other, written).found : null;
  const wanted = replacements(changes, own, its), missing = wanted.find((one) => !run.model.parts.includes(one.part));
  if (missing) throw new Error(`There is no place “${missing.name}”.`);
  const found = await watched(run.model, replacer(wanted), ask);
  found.facts.notes = [`Changed: ${changes.join(", ")}. Computed by the reference implementation.`, ...found.facts.notes];
  return found;
}

// -- lens ------------------------------------------------------------------------------------------------------------------

// Each layer's vectors in the place of the last layer's output, which the prediction is made from.
export function lens(run, text, written) {
  const { tokenizer, about: { lens: sums, cannot } } = run;
  if (cannot) throw new Error(cannot);
  const { found, every, ids, targets } = recorded(run, text, written), final = every.map(logSoftmax), last = found[`layer/${sums.length - 1}`], layers = [], notes = [];
  if (!last) throw new Error("This model has no layers that can be decoded with its output layer.");
  const add = (name, logs) => layers.push({
    name, top: logs.map((one) => { const best = largest(one, 3), words = tokensOf(tokenizer, best); return best.map((token, at) => [words[at], Math.exp(one[token])]); }),
    probability: logs.map((one, at) => (targets[at] === null ? null : Math.exp(one[targets[at]]))), rank: logs.map((one, at) => (targets[at] === null ? null : one.reduce((sum, log) => sum + (log > one[targets[at]]), 1))),
    divergence: logs.map((one, at) => Math.max(0, final[at].reduce((sum, log, token) => sum + (log > -700 ? Math.exp(log) * (log - one[token]) : 0), 0))),
  });
  const look = (name, vectors) => {
    if (vectors[0].length !== last[0].length) { notes.push(`${name} is ${vectors[0].length} wide and cannot be decoded: the output layer has a different width.`); return; }
    const value = (column, at) => vectors[column][at];
    add(name, watched(run.model, replacer([{ part: `layer/${sums.length - 1}`, of: () => true, value }]), () => through(run, text, written)).every.map(logSoftmax));
  };
  let before = found.embedding;
  sums.forEach((sum, number) => {
    const name = `layer/${number}`;
    if (sum) look(`${name}/attention`, before.map((column, t) => column.map((one, at) => one + found[`${name}/attention`][t][at])));
    look(name, before = found[name]);
  });
  add("prediction", final);
  return { question: "lens", words: tokensOf(tokenizer, ids), layers, notes };
}

// -- ablation --------------------------------------------------------------------------------------------------------------

export const KINDS = { heads: /\/heads$/, gates: /\/(input|forget|store|output|reset|update)$/, orders: /^order/, words: /embedding$/, attention: /\/attention$/, feedforward: /\/feedforward$/, layers: /^(layer|encoder)\/\d+$/ };

// The parts of a kind: each has a name, and the cells [column or −1, component] of one part.
function partsOf(run, found, kind, { ids, read }) {
  return Object.entries(found).filter(([part]) => KINDS[kind].test(part)).flatMap(([part, columns]) => {
    const size = columns[0].length, of = (label, first, count, column = -1) => ({ name: label, part, cells: Array.from({ length: count }, (_, at) => [column, first + at]) });
    if (kind === "heads") return Array.from({ length: columns.units }, (_, head) => of(`${nameOf(part)}[${head}]`, (head * size) / columns.units, size / columns.units));
    if (kind !== "words") return [of(nameOf(part), 0, size)];
    const words = part.startsWith("encoder") ? tokensOf(run.source, read) : tokensOf(run.tokenizer, ids);
    return columns.map((_, column) => of(`${part}@${column} ${words[column]}`, 0, size, column));
  });
}

// Mean Δ log P of the words that follow, without each part and without as many random components of the same kind.
export async function ablation(run, text, written, kind, pause) {
  const first = recorded(run, text, written), kinds = Object.keys(KINDS).filter((one) => partsOf(run, first.found, one, first).length), draw = randomStream(0);
  const parts = partsOf(run, first.found, kind || (kind = kinds[0]), first), all = parts.flatMap(({ part, cells }) => cells.map((cell) => [part, ...cell]));
  const targets = first.targets.map((one) => one ?? (first.targets.length > 1 ? null : largest(first.every[0], 1)[0]));
  const score = ({ every }) => { const logs = every.flatMap((one, at) => (targets[at] === null ? [] : logSoftmax(one)[targets[at]])); return logs.reduce((sum, one) => sum + one, 0) / logs.length; };
  if (first.targets.length === 1 && run.about.task === "language model") throw new Error("The text has no word to predict: type at least one word.");
  const before = score(first), controls = {};
  const without = async (cells) => {
    await pause();
    const chosen = {};
    for (const [part, column, component] of cells) (chosen[part] ??= new Set()).add(component + MOST * column);
    const zero = Object.entries(chosen).map(([part, some]) => ({ part, of: (column, component) => some.has(component - MOST) || some.has(component + MOST * column), value: () => 0 }));
    return score(watched(run.model, replacer(zero), () => through(run, text, written))) - before;
  };
  const effects = [];
  for (const { name, part, cells } of parts) {
    const size = cells.length;
    if (size > 1 && size < all.length && controls[size] === undefined) {
      controls[size] = 0;
      for (let number = 0; number < DRAWS; number++) {
        for (let at = 0; at < size; at++) { const other = at + Math.floor(draw() * (all.length - at)); [all[at], all[other]] = [all[other], all[at]]; }
        controls[size] += (await without(all.slice(0, size))) / DRAWS;
      }
    }
    effects.push({ name, effect: await without(cells.map((cell) => [part, ...cell])), control: controls[size] ?? null });
  }
  return { question: "ablate", kind, kinds, way: "zero", texts: 1, effects: effects.sort((one, two) => one.effect - two.effect) };
}
