// Where the lab shows what a command of the course shows: { href, label, writes }, or null. `runs`: those of the folder,
// and the models that come with Regard.
import { link } from "./address.js";

const WORD = /"([^"]*)"|(\S+)/g;

export function tryIt(command, runs) {
  const [program, verb, ...rest] = [...command.matchAll(WORD)].map((one) => one[1] ?? one[2]);
  if (program !== "regard") return null;
  const option = (name) => (rest.includes(`--${name}`) ? rest[rest.indexOf(`--${name}`) + 1] : undefined);
  const here = (href) => ({ href, label: "Show it here", writes: false });
  const run = runs.find((one) => one.name === rest[0]?.replace(/^runs\//, ""));
  if (verb === "claims" && rest[0] && !rest[0].startsWith("-")) return here(link("claims", rest[0]));
  if (verb === "data" && rest[0] === "check") return here(link("text", "", { corpus: rest[1] }));
  if (verb === "train" && option("data")) return { href: link("new", "", { system: rest[0], data: option("data"), size: option("size") }), label: "Fill in the form", writes: true };
  if (verb === "evaluate" && run) return here(run.task === "translation" ? link("translation", "file", { run: run.name }) : link("runs", "", { run: run.name }));
  if (!["inspect", "generate", "translate"].includes(verb) || !run) return null;
  const asked = ["ablate", "lens", "patch", "why"].find((name) => rest.includes(`--${name}`));
  const layer = option("layer"), head = option("head");
  return here(link(run.task === "translation" ? "translation" : "sentence", "", {
    run: run.name, text: option("prompt") ?? (verb === "inspect" ? rest[1] : "") ?? "",
    show: asked ? "causes" : rest.includes("--work") ? "work" : rest.includes("--gradients") ? "gradients" : layer !== undefined ? "attention" : null,
    ask: asked === "lens" ? null : asked, parts: asked === "ablate" ? option("ablate") : null, look: layer !== undefined && head !== undefined ? `${/\//.test(layer) ? layer : `self/${layer}`}[${head}]` : null,
  }));
}
