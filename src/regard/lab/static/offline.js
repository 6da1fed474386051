// A saved trace, in a file of its own or in a notebook: the same reading, with all its matrices in the page.
import { unpack } from "./arrays.js";
import { reading } from "./reading.js";

const packed = Uint8Array.from(atob(document.getElementById("trace").textContent), (sign) => sign.charCodeAt(0));
const { about, arrays } = unpack(packed.buffer);
const view = reading({ parts: async () => arrays });
document.getElementById("view").append(view.node);
view.section("all");
view.show(about);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
