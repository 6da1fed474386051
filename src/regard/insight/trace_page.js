"use strict";
// The page of a trace: choose a word, or move through time, and everything shows that step. Asks nobody for anything.

const trace = JSON.parse(document.getElementById("trace").textContent);
const words = trace.words; // read, written, source: the labels of every row and column
const part = (id) => document.getElementById(id);
const made = (kind, how) => Object.assign(document.createElement(kind), how);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
/** A word in quotes; one that runs from right to left keeps its direction to itself. */
const leftward = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;
const quoted = (word) => (leftward.test(word) ? `“\u2068${word}\u2069”` : `“${word}”`);
const chance = (p) => (p === null ? "–" : `${p >= 0.0995 ? (100 * p).toFixed(0) : (100 * p).toPrecision(2)} %`);

// -- numbers as shades: byte 0 is an empty cell, 1 to 255 go from the low end of the scale to its high end

const unpack = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
for (const map of [...trace.attention, ...trace.gradients, ...trace.inside]) map.bytes = unpack(map.bytes);
const screens = matchMedia("screen and (prefers-color-scheme: dark)");
const palettes = Object.fromEntries(Object.entries(trace.palettes).map(([screen, both]) =>
  [screen, both.map((colours) => colours.match(/.{6}/g).map((colour) => `#${colour}`))]));
const palette = (diverging = false) => palettes[screens.matches ? "dark" : "light"][diverging ? 1 : 0];
const value = (map, byte) => map.low + ((byte - 1) / 254) * (map.high - map.low);
const written = (map, byte) => {
  if (!byte) return "none";
  const found = value(map, byte);
  if (map.log) return String(Number((10 ** found).toPrecision(2)));
  return map.low === 0 && map.high === 1 ? found.toFixed(2) : found.toPrecision(3);
};

/** Black or white, whichever is read more easily on a colour. */
function ink(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "black" : "white";
}

/** The place of a byte on the palette, 0 to 254; small weights of many words are told apart by their square root. */
const shade = (map, byte) => Math.round(map.root ? Math.sqrt((byte - 1) * 254) : byte - 1);

/** The byte of one cell of an attention: of a head, or the mean of all heads (head −1). */
function weight(map, head, row, column) {
  const across = words[map.columns].length, size = words[map.rows].length * across, at = row * across + column;
  if (head >= 0) return map.bytes[head * size + at];
  let sum = 0;
  for (let one = 0; one < map.heads.length; one++) sum += map.bytes[one * size + at];
  return map.bytes[at] ? sum / map.heads.length : 0;
}

// -- what is chosen: a step, and perhaps a word of the source

const lastOf = (test) => trace.attention.findLastIndex(test);
const one = (map) => ({ map, head: map >= 0 && trace.attention[map].heads.length === 1 ? 0 : -1 });
const state = {
  step: trace.opens,
  source: trace.task === "classification" && lastOf((map) => map.rows === "source") >= 0 ? 0 : null,
  pick: { read: one(lastOf((map) => map.rows === "read")), source: one(lastOf((map) => map.rows === "written")) },
  encoder: one(lastOf((map) => map.rows === "source")),
};
state.last = [state.pick.source, state.pick.read, state.encoder].find((one) => one.map >= 0) ?? null;
const chips = { source: words.source, target: words.source.length ? words.written : words.read };
const readBy = (index) => (words.source.length ? index + 1 : index); // where a chip of the target is read, if it is

function choose(side, index) {
  if (side === "target") { state.step = index; state.source = null; }
  else state.source = state.source === index ? null : index;
  draw();
}

const sideOf = (rows) => (rows === "source" ? "source" : "target");

function look(map, head) {
  const picked = { map, head }, { rows, columns } = trace.attention[map];
  if (rows === "source") state.encoder = picked; else state.pick[columns] = picked;
  state.last = picked;
  part("shading").value = "attention";
  draw();
}

// -- a matrix on a canvas: pointer, touch and arrow keys tell the value of a cell

function heat(canvas, { rows, columns, byte, map, diverging = false, leftward = false, marked = {}, pick, tell,
                        tall = [7, 30] }) {
  const style = getComputedStyle(document.documentElement), pen = canvas.getContext("2d");
  const ratio = window.devicePixelRatio || 1, font = "13px system-ui, 'DejaVu Sans', sans-serif";
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  pen.font = font;
  const longest = (labels, most) => Math.min(most, Math.max(0, ...labels.map((label) => pen.measureText(label).width)));
  const whole = canvas.parentElement.clientWidth, left = longest(rows, Math.min(230, whole / 3)) + 10;
  const need = longest(columns, 999) + 6;
  let wide = clamp((whole - left - 2) / columns.length, 6, 150);
  const turned = need > wide, slant = turned ? Math.min(60, 0.5 * need) : 0;
  if (turned) wide = clamp((whole - left - slant) / columns.length, 6, 150);
  const high = clamp(Math.min(Math.max(wide, 24), 640 / rows.length), ...tall);
  const top = turned ? longest(columns, 110) * 0.87 + 16 : 22;
  const width = left + wide * columns.length + slant, height = top + high * rows.length + 2;
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const at = (column) => (leftward ? columns.length - 1 - column : column); // scripts that run from right to left
  const colours = palette(diverging), snap = (place) => Math.round(place * ratio) / ratio; // no seams
  const told = wide >= 44 && high >= 20 && rows.length * columns.length <= 400;
  pen.font = "12px system-ui, 'DejaVu Sans', sans-serif"; pen.textAlign = "center"; pen.textBaseline = "middle";
  for (let row = 0; row < rows.length; row++)
    for (let column = 0; column < columns.length; column++) {
      const found = byte(row, column);
      if (!found) continue;
      const fill = colours[shade(map, found)];
      const [x, y] = [left + wide * at(column), top + high * row].map(snap);
      pen.fillStyle = fill;
      pen.fillRect(x, y, snap(left + wide * (at(column) + 1)) - x, snap(top + high * (row + 1)) - y);
      if (told) { pen.fillStyle = ink(fill); pen.fillText(written(map, found), x + wide / 2, y + high / 2 + 1); }
    }
  pen.font = font; pen.fillStyle = colour("ink"); pen.textAlign = "right";
  for (let row = 0; row < rows.length; row += Math.ceil(15 / high))
    pen.fillText(fitted(pen, rows[row], left - 10), left - 6, top + high * (row + 0.5));
  pen.textAlign = turned ? "left" : "center";
  for (let column = 0; column < columns.length; column += turned ? Math.ceil(14 / wide) : 1) {
    pen.save();
    pen.translate(left + wide * (at(column) + 0.5), top - 10);
    if (turned) pen.rotate(-Math.PI / 3);
    pen.fillText(fitted(pen, columns[column], turned ? 110 : wide), 0, 0);
    pen.restore();
  }
  const frame = (x, y, across, down) => { pen.lineWidth = 2; pen.strokeRect(x + 1, y + 1, across - 2, down - 2); };
  pen.strokeStyle = colour("mark");
  if (marked.row !== undefined) frame(left, top + high * marked.row, wide * columns.length, high);
  if (marked.column !== undefined) frame(left + wide * at(marked.column), top, wide, high * rows.length);
  const saying = part(`${canvas.id}-cell`);
  if (canvas.cell && (canvas.cell[0] >= rows.length || canvas.cell[1] >= columns.length)) canvas.cell = null;
  if (canvas.cell && document.activeElement === canvas) {
    pen.strokeStyle = colour("accent");
    frame(left + wide * at(canvas.cell[1]), top + high * canvas.cell[0], wide, high);
  }
  saying.textContent = canvas.cell ? tell(...canvas.cell) : "";
  const place = (event) => {
    const row = Math.floor((event.offsetY - top) / high), column = at(Math.floor((event.offsetX - left) / wide));
    return row >= 0 && row < rows.length && column >= 0 && column < columns.length ? [row, column] : null;
  };
  const again = () => heat(canvas, { rows, columns, byte, map, diverging, leftward, marked, pick, tell, tall });
  canvas.onpointermove = (event) => {
    const cell = place(event);
    if (cell) { canvas.cell = cell; saying.textContent = tell(...cell); }
  };
  canvas.onclick = (event) => {
    const cell = place(event);
    if (!cell) return;
    canvas.cell = cell;
    saying.textContent = tell(...cell);
    if (pick) pick(...cell);
  };
  canvas.onkeydown = (event) => {
    const way = leftward ? -1 : 1;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -way], ArrowRight: [0, way] };
    const [row, column] = canvas.cell ?? [marked.row ?? 0, marked.column ?? 0];
    if (moves[event.key]) {
      const [down, across] = canvas.cell ? moves[event.key] : [0, 0];
      canvas.cell = [clamp(row + down, 0, rows.length - 1), clamp(column + across, 0, columns.length - 1)];
      again();
    } else if ((event.key === "Enter" || event.key === " ") && pick) pick(row, column);
    else return;
    event.preventDefault();
  };
  canvas.onfocus = canvas.onblur = again;
  canvas.classList.toggle("pick", Boolean(pick));
}

function fitted(pen, label, most) {
  while (label.length > 2 && pen.measureText(label).width > most) label = label.slice(0, -2) + "…";
  return label;
}

function ramp(element, map, what) {
  const colours = Array.from({ length: 21 }, (_, step) => palette(map.diverging)[shade(map, 1 + 12.7 * step)]);
  element.replaceChildren(made("span", { textContent: written(map, 1) }),
    made("i", { style: `background: linear-gradient(to right, ${colours.join(",")})` }),
    made("span", { textContent: `${written(map, 255)} ${what}` }));
}

// -- words, and how they are shaded

/** A word with the spaces at its ends in a quieter colour. */
function lettered(element, word) {
  element.replaceChildren(...word.split(/(␣+)/).filter(Boolean).map((piece) =>
    piece.startsWith("␣") && word !== piece ? made("i", { textContent: piece }) : piece));
  return element;
}

function makeChips(side) {
  const box = part(`${side}-words`);
  if (!box) return;
  chips[side].forEach((word, index) => {
    const button = lettered(made("button", { type: "button", dir: "auto" }), word);
    button.onclick = () => choose(side, index);
    box.append(button);
  });
}

/** Shade and text of a word, by what the reader asked for; null where there is nothing to say of it. */
function shading(side, index) {
  const how = part("shading").value, kind = side === "source" ? "source" : "read";
  const column = side === "source" ? index : readBy(index);
  if (side === "target" && how !== "probability" && column >= words.read.length) return null;
  if (how === "probability") {
    const p = side === "source" ? null : trace.probability[words.source.length ? index : index - 1] ?? null;
    return p === null ? null : { colour: Math.round(254 * p), said: `probability ${chance(p)}` };
  }
  if (how === "gradient") {
    const map = trace.gradients.find((one) => one.words && one.columns === kind);
    if (!map) return null;
    const byte = map.bytes[state.step * words[kind].length + column];
    return byte ? { colour: byte - 1, said: `gradient ${written(map, byte)}` } : null;
  }
  const chosen = state.source !== null ? (side === "source" ? state.encoder : { map: -1 }) : state.pick[kind];
  if (chosen.map < 0) return null;
  const map = trace.attention[chosen.map], byte = weight(map, chosen.head, state.source ?? state.step, column);
  return byte ? { colour: shade(map, byte), said: `${headName(chosen)}: ${written(map, byte)}` } : null;
}

function shadeWords() {
  for (const side of ["source", "target"]) {
    const box = part(`${side}-words`);
    if (!box) continue;
    [...box.querySelectorAll("button")].forEach((button, index) => {
      const found = shading(side, index), colour = found ? palette()[found.colour] : "";
      button.style.background = colour;
      button.style.color = colour ? ink(colour) : "";
      button.title = found ? found.said : "";
      const [place, at] = state.source === null ? ["target", state.step] : ["source", state.source];
      button.setAttribute("aria-pressed", side === place && index === at);
    });
  }
}

const headName = ({ map, head }) => (head >= 0 ? trace.attention[map].heads[head] : trace.attention[map].mean);

// -- the parts of the page

function drawSaid() {
  const step = state.step, best = trace.top[step]?.[0], said = [];
  const place = `Step ${step + 1} of ${words.read.length}`;
  if (trace.task !== "classification") said.push(`${place} read ${quoted(words.read[step])}.`);
  const verb = trace.task === "classification" ? "answers" : "expected";
  if (best) said.push(`It ${verb} ${quoted(best[0])} (${chance(best[1])}); entropy ${trace.entropy[step]} nats.`);
  const came = quoted(words.written[step]), likely = chance(trace.probability[step]);
  if (trace.known[step]) said.push(`Then came ${came}: ${likely}, rank ${trace.rank[step]}.`);
  if (trace.order)
    said.push(`Order ${trace.order[step]} gave its probability, times back-off weights of ${trace.backoff[step]}.`);
  for (const [kind, chosen] of Object.entries(state.source === null ? state.pick : { source: state.encoder })) {
    if (chosen.map < 0) continue;
    const row = state.source ?? state.step, map = trace.attention[chosen.map];
    const bytes = words[kind].map((_, index) => weight(map, chosen.head, row, index));
    const most = bytes.indexOf(Math.max(...bytes));
    const name = headName(chosen), where = name[0].toLowerCase() + name.slice(1);
    const looked = `${quoted(words[map.rows][row])} looked most at ${quoted(words[kind][most])}`;
    said.push(`In ${where}, ${looked} (${written(map, bytes[most])}).`);
  }
  part("said").textContent = said.join(" ");
}

function drawChoices() {
  const box = part("choices"), step = state.step, truth = trace.known[step] ? words.written[step] : null;
  const rows = trace.top[step].map(([word, p], index) => [word, p, trace.right[step][index]]);
  if (truth && !rows.some((row) => row[2])) rows.push([truth, trace.probability[step], true]);
  box.replaceChildren(...rows.flatMap(([word, p, right]) => {
    const cells = ["word", "chance", "number"].map((kind) => made("div", { className: kind + (right ? " true" : "") }));
    lettered(cells[0], word);
    cells[1].style.width = `${100 * p}%`;
    cells[2].textContent = chance(p) + (right ? " · came" : "");
    return cells;
  }));
}

/** For the chosen word: a row for each head of each layer, a column for each word it can look at. */
function drawHeads() {
  if (!trace.attention.length) return;
  const side = state.source === null ? "target" : "source", row = state.source ?? state.step;
  for (const columns of ["source", "read"]) {
    const canvas = part(`heads-${columns}`);
    const heads = trace.attention.flatMap((one, map) =>
      sideOf(one.rows) === side && one.columns === columns ? one.heads.map((_, head) => ({ map, head })) : []);
    canvas.parentElement.parentElement.hidden = !heads.length;
    if (!heads.length) continue;
    const { rows } = trace.attention[heads[0].map];
    part(`heads-${columns}-said`).textContent = rows === "written"
      ? `Before it wrote ${quoted(words.written[row])}, it looked in the source at:`
      : `From ${quoted(words[rows][row])} it looked ${columns === "source" ? "in the source" : "back"} at:`;
    const byte = (one, column) => weight(trace.attention[heads[one].map], heads[one].head, row, column);
    const marked = heads.findIndex((one) => state.last && one.map === state.last.map && one.head === state.last.head);
    heat(canvas, {
      rows: heads.map(({ map, head }) => trace.attention[map].brief[head]), columns: words[columns],
      map: trace.attention[heads[0].map],
      byte, leftward: trace.leftward[columns],
      marked: marked >= 0 ? { row: marked } : {},
      pick: (one) => look(heads[one].map, heads[one].head),
      tell: (one, column) => {
        const found = written(trace.attention[0], byte(one, column));
        return `${headName(heads[one])} · ${quoted(words[columns][column])}: ${found}`;
      },
      tall: [12, 26],
    });
  }
  const chosen = state.last, map = trace.attention[chosen.map];
  part("map").value = `${chosen.map}:${chosen.head}`;
  const cell = (r, c) => weight(map, chosen.head, r, c);
  heat(part("matrix"), {
    rows: words[map.rows], columns: words[map.columns], map, byte: cell, leftward: trace.leftward[map.columns],
    marked: sideOf(map.rows) === side ? { row } : {},
    pick: (r) => choose(sideOf(map.rows), r),
    tell: (r, c) => {
      const [looking, seen] = [words[map.rows][r], words[map.columns][c]].map(quoted);
      return `${looking} looked at ${seen}: ${written(map, cell(r, c))}`;
    },
  });
  ramp(part("matrix-ramp"), map, "weight");
}

function drawGradients() {
  if (!trace.gradients.length) return;
  const map = trace.gradients[part("gradient").value], columns = words[map.columns];
  const byte = (row, column) => map.bytes[row * columns.length + column];
  heat(part("gradient-map"), {
    rows: words.written, columns, map, byte, leftward: trace.leftward[map.columns],
    marked: { row: state.step }, pick: (row) => choose("target", row),
    tell: (row, column) =>
      `loss of ${quoted(words.written[row])} by ${quoted(columns[column])}: ${written(map, byte(row, column))}`,
  });
  ramp(part("gradient-ramp"), map, "norm of the gradient; no shade: exactly 0");
}

function drawInside() {
  if (!trace.inside.length) return;
  const map = trace.inside[part("part").value], columns = words[map.columns];
  const at = map.columns === "read" ? state.step : state.source;
  const byte = (unit, step) => map.bytes[step * map.units + unit];
  heat(part("inside-map"), {
    rows: Array.from({ length: map.units }, (_, unit) => String(unit)), columns, map, diverging: map.diverging,
    byte, leftward: trace.leftward[map.columns],
    marked: at === null ? {} : { column: at }, pick: (_, step) => choose(sideOf(map.columns), step),
    tell: (unit, step) => `unit ${unit} after ${quoted(columns[step])}: ${written(map, byte(unit, step))}`,
    tall: [3, 14],
  });
  ramp(part("inside-ramp"), map, "value");
}

function draw() {
  part("step").value = state.step;
  part("at").textContent = `${state.step + 1} / ${words.read.length}`;
  shadeWords(); drawSaid(); drawChoices(); drawHeads(); drawGradients(); drawInside();
}

function option(select, value, text) { select.append(new Option(text, value)); }

makeChips("source");
makeChips("target");
part("step").max = words.read.length - 1;
part("step").oninput = (event) => choose("target", Number(event.target.value));
if (trace.attention.length) option(part("shading"), "attention", "what it looked at");
if (trace.gradients.length) option(part("shading"), "gradient", "what the loss of this step depends on");
if (part("target-words")) option(part("shading"), "probability", "how probable each word was");
part("shading").parentElement.hidden = !part("shading").options.length;
part("shading").onchange = draw;
trace.attention.forEach((map, index) => {
  if (map.heads.length > 1) option(part("map"), `${index}:-1`, map.mean);
  map.heads.forEach((name, head) => option(part("map"), `${index}:${head}`, name));
});
if (trace.attention.length) part("map").onchange = (event) => look(...event.target.value.split(":").map(Number));
trace.gradients.forEach((map, index) => option(part("gradient"), index, map.title));
trace.inside.forEach((map, index) => option(part("part"), index, map.title));
for (const id of ["gradient", "part"]) if (part(id)) part(id).onchange = draw;
let waiting = 0;
addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(draw); });
screens.addEventListener("change", draw);
draw();
