// Lines in SVG: logarithmic axes, smoothing, a cursor that follows pointer and keyboard, a sentence and a table instead.
//
//   const chart = lineChart({ label: "loss against tokens" });
//   root.append(chart.node);
//   chart.draw({ series, x: {label: "tokens", log: true}, y: {label: "loss"}, smooth: 0.6 });
//   chart.end();
//
// A series is { name, colour: 0…, dash: 0…, x, y, low, high, note, quiet }: arrays of equal length; low and high draw a
// pale band where they differ from y. `points: true` marks each point, for the few of a validation.

import { saves } from "./saving.js";
import { clock, el, number, put, short, speak, svg, table } from "./dom.js";

const DASHES = [null, "6 4", "2 3"];
const COLOURS = 8;
const MARGIN = { top: 26, right: 14, bottom: 38, left: 54 };
const DASHED = 24, TOLD = 12; // lines up to which dashes tell them apart; lines that are named at the cursor
const LABELLED = 7, LABEL = 128, WIDE = 620; // lines that are named at their end, in this many pixels, on a drawing this wide

export const colourOf = (place) => `var(--line-${place % COLOURS})`;
export const dashOf = (place) => DASHES[Math.floor(place / COLOURS) % DASHES.length];

// The names of lines by their colours: legend(["train", "valid"]), each in the colour of its place.
export const legend = (names) => el("p", { class: "legend" }, names.map((name, place) =>
  el("span", {}, el("i", { class: "swatch", style: { background: colourOf(place) } }), ` ${name}`)));

export function smoothed(values, weight) {
  if (!weight) return values;
  const out = new Float32Array(values.length);
  let mean = 0, total = 0;
  for (let place = 0; place < values.length; place++) {
    mean = weight * mean + (1 - weight) * values[place];
    total = weight * total + (1 - weight);
    out[place] = mean / total; // so that the beginning is not pulled towards zero
  }
  return out;
}

const FORMATS = { number, short, clock };

export function ticks(low, high, log, count) {
  if (log) {
    const marks = [];
    const span = Math.log10(high / low);
    const steps = span > 3 ? [1] : span > 1.2 ? [1, 2, 5] : span > 0.5 ? [1, 1.5, 2, 3, 5, 7] : [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
      for (const step of steps) {
        const mark = step * 10 ** power;
        if (mark >= low * 0.9999 && mark <= high * 1.0001) marks.push(mark);
      }
    }
    const skip = Math.ceil(marks.length / Math.max(2, count + 1));
    return marks.filter((_, place) => place % skip === 0);
  }
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough) || power;
  const marks = [];
  for (let mark = Math.ceil(low / step - 1e-9) * step; mark <= high + step * 1e-6; mark += step) marks.push(Math.abs(mark) < step * 1e-6 ? 0 : mark);
  return marks;
}

function scale(low, high, from, to, log) {
  const [a, b] = log ? [Math.log(low), Math.log(high)] : [low, high];
  const stretch = (to - from) / (b - a || 1);
  const out = (value) => from + ((log ? Math.log(value) : value) - a) * stretch;
  out.back = (pixel) => { const value = a + (pixel - from) / stretch; return log ? Math.exp(value) : value; };
  return out;
}

export function lineChart({ label, height = 300 }) {
  const plot = svg("svg", { class: "plot", role: "img", tabindex: "0", "aria-label": label });
  const lines = svg("g"), marks = svg("g", { class: "axes" });
  const cursor = svg("svg", { class: "cursor", "aria-hidden": "true" }); // by itself: moving it does not paint a hundred lines anew
  plot.append(marks, lines);
  const tip = el("div", { class: "tip", hidden: true });
  const words = el("p", { class: "caption" });
  const numbers = el("details", { class: "numbers" }, el("summary", {}, "As a table"));
  const node = el("figure", { class: "chart" }, el("div", { class: "canvas" }, plot, cursor, tip), words, numbers,
    saves(() => (given ? `${given.y.label}-${given.x.label}` : label), { drawing: () => plot, rows: () => everything() }));
  let given = null, drawn = [], X = null, Y = null, at = null, picked = 0, frame = 0, right = MARGIN.right;

  function bounds(key, log) {
    let low = Infinity, high = -Infinity;
    for (const one of drawn) for (const value of key === "x" ? one.x : one.line) {
      if (!Number.isFinite(value) || (log && value <= 0)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return null;
    if (key === "y" && given.y.zero) { low = Math.min(low, 0); high = Math.max(high, 0); }
    if (low === high) return log ? [low / 1.5, high * 1.5] : [low - Math.abs(low) * 0.1 - 0.5, high + Math.abs(high) * 0.1 + 0.5];
    if (log) { const room = (high / low) ** (key === "y" ? 0.05 : 0); return [low / room, high * room]; }
    return key === "y" ? [low - (high - low) * 0.06, high + (high - low) * 0.06] : [low, high];
  }

  function draw(next) {
    given = next ? { smooth: 0, ...next } : given;
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  }

  function paint() {
    if (!given) return;
    const width = Math.max(240, node.clientWidth || 600);
    const { x, y } = given;
    drawn = given.series.filter((one) => one.x.length).map((one) => ({ ...one, line: one.points ? one.y : smoothed(one.y, given.smooth) }));
    for (const sheet of [plot, cursor]) {
      sheet.setAttribute("viewBox", `0 0 ${width} ${height}`);
      sheet.setAttribute("width", width);
      sheet.setAttribute("height", height);
    }
    const across = bounds("x", x.log), up = bounds("y", y.log);
    if (!across || !up) {
      put(marks, svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle", class: "empty" }, given.empty || "No data yet"));
      put(lines); put(cursor); X = null; describe(); return;
    }
    const named = ends(width);
    right = named.length ? LABEL : MARGIN.right;
    X = scale(...across, MARGIN.left, width - right, x.log);
    Y = scale(...up, height - MARGIN.bottom, MARGIN.top, y.log);
    axes(width, across, up);
    put(lines, drawn.map(path), endLabels(named, width));
    if (at !== null) point(at, false);
    describe();
  }

  function axes(width, across, up) {
    const { x, y } = given;
    const formatX = FORMATS[x.format || "short"], formatY = FORMATS[y.format || "number"];
    put(marks,
      ticks(...up, y.log, 5).map((mark) => [
        svg("line", { x1: MARGIN.left, x2: width - right, y1: Y(mark), y2: Y(mark), class: "grid" }),
        svg("text", { x: MARGIN.left - 8, y: Y(mark) + 4, "text-anchor": "end" }, formatY(mark, 3)),
      ]),
      ticks(...across, x.log, Math.max(2, Math.floor(width / 85))).map((mark) => [
        svg("line", { x1: X(mark), x2: X(mark), y1: height - MARGIN.bottom, y2: height - MARGIN.bottom + 4, class: "tick" }),
        svg("text", { x: X(mark), y: height - MARGIN.bottom + 18, "text-anchor": "middle" }, formatX(mark)),
      ]),
      svg("line", { x1: MARGIN.left, x2: width - right, y1: height - MARGIN.bottom, y2: height - MARGIN.bottom, class: "base" }),
      svg("text", { x: width - right, y: height - 4, "text-anchor": "end", class: "name" }, x.label),
      svg("text", { x: 0, y: 12, class: "name" }, `${y.label}${y.log ? ", logarithmic axis" : ""}`),
    );
  }

  // Of few lines, each has its name at its end, beside a mark of its colour; names do not cover each other.
  function ends(width) {
    const strong = drawn.filter((one) => !one.quiet && one.label !== "");
    return width < WIDE || strong.length > LABELLED || strong.length < 2 ? [] : strong;
  }
  function endLabels(named, width) {
    const places = named.map((one) => ({ one, y: Y(one.line.findLast ? [...one.line].findLast(Number.isFinite) : one.line.at(-1)) })).filter((row) => Number.isFinite(row.y)).sort((a, b) => a.y - b.y);
    places.forEach((row, place) => { row.at = Math.max(row.y, place ? places[place - 1].at + 15 : MARGIN.top + 4); });
    for (let place = places.length - 1, floor = height - MARGIN.bottom - 2; place >= 0; place--, floor = places[place + 1].at - 15) places[place].at = Math.min(places[place].at, floor);
    return places.map(({ one, at: y }) => [
      svg("circle", { cx: width - LABEL + 9, cy: y, r: 3.5, fill: colourOf(one.colour) }),
      svg("text", { x: width - LABEL + 17, y: y + 4, class: "end" }, cut(one.label || one.name)),
    ]);
  }
  const cut = (name) => (name.length > 17 ? `${name.slice(0, 9)}…${name.slice(-7)}` : name);

  function trail(one) {
    let steps = "", open = false;
    for (let place = 0; place < one.x.length; place++) {
      const a = X(one.x[place]), b = Y(one.line[place]);
      if (!Number.isFinite(a) || !Number.isFinite(b)) { open = false; continue; }
      steps += `${open ? "L" : "M"}${Math.round(a * 10) / 10} ${Math.round(b * 10) / 10}`;
      open = true;
    }
    return steps;
  }

  function path(one) {
    const dash = drawn.length > DASHED ? null : dashOf(one.dash ?? one.colour);
    const looks = { stroke: colourOf(one.colour), "stroke-dasharray": dash, class: one.quiet ? "line quiet" : one.strong ? "line strong" : "line" };
    return svg("g", { data: { name: one.name } },
      given.band !== false && !one.points && one.low && drawn.length <= 12 && band(one),
      svg("path", { d: trail(one), ...looks }),
      one.points && one.x.length <= 80 && [...one.x].map((value, place) =>
        svg("circle", { cx: X(value), cy: Y(one.line[place]), r: 2.6, fill: colourOf(one.colour) })));
  }

  // The raw numbers behind a smoothed line, or the spread within a pixel.
  function band(one) {
    const low = given.smooth ? one.y : one.low, high = given.smooth ? one.y : one.high;
    const out = [], back = [];
    for (let place = 0; place < one.x.length; place++) {
      const a = X(one.x[place]);
      if (Number.isFinite(a + Y(one.high[place]) + Y(one.low[place]))) {
        out.push(`${a.toFixed(1)} ${Y(given.smooth ? Math.max(one.high[place], high[place]) : one.high[place]).toFixed(1)}`);
        back.push(`${a.toFixed(1)} ${Y(given.smooth ? Math.min(one.low[place], low[place]) : one.low[place]).toFixed(1)}`);
      }
    }
    if (!out.length) return null;
    const spread = svg("path", { d: `M${out.join("L")}L${back.reverse().join("L")}Z`, fill: colourOf(one.colour), class: "band" });
    if (!given.smooth) return spread;
    const raw = [...one.x].map((value, place) => `${X(value).toFixed(1)} ${Y(one.y[place]).toFixed(1)}`).filter((pair) => !pair.includes("NaN"));
    return [spread, svg("path", { d: `M${raw.join("L")}`, stroke: colourOf(one.colour), class: "raw" })];
  }

  // -- the cursor: a value of x, and of each series its nearest point ----------------------------------------------------

  function nearest(one, value) {
    let low = 0, high = one.x.length - 1;
    while (high - low > 1) { const middle = (low + high) >> 1; if (one.x[middle] < value) low = middle; else high = middle; }
    return Math.abs(one.x[low] - value) <= Math.abs(one.x[high] - value) ? low : high;
  }

  // `level`: of the pointer; the line nearest to it is the one that is picked.
  function point(value, aloud, level = null) {
    if (!X || !drawn.length) return;
    at = value;
    const formatX = FORMATS[given.x.format || "short"];
    const rows = drawn.map((one, place) => ({ one, place, near: nearest(one, value) }))
      .map((row) => ({ ...row, y: row.one.line[row.near], x: row.one.x[row.near] }))
      .filter((row) => Math.abs(X(row.x) - X(value)) < 40 && Number.isFinite(row.y));
    if (level !== null && rows.length) picked = rows.reduce((a, b) => (Math.abs(Y(a.y) - level) <= Math.abs(Y(b.y) - level) ? a : b)).place;
    const chosen = drawn[picked];
    put(cursor,
      chosen && drawn.length > 1 && svg("path", { d: trail(chosen), stroke: colourOf(chosen.colour), class: "line strong" }),
      svg("line", { x1: X(value), x2: X(value), y1: MARGIN.top, y2: height - MARGIN.bottom, class: "at" }),
      rows.filter((row) => rows.length <= DASHED || row.place === picked).map((row) => svg("circle", { cx: X(row.x), cy: Y(row.y), r: row.place === picked ? 5 : 3.5, fill: colourOf(row.one.colour) })));
    const near = Y(rows.find((row) => row.place === picked)?.y ?? rows[0]?.y);
    const shown = [...rows].sort((a, b) => Math.abs(Y(a.y) - near) - Math.abs(Y(b.y) - near)).slice(0, TOLD).sort((a, b) => b.y - a.y);
    put(tip, el("p", { class: "where" }, `${formatX(value)} ${given.x.label}`),
      shown.map((row) => el("p", { class: row.place === picked ? "picked" : null },
        el("i", { class: "swatch", style: { background: colourOf(row.one.colour) } }),
        el("span", {}, row.one.name), el("b", {}, number(row.y)))),
      rows.length > TOLD && el("p", { class: "where" }, `and ${rows.length - TOLD} more`));
    tip.hidden = false;
    const room = node.clientWidth, wide = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room - wide, X(value) > room / 2 ? X(value) - wide - 14 : X(value) + 14))}px`;
    if (aloud && drawn[picked]) {
      const row = rows.find((one) => one.place === picked);
      speak(`${drawn[picked].name}: ${row ? number(row.y) : "nothing"} at ${formatX(value)} ${given.x.label}`);
    }
  }

  function leave() { at = null; tip.hidden = true; put(cursor); }

  plot.addEventListener("pointermove", (event) => {
    if (!X) return;
    const box = plot.getBoundingClientRect();
    const grown = plot.viewBox.baseVal.width / box.width;
    point(X.back((event.clientX - box.left) * grown), false, (event.clientY - box.top) * grown);
  });
  plot.addEventListener("pointerleave", leave);
  plot.addEventListener("blur", leave);
  plot.addEventListener("keydown", (event) => {
    if (!X || !drawn.length) return;
    const one = drawn[Math.min(picked, drawn.length - 1)];
    const place = at === null ? one.x.length - 1 : nearest(one, at);
    const far = event.shiftKey ? Math.max(1, Math.round(one.x.length / 20)) : 1;
    const moves = { ArrowLeft: place - far, ArrowRight: place + far, Home: 0, End: one.x.length - 1 };
    if (event.key in moves) point(one.x[Math.max(0, Math.min(one.x.length - 1, moves[event.key]))], true);
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      picked = (picked + (event.key === "ArrowUp" ? drawn.length - 1 : 1)) % drawn.length;
      point(at === null ? drawn[picked].x.at(-1) : at, true);
    } else if (event.key === "Escape") leave();
    else return;
    event.preventDefault();
  });

  // -- the same in words -------------------------------------------------------------------------------------------------

  const everything = () => [["line", given?.x.label, given?.y.label], ...drawn.flatMap((one) => [...one.x].map((x, place) => [one.name, x, one.y[place]]))];

  function summary() {
    return drawn.map((one) => {
      const real = [...one.line].filter(Number.isFinite);
      return { name: one.name, points: one.x.length, first: real[0], last: real.at(-1), lowest: Math.min(...real), highest: Math.max(...real) };
    });
  }

  function describe() {
    const found = summary();
    put(words, given.caption && found.length ? given.caption : found.length
      ? `${given.y.label} against ${given.x.label}${given.x.log ? " (logarithmic)" : ""}; ${found.length === 1 ? `${found[0].name} ends at ${number(found[0].last)}` : `${found.length} lines`}.${given.sentence ? ` ${given.sentence}` : ""}`
      : "");
    plot.setAttribute("aria-label", `${words.textContent || label} Use the arrow keys to read values.`);
    node.querySelectorAll(".numbers").forEach((one) => { one.hidden = !found.length; });
    if (numbers.open) tabulate();
  }
  const tabulate = () => put(numbers, el("summary", {}, "As a table"),
    table(summary(), { name: "line", points: "points", first: "first", last: "last", lowest: "lowest", highest: "highest" }, { caption: label }));
  numbers.addEventListener("toggle", () => { if (numbers.open && !numbers.querySelector("table")) tabulate(); });

  const watch = new ResizeObserver(() => draw());
  watch.observe(node);
  return { node, draw, plot, end: () => { watch.disconnect(); cancelAnimationFrame(frame); } };
}
