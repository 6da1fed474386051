"use strict";

const get = (id) => document.getElementById(id);
let asking = null; // the text that is being written

async function sentenceOf(answer) {
  const said = await answer.json().catch(() => ({}));
  return said.error?.message ?? said.error ?? `The server returned status ${answer.status}.`;
}

function show(element, text, wrong = false) {
  element.textContent = text;
  element.classList.toggle("error", wrong);
}

function element(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part !== "data: [DONE]") yield JSON.parse(part.slice("data: ".length));
  }
}

async function write(event) {
  event.preventDefault();
  asking?.abort();
  const mine = (asking = new AbortController());
  const began = performance.now();
  const body = { model: get("model").value, prompt: get("prompt").value, stream: true, stream_options: { include_usage: true } };
  for (const name of ["max_tokens", "temperature", "top_p", "seed"]) {
    if (get(name).value !== "") body[name] = Number(get(name).value);
  }
  const asked = element("span", body.prompt);
  asked.className = "asked";
  get("written").replaceChildren(asked);
  show(get("how"), "Generating …");
  get("stop").disabled = false;
  try {
    const answer = await fetch("/v1/completions", {
      method: "POST", signal: mine.signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body),
    });
    if (!answer.ok) {
      show(get("how"), await sentenceOf(answer), true);
      return;
    }
    for await (const part of events(answer)) {
      if (part.error) throw new Error(part.error.message);
      if (part.choices.length) get("written").append(part.choices[0].text);
      if (part.usage) {
        const seconds = (performance.now() - began) / 1000;
        show(get("how"), `${part.usage.completion_tokens} tokens in ${seconds.toFixed(2)} s`);
      }
    }
  } catch (error) {
    if (mine === asking) show(get("how"), mine.signal.aborted ? "Stopped." : `${error.message}`, !mine.signal.aborted);
  } finally {
    if (mine === asking) get("stop").disabled = true;
  }
}

async function translate(event) {
  event.preventDefault();
  const [source, target] = get("pair").value.split(" ");
  show(get("translated"), "…");
  show(get("others"), "");
  const answer = await fetch("/translate", {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ q: get("source").value, source, target, alternatives: 2 }),
  }).catch((error) => error);
  if (answer instanceof Error) return show(get("translated"), answer.message, true);
  if (!answer.ok) return show(get("translated"), await sentenceOf(answer), true);
  const said = await answer.json();
  show(get("translated"), said.translatedText);
  for (const other of said.alternatives) get("others").append(element("li", other));
}

function option(select, value, text) {
  const made = element("option", text);
  made.value = value;
  get(select).append(made);
}

async function begin() {
  const models = (await (await fetch("/v1/models")).json()).data;
  const languages = await (await fetch("/languages")).json();
  const name = Object.fromEntries(languages.map((one) => [one.code, one.name]));
  for (const model of models) option("model", model.id, model.id);
  for (const from of languages) {
    for (const into of from.targets) option("pair", `${from.code} ${into}`, `${from.name} → ${name[into]}`);
  }
  get("writing").hidden = !models.length;
  get("translating").hidden = !get("pair").options.length;
  get("nothing").hidden = models.length || get("pair").options.length;
  get("write").addEventListener("submit", write);
  get("stop").addEventListener("click", () => asking?.abort());
  get("translate").addEventListener("submit", translate);
  for (const text of document.querySelectorAll("textarea")) {
    text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) text.form.requestSubmit();
    });
  }
}

begin();
