// The server, as a view sees it. Views use only the `api` they are given, so that one that is saved as a file, or shown
// in a notebook, can be given another that answers from what was saved.
//
//   await api.get("runs")                        GET /api/runs → the JSON value
//   await api.post("runs/check", body, options)  POST JSON; options: {signal, only}
//   await api.arrays("runs/curves", query)       → {about, arrays: {name: {shape, data, low, high}}}
//   api.events("runs/events", since, handlers)   server-sent events → a function that ends them
//
// What the server refuses is thrown as Refused, whose message is a sentence to show. A question that a newer one with
// the same `only` has overtaken throws Refused with overtaken = true: ignore it.

import { unpack } from "./arrays.js";

export class Refused extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
    this.overtaken = status === 409;
  }
}

const CHUNK = 8 << 20; // bytes of a file that are sent at once

async function asked(path, options) {
  let response;
  try {
    response = await fetch(`api/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw new Refused("", 409);
    throw new Refused("The lab does not respond: check that it is still running in its terminal.");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Refused(told.error || `The lab returned status ${response.status}.`, response.status);
}

export function withQuery(path, query) {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query || {})) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") words.append(key, one);
  }
  return words.size ? `${path}?${words}` : path;
}

const sent = (body, { signal, only } = {}) => ({
  method: "POST", signal, headers: { "content-type": "application/json" },
  body: JSON.stringify(only ? { ...body, only } : body),
});

export const api = {
  get: async (path, query, { signal } = {}) => (await asked(withQuery(path, query), { signal })).json(),
  post: async (path, body = {}, options) => (await asked(path, sent(body, options))).json(),
  arrays: async (path, query, { signal } = {}) => unpack(await (await asked(withQuery(path, query), { signal })).arrayBuffer()),
  postArrays: async (path, body, options) => unpack(await (await asked(path, sent(body, options))).arrayBuffer()),

  // A file, in pieces: the answer to the last one.
  async upload(path, file, progress = () => {}) {
    let answer = {};
    let token = "";
    for (let start = 0; start === 0 || start < file.size; start += CHUNK) {
      const piece = file.slice(start, start + CHUNK);
      const last = start + CHUNK >= file.size;
      answer = await (await asked(withQuery(path, { name: file.name, token, last: last ? 1 : null }), { method: "PUT", body: piece })).json();
      token = answer.token;
      progress(Math.min(1, (start + CHUNK) / Math.max(1, file.size)));
    }
    return answer;
  },

  // `since()` gives the query of each connection, so that after a break only what is new is sent.
  events(path, since, handlers) {
    let source = null, ended = false, wait = 500, timer = 0;
    const open = () => {
      if (ended) return;
      source = new EventSource(`api/${withQuery(path, since())}`);
      source.onopen = () => { wait = 500; handlers.open?.(); };
      for (const name of Object.keys(handlers)) {
        if (name !== "open" && name !== "lost") source.addEventListener(name, (event) => handlers[name](JSON.parse(event.data)));
      }
      source.onerror = () => {
        source.close();
        handlers.lost?.();
        timer = setTimeout(open, wait);
        wait = Math.min(8000, wait * 2);
      };
    };
    open();
    return () => { ended = true; clearTimeout(timer); source?.close(); };
  },
};
