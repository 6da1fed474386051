// Two sections of a reading that need a run and not only a trace: gradients, and the arithmetic of a step.
//
//   reading({ parts, more: { gradients: gradients(compute), work: work(async ({ step, layer, head }) => …) } })
//
// `compute()` asks for the gradients, which are costly, where it is given; the arithmetic is that of
// insight/arithmetic/equation.py. `own` is what the reading shares with them.
import { el, number, put } from "./dom.js";
import { quoted } from "./reading.js";
import { arithmetic } from "./work.js";

export const gradients = (onGradients = null) => function draw(own) {
  const { facts, bodies: { gradients: body }, load, choice, map } = own;
  if (!facts.gradients.length) {
    put(body, el("h3", {}, "Gradients of the loss at each step"),
      onGradients && !facts.notes.some((note) => note.includes("gradients"))
        ? [el("p", { class: "quiet-text" }, "This needs one backward pass per word, which takes a moment."), el("button", { type: "button", onclick: (event) => { event.target.disabled = true; event.target.textContent = "Computing…"; onGradients(); } }, "Compute the gradients")]
        : el("p", { class: "quiet-text" }, facts.notes.join(" ") || "Not computed."));
    return;
  }
  own.slope = Math.min(own.slope, facts.gradients.length - 1);
  put(body, el("h3", {}, "Gradients of the loss at each step"), choice("With respect to", facts.gradients, own.slope, (place) => { own.slope = place; draw(own); own.shade(); }), map.node);
  const one = facts.gradients[own.slope], rows = facts.words[one.rows], columns = facts.words[one.columns];
  load(`gradient/${one.name}`).then((array) => {
    if (own.facts !== facts || one !== facts.gradients[own.slope]) return;
    own.drawnIn.slope = { rows: "written", columns: one.columns, count: rows.length, best: (row) => own.strongest(array, row * columns.length, columns.length) };
    map.draw({
      rows, columns, array, power: true, unit: "norm of the gradient (nats per unit of length)", leftward: facts.leftward[one.columns],
      sentence: "One row per loss, one column per word: the norm of the gradient of that loss with respect to that word's vector. Empty cells are exactly 0.",
      describe: (row, column, value) => (Number.isNaN(value) ? "No word follows the last one, so it has no loss." : `gradient of the loss at ${quoted(rows[row])} with respect to ${quoted(columns[column])}: norm ${number(10 ** value, 3)}`),
    });
    own.follow();
  }).catch((error) => put(body, el("p", { class: "problem" }, error.message)));
};

// The arithmetic of the chosen step, in the layer and head that were looked at last.
export const work = (onWork) => async function draw(own) {
  const { facts, bodies: { work: body }, choice } = own, asked = ++own.turn, encoder = /^encoder|^pool/.test(own.layer);
  try {
    const found = await onWork({ step: encoder ? own.source ?? 0 : own.step, layer: own.layer, head: own.head });
    if (own.facts !== facts || asked !== own.turn) return;
    const titled = (name) => ({ name, title: facts.attention.find((one) => one.name === name)?.title || facts.inside.find((one) => one.name === name)?.title || name });
    const layers = Object.keys(found.layers).map(titled), heads = found.layers[found.layer] || 0;
    own.layer = found.layer;
    put(body, el("h3", {}, `Step ${found.step}, which reads ${quoted(found.read)}${found.then ? ` and predicts ${quoted(found.then)}` : ""}`),
      el("div", { class: "tools" }, layers.length > 1 && choice("Layer", layers, layers.findIndex((one) => one.name === found.layer), (at) => { own.layer = layers[at].name; own.head = 0; draw(own); }),
        heads > 1 && choice("Head", Array.from({ length: heads }, (_, one) => ({ title: String(one + 1) })), found.head, (one) => { own.head = one; draw(own); })),
      arithmetic(found));
  } catch (error) { if (own.facts === facts) put(body, el("p", { class: "problem" }, error.message)); }
};
