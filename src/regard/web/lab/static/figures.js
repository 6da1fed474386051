// A figure of regard/report/figures.py, which is data, drawn with the lab's charts: figure(data) → {node, end}.
import { legend, lineChart } from "./charts.js";
import { el } from "./dom.js";
import { heatMap } from "./heat.js";
import { intervalChart } from "./intervals.js";

const real = (value) => (value === null || value === undefined ? NaN : Number(value)); // "inf" and "-inf" are words in JSON

export function figure(data) {
  return { lines, heat, intervals }[data.kind](data);
}

function lines(data) {
  const chart = lineChart({ label: data.title });
  const names = [...new Set(data.lines.map((line) => line.name))];
  const every = data.lines.flatMap((line) => (line.level ? [] : line.points.map((point) => real(point[0])))).filter(Number.isFinite);
  const ends = [Math.min(...every), Math.max(...every)];
  const top = real(data.top);
  const series = data.lines.map((line) => {
    const points = line.level ? ends.map((x) => [x, line.points[0][1]]) : line.points;
    const band = line.band.length ? line.band : null;
    return {
      name: line.name, colour: names.indexOf(line.name), dash: line.level ? 16 : undefined, quiet: line.faint, strong: line.name !== "" && line.name === data.best && !line.faint, points: !line.joined || points.length < 3,
      x: points.map((point) => real(point[0])), y: points.map((point) => (real(point[1]) > top ? NaN : real(point[1]))),
      low: band && band.map((pair) => real(pair[0])), high: band && band.map((pair) => real(pair[1])),
    };
  });
  const node = el("section", { class: "drawn" }, el("h3", {}, data.title), names.length > 1 && legend(names.map((name) => name || "–")), chart.node);
  series.sort((a, b) => a.strong - b.strong); // the best on top
  chart.draw({ series, caption: data.description, x: { label: data.x, log: data.log_x }, y: { label: data.y, log: data.log_y, zero: data.zero_y }, smooth: 0 });
  return { node, end: chart.end };
}

function heat(data) {
  const map = heatMap({ label: data.title });
  const flat = data.values.flat().map(real), finite = flat.filter(Number.isFinite);
  const array = { data: Float32Array.from(flat), shape: [data.rows.length, data.columns.length], low: data.low ?? Math.min(...finite), high: data.high ?? Math.max(...finite) };
  map.draw({ rows: data.rows, columns: data.columns, array, across: data.x, down: data.y, diverging: data.diverging, root: data.root, unit: data.z, low: data.low ?? undefined, high: data.high ?? undefined });
  return { node: el("section", { class: "drawn" }, el("h3", {}, data.title), map.node, el("p", { class: "caption" }, data.description)), end: map.end };
}

function intervals(data) {
  const chart = intervalChart({ label: data.title });
  chart.draw({
    rows: data.marks.map((mark) => ({ name: mark.name, value: real(mark.value), low: real(mark.low), high: real(mark.high), best: mark.name === data.best })),
    x: { label: data.x, log: data.log_x }, against: data.threshold === null ? null : { name: data.threshold_name, value: data.threshold },
  });
  return { node: el("section", { class: "drawn" }, el("h3", {}, data.title), chart.node, el("p", { class: "caption" }, data.description)), end: chart.end };
}
