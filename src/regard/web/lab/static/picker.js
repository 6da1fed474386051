// Which runs a view shows: those chosen as tags, and a list to add one from.
//
//   const pick = picker({ most: 4, change: (names) => … });
//   pick.show(runs, chosen)          runs as api.get("runs") tells them; put pick.node somewhere

import { el, put } from "./dom.js";
import { colourOfRun, nameColours } from "./run_colours.js";

export function picker({ most = 4, label = "Runs", change }) {
  const node = el("div", { class: "picker", role: "group", "aria-label": label });
  return {
    node,
    show(runs, chosen) {
      nameColours(runs);
      const rest = runs.filter((run) => !chosen.includes(run.name));
      const add = el("select", { "aria-label": "Add a run", onchange: (event) => { if (event.target.value) change(most === 1 ? [event.target.value] : [...chosen, event.target.value]); } },
        el("option", { value: "" }, most === 1 ? "Switch to another run …" : "Add a run …"),
        rest.map((run) => el("option", { value: run.name }, `${run.name} · ${run.system}${run.corpus ? ` · ${run.corpus}` : ""}`)));
      put(node,
        chosen.map((name) => el("span", { class: "tag picked" },
          el("i", { class: "swatch", style: { background: colourOfRun(name) } }), name,
          most > 1 && el("button", { type: "button", class: "quiet", "aria-label": `Remove ${name}`, onclick: () => change(chosen.filter((one) => one !== name)) }, "×"))),
        rest.length > 0 && (most === 1 || chosen.length < most) ? add : null);
    },
  };
}
