// Saved traces, in a file of their own or in a notebook: the same reading, with all its matrices in the page.
import { unpack } from "./arrays.js";
import { reading } from "./reading.js";
import { workPanel } from "./work.js";

for (const data of document.querySelectorAll("script.trace")) {
  const { about, arrays } = unpack(Uint8Array.from(atob(data.textContent), (sign) => sign.charCodeAt(0)).buffer);
  const worked = workPanel(about.work);
  const follows = about.work.length > 0 && about.work[0].read === about.words.read[about.work[0].step]; // an encoder's steps are others
  const view = reading({ parts: async () => arrays, onStep: (step) => follows && worked.step(step) });
  data.replaceWith(view.node, worked.node);
  view.section("all");
  view.show(about);
  if (follows) worked.step(view.at);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
