// The model's own thread: the page sends {id, name, given}, and gets {id, progress}, {id, answer} or {id, problem}.
import { ablation, changed, lens } from "./causes.js";
import { Network, NGram } from "./models.js";
import { best, largest, logSoftmax, weights as shares, banned } from "./sampling.js";
import { beamSearch, write } from "./searching.js";
import { Tokenizer } from "./tokenizer.js";
import { trace } from "./tracing.js";
import { arraysOf, unpacked } from "./weights.js";
import { labelAfter } from "./words.js";

const SLICE = 30; // milliseconds of work between looks at what the page has sent, and between reports to it
let run = null, cancelled = 0, running = 0, began = 0;

// Lets messages in from time to time; throws where the work was cancelled.
async function pause() {
  if (performance.now() - began > SLICE) {
    await new Promise((done) => { const { port1, port2 } = new MessageChannel(); port1.onmessage = done; port2.postMessage(0); });
    began = performance.now();
  }
  if (cancelled === running) throw new Error("cancelled");
}

// A prompt that ends in a space: byte pairs keep a space with the word after it, so the next token must bring it.
function opening(text) {
  const { tokenizer, about } = run;
  if (tokenizer.kind !== "bpe" || !text.endsWith(" ") || !text.trim()) return [[0, ...tokenizer.encode(text)], []];
  const bare = [...tokenizer.tokens.keys()].filter((id) => !tokenizer.tokens[id].startsWith(" "));
  const able = tokenizer.tokens.some((token, id) => token.startsWith(" ") && !about.forbidden.includes(id));
  return able ? [[0, ...tokenizer.encode(text.slice(0, -1))], bare] : [[0, ...tokenizer.encode(text)], []];
}

// The best translation that begins with `prefix`, by beam search; a beam of 1 is greedy.
async function search(text, { beam, penalty = 1, prefix = "" }) {
  const { model, tokenizer, source, about } = run, read = [...source.encode(text), 0], begun = tokenizer.encode(prefix);
  if (about.longest && read.length > about.longest) throw new Error(`This model reads sentences of at most ${about.longest} tokens, but this one has ${read.length}.`);
  let most = 2 * (read.length - 1) + 10;
  if (model.context) most = Math.min(most, model.context);
  const { hidden, state } = model.read([[0, ...begun]], model.begin(read)[0]);
  const how = { width: beam, penalty: beam > 1 ? penalty : 0, most: Math.max(1, most - begun.length), forbidden: about.forbidden, pause };
  const { found, branches } = await beamSearch(model, model.predict(hidden)[0], state, how);
  return { written: [...begun, ...found[0].tokens], branches, found };
}

async function translated(text, how) {
  const { found } = await search(text, how);
  return { text: run.tokenizer.decode(found[0].tokens.filter((id) => id !== 0)).trim(), ids: found[0].tokens };
}

const CALLS = {
  async open({ made, letters }, progress) {
    const weights = arraysOf(made.table, await unpacked(letters, progress));
    const model = made.ngram ? new NGram(made.ngram, weights) : new Network(made.network, weights);
    const tokenizer = new Tokenizer(made.tokenizer), source = made.source ? new Tokenizer(made.source) : tokenizer;
    run = { model, tokenizer, source, about: made.about };
    return {};
  },
  async write({ text, ...how }, progress) {
    const [prompt, first] = opening(text), ids = prompt.slice(1), start = performance.now();
    let count = 0, reported = 0;
    const now = () => ({ text: run.tokenizer.decode(ids), count, seconds: (performance.now() - start) / 1000 });
    const onToken = (id) => { ids.push(id); count++; if (performance.now() - reported > SLICE) { progress(now()); reported = performance.now(); } };
    await write(run.model, prompt, { ...how, first, forbidden: run.about.forbidden, pause, onToken });
    return now();
  },
  trace({ text }) { return trace(run, text); },
  // The same with changed parts, on the words of the unchanged model; of a translator also what it would write now.
  async changed({ text, written = null, changes, other, ...how }) {
    return changed(run, [text, other], written, changes, async () => {
      const found = trace(run, text, written);
      if (run.about.task === "translation") found.facts.own = (await translated(text, how)).text;
      return found;
    });
  },
  lens({ text, written }) { return lens(run, text, written); },
  ablate({ text, written, kind }) { return ablation(run, text, written, kind, pause); },
  async translate({ text, ...how }) {
    const start = performance.now(), { written, branches } = await search(text, how), seconds = (performance.now() - start) / 1000;
    return { ...trace(run, text, written, how.beam > 1 ? branches : []), seconds };
  },
  // The text with another token after `step`, as the alternatives of a reading ask for it.
  edit({ ids, step, token, keep = false }) {
    const chosen = run.tokenizer.tokens.indexOf(token), rest = keep ? ids.slice(step + 2) : [];
    return run.tokenizer.decode([...ids.slice(1, step + 1), chosen, ...rest]);
  },
  // What may come after a text, by the model and as it would be drawn.
  following({ text, ...how }) {
    const [prompt, first] = opening(text), { model, tokenizer, about } = run, read = model.context ? prompt.slice(-model.context) : prompt;
    const [logits] = model.predict(model.read([read], model.begin()[0]).hidden), allowed = banned(logits, [...about.forbidden, ...first]), logs = logSoftmax(logits);
    const drawn = how.temperature ? shares(allowed, how) : Float64Array.from(allowed, (_, id) => Number(id === best(allowed))), sum = drawn.reduce((a, b) => a + b, 0);
    const before = prompt.map((id) => tokenizer.tokens[id]);
    return largest(allowed, 12).filter((id) => allowed[id] > -1e30).map((id) => ({ word: labelAfter(before, tokenizer.tokens[id]), token: tokenizer.tokens[id], p: Math.exp(logs[id]), drawn: drawn[id] / sum }));
  },
  take({ text, token }) { const [prompt] = opening(text); return run.tokenizer.decode([...prompt.slice(1), run.tokenizer.tokens.indexOf(token)]); },
  // For a check from outside: log P of what follows each token, and what a sentence becomes.
  logs({ ids, source = null }) {
    const { model } = run;
    if (!model.graphs?.read && source) return [[...logSoftmax(model.begin(source)[0].logits.data)]];
    const { hidden } = model.read([ids], model.begin(source)[0]);
    return model.predict(hidden, { every: true }).map((logits) => [...logSoftmax(logits)]);
  },
  translated({ text, ...how }) { return translated(text, how); },
  encode({ text, source = false }) { return (source ? run.source : run.tokenizer).encode(text); },
};

export async function answer({ id, name, given }, send) {
  running = id;
  began = performance.now();
  try { send({ id, answer: await CALLS[name](given, (progress) => send({ id, progress })) }); }
  catch (error) { send({ id, problem: error.message, cancelled: error.message === "cancelled" }); }
}

const waiting = [];
let busy = false;
async function take() {
  if (busy) return;
  busy = true;
  while (waiting.length) await answer(waiting.shift(), (message) => postMessage(message));
  busy = false;
}
globalThis.onmessage = ({ data }) => {
  if (data.cancel) { cancelled = data.cancel; const at = waiting.findIndex((one) => one.id === data.cancel); if (at >= 0) postMessage({ id: waiting.splice(at, 1)[0].id, problem: "cancelled", cancelled: true }); }
  else { waiting.push(data); take(); }
};
