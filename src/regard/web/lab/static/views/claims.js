// Claims: each statement of the lectures with its verdict, figures, conditions and control; and run it again.
//
//   #/claims            #/claims/any-b?from=claims-any-b
import { link } from "../address.js";
import { clock, el, labelled, notice, number, put, speak } from "../dom.js";
import { figure } from "../figures.js";
import { wholePage } from "../saving.js";

// A result is shown with its label, which says of a quick form that it is one; the documented verdict is of the full one.
const SIGNS = { holds: "✓", fails: "✗", inconclusive: "?" };
const sign = (verdict, quick) => el("span", { class: `verdict ${verdict || "none"}`, "aria-hidden": "true" }, `${SIGNS[verdict] || "·"}${quick ? " quick" : ""}`);

export default {
  title: "Claims",
  mount(root, address, api) {
    let ended = false, timer = 0, drawn = [];
    const name = address.path;
    const clear = () => { drawn.forEach((one) => one.end()); drawn = []; };

    async function list() {
      put(root, el("div", { class: "head" }, el("h1", {}, "Claims")), el("p", { class: "lead", role: "status" }, "Loading the course's claims …"));
      const found = await api.get("claims");
      if (ended) return;
      const here = found.filter((one) => one.verdict);
      const of = (verdict) => found.filter((one) => one.documented.verdict === verdict).length;
      put(root, el("div", { class: "head" }, el("h1", {}, "Claims"), el("p", { class: "quiet-text" },
        `Documented verdicts: ${of("holds")} hold, ${of("fails")} fail, ${of("inconclusive")} are inconclusive. `,
        here.length ? `${here.length} of ${found.length} measured here.` : "None has been measured here yet: open a claim and run it.")),
      el("ol", { class: "statements" }, found.map((one) => el("li", {}, el("a", { href: link("claims", one.name), class: "claim" },
        sign(one.documented.verdict), el("span", { class: "mono quiet-text" }, one.number),
        el("span", {}, el("b", {}, one.statement), el("span", { class: "help" }, `${one.name} · documented: ${one.documented.verdict} · here: ${one.label || "not measured yet"} · line ${one.where} of the notes`)))))));
    }

    async function open() {
      put(root, el("p", { class: "lead", role: "status" }, `Opening ${name} …`));
      const one = await api.get("claims/one", { name, from: address.query.get("from") });
      if (ended) return;
      clear();
      const result = one.result;
      const head = el("div", { class: "head" }, el("h1", {}, `${one.number} ${one.name}`), el("span", { class: "buttons" }, one.report && wholePage(one.source), el("a", { href: link("claims") }, "All claims")));
      put(root, head,
        el("p", { class: "statement" }, one.statement),
        el("blockquote", {}, el("p", {}, `“${one.quote}”`), el("footer", {}, `the notes, ${one.where}`)),
        el("p", { class: "documented" }, sign(one.documented.verdict), ` Documented verdict of the full experiment: ${one.documented.verdict}. `,
          el("span", { class: "quiet-text" }, `${one.documented.decides ? `${one.documented.decides}: ` : ""}${one.documented.measured}. Control: ${one.documented.control}.`)),
        el("dl", { class: "facts" }, facts(one, result).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
        result ? measured(result) : el("p", { class: "lead" }, "Not measured on this machine yet."),
        again(one));
      if (result) speak(`${one.name}: ${result.label}`);
    }

    function facts(one, result) {
      const rows = [["Conditions", one.conditions], ["Control", one.control], ["When it breaks", one.breaks]];
      if (!result) return rows;
      const knobs = Object.entries(result.knobs).map(([key, value]) => `${key} = ${number(value)}`).join(", ");
      return [...rows, ["Measured", [`seeds ${result.seeds.join(", ")}; ${clock(result.seconds)} on ${result.device}`, knobs && `; ${knobs}`, result.quick && `; quick: ${result.quick}`].filter(Boolean).join("")],
        ...(one.sources.length > 1 ? [["Other measurements", one.sources.map((source) => el("a", { class: "tag", href: link("claims", name, { from: source }) }, source))]] : [])];
    }

    function measured(result) {
      const groups = { Expected: result.numbers.expected, [`Control: ${result.control.words}`]: result.numbers.control, "Additional checks": result.numbers.besides };
      const pictures = result.figures.map((data) => { const made = figure(data); drawn.push(made); return made.node; });
      return [
        el("section", { class: "section" }, el("h2", {}, sign(result.verdict, result.quick), ` Measured here: ${result.label.slice(2)}`, result.control.came_out ? "" : ": the control did not give the opposite result"),
          Object.entries(groups).filter(([, some]) => some.length).map(([title, some]) => [el("h3", {}, title), el("ul", { class: "findings" }, some.map((one) => finding(one, result.quick)))])),
        result.worked.length > 0 && el("section", { class: "section" }, el("h2", {}, "Worked examples from the notes"),
          el("ul", { class: "findings" }, result.worked.map((one) => el("li", {}, sign(one.agrees ? "holds" : "fails"), ` ${one.what}: ${one.noted} in the notes, ${one.found} here`)))),
        pictures.length > 0 && el("section", { class: "section figures" }, pictures),
        result.remarks.length > 0 && el("section", { class: "section" }, result.remarks.map((remark) => el("p", {}, remark))),
      ];
    }

    function finding(one, quick) {
      const unit = one.unit ? ` ${one.unit}` : "";
      return el("li", {}, sign(one.verdict, quick), ` ${one.quantity}: `, el("b", {}, `${one.measured}${unit}`), el("span", { class: "quiet-text" }, `, expected ${one.expected}`));
    }

    // -- run it ----------------------------------------------------------------------------------------------------------------

    function again(one) {
      const seed = el("input", { type: "number", min: 0, max: 1000000, value: "", placeholder: "default" });
      const quick = el("input", { type: "checkbox", checked: true });
      const knobs = Object.entries(one.knobs).map(([key, value]) => {
        const [least, most] = one.limits[key] || [];
        const control = el("input", { type: "number", step: "any", min: least, max: most, value: String(value) });
        return [key, value, labelled(key, control, Number.isFinite(least) ? `${number(least)} to ${number(most)}` : `${number(value)} in the official experiment`)];
      });
      const told = el("p", { role: "status", class: "caption" });
      const title = one.result ? "Run it again" : "Run it";
      const start = el("button", { type: "button", class: "primary", onclick: run }, title);
      const form = el("section", { class: "section card again writes" }, el("h2", {}, title),
        el("p", { class: "quiet-text" }, "A result with other seeds or settings is exploratory; it does not change the documented verdict."),
        el("div", { class: "row" }, labelled("First seed", seed, "The other seeds follow this one."), knobs.map(([, , field]) => field),
          el("div", { class: "field beside" }, el("label", {}, quick, " quick form"), el("p", { class: "help" }, one.quick))),
        el("div", { class: "buttons" }, start), told);

      async function run() {
        start.disabled = true;
        try {
          const changed = Object.fromEntries(knobs.filter(([, value, field]) => Number(field.control.value) !== value).map(([key, , field]) => [key, Number(field.control.value)]));
          let job = await api.post("claims/run", { name, quick: quick.checked, seed: seed.value === "" ? null : Number(seed.value), knobs: changed });
          while (job.running && !ended) {
            told.textContent = job.last || "Measuring …";
            await new Promise((done) => { timer = setTimeout(done, 500); });
            job = await api.get("runs/job", { id: job.id });
          }
          if (ended) return;
          if (job.problem || job.code) throw new Error(job.problem || "The experiment finished without a result.");
          notice(`Measured ${name}.`);
          address.go({ from: job.run });
          open().catch(address.fail);
        } catch (error) { told.textContent = error.message; start.disabled = false; }
      }
      return form;
    }

    (name ? open() : list()).catch(address.fail);
    const unmount = () => { ended = true; clearTimeout(timer); clear(); };
    return unmount;
  },
};
