"""The live figures of the course on the site.

A chapter shows `figures/live-NAME.svg` like any other picture. On the site, a short script waits until the picture is
scrolled to, loads the shared program (docs/live/*.js) and the figure's data (docs/live/NAME.json), and puts the live
figure in its place. Both become plain scripts, since a page opened from a folder may load neither modules nor JSON.
"""

from __future__ import annotations

import re
from pathlib import Path

from regard.report.bundle_modules import bundle_modules
from regard.report.offline_page import STATIC
from regard.report.tight import tight_script

DATA = Path(__file__).parent / "live"
PICTURE = re.compile(r'<img [^>]*?src="[^"]*live-([\w-]+)\.svg"[^>]*>')
LOADER = """<script>(() => {
const load = (name) => new Promise((onload, onerror) => {
  const src = "../../_static/live/" + name + ".js";
  document.head.append(Object.assign(document.createElement("script"), { src, onload, onerror }));
});
let program;
const seen = new IntersectionObserver((records) => { for (const { target, isIntersecting } of records) {
  if (!isIntersecting) continue;
  seen.unobserve(target);
  const name = target.dataset.live;
  program ??= load("live");
  program.then(() => load(name)).then(() => regardLive.mount(target, name)).catch(() => {}); // the picture stays
} }, { rootMargin: "200px" });
for (const one of document.querySelectorAll("[data-live]")) seen.observe(one);
})();</script>
"""


def live_script() -> str:
    """The program of all live figures, with the interpreter of exported models, as one plain script."""

    def read(name: str) -> str:
        folder = STATIC if name.startswith("page/") else DATA.parent
        return (folder / f"{name}.js").read_text(encoding="utf-8")

    return tight_script(bundle_modules("live/live", read))


def with_live_figures(body: str) -> str:
    """A page in which each picture of a live figure can become the figure."""
    shown = PICTURE.sub(lambda match: f'<span class="live" data-live="{match[1]}">{match[0]}</span>', body)
    return shown + LOADER if shown != body else body


def write_live_figures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "live.js").write_text(live_script(), encoding="utf-8")
    for path in sorted(DATA.glob("*.json")):
        data = path.read_text(encoding="utf-8").strip()
        (folder / f"{path.stem}.js").write_text(f'regardLive.data["{path.stem}"]={data};\n', encoding="utf-8")
