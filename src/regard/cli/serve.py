"""`serve`: models over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range
from regard.cli.options import TRANSLATORS, Device, Engine, Precision, RunFolders, Weights


def serve(
    *runs: Annotated[
        RunFolders,
        Parameter(help="folders of the runs; each model is named after its folder"),
    ],
    host: Annotated[str, Parameter(metavar="ADDRESS")] = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    languages: Annotated[Sequence[str], Parameter(metavar="NAME=en-fr", group=TRANSLATORS)] = (),
    engine: Engine = "regard",
    queue: int = 512,
    access_log: bool = False,
    precision: Annotated[
        Precision, Parameter(help="precision of language models; bf16 is faster on a GPU, int8 (gpt, llama) on a CPU")
    ] = "fp32",
    weights: Weights = "best",
    device: Device = "auto",
) -> None:
    """Serve runs over HTTP: language models with OpenAI's API, translators with LibreTranslate's, and classifiers.

    When ready, the server prints its URL: open it to try the models, and /docs to read about the API. On SIGTERM the
    server finishes running requests and exits; on SIGHUP it reloads runs that were replaced.

        regard serve runs/mine
        regard serve runs/mine runs/translator --port 9000
        REGARD_TOKEN=secret-and-long regard serve runs/mine --host 0.0.0.0

    Parameters
    ----------
    host
        address to listen on; any address other than loopback requires a token
    port
        port to listen on; 0 = any free port
    token
        token that clients must send, as `Authorization: Bearer …` or `api_key`; prefer REGARD_TOKEN, which is not
        visible in process lists
    languages
        languages of a translator whose run does not record them
    engine
        program that runs the beam search; ctranslate2 and ctranslate2-int8 (8-bit weights) run on a CPU
    queue
        maximum number of texts or sentences per model, running or waiting; beyond it, HTTP 503
    access_log
        print one JSON line per request to stderr: id, model, tokens, milliseconds; never the text
    """
    import os

    from regard.report.progress import say
    from regard.web.listening import listen, run
    from regard.web.serve.api_server import application
    from regard.web.serve.served_models import ServedModels

    if not runs:
        raise RegardError("Name at least one run, as in `regard serve runs/mine`.")
    check_range("--queue", queue, 1)
    if engine != "regard" and device not in ("auto", "cpu"):
        raise RegardError(f"--engine {engine} runs on the CPU: leave --device out, or use --engine regard.")
    token = token or os.environ.get("REGARD_TOKEN") or None
    named = dict(_language_pair(said) for said in languages)
    with listen(host, port) as listening:  # before the models are read, which may take a while
        how = {"weights": weights, "device": device, "precision": precision, "engine": engine}
        models = ServedModels(runs, languages=named, places=queue, **how)
        app = application(models, host=host, token=token, log=access_log)
        for name, served in models.by_name.items():
            say(f"{name}: {served.worker.run}")
        run(app, listening, ready=lambda url: print(url, flush=True), hangup=models.reload_soon)


def _language_pair(said: str) -> tuple[str, tuple[str, str]]:
    name, _, both = said.partition("=")
    source, _, target = both.partition("-")
    if not name or not source.isalpha() or not target.isalpha():
        raise RegardError(f"--languages takes NAME=FROM-TO, as in enfr=en-fr, not {said!r}.")
    return name, (source, target)
