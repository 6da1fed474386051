// The small models of the figures, in the interpreter of exported pages.
import { Network } from "../page/models.js";
import { best, banned } from "../page/sampling.js";
import { Tokenizer } from "../page/tokenizer.js";
import { arraysOf, unpacked } from "../page/weights.js";

export async function opened({ made, letters }) {
  const weights = arraysOf(made.table, await unpacked(letters)), tokenizer = new Tokenizer(made.tokenizer);
  return { model: new Network(made.network, weights), tokenizer, source: made.source ? new Tokenizer(made.source) : tokenizer, about: made.about };
}

export const words = (tokenizer, ids) => ids.map((id) => (id === 0 ? "<eos>" : tokenizer.tokens[id]));

// What a sentence of words has that the model does not know.
export const strangers = (tokenizer, text) => text.split(/\s+/).filter((word) => word && tokenizer.encode(word).includes(1));
export const refusal = (unknown) => `This small model does not know ${unknown.map((word) => `“${word}”`).join(", ")}.`;

// The target that the model writes for a source, by the most probable word each time.
export function greedy({ model, source, about }, text, most = 24) {
  let [state] = model.begin([...source.encode(text), 0]), last = 0;
  const written = [];
  while (written.length < most) {
    const read = model.read([[last]], state);
    state = read.state;
    last = best(banned(model.predict(read.hidden)[0], about.forbidden));
    written.push(last);
    if (last === 0) break;
  }
  return written;
}
