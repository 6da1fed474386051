// All runs: live curves, what each is, and what can be done with it.
import { link } from "../address.js";
import { colourOf, lineChart } from "../charts.js";
import { el, number, put, short } from "../dom.js";

export default {
  title: "Runs",
  mount(root, address, api) {
    const list = el("div", {});
    const chart = lineChart({ label: "loss against tokens" });
    put(root, el("div", { class: "head" }, el("h1", {}, "Runs")), chart.node, list);
    const counts = new Map();
    async function curves() {
      const found = await api.get("runs");
      put(list, found.runs.map((run, place) => el("p", {}, el("i", { class: "swatch", style: { background: colourOf(place) } }), " ", run.name, " ", run.state, " ", number(run.best?.loss))));
      const names = found.runs.filter((run) => run.rows).map((run) => run.name);
      const { about, arrays } = await api.arrays("runs/curves", { run: names, x: "tokens", y: "loss", width: 500 });
      const series = about.map((one, place) => ({ ...one, place })).filter((one) => one.kind === "training").map((one) => ({
        name: one.run, colour: names.indexOf(one.run),
        ...Object.fromEntries(["x", "y", "low", "high"].map((part) => [part, arrays[`${one.place}.${part}`].data])),
      }));
      chart.draw({ series, x: { label: "tokens", log: false }, y: { label: "loss" }, smooth: 0 });
    }
    curves().catch(address.fail);
    const stop = api.events("runs/events", () => ({}), { runs: () => {}, points: () => {} });
    return () => { stop(); chart.end(); };
  },
};
