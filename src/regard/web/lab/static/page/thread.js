// The worker of the page, made from text within it: call("write", {…}) gives a promise, with cancel() on it.

export function thread(program) {
  const address = URL.createObjectURL(new Blob([program], { type: "text/javascript" }));
  const worker = new Worker(address), open = new Map();
  let last = 0;
  worker.onmessage = ({ data }) => {
    const one = open.get(data.id);
    if (!one) return;
    if ("progress" in data) { one.progress(data.progress); return; }
    open.delete(data.id);
    if ("problem" in data) one.failed(Object.assign(new Error(data.problem), { cancelled: data.cancelled }));
    else one.done(data.answer);
  };
  worker.onerror = (event) => { for (const one of open.values()) one.failed(new Error(event.message || "The model's thread could not be started.")); open.clear(); };
  return function call(name, given = {}, progress = () => {}) {
    const id = ++last;
    const promise = new Promise((done, failed) => { open.set(id, { done, failed, progress }); worker.postMessage({ id, name, given }); });
    promise.cancel = () => worker.postMessage({ cancel: id });
    return promise;
  };
}
