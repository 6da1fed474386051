// Many small maps on one canvas, such as all heads of all layers: pointer and arrow keys choose one, its name is spoken.
//
//   const all = sheet({ label: "all heads", onPick: (layer, map) => … });
//   root.append(all.node);
//   all.draw({ layers: [{ title, height, width, maps: [{ name, short, array, start }], causal, root, diverging }], chosen: [0, 2] });
//   all.end();
//
// `array` is one of bytes, as in heat.js, or null while it is not there. 144 heads cost one element and one picture: a
// button and a canvas for each would take the browser ten times as long to lay out and paint.

import { el, put, speak } from "./dom.js";
import { colourTable } from "./heat.js";

const SIZE = 46, SMALL = 40, GAP = 6, LABEL = 13, TITLE = 104, ABOVE = 18, WIDE = 864, NARROW = 440; // pixels

// The cells of one map in a square of pixels. Where cells are smaller than pixels, the largest of those under one is seen.
function stamp(out, stride, left, top, size, { array, start, height, width, causal, diverging, leftward }, shades) {
  const edges = (count) => Int32Array.from({ length: size + 1 }, (_, place) => Math.floor((place * count) / size));
  const rows = edges(height), columns = edges(width), data = array.data;
  for (let y = 0; y < size; y++) {
    const lastRow = diverging ? rows[y] + 1 : Math.max(rows[y] + 1, rows[y + 1]);
    for (let x = 0; x < size; x++) {
      const first = columns[x], last = diverging ? first + 1 : Math.max(first + 1, columns[x + 1]);
      let most = -1;
      for (let row = rows[y]; row < lastRow; row++) {
        const end = causal ? Math.min(last, row + 1) : last;
        for (let place = start + row * width + first, stop = start + row * width + end; place < stop; place++) if (data[place] > most) most = data[place];
      }
      if (most >= 0) out[(top + y) * stride + left + (leftward ? size - 1 - x : x)] = shades[most];
    }
  }
}

export function sheet({ label, onPick }) {
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "grid of heat maps", "aria-label": `${label}; use the arrow keys to choose one` });
  const titles = el("div", { class: "titles", "aria-hidden": "true" });
  const node = el("div", { class: "sheet" }, titles, canvas);
  const base = document.createElement("canvas");
  let given = null, chosen = [0, 0], under = null, places = [], frame = 0, size = SIZE, painted = "";

  function draw(next) {
    if (next) { given = next; chosen = next.chosen; painted = ""; }
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  }

  // Where each map stands: layers one below the other, the maps of one in as many lines as it takes.
  function layOut() {
    const around = node.closest(".look") || node, whole = around.clientWidth, room = whole >= WIDE ? 0.6 * whole : whole;
    if (!whole) return null;
    size = whole >= WIDE ? SMALL : SIZE;
    const above = room < NARROW, left = above ? 0 : TITLE, pitch = size + GAP, each = Math.max(1, Math.floor((room - left - 2) / pitch));
    const named = given.layers.some((layer) => layer.maps.length > 1), line = pitch + (named ? LABEL : 0);
    let top = 0;
    places = given.layers.map((layer) => {
      layer.top = top;
      if (above) top += ABOVE;
      const mine = layer.maps.map((_, place) => [left + 2 + (place % each) * pitch, top + 2 + Math.floor(place / each) * line]);
      top += Math.ceil(layer.maps.length / each) * line;
      return mine;
    });
    const most = Math.max(...given.layers.map((layer) => layer.maps.length));
    return { width: left + 2 + Math.min(each, most) * pitch, height: top, above, line };
  }

  function paint() {
    const box = given && layOut();
    if (!box) return;
    const ratio = window.devicePixelRatio || 1, now = `${box.width} ${box.height} ${ratio}`;
    if (now !== painted) {
      painted = now;
      put(titles, given.layers.map((layer) => el("span", { style: { top: `${layer.top}px`, width: box.above ? "100%" : `${TITLE - 8}px`, height: `${box.above ? ABOVE : size + 4}px` } }, layer.title)));
      for (const one of [canvas, base]) { one.width = Math.round(box.width * ratio); one.height = Math.round(box.height * ratio); }
      canvas.style.width = `${box.width}px`;
      canvas.style.height = `${box.height}px`;
      fill(ratio);
    }
    outline(ratio);
  }

  function fill(ratio) {
    const context = base.getContext("2d", { willReadFrequently: true }), style = getComputedStyle(node);
    const image = new ImageData(base.width, base.height), out = new Uint32Array(image.data.buffer), side = Math.round(size * ratio);
    let drawn = 0;
    given.layers.forEach((layer, row) => {
      let shades = null;
      layer.maps.forEach(({ array, start }, place) => {
        if (!array) return;
        shades ??= colourTable({ ...layer, array });
        stamp(out, base.width, Math.round(places[row][place][0] * ratio), Math.round(places[row][place][1] * ratio), side, { ...layer, array, start }, shades);
        drawn++;
      });
    });
    context.putImageData(image, 0, 0);
    context.globalCompositeOperation = "destination-over"; // what is empty, and what is yet to come
    context.fillStyle = style.getPropertyValue("--tint");
    for (const [x, y] of places.flat()) context.fillRect(Math.round(x * ratio), Math.round(y * ratio), side, side);
    context.globalCompositeOperation = "source-over";
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.fillStyle = style.getPropertyValue("--quiet");
    given.layers.forEach((layer, row) => layer.maps.forEach(({ short }, place) => short && context.fillText(short, places[row][place][0] + size / 2, places[row][place][1] + size + LABEL - 2)));
    canvas.dataset.drawn = String(drawn);
  }

  function outline(ratio) {
    const context = canvas.getContext("2d"), style = getComputedStyle(node);
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(base, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.lineWidth = 2;
    for (const [which, colour] of [[under, "--accent"], [chosen, "--mark"]]) {
      const at = which && places[which[0]]?.[which[1]];
      if (!at) continue;
      context.strokeStyle = style.getPropertyValue(colour);
      context.strokeRect(at[0] - 1, at[1] - 1, size + 2, size + 2);
    }
    canvas.dataset.chosen = given.layers[chosen[0]]?.maps[chosen[1]]?.name || "";
  }

  function pick(layer, map) { chosen = [layer, map]; draw(); onPick(layer, map); }

  function mapAt(event) {
    const place = canvas.getBoundingClientRect(), zoom = canvas.currentCSSZoom || 1, x = (event.clientX - place.left) / zoom, y = (event.clientY - place.top) / zoom;
    for (let layer = 0; layer < places.length; layer++) {
      const map = places[layer].findIndex(([left, top]) => x >= left && x < left + size && y >= top && y < top + size + LABEL);
      if (map >= 0) return [layer, map];
    }
    return null;
  }
  canvas.addEventListener("pointermove", (event) => {
    const next = given && mapAt(event);
    if (String(next) === String(under)) return;
    under = next;
    canvas.title = next ? given.layers[next[0]].maps[next[1]].name : "";
    draw();
  });
  canvas.addEventListener("pointerleave", () => { under = null; draw(); });
  canvas.addEventListener("click", (event) => { const next = given && mapAt(event); if (next) pick(...next); });
  canvas.addEventListener("focus", () => { if (given && canvas.matches(":focus-visible")) speak(canvas.dataset.chosen); });
  canvas.addEventListener("keydown", (event) => {
    if (!given) return;
    const [layer, map] = chosen, last = given.layers.length - 1, most = (row) => given.layers[row].maps.length - 1;
    const moves = {
      ArrowLeft: [layer, map - 1], ArrowRight: [layer, map + 1], ArrowUp: [layer - 1, map], ArrowDown: [layer + 1, map],
      Home: [layer, 0], End: [layer, most(layer)], PageUp: [0, map], PageDown: [last, map],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const row = Math.max(0, Math.min(last, moves[event.key][0])), place = Math.max(0, Math.min(most(row), moves[event.key][1]));
    pick(row, place);
    speak(given.layers[row].maps[place].name);
  });

  const watch = new ResizeObserver(() => draw());
  watch.observe(node);
  const onTheme = () => { painted = ""; draw(); };
  addEventListener("theme", onTheme);
  return { node, draw, get chosen() { return chosen; }, end: () => { watch.disconnect(); removeEventListener("theme", onTheme); cancelAnimationFrame(frame); } };
}
