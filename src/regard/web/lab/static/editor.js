// A plain editor for Python: Tab and Shift+Tab indent lines, Enter keeps the indentation, and Escape then Tab leaves it.
//
//   const editor = codeEditor({ label: "Your answer", change: (text) => …, submit: () => … });   root.append(editor.node)

import { el, id } from "./dom.js";

const STEP = "    ";

export function codeEditor({ label, change = () => {}, submit = () => {} }) {
  const told = id("editor");
  const area = el("textarea", { class: "code", "aria-label": label, "aria-describedby": told, spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", dir: "ltr" });
  let leaving = false; // Escape was the last key: Tab moves on, as everywhere else

  // Replaces part of the text so that the browser's undo knows of it.
  function replace(start, end, text) {
    area.setSelectionRange(start, end);
    if (!(text ? document.execCommand("insertText", false, text) : start === end || document.execCommand("delete"))) {
      area.setRangeText(text, start, end, "end");
      area.dispatchEvent(new Event("input"));
    }
  }
  function indent(back) {
    const { selectionStart: start, selectionEnd: end, value } = area, from = value.lastIndexOf("\n", start - 1) + 1;
    if (!back && start === end) { replace(start, end, STEP.slice((start - from) % STEP.length)); return; }
    const lines = value.slice(from, end).split("\n");
    const moved = lines.map((line) => (back ? line.replace(/^ {1,4}/, "") : line && STEP + line)).join("\n");
    replace(from, end, moved);
    const first = moved.split("\n")[0].length - lines[0].length;
    area.setSelectionRange(start === end ? Math.max(from, start + first) : from, from + moved.length - (start === end ? moved.length - Math.max(0, start + first - from) : 0));
  }
  function newLine() {
    const { selectionStart: start, selectionEnd: end, value } = area, line = value.slice(value.lastIndexOf("\n", start - 1) + 1, start);
    replace(start, end, `\n${/^ */.exec(line)[0]}${/:\s*$/.test(line) ? STEP : ""}`);
  }
  area.addEventListener("keydown", (event) => {
    const left = leaving;
    leaving = event.key === "Escape";
    if (event.isComposing) return;
    if (event.key === "Tab" && !left) { event.preventDefault(); indent(event.shiftKey); }
    else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); submit(); }
    else if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); newLine(); }
    if (left && event.key === "Shift") leaving = true; // Escape, then Shift+Tab
  });
  area.addEventListener("input", () => change(area.value));

  return {
    node: el("div", { class: "editor" }, area, el("p", { class: "help", id: told }, "Tab indents. To leave the editor, press Esc, then Tab. Ctrl+Enter checks your answer.")),
    get text() { return area.value; },
    set text(words) { area.value = words; area.rows = Math.min(34, words.split("\n").length + 2); },
    set readOnly(on) { area.readOnly = on; },
    focus: () => area.focus(),
  };
}
