// Text: what a corpus is made of, what its splits share, and how tokenizers cut a sentence.
//
//   #/text?corpus=pyref&side=0&sentence=…&vocabulary=2000
import { legend, lineChart } from "../charts.js";
import { bytes, counted, el, grouped, labelled, number, put, segments, speak, table } from "../dom.js";

const KINDS = { word: "Words", bpe: "Byte pairs", char: "Characters", byte: "Bytes" };
const FIRST = "The cats don't regard the neighbor's café — at all.";
const percent = (share) => `${number(100 * share, 3)} %`;

export default {
  title: "Text",
  mount(root, address, api) {
    let ended = false, choices = null, found = null, timer = 0;
    let corpus = address.query.get("corpus") || "pyref";
    let side = Number(address.query.get("side")) || 0;
    const charts = [lineChart({ label: "Zipf's curve", height: 280 }), lineChart({ label: "coverage", height: 280 }), lineChart({ label: "words per line", height: 240 })];

    const select = el("select", { onchange: () => { corpus = select.value; side = 0; address.note({ corpus, side: null }); open(); } });
    const picker = el("input", { type: "file", class: "spoken", id: "text-file", onchange: () => picker.files[0] && take(picker.files[0]) });
    const told = el("p", { class: "quiet-text", role: "status" });
    const made = el("div");
    const sentence = el("textarea", { rows: 2, dir: "auto", maxlength: 2000, spellcheck: "false", oninput: () => soon() });
    sentence.value = address.query.get("sentence") || FIRST;
    const size = el("input", { type: "number", min: 0, max: 200000, step: 100, value: address.query.get("vocabulary") || "", placeholder: "default", onchange: () => soon(0) });
    const rows = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, el("div", { class: "pieces" })]));

    put(root, el("div", { class: "head" }, el("h1", {}, "Text")),
      el("div", { class: "tools" }, labelled("Corpus", select), picker, el("label", { class: "button", for: "text-file" }, "Your own file …")),
      told, made,
      el("section", { class: "section" }, el("h2", {}, "Tokenizers"),
        el("p", { class: "lead" }, "The same sentence, split by tokenizers trained on this corpus's training text."),
        el("div", { class: "row" }, labelled("Sentence", sentence), labelled("Vocabulary", size, "For words and byte pairs. Leave empty for the default in training.")),
        Object.entries(KINDS).map(([kind, label]) => el("div", { class: "tokenizer" }, el("h3", {}, label), rows[kind]))));

    // -- the corpus ----------------------------------------------------------------------------------------------------------

    async function offer() {
      choices = await api.get("runs/choices");
      const own = choices.uploads.map((file) => [file.name, `${file.name} (${bytes(file.bytes)})`]);
      put(select, el("optgroup", { label: "available corpora" }, choices.corpora.map((one) => el("option", { value: one.name, selected: one.name === corpus }, one.name))),
        own.length > 0 && el("optgroup", { label: "your files" }, own.map(([value, text]) => el("option", { value, selected: value === corpus }, text))));
    }

    async function take(file) {
      try {
        told.textContent = `Uploading ${file.name} …`;
        const sent = await api.upload("runs/upload", file, (share) => { told.textContent = `Uploading ${file.name}: ${Math.round(100 * share)} %`; });
        corpus = sent.name;
        side = 0;
        address.note({ corpus, side: null });
        await offer();
        open();
      } catch (error) { told.textContent = error.message; }
    }

    async function open() {
      told.textContent = `Counting the words of ${corpus} …`;
      put(made);
      for (const kind of Object.keys(KINDS)) put(rows[kind], el("p", { class: "quiet-text" }, "Loading the text …"));
      try {
        const answer = await api.post("text/statistics", { corpus }, { only: "text.statistics" });
        if (ended) return;
        found = answer;
        told.textContent = "";
        show();
        speak(`Counted the words of ${found.name}.`);
      } catch (error) { if (!error.overtaken && !ended) told.textContent = error.message; }
      cut();
    }

    function show() {
      const one = found.sides[Math.min(side, found.sides.length - 1)];
      const splits = Object.entries(one.splits);
      put(made,
        found.sides.length > 1 && el("div", { class: "tools" }, segments("Side", Object.fromEntries(found.sides.map((each, place) => [String(place), each.label])), String(side),
          (value) => { side = Number(value); address.note({ side: side || null }); show(); })),
        table(splits.map(([split, counts]) => ({ split, lines: counts.lines, words: counts.words, vocabulary: counts.vocabulary, once: percent(counts.once / Math.max(1, counts.vocabulary)),
          mean: counts.words / Math.max(1, counts.lines), characters: counts.characters, part: counts.whole ? "" : "the beginning only" })),
        { split: "split", lines: "lines", words: "words", vocabulary: "distinct", once: "occur once", mean: "words per line", characters: "characters", ...(splits.every(([, counts]) => counts.whole) ? {} : { part: "counted" }) }, { caption: found.name }),
        found.notes.length > 0 && el("ul", { class: "notes" }, found.notes.map((note) => el("li", {}, note))),
        el("div", { class: "three" }, charts.map((chart, place) => el("section", {}, el("h2", {}, ["Zipf's curve", "Coverage", "Line lengths"][place]), place > 0 && legend(splits.map(([split]) => split)), chart.node))));
      charts[0].draw({ x: { label: "rank", log: true }, y: { label: "count", log: true, format: "short" }, band: false,
        series: [{ name: "count", colour: 0, x: one.ranks, y: one.counts, note: one.words }] });
      charts[1].draw({ x: { label: "words in the vocabulary", log: true }, y: { label: "share of all words in the text (0 to 1)" }, band: false,
        series: Object.entries(one.coverage).map(([split, y], colour) => ({ name: split, colour, x: one.sizes, y })) });
      charts[2].draw({ x: { label: "words per line" }, y: { label: "share of lines (0 to 1)" }, band: false,
        series: splits.map(([split, counts], colour) => ({ name: split, colour, x: counts.lengths.map(([from, to], place, all) => (place === all.length - 1 ? from : (from + to) / 2)), y: counts.lengths.map(([, , lines]) => lines / Math.max(1, counts.lines)) })) });
      const common = one.words.slice(0, 12).join(" · ");
      put(charts[0].node.querySelector(".said") || charts[0].node.appendChild(el("p", { class: "caption said" })), `Most common words: ${common}`);
    }

    // -- tokenizers ----------------------------------------------------------------------------------------------------------

    function soon(wait = 350) { clearTimeout(timer); timer = setTimeout(cut, wait); }

    function cut() {
      const text = sentence.value, vocabulary = Number(size.value) || 0;
      address.note({ sentence: text === FIRST ? null : text, vocabulary: vocabulary || null });
      for (const kind of Object.keys(KINDS)) if (!rows[kind].querySelector(".cut")) put(rows[kind], el("p", { class: "quiet-text" }, "Training the tokenizer …"));
      for (const kind of Object.keys(KINDS)) one(kind, text, kind === "word" || kind === "bpe" ? vocabulary : 0);
    }

    async function one(kind, text, vocabulary) {
      try {
        const answer = await api.post("text/tokens", { corpus, kind, text, vocabulary }, { only: `text.${kind}` });
        if (ended) return;
        const unknown = answer.pieces.filter((piece) => piece.special).length;
        const held = answer.held_out;
        put(rows[kind],
          el("p", { class: "cut", "aria-label": `${counted(answer.pieces.length, "token")}: ${answer.pieces.map((piece) => piece.word).join(", ")}` },
            answer.pieces.map((piece, place) => el("bdi", { class: piece.special ? "piece special" : place % 2 ? "piece odd" : "piece", title: `token ${piece.id}` }, piece.word))),
          el("p", { class: "caption" }, `${counted(answer.pieces.length, "token")} for ${counted(answer.characters, "character")}, ${counted(answer.words, "word")}`,
            unknown ? `; ${unknown} unknown` : "", `. Vocabulary ${grouped(answer.vocabulary)}`,
            held ? `; held-out text: ${number(held.tokens_per_word, 3)} tokens per word, ${percent(held.unknown)} unknown, ${counted(held.used, "distinct token")} used` : "", ".",
            answer.lossless ? "" : ` Decoded: “${answer.decoded}”`));
      } catch (error) { if (!error.overtaken && !ended) put(rows[kind], el("p", { class: "problem" }, error.message)); }
    }

    offer().then(open).catch(address.fail);
    return () => { ended = true; clearTimeout(timer); charts.forEach((chart) => chart.end()); };
  },
};
