// Scores with their intervals on one axis, a row for each: pointer and arrow keys read a row; a table and files instead.
//
//   const chart = intervalChart({ label: "BLEU with intervals" });
//   root.append(chart.node);
//   chart.draw({ rows: [{ name, value, low, high, colour: 0…, note }], x: { label: "BLEU", log: false }, against: { name, value } });
//   chart.end();
//
// `note` is the sentence that a row is read with; low and high may be missing.

import { colourOf, ticks } from "./charts.js";
import { el, number, put, speak, svg, table, wide as wideOf } from "./dom.js";
import { saves } from "./saving.js";

const STEP = 30, TOP = 6, RIGHT = 18;

export function intervalChart({ label }) {
  const holder = el("div"), readout = el("p", { class: "readout", "aria-hidden": "true" });
  const numbers = el("details", { class: "numbers" }, el("summary", {}, "As a table"));
  const node = el("figure", { class: "chart rungs" }, holder, readout, numbers,
    saves(() => label, { drawing: () => holder.firstChild, rows: () => [["", given.x.label, "from", "to"], ...given.rows.map((row) => [row.name, row.value, row.low, row.high])] }));
  let given = null, frame = 0, wide = 0;

  const told = (row) => row.note || `${row.name}: ${number(row.value)}${Number.isFinite(row.low) ? `, 95 % interval ${number(row.low)} to ${number(row.high)}` : ""}`;

  function draw(next) {
    if (next) { given = next; wide = 0; }
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  }

  function paint() {
    const width = Math.max(280, node.clientWidth || 700);
    if (!given || width === wide) return;
    wide = width;
    const { rows, x, against } = given, font = (row) => `${row.best ? 650 : 400} 13px ${getComputedStyle(node).fontFamily}`;
    const left = Math.min(16 + Math.ceil(Math.max(0, ...rows.map((row) => wideOf(row.name, font(row))))), width * 0.38), top = TOP + (against ? 18 : 0), bottom = top + STEP * rows.length, height = bottom + 40;
    const values = [...rows.flatMap((row) => [row.value, row.low, row.high]), against?.value].filter((value) => Number.isFinite(value) && (!x.log || value > 0));
    let [low, high] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
    if (x.log) { low /= 1.08; high *= 1.08; } else { const room = (high - low) * 0.06 || 1; low = low >= 0 ? Math.max(0, low - room) : low - room; high += room; }
    const share = (value) => (x.log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
    const across = (value) => left + Math.max(0, Math.min(1, share(value) || 0)) * (width - left - RIGHT);
    const cut = (row) => {
      let name = row.name;
      while (name.length > 1 && wideOf(name, font(row)) > left - 14) name = `${name.slice(0, name.endsWith("…") ? -2 : -1)}…`;
      return name;
    };
    let at = -1;
    const lines = rows.map((row, place) => {
      const y = top + STEP * (place + 0.5), colour = colourOf(row.colour || 0);
      return svg("g", { class: "rung", onpointerenter: () => point(place, false) },
        svg("rect", { x: 0, y: y - STEP / 2, width, height: STEP, class: "row" }),
        svg("text", { x: left - 12, y: y + 4, "text-anchor": "end", class: row.best ? "name best" : "name" }, cut(row), svg("title", {}, row.name)),
        Number.isFinite(row.low + row.high) && svg("line", { x1: across(row.low), x2: across(row.high), y1: y, y2: y, stroke: colour, class: "whisker" }),
        Number.isFinite(row.value) && svg("circle", { cx: across(row.value), cy: y, r: 5, fill: colour }));
    });
    const plot = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: "0", "aria-label": `${label}: ${rows.map(told).join(" ")} Use the arrow keys to read the rows.` },
      ticks(low, high, x.log, Math.max(2, Math.floor((width - left) / 90))).map((mark) => [svg("line", { x1: across(mark), x2: across(mark), y1: top, y2: bottom, class: "grid" }),
        svg("text", { x: across(mark), y: bottom + 16, "text-anchor": "middle" }, number(mark, 3))]),
      against && [svg("line", { x1: across(against.value), x2: across(against.value), y1: top - 4, y2: bottom, class: "against" }),
        svg("text", { x: across(against.value), y: top - 8, "text-anchor": across(against.value) > width * 0.7 ? "end" : "middle" }, `${against.name} ${number(against.value)}`)],
      lines, svg("text", { x: width - RIGHT, y: height - 6, "text-anchor": "end", class: "name" }, x.label));
    function point(place, aloud) {
      at = place;
      lines.forEach((line, other) => line.classList.toggle("at", other === place));
      readout.textContent = told(rows[place]);
      if (aloud) speak(told(rows[place]));
    }
    plot.addEventListener("keydown", (event) => {
      const moves = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 };
      if (!(event.key in moves)) return;
      event.preventDefault();
      point(Math.max(0, Math.min(rows.length - 1, moves[event.key])), true);
    });
    put(holder, plot);
    readout.textContent = given.sentence || "";
  }
  numbers.addEventListener("toggle", () => {
    if (numbers.open && given) put(numbers, el("summary", {}, "As a table"), table(given.rows, { name: "", value: given.x.label, low: "from", high: "to" }, { caption: label }));
  });
  const watch = new ResizeObserver(() => draw());
  watch.observe(node);
  return { node, draw, end: () => { watch.disconnect(); cancelAnimationFrame(frame); } };
}
