// Writing and searching, as decoding/generate.py and decoding/beam.py.
import { banned, choose, largest, logSoftmax, randomStream } from "./sampling.js";

const IMPOSSIBLE = -1e30, WATCHED = 3;

// The next tokens of a text one by one; `pause` is awaited between them, and may throw to end it.
export async function write(model, prompt, { tokens, lines = 0, seed = 0, forbidden, first = [], onToken, pause, ...how }) {
  const random = randomStream(seed), context = model.context;
  let history = context ? prompt.slice(-context) : [...prompt], room = context ? context - history.length : Infinity, ended = 0;
  let { hidden, state } = model.read([history], model.begin()[0]), logits = model.predict(hidden)[0];
  for (let step = 0; step < tokens; step++) {
    const token = choose(banned(logits, step ? forbidden : [...forbidden, ...first]), how, random);
    history.push(token);
    if (token === 0) ended++;
    onToken(token);
    if (step + 1 === tokens || (lines && ended >= lines)) return;
    await pause();
    if (room > 0) { room--; ({ hidden, state } = model.read([[token]], state)); }
    else { // the context is full: its second half is read again
      history = history.slice(-Math.max(context >> 1, 1));
      room = context - history.length;
      ({ hidden, state } = model.read([history], model.begin()[0]));
    }
    [logits] = model.predict(hidden);
  }
}

// The hypotheses after `logits` and `state`, best first, and all candidates of the search as a tree.
export async function beamSearch(model, logits, state, { width, penalty, most, forbidden, pause }) {
  const ended = [], branches = [];
  let open = [{ total: 0, tokens: [], branch: -1 }], next = [logits];
  for (let length = 1; length <= most && open.length; length++) {
    const shown = WATCHED * width, all = [];
    open.forEach((one, slot) => {
      const allowed = banned(next[slot], forbidden), logs = logSoftmax(next[slot]);
      for (const token of largest(allowed, Math.min(shown, allowed.length))) if (allowed[token] > -Infinity && logs[token] >= IMPOSSIBLE) all.push({ slot, token, total: one.total + Math.fround(logs[token]) });
    });
    all.sort((a, b) => b.total - a.total || a.slot - b.slot);
    const room = width - ended.length, live = [];
    all.slice(0, shown).forEach((one, rank) => {
      const kept = rank < room, before = open[one.slot], tokens = [...before.tokens, one.token], ends = one.token === 0;
      branches.push({ parent: before.branch, step: length, token: one.token, log: one.total, kept, finished: kept && ends });
      if (!kept) return;
      const made = { ...one, tokens, branch: branches.length - 1, finished: ends, score: one.total / length ** penalty };
      if (ends || length >= most) ended.push(made);
      else live.push(made);
    });
    const worst = ended.filter((one) => one.finished).map((one) => one.score).sort((a, b) => b - a)[width - 1] ?? -Infinity;
    const longest = penalty > 0 ? most : length + 1;
    if (!live.length || worst >= live[0].total / longest ** penalty) break;
    state = model.select(state, live.map((one) => one.slot));
    const read = model.read(live.map((one) => [one.token]), state);
    state = read.state;
    next = model.predict(read.hidden);
    open = live;
    await pause();
  }
  ended.sort((a, b) => b.finished - a.finished || b.score - a.score);
  ended.forEach((one, place) => Object.assign(branches[one.branch], { rank: place + 1, score: one.score, tokens: one.tokens }));
  return { found: ended, branches };
}
