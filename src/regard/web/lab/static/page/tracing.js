// What happens inside a model on one text, as insight/tracing.py and views/as_json.py tell it: facts, and arrays by name.
import { largest, logSoftmax } from "./sampling.js";
import { labelAfter, labels, leftward, legible } from "./words.js";

const TOP = 8, MANY = 24, LONGEST = 400; // tokens that are shown of a longer text
const rounded = (value, digits) => Number(value.toPrecision(digits));

// An array of bytes between its ends, as heat maps draw it.
function inBytes({ dims, data }, low, high) {
  const wide = high - low || 1, out = new Uint8Array(data.length);
  for (let at = 0; at < out.length; at++) out[at] = Math.round(255 * Math.max(0, Math.min(1, ((Number.isFinite(data[at]) ? data[at] : 0) - low) / wide)));
  return { shape: dims, data: out, low, high };
}

// The first row of a tensor [R, …].
const first = ({ dims, data }) => ({ dims: dims.slice(1), data: data.subarray(0, data.length / dims[0]) });

function ends(data, signed = false) {
  let low = 0, high = 0;
  for (const value of data) { if (value < low) low = value; if (value > high) high = value; }
  const most = Math.max(-low, high);
  return low < 0 || signed ? [-most, most] : [0, most <= 1 ? 1 : most];
}

// The matrices that a page shows, from the outputs of the graphs; `parts` describes each of them.
export function inside(parts, found, words) {
  const arrays = {}, told = { attention: [], inside: [], matrices: [] };
  for (const { output, kind, name, ...about } of parts) {
    const one = first(found[output]);
    if (kind === "attention") {
      arrays[`attention/${name}`] = inBytes(one, 0, 1);
      const heads = one.dims[0];
      told.attention.push({ ...about, name, heads: Array.from({ length: heads }, (_, head) => (heads > 1 ? `${about.title}, head ${head + 1}` : about.title)), root: words[about.columns].length > MANY });
    } else if (kind === "matrices") {
      arrays[`matrix/${name}`] = inBytes(one, ...ends(one.data, true));
      told.matrices.push({ name, title: about.title, heads: Array.from({ length: one.dims[0] }, (_, head) => `${about.title}, head ${head + 1}`), shape: one.dims.slice(1) });
    } else if (kind === "alignment") arrays.alignment = inBytes(one, 0, 1);
    else {
      const [low, high] = ends(one.data);
      arrays[`inside/${name}`] = inBytes(one, low, high);
      told.inside.push({ ...about, name, units: one.dims[1], diverging: low < 0 });
    }
  }
  return { arrays, told };
}

// Of each step's distribution: the true token's probability and rank, the entropy, the best tokens.
function predictions(every, targets, read, tokenizer, count) {
  const found = { probability: [], rank: [], entropy: [], top: [], known: [] };
  every.forEach((logits, step) => {
    const logs = logSoftmax(logits), target = targets[step], known = target !== undefined && target !== null;
    let entropy = 0, rank = 1;
    for (let token = 0; token < logs.length; token++) {
      if (logs[token] > -700) entropy -= Math.exp(logs[token]) * logs[token];
      if (known && (logits[token] > logits[target] || (logits[token] === logits[target] && token < target))) rank++;
    }
    found.known.push(known);
    found.probability.push(known ? rounded(Math.exp(logs[target]), 5) : null);
    found.rank.push(known ? rank : 0);
    found.entropy.push(rounded(entropy, 4));
    const before = read.slice(0, step + 1).map((id) => tokenizer.tokens[id]);
    found.top.push(largest(logits, Math.min(count, logits.length)).filter((id) => logits[id] > -1e30).map((id) => ({
      word: labelAfter(before, tokenizer.tokens[id]), token: tokenizer.tokens[id], p: rounded(Math.exp(logs[id]), 4), ...(known && id === target ? { came: true } : {}),
    })));
  });
  return found;
}

function facts(about, words, found, told) {
  const known = found.probability.map((p) => p ?? Infinity), least = Math.min(...known);
  return {
    system: about.system, run: about.name, task: about.task, text: "", answer: "", notes: about.notes || [], words, spans: [],
    leftward: Object.fromEntries(Object.entries(words).map(([kind, some]) => [kind, leftward(some)])),
    opens: Number.isFinite(least) ? known.indexOf(least) : known.length - 1,
    order: null, backoff: null, alignment: false, gradients: [], beam: [], unfinished: "", ...found, ...told,
  };
}

export const tokensOf = (tokenizer, ids) => labels(ids.map((id) => (id === null || id === undefined ? "" : tokenizer.tokens[id])));

// A text through the model: what it reads, what follows, the logits of every step, and of `outputs` the parts of the graphs.
// A translator reads `written`; a classifier has one step.
export function through({ model, tokenizer, source, about }, text, written = null, outputs = []) {
  const language = about.task === "language model", read = language ? null : [...source.encode(text), 0];
  const of = (graph) => outputs.filter((one) => one.graph === graph).map((one) => one.output), [state, before] = model.begin(read, of("begin"));
  const whole = [0, ...(language ? tokenizer.encode(text) : written?.slice(0, -1) || [])], ids = language ? whole.slice(-Math.min(model.context || LONGEST, LONGEST)) : whole;
  if (state.logits) {
    const logits = state.logits.data.slice();
    for (const token of tokenizer.specials) logits[token] = -Infinity;
    return { read, ids, targets: written || [null], every: [logits], parts: before };
  }
  const { hidden, parts } = model.read([ids], state, of("read"));
  return { read, ids, whole, hidden, targets: language ? [...ids.slice(1), null] : written, every: model.predict(hidden, { every: true }), parts: { ...before, ...parts } };
}

// Everything that a page shows of a text; `branches`: those of a search.
export function trace(run, text, written = null, branches = []) {
  const { tokenizer, source, about } = run, { read, ids, whole, hidden, targets, every, parts } = through(run, text, written, about.parts), labelling = about.task === "classification";
  const words = { read: tokensOf(tokenizer, ids), written: tokensOf(tokenizer, targets), source: read ? tokensOf(source, read) : [] };
  const { arrays, told } = inside(about.parts, parts, words), made = { ...facts(about, words, predictions(every, targets, ids, tokenizer, labelling ? every[0].length - tokenizer.specials.length : TOP), told), text };
  if (about.system === "ngram") Object.assign(made, orders(run.model, hidden[0], targets, every));
  if (whole && ids.length < whole.length) made.notes = [...made.notes, `The text has ${whole.length} tokens; the last ${ids.length} are shown.`];
  if (labelling) made.answer = made.top[0][0]?.word || "";
  else if (read) Object.assign(made, { answer: tokenizer.decode(written.filter((id) => id !== 0)).trim(), alignment: Boolean(arrays.alignment), beam: tree(branches, tokenizer) });
  if (branches.some((one) => one.rank && !one.finished)) made.unfinished = "A sentence that ends in … was not finished when the search ended. It is ranked below the finished ones, regardless of its score.";
  return { facts: made, arrays, ids: labelling ? read : ids, written };
}

// Of an n-gram: which order gave the next word's probability (where none is known, the best word's), and its back-off weight.
function orders(model, columns, targets, every) {
  const order = [], backoff = [];
  columns.forEach((contexts, step) => {
    const { answered, backoff: weights } = model.explain(contexts), asked = targets[step] ?? largest(every[step], 1)[0];
    order.push(answered[asked]);
    backoff.push(rounded(Math.exp(weights.slice(answered[asked] - 1).reduce((sum, one) => sum + one, 0)), 3));
  });
  return { order, backoff };
}

function tree(branches, tokenizer) {
  const paths = [];
  return branches.map((one) => {
    const before = one.parent >= 0 ? paths[one.parent] : [], token = tokenizer.tokens[one.token];
    paths.push([...before, token]);
    const text = one.rank ? (legible(tokenizer.decode(one.tokens.filter((id) => id !== 0)).trim()) || "(empty)") + (one.finished ? "" : " …") : "";
    return {
      parent: one.parent, step: one.step, word: labelAfter(before, token), p: rounded(Math.exp(Math.min(0, one.log - (one.parent >= 0 ? branches[one.parent].log : 0))), 4), log: rounded(one.log, 5), kept: one.kept,
      ...(one.rank ? { rank: one.rank, score: one.score, text } : {}),
    };
  });
}
