// A drawing as a file: what is seen as SVG or PNG, its numbers as CSV.
//
//   node.append(saves("loss", { drawing: () => plot, rows: () => [["line", "step", "loss"], …] }))
//   node.append(saves("attention", { canvas: () => canvas, rows }))

import { el } from "./dom.js";

const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "display", "visibility"];

export function saves(name, { drawing = null, canvas = null, rows }) {
  const file = (ending) => `${name().toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "drawing"}.${ending}`;
  const button = (ending, made) => el("button", { type: "button", class: "quiet", onclick: async () => save(file(ending), await made()) }, ending.toUpperCase());
  return el("details", { class: "numbers save" }, el("summary", {}, "Save"), el("span", { class: "buttons" },
    drawing && button("svg", () => new Blob([source(drawing())], { type: "image/svg+xml" })),
    button("png", () => (canvas ? picture(canvas()) : painted(drawing()))),
    button("csv", () => new Blob(["\ufeff", rows().map((row) => row.map(quoted).join(",")).join("\r\n"), "\r\n"], { type: "text/csv" }))));
}

// report.html of a run, a comparison or claims: the whole of it as one file that needs no lab.
export const wholePage = (name) => el("a", { class: "button", href: `./api/runs/report?name=${encodeURIComponent(name)}`, download: "" }, "Download the report");

// A run's model as one file that runs by itself in any browser.
export function modelPage(api, name, problem) {
  const button = el("button", { type: "button", onclick: async () => {
    button.disabled = true;
    button.textContent = "Creating the page …";
    try { save(`${name.replaceAll("/", "-")}.html`, new Blob([(await api.post("runs/page", { run: name })).page], { type: "text/html" })); problem(""); }
    catch (error) { problem(error.message); }
    button.disabled = false;
    button.textContent = "Save as HTML";
  } }, "Save as HTML");
  button.title = "One HTML file that runs this model without a network connection";
  return button;
}

// The readings that panels show, as one page that needs no lab.
export async function saveReadings(api, view, traces, causes = []) {
  const found = await api.post(`${view}/page`, { traces, causes }), runs = [...new Set(traces.map((one) => one.run))];
  save(`${runs.map((one) => one.replaceAll("/", "-")).join("-")}.html`, new Blob([found.page], { type: "text/html" }));
}

export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

// A text that begins like a formula is not one: a spreadsheet must not compute it.
function quoted(value) {
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "";
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

const paper = () => getComputedStyle(document.documentElement).getPropertyValue("--paper").trim() || "white";

// The drawing with the styles that the page gives it, so that it looks the same elsewhere.
function source(plot) {
  const copy = plot.cloneNode(true);
  const from = [plot, ...plot.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((one, place) => {
    const style = getComputedStyle(one);
    to[place].removeAttribute("class");
    for (const key of STYLES) to[place].setAttribute(key, style.getPropertyValue(key));
  });
  const { width, height } = plot.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  if (!copy.hasAttribute("viewBox")) copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [key, value] of Object.entries({ width: "100%", height: "100%", fill: paper() })) ground.setAttribute(key, value);
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
}

function painted(plot) {
  const { width, height } = plot.getBoundingClientRect();
  return new Promise((done, fail) => {
    const image = new Image();
    image.onload = () => done(picture(image, width, height, 2));
    image.onerror = () => fail(new Error("This figure could not be saved as an image."));
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source(plot))}`;
  });
}

function picture(image, width = image.width, height = image.height, times = 1) {
  const canvas = document.createElement("canvas");
  canvas.width = width * times;
  canvas.height = height * times;
  const context = canvas.getContext("2d");
  context.fillStyle = paper();
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}
