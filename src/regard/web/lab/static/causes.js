// Answers about causes: lens, ablation, patching, contrast and head scores, as insight/interventions gives them to the
// terminal. One component for the lab and a saved page.
//
//   const one = causeFigure(answer, { onChange: (changes) => … });     root.append(one.node); one.end();
//   const bar = causeBar({ change: (query) => … });                    bar.show(query): the question, by the page's address
//   const answer = causeAnswer({ ask: async (question) => …, onChange });    answer.ask(question), answer.clear()
//
// `onChange(["zero self/0[2]"])`, if it is given, makes a row of the ablation and a cell of the patching apply themselves.

import { lineChart } from "./charts.js";
import { el, labelled, number, put, segments, table } from "./dom.js";
import { ablationTable, caption, lensGrid, signed } from "./effects.js";
import { heatMap } from "./heat.js";
import { quoted, token } from "./reading.js";

const QUESTIONS = { lens: "Lens", ablate: "Remove each part", patch: "Patch from another text", why: "Why A, not B", head_scores: "Head roles" };
const PARTS = { ablate: ["", "heads", "attention", "feedforward", "layers", "gates", "words", "orders"], patch: ["layers", "heads"] };
const WAYS = ["zero", "mean", "resampled"];

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
  const choice = (label, key, some, chosen) => el("label", {}, label, el("select", { data: { key }, onchange: (event) => change({ [key]: event.target.value }) }, some.map((one) => el("option", { value: one, selected: one === chosen }, one || "main parts"))));
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
        now.why !== undefined && [typed(now.ask === "why" ? "Why this word" : "Word to compare (optional)", "why", now.why), typed("rather than", "not", now.not)]);
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

// -- patching ----------------------------------------------------------------------------------------------------------------

function patchMap({ rows, columns, returned, step, answers, first, second }, onChange) {
  const [a, b] = answers, values = Float32Array.from(returned.flat());
  const places = (row, column) => (rows[row].endsWith(" state") ? ["hidden", "cell"].slice(0, 2).map((part) => `${rows[row].slice(0, -6)}/${part}@${column}`) : [`${rows[row]}@${column}`]);
  const map = heatMap({ label: "share of the difference restored", onPick: (row, column) => onChange?.(places(row, column).map((one) => `swap ${one}`)) });
  map.draw({
    rows, columns, array: { data: values, shape: [rows.length, columns.length], low: -1, high: 1 }, low: -1, high: 1, diverging: true, unit: "share of the difference restored", tall: 22, finest: 14,
    sentence: "One row per part, one column per word.", describe: (row, column, value) => `${rows[row]} at ${quoted(columns[column])}, taken from the other text, restores ${value.toFixed(2)} of the difference`,
  });
  return { node: el("section", { class: "cause" }, el("h3", {}, `Which part carries log P(${a.trim()}) − log P(${b.trim()}) after ${quoted(columns[step] ?? "")}`), map.node,
    caption(`This text ${signed(first)}, the other ${signed(second)}. 0 = like this text, 1 = like the other.`, onChange ? " Click a cell, or press Enter on it, to swap that part and compare before and after." : "")), end: map.end };
}

// -- contrast ----------------------------------------------------------------------------------------------------------------

function contrastFigure({ words, answers, step, difference, methods, completeness_error: error, curves }) {
  const [a, b] = answers.map((word) => word.trim()), names = Object.keys(methods), chart = lineChart({ label: "faithfulness", height: 240 });
  const most = Object.fromEntries(names.map((name) => [name, Math.max(...methods[name].map(Math.abs)) || 1]));
  const order = Object.keys(curves).map((name) => [name, curves[name].reduce((sum, one) => sum + one, 0) / curves[name].length]).sort((one, other) => one[1] - other[1]);
  const shaded = (name, value) => el("td", { class: "right", style: { background: `color-mix(in srgb, var(${value < 0 ? "--mark" : "--accent"}) ${Math.round((28 * Math.abs(value)) / most[name])}%, transparent)` } }, signed(value));
  chart.draw({
    series: order.map(([name], at) => ({ name, colour: at, x: Float32Array.from(curves[name].keys()), y: Float32Array.from(curves[name]), points: true })),
    x: { label: "deleted words", format: "number" }, y: { label: `log P(${a}) − log P(${b})` }, sentence: "The faster the line falls, the more faithful the method.",
  });
  return { node: el("section", { class: "cause" }, el("h3", {}, `log P(${a}) − log P(${b}) = ${signed(difference)} at step ${step}`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "contributions" }, el("table", {}, el("thead", {}, el("tr", {}, ["word", ...names].map((name, at) => el("th", { scope: "col", class: at ? "right" : null }, name)))),
      el("tbody", {}, words.map((word, at) => el("tr", {}, el("th", { scope: "row" }, token(word)), names.map((name) => shaded(name, methods[name][at]))))))),
    caption(`Positive values favor ${quoted(a)}. Completeness error of the integrated gradients: ${number(error, 2)}.`),
    el("h3", { class: "below" }, "How faithful each method is here"), chart.node,
    caption(`Each method deletes words in its own order of importance. Mean of each curve (lower is more faithful): ${order.map(([name, mean]) => `${name} ${signed(mean)}`).join(", ")}.`)), end: chart.end };
}

function headTable({ heads, chance }) {
  const columns = { name: "head", previous: "previous word", positional: "fixed distance", distance: "distance", duplicate: "the same word", induction: "after the same word", ...(chance.syntactic === null ? {} : { syntactic: "verb to subject" }) };
  return { node: el("section", { class: "cause" }, el("h3", {}, "What each head attends to"), table([...heads, chance], columns, { caption: "shares of attention", cell: (row, key) => (typeof row[key] === "number" && key !== "distance" ? Number(row[key].toFixed(3)) : row[key]) }),
    caption("Shares of each head's attention; chance means uniform attention. The scores for “the same word” and “after the same word” are measured on random words read twice. ", chance.syntactic === null ? "“Verb to subject” is not available, because this model's vocabulary lacks the phrasebook's English words." : "“Verb to subject” is measured on sentences from the phrasebook.")), end() {} };
}

const DRAW = { lens: lensGrid, ablate: ablationTable, patch: patchMap, why: contrastFigure, head_scores: headTable };
