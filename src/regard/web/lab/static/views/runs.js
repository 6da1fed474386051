// All runs of the folder: live curves over each other, what each wrote as it got better, and what can be done with it.
//
//   #/runs?show=a&show=b&run=a&metric=loss&x=tokens&log=x&log=y&smooth=0.6&lines=both&seeds=mean
//
// Losses, perplexities and scores of different texts are never drawn over each other: each text has its own chart. Where
// runs cut one text into different tokens, loss per token is warned of, and bits per character are offered.
import { link } from "../address.js";
import { lineChart } from "../charts.js";
import { ago, el, grouped, notice, number, put, segments, speak } from "../dom.js";
import { firstVisit, galleryList, tour, tourIsDue } from "../welcome.js";
import { runCard } from "../run_card.js";
import { colourOfRun, nameColours, slotOfRun } from "../run_colours.js";

const METRICS = {
  loss: "Loss", perplexity: "Perplexity", bits: "Bits/character", bleu: "BLEU", accuracy: "Accuracy", learning_rate: "Learning rate", tokens_per_second: "Tokens/s",
};
const SCALES = { // what stands at the axis
  loss: "Loss (nats per token)", perplexity: "Perplexity (per token)", bits: "Bits per character", bleu: "BLEU (0 to 100)", accuracy: "Accuracy (share correct)", learning_rate: "Learning rate", tokens_per_second: "Tokens per second",
};
const OF_ANY_TEXT = ["learning_rate", "tokens_per_second"]; // the same whatever the text
const PER_TOKEN = ["loss", "perplexity"]; // by a tokenizer's own tokens
const TALL = 340, LOW = 220; // pixels of one chart, and of each of several
const AXES = { tokens: "tokens", step: "steps", seconds: "time" };
const COLUMNS = ["step", "tokens", "seconds", "loss", "perplexity", "bleu", "accuracy", "learning_rate", "tokens_per_second"];
const FIRST = 6; // runs that are drawn when none was chosen
const MANY = 12; // lines from which on each is drawn with fewer points
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.179, 2.131, 2.11, 2.086]; // 97.5 % of t with 1, 2, 3 … degrees of freedom; few runs have more
const AT_ONCE = 8; // curves that are asked for in one request: the first appear while the others are still read

export const scoreOf = (run) => {
  const best = run.best;
  if (!best) return "";
  if (best.bleu !== undefined) return `BLEU ${number(best.bleu, 3)}`;
  if (best.accuracy !== undefined) return `${number(100 * best.accuracy, 3)} %`;
  return `ppl ${number(best.perplexity, 3)}`;
};

// Runs of one recipe as one line: their mean, and its 95 % interval as a band (of two runs: from one to the other). Losses
// and their logarithms are averaged where all have them; a perplexity is the exponential of a mean loss.
function averaged(lines, log) {
  const [into, out] = log ? [Math.log, Math.exp] : [Number, Number];
  const from = Math.max(...lines.map((one) => one.x[0])), to = Math.min(...lines.map((one) => one.x.at(-1)));
  const x = Array.from(lines[0].x).filter((value) => value >= from && value <= to);
  const at = (one, value) => {
    const next = one.x.findIndex((other) => other >= value), before = Math.max(0, next - 1);
    const share = one.x[next] > one.x[before] ? (value - one.x[before]) / (one.x[next] - one.x[before]) : 0;
    return into(one.y[before]) * (1 - share) + into(one.y[next]) * share;
  };
  const points = x.map((value) => {
    const found = lines.map((one) => at(one, value)), mean = found.reduce((sum, one) => sum + one, 0) / found.length;
    if (found.length === 2) return [mean, Math.min(...found), Math.max(...found)];
    const spread = Math.sqrt(found.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (found.length - 1) / found.length);
    const reach = spread * (STUDENT[found.length - 2] || 2.05);
    return [mean, mean - reach, mean + reach];
  });
  const part = (place) => points.map((point) => out(point[place]));
  return { x, y: part(0), low: part(1), high: part(2) };
}

export default {
  title: "Runs",
  mount(root, address, api) {
    let runs = new Map(), gallery = [], jobs = [], order = [], chosen = null, ended = false, asked = 0;
    let curves = []; // {run, kind, x, y, low, high, age, rows}
    const shown = new Set(); // the runs that are drawn
    const perToken = new Map(); // run → characters of a token of its validation text, or why there is no such number
    const rowsOf = new Map(); // run → its line in the list
    const repeats = new Map(); // recipe, text and tokenizer → how many runs have them
    const drawings = el("div"), warning = el("div", { class: "warning", role: "status" });
    let charts = new Map(), apart = ""; // text → {chart, node}

    // -- what the address says -------------------------------------------------------------------------------------------

    const setting = (key, otherwise, allowed) => {
      const value = address.query.get(key);
      return value && (!allowed || value in allowed) ? value : otherwise;
    };
    const metric = () => setting("metric", "loss", METRICS);
    const axis = () => setting("x", "tokens", AXES);
    const logs = () => new Set(address.query.has("log") ? address.query.getAll("log") : metric() === "perplexity" ? ["y"] : []);
    const smoothing = () => Math.min(0.99, Math.max(0, Number(address.query.get("smooth")) || 0));
    const kinds = () => setting("lines", shown.size > MANY ? "validation" : "both", { both: 1, training: 1, validation: 1 });
    const seeds = () => setting("seeds", "each", { each: 1, mean: 1 });
    const sameRecipe = (name) => { const run = runs.get(name); return `${run.recipe} ${run.text} ${run.tokens}`; }; // another text or tokenizer is another experiment
    const repeated = () => new Set([...shown].map(sameRecipe)).size < shown.size;
    const showing = () => {
      const named = address.query.getAll("show");
      if (named.length) return named[0] === "-" ? [] : named.filter((name) => runs.has(name));
      const like = runs.get(selected());
      return order.filter((name) => runs.get(name).drawn && runs.get(name).task === like?.task).slice(0, FIRST);
    };
    const selected = () => { const name = address.query.get("run"); return name && runs.has(name) ? name : order[0]; };
    const change = (what) => { address.note(what); address.query = new URLSearchParams(location.hash.split("?")[1] || ""); };

    // -- the list --------------------------------------------------------------------------------------------------------

    const deleted = el("details", { class: "numbers writes", ontoggle: () => deleted.open && showDeleted() }, el("summary", {}, "Deleted"));
    const beginning = el("ul", { class: "run-list", "aria-label": "Starting runs", "aria-live": "polite" });
    const list = el("ul", { class: "run-list", "aria-label": "Runs" });
    const filter = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter the runs by name, system or corpus", oninput: () => arrange() });
    const many = el("span", { class: "quiet-text" });
    const all = el("button", { type: "button", class: "quiet", onclick: () => toggleAll() }, "Show all");
    const shipped = el("details", { class: "numbers" }, el("summary", {}, "Models that come with Regard"));
    const side = el("section", { class: "side", "aria-label": "All runs" },
      el("div", { class: "head" }, el("h1", {}, "Runs"), el("a", { class: "button primary writes", href: link("new"), data: { tour: "new" } }, "New run")),
      el("div", { class: "tools" }, filter, many, all), beginning, list, deleted, shipped);

    function rowOf(run) {
      let row = rowsOf.get(run.name);
      if (!row) {
        const box = el("input", { type: "checkbox", "aria-label": `Show ${run.name}`, onchange: () => toggle(run.name, box.checked) });
        const parts = { box, dot: el("i", { class: "dot", role: "img" }), name: el("b"), score: el("span", { class: "score" }), about: el("span", { class: "about" }), bar: el("i") };
        const open = el("a", { class: "open", href: "#" }, el("span", { class: "line" }, parts.name, parts.score), el("span", { class: "line" }, parts.about, parts.dot), el("span", { class: "progress" }, parts.bar));
        open.addEventListener("click", (event) => { event.preventDefault(); select(run.name); });
        row = el("li", {}, el("label", { class: "pick" }, box), open);
        Object.assign(row, { parts, open });
        rowsOf.set(run.name, row);
      }
      const { parts } = row;
      const slash = run.name.lastIndexOf("/");
      put(parts.name, slash >= 0 && el("span", { class: "quiet-text" }, run.name.slice(0, slash + 1)), run.name.slice(slash + 1));
      parts.score.textContent = scoreOf(run);
      const alike = repeats.get(sameRecipe(run.name));
      put(parts.about, [run.system, run.corpus, run.tokenizer, alike > 1 && `seed ${run.seed}, one of ${alike} runs of this recipe`, run.state === "running" ? `step ${grouped(run.last?.step || 0)}` : ago(run.created)].filter(Boolean).join(" · "));
      parts.dot.className = `dot ${run.state}`;
      parts.dot.title = run.state;
      parts.dot.setAttribute("aria-label", run.state);
      row.open.href = link("runs", "", { run: run.name });
      parts.bar.parentElement.hidden = run.state !== "running" || run.share === null;
      parts.bar.style.width = `${100 * (run.share || 0)}%`;
      return row;
    }

    function arrange() {
      const word = filter.value.trim().toLowerCase();
      const visible = order.filter((name) => {
        const run = runs.get(name);
        return !word || [name, run.system, run.corpus, run.state, run.task].some((part) => String(part).toLowerCase().includes(word));
      });
      const rows = visible.map((name) => rowOf(runs.get(name)));
      if (rows.length !== list.children.length || rows.some((row, place) => list.children[place] !== row)) list.replaceChildren(...rows);
      many.textContent = word ? `${visible.length} of ${order.length}` : `${order.length}`;
      marks();
    }

    // Jobs whose run is not there yet, or never came to be.
    const pending = () => jobs.filter((job) => job.kind === "training" && !runs.has(job.run) && ((job.running && !job.stopping) || (job.problem && Date.now() / 1000 - job.started < 600)));
    function showPending() {
      put(beginning, pending().map((job) => el("li", {}, el("div", { class: "pending" }, el("b", {}, job.run),
        el("p", { class: job.running ? null : "problem" }, job.running ? job.last || "Starting …" : job.problem)))));
      beginning.hidden = !beginning.children.length;
    }

    async function showDeleted() {
      try {
        const found = await api.get("runs/trash");
        const back = (one) => async () => {
          try { await api.post("runs/restore", { mark: one.mark }); await refresh(); showDeleted(); } catch (error) { notice(error.message, { bad: true }); }
        };
        put(deleted, el("summary", {}, "Deleted"), found.length === 0 && el("p", { class: "quiet-text" }, "No deleted runs."),
          found.map((one) => el("p", { class: "line" }, one.name, " ", el("button", { type: "button", onclick: back(one) }, "Restore"))));
      } catch (error) { notice(error.message, { bad: true }); }
    }

    function marks() {
      const drawn = showing(), now = selected();
      for (const name of shown) if (!drawn.includes(name)) shown.delete(name);
      for (const name of drawn) shown.add(name);
      for (const [name, row] of rowsOf) {
        row.classList.toggle("chosen", name === now);
        if (name === now) row.open.setAttribute("aria-current", "true"); else row.open.removeAttribute("aria-current");
        row.parts.box.checked = shown.has(name);
        row.parts.box.style.setProperty("accent-color", shown.has(name) ? colourOfRun(name) : "");
      }
      all.textContent = drawn.length ? "Hide all" : "Show all";
    }

    function toggle(name, on) {
      const drawn = showing().filter((one) => one !== name);
      if (on) drawn.push(name);
      change({ show: drawn.length ? drawn : "-" });
      marks();
      showControls();
      draw();
    }
    function toggleAll() {
      const some = showing().length > 0;
      change({ show: some ? "-" : [...list.children].map((row) => [...rowsOf].find(([, one]) => one === row)[0]) });
      marks();
      showControls();
      draw();
    }
    function select(name) {
      change({ run: name });
      if (!shown.has(name) && runs.get(name).drawn && address.query.has("show")) toggle(name, true);
      marks();
      detail();
    }

    // -- the curves ------------------------------------------------------------------------------------------------------

    const controls = el("div", { class: "tools" });
    function showControls() {
      const log = (which) => {
        const box = el("input", { type: "checkbox", checked: logs().has(which), onchange: () => {
          const now = logs();
          if (box.checked) now.add(which); else now.delete(which);
          change({ log: now.size ? [...now] : "-" });
          if (which === "x") draw(); else redraw();
        } });
        return el("label", {}, box, `log ${which}`);
      };
      const known = [...runs.values()];
      const has = { bits: known.some((run) => run.task === "language model"), bleu: known.some((run) => run.best?.bleu !== undefined), accuracy: known.some((run) => run.best?.accuracy !== undefined) };
      const offered = Object.fromEntries(Object.entries(METRICS).filter(([key]) => has[key] !== false || key === metric()));
      const slider = el("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(smoothing()), oninput: () => {
        change({ smooth: Number(slider.value) || null });
        redraw();
      } });
      put(controls,
        segments("Metric", offered, metric(), (value) => { change({ metric: value, log: null }); showControls(); draw(); }),
        segments("X-axis", AXES, axis(), (value) => { change({ x: value }); draw(); }),
        segments("Curves", { both: "both", training: "training", validation: "validation" }, kinds(), (value) => { change({ lines: value }); redraw(); }),
        repeated() && segments("Runs of the same recipe", { each: "each seed", mean: "mean of seeds" }, seeds(), (value) => { change({ seeds: value === "each" ? null : value }); redraw(); }),
        log("x"), log("y"), el("label", {}, "smooth", slider));
    }

    async function draw() {
      const mine = ++asked, names = [...shown];
      if (!names.length) { curves = []; redraw(); return; }
      const width = Math.max(150, Math.round((drawings.clientWidth || 800) / (names.length > MANY ? 3 : 1.5)));
      const query = { x: axis(), y: column(), width, log: logs().has("x") ? 1 : null };
      const fresh = [];
      try {
        if (metric() === "bits") for (const name of names) await characters(name);
        for (let start = 0; start < names.length; start += AT_ONCE) {
          const found = await api.arrays("runs/curves", { ...query, run: names.slice(start, start + AT_ONCE) });
          if (mine !== asked || ended) return;
          fresh.push(...found.about.map((one, place) => {
            if (one.kind === "none") return { ...one, x: [], y: [], low: [], high: [] };
            const part = (name) => found.arrays[`${place}.${name}`].data;
            return { ...one, x: part("x"), y: part("y"), low: part("low"), high: part("high") };
          }));
          if (start + AT_ONCE >= names.length || !curves.length || drawnSeconds() > 1) { curves = [...fresh]; redraw(); lastDrawn = performance.now(); }
        }
      } catch (error) { address.fail(error); }
    }
    // Bits per character are the loss by another unit; of a run whose text is gone they are not known.
    const column = () => (metric() === "bits" ? "loss" : metric());
    async function characters(name) {
      if (perToken.has(name)) return;
      try { perToken.set(name, await api.post("runs/characters", { run: name })); } catch (error) { perToken.set(name, { per_token: null, why: error.message }); }
    }
    const inBits = (name) => { const per = perToken.get(name)?.per_token; return per ? 1 / Math.LN2 / per : NaN; };
    let lastDrawn = 0;
    const drawnSeconds = () => (performance.now() - lastDrawn) / 1000;

    function redraw() {
      const few = shown.size <= MANY, bits = metric() === "bits", some = curves.filter((one) => shown.has(one.run) && one.x.length && !(bits && one.kind === "training"));
      const wanted = address.query.has("lines") || some.some((one) => one.kind === kinds()) ? kinds() : "both"; // no validation has a learning rate
      const scaled = (one, values) => (bits ? Array.from(values, (value) => value * inBits(one.run)) : values);
      const series = some.filter((one) => bits || wanted === "both" || one.kind === wanted).map((one) => {
        const both = wanted === "both" && some.some((other) => other.run === one.run && other.kind !== one.kind);
        const slot = slotOfRun(one.run);
        return {
          ...one, ...Object.fromEntries(["y", "low", "high"].map((part) => [part, scaled(one, one[part])])),
          name: both || wanted !== "both" ? `${one.run}, ${one.kind}` : one.run, label: one.run, colour: slot, dash: slot,
          points: one.kind === "validation" && few, quiet: both && one.kind === "training",
        };
      });
      const lines = seeds() === "mean" ? ofRecipes(series) : series;
      const log = logs(), texts = OF_ANY_TEXT.includes(metric()) ? [""] : [...new Set([...shown].map((name) => runs.get(name).text))];
      arrangeCharts(texts.length ? texts : [""]);
      for (const [text, one] of charts) {
        const mine = texts.length > 1 ? lines.filter((line) => runs.get(line.run).text === text) : lines;
        put(one.names, texts.length > 1 && [...shown].filter((name) => runs.get(name).text === text).map((name) => el("span", {}, el("i", { class: "swatch", style: { background: colourOfRun(name) } }), ` ${name}`)));
        one.chart.draw({
          series: mine, smooth: smoothing(),
          x: { label: axis() === "seconds" ? "training time" : AXES[axis()], log: log.has("x"), format: axis() === "seconds" ? "clock" : "short" },
          y: { label: SCALES[metric()], log: log.has("y"), format: metric() === "tokens_per_second" ? "short" : "number" },
          empty: shown.size ? "No data for this metric" : runs.size ? "Select runs in the list" : "Starting …",
        });
      }
      warn(texts);
    }

    function ofRecipes(series) {
      const groups = new Map();
      for (const one of series) {
        const key = `${sameRecipe(one.run)} ${one.kind}`;
        groups.set(key, [...(groups.get(key) || []), one]);
      }
      return [...groups.values()].flatMap((some) => {
        const drawn = some.length > 1 ? averaged(some, metric() === "perplexity") : null;
        return drawn?.x.length ? [{ ...some[0], ...drawn, points: false, name: `mean of ${some.map((one) => one.run).join(", ")}, ${some[0].kind}`, label: `${some[0].run} and ${some.length - 1} more` }] : some;
      });
    }

    // A chart for each text, under its name; the same ones as before are kept.
    function arrangeCharts(texts) {
      const now = JSON.stringify(texts);
      if (now === apart) return;
      apart = now;
      for (const { chart } of charts.values()) chart.end();
      const titles = texts.map((text) => [...shown].map((name) => runs.get(name)).find((run) => run.text === text)?.corpus || "unknown text");
      charts = new Map(texts.map((text, place) => {
        const chart = lineChart({ label: texts.length > 1 ? `Learning curves, ${titles[place]}` : "Learning curves", height: texts.length > 1 ? LOW : TALL });
        const title = titles.filter((one) => one === titles[place]).length > 1 ? `${titles[place]} (${text.slice(0, 6)})` : titles[place];
        const names = el("p", { class: "legend" });
        return [text, { chart, names, node: el("section", { class: "of-text" }, texts.length > 1 && el("h2", {}, title), names, chart.node) }];
      }));
      put(drawings, [...charts.values()].map((one) => one.node));
    }

    // What of these lines cannot be compared, and by what they can.
    function warn(texts) {
      const said = [], what = metric(), name = METRICS[what].toLowerCase();
      if (texts.length > 1) said.push(el("p", {}, `These runs were trained on ${texts.length} different texts, so their ${what === "bits" ? "bits per character" : name} cannot be compared: each text has its own chart.`));
      for (const text of texts) {
        const mine = [...shown].map((one) => runs.get(one)).filter((run) => run.text === text && run.drawn);
        if (!PER_TOKEN.includes(what) || new Set(mine.map((run) => run.tokens)).size < 2) continue;
        const other = mine.every((run) => run.task === "language model") ? "bits" : mine.every((run) => run.best?.bleu !== undefined) ? "bleu" : "";
        const kinds_ = [...new Map(mine.map((run) => [run.tokens, `${run.name} (${run.tokenizer})`])).values()];
        said.push(el("p", {}, `${kinds_.join(" and ")} split ${mine[0].corpus || "the text"} into different tokens, so their ${name} per token cannot be compared. `,
          other && el("button", { type: "button", onclick: () => { change({ metric: other, log: null }); showControls(); draw(); } }, other === "bits" ? "Show bits per character" : "Show BLEU")));
      }
      if (what === "bits") {
        const without = [...shown].filter((one) => perToken.get(one)?.why);
        if (without.length) said.push(el("p", {}, `Runs without bits per character: ${without.map((one) => `${one} (${perToken.get(one).why.replace(/\.$/, "")})`).join("; ")}.`));
      }
      if (warning.textContent !== said.map((one) => one.textContent).join("")) put(warning, said);
    }

    // Points that came since: at the end of what is drawn; once there are many, the server thins them out again.
    function grow({ run, age, from, rows }) {
      if (!shown.has(run)) return;
      const mine = curves.filter((one) => one.run === run);
      if (!mine.length || mine[0].kind === "none" || mine[0].age !== age || mine[0].rows < from) { draw(); return; }
      const [across, up] = [1 + COLUMNS.indexOf(axis()), 1 + COLUMNS.indexOf(column())];
      for (const one of mine) {
        const fresh = rows.slice(one.rows - from).filter((row) => row[0] === (one.kind === "validation") && row[up] !== null);
        const [x, y] = [fresh.map((row) => row[across]), fresh.map((row) => row[up])];
        for (const [key, values] of [["x", x], ["y", y], ["low", y], ["high", y]]) one[key] = [...one[key], ...values];
        one.rows = from + rows.length;
      }
      if (mine.some((one) => one.x.length > 2500)) draw(); else redraw();
    }

    // -- the page --------------------------------------------------------------------------------------------------------

    const place = el("div", { class: "one" });
    const stage = el("section", { class: "stage", "aria-label": "Curves" }, el("div", { data: { tour: "curves" } }, controls, warning, drawings), place);
    let card = null;

    function detail() {
      const name = selected();
      if (!name) { card?.end(); card = null; put(place); return; }
      if (card?.name !== name) {
        card?.end();
        card = runCard(name, { api, address, changed: refresh });
        put(place, card.node);
      }
      card.update(runs.get(name), jobs);
    }

    function take(found) {
      for (const run of found) runs.set(run.name, run);
    }
    function sort() {
      const live = (run) => (run.state === "running" ? 0 : 1);
      repeats.clear();
      for (const name of runs.keys()) repeats.set(sameRecipe(name), (repeats.get(sameRecipe(name)) || 0) + 1);
      order = [...runs.values()].sort((a, b) => live(a) - live(b) || b.created.localeCompare(a.created)).map((run) => run.name);
    }

    async function refresh() {
      const found = await api.get("runs");
      if (ended) return;
      runs = new Map(found.runs.map((run) => [run.name, run]));
      jobs = found.jobs;
      gallery = found.gallery;
      put(shipped, el("summary", {}, "Models that come with Regard"), galleryList(gallery));
      await settle(true);
    }

    let shape = "", toured = false;
    async function settle(anew) {
      sort();
      nameColours([...runs.values()]);
      for (const name of rowsOf.keys()) if (!runs.has(name)) rowsOf.delete(name);
      const now = runs.size || pending().length ? "runs" : "first";
      if (now !== shape) {
        shape = now;
        if (now === "first") { put(root, firstVisit(api, address, () => refresh().catch(address.fail), gallery)); }
        else put(root, el("div", { class: "split" }, side, stage));
      }
      if (now === "first") return;
      showPending();
      const before = [...shown].join("\n");
      arrange();
      if (anew) showControls();
      detail();
      if (runs.size && !toured && tourIsDue()) { toured = true; setTimeout(() => !ended && tour(), 600); }
      if (anew || before !== [...shown].join("\n")) await draw();
    }

    const close = [];
    refresh().then(() => {
      if (ended) return;
      const have = () => ({ since: curves.filter((one) => one.kind !== "validation").map((one) => `${one.run}:${one.age}.${one.rows}`).filter((word) => runs.get(word.slice(0, word.lastIndexOf(":")))?.state === "running") });
      close.push(api.events("runs/events", have, {
        runs: ({ changed, names }) => {
          const before = runs.size;
          take(changed);
          for (const name of [...runs.keys()]) if (!names.includes(name)) runs.delete(name);
          for (const run of changed) if (rowsOf.has(run.name)) rowOf(run);
          settle(runs.size !== before).catch(address.fail);
        },
        points: (news) => grow(news),
        jobs: (now) => { jobs = now; settle(false).catch(address.fail); },
      }));
    }).catch(address.fail);

    const unmount = () => { ended = true; card?.end(); for (const one of charts.values()) one.chart.end(); for (const one of close) one(); };
    unmount.update = (next) => {
      address = next;
      if (shape !== "runs") return;
      showControls();
      arrange();
      detail();
      draw();
      speak(`Run ${selected()}`);
    };
    return unmount;
  },
};
