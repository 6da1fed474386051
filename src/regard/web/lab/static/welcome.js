// A first visit: one click to a model that learns, from what every installation has; and a tour of five steps.
import { link } from "./address.js";
import { el, notice, put, speak } from "./dom.js";

const STARTS = [
  { title: "A language model learns English", system: "lstm", data: "pyref", budget: "90s",
    about: "An LSTM reads Python’s own manual, 50,000 words, for a minute and a half. Watch its sentences take shape." },
  { title: "A Transformer learns to translate", system: "transformer", data: "phrasebook", budget: "3m",
    about: "It learns to translate English into French in three minutes, from a built-in phrasebook. See which words it attends to." },
  { title: "Count words with the oldest model", system: "ngram", data: "pyref", budget: "",
    about: "Shannon’s n-gram trains in seconds and is the baseline that every other model must beat." },
];

// Where a model that comes with Regard opens.
const inside = (run) => link(run.task === "translation" ? "translation" : "sentence", "", { run: run.name });
const ABOUT = {
  ngram: "See which words follow the previous two, and how often.",
  lstm: "Watch its gates open and close from word to word.",
  gpt: "See where each attention head looks before the model predicts a word.",
  bahdanau: "See the alignment that a recurrent translator learned without supervision.",
  transformer: "Follow every attention head as it translates English into French.",
};

export const galleryList = (models) => el("ul", { class: "run-list", "aria-label": "Models that come with Regard" },
  models.map((run) => el("li", {}, el("a", { class: "open", href: inside(run) }, el("span", { class: "line" }, el("b", {}, run.name)), el("span", { class: "line" }, el("span", { class: "about" }, ABOUT[run.system] || run.system))))));

export function firstVisit(api, address, started, gallery = []) {
  const cards = STARTS.map((one) => {
    const button = el("button", { type: "button", class: "primary" }, "Start");
    button.addEventListener("click", async () => {
      button.disabled = true;
      button.textContent = "Starting …";
      try {
        await api.post("runs/start", { system: one.system, data: one.data, size: "tiny", settings: one.budget ? { "training.budget": one.budget, "training.evaluate_every": "25", "training.snapshots": "12" } : {} });
        started();
      } catch (error) { notice(error.message, { bad: true }); button.disabled = false; button.textContent = "Start"; }
    });
    return el("article", { class: "card" }, el("h2", {}, one.title), el("p", {}, one.about),
      el("p", { class: "mono quiet-text" }, `regard train ${one.system} --data ${one.data} --size tiny${one.budget ? ` --budget ${one.budget} --training.evaluate-every 25 --training.snapshots 12` : ""}`), button);
  });
  return el("div", { class: "first" },
    gallery.length > 0 && el("section", { "aria-label": "Models that come with Regard" },
      el("h1", {}, "Look inside a trained model"),
      el("p", { class: "lead" }, "These small models come with Regard, already trained."),
      el("div", { class: "cards" }, gallery.map((run) => el("article", { class: "card" }, el("h2", {}, run.name), el("p", {}, ABOUT[run.system] || run.system), el("p", {}, el("a", { class: "button primary", href: inside(run) }, "Look inside")))))),
    el("h1", { class: "writes" }, "Watch a model learn"),
    el("p", { class: "lead writes" }, "There are no runs in this folder yet. Start one here: nothing is downloaded, and training continues when you close this page."),
    el("div", { class: "cards writes" }, cards),
    el("p", { class: "writes" }, "Or train on ", el("a", { href: link("new") }, "your own text, with every setting"), ", or ", el("a", { href: link("ladder", "new") }, "compare several systems fairly"), "."));
}

// -- the tour ------------------------------------------------------------------------------------------------------------

const STEPS = [
  [".run-list", "All your runs", "Every run in the folder, active runs first. Check a run's box to plot its curve; click its name to open it below."],
  ["[data-tour=curves]", "Live learning curves", "Choose what is plotted on each axis. Hover over a line, or focus the chart and use the arrow keys, to read its numbers."],
  ["[data-tour=samples]", "Samples", (where) => `A new sample each time the model improves.${where?.querySelector("input[type=range]") ? " Move the slider to see how the text improved." : ""}`],
  ["[data-tour=new]", "Your own text", "Drop in a file. Before training starts, you see any problems with the file and how long training will take."],
  ["#views", "The other views", "Compare systems, look inside one sentence, follow a translation. Each view has a URL that you can share."],
];

export function tourIsDue() {
  try { return localStorage.getItem("tour") === null; } catch { return false; }
}

export function tour() {
  document.querySelector(".tour")?.remove();
  const box = el("section", { class: "tour card", role: "dialog", "aria-label": "Tour", tabindex: "-1" });
  let place = 0, marked = null;
  const end = () => {
    marked?.classList.remove("toured");
    box.remove();
    removeEventListener("hashchange", end);
    try { localStorage.setItem("tour", "seen"); } catch { /* then it comes again */ }
  };
  const show = () => {
    const [where, title, said] = STEPS[place];
    marked?.classList.remove("toured");
    marked = document.querySelector(where);
    const text = typeof said === "function" ? said(marked) : said;
    marked?.classList.add("toured");
    marked?.scrollIntoView({ block: "nearest" });
    put(box, el("p", { class: "quiet-text" }, `${place + 1} of ${STEPS.length}`), el("h3", {}, title), el("p", {}, text),
      el("div", { class: "buttons" },
        el("button", { type: "button", class: "quiet", onclick: end }, "Close"),
        place > 0 && el("button", { type: "button", onclick: () => { place--; show(); } }, "Back"),
        el("button", { type: "button", class: "primary", onclick: () => { if (++place === STEPS.length) end(); else show(); } }, place === STEPS.length - 1 ? "Done" : "Next")));
    speak(`${title}. ${text}`);
  };
  box.addEventListener("keydown", (event) => { if (event.key === "Escape") end(); });
  addEventListener("hashchange", end);
  document.body.append(box);
  show();
}
