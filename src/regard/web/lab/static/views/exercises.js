// Exercises: write one mechanism yourself, with hints, the grader's sentence, and Regard's own code after success.
//
//   #/exercises          #/exercises/causal-mask
import { link } from "../address.js";
import { el, put, speak } from "../dom.js";
import { codeEditor } from "../editor.js";

const LEVELS = ["", "one line", "a few lines", "needs some thought"];
const stars = (level) => el("span", { class: "stars", role: "img", "aria-label": `difficulty ${level} of 3: ${LEVELS[level]}`, title: LEVELS[level] }, "★".repeat(level), el("i", {}, "★".repeat(3 - level)));
const sign = (one) => el("span", { class: `verdict ${one.solved ? "holds" : "none"}`, role: "img", "aria-label": one.solved ? "solved" : one.checks ? "started" : "not started" }, one.solved ? "✓" : one.checks ? "…" : "·");
const chapter = (one) => el("a", { href: link("lectures", one.page.name, { section: one.page.section }) }, `${one.chapter}. ${one.page.title}`);
const upper = (words) => words[0].toUpperCase() + words.slice(1);
const sentence = (words) => (/[.?!]$/.test(words) ? words : `${words}.`);

// What is being written, until it is checked; a browser that keeps nothing loses it with the page.
const draft = (name) => ({
  get: () => { try { return localStorage.getItem(`exercise/${name}`) || ""; } catch { return ""; } },
  set: (text) => { try { text ? localStorage.setItem(`exercise/${name}`, text) : localStorage.removeItem(`exercise/${name}`); } catch { /* the same */ } },
});

export default {
  title: "Exercises",
  mount(root, address, api) {
    let ended = false;

    async function list() {
      const { exercises } = await api.get("exercises");
      if (ended) return;
      const solved = exercises.filter((one) => one.solved).length, chapters = new Map(exercises.map((one) => [one.chapter, []]));
      for (const one of exercises) chapters.get(one.chapter).push(one);
      put(root, el("div", { class: "head" }, el("h1", {}, "Exercises"), el("p", { class: "quiet-text flush" }, "Write one mechanism yourself. The grader compares it with Regard's own code on random inputs and names the mistake.")),
        el("p", { class: "solved" }, el("b", {}, `${solved} of ${exercises.length} solved`), el("progress", { max: String(exercises.length), value: String(solved), "aria-label": "solved exercises" })),
        [...chapters.values()].map((some) => el("section", { class: "section" }, el("h2", {}, chapter(some[0])),
          el("ol", { class: "statements" }, some.map((one) => el("li", {}, el("a", { href: link("exercises", one.name), class: "claim exercise" },
            sign(one), el("span", {}, el("b", {}, upper(one.title)), el("span", { class: "help" }, one.name)), stars(one.level))))))));
    }

    async function open(name) {
      const one = await api.get("exercises/one", { name });
      if (ended) return;
      document.title = `${one.name} · Regard lab`;
      const kept = draft(name);
      const editor = codeEditor({ label: "your answer", change: kept.set, submit: () => check() });
      const result = el("p", { class: "grade", role: "status" }), own = el("section", { class: "own", hidden: true });
      const button = el("button", { type: "button", class: "primary", onclick: () => check() }, "Check");
      const hints = el("ol", { class: "hints" }), more = el("button", { type: "button", onclick: () => hint() });
      editor.text = kept.get() || one.answer || one.sheet;
      button.disabled = Boolean(one.refusal);

      function hint() {
        hints.append(el("li", {}, one.hints[hints.children.length]));
        speak(hints.lastChild.textContent);
        offer();
      }
      function offer() {
        const next = hints.children.length + 1;
        more.hidden = next > one.hints.length;
        more.textContent = `Hint ${next} of ${one.hints.length}`;
      }
      function graded(grade) {
        result.className = `grade ${grade.right ? "is-right" : "is-wrong"}`;
        put(result, el("b", {}, grade.right ? "✓ Right. " : "✗ "), grade.right && grade.inputs ? `Your code agrees with Regard on ${grade.inputs} random inputs${grade.laws?.length ? `, and in a model it obeys laws ${grade.laws.join(", ")}` : ""}. ` : "", sentence(grade.sentence));
      }
      async function check() {
        if (button.disabled) return;
        button.disabled = true;
        button.textContent = "Checking…";
        result.className = "grade";
        put(result, "Running your code on random inputs…");
        try {
          const grade = await api.post("exercises/check", { name, code: editor.text });
          if (ended) return;
          kept.set("");
          graded(grade);
          if (grade.right) await showOwn();
        } catch (error) { if (!ended) { result.className = "grade is-wrong"; put(result, error.message); } }
        button.disabled = false;
        button.textContent = "Check";
      }
      async function showOwn() {
        const parts = await api.get("exercises/own", { name });
        if (ended) return;
        put(own, el("h2", {}, "Regard's own code"), parts.map((part) => [el("p", { class: "mono quiet-text" }, part.place), el("pre", { class: "source", tabindex: "0" }, part.code)]));
        own.hidden = false;
      }
      const restart = () => { editor.text = one.sheet; kept.set(""); editor.focus(); };

      offer();
      put(root, el("p", { class: "path" }, el("a", { href: link("exercises") }, "Exercises"), ` / ${one.name}`),
        el("div", { class: "head" }, el("h1", {}, upper(one.title)), stars(one.level)),
        el("p", { class: "quiet-text" }, "Explained in chapter ", chapter(one), `: ${one.page.section}.`),
        el("div", { class: "work-bench" },
          el("section", { class: "yours" }, editor.node, el("div", { class: "buttons" }, button, more, el("button", { type: "button", class: "quiet", onclick: restart }, "Start over")),
            one.refusal ? el("p", { class: "problem", role: "note" }, one.refusal) : null, result, hints), own));
      if (one.sentence && !one.refusal) graded(one);
      if (one.solved) await showOwn();
    }

    (address.path ? open(address.path) : list()).catch(address.fail);
    return () => { ended = true; };
  },
};
