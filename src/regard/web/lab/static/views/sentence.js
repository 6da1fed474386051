// The same text through several runs, side by side: what each expected, all that happened inside, and what may come next.
import { link } from "../address.js";
import { causeAnswer, causeBar, questionOf } from "../causes.js";
import { changedPair, changesIn, withChanges } from "../changes.js";
import { counted, el, labelled, notice, number, put, segments, speak } from "../dom.js";
import { flow } from "../flow.js";
import { learnedNote } from "../learned.js";
import { picker } from "../picker.js";
import { percent, quoted, reading, sameStep, SECTIONS, token } from "../reading.js";
import { gradients, work } from "../reading_sections.js";
import { colourOfRun, nameColours } from "../run_colours.js";
import { samplingSliders } from "../sampling_sliders.js";
import { saveReadings } from "../saving.js";

const MOST = 4, PAUSE = 300; // runs side by side; milliseconds after the last letter, where gradients are computed
const TABS = { expected: SECTIONS.expected, attention: SECTIONS.attention, states: SECTIONS.states, gradients: SECTIONS.gradients, work: SECTIONS.work, flow: SECTIONS.flow, causes: "Causes", write: "Generate" };

// Is one text the other with something changed in it? At least half of the shorter one is left at their ends.
function related(a, b) {
  let start = 0, end = 0;
  const shorter = Math.min(a.length, b.length);
  while (start < shorter && a[start] === b[start]) start++;
  while (end < shorter - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  return shorter > 0 && start + end >= shorter / 2;
}

// Of each step, how many bits more its word costs than before the change; words are matched from both ends.
function changes(before, after) {
  const [a, b] = [before.words.read, after.words.read];
  let start = 0, end = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const bits = (facts, step) => (facts.known[step] ? -Math.log2(facts.probability[step]) : NaN);
  return b.map((_, step) => {
    const written = step + 1, old = written < start ? step : written >= b.length - end ? step + a.length - b.length : -1;
    const moved = old >= 0 && old < a.length ? bits(after, step) - bits(before, old) : NaN;
    return Math.abs(moved) >= 0.05 ? moved : 0;
  });
}

export default {
  title: "Sentence",
  mount(root, first, api) {
    let address = first, runs = [], text = "", before = "", section = "expected", timer = 0, seed = 1, opening = false, held = { text: "", next: 0 }, ended = false, following = null, altered = "", stepped = false; // stepped: somebody chose the step
    const panels = new Map(); // by run
    const words = el("textarea", { rows: "2", dir: "auto", spellcheck: "false", placeholder: "Type a sentence" });
    const field = labelled("Text", words);
    const pick = picker({ most: MOST, change: (names) => address.go({ run: names }) });
    const tabs = segments("view", TABS, section, (name) => address.go({ show: name === "expected" ? null : name }));
    const sliders = samplingSliders(() => { for (const panel of panels.values()) panel.following(); });
    const causes = causeBar({ change: (query) => address.go(query) });
    const changed = el("div", { class: "changed-note" });
    const grid = el("div", { class: "side-by-side" });
    put(root,
      el("div", { class: "head" }, el("h1", {}, "Sentence"), el("p", { class: "quiet-text flush" }, "Read the same text with several models. Choose a word to inspect that step.")),
      el("div", { class: "ask" }, field, el("div", { class: "buttons" },
        el("button", { type: "button", onclick: () => example() }, "Held-out sentence"),
        el("button", { type: "button", onclick: () => invent() }, "Generate a sentence"),
        el("button", { type: "button", onclick: () => save() }, "Save as HTML"))),
      pick.node, el("div", { class: "tools" }, tabs), sliders.node, causes.node, changed, grid);

    words.addEventListener("focus", () => { before = text; });
    words.addEventListener("input", () => {
      clearTimeout(timer);
      const typed = () => { text = words.value; address.note({ text }); follow(); };
      if ([...panels.values()].some((panel) => panel.gradients)) timer = setTimeout(typed, PAUSE);
      else typed(); // at once: a panel that waits for an answer asks again when it has come
    });

    function setText(next, from = null) {
      if (next === text) return;
      before = from ?? text;
      text = next;
      words.value = text;
      address.note({ text });
      follow();
    }

    function follow() { for (const panel of panels.values()) panel.read(); told(); }

    const isChanged = () => before !== "" && text !== before && related(before, text);

    function told() {
      put(changed, text && text === held.text ? el("p", { class: "caption" }, `A sentence from ${held.corpus} that was held out from training.`) : isChanged() && before.length < 400
        ? el("p", { class: "caption" }, "Changed from ", quoted(before), ": ▲ the word now costs more bits, ▼ fewer. ",
          el("button", { type: "button", class: "quiet", onclick: () => setText(before) }, "Undo"))
        : null);
    }

    // The next sentence that the first run was not trained on; where its text is gone, it writes one itself.
    async function example() {
      const [name] = panels.keys(), run = runs.find((one) => one.name === name);
      if (!run) return;
      try {
        const found = await api.post("sentence/example", { run: name, seed: held.next++ });
        if (ended) return;
        if (!found.text) { await invent(); return; }
        held = { ...held, text: found.text, corpus: run.corpus };
        before = "";
        setText(found.text, "");
      } catch (error) { address.fail(error); }
    }

    async function invent() {
      const run = runs.find((one) => panels.has(one.name) && one.task === "language model");
      if (!run) { notice("Choose a language model.", { bad: true }); return; }
      try {
        const found = await api.post("sentence/write", { run: run.name, text: "", tokens: 40, line: true, temperature: 0.7, seed: seed++ });
        before = "";
        setText(found.text, "");
      } catch (error) { address.fail(error); }
    }

    async function save() {
      const shown = [...panels.values()].flatMap((panel) => panel.shown()).filter((one) => one?.run);
      const questions = section === "causes" ? [...panels.values()].map((panel) => panel.answered()).filter(Boolean) : [];
      if (shown.length) try { await saveReadings(api, "sentence", shown, questions); } catch (error) { address.fail(error); }
    }

    function panel(run) {
      const figures = el("p", { class: "in-short" }), problem = el("p", { class: "problem", role: "alert" });
      const bars = el("div", { class: "bars" }), after = el("h3", {});
      const write = el("section", { class: "part write", hidden: true }, after, bars,
        el("div", { class: "buttons" },
          el("button", { type: "button", class: "primary", onclick: () => drawn(1) }, "Generate one token"),
          el("button", { type: "button", onclick: () => drawn(60, true) }, "Finish the line")));
      const mine = { gradients: false, facts: null, shown: () => [shown, pair.asked()], answered: () => answer.asked };
      const answer = causeAnswer({ ask: (question) => api.post("sentence/cause", question, { only: `cause ${run.name}` }), onChange: (list) => mine.change([...changesIn(address.query, run.name), ...list]) });
      mine.change = (list, other = address.query.get("other") || "") => address.go({ change: withChanges(address.query, run.name, [...new Set(list)]), other: other || null });
      let asked = "", shown = {}, last = null; // shown: the question that is answered on the page
      const body = () => ({ run: run.name, text: asked, ...(mine.gradients ? { gradients: true } : {}) });
      const view = reading({
        blocks: flow,
        parts: async (names) => (await api.postArrays("sentence/matrix", { ...shown, parts: names })).arrays,
        onStep: (step) => {
          following = null;
          stepped = true;
          mine.lead();
          pair.step();
          address.note({ step: String(step) });
          for (const one of panels.values()) one.causes();
        },
        onPlaces: (places) => pair.choose(places),
        onLook: (name) => { pair.look(name); address.note({ look: name }); },
        onEdit: run.task === "language model" ? async ({ step, token, keep }) => {
          try { setText((await api.post("sentence/edit", { run: run.name, text: asked, step, token, keep })).text); } catch (error) { address.fail(error); }
        } : null,
        more: { work: work((what) => api.post("sentence/work", { ...shown, ...what }, { only: `work ${run.name}` })), gradients: gradients(() => { mine.gradients = true; mine.read(); }) },
      });
      const pair = changedPair({
        name: run.name, view, trace: (question) => api.post("sentence/trace", question), matrices: (question) => api.postArrays("sentence/matrix", question),
        changes: () => changesIn(address.query, run.name), other: () => address.query.get("other") || "", go: (list, other) => mine.change(list, other),
      });
      view.look(address.query.get("look") || "");
      mine.changed = () => { if (mine.facts) pair.read(shown, mine.facts); };
      mine.causes = () => { if (section === "causes" && shown.run) answer.ask({ ...shown, gradients: false, ...questionOf(address.query, stepped ? view.at : null) }); };
      const note = learnedNote(api, run);
      mine.node = el("article", { class: "card panel", data: { run: run.name } },
        el("header", {}, el("h2", {}, el("i", { class: "swatch", style: { background: colourOfRun(run.name) } }), " ", el("a", { href: link("runs", "", { run: run.name }) }, run.name)), el("span", { class: "tag" }, run.system)),
        note.node, figures, problem, pair.node, answer.node, write);

      // One question at a time; what was asked for meanwhile is asked when its answer has come.
      let busy = false, again = false;
      mine.read = async () => {
        again = true;
        if (busy) return;
        busy = true;
        mine.node.setAttribute("aria-busy", "true");
        while (again && !ended) { again = false; await trace(); }
        busy = false;
        mine.node.removeAttribute("aria-busy");
      };
      async function trace() {
        asked = text;
        try {
          const question = body(), facts = await api.post("sentence/trace", question);
          if (ended || again) return;
          shown = question;
          problem.textContent = "";
          const old = before && last && last.text !== facts.text && mine.first?.text === before ? mine.first : last;
          const moved = isChanged() && old && facts.task === "language model" ? changes(old, facts) : null;
          if (!before || text === before || !mine.first) mine.first = facts;
          last = facts;
          mine.facts = facts;
          pair.node.hidden = false;
          view.show(facts, { before: moved, at: following });
          pair.read(question, facts);
          mine.causes();
          if (mine === [...panels.values()][0]) mine.lead();
          else mine.follow(panels.values().next().value);
          put(figures, facts.perplexity
            ? [`perplexity ${number(facts.perplexity, 3)} per token`, facts.bits_per_character ? ` · ${number(facts.bits_per_character, 3)} bits per character` : "", ` · ${counted(facts.words.read.length - 1, "token")}`]
            : facts.answer ? `→ ${facts.answer}` : "");
          mine.following();
        } catch (error) {
          if (again) return;
          problem.textContent = error.message;
          pair.node.hidden = true;
          answer.clear();
          put(figures);
        }
      }

      mine.following = async () => {
        if (section !== "write" || run.task !== "language model") return;
        try {
          const found = await api.post("sentence/following", { run: run.name, text: asked, ...sliders.value() }, { only: `next ${run.name}` });
          if (ended) return;
          after.textContent = `Possible words after ${quoted(view.facts?.words.read.at(-1) ?? "<eos>")}`;
          const most = Math.max(...found.choices.map((one) => Math.max(one.p, one.drawn)), 0.01);
          put(bars, found.choices.map((one) => el("div", { class: one.drawn > 0 ? "choice-row" : "choice-row out" },
            el("button", { type: "button", class: "word", title: "Append this token", onclick: () => take(one.token) }, token(one.word)),
            el("span", { class: "chance" }, el("i", { class: "model", style: { width: `${100 * one.p / most}%` } }), el("i", { style: { width: `${100 * one.drawn / most}%` } })),
            el("span", { class: "number", title: `the model's own probability is ${percent(one.p)}` }, percent(one.drawn)))),
            found.other > 0.0005 && el("p", { class: "caption" }, `All other tokens share ${percent(found.other)}. Pale bars show the probabilities before temperature, top-k and top-p.`));
        } catch (error) { if (!error.overtaken) problem.textContent = error.message; }
      };
      const take = async (token) => {
        try { following = 1e9; setText((await api.post("sentence/edit", { run: run.name, text: asked, step: view.facts.words.read.length - 1, token })).text, ""); } catch (error) { address.fail(error); }
      };
      const drawn = async (tokens, line = false) => {
        try {
          const found = await api.post("sentence/write", { run: run.name, text: asked, tokens, line, seed: seed++, ...sliders.value() });
          following = 1e9;
          speak(found.text.slice(asked.length) || "a line break");
          setText(found.text === asked ? `${asked}\n` : found.text, "");
        } catch (error) { address.fail(error); }
      };
      mine.view = view;
      mine.lead = () => { for (const other of panels.values()) if (other !== mine) other.follow(mine); };
      mine.follow = ({ view: lead }) => { if (lead.facts && view.facts && lead.facts.text === view.facts.text) { view.step(sameStep(lead.facts, lead.at, view.facts)); pair.step(); } };
      mine.show = (name) => {
        const writes = run.task === "language model";
        const within = name === "causes" ? "words" : name !== "write" ? name : writes ? "none" : "expected";
        view.section(within);
        pair.section(within);
        answer.node.hidden = name !== "causes";
        mine.causes();
        write.hidden = name !== "write" || !writes;
        mine.following();
      };
      mine.end = () => { view.end(); pair.end(); answer.clear(); };
      return mine;
    }

    function update(next) {
      address = next;
      section = TABS[next.query.get("show")] ? next.query.get("show") : "expected";
      tabs.show(section);
      sliders.node.hidden = section !== "write";
      causes.node.hidden = section !== "causes";
      causes.show(next.query);
      const usable = runs.filter((run) => run.best || run.counted || run.rows);
      let names = next.query.getAll("run").filter((name) => runs.some((run) => run.name === name)).slice(0, MOST);
      if (!names.length) {
        const writers = usable.filter((run) => run.task === "language model");
        names = (writers.length ? writers : usable).slice(0, 2).map((run) => run.name);
      }
      pick.show(usable, names);
      for (const [name, one] of panels) if (!names.includes(name)) { one.end(); one.node.remove(); panels.delete(name); }
      const fresh = [];
      for (const name of names) {
        if (!panels.has(name)) { panels.set(name, panel(runs.find((run) => run.name === name))); fresh.push(panels.get(name)); }
        grid.append(panels.get(name).node);
      }
      const asked = next.query.get("text"), wanted = JSON.stringify([next.query.getAll("change"), next.query.get("other")]);
      if (asked !== null && asked !== text) { before = ""; text = asked; words.value = asked; follow(); }
      else if (!opening) for (const one of fresh) one.read();
      for (const one of panels.values()) { one.show(section); if (wanted !== altered) one.changed(); }
      altered = wanted;
      if (!names.length) put(grid, el("p", { class: "lead" }, "There is no run that this view can show yet: ", el("a", { href: "#/runs" }, "start one"), "."));
      return names;
    }

    api.get("runs").then((found) => {
      if (ended) return;
      runs = [...found.runs, ...found.gallery];
      nameColours(runs);
      following = Number(first.query.get("step")) || null;
      stepped = first.query.get("step") !== null;
      if (first.query.get("text") === null) {
        opening = true;
        const some = update(first);
        opening = false;
        if (some.length) example().then(() => { if (!text && !ended) follow(); });
      } else update(first);
    }).catch(first.fail);

    const unmount = () => { ended = true; clearTimeout(timer); for (const one of panels.values()) one.end(); };
    unmount.update = (next) => { if (runs.length) update(next); };
    return unmount;
  },
};
