// Temperature, top-k and top-p as sliders: `value()` is what they say, `change()` is called as they move.
import { el } from "./dom.js";

export function samplingSliders(change) {
  const slider = (name, min, max, value, step, said) => {
    const shown = el("output", {}, said(value));
    const input = el("input", { type: "range", min, max, step, value: String(value), oninput: () => { shown.textContent = said(Number(input.value)); change(); } });
    return { input, node: el("label", {}, name, input, shown) };
  };
  const temperature = slider("temperature", 0, 2, 1, 0.05, (value) => (value ? value.toFixed(2) : "0 (always the most probable)"));
  const topK = slider("top-k", 0, 60, 0, 1, (value) => (value ? String(value) : "all"));
  const topP = slider("top-p", 0.05, 1, 1, 0.05, (value) => (value < 1 ? value.toFixed(2) : "all"));
  return {
    node: el("div", { class: "tools sliders", hidden: true }, temperature.node, topK.node, topP.node),
    value: () => ({ temperature: Number(temperature.input.value), top_k: Number(topK.input.value), top_p: Number(topP.input.value) }),
  };
}
