// What happened in one model on one text: its words with their probabilities, what it expected, every head, states and
// gates, gradients, and the search. One component for the lab, an offline file and a notebook.
//
//   const one = reading({ parts: async (names) => ({ name: array }), onStep, onEdit, more });
//   root.append(one.node); one.show(facts); one.section("attention"); one.end();
//
// `facts` and the names of parts are those of insight/views/as_json.py; `parts` may answer with some of those it was asked
// for, at least one, and is asked again for the rest. `onStep(step)` tells which word was chosen;
// `onEdit({step, token, keep})`, if it is given, makes the alternatives buttons; `more` has the sections
// gradients and work (reading_sections.js), where they are wanted. `onPlaces(places)`
// tells which parts of the model were clicked (["self/0[2]"], by the names of insight/interventions; `one.title(place)` is
// its name for a reader), with true if nobody clicked; `onLook(name)` which head or matrix is drawn, as `one.look(name)` takes.
// `blocks` is the function of flow.js, which draws the way through the model's blocks; without it there is no such section.

import { valueAt } from "./arrays.js";
import { counted, el, isolated, number, put, table } from "./dom.js";
import { heatMap, shadesOf } from "./heat.js";
import { searchTree } from "./search_tree.js";
import { sheet } from "./sheet.js";

export const SECTIONS = { expected: "Predictions", attention: "Attention", states: "States", gradients: "Gradients", search: "Search", work: "Arithmetic", flow: "Blocks" };

export const quoted = (word) => `“${isolated(word)}”`;
export const percent = (p) => (p === null || p === undefined ? "–" : p >= 0.0995 ? `${(100 * p).toFixed(0)}\u00a0%` : p >= 0.0001 ? `${Number((100 * p).toPrecision(2))}\u00a0%` : p > 0 ? "<0.01\u00a0%" : "0\u00a0%");

// The step of another trace that has read as much of the same text; null where there is none.
export function sameStep(facts, step, other) {
  const [mine, its] = [facts.words.read, other.words.read];
  if (mine.length === its.length && mine.every((word, at) => word === its[at])) return step;
  const end = facts.spans?.[step]?.[1];
  return end === undefined || !other.spans?.length ? null : Math.max(0, other.spans.findLastIndex((span) => span[1] <= end));
}

// A token, isolated: a script from right to left turns nothing around it.
export const token = (word) => el("bdi", {}, lettered(word));
function lettered(word) {
  return word.split(/(␣+)/).filter(Boolean).map((piece) => (piece.startsWith("␣") && piece !== word ? el("i", {}, piece) : piece));
}

export function painted(share) {
  const shades = shadesOf(false), place = 3 * Math.round(Math.max(0, Math.min(1, share)) * (shades.length / 3 - 1));
  const [red, green, blue] = shades.slice(place, place + 3), light = [red, green, blue].map((part) => (part / 255) ** 2.2);
  return { background: `rgb(${red},${green},${blue})`, color: 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.18 ? "black" : "white" };
}

export function reading({ parts, onStep = () => {}, onEdit = null, onPlaces = () => {}, onLook = () => {}, more = {}, blocks = null }) {
  const words = { source: strip("source"), target: strip("target") };
  const said = el("p", { class: "said", "aria-live": "polite" });
  const bodies = Object.fromEntries(Object.keys(SECTIONS).map((name) => [name, el("section", { class: `part ${name}` })]));
  const steps = el("details", { class: "numbers" }, el("summary", {}, "All steps as a table"));
  const node = el("div", { class: "reading", hidden: true }, words.source.node, words.target.node, said, Object.values(bodies), steps);
  const maps = {
    head: heatMap({ label: "attention of one head at every step", onPoint: pointed("head"), onPick: picked("head") }),
    state: heatMap({ label: "values of the units over time", onPoint: pointed("state"), onPick: picked("state") }),
    slope: heatMap({ label: "gradients through time", onPoint: pointed("slope"), onPick: picked("slope") }),
    memory: heatMap({ label: "state of one head after the last word" }),
    align: heatMap({ label: "source words that each word attended to", onPoint: pointed("align"), onPick: picked("align") }),
  };
  const sheets = {
    heads: sheet({ label: "attention of all heads", onPick: (map, place) => look(map, headAt(map, place)) }),
    memories: sheet({ label: "states of all heads", onPick: (map, place) => drawMemory(map, place) }),
  };
  const drawnIn = {}; // which map is drawn with what
  let unlearned = ""; // why the alignment is not shown, if it is not
  let facts = null, step = 0, source = null, hover = null, shown = "expected", turn = 0;
  let head = null, held = 0, wish = "", arrays = new Map(), change = null, wanted = [];

  // What the sections of `more` share with this one.
  const own = { slope: 0, layer: "", head: 0, turn: 0, bodies, drawnIn, choice, load: (name) => load(name), map: maps.slope, strongest: (...given) => strongest(...given), follow, shade, get facts() { return facts; }, get step() { return step; }, get source() { return source; } };

  // Matrices that are asked for at the same time come in one answer.
  const load = (name) => {
    if (!arrays.has(name)) {
      if (!wanted.length) queueMicrotask(ask);
      arrays.set(name, new Promise((found, failed) => wanted.push({ name, found, failed })));
    }
    return arrays.get(name);
  };
  async function ask() {
    let left = wanted;
    wanted = [];
    try {
      while (left.length) {
        const some = await parts(left.map((one) => one.name)), rest = left.filter((one) => !some[one.name]);
        if (rest.length === left.length) throw new Error("This part of the trace is missing.");
        for (const one of left) if (some[one.name]) one.found(some[one.name]);
        left = rest;
      }
    } catch (error) { for (const one of left) one.failed(error); }
  }
  const translates = () => facts.task === "translation";
  const framed = () => (shown === "none" ? facts.words.read.length - 1 : step); // where nothing is shown of a step, what follows all of them is
  const seen = (section) => shown === "all" || shown === section;

  // -- words ---------------------------------------------------------------------------------------------------------------

  function strip(side) {
    const name = el("span", { class: "side" });
    const list = el("div", { class: "words", role: "group" });
    const box = el("div", { class: "strip" }, name, list);
    list.addEventListener("click", (event) => { const at = placeOf(event.target); if (at >= 0) choose(side, at); });
    list.addEventListener("pointerover", (event) => { const at = placeOf(event.target); if (at >= 0) { hover = [side, at]; shade(); } });
    list.addEventListener("pointerleave", () => { hover = null; shade(); });
    list.addEventListener("keydown", (event) => {
      const at = placeOf(event.target), moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: list.children.length - 1 };
      if (at < 0 || !(event.key in moves)) return;
      event.preventDefault();
      const to = Math.max(0, Math.min(list.children.length - 1, moves[event.key]));
      list.children[to].focus();
      choose(side, to);
    });
    const placeOf = (target) => [...list.children].indexOf(target.closest?.("button"));
    return { node: box, list, name };
  }

  // The words of a side, and of each its probability: a text's first word is given, a translation's is written.
  function chips(side) {
    if (side === "source") return facts.words.source.map((word) => ({ word, p: undefined }));
    if (translates()) return facts.words.written.map((word, at) => ({ word, p: facts.probability[at] }));
    if (facts.task === "classification") return [];
    return facts.words.read.map((word, at) => ({ word, p: at ? facts.probability[at - 1] : undefined, change: at ? change?.[at - 1] : undefined }));
  }

  function drawWords() {
    for (const side of ["source", "target"]) {
      const some = chips(side), { node: box, list, name } = words[side];
      box.hidden = !some.length;
      list.dir = facts.leftward[side === "source" ? "source" : "read"] ? "rtl" : "ltr";
      name.textContent = facts.words.source.length ? (side === "source" ? (translates() ? "source" : "text") : "output") : "";
      name.hidden = !name.textContent;
      list.setAttribute("aria-label", side === "source" ? "source words" : "words");
      put(list, some.map(({ word, p, change: moved }) => el("button", { type: "button", tabindex: "-1" },
        el("b", {}, token(word)),
        p === undefined ? null : el("span", { class: "p", dir: "ltr" }, percent(p)),
        p === undefined || p === null ? null : el("i", { class: "share", style: { width: `${100 * p}%` } }),
        moved ? el("span", { class: moved > 0 ? "moved worse" : "moved better", title: "change in bits", dir: "ltr" }, `${moved > 0 ? "▲" : "▼"}${Math.abs(moved).toFixed(1)}`) : null)));
    }
  }

  // What the words are shaded by, for the word that is pointed at or chosen: {side, shares, said}.
  async function shading() {
    const [side, at] = hover || (source !== null ? ["source", source] : ["target", framed()]);
    const across = (kind) => (kind === "source" ? "source" : "target"), shift = (kind) => (kind === "read" && facts.words.source.length ? 1 : 0);
    const row = async (name, start, count, kind, scale) => {
      const array = await load(name);
      const values = Array.from({ length: count }, (_, place) => valueAt(array, start + place));
      return { side: across(kind), shares: values.slice(shift(kind)).map(scale), values: values.slice(shift(kind)) };
    };
    if (seen("gradients") && shown !== "all" && facts.gradients[own.slope]) {
      const one = facts.gradients[own.slope], columns = facts.words[one.columns].length;
      if (side === "source") return null;
      const array = await load(`gradient/${one.name}`);
      return row(`gradient/${one.name}`, at * columns, columns, one.columns, (value) => (Number.isFinite(value) ? (value - array.low) / (array.high - array.low || 1) : null));
    }
    if ((seen("attention") || !facts.alignment) && seen("attention") && head && facts.attention[head.map]) {
      const one = facts.attention[head.map], columns = facts.words[one.columns].length, rows = facts.words[one.rows].length;
      if ((one.rows === "source") !== (side === "source")) return facts.alignment ? aligned(side, at) : null;
      if (at >= rows) return null;
      const array = await load(`attention/${one.name}`), whole = meanOf(array, head.head);
      const values = Array.from({ length: columns }, (_, place) => (one.causal && place > at ? NaN : valueAt(whole.array, whole.start + at * columns + place)));
      return { side: across(one.columns), values: values.slice(shift(one.columns)), shares: values.slice(shift(one.columns)).map((value) => (Number.isFinite(value) ? (one.root ? Math.sqrt(value) : value) : null)) };
    }
    return facts.alignment && (seen("expected") || seen("search")) ? aligned(side, at) : null;
  }

  // Linked words of a translation: a written word and what it looked at, or a source word and who looked at it.
  async function aligned(side, at) {
    const array = await load("alignment"), columns = facts.words.source.length;
    const count = side === "source" ? facts.words.written.length : columns;
    const values = Array.from({ length: count }, (_, place) => valueAt(array, side === "source" ? place * columns + at : at * columns + place));
    return { side: side === "source" ? "target" : "source", values, shares: values };
  }

  async function shade() {
    const mine = ++turn;
    const found = await shading().catch(() => null);
    if (mine !== turn || !facts) return;
    for (const side of ["source", "target"]) {
      [...words[side].list.children].forEach((button, at) => {
        const share = found?.side === side ? found.shares[at] : null;
        const colours = share === null || share === undefined ? { background: "", color: "" } : painted(share);
        button.style.background = colours.background;
        button.style.color = colours.color;
        button.classList.toggle("shaded", Boolean(colours.color));
        const chosen = side === "source" ? source === at : source === null && framed() === at;
        button.setAttribute("aria-pressed", String(chosen));
        button.classList.toggle("next", side === "target" && !facts.words.source.length && source === null && at === framed() + 1);
        button.classList.toggle("hover", hover?.[0] === side && hover[1] === at);
        button.tabIndex = chosen || (at === 0 && side === "source" && source === null) ? 0 : -1;
      });
    }
  }

  // -- what is chosen ------------------------------------------------------------------------------------------------------

  function choose(side, at, { quietly = false } = {}) {
    if (!facts) return;
    if (!quietly) onPlaces(placesOfWord(side, at));
    if (shown === "none") return;
    if (side === "target") { step = Math.max(0, Math.min(facts.words.read.length - 1, at)); source = null; }
    else source = source === at ? null : at;
    draw();
    if (!quietly && side === "target") onStep(step);
  }

  // -- parts that can be changed, by the names of insight/interventions ----------------------------------------------------

  function placesOfWord(side, at) {
    if (facts.order) return Array.from({ length: Math.max(...facts.order, 2) - 1 }, (_, one) => `order/${one + 2}`);
    if (side === "source") return [`encoder/embedding@${at}`];
    const column = at + (translates() ? 1 : 0); // a translation's word is read one step after it is written
    return column < facts.words.read.length ? [`embedding@${column}`] : [];
  }
  function placesOfHead(map, which) {
    const { name, rows } = facts.attention[map], many = facts.attention[map].heads.length > 1, at = rows === "source" ? source : source === null ? step : null;
    const [, kind, layer] = /^(self|cross|encoder)\/(\d+)$/.exec(name) || [];
    if (!kind) return [];
    const context = `layer/${layer}/context`, alone = !many && facts.inside.some((one) => one.name === context);
    const place = alone ? context : (kind === "encoder" ? `${name}/heads` : name) + (which >= 0 && many ? `[${which}]` : "");
    return [place, ...(at === null || at >= facts.words[rows].length ? [] : [`${place}@${at}`])];
  }
  function placesOfUnit(row, unit) {
    const { name } = facts.inside[held], layer = /^(.*\/)?\d+(\/(for|back)ward)?$/.test(name);
    const recurrent = layer && !facts.inside.some((one) => one.name === `${name}/attention`), place = /\/(for|back)ward$/.test(name) ? `${name}/hidden` : name;
    return [`${place}[${unit}]@${row}`, `${place}[${unit}]`, ...(recurrent && place === name ? [`${name}/hidden@${row}`] : []), `${place}@${row}`, place];
  }
  // A place in a reader's words, which count from 1.
  function titleOf(place) {
    const [, name, unit, column] = /^([^[@]+)(?:\[(\d+)\])?(?:@(\d+))?$/.exec(place) || [null, place];
    const map = facts.attention.find((one) => one.name === name || `${one.name}/heads` === name), part = facts.inside.find((one) => one.name === name || `${one.name}/hidden` === name);
    const rows = (map || part)?.rows ?? (name.startsWith("encoder") ? "source" : "read"), word = column === undefined ? "" : quoted(facts.words[rows][column] ?? column);
    if (name.startsWith("order/")) return `all ${name.slice(6)}-grams`;
    if (name.endsWith("embedding") && word && unit === undefined) return `the word ${word}`;
    const what = map ? (unit === undefined ? `${map.title}, all heads` : map.heads[unit] ?? place) : `${part ? part.title : name}${part && part.name !== name ? ", its state" : ""}${unit === undefined ? "" : `, unit ${Number(unit) + 1}`}`;
    return word ? `${what}, at ${word} only` : what;
  }
  // The head or matrix that is drawn, by its name; another one by its name.
  const looked = () => (shown === "states" ? facts.inside[held]?.name : head && facts.attention[head.map].name + (head.head >= 0 && facts.attention[head.map].heads.length > 1 ? `[${head.head}]` : "")) || "";
  function lookAt(place) {
    const [, name, which] = /^([^[]+)(?:\[(\d+)\])?$/.exec(place) || [], map = facts.attention.findIndex((one) => one.name === name), part = facts.inside.findIndex((one) => one.name === name);
    if (map >= 0) head = { map, head: facts.attention[map].heads[which] ? Number(which) : facts.attention[map].heads.length > 1 ? -1 : 0 };
    if (part >= 0) held = part;
  }

  const tellPlaces = () => onPlaces(shown === "attention" && head ? placesOfHead(head.map, head.head) : placesOfWord(source === null ? "target" : "source", source ?? step), true);

  // The cursor of a map and the words follow each other.
  function sidesOf(key) {
    const given = drawnIn[key];
    return given ? [given.rows === "source" ? "source" : "target", given.rows, given.columns] : ["target", "read", "read"];
  }
  function pointed(key) {
    return (row, column) => {
      const [side] = sidesOf(key);
      hover = row >= 0 ? [side, row] : null;
      if (row < 0) follow();
      shade();
      for (const one of node.querySelectorAll(".words .under")) one.classList.remove("under");
      if (row >= 0 && drawnIn[key]?.columns) {
        const kind = drawnIn[key].columns, to = kind === "source" ? "source" : "target";
        words[to].list.children[column - (kind === "read" && facts.words.source.length ? 1 : 0)]?.classList.add("under");
      }
    };
  }
  function picked(key) {
    return (row, column) => {
      const [side] = sidesOf(key);
      hover = null;
      choose(side, row);
      if (key === "state") onPlaces(placesOfUnit(row, column));
      if (key === "head") onPlaces(placesOfHead(head.map, head.head));
    };
  }
  function follow() {
    for (const [key, given] of Object.entries(drawnIn)) {
      if (!given || document.activeElement === maps[key].canvas) continue;
      const row = given.rows === "source" ? source : source === null ? step : null;
      if (row === null || row >= given.count || !given.best) maps[key].point(-1, -1);
      else maps[key].point(row, given.best(row));
    }
  }

  // -- sections ------------------------------------------------------------------------------------------------------------

  function drawSaid() {
    const best = facts.top[step]?.[0], parts = [];
    if (facts.task === "classification") { if (best) parts.push(`Predicted label: ${quoted(best.word)} (${percent(best.p)}); entropy ${number(facts.entropy[step], 3)} nats.`); }
    else {
      parts.push(`Step ${step} of ${facts.words.read.length - 1} reads ${quoted(facts.words.read[step])}.`);
      if (best) parts.push(`Top prediction: ${quoted(best.word)} (${percent(best.p)}); entropy ${number(facts.entropy[step], 3)} nats.`);
      if (facts.known[step]) parts.push(`The next word was ${quoted(facts.words.written[step])}: ${percent(facts.probability[step])}, rank ${facts.rank[step]}.`);
    }
    if (facts.order) parts.push(`This probability comes from the ${facts.order[step]}-grams, multiplied by a back-off weight of ${number(facts.backoff[step], 3)}.`);
    said.textContent = parts.join(" ");
  }

  function drawExpected() {
    const rows = [...facts.top[step]];
    if (facts.known[step] && !rows.some((row) => row.came)) rows.push({ word: facts.words.written[step], p: facts.probability[step], came: true });
    const edit = onEdit && facts.task !== "classification", most = Math.max(...rows.map((row) => row.p)) || 1;
    put(bodies.expected, el("div", { class: "look" },
      facts.alignment && el("div", { class: "aligned" }, el("h3", {}, "Source words that each output word attended to"),
        unlearned ? [el("p", { class: "quiet-text" }, unlearned), el("button", { type: "button", onclick: () => { unlearned = ""; drawExpected(); } }, "Show it anyway")] : maps.align.node),
      el("div", {}, el("h3", {}, facts.task === "classification" ? "Predicted labels" : "Predicted next words"),
      el("div", { class: "bars" }, rows.map((row) => el("div", { class: row.came ? "choice-row came" : "choice-row" },
        edit && row.token !== undefined && !row.came && !(translates() && row.token === "<eos>")
          ? el("button", { type: "button", class: "word", title: "Use this word and continue from here", onclick: () => onEdit({ step, token: row.token, keep: false }) }, token(row.word))
          : el("span", { class: "word" }, token(row.word)),
        el("span", { class: "chance" }, el("i", { style: { width: `${100 * row.p / most}%` } })),
        el("span", { class: "number" }, percent(row.p), row.came ? " · actual" : ""),
        edit && row.token !== undefined && !row.came && facts.known[step] && !translates()
          ? el("button", { type: "button", class: "quiet swap", title: "Insert this word and keep the rest", "aria-label": `Insert ${isolated(row.word)} here and keep the rest`, onclick: () => onEdit({ step, token: row.token, keep: true }) }, "⇄")
          : null))))));
    if (facts.alignment && !unlearned) drawAlignment();
  }

  async function drawAlignment() {
    const mine = facts, array = await load("alignment").catch(() => null);
    if (!array || mine !== facts) return;
    const columns = facts.words.source;
    const best = (row) => strongest(array, row * columns.length, columns.length);
    drawnIn.align = { rows: "written", columns: "source", count: facts.words.written.length, best };
    maps.align.draw({
      rows: facts.words.written, columns, array, low: 0, high: 1, unit: "attention weight", leftward: facts.leftward.source,
      sentence: "One row per generated word: the stronger the color, the more that word attended to the source word.",
      describe: (row, column, value) => `${quoted(facts.words.written[row])} attended to ${quoted(columns[column])}: ${value.toFixed(2)}`,
    });
    follow();
  }

  const strongest = (array, start, count) => {
    let best = 0, most = -Infinity;
    for (let place = 0; place < count; place++) if (valueAt(array, start + place) > most) { best = place; most = valueAt(array, start + place); }
    return best;
  };

  function meanOf(array, which) {
    const [heads, rows, columns] = array.shape, size = rows * columns;
    if (which >= 0) return { array, start: which * size };
    if (!array.mean) {
      const sums = new Uint32Array(size);
      for (let one = 0, place = 0; one < heads; one++) for (let cell = 0; cell < size; cell++, place++) sums[cell] += array.data[place];
      array.mean = { ...array, data: Uint8Array.from(sums, (sum) => Math.round(sum / heads)), shape: [rows, columns] };
    }
    return { array: array.mean, start: 0 };
  }

  const headName = ({ map, head: which }) => (which >= 0 ? facts.attention[map].heads[which] : `${facts.attention[map].title}, mean of ${counted(facts.attention[map].heads.length, "head")}`);

  // In the sheet a layer of several heads begins with their mean, whose number is −1.
  const means = (map) => facts.attention[map].heads.length > 1;
  const headAt = (map, place) => place - (means(map) ? 1 : 0);

  function drawAttention() {
    if (!facts.attention.length) { put(bodies.attention, el("p", { class: "quiet-text" }, `${facts.system} has no attention.`)); return; }
    const mine = facts, problem = el("p", { class: "problem" });
    const layers = facts.attention.map((map, at) => ({
      title: map.title, causal: map.causal, root: map.root, low: 0, high: 1, leftward: facts.leftward[map.columns], height: facts.words[map.rows].length, width: facts.words[map.columns].length,
      maps: (means(at) ? [-1, ...map.heads.keys()] : [0]).map((one) => ({ name: headName({ map: at, head: one }), short: one < 0 ? "mean" : map.heads.length > 1 ? String(one + 1) : "", one, array: null, start: 0 })),
    }));
    fillSheet(sheets.heads, layers, "attention", facts.attention, [head.map, head.head + (means(head.map) ? 1 : 0)], (array, one) => meanOf(array, one), problem);
    put(bodies.attention, el("h3", {}, "Attention"), el("div", { class: "look" }, el("div", {}, sheets.heads.node, el("p", { class: "caption" }, "Each map shows the attention weights of one head; all share the scale of the large map."), problem), el("div", {}, el("h4", { class: "head-name" }), maps.head.node)));
    if (mine === facts) drawHead();
  }

  // The maps of a sheet, drawn as their layers come.
  function fillSheet(all, layers, kind, entries, chosen, cut, problem) {
    const mine = facts;
    all.draw({ layers, chosen });
    entries.forEach((entry, at) => load(`${kind}/${entry.name}`).then((array) => {
      if (mine !== facts) return;
      for (const map of layers[at].maps) Object.assign(map, cut(array, map.one));
      all.draw({ layers, chosen: all.chosen });
    }).catch((error) => { problem.textContent = error.message; }));
  }

  function look(map, which) { onPlaces(placesOfHead(map, which)); Object.assign(own, { layer: facts.attention[map].name, head: Math.max(0, which) }); head = { map, head: which }; onLook(looked()); drawHead(); shade(); }

  async function drawHead() {
    const mine = facts, chosen = head, map = facts.attention[head.map];
    const loaded = await load(`attention/${map.name}`).catch(() => null);
    if (!loaded || mine !== facts || chosen !== head) return;
    const { array, start } = meanOf(loaded, head.head), rows = facts.words[map.rows], columns = facts.words[map.columns];
    const title = bodies.attention.querySelector(".head-name");
    if (title) title.textContent = headName(head);
    drawnIn.head = { rows: map.rows, columns: map.columns, count: rows.length, best: (row) => strongest(array, start + row * columns.length, map.causal ? row + 1 : columns.length) };
    maps.head.draw({
      rows, columns, array, start, causal: map.causal, root: map.root, low: 0, high: 1, unit: "attention weight", leftward: facts.leftward[map.columns],
      sentence: `${headName(head)}: each row shows what one word attended to.`,
      describe: (row, column, value) => (map.causal && column > row ? `${quoted(rows[row])} cannot attend to ${quoted(columns[column])}, which comes later` : `${quoted(rows[row])} attended to ${quoted(columns[column])}: ${value.toFixed(2)}`),
    });
    follow();
  }

  function choice(label, some, chosen, pick) {
    const select = el("select", { "aria-label": label, onchange: (event) => pick(Number(event.target.value)) },
      some.map((one, place) => el("option", { value: String(place), selected: place === chosen }, one.title)));
    return el("p", { class: "chosen" }, el("label", {}, label, " ", select));
  }

  function drawStates() {
    if (!facts.inside.length) { put(bodies.states, el("p", { class: "quiet-text" }, `${facts.system} has no hidden states to show.`)); return; }
    held = Math.min(held, facts.inside.length - 1);
    put(bodies.states, el("h3", {}, "Internal states"), choice("Show", facts.inside, held, (place) => { held = place; onLook(looked()); drawStates(); }), maps.state.node);
    if (facts.matrices?.length) drawMemories();
    const mine = facts, one = facts.inside[held], rows = facts.words[one.rows];
    load(`inside/${one.name}`).then((array) => {
      if (mine !== facts || one !== facts.inside[held]) return;
      drawnIn.state = { rows: one.rows, columns: null, count: rows.length, best: null };
      maps.state.draw({
        rows, columns: Array.from({ length: one.units }, (_, unit) => String(unit + 1)), array, diverging: one.diverging, unit: one.unit, tall: 16, finest: 2, largest: 24,
        sentence: `${one.title}: one row per step, one column for each of ${counted(one.units, "unit")}.`,
        describe: (row, unit, value) => `unit ${unit + 1} after ${quoted(rows[row])}: ${number(value, 3)}`,
      });
    }).catch((error) => put(bodies.states, el("p", { class: "problem" }, error.message)));
  }

  // Linear attention remembers in a matrix for each head.
  function drawMemories() {
    const problem = el("p", { class: "problem" });
    const layers = facts.matrices.map((map) => ({
      title: map.title, diverging: true, height: map.shape[0], width: map.shape[1],
      maps: map.heads.map((name, one) => ({ name, short: String(one + 1), one, array: null, start: 0 })),
    }));
    fillSheet(sheets.memories, layers, "matrix", facts.matrices, [0, 0], (array, one) => ({ array, start: one * array.shape[1] * array.shape[2] }), problem);
    bodies.states.append(el("h3", { class: "below" }, "State after the last word: one matrix per head"), sheets.memories.node, el("p", { class: "caption" }, "Each layer has its own scale, symmetric about 0; the scale of the selected head is shown below."), problem, el("h4", { class: "memory-name" }), maps.memory.node);
    drawMemory(0, 0);
  }

  async function drawMemory(place, one) {
    const mine = facts, map = facts.matrices[place], array = await load(`matrix/${map.name}`).catch(() => null);
    if (!array || mine !== facts) return;
    const [, rows, columns] = array.shape, count = (size) => Array.from({ length: size }, (_, at) => String(at + 1));
    bodies.states.querySelector(".memory-name").textContent = map.heads[one];
    maps.memory.draw({ rows: count(rows), columns: count(columns), array, start: one * rows * columns, diverging: true, unit: "entry of the state", largest: 14, sentence: "One row per feature of the key, one column per component of the value.",
      describe: (row, column, value) => `feature ${row + 1}, component ${column + 1}: ${number(value, 3)}` });
  }

  let passing = null;
  function drawFlow() {
    if (!blocks) return;
    passing ??= blocks({ load });
    put(bodies.flow, passing.node);
    passing.draw(facts, step);
  }

  function drawSearch() {
    put(bodies.search, el("h3", {}, "Beam search"), facts.beam.length ? searchTree(facts.beam, facts.unfinished) : el("p", { class: "quiet-text" }, "This text was not produced by beam search."));
  }

  const DRAW = { expected: drawExpected, attention: drawAttention, states: drawStates, search: drawSearch, gradients: () => more.gradients?.(own), work: () => more.work?.(own), flow: drawFlow };
  const THERE = { expected: () => true, attention: () => facts.attention.length, states: () => facts.inside.length, gradients: () => facts.gradients.length, search: () => facts.beam.length, work: () => false, flow: () => false };

  function tabulate() {
    put(steps, el("summary", {}, "All steps as a table"),
      table(facts.words.read.map((word, at) => ({
        step: at + 1, read: word, came: facts.known[at] ? facts.words.written[at] : null, p: facts.known[at] ? facts.probability[at] : null, rank: facts.known[at] ? facts.rank[at] : null,
        entropy: facts.entropy[at], order: facts.order?.[at], expected: facts.top[at].slice(0, 5).map((one) => `${isolated(one.word)} ${number(one.p, 3)}`).join(", "),
      })), { step: "step", read: "read", came: "next word", p: "probability", rank: "rank", entropy: "entropy (nats)", ...(facts.order ? { order: "order used" } : {}), expected: "top predictions" }, { caption: "All steps" }));
  }
  steps.addEventListener("toggle", () => { if (steps.open && facts) tabulate(); });

  // A new step changes words, sentence and choices; the maps only move their cursors.
  function draw() {
    if (shown === "work" && bodies.work.hasChildNodes()) DRAW.work();
    drawStep();
  }
  function drawStep() {
    drawSaid();
    if (seen("expected")) drawExpected();
    if (shown === "flow") drawFlow();
    shade();
    follow();
  }

  function whole() {
    said.hidden = steps.hidden = shown === "none";
    for (const [name, body] of Object.entries(bodies)) {
      body.hidden = !(shown === name || (shown === "all" && THERE[name]()));
      if (!body.hidden && name !== "expected") DRAW[name]();
    }
    drawStep();
  }

  const onTheme = () => facts && whole();
  addEventListener("theme", onTheme);

  return {
    node,
    // The same trace again, now with gradients: what is chosen stays chosen.
    show(next, { before = null, at = null } = {}) {
      const first = !facts || facts.words.read.length !== next.words.read.length;
      facts = next;
      node.hidden = false;
      arrays = new Map();
      for (const key of Object.keys(drawnIn)) delete drawnIn[key];
      change = before;
      hover = null;
      if (source !== null && source >= facts.words.source.length) source = null;
      if (facts.task === "classification" && source === null && facts.attention.length) source = 0;
      step = Math.min(at ?? (first ? facts.opens : step), facts.words.read.length - 1);
      if (!head || !facts.attention[head.map] || head.head >= facts.attention[head.map].heads.length) {
        const order = ["written", "read", "source"].map((kind) => facts.attention.findLastIndex((map) => map.rows === kind)).find((place) => place >= 0) ?? -1;
        head = order < 0 ? null : { map: order, head: facts.attention[order].heads.length > 1 ? -1 : 0 };
      }
      if (wish) lookAt(wish);
      wish = "";
      drawWords();
      whole();
      if (steps.open) tabulate();
      tellPlaces();
    },
    look(place) { if (!facts) wish = place; else if (place && place !== looked()) { lookAt(place); whole(); } },
    get looked() { return facts ? looked() : ""; },
    title: (place) => titleOf(place),
    // A model that has hardly learned looks everywhere and nowhere: the alignment is shown on request.
    hideAlignment(why) { unlearned = why; if (facts && seen("expected")) drawExpected(); },
    section(name) { if (name === shown) return; shown = name; if (facts) { whole(); tellPlaces(); } }, // "words": nothing but them
    step(at) { if (facts && at !== null && at !== step) choose("target", at, { quietly: true }); },
    get facts() { return facts; },
    get at() { return step; },
    end() { passing?.end(); removeEventListener("theme", onTheme); for (const map of [...Object.values(maps), ...Object.values(sheets)]) map.end(); },
  };
}
