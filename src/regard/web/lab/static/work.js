// The arithmetic of one step: every equation with its letters, and below it with the model's numbers.
//
//   root.append(arithmetic(work))                      one Work, as `Work.as_json` of insight/arithmetic/equation.py gives it
//   const panel = workPanel(works); root.append(panel.node); panel.step(3)        those of several steps, one at a time
import { el, isolated, put } from "./dom.js";

export function arithmetic(work) {
  return el("div", { class: "work" }, work.sections.map((section) => el("section", {},
    el("h4", {}, section.title),
    section.about && el("p", { class: "quiet-text" }, section.about),
    el("dl", {}, section.lines.map((line, place) => [
      line.formula !== section.lines[place - 1]?.formula && el("dt", {}, line.formula),
      el("dd", {}, el("b", {}, el("bdi", {}, line.name)), ` = ${line.written}`),
    ])))));
}

const titled = (work) => `step ${work.step}: reads ${isolated(work.read)}${work.then ? `, predicts ${isolated(work.then)}` : ""}`;

export function workPanel(works) {
  const body = el("div"), node = el("section", { class: "part", hidden: !works.length });
  const select = el("select", { onchange: () => show(Number(select.value)) },
    works.map((work, place) => el("option", { value: String(place) }, titled(work))));
  function show(place) {
    if (!works[place]) return;
    select.value = String(place);
    put(body, arithmetic(works[place]));
  }
  const [first] = works;
  if (first) {
    put(node, el("h3", {}, `The arithmetic${first.title ? `: ${first.title}` : ""}`), el("p", { class: "chosen" }, el("label", {}, "At ", select)), body);
    show(works.length - 1);
  }
  return { node, step: (at) => show(works.findIndex((work) => work.step === at)) };
}
