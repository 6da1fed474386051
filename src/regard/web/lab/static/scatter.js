// Words as points that move: SVG, one plane for all moments. Pointer and arrow keys choose a word; a sentence and a table.
//
//   const map = scatter({ label: "word vectors" });
//   map.draw({ words, places, moment, nearest });     places: an array [moments, words, 2], nearest [moments, words, n]

import { isStill } from "./address.js";
import { el, isolated, number, put, speak, svg, table } from "./dom.js";
import { saves } from "./saving.js";

const HEIGHT = 460, MARGIN = 26;

export function scatter({ label }) {
  const plot = svg("svg", { class: "plot scatter", role: "application", "aria-roledescription": "map of words", tabindex: "0", "aria-label": `${label}; use the arrow keys to step through the words` });
  const readout = el("p", { class: "readout" });
  const numbers = el("details", { class: "numbers" }, el("summary", {}, "As a table"));
  const node = el("figure", { class: "chart" }, plot, readout, numbers,
    saves(() => label, { drawing: () => plot, rows: () => [["word", "x", "y"], ...given.words.map((word, n) => [word, ...place(given.moment, n)])] }));
  let given = null, at = -1, shown = null, frame = 0, marks = [];

  const place = (moment, word) => [0, 1].map((axis) => given.places.data[(moment * given.words.length + word) * 2 + axis]);
  const near = (word) => { const count = given.nearest.shape[2]; return Array.from({ length: count }, (_, n) => given.nearest.data[(given.moment * given.words.length + word) * count + n]); };

  function bounds() {
    let most = 0;
    for (const value of given.places.data) most = Math.max(most, Math.abs(value));
    return most || 1;
  }

  function build() {
    marks = given.words.map((word, n) => svg("g", { class: "point", data: { n } }, svg("circle", { r: 2.4 }), svg("text", { x: 5, y: 4 }, word)));
    put(plot, svg("line", { class: "grid", x1: 0, x2: "100%", y1: HEIGHT / 2, y2: HEIGHT / 2 }), svg("line", { class: "grid", x1: "50%", x2: "50%", y1: 0, y2: HEIGHT }), marks);
  }

  // Labels that would cover another are left out, the more frequent word stays.
  function paint(places) {
    const width = Math.max(280, node.clientWidth || 600), most = bounds();
    plot.setAttribute("width", width);
    plot.setAttribute("height", HEIGHT);
    const x = (value) => width / 2 + (value / most) * (width / 2 - MARGIN - 20), y = (value) => HEIGHT / 2 - (value / most) * (HEIGHT / 2 - MARGIN);
    const taken = [], close = at >= 0 ? new Set([at, ...near(at)]) : null;
    const order = close ? [at, ...near(at), ...marks.keys()] : [...marks.keys()], done = new Set();
    for (const n of order) {
      if (done.has(n)) continue;
      done.add(n);
      const [left, top] = [x(places[n][0]), y(places[n][1])], wide = 7 * given.words[n].length + 8;
      const free = !taken.some((one) => Math.abs(one[1] - top) < 13 && left < one[0] + one[2] && one[0] < left + wide);
      if (free) taken.push([left, top, wide]);
      marks[n].setAttribute("transform", `translate(${left.toFixed(1)} ${top.toFixed(1)})`);
      marks[n].setAttribute("class", `point${free ? "" : " bare"}${close ? (n === at ? " at" : close.has(n) ? " near" : " far") : ""}`);
    }
    shown = places;
  }

  function move() {
    cancelAnimationFrame(frame);
    const to = given.words.map((_, n) => place(given.moment, n)), from = shown && shown.length === to.length ? shown : to, began = performance.now();
    const step = (now) => {
      const share = isStill() ? 1 : Math.min(1, (now - began) / 350), eased = 1 - (1 - share) ** 3;
      paint(to.map((point, n) => point.map((value, axis) => from[n][axis] + (value - from[n][axis]) * eased)));
      if (share < 1) frame = requestAnimationFrame(step);
    };
    step(began);
    tell();
  }

  function tell(aloud = false) {
    const said = at < 0 ? given.sentence : `Nearest to “${isolated(given.words[at])}”: ${near(at).map((n) => `“${isolated(given.words[n])}”`).join(", ")}.`;
    readout.textContent = said;
    if (aloud) speak(said);
  }

  function point(n, aloud = false) { at = n; if (given) { paint(shown); tell(aloud); } }

  plot.addEventListener("pointermove", (event) => { const found = event.target.closest?.(".point"); if (found) point(Number(found.dataset.n)); });
  plot.addEventListener("pointerleave", () => { if (document.activeElement !== plot) point(-1); });
  plot.addEventListener("blur", () => point(-1));
  plot.addEventListener("keydown", (event) => {
    if (!given) return;
    const count = given.words.length, moves = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: count - 1 };
    if (event.key in moves) point((moves[event.key] + count) % count, true);
    else if (event.key === "Escape") point(-1);
    else return;
    event.preventDefault();
  });
  numbers.addEventListener("toggle", () => {
    if (numbers.open && given) put(numbers, el("summary", {}, "As a table"), table(given.words.map((word, n) => ({ word, x: Number(number(place(given.moment, n)[0], 3)), y: Number(number(place(given.moment, n)[1], 3)), near: near(n).map((one) => isolated(given.words[one])).join(", ") })), { word: "word", x: "x", y: "y", near: "nearest by angle" }, { caption: label }));
  });

  const watch = new ResizeObserver(() => { if (given && shown) paint(shown); });
  watch.observe(node);
  return {
    node,
    draw(next) {
      const fresh = !given || given.words !== next.words;
      given = next;
      if (fresh) { at = -1; shown = null; build(); }
      numbers.open = false;
      move();
    },
    end() { watch.disconnect(); cancelAnimationFrame(frame); },
  };
}
