// A saved trace, in a file of its own or in a notebook: the same reading, with all its matrices in the page.
import { unpack } from "./arrays.js";
import { reading } from "./reading.js";
import { workPanel } from "./work.js";

const packed = Uint8Array.from(atob(document.getElementById("trace").textContent), (sign) => sign.charCodeAt(0));
const { about, arrays } = unpack(packed.buffer);
const worked = workPanel(about.work);
const follows = about.work.length > 0 && about.work[0].read === about.words.read[about.work[0].step]; // an encoder's steps are others
const view = reading({ parts: async () => arrays, onStep: (step) => follows && worked.step(step) });
document.getElementById("view").append(view.node, worked.node);
view.section("all");
view.show(about);
if (follows) worked.step(view.at);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("theme")));
