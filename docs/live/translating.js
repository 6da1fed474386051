// Two small translators: the alignment of a sentence that is typed, and teacher forcing beside free running.
import { best, banned, logSoftmax, largest } from "../page/sampling.js";
import { RED, box, grid, label, picture, short } from "./drawing.js";
import { greedy, opened, refusal, strangers, words } from "./models.js";

export const alignment = {
  open: async (data) => ({ ...(await opened(data)), examples: data.examples }),
  controls: ({ examples }) => [{ name: "text", label: "English sentence", kind: "text", value: examples[0], choices: examples }],
  draw(run, { text }, wide) {
    const spaced = text.replace(/([.,?!])/g, " $1 ").trim(), unknown = strangers(run.source, spaced), given = run.source.encode(spaced);
    if (unknown.length || !given.length || given.length > 12) return { words: unknown.length ? refusal(unknown) : "Type a sentence of 1 to 12 words." };
    const ids = [...given, 0], written = greedy(run, spaced), { output } = run.about.parts.find((part) => part.kind === "alignment");
    const [state] = run.model.begin(ids), { dims, data } = run.model.read([[0, ...written.slice(0, -1)]], state, [output]).parts[output], S = dims.at(-1);
    const values = written.map((_, row) => Array.from(data.subarray(row * S, (row + 1) * S))), rows = words(run.tokenizer, written), columns = words(run.source, ids);
    const drawn = grid({ rows, columns, values, wide, top: 8 });
    const said = `The model writes “${rows.filter((word) => word !== "<eos>").join(" ")}”. ${rows.slice(0, -1).map((word, at) => `${word} looks at ${columns[values[at].indexOf(Math.max(...values[at]))]} (${short(Math.max(...values[at]), 2)})`).join(", ")}.`;
    return { picture: picture(wide, drawn.bottom + 6, said, drawn.parts), words: said };
  },
};

// The most probable word at each place, with the probability of the true one, after a prefix that `next` continues.
function steps({ model, source, about }, text, count, next) {
  let [state] = model.begin([...source.encode(text), 0]), last = 0;
  return Array.from({ length: count }, (_, at) => {
    const read = model.read([[last]], state), logits = banned(model.predict(read.hidden)[0], about.forbidden), chosen = best(logits);
    state = read.state;
    last = next(at, chosen, logits);
    return { chosen, logs: logSoftmax(logits), read: last };
  });
}

export const forcing = {
  open: async (data) => ({ ...(await opened(data)), pairs: data.pairs }),
  controls: ({ pairs }) => [
    { name: "pair", label: "sentence", kind: "choice", value: 0, choices: pairs.map(([source]) => source) },
    { name: "wrong", label: "position of a wrong word (0: none)", kind: "range", min: 0, max: 8, step: 1, value: 2, limit: ({ pair }) => pairs[pair][1].split(" ").length },
  ],
  draw(run, { pair, wrong }, wide) {
    const [text, reference] = run.pairs[pair], truth = [...run.tokenizer.encode(reference), 0];
    const at = Math.min(wrong, truth.length - 1) - 1;
    const second = (logits, place) => largest(logits, 3).find((id) => id !== truth[place] && id !== 0);
    const forced = steps(run, text, truth.length, (place) => truth[place]);
    const free = steps(run, text, truth.length, (place, chosen, logits) => (place === at ? second(logits, place) : chosen));
    const cell = (wide - 84) / truth.length, size = cell > 70 ? 13 : 10, parts = [], rows = [
      ["true", truth.map((id) => ({ id }))],
      ["forced", forced.map((one, place) => ({ id: one.chosen, p: Math.exp(one.logs[truth[place]]) }))],
      ["free", free.map((one, place) => ({ id: one.read, p: Math.exp(one.logs[truth[place]]) }))],
    ];
    rows.forEach(([name, cells], row) => {
      const y = 30 + 54 * row;
      parts.push(label(76, y + 4, name, { anchor: "end", bold: true, size: 13 }));
      cells.forEach(({ id, p }, place) => {
        const x = 84 + cell * place, right = id === truth[place];
        if (!right) parts.push(box(x, y - 16, cell - 3, 42, RED, 0.2));
        parts.push(label(x + cell / 2 - 1, y + 4, words(run.tokenizer, [id])[0], { size, bold: row === 0 }));
        if (p !== undefined) parts.push(label(x + cell / 2 - 1, y + 20, short(p, 2), { size: size - 1 }));
      });
    });
    const mean = (all) => all.reduce((sum, one, place) => sum + one.logs[truth[place]], 0) / truth.length;
    const said = `${text} Below each word is the probability of the true word. Given the true prefix, the loss is ${short(-mean(forced))} per word; given its own prefix${at >= 0 ? ` with a wrong word at position ${at + 1}` : ""}, it is ${short(-mean(free))}.`;
    return { picture: picture(wide, 172, said, parts), words: said };
  },
};
