// "Is there a B?" One B among As has the weight e^q / (e^q + number of As …): attention with keys A = (1, 0), B = (0, 1).
import { BLUE, RED, box, label, picture, short } from "./drawing.js";

export const anyB = {
  open: (data) => data,
  controls: ({ q }) => [
    { name: "text", label: "string of As and Bs", kind: "text", value: "AABA", clean: (text) => text.toUpperCase().replace(/[^AB]/g, "").slice(0, 24) || "A" },
    { name: "q", label: `q (learned in training: ${short(q)})`, kind: "range", min: 0, max: 12, step: 0.1, value: 1 },
  ],
  draw({ q: learned, a, b }, { text, q }, wide) {
    const letters = [...text], raw = letters.map((letter) => Math.exp(letter === "B" ? q : 0)), sum = raw.reduce((x, y) => x + y, 0);
    const weights = raw.map((value) => value / sum), share = weights.reduce((total, weight, at) => total + (letters[at] === "B" ? weight : 0), 0);
    const chance = 1 / (1 + Math.exp(-(a * share + b))), step = Math.min(72, (wide - 20) / letters.length), left = (wide - step * letters.length) / 2, base = 150;
    const parts = letters.flatMap((letter, at) => {
      const x = left + step * at, tall = 118 * weights[at], color = letter === "B" ? RED : BLUE;
      return [box(x + 3, base - tall, step - 6, tall, color, 0.85, short(weights[at])), label(x + step / 2, base + 20, letter, { bold: true, fill: color }), ...(step > 40 ? [label(x + step / 2, base - tall - 6, weights[at].toFixed(3), { size: 12 })] : [])];
    });
    const output = `(${(1 - share).toFixed(3)}, ${share.toFixed(3)})`;
    parts.push(label(wide / 2, base + 50, `output = ${output}`, { bold: true }));
    const said = `With q = ${short(q)} the Bs get ${short(100 * share)} % of the weight, so the output is ${output}. The output layer, which was trained with q = ${short(learned)}, then gives P(next is B) = ${short(chance)}.`;
    return { picture: picture(wide, base + 62, said, parts), words: said };
  },
};
