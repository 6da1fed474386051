// A heat map on a canvas: rows and columns that follow pointer and keyboard, a spoken read-out, a table instead.
//
//   const map = heatMap({ label: "attention, layer 1, head 3" });
//   root.append(map.node);
//   map.draw({ rows: ["the", "cat"], columns: ["the", "cat"], array, across: "reads", down: "position",
//              unit: "attention weight", diverging: false, describe: (row, column, value) => "cat looks at the: 0.31" });
//   map.end();
//
// `array` is one of api.arrays(): {data, shape, low, high}, row after row; `start` says where the map begins in it, so that
// 144 heads are one array. `onPoint(row, column)` is called as the cursor moves (−1, −1: it left), `onPick` at a click or
// Enter; `map.point(row, column)` moves the cursor from outside, so that two maps can follow each other.
// `unit` names what the scale measures and is shown beside it; `power` says that `array` holds powers of ten: the scale,
// the table and the file then have the numbers themselves, and the scale says that it is logarithmic.
// Further: `causal` leaves the cells above the diagonal empty, `root` shades by the square root (small weights of many
// words), `leftward` puts the first column right, `tall` is the height of a cell where it is no square, and `finest` the
// least width of one.
// Many small maps at once: sheet.js.

import { isDark } from "./address.js";
import { valueAt } from "./arrays.js";
import * as colours from "./colours.js";
import { el, isolated, number, put, speak } from "./dom.js";
import { saves } from "./saving.js";

export const shadesOf = (diverging) => colours[`${diverging ? "diverging" : "sequential"}${isDark() ? "Dark" : "Light"}`];

// The colour of a value, as one number: alpha, blue, green, red. `low` and `high` are the values at the ends of the scale.
function colouring({ array, diverging = false, root = false, low = array.low, high = array.high }) {
  const shades = shadesOf(diverging), last = shades.length / 3 - 1;
  const ends = diverging ? Math.max(Math.abs(low), Math.abs(high)) || 1 : 0;
  const from = diverging ? -ends : low, reach = (diverging ? 2 * ends : high - low) || 1;
  return (value) => {
    if (!Number.isFinite(value)) return 0;
    const share = Math.max(0, Math.min(1, (value - from) / reach)), shade = 3 * Math.round((root ? Math.sqrt(share) : share) * last);
    return ((255 << 24) | (shades[shade + 2] << 16) | (shades[shade + 1] << 8) | shades[shade]) >>> 0;
  };
}

// The colours of the 256 values that an array of bytes can have.
export function colourTable(options) {
  const { low, high } = options.array, colour = colouring(options);
  return Uint32Array.from({ length: 256 }, (_, byte) => colour(low + (byte / 255) * (high - low)));
}

// The cells alone, one pixel each.
function pixels(options) {
  const { array, start = 0, height, width, causal = false } = options, image = new ImageData(width, height);
  const bytes = array.data instanceof Uint8Array, shades = bytes ? colourTable(options) : null, colour = colouring(options);
  const out = new Uint32Array(image.data.buffer);
  for (let row = 0, place = 0; row < height; row++) {
    for (let column = 0; column < width; column++, place++) {
      if (!causal || column <= row) out[place] = bytes ? shades[array.data[start + place]] : colour(array.data[start + place]);
    }
  }
  return image;
}

const FONT = 12, GAP = 6, SMALLEST = 5, LARGEST = 34;

export function heatMap({ label, onPoint = () => {}, onPick = () => {} }) {
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "heat map", "aria-label": label });
  const readout = el("p", { class: "readout" });
  const scale = el("div", { class: "scale" });
  const numbers = el("details", { class: "numbers" }, el("summary", {}, "As a table"));
  const node = el("figure", { class: "heat" }, el("div", { class: "scroll" }, canvas), readout, scale, numbers,
    saves(() => label, { canvas: () => canvas, rows: () => [["", ...given.columns], ...given.rows.map((word, row) => [word, ...given.columns.map((_, column) => measured(value(row, column)))])] }));
  let given = null, at = [-1, -1], box = null, frame = 0;
  const cells = document.createElement("canvas");

  const value = (row, column) => valueAt(given.array, (given.start || 0) + row * given.columns.length + column);
  const measured = (one) => (given.power ? 10 ** one : one);
  const placed = (column) => (given.leftward ? given.columns.length - 1 - column : column);
  const told = (row, column) => given.describe
    ? given.describe(row, column, value(row, column))
    : `${isolated(given.rows[row])}, ${isolated(given.columns[column])}: ${number(measured(value(row, column)), 3)}`;

  function draw(next) {
    if (next) {
      given = next;
      if (at[0] >= given.rows.length || at[1] >= given.columns.length) at = [-1, -1];
      numbers.open = false;
    }
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  }

  function measure(context) {
    context.font = `${FONT}px system-ui, sans-serif`;
    const wide = (words) => Math.min(150, Math.ceil(Math.max(0, ...words.map((word) => context.measureText(word).width))));
    const left = wide(given.rows) + GAP, top = wide(given.columns) + GAP;
    const room = (node.clientWidth || 600) - left - 2, share = room / Math.max(1, given.columns.length);
    const wide_ = Math.max(given.finest || SMALLEST, Math.min(given.largest || LARGEST, given.tall ? share : Math.floor(share))), high = given.tall || wide_;
    return { left, top, wide: wide_, high, width: wide_ * given.columns.length, height: high * given.rows.length };
  }

  function paint() {
    if (!given) return;
    const context = canvas.getContext("2d");
    box = measure(context);
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [box.left + box.width + 2, box.top + box.height + 2];
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${high}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    cells.width = given.columns.length;
    cells.height = given.rows.length;
    cells.getContext("2d", { willReadFrequently: true }).putImageData(pixels({ ...given, height: given.rows.length, width: given.columns.length }), 0, 0);
    context.imageSmoothingEnabled = false;
    context.save();
    context.translate(given.leftward ? box.left + box.width : box.left, box.top);
    context.scale(given.leftward ? -1 : 1, 1);
    context.drawImage(cells, 0, 0, box.width, box.height);
    context.restore();
    const style = getComputedStyle(node);
    const ink = style.getPropertyValue("--ink"), quiet = style.getPropertyValue("--quiet"), mark = style.getPropertyValue("--mark");
    context.font = `${FONT}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const skip = Math.ceil((FONT + 2) / box.high), skipColumns = Math.ceil((FONT + 2) / box.wide);
    const hidden = (place, chosen, every) => place !== chosen && (place % every > 0 || (chosen >= 0 && Math.abs(place - chosen) < every)); // the chosen one's neighbours make room
    context.textAlign = "right";
    given.rows.forEach((word, row) => {
      if (hidden(row, at[0], skip)) return;
      context.fillStyle = row === at[0] ? mark : at[0] < 0 ? ink : quiet;
      context.fillText(word, box.left - GAP, box.top + (row + 0.5) * box.high, box.left - GAP);
    });
    context.textAlign = "left";
    given.columns.forEach((word, column) => {
      if (hidden(column, at[1], skipColumns)) return;
      context.save();
      context.translate(box.left + (placed(column) + 0.5) * box.wide, box.top - GAP);
      context.rotate(-Math.PI / 2);
      context.fillStyle = column === at[1] ? mark : at[1] < 0 ? ink : quiet;
      context.fillText(word, 0, 0, box.top - GAP);
      context.restore();
    });
    if (at[0] >= 0) {
      context.strokeStyle = mark;
      context.lineWidth = 1;
      context.strokeRect(box.left + 0.5, box.top + at[0] * box.high + 0.5, box.width - 1, box.high - 1);
      context.strokeRect(box.left + placed(at[1]) * box.wide + 0.5, box.top + 0.5, box.wide - 1, box.height - 1);
      context.lineWidth = 2.5;
      context.strokeRect(box.left + placed(at[1]) * box.wide, box.top + at[0] * box.high, box.wide, box.high);
    }
    readout.textContent = at[0] >= 0 ? told(...at) : given.sentence || "";
    legend();
  }

  function legend() {
    const { diverging = false, array } = given;
    const low = given.low ?? array.low, high = given.high ?? array.high;
    const ends = diverging ? Math.max(Math.abs(low), Math.abs(high)) || 1 : 0;
    const shades = shadesOf(diverging);
    const stops = [0, 0.25, 0.5, 0.75, 1].map((share) => { const place = 3 * Math.round(share * (shades.length / 3 - 1)); return `rgb(${shades.slice(place, place + 3).join(",")})`; });
    const ramp = el("i", { style: { background: `linear-gradient(to right, ${stops.join(",")})` } });
    const how = given.power ? "logarithmic scale" : given.root ? "shaded by the square root" : "";
    put(scale, number(measured(diverging ? -ends : low), 3), ramp, number(measured(diverging ? ends : high), 3), el("span", {}, [given.unit, how].filter(Boolean).join(", ")));
  }

  function point(row, column, { aloud = false, quietly = false } = {}) {
    if (!given || (row === at[0] && column === at[1])) return;
    at = [row, column];
    draw();
    if (aloud && row >= 0) speak(told(row, column));
    if (!quietly) onPoint(row, column);
  }

  function cellAt(event) {
    const place = canvas.getBoundingClientRect();
    const zoom = canvas.currentCSSZoom || 1, across = Math.floor(((event.clientX - place.left) / zoom - box.left) / box.wide), row = Math.floor(((event.clientY - place.top) / zoom - box.top) / box.high);
    const column = placed(across);
    return row >= 0 && column >= 0 && row < given.rows.length && column < given.columns.length ? [row, column] : [-1, -1];
  }

  canvas.addEventListener("pointermove", (event) => { if (box) point(...cellAt(event)); });
  canvas.addEventListener("pointerleave", () => { if (document.activeElement !== canvas) point(-1, -1); });
  canvas.addEventListener("blur", () => point(-1, -1));
  canvas.addEventListener("click", (event) => { if (box) { const [row, column] = cellAt(event); if (row >= 0) onPick(row, column); } });
  canvas.addEventListener("focus", () => { if (given && at[0] < 0 && canvas.matches(":focus-visible")) point(0, 0, { aloud: true }); });
  canvas.addEventListener("keydown", (event) => {
    if (!given) return;
    const [row, column] = [Math.max(0, at[0]), Math.max(0, at[1])], far = event.shiftKey ? 10 : 1, way = given.leftward ? -far : far;
    const moves = {
      ArrowUp: [row - far, column], ArrowDown: [row + far, column], ArrowLeft: [row, column - way], ArrowRight: [row, column + way],
      Home: [row, 0], End: [row, given.columns.length - 1], PageUp: [0, column], PageDown: [given.rows.length - 1, column],
    };
    if (event.key in moves) {
      const [down, across] = moves[event.key];
      point(Math.max(0, Math.min(given.rows.length - 1, down)), Math.max(0, Math.min(given.columns.length - 1, across)), { aloud: true });
    } else if (event.key === "Enter" || event.key === " ") onPick(row, column);
    else if (event.key === "Escape") point(-1, -1);
    else return;
    event.preventDefault();
  });

  // The numbers, made when they are asked for: at most a few thousand cells.
  numbers.addEventListener("toggle", () => {
    if (!numbers.open || !given) return;
    const rows = given.rows.slice(0, 100), columns = given.columns.slice(0, 60);
    put(numbers, el("summary", {}, "As a table"),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", {}, given.unit && el("caption", {}, given.unit),
        el("thead", {}, el("tr", {}, el("td"), columns.map((word) => el("th", { scope: "col", dir: "auto" }, word)))),
        el("tbody", {}, rows.map((word, row) => el("tr", {}, el("th", { scope: "row", dir: "auto" }, word),
          columns.map((_, column) => el("td", { class: "right" }, number(measured(value(row, column)), 3)))))))));
  });

  const watch = new ResizeObserver(() => draw());
  watch.observe(node);
  const onTheme = () => draw();
  addEventListener("theme", onTheme);
  return { node, draw, point: (row, column) => point(row, column, { quietly: true }), canvas,
    end: () => { watch.disconnect(); removeEventListener("theme", onTheme); cancelAnimationFrame(frame); } };
}
