// A report, one file: its figures, which are drawn already for where no script runs, become the lab's own charts.
import { figure } from "./figures.js";

for (const node of document.querySelectorAll("figure[data-figure]")) node.replaceWith(figure(JSON.parse(node.dataset.figure)).node);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
