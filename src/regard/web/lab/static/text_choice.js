// Choosing a text: those that are here, or a file that is dropped in and checked before anything is trained on it.
//
//   const text = textChoice(api, { pairs: () => true, choose: (name) => … , columns: () => "", encoding: () => "" });
//   await text.load(); text.show(chosenName); text.end();
import { bytes, el, grouped, id, put, speak, table } from "./dom.js";

const BOTH = ["any-b", "copy", "reverse", "recall"]; // toy tasks are text and pairs
const NAMES = { split: "split", encoding: "encoding", lines: "lines", words: "words", vocabulary: "distinct", repeated: "duplicate", blank: "blank" };

// A job that has ended; `still()` false gives up.
export async function whenDone(api, job, still, every = 400) {
  while (job.running && still()) {
    await new Promise((done) => setTimeout(done, every));
    job = await api.get("runs/job", { id: job.id });
  }
  return still() ? api.get("runs/job", { id: job.id }) : job;
}

export function textChoice(api, { pairs, choose, columns = () => "", encoding = () => "" }) {
  const node = el("section", { class: "step" }), findings = el("div", { class: "findings" });
  let found = null, ended = false, chosen = "", checked = "";
  const all = () => [...found.corpora, ...found.uploads.map((file) => ({ ...file, about: `${bytes(file.bytes)}, uploaded`, own: true }))];
  const fits = (one) => one.own || one.pairs || !pairs() || BOTH.includes(one.name);

  const load = async () => { found = await api.get("runs/choices"); return found; };

  function show(name) {
    chosen = name;
    const offered = all().filter(fits), picker = id("file");
    const input = el("input", { type: "file", class: "spoken", id: picker, onchange: () => input.files[0] && take(input.files[0]) });
    const drop = el("label", { class: "drop writes", for: picker }, el("b", {}, "Drop a file here"), " or click to choose one",
      el("span", { class: "help" }, pairs() ? "Sentence pairs: .tsv, .csv, .xlsx, .tmx, .xlf or .jsonl, optionally gzipped" : "Text or a table: .txt, .csv, .tsv, .xlsx or .jsonl, optionally gzipped"));
    for (const event of ["dragover", "dragenter"]) drop.addEventListener(event, (one) => { one.preventDefault(); drop.classList.add("over"); });
    drop.addEventListener("dragleave", () => drop.classList.remove("over"));
    drop.addEventListener("drop", (one) => { one.preventDefault(); drop.classList.remove("over"); const file = one.dataTransfer.files[0]; if (file) take(file); });
    const group = id("text");
    put(node, el("h2", {}, "Text"),
      el("div", { class: "choices", role: "radiogroup", "aria-label": "Text" }, offered.map((one) => el("label", { class: "choice" },
        el("input", { type: "radio", name: group, value: one.name, checked: one.name === chosen, onchange: () => { chosen = one.name; choose(one.name); look(); } }),
        el("span", {}, el("b", {}, one.name), el("span", { class: "help" }, one.about))))),
      input, drop, findings);
    look();
  }

  const offers = (name) => Boolean(found) && all().some((one) => one.name === name && fits(one));

  async function take(file) {
    try {
      put(findings, el("p", {}, `Uploading ${file.name} …`));
      const sent = await api.upload("runs/upload", file, (share) => put(findings, el("p", {}, `Uploading ${file.name}: ${Math.round(100 * share)} %`)));
      await load();
      if (ended) return;
      show(sent.name);
      choose(sent.name);
    } catch (error) { put(findings, el("p", { class: "problem" }, error.message)); }
  }

  // What `regard data check` says of a file of one's own.
  async function look() {
    const own = all().find((one) => one.name === chosen)?.own;
    const wanted = own ? JSON.stringify([chosen, columns(), encoding()]) : "";
    if (wanted === checked) return;
    checked = wanted;
    if (!own) { put(findings); return; }
    put(findings, el("p", { class: "quiet-text" }, `Checking ${chosen} …`));
    try {
      const job = await whenDone(api, await api.post("runs/check", { data: chosen, columns: columns(), encoding: encoding() }), () => !ended && checked === wanted);
      if (ended || checked !== wanted) return;
      put(findings, job.result ? report(job.result) : el("p", { class: "problem" }, job.problem || "This file could not be read."));
      speak(`Checked ${chosen}.`);
    } catch (error) { if (!error.overtaken) put(findings, el("p", { class: "problem" }, error.message)); }
  }

  function report(one) {
    const rows = [], odd = [], refused = Object.values(one.files).map((file) => file.refused).filter(Boolean);
    for (const [split, file] of Object.entries(one.files)) {
      if (file.found) odd.push(`${split}: ${file.found}`);
      for (const it of file.oddities || file.findings || []) odd.push(`${split}: ${it.what} on ${grouped(it.lines)} ${it.lines === 1 ? "line" : "lines"}, first on line ${grouped(it.first)}`);
      rows.push({
        split, encoding: file.encoding, lines: file.lines ?? file.pairs, words: file.words ?? file.source?.words, vocabulary: file.vocabulary ?? file.source?.distinct,
        repeated: file.duplicate_lines ?? file.duplicate_pairs, blank: file.blank_lines,
      });
    }
    return [refused.length > 0 && el("p", { class: "problem" }, refused[0]), table(rows, NAMES, { caption: "Findings" }),
      el("ul", { class: "notes" }, odd.length ? odd.map((line) => el("li", {}, line)) : el("li", {}, "No problems found."))];
  }

  return { node, load, show, offers, look, end: () => { ended = true; } };
}
