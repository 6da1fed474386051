// A figure of regard/report/figures.py, which is data, drawn with the lab's charts: figure(data) → {node, end}.
import { legend, lineChart } from "./charts.js";
import { el, number, svg, table } from "./dom.js";
import { heatMap } from "./heat.js";

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
      name: line.name, colour: names.indexOf(line.name), dash: line.level ? 16 : undefined, quiet: line.faint, points: !line.joined || points.length < 3,
      x: points.map((point) => real(point[0])), y: points.map((point) => (real(point[1]) > top ? NaN : real(point[1]))),
      low: band && band.map((pair) => real(pair[0])), high: band && band.map((pair) => real(pair[1])),
    };
  });
  const node = el("section", { class: "drawn" }, el("h3", {}, data.title), names.length > 1 && legend(names), chart.node, el("p", { class: "caption" }, data.description));
  chart.draw({ series, x: { label: data.x, log: data.log_x }, y: { label: data.y, log: data.log_y }, smooth: 0 });
  return { node, end: chart.end };
}

function heat(data) {
  const map = heatMap({ label: data.title });
  const flat = data.values.flat().map(real), finite = flat.filter(Number.isFinite);
  const array = { data: Float32Array.from(flat), shape: [data.rows.length, data.columns.length], low: data.low ?? Math.min(...finite), high: data.high ?? Math.max(...finite) };
  map.draw({ rows: data.rows, columns: data.columns, array, across: data.x, down: data.y, diverging: data.diverging });
  return { node: el("section", { class: "drawn" }, el("h3", {}, data.title), map.node, el("p", { class: "caption" }, data.description)), end: map.end };
}

const ROW = 30, WIDTH = 640, LEFT = 200, RIGHT = 40;

function intervals(data) {
  const marks = data.marks.map((mark) => ({ ...mark, value: real(mark.value), low: real(mark.low), high: real(mark.high) }));
  const against = data.threshold === null ? [] : [data.threshold];
  const all = [...marks.flatMap((mark) => [mark.low, mark.high, mark.value]), ...against].filter((value) => Number.isFinite(value) && (!data.log_x || value > 0));
  const along = (value) => (data.log_x ? Math.log(value) : value);
  const low = along(Math.min(...all)), reach = along(Math.max(...all)) - low || 1;
  const place = (value) => LEFT + Math.max(0, Math.min(1, (along(value) - low) / reach)) * (WIDTH - LEFT - RIGHT);
  const height = ROW * marks.length + 46;
  const drawing = svg("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": data.description },
    against.map((value) => [svg("line", { x1: place(value), x2: place(value), y1: 4, y2: height - 40, class: "against" }),
      svg("text", { x: place(value), y: height - 24, "text-anchor": "middle" }, `${data.threshold_name} ${number(value)}`)]),
    marks.map((mark, row) => {
      const y = ROW * row + ROW / 2;
      return svg("g", {}, svg("text", { x: LEFT - 12, y: y + 4, "text-anchor": "end", class: mark.name === data.best ? "name" : null }, mark.name.length > 30 ? `${mark.name.slice(0, 29)}…` : mark.name),
        Number.isFinite(mark.low + mark.high) && svg("line", { x1: place(mark.low), x2: place(mark.high), y1: y, y2: y, class: "interval" }),
        svg("circle", { cx: place(mark.value), cy: y, r: 4.5, fill: "var(--line-0)" }));
    }),
    svg("text", { x: WIDTH - RIGHT, y: height - 6, "text-anchor": "end", class: "name" }, data.x));
  const numbers = el("details", { class: "numbers" }, el("summary", {}, "As a table"), table(marks, { name: "", value: data.x, low: "from", high: "to" }, { caption: data.title }));
  return { node: el("section", { class: "drawn" }, el("h3", {}, data.title), drawing, el("p", { class: "caption" }, data.description), numbers), end: () => {} };
}
