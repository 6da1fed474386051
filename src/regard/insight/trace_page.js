"use strict";
// The page of a trace: choose a word, or move through time, and everything shows that step. Asks nobody for anything.

const trace = JSON.parse(document.getElementById("trace").textContent);
const words = { target: trace.tokens, source: trace.source };
const part = (id) => document.getElementById(id);
const made = (kind, how) => Object.assign(document.createElement(kind), how);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const shown = (word) => word.replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
const bare = (word) => shown(word).trim() || "␣";
const chance = (p) => (p === null ? "–" : `${p >= 0.0995 ? (100 * p).toFixed(0) : (100 * p).toPrecision(2)} %`);

// -- numbers as shades: byte 0 is an empty cell, 1 to 255 go from the low end of the scale to its high end

const unpack = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
for (const map of [...trace.attention, ...trace.gradients, ...trace.inside]) map.bytes = unpack(map.bytes);
const palettes = trace.palettes.map((colours) => colours.match(/.{6}/g).map((colour) => `#${colour}`));
const value = (map, byte) => map.low + ((byte - 1) / 254) * (map.high - map.low);
const written = (map, byte) => {
  if (!byte) return "none";
  const found = value(map, byte);
  if (map.log) return String(Number((10 ** found).toPrecision(2)));
  return map.low === 0 && map.high === 1 ? found.toFixed(2) : found.toPrecision(3);
};

/** The place of a byte on the palette, 0 to 254; small weights of many words are told apart by their square root. */
const shade = (map, byte) => Math.round(map.root ? Math.sqrt((byte - 1) * 254) : byte - 1);

/** The byte of one cell of an attention: of a head, or the mean of all heads (head −1). */
function weight(map, head, row, column) {
  const size = map.rows * map.columns, at = row * map.columns + column;
  if (head >= 0) return map.bytes[head * size + at];
  let sum = 0;
  for (let one = 0; one < map.heads; one++) sum += map.bytes[one * size + at];
  return map.bytes[at] ? sum / map.heads : 0;
}

// -- what is chosen

const mine = (map) => map.looking === "target";
const lastOf = (test) => trace.attention.findLastIndex(test);
const state = {
  step: Math.max(0, trace.targets.findLastIndex((word) => word !== "")),
  source: null, // a word of the source, where one was chosen
  pick: { target: { map: lastOf((map) => mine(map) && map.seen === "target"), head: -1 },
          source: { map: lastOf((map) => mine(map) && map.seen === "source"), head: -1 } },
  encoder: { map: lastOf((map) => !mine(map)), head: -1 },
};
state.last = [state.pick.source, state.pick.target, state.encoder].find((one) => one.map >= 0) ?? null;

function choose(side, index) {
  if (side === "target") { state.step = index; state.source = null; } else { state.source = index; }
  draw();
}

function look(map, head) {
  const picked = { map, head };
  if (mine(trace.attention[map])) state.pick[trace.attention[map].seen] = picked; else state.encoder = picked;
  state.last = picked;
  part("shading").value = "attention";
  draw();
}

// -- a matrix on a canvas

function heat(canvas, { rows, columns, byte, map, diverging = false, marked = {}, pick, tell, tall = [6, 26] }) {
  const style = getComputedStyle(document.body), pen = canvas.getContext("2d"), ratio = window.devicePixelRatio || 1;
  const font = "13px system-ui, 'DejaVu Sans', sans-serif";
  pen.font = font;
  const longest = (labels, most) => Math.min(most, Math.max(0, ...labels.map((label) => pen.measureText(label).width)));
  const left = longest(rows, 150) + 8, room = canvas.parentElement.clientWidth - left - 30;
  const wide = clamp(room / columns.length, 5, 34), high = clamp(Math.min(wide, 640 / rows.length), ...tall);
  const turned = longest(columns, 999) > wide - 3, top = turned ? longest(columns, 110) * 0.87 + 14 : 20;
  const width = left + wide * columns.length + (turned ? 40 : 4), height = top + high * rows.length + 2;
  canvas.width = width * ratio; canvas.height = height * ratio;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const palette = palettes[diverging ? 1 : 0], snap = (place) => Math.round(place * ratio) / ratio; // no seams
  for (let row = 0; row < rows.length; row++)
    for (let column = 0; column < columns.length; column++) {
      const found = byte(row, column);
      if (!found) continue;
      pen.fillStyle = palette[shade(map, found)];
      const [x, y] = [left + wide * column, top + high * row].map(snap);
      pen.fillRect(x, y, snap(left + wide * (column + 1)) - x, snap(top + high * (row + 1)) - y);
    }
  pen.font = font; pen.fillStyle = style.color; pen.textBaseline = "middle"; pen.textAlign = "right";
  for (let row = 0; row < rows.length; row += Math.ceil(15 / high))
    pen.fillText(fitted(pen, rows[row], 150), left - 6, top + high * (row + 0.5));
  pen.textAlign = turned ? "left" : "center";
  for (let column = 0; column < columns.length; column += turned ? Math.ceil(14 / wide) : 1) {
    pen.save();
    pen.translate(left + wide * (column + 0.5), top - 9);
    if (turned) pen.rotate(-Math.PI / 3);
    pen.fillText(fitted(pen, columns[column], 110), 0, 0);
    pen.restore();
  }
  pen.strokeStyle = "#D55E00"; pen.lineWidth = 2;
  if (marked.row !== undefined) pen.strokeRect(left, top + high * marked.row, wide * columns.length, high);
  if (marked.column !== undefined) pen.strokeRect(left + wide * marked.column, top, wide, high * rows.length);
  const place = (event) => {
    const row = Math.floor((event.offsetY - top) / high), column = Math.floor((event.offsetX - left) / wide);
    return row >= 0 && row < rows.length && column >= 0 && column < columns.length ? [row, column] : null;
  };
  canvas.onmousemove = (event) => { const at = place(event); canvas.title = at ? tell(...at) : ""; };
  canvas.onclick = (event) => { const at = place(event); if (at && pick) pick(...at); };
  canvas.classList.toggle("pick", Boolean(pick));
}

function fitted(pen, label, most) {
  while (label.length > 2 && pen.measureText(label).width > most) label = label.slice(0, -2) + "…";
  return label;
}

function ramp(element, map, what) {
  const palette = palettes[map.diverging ? 1 : 0];
  const colours = Array.from({ length: 21 }, (_, step) => palette[shade(map, 1 + 12.7 * step)]);
  element.replaceChildren(made("span", { textContent: written(map, 1) }),
    made("i", { style: `background: linear-gradient(to right, ${colours.join(",")})` }),
    made("span", { textContent: `${written(map, 255)} ${what}` }));
}

// -- words, and how they are shaded

function chips(side) {
  const box = part(`${side}-words`);
  if (!box) return;
  words[side].forEach((word, index) => {
    const button = made("button", { type: "button", textContent: shown(word) });
    button.onclick = () => choose(side, index);
    box.append(button);
  });
}

/** Shade and text of a word, by what the reader asked for; null where there is nothing to say of it. */
function shading(side, index) {
  const how = part("shading").value;
  if (how === "probability") {
    if (side === "source" || index === 0) return null;
    const p = trace.probability[index - 1];
    return p === null ? null : { colour: Math.round(254 * p), said: `probability ${chance(p)}` };
  }
  if (how === "gradient") {
    const map = trace.gradients.find((one) => one.of === side);
    if (!map) return null;
    const byte = map.bytes[state.step * map.columns + index];
    return byte ? { colour: byte - 1, said: `gradient ${written(map, byte)}` } : null;
  }
  const chosen = state.source !== null ? (side === "source" ? state.encoder : { map: -1 }) : state.pick[side];
  if (chosen.map < 0) return null;
  const map = trace.attention[chosen.map], byte = weight(map, chosen.head, state.source ?? state.step, index);
  return byte ? { colour: shade(map, byte), said: `${headName(chosen)}: ${written(map, byte)}` } : null;
}

function shadeWords() {
  for (const side of ["source", "target"]) {
    const box = part(`${side}-words`);
    if (!box) continue;
    [...box.querySelectorAll("button")].forEach((button, index) => {
      const found = shading(side, index);
      button.style.background = found ? palettes[0][found.colour] : "";
      button.style.color = found ? (found.colour > 130 ? "#fff" : "#000") : "";
      button.title = found ? found.said : "";
      const [place, at] = state.source === null ? ["target", state.step] : ["source", state.source];
      button.setAttribute("aria-pressed", side === place && index === at);
    });
  }
}

const headName = ({ map, head }) => {
  const heads = trace.attention[map].heads;
  return trace.attention[map].name + (head >= 0 && heads > 1 ? `, head ${head}` : heads > 1 ? ", mean of heads" : "");
};

// -- the parts of the page

function drawSaid() {
  const step = state.step, best = trace.top[step]?.[0], truth = trace.targets[step];
  const said = [`Step ${step + 1} of ${trace.tokens.length} read “${bare(trace.tokens[step])}”.`];
  if (best) said.push(`It expected “${bare(best[0])}” (${chance(best[1])}); entropy ${trace.entropy[step]} nats.`);
  if (truth) said.push(`Then came “${bare(truth)}”: ${chance(trace.probability[step])}, rank ${trace.rank[step]}.`);
  if (trace.order)
    said.push(`Order ${trace.order[step]} gave its probability, times back-off weights of ${trace.backoff[step]}.`);
  for (const [side, chosen] of Object.entries(state.source === null ? state.pick : { source: state.encoder })) {
    if (chosen.map < 0) continue;
    const row = state.source ?? state.step, map = trace.attention[chosen.map];
    const bytes = words[side].map((_, index) => weight(map, chosen.head, row, index));
    const most = bytes.indexOf(Math.max(...bytes));
    const [looking, seen] = [words[map.looking][row], words[side][most]].map(bare);
    said.push(`${headName(chosen)} of “${looking}” looked most at “${seen}” (${written(map, bytes[most])}).`);
  }
  part("said").textContent = said.join(" ");
}

function drawChoices() {
  const box = part("choices"), truth = trace.targets[state.step];
  const rows = trace.top[state.step].map(([word, p]) => [word, p, word === truth]);
  if (truth && !rows.some((row) => row[2])) rows.push([truth, trace.probability[state.step], true]);
  box.replaceChildren(...rows.flatMap(([word, p, right]) => {
    const cells = ["word", "chance", "number"].map((kind) => made("div", { className: kind + (right ? " true" : "") }));
    cells[0].textContent = shown(word);
    cells[1].style.width = `${100 * p}%`;
    cells[2].textContent = chance(p) + (right ? ` · rank ${trace.rank[state.step]}` : "");
    return cells;
  }));
}

/** For the chosen word: a row for each head of each layer, a column for each word it can look at. */
function drawHeads() {
  if (!trace.attention.length) return;
  const side = state.source === null ? "target" : "source", row = state.source ?? state.step;
  for (const seen of ["source", "target"]) {
    const canvas = part(`heads-${seen}`);
    const heads = trace.attention.flatMap(({ looking, seen: at, heads }, map) =>
      looking === side && at === seen ? Array.from({ length: heads }, (_, head) => ({ map, head })) : []);
    canvas.parentElement.hidden = !heads.length;
    if (!heads.length) continue;
    const byte = (one, column) => weight(trace.attention[heads[one].map], heads[one].head, row, column);
    const marked = heads.findIndex((one) => state.last && one.map === state.last.map && one.head === state.last.head);
    heat(canvas, {
      rows: heads.map(({ map, head }) => `${trace.attention[map].name} · ${head}`),
      columns: words[seen].map(bare), map: trace.attention[heads[0].map],
      byte,
      marked: marked >= 0 ? { row: marked } : {},
      pick: (one) => look(heads[one].map, heads[one].head),
      tell: (one, column) =>
        `${headName(heads[one])} · ${bare(words[seen][column])}: ${written(trace.attention[0], byte(one, column))}`,
      tall: [9, 20],
    });
  }
  part("looker").textContent = bare(words[side][row]);
  const chosen = state.last, map = trace.attention[chosen.map];
  part("map").value = `${chosen.map}:${chosen.head}`;
  const cell = (r, c) => weight(map, chosen.head, r, c);
  heat(part("matrix"), {
    rows: words[map.looking].map(bare), columns: words[map.seen].map(bare), map, byte: cell,
    marked: map.looking === side ? { row } : {},
    pick: (r) => choose(map.looking, r),
    tell: (r, c) => `${bare(words[map.looking][r])} · ${bare(words[map.seen][c])}: ${written(map, cell(r, c))}`,
  });
  ramp(part("matrix-ramp"), map, "weight");
}

function drawGradients() {
  if (!trace.gradients.length) return;
  const map = trace.gradients[part("gradient").value];
  const columns = words[map.of === "source" ? "source" : "target"].map(bare);
  const byte = (row, column) => map.bytes[row * map.columns + column];
  heat(part("gradient-map"), {
    rows: trace.targets.map((word) => (word ? bare(word) : "–")), columns, map, byte,
    marked: { row: state.step }, pick: (row) => choose("target", row),
    tell: (row, column) =>
      `loss of “${bare(trace.targets[row])}” by ${columns[column]}: ${written(map, byte(row, column))}`,
  });
  ramp(part("gradient-ramp"), map, "norm of the gradient; no shade: exactly 0");
}

function drawInside() {
  if (!trace.inside.length) return;
  const map = trace.inside[part("part").value], columns = words[map.looking].map(bare);
  const at = map.looking === "target" ? state.step : state.source;
  heat(part("inside-map"), {
    rows: Array.from({ length: map.units }, (_, unit) => String(unit)), columns, map, diverging: map.diverging,
    byte: (unit, step) => map.bytes[step * map.units + unit],
    marked: at === null ? {} : { column: at }, pick: (_, step) => choose(map.looking, step),
    tell: (unit, step) => `unit ${unit} after ${columns[step]}: ${written(map, map.bytes[step * map.units + unit])}`,
    tall: [2, 14],
  });
  ramp(part("inside-ramp"), map, "value");
}

function draw() {
  part("step").value = state.step;
  part("at").textContent = `${state.step + 1} / ${trace.tokens.length}`;
  shadeWords(); drawSaid(); drawChoices(); drawHeads(); drawGradients(); drawInside();
}

function option(select, value, text) { select.append(new Option(text, value)); }

chips("source");
chips("target");
part("step").max = trace.tokens.length - 1;
part("step").oninput = (event) => choose("target", Number(event.target.value));
if (trace.attention.length) option(part("shading"), "attention", "what it looked at");
if (trace.gradients.length) option(part("shading"), "gradient", "what the loss of this step depends on");
option(part("shading"), "probability", "how probable each word was");
part("shading").onchange = draw;
trace.attention.forEach((map, index) => {
  if (map.heads > 1) option(part("map"), `${index}:-1`, headName({ map: index, head: -1 }));
  for (let head = 0; head < map.heads; head++) option(part("map"), `${index}:${head}`, headName({ map: index, head }));
});
if (trace.attention.length) {
  for (const one of [state.pick.source, state.pick.target, state.encoder])
    if (one.map >= 0 && trace.attention[one.map].heads === 1) one.head = 0;
  part("map").onchange = (event) => look(...event.target.value.split(":").map(Number));
}
trace.gradients.forEach((map, index) => option(part("gradient"), index, map.name));
trace.inside.forEach((map, index) => option(part("part"), index, map.name));
for (const id of ["gradient", "part"]) if (part(id)) part(id).onchange = draw;
let waiting = 0;
addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(draw); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
