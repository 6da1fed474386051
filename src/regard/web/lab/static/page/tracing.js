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

const tokensOf = (tokenizer, ids) => labels(ids.map((id) => (id === null || id === undefined ? "" : tokenizer.tokens[id])));

export function traceLanguage({ model, tokenizer, about }, text) {
  const whole = [0, ...tokenizer.encode(text)], most = Math.min(model.context || LONGEST, LONGEST), ids = whole.slice(-most);
  const { hidden, parts } = model.read([ids], model.begin()[0], about.parts.map((one) => one.output)), every = model.predict(hidden, { every: true });
  const targets = [...ids.slice(1), null], words = { read: tokensOf(tokenizer, ids), written: tokensOf(tokenizer, targets), source: [] };
  const { arrays, told } = inside(about.parts, parts, words), found = predictions(every, targets, ids, tokenizer, TOP);
  const made = { ...facts(about, words, found, told), text };
  if (about.system === "ngram") Object.assign(made, orders(model, hidden[0], targets, every));
  if (ids.length < whole.length) made.notes = [...made.notes, `The text has ${whole.length} tokens; the last ${ids.length} are shown.`];
  return { facts: made, arrays, ids };
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

export function traceTranslation({ model, tokenizer, source, about }, text, written, { branches = [] } = {}) {
  const read = [...source.encode(text), 0], encoder = about.parts.filter((one) => one.graph === "begin"), decoder = about.parts.filter((one) => one.graph === "read");
  const [state, before] = model.begin(read, encoder.map((one) => one.output)), ids = [0, ...written.slice(0, -1)];
  const { hidden, parts } = model.read([ids], state, decoder.map((one) => one.output)), every = model.predict(hidden, { every: true });
  const words = { read: tokensOf(tokenizer, ids), written: tokensOf(tokenizer, written), source: tokensOf(source, read) };
  const { arrays, told } = inside(about.parts, { ...before, ...parts }, words);
  const answer = tokenizer.decode(written.filter((id) => id !== 0)).trim();
  const made = { ...facts(about, words, predictions(every, written, ids, tokenizer, TOP), told), text, answer, alignment: Boolean(arrays.alignment), beam: tree(branches, tokenizer) };
  if (branches.some((one) => one.rank && !one.finished)) made.unfinished = "A sentence that ends in … was not finished when the search ended. It is ranked below the finished ones, regardless of its score.";
  return { facts: made, arrays, ids };
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

export function traceLabel({ model, tokenizer, source, about }, text) {
  const read = [...source.encode(text), 0], [found] = model.begin(read, about.parts.map((one) => one.output));
  const logits = found.logits.data.slice();
  for (const token of tokenizer.specials) logits[token] = -Infinity;
  const words = { read: tokensOf(tokenizer, [0]), written: [""], source: tokensOf(source, read) };
  const { arrays, told } = inside(about.parts, found, words), made = facts(about, words, predictions([logits], [null], [0], tokenizer, logits.length - tokenizer.specials.length), told);
  return { facts: { ...made, text, answer: made.top[0][0]?.word || "" }, arrays, ids: read };
}
