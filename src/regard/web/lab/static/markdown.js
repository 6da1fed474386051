// Markdown as elements, as much of it as Regard's own pages use; text stays text, whatever it holds.
//
//   root.append(...markdown(text, { link: (target, words) => element, picture: (file, words) => element, formula: (latex) => element }))
//
// Paragraphs, lists, indented and fenced code, tables, pictures that stand alone, questions with folded answers; within a line
// `code`, **strong**, *stress*, $formulas$ and [words](target). `link`, `picture` and `formula` decide what a target or a formula becomes.
import { el } from "./dom.js";

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\((\S+?)\)|\$(?=\S)([^$`\n]+?)\$(?![\w$])/g;
const FOLDED = /^<details><summary>(.*)<\/summary>$/;

function within(text, how) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    parts.push(text.slice(from, found.index));
    const [whole, code, strong, stress, words, target, latex] = found;
    if (code) parts.push(el("code", {}, code));
    else if (strong) parts.push(el("b", {}, within(strong, how)));
    else if (stress) parts.push(el("em", {}, within(stress, how)));
    else if (latex) parts.push(how.formula(latex) || whole);
    else parts.push(how.link(target, within(words, how)));
    from = found.index + whole.length;
  }
  return [...parts, text.slice(from)].filter((part) => part !== "");
}

const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

export function markdown(text, given = {}) {
  const how = { link: (_, words) => el("span", {}, words), picture: () => null, formula: () => null, ...given };
  const lines = text.split("\n"), out = [];
  const take = (fits) => { const some = []; while (lines.length && fits(lines[0])) some.push(lines.shift()); return some; };
  while (lines.length) {
    const line = lines[0];
    if (!line.trim()) lines.shift();
    else if (line === "$$") {
      lines.shift();
      const latex = take((one) => one !== "$$").join("\n");
      lines.shift();
      out.push(el("div", { class: "formula" }, how.formula(latex) || latex));
    } else if (FOLDED.test(line)) {
      const [, question] = FOLDED.exec(lines.shift()), answer = take((one) => one !== "</details>").join("\n");
      lines.shift();
      out.push(el("details", { class: "question" }, el("summary", {}, within(question.replace(/<\/?i>/g, "*"), how)), markdown(answer, how)));
    } else if (line.startsWith("```")) {
      lines.shift();
      out.push(el("pre", {}, take((one) => !one.startsWith("```")).join("\n")));
      lines.shift();
    } else if (line.startsWith("    ")) out.push(el("pre", { class: "equation" }, take((one) => one.startsWith("    ") || (!one.trim() && lines[1]?.startsWith("    "))).map((one) => one.slice(4)).join("\n")));
    else if (/^#+ /.test(line)) out.push(el("h3", {}, within(lines.shift().replace(/^#+ /, ""), how)));
    else if (line.startsWith("|")) {
      const [head, , ...rows] = take((one) => one.startsWith("|"));
      out.push(el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, el("table", {},
        el("thead", {}, el("tr", {}, cells(head).map((cell) => el("th", { scope: "col" }, within(cell, how))))),
        el("tbody", {}, rows.map((row) => el("tr", {}, cells(row).map((cell) => el("td", {}, within(cell, how)))))))));
    } else if (/^(-|\d+\.) /.test(line)) {
      const items = [];
      for (const one of take((some) => /^(-|\d+\.) |^ {2,}\S/.test(some))) {
        if (/^ /.test(one)) items[items.length - 1] += ` ${one.trim()}`; else items.push(one.replace(/^(-|\d+\.) /, ""));
      }
      out.push(el(/^\d/.test(line) ? "ol" : "ul", {}, items.map((item) => el("li", {}, within(item, how)))));
    } else {
      const alone = /^!\[(.*?)\]\((\S+?)\)$/.exec(line);
      if (alone) { lines.shift(); out.push(how.picture(alone[2], alone[1])); }
      else out.push(el("p", {}, within(take((one) => one.trim() && !/^(```|\$\$$|<details>|    |\||!\[|#+ |(-|\d+\.) )/.test(one)).join(" ") || lines.shift(), how)));
    }
  }
  return out.filter(Boolean);
}
