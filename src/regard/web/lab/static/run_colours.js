// The colour of a run, the same in every view, whatever other runs are shown, added or deleted.
//
//   nameColours(runs)                as api.get("runs") gives them: a new run takes the first colour that no other run has
//   colourOfRun("lstm")              for a swatch;  slotOfRun("lstm") for a series of charts.js

import { colourOf } from "./charts.js";

const KEY = "colours", MOST = 2000; // runs that are remembered
let slots = null;

function remembered() {
  if (slots) return slots;
  slots = new Map();
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) || "[]");
    slots = new Map(kept.filter(([name, slot]) => typeof name === "string" && Number.isInteger(slot) && slot >= 0));
  } catch { /* nothing is kept, or it is not ours */ }
  return slots;
}

export function nameColours(runs) {
  const known = remembered(), fresh = runs.filter((run) => !known.has(run.name));
  if (!fresh.length) return;
  const taken = new Set(runs.map((run) => known.get(run.name)));
  for (const run of [...fresh].sort((a, b) => a.created.localeCompare(b.created) || a.name.localeCompare(b.name))) {
    let slot = 0;
    while (taken.has(slot)) slot++;
    taken.add(slot);
    known.set(run.name, slot);
  }
  try { localStorage.setItem(KEY, JSON.stringify([...known].slice(-MOST))); } catch { /* for this visit only */ }
}

export const slotOfRun = (name) => remembered().get(name) ?? 0;
export const colourOfRun = (name) => colourOf(slotOfRun(name));
