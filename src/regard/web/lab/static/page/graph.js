// A graph as exchange/page_model.py writes it: values have numbers, which loops share with what is around them.
//
//   const graph = new Graph(description, weights);
//   graph.run({ tokens, lengths, "past.0.keys": … }, ["hidden", "new.past.0.keys"])     only what these need is computed
//
// {inputs: {name: value}, outputs: {name: value}, constants: [[value, dims, type, numbers or weight]], nodes: [[operator,
// inputs, outputs, attributes]]}; an input that is left out has number −1. The operator Part, with a part's name, gives what
// `watch({name, backwards}, value, step, seen)` gives (page/changing.js), or its input; `step` is the column of a loop, or null.
import { KINDS, OPERATORS, tensor } from "./operators.js";
import { transposed } from "./products.js";

// A constant: its numbers, or a weight of the file; a matrix that is multiplied with is kept row by row, [N, K] for [K, N].
export function constant(dims, type, held, weights) {
  if (Array.isArray(held)) return tensor(dims, KINDS[type].from(held));
  const data = weights[held.weight];
  if (!held.turned) return tensor(dims, data);
  return { dims, rows: data, get data() { return transposed(data, dims[1], dims[0]); } };
}

export class Graph {
  constructor(made, weights) {
    this.made = made;
    this.constants = made.constants.map(([value, dims, type, held]) => [value, constant(dims, type, held, weights)]);
    this.plans = new Map();
    this.parts = partsIn(made.nodes);
  }

  run(given, wanted, watch = null) {
    const { inputs, outputs } = this.made, values = [], key = wanted.join();
    for (const [value, held] of this.constants) values[value] = held;
    for (const [name, value] of Object.entries(inputs)) if (given[name]) values[value] = given[name];
    if (!this.plans.has(key)) this.plans.set(key, plan(this.made.nodes, wanted.map((name) => outputs[name])));
    const seen = given.seen?.data[0] ?? 0;
    perform(this.plans.get(key), values, watch && ((part, value, step) => watch(part, value, step, seen)));
    return Object.fromEntries(wanted.map((name) => [name, values[outputs[name]]]));
  }
}

const partsIn = (nodes) => nodes.flatMap(([name, , , { name: part, body }]) => (name === "Part" ? part : body?.nodes ? partsIn(body.nodes) : []));

// The nodes that the wanted values need, in order; of a loop also those of its body. `spent`: values that no later one needs.
function plan(nodes, wanted) {
  const needed = new Set(wanted), kept = [];
  for (let at = nodes.length - 1; at >= 0; at--) {
    const [name, inputs, outputs, attributes] = nodes[at];
    if (!outputs.some((value) => needed.has(value))) continue;
    const one = { name, inputs, outputs, attributes, reads: inputs.filter((value) => value >= 0) };
    if (name === "Scan") loop(one, needed);
    for (const value of one.reads) needed.add(value);
    kept.unshift(one);
  }
  const later = new Set(wanted);
  for (const one of [...kept].reverse()) {
    one.spent = [...new Set([...one.reads, ...one.outputs])].filter((value) => value >= 0 && !later.has(value));
    for (const value of one.reads) later.add(value);
  }
  return kept;
}

// A loop: which of its outputs are wanted, and what its body reads from around it.
function loop(one, needed) {
  const { body, scans } = one.attributes, states = one.inputs.length - scans;
  one.states = states;
  one.collected = one.outputs.map((value, place) => (place >= states && needed.has(value) ? place : -1)).filter((place) => place >= 0);
  one.body = plan(body.nodes, [...body.outputs.slice(0, states), ...one.collected.map((place) => body.outputs[place])]);
  const own = new Set([...body.inputs, ...one.body.flatMap((node) => node.outputs)]);
  one.reads = [...one.inputs, ...one.body.flatMap((node) => node.reads).filter((value) => !own.has(value))];
  const outer = new Set(one.reads);
  for (const node of one.body) node.spent = node.spent.filter((value) => !outer.has(value));
}

function perform(nodes, values, watch, step = null, left = null) {
  for (const node of nodes) {
    if (node.name === "Scan") scan(node, values, watch);
    else if (node.name === "Part") values[node.outputs[0]] = watch ? watch(node.attributes, values[node.inputs[0]], node.attributes.backwards ? left : step) : values[node.inputs[0]];
    else {
      const found = OPERATORS[node.name](node.inputs.map((value) => (value < 0 ? undefined : values[value])), node.attributes);
      node.outputs.forEach((value, place) => { values[value] = found[place]; });
    }
    for (const value of node.spent) values[value] = undefined;
  }
}

function scan({ inputs, outputs, attributes: { body }, states, collected, body: nodes }, values, watch) {
  const columns = inputs.slice(states).map((value) => values[value]), length = columns[0].dims[0];
  let carried = inputs.slice(0, states).map((value) => values[value]);
  const gathered = collected.map(() => []);
  for (let step = 0; step < length; step++) {
    carried.forEach((one, place) => { values[body.inputs[place]] = one; });
    columns.forEach(({ dims, data }, place) => {
      const size = data.length / length;
      values[body.inputs[states + place]] = tensor(dims.slice(1), data.subarray(step * size, (step + 1) * size));
    });
    perform(nodes, values, watch, step, length - 1 - step);
    carried = body.outputs.slice(0, states).map((value) => values[value]);
    collected.forEach((place, n) => gathered[n].push(values[body.outputs[place]]));
  }
  carried.forEach((one, place) => { values[outputs[place]] = one; });
  collected.forEach((place, n) => {
    const [{ dims, data }] = gathered[n], all = new data.constructor(data.length * length);
    gathered[n].forEach((one, step) => all.set(one.data, step * data.length));
    values[outputs[place]] = tensor([length, ...dims], all);
  });
}
