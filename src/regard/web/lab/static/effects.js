// What each layer would predict, and what is lost without each part: the figures of causes.js that an exported page has, too.

import { el, number, speak } from "./dom.js";
import { painted, percent, quoted, token } from "./reading.js";

export const signed = (value, digits = 3) => (value === null || value === undefined ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`);
const range = (ends) => (ends ? `[${signed(ends[0])}, ${signed(ends[1])}]` : "–");
export const caption = (...words) => el("p", { class: "caption" }, words);

// -- lens: a grid of tokens ------------------------------------------------------------------------------------------------

export function lensGrid({ words, layers, notes }) {
  const rows = [...layers].reverse(), readout = el("p", { class: "readout" });
  const told = (layer, at) => {
    const rank = layer.rank[at];
    return `${layer.name} after ${quoted(words[at])}: ${layer.top[at].map(([word, p]) => `${quoted(word)} ${percent(p)}`).join(", ")}. `
      + (rank === null ? "" : `The word that followed has ${percent(layer.probability[at])}, rank ${rank}. `) + `KL divergence from the final prediction: ${number(layer.divergence[at], 3)} nats.`;
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
    caption("The most probable next word at each layer, read through the model's own output layer. The stronger the color, the more probable. A frame marks the word that actually followed."), notes.map((note) => caption(note)));
  return { node, end() {} };
}

// -- ablation: a table with bars, beside the control ---------------------------------------------------------------------

export function ablationTable({ kind, way, texts, effects }, onChange) {
  const most = Math.max(...effects.flatMap((one) => [Math.abs(one.effect), Math.abs(one.control ?? 0)])) || 1;
  const bar = (value, name) => (value === null ? null : el("i", { class: `${name} ${value < 0 ? "less" : "more"}`, style: { width: `${(50 * Math.abs(value)) / most}%` } }));
  const rows = effects.map((one) => {
    const place = one.name.split(" ")[0];
    return el("tr", {}, el("th", { scope: "row" }, onChange ? el("button", { type: "button", title: `Remove ${one.name} and compare before and after`, onclick: () => onChange([`zero ${place}`]) }, one.name) : one.name),
      el("td", { class: "right" }, signed(one.effect)), el("td", {}, el("span", { class: "effect", "aria-hidden": "true" }, bar(one.control, "random"), bar(one.effect, "own"))),
      el("td", { class: "right" }, signed(one.control)), texts > 1 && [el("td", {}, range(one.interval)), el("td", {}, range(one.control_interval))]);
  });
  const heads = ["removed", "Δ log P", "", "random", ...(texts > 1 ? ["95 %", "95 % of random"] : [])];
  return { node: el("section", { class: "cause" }, el("h3", {}, `Change in log P of the text without each part (${kind})`),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "effects" }, el("table", { class: "effects" }, el("thead", {}, el("tr", {}, heads.map((word, at) => (word ? el("th", { scope: "col", class: at === 1 || at === 3 ? "right" : null }, word) : el("td"))))), el("tbody", {}, rows))),
    caption(`Mean change of log P per word${texts > 1 ? ` over ${texts} texts` : ""}; removed values become ${way}. Pale bars: the same number of random components.`, onChange ? " Choose a part to remove it and compare before and after." : "")), end() {} };
}
