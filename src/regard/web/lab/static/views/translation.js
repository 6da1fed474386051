// A sentence and its translation, with linked words, every head, and the search as a tree; and a whole file through two runs.
import { link } from "../address.js";
import { causeAnswer, causeBar, questionOf } from "../causes.js";
import { changedPair, changesIn, withChanges } from "../changes.js";
import { lineChart } from "../charts.js";
import { counted, el, labelled, number, put, segments } from "../dom.js";
import { flow } from "../flow.js";
import { learnedNote } from "../learned.js";
import { picker } from "../picker.js";
import { quoted, reading } from "../reading.js";
import { gradients as gradientSection, work } from "../reading_sections.js";
import { colourOfRun, nameColours, slotOfRun } from "../run_colours.js";
import { saveReadings } from "../saving.js";

const MOST = 2, PAUSE = 300, POLL = 1500;
const TABS = { expected: "Alignment", attention: "Attention", search: "Search", states: "States", gradients: "Gradients", work: "Arithmetic", flow: "Blocks", causes: "Causes" };

export default {
  title: "Translation",
  mount(root, first, api) {
    let address = first, runs = [], ended = false, inside = null, kind = "", names = [];
    const pick = picker({ most: MOST, change: (chosen) => address.go({ run: chosen }) });
    const modes = segments("source", { "": "One sentence", file: "A whole file" }, first.path, (path) => address.go(link("translation", path, { run: names }).slice(1)));
    const place = el("div");
    put(root, el("div", { class: "head" }, el("h1", {}, "Translation"), modes), pick.node, place);

    function update(next) {
      address = next;
      const usable = runs.filter((run) => run.task === "translation" && (run.best || run.rows));
      if (!usable.length) { put(place, el("p", { class: "lead" }, "There is no trained translator yet: ", el("a", { href: "#/new" }, "train one"), " on the built-in phrasebook.")); return; }
      names = next.query.getAll("run").filter((name) => usable.some((run) => run.name === name)).slice(0, MOST);
      if (!names.length) names = usable.slice(0, next.path === "file" ? 2 : 1).map((run) => run.name);
      pick.show(usable, names);
      modes.show(next.path === "file" ? "file" : "");
      const wanted = `${next.path === "file" ? "file" : "one"}`;
      if (kind !== wanted) { inside?.end(); inside = (wanted === "file" ? wholeFile : oneSentence)(place, api, () => address); kind = wanted; }
      inside.update(names.map((name) => usable.find((run) => run.name === name)), next);
    }

    api.get("runs").then((found) => { if (!ended) { runs = [...found.runs, ...found.gallery]; nameColours(runs); update(first); } }).catch(first.fail);
    const unmount = () => { ended = true; inside?.end(); };
    unmount.update = (next) => { if (runs.length) update(next); };
    return unmount;
  },
};

// -- one sentence ----------------------------------------------------------------------------------------------------------

function oneSentence(place, api, address) {
  let text = "", prefix = "", section = "expected", timer = 0, ended = false, seed = 0, reference = "", altered = "", stepped = address().query.get("step"), following = stepped; // the step that was chosen
  const panels = new Map();
  const words = el("input", { type: "text", dir: "auto", spellcheck: "false", autocomplete: "off", placeholder: "Type a sentence to translate" });
  const tabs = segments("view", TABS, section, (name) => address().go({ show: name === "expected" ? null : name }));
  const causes = causeBar({ change: (query) => address().go(query) });
  const begun = el("div", { class: "changed-note" }), grid = el("div", { class: "side-by-side" });
  put(place, el("div", { class: "ask" }, labelled("Source", words), el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => example() }, "Held-out sentence"), el("button", { type: "button", onclick: () => save() }, "Save as HTML"))),
    begun, el("div", { class: "tools" }, tabs), causes.node, grid);
  words.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => { reference = ""; setTo(words.value, ""); }, PAUSE);
  });

  function setTo(nextText, nextPrefix) {
    text = nextText;
    prefix = nextPrefix;
    if (words.value !== text) words.value = text;
    address().note({ text: text || null, prefix: prefix || null });
    follow();
  }
  function follow() {
    put(begun,
      reference ? el("p", { class: "caption" }, "Reference: ", quoted(reference)) : null,
      prefix ? el("p", { class: "caption" }, "The translation must begin with ", quoted(prefix), ". ", el("button", { type: "button", class: "quiet", onclick: () => setTo(text, "") }, "Clear the prefix")) : null);
    for (const panel of panels.values()) panel.read();
  }
  async function example() {
    const [name] = panels.keys();
    grid.setAttribute("aria-busy", "true");
    try {
      const found = await api.post("translation/example", { run: name, seed: seed++ });
      reference = found.reference;
      if (found.text) setTo(found.text, "");
    } catch (error) { address().fail(error); } finally { grid.removeAttribute("aria-busy"); }
  }

  async function save() {
    const shown = [...panels.values()].flatMap((panel) => panel.shown()).filter((one) => one?.text);
    const questions = section === "causes" ? [...panels.values()].map((panel) => panel.answered()).filter(Boolean) : [];
    if (shown.length) try { await saveReadings(api, "translation", shown, questions); } catch (error) { address().fail(error); }
  }

  function panel(run) {
    const problem = el("p", { class: "problem", role: "alert" }), answer = el("p", { class: "answer", dir: "auto" });
    let asked = {}, gradients = false, shown = {}; // shown: the question whose answer is on the page
    const body = () => ({ run: run.name, ...asked, ...(gradients ? { gradients: true } : {}) });
    const view = reading({
      blocks: flow,
      parts: async (names) => (await api.postArrays("translation/matrix", { ...shown, parts: names })).arrays,
      onEdit: async ({ step, token }) => {
        try { setTo(text, (await api.post("translation/begin", { ...shown, step, token })).prefix); } catch (error) { problem.textContent = error.message; }
      },
      more: { work: work((what) => api.post("translation/work", { ...shown, ...what }, { only: `work ${run.name}` })), gradients: gradientSection(() => { gradients = true; mine.read(); }) },
      onStep: (step) => { stepped = String(step); pair.step(); address().note({ step: stepped }); mine.causes(); },
      onPlaces: (places) => pair.choose(places),
      onLook: (name) => { pair.look(name); address().note({ look: name }); },
    });
    const change = (list, other = address().query.get("other") || "") => address().go({ change: withChanges(address().query, run.name, [...new Set(list)]), other: other || null });
    const changes = () => changesIn(address().query, run.name);
    const pair = changedPair({
      name: run.name, view, trace: (question) => api.post("translation/trace", question), matrices: (question) => api.postArrays("translation/matrix", question),
      changes, other: () => address().query.get("other") || "", go: change,
    });
    view.look(address().query.get("look") || "");
    const told = causeAnswer({ ask: (question) => api.post("translation/cause", question, { only: `cause ${run.name}` }), onChange: (list) => change([...changes(), ...list]) });
    const note = learnedNote(api, run, () => view.hideAlignment("Attention is meaningless before the model has learned."));
    const mine = {
      node: el("article", { class: "card panel", data: { run: run.name } },
        el("header", {}, el("h2", {}, el("i", { class: "swatch", style: { background: colourOfRun(run.name) } }), " ", el("a", { href: link("runs", "", { run: run.name }) }, run.name)), el("span", { class: "tag" }, run.system)),
        note.node, answer, problem, pair.node, told.node),
      async read() {
        if (!text.trim()) { pair.node.hidden = true; told.clear(); answer.textContent = ""; return; }
        mine.node.setAttribute("aria-busy", "true");
        asked = { text, prefix };
        const now = asked, question = body();
        try {
          const facts = await api.post("translation/trace", question, { only: `translate ${run.name}` });
          if (ended || now !== asked) return;
          shown = question;
          problem.textContent = "";
          pair.node.hidden = false;
          put(answer, facts.answer || "(empty)");
          view.show(facts, { at: following === null ? null : Number(following) });
          following = null;
          pair.read(question, facts);
          mine.causes();
        } catch (error) {
          if (error.overtaken) return;
          problem.textContent = error.message;
          answer.textContent = "";
          pair.node.hidden = true;
          told.clear();
        } finally { mine.node.removeAttribute("aria-busy"); }
      },
      shown: () => [shown, pair.asked()],
      answered: () => told.asked,
      changed: () => { if (shown.text && view.facts) pair.read(shown, view.facts); },
      causes: () => { if (section === "causes" && shown.text) told.ask({ ...shown, gradients: false, ...questionOf(address().query, stepped === null ? null : view.at) }); },
      show(name) {
        const within = name === "causes" ? "words" : name;
        view.section(within);
        pair.section(within);
        told.node.hidden = name !== "causes";
        mine.causes();
      },
      end: () => { view.end(); pair.end(); told.clear(); },
    };
    return mine;
  }

  return {
    update(runs, next) {
      section = TABS[next.query.get("show")] ? next.query.get("show") : "expected";
      tabs.show(section);
      const names = runs.map((run) => run.name), fresh = [];
      for (const [name, one] of panels) if (!names.includes(name)) { one.end(); one.node.remove(); panels.delete(name); }
      for (const run of runs) {
        if (!panels.has(run.name)) { panels.set(run.name, panel(run)); fresh.push(panels.get(run.name)); }
        grid.append(panels.get(run.name).node);
      }
      causes.node.hidden = section !== "causes";
      causes.show(next.query);
      const wanted = JSON.stringify([next.query.getAll("change"), next.query.get("other")]);
      for (const one of panels.values()) { one.show(section); if (wanted !== altered) one.changed(); }
      altered = wanted;
      const [asked, begins] = [next.query.get("text") || "", next.query.get("prefix") || ""];
      if (asked && (asked !== text || begins !== prefix)) { text = asked; prefix = begins; words.value = text; follow(); }
      else if (!text && !asked) example();
      else for (const one of fresh) one.read();
    },
    end() { ended = true; clearTimeout(timer); for (const one of panels.values()) one.end(); put(place); },
  };
}

// -- a whole file ----------------------------------------------------------------------------------------------------------

function wholeFile(place, api, address) {
  let runs = [], data = "valid", timer = 0, ended = false, asked = "";
  const choice = el("select", { "aria-label": "What to translate", onchange: () => address().go({ data: choice.value }) });
  const state = el("div", { class: "cards" }), chart = lineChart({ label: "BLEU by the length of the source", height: 260 });
  const lengths = el("section", { class: "section", hidden: true }, el("h2", {}, "BLEU by length"), chart.node);
  const list = el("section", { class: "section" });
  put(place, el("div", { class: "tools" }, el("label", {}, "Translate ", choice)), state, lengths, list);

  async function look() {
    clearTimeout(timer);
    try {
      const found = await api.get("translation/results", { run: runs.map((run) => run.name), data });
      if (ended) return;
      draw(found);
      if (found.runs.some((one) => one.running)) timer = setTimeout(look, POLL);
    } catch (error) { address().fail(error); }
  }

  async function start(run) {
    try { await api.post("translation/evaluate", { run, data }); look(); } catch (error) { address().fail(error); }
  }

  function draw(found) {
    put(choice, found.data.map((one) => el("option", { value: one, selected: one === data }, one === "valid" ? "the validation split" : one === "test" ? "the test split" : one)));
    put(state, found.runs.map((one) => el("article", { class: "card" },
      el("h2", {}, el("i", { class: "swatch", style: { background: colourOfRun(one.run) } }), " ", one.run),
      one.result
        ? el("p", { class: "in-short" }, el("b", { class: "bleu" }, number(one.result.bleu.score, 3)), ` BLEU · ${number(one.result.chrf?.score, 3)} chrF · ${counted(one.result.sentences, "sentence")} · ${one.result.search}`)
        : one.running ? el("p", { class: "quiet-text", role: "status" }, one.last || "Starting …")
          : el("p", { class: one.problem ? "problem" : "quiet-text" }, one.problem || "Not evaluated with its current weights."),
      el("button", { type: "button", class: one.result ? "writes" : "primary writes", disabled: one.running, onclick: () => start(one.run) }, one.result ? "Evaluate again" : one.running ? "Translating…" : "Translate everything"))));
    const done = found.runs.filter((one) => one.result?.by_length);
    lengths.hidden = !done.length;
    if (done.length) {
      chart.draw({
        series: done.map((one) => ({ name: one.run, colour: slotOfRun(one.run), points: true, x: Float32Array.from(one.result.by_length, (row) => row.longest || row.shortest), y: Float32Array.from(one.result.by_length, (row) => row.bleu) })),
        x: { label: "maximum words in the source", format: "number" }, y: { label: "BLEU" }, sentence: done[0].result.by_length.map((row) => `${row.longest ? `up to ${row.longest}` : `over ${row.shortest - 1}`}: ${counted(row.sentences, "sentence")}`).join(", "),
      });
    }
    const rows = found.differences;
    put(list, found.problem && el("p", { class: "problem" }, found.problem), rows && [
      el("h2", {}, runs.length > 1 ? "Where they differ most" : "Worst sentences"),
      el("p", { class: "quiet-text" }, runs.length > 1 ? `Sorted by the difference in chrF against the reference. ${rows.same} of ${rows.sentences} sentences are translated identically.` : "Sorted by chrF against the reference."),
      el("ol", { class: "differences" }, rows.rows.map((row) => el("li", {},
        el("p", { class: "source", dir: "auto" }, el("a", { href: link("translation", "", { run: runs.map((run) => run.name), text: row.source }) }, row.source)),
        el("dl", {}, el("dt", {}, "reference"), el("dd", { dir: "auto" }, row.reference),
          runs.map((run, at) => [el("dt", {}, el("i", { class: "swatch", style: { background: colourOfRun(run.name) } }), " ", run.name), el("dd", { dir: "auto" }, row.translations[at] || "(empty)", " ", el("span", { class: "tag" }, `chrF ${number(row.chrf[at], 3)}`))])))))]);
  }

  return {
    update(next, where) {
      runs = next;
      data = where.query.get("data") || "valid";
      const now = JSON.stringify([runs.map((run) => run.name), data]);
      if (now !== asked) { asked = now; look(); }
    },
    end() { ended = true; clearTimeout(timer); chart.end(); put(place); },
  };
}
