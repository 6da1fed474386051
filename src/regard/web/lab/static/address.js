// What views and drawings need of the page around them, whichever it is: the lab, an offline file, a notebook.

// An address in the lab: link("runs", "", {run: "a b"})
export function link(view, path = "", query = {}) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") words.append(key, one);
  }
  const rest = path.split("/").filter(Boolean).map(encodeURIComponent).join("/");
  return `#/${view}${rest ? `/${rest}` : ""}${words.size ? `?${words}` : ""}`;
}

export const isDark = () => document.documentElement.dataset.theme === "dark" ||
  (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);

export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
