// The ladder: systems compared on the same text, tokens and budget.
import { link } from "../address.js";
import { ago, el, put, table } from "../dom.js";

export default {
  title: "Ladder",
  mount(root, address, api) {
    api.get("ladder").then((found) => {
      put(root, el("div", { class: "head" }, el("h1", {}, "Ladder")),
        found.length
          ? table(found.map((one) => ({ ...one, systems: one.systems.join(", "), when: ago(one.created), done: `${one.finished} of ${one.runs}` })),
            { name: "comparison", corpus: "corpus", systems: "systems", done: "runs", when: "begun" })
          : el("p", { class: "lead" }, "No comparison yet."));
    }).catch(address.fail);
    return () => {};
  },
};
