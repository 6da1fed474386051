// The frame around the views: which one is shown, by the page's address. For those who write a view:
//
//   views/NAME.js   export default { title: "Sentence", mount(root, address, api) { …; return unmount; } }
//
// - `root` is an empty element that is the view's own; `unmount` ends timers, streams and listeners. If the function that
//   is returned has a property `update`, a change of the address within the view calls update(address) instead of mounting
//   it again.
// - `address` is { view, path, query }: #/sentence/one?run=a&run=b is path "one" and query URLSearchParams. Everything a
//   colleague must see is in it: `address.go({run: ["a", "b"]})` changes the query (null removes a key; a string path
//   goes elsewhere: go("/runs")), with {replace: true} without a new entry in the history.
// - `api` is api.js, or in another host (an offline file, a notebook) something that answers alike.
// - Build elements with dom.js (el, svg, table, labelled, segments, notice, speak), draw with charts.js and heat.js, and
//   take classes and variables from style.css; colours only from there. Text is never markup: no innerHTML, no style=.
// - Errors: `address.fail(error)` shows the sentence of a Refused at the top of the view; show what belongs to a field there.
// - Elements of class "writes" are hidden in a lab that is read-only. Say in how.js how the view is read.
// - Add the view to VIEWS below, and to VIEWS of application.py and worker_process.py where it has routes and model work.

import { link } from "./address.js";
import { api, Refused } from "./api.js";
import { el, put, speak } from "./dom.js";

const VIEWS = [
  { name: "runs", label: "Runs", load: () => import("./views/runs.js") },
  { name: "ladder", label: "Compare", load: () => import("./views/ladder.js") },
  { name: "sentence", label: "Sentence", load: () => import("./views/sentence.js") },
  { name: "translation", label: "Translation", load: () => import("./views/translation.js") },
  { name: "time", label: "Time", load: () => import("./views/time.js") },
  { name: "claims", label: "Claims", load: () => import("./views/claims.js") },
  { name: "lectures", label: "Course", load: () => import("./views/lectures.js") },
  { name: "exercises", label: "Exercises", load: () => import("./views/exercises.js") },
  { name: "text", label: "Text", load: () => import("./views/text.js") },
];
// Views that are reached from others, and the one they belong to.
const HIDDEN = [{ name: "new", under: "runs", load: () => import("./views/new.js") }];

const main = document.getElementById("main");
let shown = { view: "", path: "", unmount: null };
let turn = 0;
let presenting = null; // made when it is first asked for

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view = "", ...rest] = path.split("/").map(decode);
  return { view: view || "runs", path: rest.join("/"), query: new URLSearchParams(query) };
}

const decode = (word) => { try { return decodeURIComponent(word); } catch { return word; } };

function addressOf(found) {
  return {
    ...found,
    go(change, { replace = false } = {}) {
      const now = read();
      const next = typeof change === "string" ? `#${change}` : link(now.view, now.path, { ...entries(now.query), ...change });
      if (next === location.hash) return;
      if (replace) { history.replaceState(null, "", next); dispatchEvent(new HashChangeEvent("hashchange")); }
      else location.hash = next;
    },
    // The address is written down, and nothing is drawn anew: for what the view has changed itself.
    note(change) {
      const now = read();
      history.replaceState(null, "", link(now.view, now.path, { ...entries(now.query), ...change }));
    },
    fail,
  };
}

function entries(query) {
  const found = {};
  for (const key of query.keys()) found[key] = query.getAll(key);
  return found;
}

function fail(error) {
  if (error instanceof Refused && error.overtaken) return;
  const sentence = error instanceof Refused ? error.message : `This view failed: ${error.message}`;
  if (!(error instanceof Refused)) console.error(error);
  main.querySelector(":scope > .failure")?.remove();
  main.prepend(el("p", { class: "failure", role: "alert" }, sentence));
}

async function show() {
  const found = read();
  const entry = [...VIEWS, ...HIDDEN].find((view) => view.name === found.view);
  if (!entry) { location.replace("#/runs"); return; }
  if (shown.view === found.view && shown.path === found.path && shown.unmount?.update) { shown.unmount.update(addressOf(found)); mark(found.view); return; }
  const mine = ++turn;
  try {
    const view = (await entry.load()).default;
    if (mine !== turn) return;
    const moved = shown.view !== "" && (shown.view !== found.view || shown.path !== found.path);
    shown.unmount?.();
    const root = el("div", { class: `view ${found.view}` });
    presenting?.end();
    put(main, VIEWS.includes(entry) && howToRead(found.view), root);
    document.title = `${view.title} · Regard lab`;
    shown = { view: found.view, path: found.path, unmount: null };
    mark(found.view);
    if (moved) { scrollTo(0, 0); speak(view.title); }
    shown.unmount = view.mount(root, addressOf(found), api) || (() => {});
  } catch (error) { fail(error); }
}

// A note at the top of a view, which is loaded when it is opened.
function howToRead(view) {
  const body = el("div"), open = async () => { if (!body.hasChildNodes()) put(body, (await import("./how.js")).howToRead(view)); };
  return el("details", { class: "how", ontoggle: () => open().catch(fail) }, el("summary", {}, "How to read this"), body);
}

function mark(view) {
  const owner = HIDDEN.find((one) => one.name === view)?.under || view;
  for (const one of document.querySelectorAll("#views a")) {
    if (one.dataset.view === owner) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
}

// -- light or dark -------------------------------------------------------------------------------------------------------

const THEMES = ["", "light", "dark"];
function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("theme", theme); } catch { /* a browser that keeps nothing */ }
  document.getElementById("theme").title = `Colors: ${theme || "system default"}`;
  dispatchEvent(new Event("theme"));
}
function begin() {
  let theme = "";
  try { theme = localStorage.getItem("theme") || ""; } catch { /* the same */ }
  setTheme(THEMES.includes(theme) ? theme : "");
  document.getElementById("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme || "";
    setTheme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
    speak(document.getElementById("theme").title);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
  put(document.getElementById("views"), VIEWS.map((view) => el("a", { href: `#/${view.name}`, data: { view: view.name } }, view.label)));
  const present = document.getElementById("present");
  present.addEventListener("click", async () => { presenting ??= (await import("./present.js")).presentation(main, present); presenting.toggle(); });
  api.get("lab").then(({ read_only: readOnly }) => {
    if (readOnly) document.documentElement.dataset.readOnly = "";
    document.getElementById("read-only").hidden = !readOnly;
  }, () => {});
  addEventListener("hashchange", show);
  show();
}

begin();
