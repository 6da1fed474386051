// Elements from data, never from markup: text goes in as text. Nothing here or in any view uses innerHTML.

const SVG = "http://www.w3.org/2000/svg";
const SAFE = /^(#|\/($|[\w%.?#-])|\.|blob:|data:image\/png|[\w%.-]+$)/; // never another host, as in //host or /\\host
const TURNING = /[\u202a-\u202e]/g; // would turn the direction of the text that follows, as in a file's name

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "selected") node[name] = value;
    else if ((name === "href" || name === "src") && !SAFE.test(value)) continue;
    else node.setAttribute(name, value === true ? "" : value);
  }
  add(node, children);
  return node;
}

// add(node, ["text", element, null, [more]])
export function add(node, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child).replace(TURNING, "\ufffd")));
  }
  return node;
}

// el("button", {class: "primary", onclick: start}, "Start")
export const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const put = (node, ...children) => { node.replaceChildren(); return add(node, children); };

// What a screen reader says now; the newest wins.
export function speak(text) {
  const place = document.getElementById("spoken");
  if (place && place.textContent !== text) place.textContent = text;
}

// A line at the bottom of the page: notice("Deleted lstm.", {action: "Undo", act: () => …})
export function notice(text, { action = "", act = null, seconds = action ? 12 : 5, bad = false } = {}) {
  const place = document.getElementById("notices");
  if (!place) return;
  const line = el("div", { class: bad ? "notice bad" : "notice" }, el("span", {}, text));
  const close = () => line.remove();
  if (action) line.append(el("button", { type: "button", onclick: () => { close(); act(); } }, action));
  line.append(el("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: close }, "×"));
  place.append(line);
  while (place.children.length > 3) place.firstChild.remove();
  setTimeout(close, seconds * 1000);
}

// el for a choice between few: segments("y axis", {lin: "linear", log: "log"}, "lin", chosen => …)
export function segments(label, choices, chosen, change) {
  const group = el("div", { class: "segments", role: "group", "aria-label": label });
  const show = (now) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === now));
  };
  for (const [value, text] of Object.entries(choices)) {
    group.append(el("button", { type: "button", data: { value }, onclick: () => { show(value); change(value); } }, text));
  }
  show(chosen);
  group.show = show;
  return group;
}

let made = 0;
export const id = (word) => `${word}-${++made}`;

// A label and its control, with a line of help and a place for what is wrong.
export function labelled(text, control, help = "") {
  const name = id("field");
  control.id = name;
  const problem = el("p", { class: "problem", id: `${name}-problem` });
  const told = help ? el("p", { class: "help", id: `${name}-help` }, help) : null;
  control.setAttribute("aria-describedby", [told && told.id, problem.id].filter(Boolean).join(" "));
  const field = el("div", { class: "field" }, el("label", { for: name }, text), control, told, problem);
  field.refuse = (sentence) => {
    problem.textContent = sentence || "";
    control.setAttribute("aria-invalid", String(Boolean(sentence)));
  };
  field.control = control;
  return field;
}

// Text that does not turn the text around it, whatever its script.
const LEFTWARD = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/;
export const isolated = (words) => (LEFTWARD.test(words) ? `\u2068${words}\u2069` : words);

// How wide words are, in pixels; `font` as in CSS.
const ruler = document.createElement("canvas").getContext("2d");
export function wide(words, font) { ruler.font = font; return ruler.measureText(words).width; }

// table([{a: 1}], {a: "heading"}): numbers stand right.
export function table(rows, columns, { caption = "", cell = (row, key) => row[key] } = {}) {
  const numeric = (key) => rows.every((row) => row[key] === null || row[key] === undefined || typeof row[key] === "number");
  const right = Object.fromEntries(Object.keys(columns).map((key) => [key, rows.length > 0 && numeric(key)]));
  const heads = Object.entries(columns).map(([key, text]) => el("th", { scope: "col", class: right[key] && "right" }, text));
  const body = rows.map((row) => el("tr", {}, Object.keys(columns).map((key, place) =>
    el(place ? "td" : "th", { scope: place ? null : "row", class: right[key] && "right", dir: right[key] ? null : "auto" }, shown(cell(row, key))))));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "table" },
    el("table", {}, caption && el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)));
}

const shown = (value) => (value === null || value === undefined ? "–" : typeof value === "number" ? number(value) : value);

// -- numbers as everywhere in Regard: 12,400, 0.0123, 1.2e-5 -----------------------------------------------------------

const THIN = "\u202f";
export function grouped(value) {
  const whole = String(Math.round(value));
  return Math.abs(value) < 10000 ? whole : whole.replace(/\B(?=(\d{3})+$)/g, ",");
}
// 1 token, 12,400 tokens
export const counted = (value, noun, plural = `${noun}s`) => `${grouped(value)} ${value === 1 ? noun : plural}`;
export function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (Number.isInteger(value) || size >= 10 ** digits) return grouped(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2).replace("e-", "e−");
  return String(Number(value.toPrecision(digits)));
}
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, mark] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${Number((value / unit).toPrecision(3))}${THIN}${mark}`;
  }
  return number(value, 3);
}
export function clock(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
}
export function bytes(value) {
  if (!Number.isFinite(value)) return "–";
  for (const [unit, mark] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (value >= unit) return `${Number((value / unit).toPrecision(3))} ${mark}`;
  }
  return `${value} B`;
}
export function ago(iso) {
  const seconds = (Date.now() - Date.parse(iso)) / 1000;
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 90) return "now";
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}
