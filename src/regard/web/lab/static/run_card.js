// One run: what it is, what it wrote as it got better, where it comes from, and what can be done with it.
import { link } from "./address.js";
import { ago, clock, el, grouped, notice, number, put, short, speak } from "./dom.js";
import { modelPage, wholePage } from "./saving.js";

export function runCard(name, { api, address, changed }) {
  const node = el("article", { class: "card run-card", "aria-label": `The run ${name}` });
  const head = el("div", { class: "head" }), actions = el("div", { class: "buttons writes" });
  const facts = el("dl", { class: "facts" }), state = el("p", { class: "state" });
  const samples = el("div", { class: "samples" }), more = el("div");
  put(node, head, state, facts,
    el("section", { class: "section", data: { tour: "samples" } }, el("h3", {}, "Samples"), samples), more);
  let run = null, jobs = [], asked = false, ended = false, full = null, sampled = null, at = null;

  const act = (path, body, then) => async () => {
    try { const found = await api.post(path, body); then?.(found); await changed(); } catch (error) { notice(error.message, { bad: true }); }
  };
  const remove = act("runs/delete", { run: name }, ({ mark }) => notice(`Deleted ${name}.`, {
    action: "Undo", act: act("runs/restore", { mark }, () => notice(`Restored ${name}.`)),
  }));

  // From the click until it trains: it opens torch, its text and its checkpoint, which takes seconds.
  const begins = (job) => run.state === "stopped" && (asked || Boolean(job?.running && !job.stopping));
  async function goOn() {
    asked = true;
    update(run, jobs);
    speak(`Resuming ${name}.`);
    try { await api.post("runs/go-on", { run: name }); await changed(); } catch (error) { notice(error.message, { bad: true }); }
    asked = false;
    if (!ended) update(run, jobs);
  }

  function update(now, jobsNow) {
    const before = run;
    run = now;
    jobs = jobsNow;
    const job = jobs.find((one) => one.run === name);
    const live = run.state === "running";
    put(head, el("h2", {}, name), actions);
    put(actions,
      live && el("button", { type: "button", disabled: Boolean(job?.stopping), onclick: act("runs/stop", { run: name }) }, job?.stopping ? "Stopping …" : "Stop"),
      run.state === "stopped" && el("button", { type: "button", class: "primary", disabled: begins(job), onclick: goOn }, begins(job) ? "Starting …" : "Resume"),
      !live && !begins(job) && !run.counted && el("a", { class: "button", href: link("new", "", { from: name }) }, "Fine-tune"),
      !live && !begins(job) && el("button", { type: "button", class: "danger", onclick: remove }, "Delete"));
    const problem = job && !job.running && job.problem;
    put(state, el("i", { class: `dot ${run.state}` }), " ", begins(job) ? "Resuming from the last checkpoint: loading the model and its text …" : words(), problem && el("span", { class: "problem" }, ` ${problem}`));
    const best = run.best;
    const shown = {
      system: [run.system, run.size].filter(Boolean).join(", "), "started from": run.from, corpus: run.corpus,
      parameters: run.parameters === null ? "" : grouped(run.parameters),
      best: best ? [best.bleu !== undefined && `BLEU ${number(best.bleu)}`, best.accuracy !== undefined && `accuracy ${number(best.accuracy)}`,
        `validation loss ${number(best.loss)}`, `perplexity ${number(best.perplexity)}`, Number.isFinite(best.step) && `at step ${grouped(best.step)}`].filter(Boolean).join(", ") : "",
      device: run.device, started: run.created ? `${new Date(run.created).toLocaleString()} (${ago(run.created)})` : "",
    };
    put(facts, Object.entries(shown).filter(([, value]) => value).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
    if (!before || before.best?.step !== run.best?.step || before.state !== run.state) load();
  }

  function words() {
    const last = run.last;
    if (run.counted) return "Counted in one pass.";
    const spent = last ? `step ${grouped(last.step)}, ${short(last.tokens)} tokens, ${clock(last.seconds)}` : "no steps yet";
    if (run.state === "damaged") return run.why;
    if (run.state === "running") return `Training: ${spent}${run.share !== null ? ` · ${Math.round(100 * run.share)} % of ${run.goal}` : ""}${last?.tokens_per_second ? ` · ${short(last.tokens_per_second)} tokens/s` : ""}`;
    return `${run.state === "done" ? "Done" : "Stopped"}: ${spent}.`;
  }

  async function load() {
    try {
      full = await api.get("runs/one", { run: name });
      if (ended) return;
      show(full.samples);
      details();
      if (sampled === run.best?.step && full.samples.length) return;
      sampled = run.best?.step;
      if (!full.samples.length && (run.best || run.counted)) put(samples, el("p", { class: "quiet-text" }, "Generating a sample …"));
      show(await api.post("runs/sample", { run: name }));
    } catch (error) {
      if (!ended && !error.overtaken) put(samples, el("p", { class: "quiet-text" }, error.message));
    }
  }

  // The newest large, and a slider back to the first.
  function show(found) {
    if (ended) return;
    if (!found.length) { put(samples, el("p", { class: "quiet-text" }, "The first sample appears with the first validation.")); return; }
    const steps = found.map((one) => one.step);
    let place = at !== null && steps.includes(at) ? steps.indexOf(at) : found.length - 1;
    const text = el("div");
    const label = el("span", { class: "quiet-text" });
    const write = () => {
      const one = found[place];
      label.textContent = run.counted ? "" : `after step ${grouped(one.step)}`;
      put(text, one.text !== undefined ? el("pre", { dir: "auto" }, one.text || " ") : el("div", { class: "pairs" }, (one.pairs || []).map((pair) =>
        el("dl", { class: "facts" }, ["source", "reference", "written"].map((key) => [el("dt", {}, key), el("dd", { dir: "auto", class: key === "written" ? "strong" : null }, pair[key] || "–")])))));
    };
    const slider = el("input", { type: "range", min: "0", max: String(found.length - 1), value: String(place), "aria-label": "Samples, oldest to newest", oninput: () => {
      place = Number(slider.value);
      at = place === found.length - 1 ? null : steps[place];
      write();
    } });
    put(samples, found.length > 1 && el("div", { class: "tools" }, slider, label), text, found.length === 1 && label);
    write();
  }

  function details() {
    const about = { ...full.facts };
    const problem = el("p", { class: "problem", role: "alert" });
    put(more, el("p", { class: "buttons" }, full.report && wholePage(name), (run.best || run.counted) && modelPage(api, name, (words) => { problem.textContent = words; })), problem,
      full.notes.length > 0 && el("ul", { class: "quiet-text notes" }, full.notes.map((note) => el("li", {}, note))),
      full.log && el("details", {}, el("summary", {}, "Log"), el("pre", {}, full.log)),
      el("details", {}, el("summary", {}, "Recipe and metadata"), el("pre", {}, full.recipe),
        el("dl", { class: "facts" }, Object.entries(about).filter(([, value]) => value !== null).map(([key, value]) => [el("dt", {}, key), el("dd", {}, String(value))]))));
  }

  return { node, name, update, end: () => { ended = true; } };
}
