// A model as one file: it opens its own numbers in a thread of its own, and shows with the lab's views what it does.
import { changedPair } from "../changes.js";
import { el, labelled, number, put, segments, speak } from "../dom.js";
import { ablationTable, lensGrid } from "../effects.js";
import { percent, reading, SECTIONS, token } from "../reading.js";
import { samplingSliders } from "../sampling_sliders.js";
import { thread } from "./thread.js";

const text = (id) => document.getElementById(id).textContent;
const shown = JSON.parse(text("shown")), made = JSON.parse(text("model")), { task, parts } = made.about;
const call = thread(text("worker"));
const root = document.getElementById("main"), status = el("p", { class: "status", role: "status" });
const say = (words) => { status.textContent = words; };

// -- the inside of what was typed ------------------------------------------------------------------------------------------

const has = (kind) => parts.some((one) => one.kind === kind);
const tabs = { expected: task === "translation" && has("alignment") ? "Alignment" : SECTIONS.expected, ...(has("attention") ? { attention: SECTIONS.attention } : {}), ...(has("hidden") || has("gates") ? { states: SECTIONS.states } : {}), ...(task === "translation" ? { search: SECTIONS.search } : {}), causes: "Causes" };
let arrays = {}, ids = [], asked = {}, list = [], other = "", changed = {}; // list: the changes; changed: the matrices with them
const view = reading({ parts: async () => arrays, onEdit: task === "classification" ? null : (what) => edit(what), onStep: () => pair.step(), onPlaces: (places) => pair.choose(places), onLook: (name) => pair.look(name) });
const pair = changedPair({
  name: "the model", view, matrices: async () => ({ arrays: changed }), changes: () => list, other: () => other,
  trace: async (question) => { const found = await call("changed", question); changed = found.arrays; return found.facts; },
  go(next, words) { list = next; other = words; pair.read(asked, view.facts); },
});
const chosen = segments("view", tabs, "expected", (name) => {
  const section = name === "causes" ? "words" : name;
  view.section(section);
  pair.section(section);
  causes.hidden = name !== "causes";
  explain();
});

// What each layer would predict, and what is lost without each part.
const cause = el("div"), kinds = el("select", { hidden: true, "aria-label": "Parts to remove", onchange: () => explain() }), causes = el("section", { class: "answered", hidden: true });
let question = "lens", explaining = null;
put(causes, el("div", { class: "tools" }, segments("question", { lens: "Lens", ablate: "Remove each part" }, question, (name) => { question = name; explain(); }), kinds), cause);
const explain = latest(async (stale) => {
  kinds.hidden = question === "lens";
  if (causes.hidden || !view.facts) return;
  explaining = call(question, { ...asked, kind: kinds.value });
  try {
    const found = await explaining;
    if (stale()) return;
    if (found.kinds) put(kinds, found.kinds.map((one) => el("option", { selected: one === found.kind }, one)));
    put(cause, (question === "lens" ? lensGrid(found) : ablationTable(found, (some) => { list = [...new Set([...list, ...some])]; pair.read(asked, view.facts); })).node);
  } catch (error) { if (!error.cancelled) put(cause, el("p", { class: "problem", role: "alert" }, error.message)); }
});
const noted = el("p", { class: "quiet-text" });
const inside = el("section", { class: "inside", hidden: true, "aria-label": "inside the model" }, el("h2", {}, "Inside the model"), el("p", { class: "lead" }, "Choose a word: everything below shows that step."), noted, Object.keys(tabs).length > 1 && el("div", { class: "tools" }, chosen), pair.node, causes);

function show(found) {
  ({ arrays, ids } = found);
  inside.hidden = false;
  asked = { text: found.facts.text, written: found.written, beam: found.beam };
  view.show(found.facts);
  pair.read(asked, found.facts);
  explaining?.cancel();
  explain();
  noted.textContent = found.facts.notes.join(" ");
}

// One question at a time; what was asked for meanwhile is asked when its answer has come.
function latest(ask) {
  let busy = false, again = false;
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    while (again) {
      again = false;
      try { await ask(() => again); } catch (error) { if (!error.cancelled) say(error.message); }
    }
    busy = false;
  };
}

// -- what it is asked --------------------------------------------------------------------------------------------------------

const LABELS = { "language model": "Text", translation: "Sentence", classification: "Text" };
const words = el("textarea", { rows: task === "language model" ? "5" : "2", dir: "auto", spellcheck: "false", disabled: true, placeholder: task === "language model" ? "Type the beginning of a text" : "Type a sentence" });
const answer = el("p", { class: "answer", dir: "auto", "aria-live": "polite" });
const stop = el("button", { type: "button", hidden: true, onclick: () => running?.cancel() }, "Stop");
let running = null, edit = () => {};
const controls = [];
const button = (label, kind, onclick) => { const one = el("button", { type: "button", class: kind, disabled: true, onclick }, label); controls.push(one); return one; };
const following = el("section", { class: "following", hidden: true });

async function work(promise) {
  running = promise;
  stop.hidden = false;
  for (const one of controls) one.disabled = true;
  try { return await promise; } finally { running = null; stop.hidden = true; for (const one of controls) one.disabled = false; }
}

function language() {
  const seed = el("input", { type: "number", min: "0", max: "999999", value: "1" }), count = el("input", { type: "number", min: "1", max: "2000", value: "60" });
  const sliders = samplingSliders(() => next());
  sliders.node.hidden = false;
  const how = () => { const { temperature, top_k: topK, top_p: topP } = sliders.value(); return { temperature, topK, topP }; };
  const look = latest(async (stale) => {
    const found = await call("trace", { text: words.value });
    if (!stale()) { show(found); await next(); }
  });
  async function next() {
    const some = await call("following", { text: words.value, ...how() }), most = Math.max(...some.map((one) => Math.max(one.p, one.drawn)), 0.01);
    following.hidden = false;
    put(following, el("h2", {}, "Possible next words"), el("div", { class: "bars" }, some.map((one) => el("div", { class: one.drawn > 0 ? "choice-row" : "choice-row out" },
      el("button", { type: "button", class: "word", title: "Append this token", onclick: async () => { words.value = await call("take", { text: words.value, token: one.token }); speak(one.word); look(); } }, token(one.word)),
      el("span", { class: "chance" }, el("i", { class: "model", style: { width: `${(100 * one.p) / most}%` } }), el("i", { style: { width: `${(100 * one.drawn) / most}%` } })),
      el("span", { class: "number", title: `the model's own probability is ${percent(one.p)}` }, percent(one.drawn))))));
  }
  async function write(tokens, lines) {
    const before = words.value;
    try {
      const found = await work(call("write", { text: before, tokens, lines, seed: Number(seed.value) || 0, ...how() }, (now) => { words.value = now.text; words.scrollTop = words.scrollHeight; say(`${now.count} of at most ${tokens} tokens, ${number(now.count / now.seconds, 3)} per second`); }));
      words.value = found.text;
      say(`${found.count} ${found.count === 1 ? "token" : "tokens"} in ${number(found.seconds, 2)} s: ${number(found.count / found.seconds, 3)} per second.`);
      speak(found.text.slice(before.length));
    } catch (error) { say(error.cancelled ? "Stopped." : error.message); }
    look();
  }
  edit = async (what) => { words.value = await call("edit", { ids, ...what }); look(); };
  words.addEventListener("input", look);
  const nodes = [el("div", { class: "buttons" }, button("Write", "primary", () => write(Number(count.value) || 60, 0)), button("Finish the line", "", () => write(200, 1)), button("One token", "", () => write(1, 0)), stop, button("Clear", "quiet", () => { words.value = ""; look(); words.focus(); })),
    el("div", { class: "tools" }, el("label", {}, "tokens", count), el("label", {}, "seed", seed)), sliders.node];
  return { nodes, look };
}

function translation() {
  const beam = el("select", {}, [["1", "greedy (most probable word each time)"], ["2", "beam size 2"], ["5", "beam size 5"], ["10", "beam size 10"]].map(([value, name]) => el("option", { value, selected: value === "5" }, name)));
  async function ask(prefix = "") {
    if (!words.value.trim()) { say("There is nothing to translate: type a sentence."); return; }
    try {
      const found = await work(call("translate", { text: words.value, beam: Number(beam.value), prefix }));
      answer.textContent = found.facts.answer || "(an empty translation)";
      say(`Translated in ${number(found.seconds, 2)} s.`);
      show({ ...found, beam: Number(beam.value) });
    } catch (error) { say(error.cancelled ? "Stopped." : error.message); }
  }
  const look = latest(() => ask());
  edit = async ({ step, token: word }) => ask(await call("edit", { ids: [0, ...await written(step)], step, token: word }));
  const written = async (step) => ids.slice(1, step + 1);
  words.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); look(); } });
  beam.addEventListener("change", look);
  return { nodes: [el("div", { class: "buttons" }, button("Translate", "primary", look), stop, el("label", { class: "field beside" }, "search ", beam))], look };
}

function classification() {
  const look = latest(async (stale) => {
    if (!words.value.trim()) { say("There is nothing to classify: type a text."); return; }
    const found = await call("trace", { text: words.value });
    if (stale()) return;
    const [first] = found.facts.top[0];
    answer.textContent = first ? `${first.word} (${percent(first.p)})` : "";
    say("");
    show(found);
  });
  words.addEventListener("input", look);
  return { nodes: [el("div", { class: "buttons" }, button("Classify", "primary", look))], look };
}

// -- the page ----------------------------------------------------------------------------------------------------------------

const LEADS = { "language model": "This language model runs inside this file; it sends nothing and loads nothing. It continues a text in the style of its training text. It knows nothing else, and its output may be false.", translation: "This translator runs inside this file; it sends nothing and loads nothing. It learned only from sentence pairs and makes mistakes, especially with words it has never seen.", classification: "This classifier runs inside this file; it sends nothing and loads nothing. It always answers with one of its labels, even if none of them fits." };
const { nodes, look } = { "language model": language, translation, classification }[task]();
const bar = el("i"), loading = el("div", { class: "loading" }, el("p", { class: "quiet-text" }, "Loading the model …"), el("div", { class: "progress", role: "progressbar", "aria-label": "loading the model" }, bar));
const try_ = (line) => { words.value = line; look(); };

const about = el("section", { class: "about" }, el("h2", {}, "About this model"),
  shown.scores.length ? el("dl", { class: "facts" }, shown.scores.map(([name, value]) => [el("dt", {}, `${name} on the ${shown.split} split`), el("dd", {}, value)])) : el("p", { class: "quiet-text" }, `Scores: ${shown.unscored}`),
  el("dl", { class: "facts" }, shown.about.map(([name, value]) => [el("dt", {}, name), el("dd", { dir: "auto" }, value)])),
  shown.notes.length ? el("ul", { class: "notes" }, shown.notes.map((note) => el("li", {}, note))) : null,
  el("details", {}, el("summary", {}, "Recipe (all settings)"), el("pre", { tabindex: "0" }, shown.recipe)),
  el("p", { class: "caption" }, "Created by ", el("code", {}, "regard export RUN --to page"), ". The file needs no network: its content security policy forbids all requests."));

put(root, el("h1", {}, shown.title), shown.finding && el("p", { class: "finding" }, shown.finding), el("p", { class: "lead" }, LEADS[task]), loading,
  labelled(LABELS[task], words), el("div", { class: "examples", role: "group", "aria-label": "examples" }, shown.examples.map((line) => button(task === "language model" ? `${line.split(" ").slice(0, 3).join(" ")}…` : line, "", () => try_(task === "language model" ? line.split(" ").slice(0, 3).join(" ") : line)))),
  nodes, status, answer, following, inside, about);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));

// Inside another page, the model opens when it is first seen.
const seen = () => new Promise((done) => {
  if (window === parent) done();
  else new IntersectionObserver((entries, observer) => { if (entries.some((one) => one.isIntersecting)) { observer.disconnect(); done(); } }).observe(root);
});

const ready = (async () => {
  if (!globalThis.DecompressionStream || !globalThis.Worker) throw new Error("This browser is too old to open the model: use one from 2023 or later.");
  await seen();
  await call("open", { made, letters: text("weights") }, (share) => { bar.style.width = `${100 * share}%`; });
  document.getElementById("weights").remove();
  loading.remove();
  for (const one of [words, ...controls]) one.disabled = false;
  if (shown.examples.length) words.value = task === "language model" ? shown.examples[0].split(" ").slice(0, 3).join(" ") : shown.examples[0];
  if (words.value || task === "language model") await look();
})();
ready.catch((error) => put(loading, el("p", { class: "problem", role: "alert" }, error.message)));
globalThis.regard = { ready, call }; // for a check from outside, and for pages that hold this one
