// How much of a change of the state reaches a later state: Jacobians of an RNN and of an LSTM, multiplied over the steps.
import { BLUE, RED, box, chart, label, picture, short } from "./drawing.js";
import { refusal } from "./models.js";

const times = (matrix, vector) => matrix.map((row) => row.reduce((sum, one, at) => sum + one * vector[at], 0));
const sigmoid = (value) => 1 / (1 + Math.exp(-value));

// [the next state, a function M ↦ M · ∂next/∂state], for M with a row for each component that is asked about.
export function elman({ w, u, b }, word, { hidden }) {
  const wx = times(w, word), uh = times(u, hidden), next = b.map((bias, at) => Math.tanh(wx[at] + uh[at] + bias)), slope = next.map((h) => 1 - h * h);
  const back = (M) => M.map((row) => hidden.map((_, from) => row.reduce((sum, one, at) => sum + one * slope[at] * u[at][from], 0)));
  return [{ hidden: next }, back];
}

export function lstm({ w, u, b }, word, { hidden, cell }) {
  const H = hidden.length, wx = times(w, word), uh = times(u, hidden), sums = b.map((bias, at) => wx[at] + uh[at] + bias), gate = (k, f) => sums.slice(k * H, (k + 1) * H).map(f);
  const i = gate(0, sigmoid), f = gate(1, sigmoid), g = gate(2, Math.tanh), o = gate(3, sigmoid);
  const next = f.map((one, at) => one * cell[at] + i[at] * g[at]), lit = next.map(Math.tanh);
  const back = (M) => M.map((row) => { // the first H of a row belong to h, the others to c
    const perCell = next.map((_, at) => row[H + at] + row[at] * o[at] * (1 - lit[at] ** 2)), out = new Array(2 * H).fill(0);
    for (let at = 0; at < H; at++) {
      const slopes = [perCell[at] * g[at] * i[at] * (1 - i[at]), perCell[at] * cell[at] * f[at] * (1 - f[at]), perCell[at] * i[at] * (1 - g[at] ** 2), row[at] * lit[at] * o[at] * (1 - o[at])];
      slopes.forEach((slope, k) => { const weights = u[k * H + at]; for (let from = 0; from < H; from++) out[from] += slope * weights[from]; });
      out[H + at] = perCell[at] * f[at];
    }
    return out;
  });
  return [{ hidden: o.map((one, at) => one * lit[at]), cell: next }, back];
}

// ‖∂h_T/∂state_{T−k}‖ / √H for k = 0, 1, … (1 if every component passed unchanged), and P of each word after the text.
export function reach(net, step, ids) {
  const H = net.u[0].length, zero = new Array(H).fill(0), backs = [], memory = step === lstm ? 2 * H : H;
  let state = { hidden: zero, cell: zero }, back;
  for (const id of ids) { [state, back] = step(net, net.table[id], state); backs.push(back); }
  let M = zero.map((_, row) => Array.from({ length: memory }, (_, at) => Number(at === row)));
  const sizes = [1];
  for (const one of backs.reverse()) { M = one(M); sizes.push(Math.sqrt(M.flat().reduce((sum, value) => sum + value * value, 0) / H)); }
  const raw = times(net.table, state.hidden).map((value, at) => Math.exp(value + net.bias[at])), sum = raw.reduce((a, b) => a + b, 0);
  return { sizes, chances: raw.map((value) => value / sum) };
}

// The LSTM with a number added to the bias of its forget gate.
const opener = (net, more) => ({ ...net, b: net.b.map((bias, at) => (Math.floor((4 * at) / net.b.length) === 1 ? bias + more : bias)) });
const MOST = 32;
const split = (text) => text.trim().split(/\s+/).filter(Boolean).slice(0, MOST);

export const gradient = {
  open: ({ words, nets, example }) => ({ nets, words, example, numbers: new Map(words.map((word, at) => [word, at])) }),
  controls: ({ example }) => [
    { name: "text", label: "sentence whose last word is predicted", kind: "text", value: example, choices: [example, "Mei gave water to Jack so Jack thanked Mei", "Omar gave water to Anna in the garden so Anna thanked Omar"] },
    { name: "back", label: "steps back", kind: "range", min: 1, max: 20, step: 1, value: 16, limit: ({ text }) => Math.max(1, split(text).length - 2) },
    { name: "more", label: "number added to the bias of the forget gate", kind: "range", min: -2, max: 6, step: 0.5, value: 0 },
  ],
  draw({ nets, numbers }, { text, back, more }, wide) {
    const all = split(text), unknown = all.filter((word) => !numbers.has(word)), last = all.length - 2;
    if (unknown.length || last < 1) return { words: unknown.length ? refusal(unknown) : "Type at least three words." };
    const ids = all.slice(0, -1).map((word) => numbers.get(word)), asked = numbers.get(all.at(-1)), at = Math.min(back, last), from = last - at;
    const found = [["LSTM", BLUE, reach(opener(nets.lstm, more), lstm, ids)], ["RNN", RED, reach(nets.rnn, elman, ids)]], parts = [];
    let x = 8, y = 20;
    all.forEach((word, place) => {
      const width = 8.2 * word.length + 12, chosen = place === from || place === last;
      if (x + width > wide) { x = 8; y += 26; }
      if (chosen) parts.push(box(x, y - 16, width, 22, place === from ? RED : BLUE, 0.25));
      parts.push(label(x + width / 2, y, word, { bold: chosen }));
      x += width;
    });
    const inside = ({ sizes }) => sizes.slice(1, last + 1), sizes = found.flatMap(([, , one]) => inside(one)), low = Math.max(-9, Math.floor(Math.log10(Math.min(...sizes)))), high = Math.max(1, Math.ceil(Math.log10(Math.max(...sizes))));
    const lines = found.map(([name, color, one]) => ({ name, color, points: inside(one).map((size, k) => [k + 1, size]) }));
    const drawn = chart({ lines, wide, tall: 250, x: "steps back", y: "size of the gradient", log: true, low, high, at });
    const said = `From “${all[last]}” ${at} step${at > 1 ? "s" : ""} back to “${all[from]}”: ${found.map(([name, , one]) => `the ${name} has ${short(one.sizes[at], 2)} of the gradient left and gives “${all.at(-1)}” the probability ${short(one.chances[asked], 2)}`).join("; ")}.`;
    return { picture: picture(wide, y + 20 + 250, said, [...parts, `<g transform="translate(0 ${y + 16})">${drawn.join("")}</g>`]), words: said };
  },
};
