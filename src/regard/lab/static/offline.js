// Saved traces, in a file of their own or in a notebook: the same reading, with all its matrices in the page.
import { unpack } from "./arrays.js";
import { reading } from "./reading.js";

for (const data of document.querySelectorAll("script.trace")) {
  const { about, arrays } = unpack(Uint8Array.from(atob(data.textContent), (sign) => sign.charCodeAt(0)).buffer);
  const view = reading({ parts: async () => arrays });
  data.replaceWith(view.node);
  view.section("all");
  view.show(about);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
