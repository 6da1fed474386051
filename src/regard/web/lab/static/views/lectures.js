// Lectures: the companion's pages, each section beside the lines of the notes, the code, the commands and the claims it is about.
//
//   #/lectures          #/lectures/003?at=003:49
import { link } from "../address.js";
import { el, notice, put, speak } from "../dom.js";
import { markdown } from "../markdown.js";

// What a command of the page can be seen as in the lab, if its run is here.
function shownAs(command, runs) {
  const asked = /^regard (inspect|generate|translate) (?:runs\/)?(\S+)(?:.*?"([^"]*)")?/.exec(command), run = asked && runs.find((one) => one.name === asked[2]);
  if (!run) return null;
  return link(run.task === "translation" ? "translation" : "sentence", "", { run: run.name, text: asked[3] || "", show: command.includes("--work") ? "work" : null });
}

export default {
  title: "Lectures",
  mount(root, address, api) {
    let ended = false;

    async function list() {
      const found = await api.get("lectures");
      if (ended) return;
      put(root, el("div", { class: "head" }, el("h1", {}, "Lectures"), el("p", { class: "quiet-text flush" }, "The lecture notes line by line: the code, a command that shows it, and a claim that tests it.")),
        el("ol", { class: "statements" }, found.map((one) => el("li", {}, el("a", { href: link("lectures", one.number), class: "claim lecture" },
          el("span", { class: "mono quiet-text" }, one.number), el("span", {}, el("b", {}, one.title), el("span", { class: "help" }, one.summary)))))));
    }

    async function open() {
      const [found, { runs }] = await Promise.all([api.get("lectures/one", { number: address.path }), api.get("runs")]);
      if (ended) return;
      document.title = `${found.title} · Regard lab`;
      const how = {
        link: (target, words) => { const page = /^(\w+)\.md/.exec(target); return page ? el("a", { href: link("lectures", page[1]) }, words) : el("code", {}, words); },
        picture: (file, words) => el("figure", {}, el("img", { src: `./api/lectures/figure?name=${encodeURIComponent(file)}`, alt: words, loading: "lazy" }), el("figcaption", {}, words)),
      };
      const command = (words) => {
        const here = shownAs(words, runs);
        return el("p", { class: "command" }, el("code", {}, words), " ", here && el("a", { href: here }, "Show it here"),
          el("button", { type: "button", class: "quiet", onclick: () => navigator.clipboard?.writeText(words).then(() => notice("Copied."), () => notice("Copying failed.", { bad: true })) }, "Copy"));
      };
      const code = (one) => el("details", {}, el("summary", {}, el("code", {}, one.place)),
        el("pre", { class: "source" }, one.lines.map((line, place) => el("span", { class: one.first + place === one.at ? "line at" : "line" }, `${one.first ? String(one.first + place).padStart(4) : ""}  ${line}\n`))));
      const section = (one) => el("section", { class: "section lecture-part", id: `at-${one.lines.replace(/\W+/g, "-")}`, data: { lines: one.lines } },
        el("h2", {}, one.title, one.lines && el("span", { class: "tag" }, one.lines)),
        el("div", { class: "prose" }, markdown(one.prose, how)),
        (one.code.length > 0 || one.commands.length > 0 || one.claims.length > 0 || one.exercises.length > 0) && el("aside", { class: "beside-it", "aria-label": "Code, commands, claims" },
          one.code.map(code), one.commands.map(command),
          one.claims.length > 0 && el("p", {}, "Claims: ", one.claims.map((name) => [el("a", { class: "tag", href: link("claims", name) }, name), " "])),
          one.exercises.length > 0 && el("p", {}, "Exercises: ", one.exercises.map((name) => [el("code", {}, `regard exercise ${name}`), " "]))));
      put(root, el("p", { class: "path" }, el("a", { href: link("lectures") }, "Lectures"), ` / ${found.number}`), el("h1", {}, found.title), el("p", { class: "lead" }, found.summary),
        el("div", { class: "prose" }, markdown(found.begin, how)), found.sections.map(section));
      go();
    }

    // The section of a line, as in 003:49.
    function go() {
      const [, lecture, line] = /^(\d{3}):(\d+)$/.exec(address.query.get("at") || "") || [];
      const holds = (range) => { const [, of, first, last] = /(\d{3}):(\d+)(?:–(\d+))?/.exec(range) || []; return of === lecture && Number(first) <= Number(line) && Number(line) <= Number(last || first); };
      const place = line && [...root.querySelectorAll("[data-lines]")].find((one) => one.dataset.lines.split("; ").some(holds));
      if (place) { place.scrollIntoView(); speak(place.querySelector("h2").textContent); }
    }

    (address.path ? open() : list()).catch(address.fail);
    return () => { ended = true; };
  },
};
