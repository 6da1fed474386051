// Saved traces, in a file of their own or in a notebook: the same reading, with all its matrices in the page. Several
// traces of one text are at the same place of it, whichever is moved.
import { unpack } from "./arrays.js";
import { causeFigure } from "./causes.js";
import { comparison } from "./changes.js";
import { el, put } from "./dom.js";
import { filmBar } from "./film.js";
import { reading, sameStep } from "./reading.js";
import { gradients } from "./reading_sections.js";
import { workPanel } from "./work.js";

const views = [], compared = []; // and what compares a changed model with the unchanged one before it
const isChanged = (facts) => Boolean(facts.notes[0]?.startsWith("Changed: "));
for (const data of document.querySelectorAll("script.trace")) {
  const { about, arrays } = unpack(Uint8Array.from(atob(data.textContent), (sign) => sign.charCodeAt(0)).buffer);
  const worked = workPanel(about.work);
  const follows = about.work.length > 0 && about.work[0].read === about.words.read[about.work[0].step]; // an encoder's steps are others
  const view = reading({
    parts: async () => arrays,
    more: { gradients: gradients() },
    onStep: (step) => {
      if (follows) worked.step(step);
      for (const other of views) if (other !== view) other.step(sameStep(about, step, other.facts));
      for (const compare of compared) compare();
    },
  });
  const before = isChanged(about) && views.findLast((one) => one.facts.run === about.run && !isChanged(one.facts)), table = el("div", { class: "compared", hidden: !before });
  if (before) compared.push(() => put(table, el("p", {}, about.notes[0]), comparison(before.facts, about, before.at)));
  data.replaceWith(table, view.node, worked.node);
  view.section("all");
  view.show(about);
  if (views.length) view.step(sameStep(views[0].facts, views[0].at, about));
  views.push(view);
  if (follows) worked.step(view.at);
}
for (const compare of compared) compare();
for (const data of document.querySelectorAll("script.causes")) {
  const answers = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(data.textContent), (sign) => sign.charCodeAt(0))));
  data.replaceWith(...answers.map((answer) => causeFigure(answer).node));
}
// The frames of a film: one is shown at a time.
const pictures = [...document.querySelectorAll("[data-frame]")];
if (pictures.length) {
  const show = (at) => pictures.forEach((one, place) => { one.hidden = place !== at; }), film = filmBar({ label: "Training step", frame: show, told: (at) => pictures[at].dataset.frame });
  pictures[0].before(film.node);
  film.show(pictures.length, pictures.length - 1);
  show(pictures.length - 1);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
