// A run that has hardly learned says so: its validation perplexity is not below that of a bigram of the same tokens.
//
//   const note = learnedNote(api, run, () => …);      put note.node somewhere; the function is called if it has not learned
import { counted, el, number } from "./dom.js";

export function learnedNote(api, run, tell = () => {}) {
  const node = el("p", { class: "not-learned", role: "status", hidden: true });
  if (run.task !== "classification" && !run.counted) {
    api.post("runs/learned", { run: run.name }).then((found) => {
      if (!found.bigram || found.perplexity < found.bigram) return;
      node.textContent = `Perplexity ${number(found.perplexity, 3)} after ${counted(found.step, "step")}: this model has hardly learned anything yet. A bigram model of the same text, which sees only the previous token${run.task === "translation" ? " and no source" : ""}, has ${number(found.bigram, 3)}.`;
      node.hidden = false;
      tell();
    }).catch(() => { /* its data are gone: nothing is known, and nothing is said */ });
  }
  return { node };
}
