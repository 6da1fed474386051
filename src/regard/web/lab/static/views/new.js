// A new run: the system, the text, every setting with its bounds, and what it will take, before it starts.
//
//   #/new?system=lstm&size=small&data=pyref        #/new?from=RUN to fine-tune
import { link } from "../address.js";
import { bytes, el, grouped, labelled, put, segments, speak } from "../dom.js";
import { textChoice, whenDone } from "../text_choice.js";

const COMMON = ["training.budget", "training.steps", "training.learning_rate", "training.batch_tokens", "training.seed", "model.width", "model.layers", "model.heads", "model.order", "model.dropout", "data.tokenizer", "data.vocabulary", "data.pairs"];
const SECTIONS = { data: "Text", model: "Model", training: "Training" };

export default {
  title: "New run",
  mount(root, address, api) {
    let choices = null, form = null, ended = false, settings = {}, timer = 0, estimating = "", turn = 0;
    const start = address.query.get("from") || "";
    const asked = { system: address.query.get("system") || "lstm", size: address.query.get("size") || "", data: address.query.get("data") || "" };
    const fields = new Map();
    const isPairs = () => (start ? Boolean(form?.sections.data.some((one) => one.key === "data.pairs")) : system().task !== "language model");
    const text = textChoice(api, { pairs: isPairs, columns: () => settings["data.columns"] || "", encoding: () => settings["data.encoding"] || "", choose: (name) => { asked.data = name; choose(); } });

    const what = el("section", { class: "step" }), how = el("section", { class: "step" });
    const summary = el("div"), problem = el("p", { class: "problem", role: "alert" });
    const name = el("input", { type: "text", spellcheck: "false", autocomplete: "off", placeholder: "SYSTEM-TEXT" });
    const nameField = labelled("Name", name, "Folder name: letters, digits and hyphens.");
    const begin = el("button", { type: "button", class: "primary writes", disabled: true, onclick: () => go() }, start ? "Start fine-tuning" : "Start training");
    put(root, el("div", { class: "head" }, el("h1", {}, start ? `Fine-tune ${start}` : "New run"), el("a", { href: link("runs") }, "All runs")),
      el("div", { class: "split form" }, el("div", { class: "stage" }, what, text.node, how),
        el("aside", { class: "side card", "aria-label": "Summary" }, el("h2", {}, "Summary"), nameField, summary, problem, begin)));

    const body = () => ({ system: start ? "" : asked.system, size: start ? "" : asked.size, data: asked.data, from: start, settings });
    const system = () => choices.systems.find((one) => one.name === asked.system);

    // -- the system --------------------------------------------------------------------------------------------------------

    function showSystem() {
      if (start) { put(what, el("p", { class: "lead" }, `Training starts from the weights and tokenizer of ${start}. Choose the text to train on.`)); return; }
      const groups = Object.groupBy ? Object.groupBy(choices.systems, (one) => one.task) : choices.systems.reduce((all, one) => ({ ...all, [one.task]: [...(all[one.task] || []), one] }), {});
      const select = el("select", { onchange: () => { asked.system = select.value; settings = {}; asked.data = text.offers(asked.data) ? asked.data : ""; text.show(asked.data); choose(); } },
        Object.entries(groups).map(([task, some]) => el("optgroup", { label: task },
          some.map((one) => el("option", { value: one.name, selected: one.name === asked.system }, `${one.name} (${one.year})`)))));
      const one = system();
      put(what, el("h2", {}, "System"), el("div", { class: "row" }, labelled("System", select, `${one.title[0].toUpperCase()}${one.title.slice(1)}. ${one.paper}.`),
        el("div", { class: "field" }, el("span", { class: "label" }, "Size"), segments("Size", { "": "auto", tiny: "tiny", small: "small", medium: "medium", large: "large" }, asked.size, (value) => { asked.size = value; choose(); }))));
    }

    // -- every setting -------------------------------------------------------------------------------------------------------

    function control(one) {
      const given = settings[one.key];
      const value = given !== undefined ? given : one.now;
      const set = (now) => { if (String(now) === String(one.value)) delete settings[one.key]; else settings[one.key] = now; check(300); if (["data.columns", "data.encoding"].includes(one.key)) text.look(); };
      if (one.type === "bool") {
        const box = el("select", { onchange: () => set(box.value) }, ["true", "false"].map((word) => el("option", { value: word, selected: String(value) === word }, word === "true" ? "yes" : "no")));
        return box;
      }
      if (one.choices.length) {
        const select = el("select", { onchange: () => set(select.value) }, one.choices.map((word) => el("option", { value: word, selected: word === value }, word)));
        return select;
      }
      const input = el("input", { type: "text", inputmode: one.type === "int" ? "numeric" : one.type === "float" ? "decimal" : null, value: String(value), spellcheck: "false", autocomplete: "off", oninput: () => set(input.value.trim()) });
      return input;
    }

    function showSettings() {
      const open = new Set([...how.querySelectorAll("details[open]")].map((one) => one.dataset.part));
      fields.clear();
      const field = (one) => { const made = labelled(one.name, control(one), one.help); made.classList.toggle("changed", one.key in settings); fields.set(one.key, made); return made; };
      const every = Object.values(form.sections).flat();
      const common = every.filter((one) => COMMON.includes(one.key)).sort((a, b) => COMMON.indexOf(a.key) - COMMON.indexOf(b.key));
      put(how, el("h2", {}, "Settings"), el("div", { class: "grid" }, common.map(field)),
        Object.entries(form.sections).map(([part, some]) => {
          const rest = some.filter((one) => !COMMON.includes(one.key));
          return rest.length > 0 && el("details", { data: { part }, open: open.has(part) }, el("summary", {}, `${SECTIONS[part]}: ${rest.length} more`), el("div", { class: "grid" }, rest.map(field)));
        }));
    }

    function refuse(found) {
      for (const [key, field] of fields) {
        field.refuse(found && found.key === key ? found.sentence : "");
        field.classList.toggle("changed", key in settings);
        if (found && found.key === key) field.closest("details")?.setAttribute("open", "");
      }
      problem.textContent = found && !fields.has(found.key) ? found.sentence : found ? "One setting is invalid (highlighted)." : "";
    }

    // -- what is right is asked of the server, which knows -------------------------------------------------------------------

    async function ask(draw) {
      if (!asked.data && !start) { begin.disabled = true; }
      try {
        const found = await api.post("runs/form", body(), { only: "form" });
        if (ended) return;
        form = found;
        if (draw) showSettings();
        if (start && draw) text.show(asked.data);
        refuse(form.problem);
      } catch (error) {
        if (error.overtaken || ended) return;
        refuse({ key: "", sentence: error.message });
        form = form && { ...form, problem: { key: "", sentence: error.message } };
      }
      const ready = Boolean(asked.data && form && !form.problem);
      begin.disabled = !ready;
      summary.classList.add("stale");
      if (!ready) { estimating = ""; turn++; }
      if (!asked.data) put(summary, el("p", { class: "quiet-text" }, "Choose a text to train on."));
      else if (ready) estimate();
    }

    function check(wait) { clearTimeout(timer); timer = setTimeout(() => ask(false), wait); }
    function choose() {
      address.note({ system: start ? null : asked.system, size: asked.size || null, data: asked.data || null });
      showSystem();
      clearTimeout(timer);
      ask(true);
    }

    // The dry run: three measured steps.
    async function estimate() {
      const wanted = JSON.stringify(body());
      if (estimating === wanted) { summary.classList.remove("stale"); return; } // it is being measured, or is there
      estimating = wanted;
      const mine = ++turn, now = () => !ended && turn === mine;
      if (!summary.querySelector("dl")) put(summary, el("p", { class: "quiet-text" }, "Measuring three steps …"));
      await new Promise((done) => setTimeout(done, 900));
      if (!now()) return;
      try {
        const found = await whenDone(api, await api.post("runs/estimate", body()), now);
        if (!now() || found.stopped) return;
        summary.classList.remove("stale");
        if (!found.result) { put(summary, el("p", { class: "problem" }, found.problem || "The estimate failed.")); return; }
        const one = found.result;
        const rows = {
          parameters: one.parameters && grouped(one.parameters), vocabulary: grouped(one.vocabulary), "training tokens": grouped(one.training_tokens),
          steps: one.steps && `${grouped(one.steps)} (${one.epochs} ${one.epochs === 1 ? "epoch" : "epochs"})`, time: one.training_time, speed: one.tokens_per_second && `${grouped(one.tokens_per_second)} tokens/s`,
          memory: one.peak_memory_bytes && bytes(one.peak_memory_bytes), device: one.device,
        };
        put(summary, el("dl", { class: "facts" }, Object.entries(rows).filter(([, value]) => value).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
          one.warning && el("p", { class: "problem" }, one.warning), one.note && el("p", {}, one.note));
        speak(`Estimated training time: ${one.training_time || "a moment"}.`);
      } catch (error) { if (!error.overtaken) put(summary, el("p", { class: "problem" }, error.message)); }
    }

    async function go() {
      begin.disabled = true;
      nameField.refuse("");
      try {
        const job = await api.post("runs/start", { ...body(), name: name.value.trim() });
        address.go(link("runs", "", { run: job.run }).slice(1));
      } catch (error) {
        if (/name|exists already/.test(error.message)) nameField.refuse(error.message); else problem.textContent = error.message;
        begin.disabled = false;
      }
    }

    put(how, el("h2", {}, "Settings"), el("p", { class: "quiet-text" }, "Loading settings …"));
    text.load().then((found) => {
      if (ended) return;
      choices = found;
      if (!choices.systems.some((one) => one.name === asked.system)) asked.system = "lstm";
      if (!text.offers(asked.data)) asked.data = "";
      text.show(asked.data);
      choose();
    }).catch(address.fail);

    return () => { ended = true; clearTimeout(timer); text.end(); };
  },
};
