// Saved traces, in a file of their own or in a notebook: the same reading, with all its matrices in the page. Several
// traces of one text are at the same place of it, whichever is moved.
import { unpack } from "./arrays.js";
import { causeFigure } from "./causes.js";
import { reading, sameStep } from "./reading.js";
import { workPanel } from "./work.js";

const views = [];
for (const data of document.querySelectorAll("script.trace")) {
  const { about, arrays } = unpack(Uint8Array.from(atob(data.textContent), (sign) => sign.charCodeAt(0)).buffer);
  const worked = workPanel(about.work);
  const follows = about.work.length > 0 && about.work[0].read === about.words.read[about.work[0].step]; // an encoder's steps are others
  const view = reading({
    parts: async () => arrays,
    onStep: (step) => {
      if (follows) worked.step(step);
      for (const other of views) if (other !== view) other.step(sameStep(about, step, other.facts));
    },
  });
  data.replaceWith(view.node, worked.node);
  view.section("all");
  view.show(about);
  if (views.length) view.step(sameStep(views[0].facts, views[0].at, about));
  views.push(view);
  if (follows) worked.step(view.at);
}
for (const data of document.querySelectorAll("script.causes")) {
  const answers = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(data.textContent), (sign) => sign.charCodeAt(0))));
  data.replaceWith(...answers.map((answer) => causeFigure(answer).node));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
