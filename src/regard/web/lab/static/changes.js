// A changed model beside the unchanged one: which part is changed and how, the list of changes, and what that does to
// every prediction. The changes are in the page's address: change=WAY PLACE RUN, such as "zero self/0[2] gpt".
//
//   const pair = changedPair({ name, view, trace, matrices, changes: () => ["zero self/0[2]"], other: () => "", go });
//   root.append(pair.node);   pair.choose(places);   await pair.read(question, facts);   pair.section("attention");   pair.end();
//   comparison(before, after, step)          the table of one text before and after, for a page that has no pair
//
// `view` is the reading of the unchanged model, `go(changes, other)` writes the address.

import { el, number, put, speak } from "./dom.js";
import { percent, quoted, reading, sameStep, token } from "./reading.js";

const WAYS = { zero: "removed", mean: "its mean", swap: "swapped" };
const SHOWN = 40; // steps up to which all are listed

// The changes of one run in an address, and the address with others for it.
export const changesIn = (query, run) => query.getAll("change").map((one) => /^(\w+) (\S+) ([^]*)$/.exec(one)).filter((one) => one && WAYS[one[1]] && one[3] === run).map((one) => `${one[1]} ${one[2]}`);
export const withChanges = (query, run, changes) => [...query.getAll("change").filter((one) => !one.endsWith(` ${run}`)), ...changes.map((one) => `${one} ${run}`)];

export function changedPair({ name, view, trace, matrices, changes, other, go }) {
  const select = el("select", { "aria-label": `Part of ${name} to change` }), chips = el("span", { class: "chips" });
  const words = el("input", { type: "text", dir: "auto", spellcheck: "false", autocomplete: "off", "aria-label": "Text to take values from", placeholder: "Other text, of equal length" });
  const apply = (way) => {
    if (!select.value) return;
    if (way === "swap" && !words.value.trim()) { words.hidden = false; words.focus(); speak("Type the other text, then press Enter."); return; }
    const place = select.value, rest = changes().filter((one) => one.split(" ")[1] !== place);
    go([...rest, `${way} ${place}`], words.value.trim());
  };
  words.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); apply("swap"); } });
  const bar = el("div", { class: "change-bar", role: "group", "aria-label": `Change a part of ${name}` }, el("label", {}, "Change ", select),
    el("button", { type: "button", onclick: () => apply("zero") }, "Remove"), el("button", { type: "button", title: "Replace it with its mean over the words of this text", onclick: () => apply("mean") }, "Replace with mean"),
    el("button", { type: "button", title: "Take its value from another text", onclick: () => apply("swap") }, "Swap in from another text"), words, chips);
  const problem = el("p", { class: "problem", role: "alert" }), compared = el("div", { class: "compared" });
  let asked = null, before = null, after = null, turn = 0, section = "expected", shown = {};
  const second = reading({ parts: async (names) => (await matrices({ ...shown, parts: names })).arrays, onStep: (step) => { view.step(sameStep(after, step, before)); compare(); }, onPlaces: (places, quiet) => { if (!quiet) choose(places); }, onLook: (name) => { view.look(name); } });
  const right = el("div", {}, el("h3", {}, "After the change"), second.node), left = el("div", {}, el("h3", { hidden: true }, "Before"), view.node);
  const pair = el("div", { class: "pair" }, left), node = el("div", { class: "changed" }, bar, problem, compared, pair);

  function choose(places) {
    if (!places.length) return;
    put(select, places.map((place) => el("option", { value: place }, `${view.title(place)} (${place})`)));
  }

  function draw() {
    const list = changes();
    words.hidden = !other() && !list.some((one) => one.startsWith("swap"));
    if (document.activeElement !== words) words.value = other();
    put(chips, list.map((one) => {
      const [way, place] = one.split(" ");
      return el("span", { class: "tag picked", title: place }, `${before ? view.title(place) : place}: ${WAYS[way]}`, el("button", { type: "button", class: "quiet", "aria-label": `Undo: ${place} ${WAYS[way]}`, onclick: () => go(list.filter((own) => own !== one), other()) }, "×"));
    }), list.length > 0 && el("button", { type: "button", class: "quiet", onclick: () => go(list.slice(0, -1), other()) }, "Undo"));
    const changed = list.length > 0 && after !== null;
    if (changed) pair.append(right); else right.remove();
    left.firstChild.hidden = !changed;
    pair.classList.toggle("two", changed);
    compared.hidden = !changed;
    if (changed) compare();
  }
  const compare = () => { if (after) put(compared, comparison(before, after, view.at)); };

  return {
    node,
    choose,
    // The question that the unchanged model has answered, and its answer: the changed one is asked, too.
    async read(question, facts) {
      const list = changes(), mine = ++turn, now = { ...question, gradients: false, changes: list, ...(other() ? { other: other() } : {}) };
      before = facts;
      problem.textContent = "";
      if (!list.length) { after = null; asked = null; draw(); return; }
      node.setAttribute("aria-busy", "true");
      try {
        const found = await trace(now);
        if (mine !== turn) return;
        shown = asked = now;
        after = found;
        second.show(after, { at: view.at });
        second.section(section);
        second.look(view.looked);
      } catch (error) {
        if (mine !== turn || error.overtaken) return;
        after = asked = null;
        problem.textContent = error.message;
      } finally { if (mine === turn) node.removeAttribute("aria-busy"); }
      draw();
    },
    step() { if (after) { second.step(sameStep(before, view.at, after)); compare(); } },
    section(next) { section = next; if (after) second.section(next); },
    look(name) { if (after) second.look(name); },
    asked: () => asked,
    end: () => second.end(),
  };
}

// log P of every word before and after, and the words expected at a step; of a translator also what it would write now.
export function comparison(before, after, step) {
  const log = (facts, at) => (facts.known[at] && facts.probability[at] > 0 ? Math.log(facts.probability[at]) : null);
  const best = (facts, at) => facts.top[at]?.[0];
  const steps = before.words.read.map((word, at) => {
    const [old, now] = [log(before, at), log(after, at)], [was, is] = [best(before, at), best(after, at)];
    return { at, word, old, now, moved: old === null || now === null ? null : now - old, was, is, other: was?.word !== is?.word, same: old === now && was?.word === is?.word && was?.p === is?.p };
  });
  const listed = steps.length > SHOWN ? steps.filter((one) => Math.abs(one.moved ?? 0) > 0.005 || one.other) : steps, most = Math.max(...steps.map((one) => Math.abs(one.moved ?? 0))) || 1;
  const sum = steps.reduce((total, one) => total + (one.moved ?? 0), 0), at = Math.min(step, steps.length - 1);
  const rows = listed.map((one) => el("tr", { class: one.at === at ? "at" : null }, el("th", { scope: "row" }, token(one.word)), el("td", {}, before.known[one.at] ? token(before.words.written[one.at]) : "–"),
    el("td", { class: "right" }, logged(one.old)), el("td", { class: "right" }, logged(one.now)),
    el("td", { class: "right" }, one.moved === null ? "–" : one.same ? "0" : signed(one.moved)), el("td", {}, el("span", { class: "effect", "aria-hidden": "true" }, one.moved ? el("i", { class: `own ${one.moved < 0 ? "less" : "more"}`, style: { width: `${(50 * Math.abs(one.moved)) / most}%` } }) : null)),
    el("td", {}, one.was && [token(one.was.word), " ", percent(one.was.p)]), el("td", { class: one.other ? "moved-top" : null }, one.is && [token(one.is.word), " ", percent(one.is.p)])));
  const p = (facts, word) => facts.top[at].find((one) => one.word === word)?.p, all = [...new Set([...before.top[at], ...after.top[at]].map((one) => one.word))];
  const next = all.map((word) => ({ word, old: p(before, word), now: p(after, word) })).sort((one, two) => Math.max(two.now ?? 0, two.old ?? 0) - Math.max(one.now ?? 0, one.old ?? 0)).slice(0, 10);
  return [el("h3", {}, "Before and after"), after.own !== undefined && el("p", {}, `With this change, the translation would be ${after.own === before.answer ? "the same" : quoted(after.own || "(empty)")}.`), el("div", { class: "look" },
    el("div", {}, el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "log P before and after" }, el("table", {}, el("thead", {}, el("tr", {}, ["read", "next word", "log P before", "after", "change", "", "predicted before", "after"].map((word, place) => (word ? el("th", { scope: "col", class: place > 1 && place < 5 ? "right" : null }, word) : el("td"))))), el("tbody", {}, rows))),
      el("p", { class: "caption" }, `Sum over all words: ${signed(sum)} nats.${listed.length < steps.length ? ` ${steps.length - listed.length} steps with almost no change are omitted.` : ""} Computed by the reference implementation.`)),
    el("div", {}, el("h4", {}, `Predictions after ${quoted(before.words.read[at])}`), el("table", {}, el("thead", {}, el("tr", {}, ["word", "before", "after"].map((word, place) => el("th", { scope: "col", class: place ? "right" : null }, word)))),
      el("tbody", {}, next.map((one) => el("tr", {}, el("th", { scope: "row" }, token(one.word)), el("td", { class: "right" }, percent(one.old)), el("td", { class: "right" }, percent(one.now)))))), el("p", { class: "caption" }, "– means not among the ten most probable.")))];
}

const logged = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value) >= 0.005 ? Math.abs(value).toFixed(2) : number(Math.abs(value), 1)}`;
