// The ladder: systems trained on the same text and budget, tested alike: one table, one chart, one sample of each.
//
//   #/ladder            all comparisons      #/ladder/open?name=compare-pyref&sort=perplexity&down=1&draw=curves
//   #/ladder/new        a new one
import { link } from "../address.js";
import { colourOf, lineChart } from "../charts.js";
import { ago, counted, el, labelled, notice, number, put, segments, speak } from "../dom.js";
import { intervalChart } from "../intervals.js";
import { wholePage } from "../saving.js";
import { textChoice } from "../text_choice.js";

export default {
  title: "Comparisons",
  mount(root, address, api) {
    const show = { "": all, open: one, new: fresh }[address.path] || all;
    return show(root, address, api);
  },
};

const act = (api, path, body, then) => async () => {
  try { const found = await api.post(path, body); then?.(found); } catch (error) { notice(error.message, { bad: true }); }
};

// -- all -----------------------------------------------------------------------------------------------------------------

function all(root, address, api) {
  let timer = 0, ended = false;
  const list = el("div", { class: "cards" });
  put(root, el("div", { class: "head" }, el("h1", {}, "Comparisons"), el("a", { class: "button primary writes", href: link("ladder", "new") }, "New comparison")),
    el("p", { class: "lead" }, "Compare systems trained and tested on the same text with the same budget. Confidence intervals show which differences are significant."), list);

  async function load() {
    const { comparisons, jobs } = await api.get("ladder");
    if (ended) return;
    const begun = new Set(comparisons.map((one) => one.name));
    const waiting = jobs.filter((job) => !begun.has(job.run) && (job.running || (job.problem && Date.now() / 1000 - job.started < 600)));
    put(list,
      waiting.map((job) => el("article", { class: "card" }, el("h2", {}, job.run), el("p", { class: job.running ? "quiet-text" : "problem" }, job.running ? job.last || "Starting …" : job.problem))),
      comparisons.map((one) => card(one, jobs.find((job) => job.run === one.name && job.running))),
      !comparisons.length && !waiting.length && el("p", { class: "quiet-text" }, "There are no comparisons in this folder yet."));
    timer = setTimeout(() => load().catch(address.fail), comparisons.some((one) => one.live) || jobs.some((job) => job.running) || waiting.length ? 1500 : 6000);
  }

  const again = () => { clearTimeout(timer); load().catch(address.fail); };
  function card(one, job) {
    const done = one.finished === one.runs;
    return el("article", { class: "card" },
      el("h2", {}, el("a", { href: link("ladder", "open", { name: one.name }) }, one.name)),
      el("p", { class: "quiet-text" }, `${one.corpus} · ${one.systems.join(", ")} · ${ago(one.created)}`),
      !done && el("p", {}, el("i", { class: `dot ${one.live ? "running" : "stopped"}` }), ` ${one.finished} of ${counted(one.runs, "run")} finished`),
      !done && el("div", { class: "progress" }, el("i", { style: { width: `${(100 * one.finished) / Math.max(1, one.runs)}%` } })),
      job?.last && el("p", { class: "quiet-text" }, job.last),
      el("div", { class: "buttons writes" },
        one.live && job && el("button", { type: "button", disabled: job.stopping, onclick: act(api, "runs/stop", { id: job.id }, again) }, job.stopping ? "Stopping …" : "Stop"),
        !one.live && !done && el("button", { type: "button", class: "primary", disabled: Boolean(job), onclick: (event) => {
          event.target.disabled = true;
          event.target.textContent = "Starting …";
          act(api, "ladder/go-on", { run: one.name })().then(again);
        } }, job ? "Starting …" : "Resume"),
        !one.live && !job && el("button", { type: "button", class: "danger", onclick: act(api, "runs/delete", { run: one.name }, ({ mark }) => {
          again();
          notice(`Deleted ${one.name}.`, { action: "Undo", act: act(api, "runs/restore", { mark }, again) });
        }) }, "Delete")));
  }
  load().catch(address.fail);
  return () => { ended = true; clearTimeout(timer); };
}

// -- one -----------------------------------------------------------------------------------------------------------------

function one(root, address, api) {
  let found = null, ended = false, timer = 0;
  const name = address.query.get("name") || "";
  const chart = lineChart({ label: "Validation perplexity during training", height: 320 });
  const tried = lineChart({ label: "Expected best validation perplexity of k trials", height: 320 });
  const rungs = intervalChart({ label: "Scores with 95 % intervals" });
  const place = el("div"), choice = el("div", { class: "tools" }), holder = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" });
  put(root, el("p", { class: "quiet-text" }, "Opening …"));

  const change = (what) => { address.note(what); address.query = new URLSearchParams(location.hash.split("?")[1] || ""); };
  const colours = new Map();
  const sorting = () => address.query.get("sort") || "";
  const rows = () => {
    const key = sorting();
    if (!key) return found.rows;
    const turn = address.query.has("down") ? -1 : 1;
    const value = (row) => row.values[key];
    return [...found.rows].sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === null || x === undefined) return 1;
      if (y === null || y === undefined) return -1;
      return turn * (typeof x === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  };

  function told(row) {
    const score = row.values[found.score];
    if (row.failed) return `${row.label} failed: ${row.failed}`;
    if (score === null || score === undefined) return `${row.label} has not finished yet.`;
    const inside = row.low === null || row.low === undefined ? "" : `, 95 % interval ${number(row.low)} to ${number(row.high)}`;
    const seeds = row.each.length > 1 ? `; ${row.each.length} seeds: ${row.each.map((each) => number(each)).join(", ")}` : "; one seed";
    return `${row.label}: ${found.score_name} ${number(score)}${inside}${seeds}.${row.signature ? ` ${row.signature}.` : ""}`;
  }

  function showTable() {
    const keys = Object.keys(found.columns);
    const sort = (key) => {
      const down = sorting() === key && !address.query.has("down");
      change({ sort: key, down: down ? 1 : null });
      showTable();
      showRungs();
      speak(`Sorted by ${found.columns[key]}, ${down ? "descending" : "ascending"}`);
    };
    const numeric = (key) => found.rows.some((row) => typeof row.values[key] === "number") || key === "interval" || key === "memory";
    put(holder, el("table", {},
      el("thead", {}, el("tr", {}, keys.map((key) => el("th", {
        scope: "col", class: numeric(key) && "right", "aria-sort": sorting() === key ? (address.query.has("down") ? "descending" : "ascending") : "none",
      }, el("button", { type: "button", onclick: () => sort(key === "interval" ? found.score : key) }, found.columns[key]))))),
      el("tbody", {}, rows().map((row) => el("tr", { class: found.best.includes(row.label) && "best", title: told(row) }, keys.map((key, at) => {
        const value = row.shown[key];
        const text = value === null || value === undefined ? "–" : typeof value === "number" && key !== "year" ? number(value) : String(value);
        return at ? el("td", { class: numeric(key) && "right" }, text)
          : el("th", { scope: "row" }, el("i", { class: "swatch", style: { background: colourOf(colours.get(row.label)) } }), ` ${text}`, found.best.includes(row.label) && el("span", { class: "tag" }, found.best.length > 1 ? "tied best" : "best"));
      }))))));
  }

  // Each score with its interval; the row under the pointer or the cursor says how it was measured.
  function showRungs() {
    const some = rows().filter((row) => Number.isFinite(row.values[found.score]));
    const values = some.flatMap((row) => [row.values[found.score], row.low ?? row.values[found.score]]);
    rungs.draw({
      rows: some.map((row) => ({ name: row.label, value: row.values[found.score], low: row.low ?? NaN, high: row.high ?? NaN, colour: colours.get(row.label), note: told(row), best: found.best.includes(row.label) })),
      x: { label: `${found.score_name}, ${found.more_is_better ? "higher" : "lower"} is better`, log: !found.more_is_better && Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > 4 },
      sentence: some.length ? "Hover over a row to see its interval and how it was measured." : "No run has finished yet.",
    });
  }

  function showCurves() {
    const axis = address.query.get("x") === "seconds" ? "seconds" : "tokens";
    chart.draw({
      series: found.curves.map((curve) => ({ name: curve.label, colour: colours.get(curve.label) || 0, dash: 0, x: curve[axis], y: curve.perplexity, low: curve.low, high: curve.high, points: !curve.low })),
      x: { label: axis === "seconds" ? "training time" : "tokens", format: axis === "seconds" ? "clock" : "short", log: address.query.get("log") === "x" },
      y: { label: "validation perplexity (per token)", log: true },
    });
  }

  // What fewer trials would have given: the expected best of k, with its interval.
  function showTuning() {
    tried.draw({
      series: found.tuning.map((one) => ({ name: one.label, colour: colours.get(one.label) || 0, dash: 0, x: one.k, y: one.perplexity, low: one.low, high: one.high })),
      x: { label: "trials" },
      y: { label: "expected best validation perplexity", log: true },
    });
  }

  function showDrawing() {
    const offered = { scores: `${found.score_name} with intervals`, ...(found.curves.some((curve) => !curve.counted) && { curves: "learning curves" }), ...(found.tuning.length > 0 && { tuning: "tuning: best of k trials" }) };
    const what = address.query.get("draw") in offered ? address.query.get("draw") : "scores";
    put(choice,
      segments("Chart", offered, what, (value) => { change({ draw: value === "scores" ? null : value }); showDrawing(); }),
      what === "curves" && segments("X-axis", { tokens: "tokens", seconds: "time" }, address.query.get("x") === "seconds" ? "seconds" : "tokens", (value) => { change({ x: value }); showCurves(); }));
    put(place, { scores: rungs, curves: chart, tuning: tried }[what].node, what === "curves" && found.curves.some((curve) => curve.low) && el("p", { class: "quiet-text" }, "Mean over seeds; the band is its 95 % interval."));
    ({ scores: showRungs, curves: showCurves, tuning: showTuning })[what]();
  }

  function samples() {
    return found.samples.map((sample) => el("div", { class: "sample" },
      el("dl", { class: "facts" }, Object.entries(sample.given).map(([key, text]) => [el("dt", {}, key), el("dd", { dir: "auto" }, text || "–")])),
      el("div", { class: "cards" }, Object.entries(sample.written).map(([label, text]) => el("figure", {},
        el("figcaption", {}, el("i", { class: "swatch", style: { background: colourOf(colours.get(label) || 0) } }), ` ${label}`), el("pre", { dir: "auto" }, text || "–"))))));
  }

  async function load() {
    found = await api.get("ladder/one", { name });
    if (ended) return;
    [...found.rows].sort((a, b) => (a.values.year || 0) - (b.values.year || 0)).forEach((row, place_) => colours.set(row.label, place_));
    document.title = `${found.title} · Regard lab`;
    put(root, el("p", { class: "path" }, el("a", { href: link("ladder") }, "Comparisons"), ` / ${name}`), el("div", { class: "head" }, el("h1", {}, found.title), found.report && wholePage(name)),
      el("p", { class: "finding" }, found.finding), el("p", { class: "quiet-text" }, found.equal),
      found.waiting.length > 0 && el("p", {}, el("i", { class: "dot running" }), ` Not finished yet: ${found.waiting.join(", ")}.`),
      found.caveats.map((line) => el("p", { class: "quiet-text" }, line)), holder,
      el("section", { class: "section" }, choice, place),
      el("p", { class: "quiet-text" }, found.ranking),
      found.samples.length > 0 && el("section", { class: "section" }, el("h2", {}, "Samples"), samples()),
      el("section", { class: "section" },
        el("details", {}, el("summary", {}, "How it was measured"), el("ul", { class: "notes" }, found.measured.map((line) => el("li", {}, line)))),
        el("details", {}, el("summary", {}, "Methods section for a paper"), el("p", {}, found.methods)),
        el("details", {}, el("summary", {}, "Command to repeat it"), el("pre", {}, found.command)),
        el("details", {}, el("summary", {}, "Runs"), el("p", {}, el("a", { href: link("runs", "", { show: found.rows.flatMap((row) => runsOf(row)), metric: "perplexity", lines: "validation" }) }, "Show their curves")))));
    showTable();
    showDrawing();
    if (found.waiting.length) timer = setTimeout(() => load().catch(address.fail), 4000);
  }
  const runsOf = (row) => (row.each.length > 1 ? row.each.map((_, seed) => `${name}/${row.label}-seed${seed + 1}`) : [`${name}/${row.label}`]);
  load().catch((error) => { put(root, el("p", { class: "path" }, el("a", { href: link("ladder") }, "Comparisons"))); address.fail(error); });
  return () => { ended = true; clearTimeout(timer); chart.end(); tried.end(); rungs.end(); };
}

// -- a new one -----------------------------------------------------------------------------------------------------------

function fresh(root, address, api) {
  let systems = null, ended = false, timer = 0;
  const asked = { systems: [], data: "", match: "", budget: "60s", seeds: "3", size: "tiny" };
  let task = "language model";
  const which = el("section", { class: "step" }), how = el("section", { class: "step" }), summary = el("div"), problem = el("p", { class: "problem", role: "alert" });
  const begin = el("button", { type: "button", class: "primary writes", disabled: true, onclick: () => go() }, "Start comparing");
  const name = el("input", { type: "text", spellcheck: "false", autocomplete: "off", placeholder: "compare-TEXT" });
  const fields = { name: labelled("Name", name, "Folder name: letters, digits and hyphens.") };
  const text = textChoice(api, { pairs: () => task === "translation", choose: (value) => { asked.data = value; check(); } });
  put(root, el("div", { class: "head" }, el("h1", {}, "New comparison"), el("a", { href: link("ladder") }, "All comparisons")),
    el("div", { class: "split form" }, el("div", { class: "stage" }, which, text.node, how),
      el("aside", { class: "side card", "aria-label": "Summary" }, el("h2", {}, "Summary"), fields.name, summary, problem, begin)));

  function showSystems() {
    const some = systems.filter((one) => one.task === task);
    put(which, el("h2", {}, "Systems"),
      segments("Task", { "language model": "language models", translation: "translators" }, task, (value) => { task = value; asked.systems = []; asked.data = text.offers(asked.data) ? asked.data : ""; showSystems(); text.show(asked.data); check(); }),
      el("div", { class: "choices" }, some.map((one) => el("label", { class: "choice" },
        el("input", { type: "checkbox", checked: asked.systems.includes(one.name), onchange: (event) => { asked.systems = event.target.checked ? [...asked.systems, one.name] : asked.systems.filter((other) => other !== one.name); check(); } }),
        el("span", {}, el("b", {}, `${one.name} `), el("span", { class: "help" }, `${one.year}: ${one.title}`))))),
      el("p", { class: "quiet-text" }, task === "translation" ? "If you select none, all translators are compared." : "If you select none, all language models are compared. A 2-gram and a 5-gram are always included."));
  }

  function showHow() {
    const input = (key, help, label = key) => {
      const box = el("input", { type: "text", value: asked[key], autocomplete: "off", spellcheck: "false", oninput: () => { asked[key] = box.value.trim(); check(); } });
      return (fields[key] = labelled(label, box, help));
    };
    const select = (key, choices, help) => {
      const box = el("select", { onchange: () => { asked[key] = box.value; check(); } }, Object.entries(choices).map(([value, word]) => el("option", { value, selected: value === asked[key] }, word)));
      return (fields[key] = labelled(key, box, help));
    };
    put(how, el("h2", {}, "Held constant"), el("div", { class: "grid" },
      input("budget", "For each system: a time (60s, 10m) or a number of tokens (5M)."),
      select("match", { "": "unit of the budget", tokens: "tokens", seconds: "seconds", parameters: "parameters and tokens" }, "The quantity to keep equal for all systems."),
      input("seeds", "Each system is trained with seeds 1 to N. With fewer than 3, you compare runs, not systems."),
      select("size", { tiny: "tiny", small: "small", medium: "medium", large: "large" }, "Applies to every system.")));
  }

  function check() {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      begin.disabled = true;
      for (const field of Object.values(fields)) field.refuse("");
      problem.textContent = "";
      if (!asked.data) { put(summary, el("p", { class: "quiet-text" }, "Choose a text to train on.")); return; }
      try {
        const found = await api.post("ladder/check", asked, { only: "comparison" });
        if (ended) return;
        if (found.problem) {
          if (fields[found.problem.key]) fields[found.problem.key].refuse(found.problem.sentence);
          else problem.textContent = found.problem.sentence;
          put(summary);
          return;
        }
        const trained = found.rows.filter((label) => !/-gram$/.test(label)).length * Number(asked.seeds || 1);
        put(summary, el("dl", { class: "facts" }, el("dt", {}, "systems"), el("dd", {}, found.rows.join(", ")), el("dt", {}, "training runs"), el("dd", {}, `${trained}, one after another, ${asked.budget || "2M"} each`)));
        begin.disabled = false;
      } catch (error) { if (!error.overtaken) problem.textContent = error.message; }
    }, 250);
  }

  async function go() {
    begin.disabled = true;
    try { await api.post("ladder/start", { ...asked, name: name.value.trim() }); address.go("/ladder"); } catch (error) {
      if (/name|exists already/.test(error.message)) fields.name.refuse(error.message); else problem.textContent = error.message;
      begin.disabled = false;
    }
  }

  text.load().then((found) => {
    if (ended) return;
    systems = found.systems;
    showSystems();
    showHow();
    text.show(asked.data);
    check();
  }).catch(address.fail);
  return () => { ended = true; clearTimeout(timer); text.end(); };
}
