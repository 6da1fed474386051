// Answers about causes: lens, ablation, patching, contrast and head scores, as insight/interventions gives them to the
// terminal. One component for the lab and a saved page.
//
//   const one = causeFigure(answer, { onChange: (changes) => … });     root.append(one.node); one.end();
//   const bar = causeBar({ change: (query) => … });                    bar.show(query): the question, by the page's address
//   const answer = causeAnswer({ ask: async (question) => …, onChange });    answer.ask(question), answer.clear()
//
// `onChange(["zero self/0[2]"])`, if it is given, makes a row of the ablation and a cell of the patching apply themselves.

import { lineChart } from "./charts.js";
import { el, labelled, number, put, segments, speak, table } from "./dom.js";
import { heatMap } from "./heat.js";
import { painted, percent, quoted, token } from "./reading.js";

const QUESTIONS = { lens: "Lens", ablate: "Remove each part", patch: "Patch from another text", why: "Why A, not B", head_scores: "What heads do" };
const PARTS = { ablate: ["", "heads", "attention", "feedforward", "layers", "gates", "words", "orders"], patch: ["layers", "heads"] };
const WAYS = ["zero", "mean", "resampled"];

const signed = (value, digits = 3) => (value === null || value === undefined ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`);
const range = (ends) => (ends ? `[${signed(ends[0])}, ${signed(ends[1])}]` : "–");
const caption = (...words) => el("p", { class: "caption" }, words);

// The question that an address asks; what it leaves open has the first choice. `step`: the one that was chosen, or null.
export function questionOf(query, step = null) {
  const value = (key) => query.get(key) || "", ask = QUESTIONS[value("ask")] ? value("ask") : "lens";
  return {
    ask, ...(step !== null && (ask === "patch" || ask === "why") ? { step } : {}), ...(PARTS[ask] ? { parts: PARTS[ask].includes(value("parts")) ? value("parts") : PARTS[ask][0] } : {}),
    ...(ask === "ablate" ? { with: WAYS.includes(value("with")) ? value("with") : WAYS[0] } : {}),
    ...(ask === "patch" ? { other: value("other") } : {}), ...(ask === "patch" || ask === "why" ? { why: value("why"), not: value("not") } : {}),
  };
}

export function causeBar({ change }) {
  const choice = (label, key, some, chosen) => el("label", {}, label, el("select", { data: { key }, onchange: (event) => change({ [key]: event.target.value }) }, some.map((one) => el("option", { value: one, selected: one === chosen }, one || "its main parts"))));
  const typed = (label, key, value, help = "") => labelled(label, el("input", { data: { key }, type: "text", dir: "auto", spellcheck: "false", autocomplete: "off", value, onchange: (event) => change({ [key]: event.target.value.trim() || null }) }), help);
  const asked = segments("question", QUESTIONS, "lens", (ask) => change({ ask: ask === "lens" ? null : ask, parts: null, with: null }));
  const rest = el("div", { class: "tools" }), node = el("div", { class: "cause-bar", hidden: true }, el("div", { class: "tools" }, asked), rest);
  let drawn = "";
  return {
    node,
    show(query) {
      const now = questionOf(query);
      asked.show(now.ask);
      if (now.ask === drawn) { // the same fields: what somebody types into stays where it is
        for (const one of rest.querySelectorAll("[data-key]")) if (one !== document.activeElement) one.value = now[one.dataset.key];
        return;
      }
      drawn = now.ask;
      put(rest,
        PARTS[now.ask] && choice(now.ask === "ablate" ? "Remove" : "Replace", "parts", PARTS[now.ask], now.parts),
        now.ask === "ablate" && choice("by", "with", WAYS, now.with),
        now.ask === "patch" && typed("Other text, of equal length", "other", now.other),
        now.why !== undefined && [typed(now.ask === "why" ? "Why this word" : "Compare (or leave empty)", "why", now.why), typed("and not this one", "not", now.not)]);
    },
  };
}

export function causeFigure(answer, { onChange = null } = {}) {
  return DRAW[answer.question](answer, onChange);
}

// The answer of one model; a question that it has answered already is not asked again.
export function causeAnswer({ ask, onChange }) {
  const node = el("div", { class: "answered", hidden: true }), problem = el("p", { class: "problem", role: "alert" });
  let figure = null, asked = null, turn = 0;
  const clear = () => { turn++; figure?.end(); figure = asked = null; problem.textContent = ""; put(node, problem); };
  clear();
  return {
    node,
    clear,
    get asked() { return figure && asked; },
    async ask(question) {
      if (JSON.stringify(question) === JSON.stringify(asked)) return;
      const mine = ++turn;
      asked = question;
      node.setAttribute("aria-busy", "true");
      try {
        const found = causeFigure(await ask(question), { onChange });
        if (mine !== turn) return;
        figure?.end();
        figure = found;
        problem.textContent = "";
        put(node, problem, figure.node);
      } catch (error) {
        if (mine !== turn || error.overtaken) return;
        figure?.end();
        figure = null;
        problem.textContent = error.message;
        put(node, problem);
      } finally { if (mine === turn) node.removeAttribute("aria-busy"); }
    },
  };
}

// -- lens: a grid of tokens ------------------------------------------------------------------------------------------------

function lensGrid({ words, layers, notes }) {
  const rows = [...layers].reverse(), readout = el("p", { class: "readout" });
  const told = (layer, at) => {
    const rank = layer.rank[at];
    return `${layer.name} after ${quoted(words[at])}: ${layer.top[at].map(([word, p]) => `${quoted(word)} ${percent(p)}`).join(", ")}. `
      + (rank === null ? "" : `The word that followed has ${percent(layer.probability[at])}, rank ${rank}. `) + `KL to the prediction: ${number(layer.divergence[at], 3)} nats.`;
  };
  const cells = rows.map((layer) => words.map((_, at) => {
    const [word, p] = layer.top[at][0];
    return el("td", { tabindex: "-1", role: "gridcell", class: layer.rank[at] === 1 ? "hit" : null, style: painted(p), "aria-label": told(layer, at), title: layer.name }, token(word));
  }));
  const show = (row, at) => { readout.textContent = told(rows[row], at); };
  const grid = el("table", { class: "lens", role: "grid", "aria-label": "What each layer would predict" },
    el("thead", {}, el("tr", { role: "row" }, el("td"), words.map((word) => el("th", { scope: "col", dir: "auto" }, token(word))))),
    el("tbody", {}, rows.map((layer, row) => el("tr", { role: "row" }, el("th", { scope: "row" }, layer.name), cells[row]))));
  let at = [0, words.length - 1];
  const find = (target) => { const cell = target.closest?.("td[tabindex]"); return cell ? [cell.closest("tr").sectionRowIndex, cell.cellIndex - 1] : null; };
  const go = (row, column) => { cells[at[0]][at[1]].tabIndex = -1; at = [row, column]; cells[row][column].tabIndex = 0; cells[row][column].focus(); };
  grid.addEventListener("pointerover", (event) => { const here = find(event.target); if (here) show(...here); });
  grid.addEventListener("focusin", (event) => { const here = find(event.target); if (here) show(...here); });
  grid.addEventListener("click", (event) => { const here = find(event.target); if (here) go(...here); });
  grid.addEventListener("keydown", (event) => {
    const here = find(event.target);
    if (!here) return;
    const [row, column] = here, last = [rows.length - 1, words.length - 1];
    const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1], Home: [row, 0], End: [row, last[1]], PageUp: [0, column], PageDown: [last[0], column] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(...moves[event.key].map((one, axis) => Math.max(0, Math.min(last[axis], one))));
    speak(readout.textContent);
  });
  cells[at[0]][at[1]].tabIndex = 0;
  show(...at);
  const node = el("section", { class: "cause" }, el("h3", {}, "What each layer would predict"), el("div", { class: "scroll" }, grid), readout,
    caption("Each layer's best next word, read through the model's own output; the darker, the more probable. A frame marks the word that really followed."), notes.map((note) => caption(note)));
  return { node, end() {} };
}

// -- ablation: a table with bars, beside the control ---------------------------------------------------------------------

function ablationTable({ kind, way, texts, effects }, onChange) {
  const most = Math.max(...effects.flatMap((one) => [Math.abs(one.effect), Math.abs(one.control ?? 0)])) || 1;
  const bar = (value, name) => (value === null ? null : el("i", { class: `${name} ${value < 0 ? "less" : "more"}`, style: { width: `${(50 * Math.abs(value)) / most}%` } }));
  const rows = effects.map((one) => {
    const place = one.name.split(" ")[0];
    return el("tr", {}, el("th", { scope: "row" }, onChange ? el("button", { type: "button", title: `Remove ${one.name}, and see before and after`, onclick: () => onChange([`zero ${place}`]) }, one.name) : one.name),
      el("td", { class: "right" }, signed(one.effect)), el("td", {}, el("span", { class: "effect", "aria-hidden": "true" }, bar(one.control, "random"), bar(one.effect, "own"))),
      el("td", { class: "right" }, signed(one.control)), texts > 1 && [el("td", {}, range(one.interval)), el("td", {}, range(one.control_interval))]);
  });
  const heads = ["removed", "Δ log P", "", "random", ...(texts > 1 ? ["95 %", "95 % of random"] : [])];
  return { node: el("section", { class: "cause" }, el("h3", {}, `How log P of the text changes without each part (${kind})`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "effects" }, el("table", { class: "effects" }, el("thead", {}, el("tr", {}, heads.map((word, at) => (word ? el("th", { scope: "col", class: at === 1 || at === 3 ? "right" : null }, word) : el("td"))))), el("tbody", {}, rows))),
    caption(`Mean change of log P per word${texts > 1 ? ` over ${texts} texts` : ""}; removed values become ${way}. Pale: an equal number of random components.`, onChange ? " Choose a part to remove it and see before and after." : "")), end() {} };
}

// -- patching ----------------------------------------------------------------------------------------------------------------

function patchMap({ rows, columns, returned, step, answers, first, second }, onChange) {
  const [a, b] = answers, values = Float32Array.from(returned.flat());
  const places = (row, column) => (rows[row].endsWith(" state") ? ["hidden", "cell"].slice(0, 2).map((part) => `${rows[row].slice(0, -6)}/${part}@${column}`) : [`${rows[row]}@${column}`]);
  const map = heatMap({ label: "share of the difference that comes back", onPick: (row, column) => onChange?.(places(row, column).map((one) => `swap ${one}`)) });
  map.draw({
    rows, columns, array: { data: values, shape: [rows.length, columns.length], low: -1, high: 1 }, low: -1, high: 1, diverging: true, unit: "share of the difference that comes back", tall: 22, finest: 14,
    sentence: "A row for each part, a column for each word.", describe: (row, column, value) => `${rows[row]} at ${quoted(columns[column])}, taken from the other text, brings back ${value.toFixed(2)} of the difference`,
  });
  return { node: el("section", { class: "cause" }, el("h3", {}, `Which part carries log P(${a.trim()}) − log P(${b.trim()}) after ${quoted(columns[step] ?? "")}`), map.node,
    caption(`This text ${signed(first)}, the other ${signed(second)}. 0: like this text, 1: like the other.`, onChange ? " Choose a cell (a click, or Enter) to swap that part and see before and after." : "")), end: map.end };
}

// -- contrast ----------------------------------------------------------------------------------------------------------------

function contrastFigure({ words, answers, step, difference, methods, completeness_error: error, curves }) {
  const [a, b] = answers.map((word) => word.trim()), names = Object.keys(methods), chart = lineChart({ label: "faithfulness", height: 240 });
  const most = Object.fromEntries(names.map((name) => [name, Math.max(...methods[name].map(Math.abs)) || 1]));
  const order = Object.keys(curves).map((name) => [name, curves[name].reduce((sum, one) => sum + one, 0) / curves[name].length]).sort((one, other) => one[1] - other[1]);
  const shaded = (name, value) => el("td", { class: "right", style: { background: `color-mix(in srgb, var(${value < 0 ? "--mark" : "--accent"}) ${Math.round((28 * Math.abs(value)) / most[name])}%, transparent)` } }, signed(value));
  chart.draw({
    series: order.map(([name], at) => ({ name, colour: at, x: Float32Array.from(curves[name].keys()), y: Float32Array.from(curves[name]), points: true })),
    x: { label: "deleted words", format: "number" }, y: { label: `log P(${a}) − log P(${b})` }, sentence: "The faster a line falls, the more faithful the method.",
  });
  return { node: el("section", { class: "cause" }, el("h3", {}, `log P(${a}) − log P(${b}) = ${signed(difference)} at step ${step}`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "contributions" }, el("table", {}, el("thead", {}, el("tr", {}, ["word", ...names].map((name, at) => el("th", { scope: "col", class: at ? "right" : null }, name)))),
      el("tbody", {}, words.map((word, at) => el("tr", {}, el("th", { scope: "row" }, token(word)), names.map((name) => shaded(name, methods[name][at]))))))),
    caption(`Positive: towards ${quoted(a)}. Completeness error of the integrated gradients: ${number(error, 2)}.`),
    el("h3", { class: "below" }, "How faithful each method is here"), chart.node,
    caption(`Words are deleted in the order of each method. Mean of each curve, lower is more faithful: ${order.map(([name, mean]) => `${name} ${signed(mean)}`).join(", ")}.`)), end: chart.end };
}

function headTable({ heads, chance }) {
  const columns = { name: "head", previous: "previous word", positional: "one distance", distance: "that distance", duplicate: "the same word", induction: "after the same word", ...(chance.syntactic === null ? {} : { syntactic: "verb to subject" }) };
  return { node: el("section", { class: "cause" }, el("h3", {}, "What each head attends to"), table([...heads, chance], columns, { caption: "shares of attention", cell: (row, key) => (typeof row[key] === "number" && key !== "distance" ? Number(row[key].toFixed(3)) : row[key]) }),
    caption("Shares of a head's attention; chance is uniform attention. The scores for the same word and the word after it are measured on random words read twice. ", chance.syntactic === null ? "Verb to subject is not available for this model, which does not read the phrasebook's English." : "Verb to subject is measured on sentences of the phrasebook.")), end() {} };
}

const DRAW = { lens: lensGrid, ablate: ablationTable, patch: patchMap, why: contrastFigure, head_scores: headTable };
