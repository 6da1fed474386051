// A film: frames with a slider, Play and a line that says which one is shown. For the lab's view Time and for a saved page.
//
//   const bar = filmBar({ label: "Training step", frame: (at) => drawn, told: (at) => "step 40 of 200" });
//   root.append(bar.node); bar.show(12, 0); bar.end();
//
// `frame` draws one and may answer with a promise: while it plays, the next frame waits for it.
import { el } from "./dom.js";

const BEAT = 900; // milliseconds that a frame stays

export function filmBar({ label, frame, told }) {
  let at = 0, count = 0, turn = 0;
  const slider = el("input", { type: "range", min: "0", max: "0", step: "1", "aria-label": label, oninput: () => { stop(); go(Number(slider.value)); } });
  const where = el("p", { class: "in-short", role: "status" }), play = el("button", { type: "button", onclick: () => (turn % 2 ? stop() : run()) }, "▶ Play");

  function tell() {
    where.textContent = told(at);
    slider.setAttribute("aria-valuetext", where.textContent);
  }
  function go(next, playing = false) {
    at = next;
    slider.value = String(at);
    tell();
    return frame(at, playing);
  }
  function stop() {
    if (turn % 2) turn++;
    play.textContent = "▶ Play";
  }
  async function run() {
    const mine = ++turn;
    play.textContent = "❚❚ Pause";
    let next = at + 1 < count ? at : 0;
    for (; next < count && turn === mine; next++) await Promise.all([go(next, true), new Promise((done) => setTimeout(done, BEAT))]);
    if (turn === mine) stop();
  }
  return {
    node: el("div", { class: "time-bar" }, play, slider, where),
    get at() { return at; },
    show(many, from) { stop(); count = many; at = from; slider.max = String(many - 1); slider.value = String(from); tell(); },
    tell, stop,
    end: stop,
  };
}
