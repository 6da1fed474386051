// A model behind the lecture's own call: hidden, state = read(rows of tokens, state); logits = predict(hidden).
import { Graph } from "./graph.js";
import { tensor } from "./operators.js";

const whole = (rows) => tensor([rows.length, rows[0].length], Int32Array.from(rows.flat()));
const counts = (rows) => tensor([rows.length], Int32Array.from(rows, (row) => row.length));

// A network: the graphs begin, read and predict, and a state by the paths of its leaves.
export class Network {
  constructor({ graphs, state, context }, weights) {
    this.graphs = Object.fromEntries(Object.entries(graphs).map(([name, made]) => [name, new Graph(made, weights)]));
    this.context = context;
    this.first = state || [];
    this.watch = null; // sees every part, and may change it
    this.parts = Object.values(this.graphs).flatMap((graph) => graph.parts);
    if (this.graphs.read) this.leaves = Object.keys(graphs.read.inputs).filter((name) => name !== "tokens" && name !== "lengths");
  }

  // Before any token: zeros, or after a source; `parts` names what else is wanted.
  begin(source = null, parts = []) {
    if (source) {
      const given = { source: whole([source]), lengths: counts([source]) };
      const found = this.graphs.begin.run(given, [...(this.leaves || ["logits"]), ...parts], this.watch);
      return [found, found];
    }
    const kinds = { f: Float32Array, i: Int32Array, b: Uint8Array };
    return [Object.fromEntries(this.first.map(([name, dims, type]) => [name, tensor(dims, new kinds[type](dims.reduce((a, b) => a * b, 1)))])), {}];
  }

  read(rows, state, parts = []) {
    const changed = this.leaves.filter((name) => !name.startsWith("source."));
    const found = this.graphs.read.run({ tokens: whole(rows), lengths: counts(rows), ...state }, ["hidden", ...changed.map((name) => `new.${name}`), ...parts], this.watch);
    const next = { ...state };
    for (const name of changed) next[name] = found[`new.${name}`];
    return { hidden: found.hidden, state: next, parts: found };
  }

  // Logits of each row's last column, or of every column.
  predict(hidden, { every = false } = {}) {
    const [rows, columns, ...rest] = hidden.dims, size = rest.reduce((a, b) => a * b, 1);
    let asked = hidden;
    if (!every && columns > 1) {
      const data = new Float32Array(rows * size);
      for (let row = 0; row < rows; row++) data.set(hidden.data.subarray(((row + 1) * columns - 1) * size, (row + 1) * columns * size), row * size);
      asked = tensor([rows, 1, ...rest], data);
    }
    const { dims, data } = this.graphs.predict.run({ hidden: asked }, ["logits"]).logits, V = dims.at(-1);
    return Array.from({ length: data.length / V }, (_, at) => data.subarray(at * V, (at + 1) * V));
  }

  // The hypotheses of these rows; the source is shared.
  select(state, rows) {
    return Object.fromEntries(Object.entries(state).map(([name, one]) => {
      if (name.startsWith("source.") || !one.dims) return [name, one];
      const size = one.data.length / one.dims[0], data = new one.data.constructor(rows.length * size);
      rows.forEach((row, at) => data.set(one.data.subarray(row * size, (row + 1) * size), at * size));
      return [name, tensor([rows.length, ...one.dims.slice(1)], data)];
    }));
  }
}

// An n-gram: for each order the words after each context, in order, with their log-probabilities and back-off weights.
export class NGram {
  constructor({ vocabulary, levels }, weights) {
    this.vocabulary = vocabulary;
    this.levels = levels.map((level) => Object.fromEntries(Object.entries(level).map(([name, place]) => [name, weights[place]])));
    this.order = levels.length;
    this.context = null;
    this.watch = null;
    this.parts = levels.slice(1).map((_, at) => `order/${at + 2}`);
  }

  // The gram of `context` and `word` at level k (from 0), −1 if it was never seen.
  child(k, context, word) {
    const { begin, words } = this.levels[k];
    if (context < 0) return -1;
    let low = begin[context], high = begin[context + 1];
    while (low < high) { const middle = (low + high) >> 1; if (words[middle] < word) low = middle + 1; else high = middle; }
    return low < begin[context + 1] && words[low] === word ? low : -1;
  }

  begin() { return [[new Array(Math.max(0, this.order - 1)).fill(-1)], {}]; }

  read(rows, state) {
    const hidden = rows.map((row, at) => {
      let contexts = state[at];
      return row.map((token) => {
        contexts = contexts.map((_, k) => (k === 0 ? token : token === 0 ? -1 : this.child(k, contexts[k - 1], token)));
        return contexts;
      });
    });
    return { hidden, state: hidden.map((columns) => columns.at(-1)), parts: {} };
  }

  select(state, rows) { return rows.map((row) => state[row]); }

  predict(hidden, { every = false } = {}) {
    return hidden.flatMap((columns) => (every ? columns : columns.slice(-1)).map((contexts) => this.explain(contexts).logits));
  }

  // log P of every word, the order that each came from, and the back-off weight of each context.
  explain(contexts) {
    const logits = Float32Array.from(this.levels[0].logs.subarray(0, this.vocabulary)), answered = new Uint8Array(this.vocabulary).fill(1), backoff = [];
    contexts.forEach((context, at) => {
      const known = !this.watch?.({ name: `order/${at + 2}` }) && context >= 0;
      const weight = context < 0 ? 0 : this.levels[at].backoffs[context], { begin, words, logs } = this.levels[at + 1];
      backoff.push(weight);
      if (weight) for (let word = 0; word < logits.length; word++) logits[word] += weight;
      if (known) for (let gram = begin[context]; gram < begin[context + 1]; gram++) { logits[words[gram]] = logs[gram]; answered[words[gram]] = at + 2; }
    });
    for (let word = 0; word < logits.length; word++) if (logits[word] === -Infinity) logits[word] = -3.4e38;
    return { logits, answered, backoff };
  }
}
