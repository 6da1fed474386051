// The live figures: each has controls, and draws a picture and a sentence from their values.
//
//   { open(data) → context, controls(context) → […], draw(context, values, width) → { picture, words } }
//
// A control is {name, label, kind: "range", "text" or "choice", value, …}; `limit(values)` moves the end of a range.
import { alignment, forcing } from "./translating.js";
import { anyB } from "./any_b.js";
import { escaped } from "./drawing.js";
import { gradient } from "./gradient.js";
import { heads, positions, temperature } from "./writing.js";
import { smoothing } from "./smoothing.js";

const FIGURES = { "any-b": anyB, gradient, alignment, forcing, heads, temperature, positions, smoothing };
const STYLE = ".live-figure{border:1px solid #8886;border-radius:6px;padding:.6rem .8rem;display:block}.live-figure form{display:flex;flex-wrap:wrap;gap:.3rem 1.2rem;margin:0}.live-figure label{max-width:100%;min-width:0;display:flex;flex-wrap:wrap;gap:.2rem .5rem;align-items:center;font-size:.85rem}.live-figure input[type=range]{width:9rem;accent-color:#0072B2}.live-figure input[type=text]{width:19rem;max-width:100%}.live-figure input,.live-figure select{font:inherit;min-width:0;max-width:100%;box-sizing:border-box;color:inherit;background:transparent;border:1px solid #8889;border-radius:4px;padding:.1rem .3rem}.live-figure select{flex:1 1 12rem}.live-figure option{color:#1b1b1f;background:#fff}.live-figure output{font-variant-numeric:tabular-nums;min-width:2.2em}.live-figure svg{display:block;width:100%;height:auto;margin:.5rem 0 0}.live-figure p{margin:.3rem 0 0;font-size:.9rem}";
const NARROW = 300, WIDE = 680;
const begun = (controls) => Object.fromEntries(controls.map(({ name, value }) => [name, value]));

// The picture that a figure begins with.
async function first(name, data) {
  const context = await FIGURES[name].open(data);
  return FIGURES[name].draw(context, begun(FIGURES[name].controls(context)), WIDE).picture;
}

const field = ({ name, kind, value, choices = [], ...range }, id) => {
  if (kind === "choice") return `<select name="${name}">${choices.map((one, at) => `<option value="${at}"${at === value ? " selected" : ""}>${escaped(one)}</option>`).join("")}</select>`;
  if (kind === "range") return `<input type="range" name="${name}" min="${range.min}" max="${range.max}" step="${range.step}" value="${value}"><output>${value}</output>`;
  return `<input type="text" name="${name}" value="${escaped(value)}" autocomplete="off" spellcheck="false"${choices.length ? ` list="${id}"` : ""}>${choices.length ? `<datalist id="${id}">${choices.map((one) => `<option value="${escaped(one)}">`).join("")}</datalist>` : ""}`;
};

// Puts the figure in the place of its picture.
async function mount(target, name) {
  const figure = FIGURES[name], context = await figure.open(regardLive.data[name]), controls = figure.controls(context), values = begun(controls);
  if (!document.getElementById("live-style")) document.head.insertAdjacentHTML("beforeend", `<style id="live-style">${STYLE}</style>`);
  const whole = document.createElement("div");
  whole.className = "live-figure";
  whole.innerHTML = `<form>${controls.map((one) => `<label>${escaped(one.label)} ${field(one, `live-${name}-${one.name}`)}</label>`).join("")}</form><div class="drawn"></div><p role="status"></p>`;
  const [form, drawn, said] = whole.children;
  const draw = () => {
    for (const { name: control, kind, clean, limit } of controls) {
      const input = form.elements[control];
      if (limit) input.max = limit(values);
      values[control] = kind === "text" ? (clean ? clean(input.value) : input.value) : Number(input.value);
      if (kind === "range") input.nextElementSibling.textContent = input.value;
    }
    const { picture, words } = figure.draw(context, values, Math.round(Math.max(NARROW, Math.min(WIDE, drawn.clientWidth || WIDE))));
    if (picture) drawn.innerHTML = picture;
    said.textContent = words;
  };
  form.onsubmit = (event) => event.preventDefault();
  form.oninput = draw;
  target.replaceChildren(whole);
  draw();
  new ResizeObserver(draw).observe(form);
}

globalThis.regardLive = { data: {}, first, mount };
