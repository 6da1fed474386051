// A sentence on its way through the blocks of a model: one step, block by block, with attention as lines between words.
//
//   const one = flow({ load });   root.append(one.node); one.draw(facts, step); one.end();
//
// `facts` and the names of matrices are those of insight/views/as_json.py; `load("attention/self/0")` answers with one.
import { valueAt } from "./arrays.js";
import { colourOf, legend } from "./charts.js";
import { el, number, put, svg, wide } from "./dom.js";
import { filmBar } from "./film.js";
import { percent, quoted } from "./reading.js";

const LEFT = 168, TALL = 74, GAP = 10, FONT = "13px system-ui, sans-serif", LEAST = 0.02, CHOICES = 3; // LEAST: a weight that is drawn

// The blocks in the order in which a step goes through them.
function blocksOf(facts) {
  const inside = new Map(facts.inside.map((one) => [one.name, one])), maps = new Map(facts.attention.map((one) => [one.name, one]));
  const layers = new Set([...inside.keys(), ...maps.keys()].map((name) => /^(?:layer|self|cross)\/(\d+)/.exec(name)?.[1]).filter(Boolean));
  const blocks = [{ kind: "words", title: "Word vectors", part: inside.has("embedding") && "embedding" }];
  for (const layer of [...layers].sort((a, b) => a - b)) {
    const whole = `layer/${layer}`, gates = facts.inside.filter((one) => one.name.startsWith(`${whole}/`) && one.unit.startsWith("gate"));
    const looks = (kind, part) => maps.has(`${kind}/${layer}`) && { kind: "attention", map: maps.get(`${kind}/${layer}`), title: maps.get(`${kind}/${layer}`).title, part: inside.has(part) && part, whole };
    const self = looks("self", `${whole}/attention`), cross = looks("cross", inside.has(`${whole}/cross`) ? `${whole}/cross` : `${whole}/context`);
    if (cross && !self && gates.length) blocks.push(cross);
    if (!self) blocks.push({ kind: "state", title: inside.get(whole)?.title || `Layer ${Number(layer) + 1}`, part: inside.has(whole) && whole, gates });
    if (self) blocks.push(self);
    if (cross && (self || !gates.length)) blocks.push(cross);
    if (inside.has(`${whole}/feedforward`)) blocks.push({ kind: "alone", title: inside.get(`${whole}/feedforward`).title, part: `${whole}/feedforward`, whole });
  }
  return [...blocks, { kind: "prediction", title: "Prediction" }];
}

export function flow({ load }) {
  const drawing = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "diagram of the blocks" }), names = el("div");
  let facts = null, step = 0, blocks = [], said = [], turn = 0;
  const bar = filmBar({ label: "Block", frame: () => paint(), told: (at) => said[at] || "" });
  const node = el("div", { class: "flow" }, bar.node, drawing, names);
  let shown = null;

  const lengthOf = (array, row) => { const units = array.shape.at(-1); let sum = 0; for (let unit = 0; unit < units; unit++) sum += valueAt(array, row * units + unit) ** 2; return Math.sqrt(sum); };
  const meanOf = (array, row) => { const units = array.shape.at(-1); let sum = 0; for (let unit = 0; unit < units; unit++) sum += valueAt(array, row * units + unit); return sum / units; };
  const inside = async (name) => (name ? load(`inside/${name}`).catch(() => null) : null);

  // What is drawn and said of a block at this step.
  async function found(block) {
    const word = quoted(facts.words.read[step]), array = await inside(block.part);
    if (block.kind === "words") return { said: `${word} becomes a vector${array ? ` of ${array.shape.at(-1)} numbers with norm ${number(lengthOf(array, step), 3)}` : ""}.` };
    if (block.kind === "prediction") {
      const top = facts.top[step].slice(0, CHOICES), came = facts.known[step] ? ` The next word was ${quoted(facts.words.written[step])}: ${percent(facts.probability[step])}.` : "";
      return { top, said: `Top predictions: ${top.map((one) => `${quoted(one.word)} ${percent(one.p)}`).join(", ")}.${came}` };
    }
    const whole = await inside(block.whole), share = array && whole ? `; its norm is ${percent(lengthOf(array, step) / (lengthOf(whole, step) || 1))} of that of the layer's output` : "";
    if (block.kind === "alone") return { said: `${block.title}: applied to ${word} alone${share}.` };
    if (block.kind === "state") {
      const gates = await Promise.all(block.gates.map(async (one) => { const values = await inside(one.name); return values && `${one.title.split(": ").at(-1)} ${number(meanOf(values, step), 2)}`; }));
      return { said: `${block.title}: ${word} is combined with the state of the previous words${gates.some(Boolean) ? `; mean gate values: ${gates.filter(Boolean).join(", ")}` : ""}.` };
    }
    const weights = await load(`attention/${block.map.name}`), [heads, , columns] = weights.shape, lines = [];
    for (let head = 0; head < heads; head++) for (let place = 0; place < columns; place++) {
      const weight = valueAt(weights, (head * weights.shape[1] + step) * columns + place);
      if (weight >= LEAST && !(block.map.causal && place > step)) lines.push({ head, place, weight });
    }
    const most = lines.reduce((a, b) => (b.weight > (a?.weight ?? 0) ? b : a), null), over = facts.words[block.map.columns];
    return { lines, heads, over, said: `${block.title}: ${word} attends ${most ? `most to ${quoted(over[most.place])} (${heads > 1 ? `head ${most.head + 1}, ` : ""}${percent(most.weight)})` : "to nothing"}${share}.` };
  }

  async function read() {
    const mine = ++turn;
    try {
      const all = await Promise.all(blocks.map(found));
      if (mine !== turn) return;
      shown = all;
      said = all.map((one) => one.said);
      bar.show(blocks.length, Math.min(bar.at, blocks.length - 1));
      const heads = Math.max(0, ...all.map((one) => one.heads || 0));
      put(names, heads > 1 && legend(Array.from({ length: heads }, (_, head) => `head ${head + 1}`)), el("p", { class: "caption" }, heads ? `The wider a line, the larger the attention weight (${LEAST} to 1).` : "This model has no attention: its state carries the previous words."));
      paint();
    } catch (error) { if (mine === turn) put(drawing, el("p", { class: "problem" }, error.message)); }
  }

  function paint() {
    if (!shown) return;
    const rows = [...new Set([facts.words.read, ...shown.map((one) => one.over || facts.words.read)])];
    const placed = new Map(rows.map((words) => { let x = LEFT; return [words, words.map((word) => { const size = Math.max(40, wide(word, FONT) + 18), middle = x + size / 2; x += size; return middle; })]; }));
    const width = Math.max(...[...placed.values()].map((some) => some.at(-1))) + 60, height = blocks.length * (TALL + GAP) + 30, own = placed.get(facts.words.read);
    const parts = blocks.map((block, at) => {
      const { lines, heads, over, top } = shown[at], y = 26 + at * (TALL + GAP), x = own[step], state = at === bar.at ? "now" : at < bar.at ? "done" : "later";
      const words = over || facts.words.read, from = placed.get(words), below = y + TALL - 16;
      const row = from.map((place, one) => svg("text", { x: place, y: y + 12, "text-anchor": "middle", class: one === step && !over ? "chosen" : null }, words[one]));
      const body = {
        words: () => [row, svg("path", { class: "wire", d: `M${x} ${y + 18}V${below}` })],
        attention: () => [row, lines.map(({ head, place, weight }) => svg("path", { class: "head", d: `M${from[place] + 2 * (head - (heads - 1) / 2)} ${y + 18}C${from[place]} ${y + 44} ${x} ${y + 34} ${x} ${below}`, stroke: colourOf(head), "stroke-width": String(0.5 + 5.5 * weight), opacity: String(0.25 + 0.7 * weight) }, svg("title", {}, `head ${head + 1}: ${weight.toFixed(2)} on ${words[place]}`)))],
        state: () => [step > 0 && svg("path", { class: "wire", d: `M${own[step - 1]} ${y + 34}H${x}` }), own.slice(0, step + 1).map((place) => svg("circle", { cx: place, cy: y + 34, r: place === x ? 9 : 5 })), svg("path", { class: "wire", d: `M${x} ${y}V${below}` })],
        alone: () => [svg("path", { class: "wire", d: `M${x} ${y - 4}V${below}` }), svg("rect", { x: x - 34, y: y + 12, width: 68, height: 32, rx: 6 })],
        prediction: () => top.map((one, place) => [svg("rect", { class: "share", x: LEFT, y: y + 6 + 20 * place, width: Math.max(1, 180 * one.p), height: 14, rx: 2 }), svg("text", { x: LEFT + 188 * one.p + 6, y: y + 17 + 20 * place }, `${one.word} ${percent(one.p)}`)]),
      }[block.kind]();
      const title = block.title.split(/, |: /);
      return svg("g", { class: `block ${block.kind} ${state}` }, svg("rect", { class: "band", x: 0, y: y - 6, width, height: TALL, rx: 8 }), title.map((line, one) => svg("text", { x: 12, y: y + 18 + 16 * one, class: "title" }, line)), body,
        block.kind !== "prediction" && svg("circle", { class: "dot", cx: x, cy: below, r: 3.5 }));
    });
    put(drawing, svg("svg", { class: "plot", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said[bar.at] }, parts));
  }

  return {
    node,
    draw(now, at) {
      if (now === facts && at === step && shown) return;
      facts = now;
      step = at;
      shown = null;
      blocks = blocksOf(facts);
      if (!facts.inside.length || !facts.words.read.length) { turn++; put(node, el("p", { class: "quiet-text" }, `${facts.system} has no blocks: it looks up counts.`)); return; }
      put(node, bar.node, drawing, names);
      read();
    },
    end: () => { turn++; bar.end(); },
  };
}
