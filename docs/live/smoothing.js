// A bigram model, with absolute discounting: max(c − D, 0) / c(h), and the rest by a distribution over single words.
import { BLUE, RED, barRows, chart, label, picture, short } from "./drawing.js";

export function counted({ words, bigrams, test, example }) {
  const after = words.map(() => new Map()), times = new Float64Array(words.length), contexts = new Float64Array(words.length);
  for (const [first, second, count] of bigrams) { after[first].set(second, count); times[second] += count; contexts[second]++; }
  const share = (numbers) => { const sum = numbers.reduce((a, b) => a + b, 0); return numbers.map((one) => one / sum); };
  return { words, after, test, example, numbers: new Map(words.map((word, at) => [word, at])), lower: [share(times), share(contexts)], totals: after.map((found) => [...found.values()].reduce((a, b) => a + b, 0)) };
}

// P(word | first) with discount D; what the discounts set free goes to the lower distribution.
export function chance({ after, totals, lower }, first, word, discount, kind) {
  const found = after[first], total = totals[first], free = (discount * found.size) / total;
  return Math.max((found.get(word) ?? 0) - discount, 0) / total + free * lower[kind][word];
}

export function perplexity(model, discount, kind) {
  let sum = 0, count = 0;
  for (const line of model.test) [...line, 0].forEach((word, at) => { sum -= Math.log(chance(model, at ? line[at - 1] : 0, word, discount, kind)); count++; });
  return Math.exp(sum / count);
}

export const smoothing = {
  open: counted,
  controls: ({ example }) => [
    { name: "text", label: "previous word", kind: "text", value: example },
    { name: "discount", label: "discount D", kind: "range", min: 0, max: 1, step: 0.05, value: 0.75 },
    { name: "kind", label: "how the freed probability is shared", kind: "choice", value: 1, choices: ["by how often each word occurs", "by the number of different words before it (Kneser and Ney)"] },
  ],
  draw(model, { text, discount, kind }, wide) {
    const first = model.numbers.get(text.trim().toLowerCase());
    if (first === undefined || !model.totals[first]) return { words: `“${text}” is not in the text that was counted.` };
    const top = [...model.after[first]].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, 8).map(([word]) => word), unseen = [...model.lower[kind].keys()].filter((word) => !model.after[first].has(word)).sort((a, b) => model.lower[kind][b] - model.lower[kind][a] || a - b).slice(0, 3);
    const rows = [...top, ...unseen].map((word) => ({ name: model.words[word], bars: [[chance(model, first, word, discount, kind), model.after[first].has(word) ? BLUE : RED]] })), most = Math.max(...rows.map((row) => row.bars[0][0]));
    const places = Array.from({ length: 20 }, (_, at) => (at + 1) / 20), curve = (which) => places.map((D) => [D, perplexity(model, D, which)]), both = [curve(0), curve(1)], all = both.flat().map(([, value]) => value);
    const low = Math.floor(Math.min(...all) / 10) * 10, high = Math.ceil(Math.min(Math.max(...all), 3 * Math.min(...all)) / 10) * 10;
    const lines = both.map((points, which) => ({ name: ["how often", "how many words before"][which], color: [RED, BLUE][which], points: points.map(([D, value]) => [D, Math.min(value, high)]) }));
    const now = discount ? perplexity(model, discount, kind) : Infinity, free = (discount * model.after[first].size) / model.totals[first], height = 28 + 22 * rows.length;
    const drawn = chart({ lines, wide, tall: 220, x: "discount D", y: "perplexity, held out", low, high, at: discount || null });
    const said = `After “${model.words[first]}” the discounts free ${short(100 * free, 2)} % of the probability. ${discount ? `Perplexity of held-out lines: ${short(now)}.` : "Without a discount every unseen pair has probability 0, and the perplexity of held-out lines is infinite."}`;
    const names = [label(8, 16, `after “${model.words[first]}”: blue seen, red never seen`, { anchor: "start", size: 13 }), ...barRows(rows, { wide, top: 26, tall: 22, most })];
    return { picture: picture(wide, height + 224, said, [...names, `<g transform="translate(0 ${height})">${drawn.join("")}</g>`]), words: said };
  },
};
