// Small language models: heads that look, a distribution that is sharpened and cut, and positions that resemble each other.
import { banned, choose, largest, logSoftmax, randomStream, weights } from "../page/sampling.js";
import { BLUE, RED, barRows, chart, grid, label, picture, short } from "./drawing.js";
import { opened, refusal, strangers, words } from "./models.js";

export const heads = {
  open: opened,
  controls: () => [
    { name: "text", label: "sentence", kind: "text", value: "Jack gave water to Jill so Jill thanked", choices: ["Jack gave water to Jill so Jill thanked", "Jill gave water to Jack so Jack thanked", "Mei gave books to Omar so"] },
    { name: "word", label: "number of the word that looks back", kind: "range", min: 1, max: 9, step: 1, value: 8, limit: ({ text }) => Math.min(12, text.split(/\s+/).filter(Boolean).length) },
  ],
  draw(run, { text, word }, wide) {
    const unknown = strangers(run.tokenizer, text), ids = [0, ...run.tokenizer.encode(text)].slice(0, 13), at = Math.min(word, ids.length - 1);
    if (unknown.length || ids.length < 2) return { words: unknown.length ? refusal(unknown) : "Type a sentence." };
    const looks = run.about.parts.filter((part) => part.kind === "attention"), { hidden, parts: found } = run.model.read([ids], run.model.begin()[0], looks.map((part) => part.output));
    const T = ids.length, columns = words(run.tokenizer, ids), rows = [], values = [];
    looks.forEach(({ output }, layer) => {
      const { dims: [, H], data } = found[output];
      for (let head = 0; head < H; head++) { rows.push(`${layer + 1}, head ${head + 1}`); values.push(columns.map((_, key) => (key > at ? null : data[(head * T + at) * T + key]))); }
    });
    const logs = logSoftmax(run.model.predict(hidden, { every: true })[at]), next = largest(logs, 3).map((id) => ({ name: words(run.tokenizer, [id])[0], p: Math.exp(logs[id]) }));
    const drawn = grid({ rows, columns, values, wide, top: 30, names: 84 }), said = `“${columns[at]}” looks back. After this word, the model expects ${next.map(({ name, p }) => `${name} (${short(p, 2)})`).join(", ")}.`;
    return { picture: picture(wide, drawn.bottom + 6, said, [label(8, 16, `layer, head ↓   “${columns[at]}” looks at →`, { anchor: "start", size: 13 }), ...drawn.parts]), words: said };
  },
};

export const temperature = {
  open: opened,
  controls: () => [
    { name: "text", label: "text so far", kind: "text", value: "The" },
    { name: "heat", label: "temperature", kind: "range", min: 0.1, max: 3, step: 0.1, value: 0.8 },
    { name: "top", label: "top-p", kind: "range", min: 0.05, max: 1, step: 0.05, value: 0.9 },
    { name: "seed", label: "random seed", kind: "range", min: 1, max: 40, step: 1, value: 1 },
  ],
  draw({ model, tokenizer, about }, { text, heat, top, seed }, wide) {
    const unknown = strangers(tokenizer, text);
    if (unknown.length) return { words: refusal(unknown) };
    const how = { temperature: heat, topP: top }, prompt = [0, ...tokenizer.encode(text)].slice(-40), allowed = (hidden) => banned(model.predict(hidden)[0], about.forbidden);
    let { hidden, state } = model.read([prompt], model.begin()[0]);
    const logits = allowed(hidden), plain = logSoftmax(logits).map(Math.exp), drawn = weights(logits, how), sum = drawn.reduce((a, b) => a + b, 0), kept = drawn.filter((one) => one > 0).length;
    const rows = largest(logits, 12).map((id) => ({ name: words(tokenizer, [id])[0], bars: [[plain[id], "#8C8C8C"], [drawn[id] / sum, BLUE]] })), most = Math.max(...rows.flatMap((row) => row.bars.map(([value]) => value)));
    const random = randomStream(seed), written = [];
    for (let step = 0; step < 20; step++) {
      const id = choose(allowed(hidden), how, random);
      if (id === 0) break;
      written.push(id);
      ({ hidden, state } = model.read([[id]], state));
    }
    const line = `${text} ${words(tokenizer, written).join(" ")}`.trim();
    const said = `${kept} of ${logits.length} words can be drawn. Drawn with seed ${seed}: “${line}”`;
    return { picture: picture(wide, 30 + 28 * rows.length, said, [label(8, 16, "gray: the model; blue: the distribution it samples from", { anchor: "start", size: 13 }), ...barRows(rows, { wide, top: 28, tall: 28, most })]), words: said };
  },
};

// The vector of a place: sines and cosines of the frequencies 10000^(−k/n).
export const sinusoid = (place, width) => Array.from({ length: width }, (_, at) => {
  const angle = place * 10000 ** (-Math.floor(at / 2) / (width / 2));
  return at % 2 ? Math.cos(angle) : Math.sin(angle);
});
const dot = (a, b) => a.reduce((sum, one, at) => sum + one * b[at], 0), cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));

export const positions = {
  open: ({ learned }) => ({ learned, waves: learned.map((row, place) => sinusoid(place, row.length)) }),
  controls: ({ learned }) => [{ name: "place", label: "position", kind: "range", min: 0, max: learned.length - 1, step: 1, value: 12 }],
  draw({ learned, waves }, { place }, wide) {
    const curve = (table) => table.map((row, other) => [other, cosine(table[place], row)]), sine = curve(waves), own = curve(learned);
    const lines = [{ name: "sine waves", color: BLUE, points: sine }, { name: "learned by a GPT", color: RED, points: own }];
    const near = (points) => short(points[Math.min(place + 1, points.length - 1)][1], 2), said = `Cosine of position ${place} with every other position. For the next position, it is ${near(sine)} with sine waves and ${near(own)} in the learned table.`;
    return { picture: picture(wide, 260, said, chart({ lines, wide, tall: 260, x: "position", y: "cosine", low: -1, high: 1, at: place })), words: said };
  },
};
