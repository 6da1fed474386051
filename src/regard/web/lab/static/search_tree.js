// Beam search as a tree: a column for each step, the most probable beginning on top; pruned ones pale, a thick line to the
// best. `searchTree(branches, note)` gives an element; both are those of insight/views/as_json.py.
import { counted, el, isolated, number, svg, table } from "./dom.js";

const ACROSS = 132, DOWN = 22, MARGIN = 10, LONGEST = 10, LETTER = 7.1, PRUNED = 3;

const share = (p) => (p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p >= 0.0001 ? `${Number((100 * p).toPrecision(1))} %` : "<0.01 %");
const short = (word) => (word.length > LONGEST ? `${word.slice(0, LONGEST - 1)}…` : word);

// Kept branches and the best pruned ones of each step, with their places.
function drawn(branches) {
  const steps = new Map();
  branches.forEach((branch, number) => {
    if (!steps.has(branch.step)) steps.set(branch.step, []);
    steps.get(branch.step).push(number);
  });
  const places = new Map();
  for (const [step, numbers] of steps) {
    const order = (some) => some.sort((a, b) => branches[b].log - branches[a].log);
    const kept = order(numbers.filter((n) => branches[n].kept)), pruned = order(numbers.filter((n) => !branches[n].kept));
    [...kept, ...pruned.slice(0, PRUNED)].forEach((n, row) =>
      places.set(n, [MARGIN + ACROSS * (step - 1), MARGIN + DOWN * row + DOWN / 2]));
  }
  return places;
}

export function searchTree(branches, note = "") {
  const places = drawn(branches), winners = new Set();
  for (let n = branches.findIndex((one) => one.rank === 1); n >= 0; n = branches[n].parent) winners.add(n);
  const ended = branches.filter((one) => one.rank).sort((a, b) => a.rank - b.rank);
  const last = Math.max(...branches.map((one) => one.step));
  const width = ACROSS * last + 2 * MARGIN, height = Math.max(...[...places.values()].map(([, y]) => y)) + DOWN;
  const left = branches.length - places.size;
  const told = `${counted(branches.length, "prefix", "prefixes")} in ${counted(last, "step")}, ${counted(ended.length, "hypothesis", "hypotheses")} finished${ended.length ? `; the best has log-probability ${number(ended[0].log, 3)}` : ""}.`;
  const label = (one) => `${one.rank ? `#${one.rank} ` : ""}${isolated(short(one.word))}`;
  const edges = [...places].filter(([n]) => branches[n].parent >= 0 && places.has(branches[n].parent)).map(([n, [x, y]]) => {
    const [x0, y0] = places.get(branches[n].parent), parent = branches[branches[n].parent];
    const start = Math.min(x0 + LETTER * (label(parent).length + share(parent.p).length + 1) + 4, x - 20), stop = x - 4, bend = (start + stop) / 2;
    return svg("path", { d: `M${start} ${y0}C${bend} ${y0} ${bend} ${y} ${stop} ${y}`, class: winners.has(n) ? "edge best" : branches[n].kept ? "edge" : "edge pruned" });
  });
  const nodes = [...places].map(([n, [x, y]]) => {
    const one = branches[n], state = one.kept ? "kept" : "pruned";
    const said = `${isolated(one.word)}: log-probability of the prefix ${number(one.log, 4)}, ${state}${one.rank ? `, hypothesis ${one.rank}, score ${number(one.score, 4)}` : ""}`;
    return svg("text", { x, y: y + 4, class: winners.has(n) || one.rank ? `node ${state} best` : `node ${state}` },
      label(one), " ", svg("tspan", {}, share(one.p)), svg("title", {}, said));
  });
  return el("div", { class: "search" },
    table(ended.map((one) => ({ rank: one.rank, text: one.text, log: one.log, score: one.score })),
      { rank: "rank", text: "sentence", log: "log-probability", score: "score (divided by length)" }, { caption: "Beam search results, best first" }),
    note && el("p", { class: "caption" }, note),
    el("p", { class: "caption" }, "In the tree, each column is a step, with the most probable prefix on top. Next to each word is its probability given the words before it. Pale words were pruned."),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "search tree" },
      svg("svg", { class: "tree", role: "img", "aria-label": told, width, height, viewBox: `0 0 ${width} ${height}` }, edges, nodes)),
    el("p", { class: "caption" }, told, left ? ` ${left === 1 ? "One pruned prefix is" : `${left} pruned prefixes are`} not drawn.` : ""));
}
