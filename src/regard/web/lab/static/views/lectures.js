// Course: the chapters, each section with its formulas, the code, the commands and the verdicts of its claims.
//
//   #/lectures          #/lectures/recurrent          #/lectures/recurrent?section=The+hidden+state          #/lectures?at=003:49
import { link } from "../address.js";
import { el, notice, put, speak } from "../dom.js";
import { markdown } from "../markdown.js";
import { tryIt } from "../try_it.js";

const SPACE = "http://www.w3.org/1998/Math/MathML";

// The elements of a formula, from [element, attributes, text, parts]; they are elements of MathML with plain attributes, and nothing else.
const PLAIN = /^(display|stretchy|mathvariant|fence|form|separator|accent|width|columnalign|linethickness|minsize|maxsize)$/;

function typeset([name, attributes, text, parts]) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) if (PLAIN.test(key)) made.setAttribute(key, value);
  made.append(text, ...parts.map(typeset));
  return made;
}

export default {
  title: "Course",
  mount(root, address, api) {
    let ended = false;

    async function list() {
      const chapters = await api.get("lectures");
      if (ended) return;
      put(root, el("div", { class: "head" }, el("h1", {}, "Course"), el("p", { class: "quiet-text flush" }, "From counting to GPT: each idea with its equation, its code, a command, and the verdict of its test.")),
        el("ol", { class: "statements" }, chapters.map((one, place) => el("li", {}, el("a", { href: link("lectures", one.name), class: "claim lecture" },
          el("span", { class: "mono quiet-text" }, place < 8 ? String(place + 1) : "·"), el("span", {}, el("b", {}, one.title), el("span", { class: "help" }, one.summary)))))));
    }

    async function open(name) {
      const [page, { runs, gallery }] = await Promise.all([api.get("lectures/one", { name }), api.get("runs")]);
      if (ended) return;
      document.title = `${page.title} · Regard lab`;
      const how = {
        link: (target, words) => { const other = /^([\w-]+)\.md/.exec(target); return other ? el("a", { href: link("lectures", other[1]) }, words) : /^https:/.test(target) ? el("a", { href: target, rel: "noreferrer" }, words) : el("span", {}, words); },
        picture: (file, words) => el("figure", {}, el("img", { src: `./api/lectures/figure?name=${encodeURIComponent(file)}`, alt: words, loading: "lazy" }), el("figcaption", {}, words)),
        formula: (latex) => (Object.hasOwn(page.formulas, latex) ? typeset(page.formulas[latex]) : null),
      };
      const command = (words) => {
        const here = tryIt(words, [...runs, ...gallery]);
        return el("p", { class: "command" }, el("code", {}, words), " ", here && el("a", { href: here.href, class: here.writes && "writes" }, here.label),
          el("button", { type: "button", class: "quiet", onclick: () => navigator.clipboard?.writeText(words).then(() => notice("Copied."), () => notice("Copying failed.", { bad: true })) }, "Copy"));
      };
      const code = (one) => el("details", {}, el("summary", {}, el("code", {}, one.place)),
        el("pre", { class: "source" }, one.lines.map((line, place) => el("span", { class: one.first + place === one.at ? "line at" : "line" }, `${one.first ? String(one.first + place).padStart(4) : ""}  ${line}\n`))));
      const section = (one) => el("section", { class: "section lecture-part" },
        el("h2", {}, one.title),
        el("div", { class: "prose" }, markdown(one.prose, how)),
        (one.code.length > 0 || one.commands.length > 0 || one.claims.length > 0 || one.exercises.length > 0) && el("aside", { class: "beside-it", "aria-label": "Code, commands, claims" },
          one.code.map(code), one.commands.map(command),
          one.claims.map((claim) => el("p", { class: "verdict-line" }, el("a", { class: "tag", href: link("claims", claim.name) }, claim.name), ` ${claim.words}`)),
          one.exercises.length > 0 && el("p", {}, "Exercises: ", one.exercises.map((exercise) => [el("a", { class: "tag", href: link("exercises", exercise) }, exercise), " "]))));
      put(root, el("p", { class: "path" }, el("a", { href: link("lectures") }, "Course"), ` / ${page.title}`), el("h1", {}, page.title), el("p", { class: "lead" }, page.summary),
        el("div", { class: "prose" }, markdown(page.begin, how)), page.sections.map(section));
      const title = page.at || address.query.get("section"), place = title && [...root.querySelectorAll(".lecture-part")].find((one) => one.querySelector("h2").textContent === title);
      if (place) { place.scrollIntoView(); speak(title); }
    }

    const name = address.query.get("at") || address.path;
    (name ? open(name) : list()).catch(address.fail);
    return () => { ended = true; };
  },
};
