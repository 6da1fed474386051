// A run at moments of its training: what it writes, what it looks at, and how its word vectors form.
import { link } from "../address.js";
import { causeAnswer, causeBar, questionOf } from "../causes.js";
import { changedPair, changesIn, withChanges } from "../changes.js";
import { lineChart } from "../charts.js";
import { el, grouped, labelled, number, put, segments } from "../dom.js";
import { filmBar } from "../film.js";
import { picker } from "../picker.js";
import { reading } from "../reading.js";
import { save } from "../saving.js";
import { scatter } from "../scatter.js";

const PAUSE = 120;
const SCORES = { induction: "Induction", duplicate: "Same word", previous: "Previous word", positional: "Fixed distance", syntactic: "Verb to subject" };
const TABS = { expected: "Predictions", attention: "Attention", states: "States", causes: "Causes" };

export default {
  title: "Time",
  mount(root, first, api) {
    let address = first, runs = [], run = null, found = null, text = "", section = "expected", ended = false, timer = 0, plane = null, answers = new Map(), shown = {}, altered = "", stepped = first.query.get("step"); // shown: the question whose answer is on the page
    const pick = picker({ most: 1, change: ([name]) => address.go({ run: name, at: null, text: null }) });
    const film = filmBar({ label: "Training step", frame: go, told: (at) => sentenceOf(found.moments[at]) });
    const keep = el("button", { type: "button", onclick: () => saveFilm() }, "Save the film as HTML");
    const chart = lineChart({ label: "validation loss", height: 170 }), points = scatter({ label: "word vectors" }), lines = lineChart({ label: "head roles during training", height: 280 });
    const written = el("pre", { class: "wrote", dir: "auto" }), problem = el("p", { class: "problem", role: "alert" });
    const words = el("input", { type: "text", dir: "auto", spellcheck: "false", autocomplete: "off" });
    const tabs = segments("view", TABS, section, (name) => address.go({ show: name === "expected" ? null : name }));
    const view = reading({
      parts: async (names) => (await api.postArrays(`${shown.kind}/matrix`, { ...shown.asked, parts: names })).arrays,
      onStep: (step) => { stepped = String(step); pair.step(); address.note({ step: stepped }); ask(); },
      onPlaces: (places) => pair.choose(places),
      onLook: (name) => { pair.look(name); address.note({ look: name }); },
    });
    const change = (list, other = address.query.get("other") || "") => address.go({ change: withChanges(address.query, run.name, [...new Set(list)]), other: other || null });
    const changes = () => changesIn(address.query, run.name);
    const pair = changedPair({
      name: "this model", view, trace: (question) => api.post(`${shown.kind}/trace`, question, { only: "time changed" }), matrices: (question) => api.postArrays(`${shown.kind}/matrix`, question),
      changes, other: () => address.query.get("other") || "", go: change,
    });
    const causes = causeBar({ change: (query) => address.go(query) }), answer = causeAnswer({ ask: (question) => api.post(`${shown.kind}/cause`, question, { only: "time cause" }), onChange: (list) => change([...changes(), ...list]) });
    const ask = () => { if (section === "causes" && shown.asked) answer.ask({ ...shown.asked, ...questionOf(address.query, stepped === null ? null : view.at) }); };
    const scores = segments("score", SCORES, "induction", (score) => address.go({ score: score === "induction" ? null : score })), headProblem = el("p", { class: "problem", role: "alert" });
    const heads = el("section", { class: "card heads", hidden: true }, el("h2", {}, "Head roles"), el("div", { class: "tools" }, scores), headProblem, lines.node,
      el("p", { class: "caption" }, "Each line is the share of a head's attention that goes to the previous word, to a fixed distance, to an earlier copy of the word, to the word after that copy (both on random words read twice), or from a verb to its subject (on the phrasebook's sentences). “Chance” means uniform attention."));
    const none = el("div", { class: "lead", hidden: true });
    const all = el("div", {},
      film.node, chart.node, problem,
      el("div", { class: "side-by-side" },
        el("section", { class: "card" }, el("h2", {}, "Reading a text"), labelled("Text", words), el("h3", { class: "writes" }, "Generated text"), written, el("div", { class: "tools" }, tabs), causes.node, pair.node, answer.node),
        el("section", { class: "card vectors" }, el("h2", {}, "Word vectors"), points.node)), heads);
    all.hidden = true; // until there is something to see
    put(root, el("div", { class: "head" }, el("h1", {}, "Time"), el("p", { class: "quiet-text flush" }, "One model at several points in its training."), el("span", { class: "buttons" }, keep)), pick.node, none, all);

    const kind = () => (found?.translates ? "translation" : "sentence");
    const moment = () => found.moments[film.at];
    const body = () => ({ run: run.name, text, weights: String(moment().step) });

    words.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => { text = words.value; answers = new Map(); address.note({ text }); look(); askHeads(); }, 300); });

    const sentenceOf = (now) => `step ${grouped(now.step)} of ${grouped(found.moments.at(-1).step)}${now.loss ? ` · validation loss ${number(now.loss, 4)} nats per token` : now.step ? "" : " · before any training"}`;
    function go(_, playing) {
      address.note({ at: String(moment().step) });
      told();
      clearTimeout(timer);
      if (playing) return look();
      timer = setTimeout(look, PAUSE);
      return null;
    }
    async function saveFilm() {
      keep.disabled = true;
      try { save(`${run.name.replaceAll("/", "-")}-film.html`, new Blob([(await api.post("time/film", { run: run.name, text })).page], { type: "text/html" })); } catch (error) { problem.textContent = error.message; }
      keep.disabled = false;
    }
    function told() {
      const now = moment();
      if (plane) points.draw({ words: plane.about.words, places: plane.arrays.places, nearest: plane.arrays.nearest, moment: plane.about.steps.indexOf(now.step), sentence: `The axes are the two directions in which the vectors of the last snapshot vary most (${Math.round(100 * plane.about.share)} % of their variance); each snapshot is centered on its own mean.` });
    }
    // The scores of every head at every snapshot; a system without heads shows none.
    let looked = null;
    async function askHeads() {
      const name = run.name;
      try {
        const answer = await api.post("time/heads", { run: name, text });
        if (ended || run.name !== name) return;
        looked = answer;
        headProblem.textContent = "";
        drawHeads();
      } catch (error) {
        if (ended || error.overtaken || run.name !== name) return;
        looked = null;
        heads.hidden = /no causal attention/.test(error.message);
        headProblem.textContent = error.message;
        lines.node.hidden = true;
      }
    }
    function drawHeads() {
      if (!looked) return;
      const asked = address.query.get("score"), score = looked.chance[asked] === undefined ? "induction" : asked, x = Float32Array.from(looked.steps);
      scores.show(score);
      for (const one of scores.children) one.hidden = looked.chance[one.dataset.value] === undefined;
      heads.hidden = lines.node.hidden = false;
      const chance = { name: "chance", colour: 7, quiet: true, x, y: Float32Array.from(looked.steps, () => looked.chance[score]) };
      lines.draw({ series: [...looked.heads.map((name, at) => ({ name, colour: at, points: true, x, y: Float32Array.from(looked.scores[score], (row) => row[at]) })), chance], x: { label: "step" }, y: { label: `${SCORES[score].toLowerCase()}: share of attention` } });
    }
    // What it reads and writes at this moment; what was asked once is kept.
    async function look() {
      const now = moment().step, asked = body();
      try {
        if (!answers.has(now)) {
          answers.set(now, Promise.all([
            api.post(`${kind()}/trace`, asked, { only: "time trace" }),
            found.translates ? null : api.post("sentence/write", { ...asked, text: text.split(" ").slice(0, 3).join(" "), tokens: 60, temperature: 0.8, seed: 1 }, { only: "time write" }),
          ]));
          answers.get(now).catch(() => answers.delete(now));
        }
        const [facts, sample] = await answers.get(now);
        if (ended || moment().step !== now) return;
        problem.textContent = "";
        shown = { kind: kind(), asked };
        view.show(facts, { at: stepped === null ? null : Number(stepped) });
        pair.read(asked, facts);
        ask();
        root.dataset.moment = String(now);
        put(written, sample ? sample.text : facts.answer || "(empty)");
      } catch (error) { if (!error.overtaken) problem.textContent = error.message; }
    }
    async function open(name, next) {
      film.stop();
      run = runs.find((one) => one.name === name);
      view.look(next.query.get("look") || "");
      answers = new Map();
      plane = null;
      root.setAttribute("aria-busy", "true");
      try {
        found = await api.get("time/about", { run: name });
        if (ended) return;
        none.hidden = found.moments.length > 0;
        all.hidden = keep.hidden = !none.hidden;
        put(none, el("p", {}, `${name} has no snapshots. Train with `, el("code", {}, "--training.snapshots 10"), " (or set “snapshots” under Training in the form for a new run). Each snapshot is a copy of the weights."));
        if (!found.moments.length) return;
        const losses = found.moments.filter((one) => one.loss);
        chart.draw({ series: [{ name, colour: 0, points: true, x: Float32Array.from(losses, (one) => one.step), y: Float32Array.from(losses, (one) => one.loss) }], x: { label: "step" }, y: { label: "validation loss (nats per token) at the snapshots" } });
        text = next.query.get("text") ?? (found.translates
          ? (await api.post("translation/example", { run: name })).text
          : (await api.post("sentence/example", { run: name })).text || (await api.post("sentence/write", { run: name, text: "", tokens: 14, line: true, temperature: 0, seed: 1 })).text);
        words.value = text;
        const wanted = found.moments.findIndex((one) => String(one.step) === next.query.get("at"));
        film.show(found.moments.length, wanted >= 0 ? wanted : found.moments.length - 1);
        told();
        look();
        looked = null;
        heads.hidden = true;
        askHeads();
        plane = await api.arrays("time/vectors", { run: name }).catch(() => null);
        root.querySelector(".vectors").hidden = !plane;
        if (!ended && plane && run.name === name) told();
      } catch (error) { address.fail(error); } finally { root.removeAttribute("aria-busy"); }
    }

    function update(next) {
      address = next;
      section = TABS[next.query.get("show")] ? next.query.get("show") : "expected";
      tabs.show(section);
      const within = section === "causes" ? "words" : section, wanted = JSON.stringify([next.query.getAll("change"), next.query.get("other")]);
      view.section(within);
      pair.section(within);
      causes.node.hidden = answer.node.hidden = section !== "causes";
      causes.show(next.query);
      ask();
      if (wanted !== altered && view.facts) pair.read(shown.asked, view.facts);
      altered = wanted;
      drawHeads();
      const usable = runs.filter((one) => one.task !== "classification" && !one.counted);
      const asked = next.query.get("run"), name = usable.some((one) => one.name === asked) ? asked : (usable.find((one) => one.kept) || usable[0])?.name;
      if (!name) { none.hidden = false; all.hidden = true; put(none, el("p", {}, "There is no run that this view can show yet: ", el("a", { href: "#/new" }, "start one"), ".")); return; }
      pick.show(usable, [name]);
      if (run?.name !== name) open(name, next);
    }

    api.get("runs").then((all_) => { if (!ended) { runs = all_.runs; update(first); } }).catch(first.fail);
    const unmount = () => { ended = true; clearTimeout(timer); film.end(); chart.end(); points.end(); lines.end(); view.end(); pair.end(); answer.clear(); };
    unmount.update = (next) => { if (runs.length) update(next); };
    return unmount;
  },
};
