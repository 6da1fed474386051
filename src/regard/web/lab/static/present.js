// Presentation: large type and one figure at a time. Arrow keys and Page Up/Down (the keys of a presenter) change the
// figure, Escape ends it. Keys that a figure uses itself, such as a chart's arrows, stay with it while it has the focus.
import { el, speak } from "./dom.js";

const FIGURES = ".look > *, .part .bars, .part.search, .part.work, .part .flow, .cause, .card:not(:has(.reading)), .lecture-part, .run-card, .work-bench, .statement, .statements, figure";
const OWN_KEYS = "input, textarea, select, [role=slider], [tabindex='0'], .words button, .segments button";

export function presentation(main, button) {
  const place = el("p", { class: "presenting", role: "status" });
  let at = -1;

  const isShown = (node) => node.getClientRects().length > 0;
  function figures() {
    const all = [...main.querySelectorAll(FIGURES)].filter((node) => !node.closest("[hidden], details:not([open]), .tour") && node.childElementCount > 0);
    return all.filter((node) => !all.some((other) => other !== node && other.contains(node)));
  }
  const on = () => at >= 0;

  function show(next) {
    const all = figures();
    main.querySelector(".shown")?.classList.remove("shown");
    if (!all.length) { end(); speak("This view has no figure yet."); return; }
    at = Math.max(0, Math.min(all.length - 1, next));
    all[at].classList.add("shown");
    document.documentElement.dataset.presenting = "";
    button.setAttribute("aria-pressed", "true");
    place.textContent = `${at + 1} of ${all.length} · ← → · Esc`;
    document.body.append(place);
    speak(`Figure ${at + 1} of ${all.length}: ${all[at].querySelector("h1, h2, h3, figcaption")?.textContent || ""}`);
    scrollTo(0, 0);
    dispatchEvent(new Event("resize"));
  }
  function end() {
    at = -1;
    main.querySelector(".shown")?.classList.remove("shown");
    delete document.documentElement.dataset.presenting;
    button.setAttribute("aria-pressed", "false");
    place.remove();
    dispatchEvent(new Event("resize"));
  }

  // Begins with the figure that is on the screen.
  function begin() {
    const all = figures(), seen = all.findIndex((node) => isShown(node) && node.getBoundingClientRect().bottom > 100);
    show(Math.max(0, seen));
  }
  addEventListener("keydown", (event) => {
    if (!on() || event.altKey || event.ctrlKey || event.metaKey) return;
    const always = { PageDown: 1, PageUp: -1 }, free = { ArrowRight: 1, ArrowLeft: -1 };
    if (event.key === "Escape") { end(); button.focus(); return; }
    const step = always[event.key] || (event.target.closest?.(OWN_KEYS) && event.target !== button ? 0 : free[event.key]);
    if (step) { event.preventDefault(); show(at + step); }
  });
  return { end, toggle: () => (on() ? end() : begin()) };
}
