"""`serve`: models over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from regard.base.errors import RegardError
from regard.base.settings import check_range


def serve(
    *runs: Path,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    languages: Annotated[Sequence[str], Parameter(negative=())] = (),
    queue: int = 512,
    precision: str = "fp32",
    weights: str = "best",
    device: str = "auto",
) -> None:
    """Serve runs over HTTP: language models as OpenAI's completions API, translators as LibreTranslate's.

    The address is printed once it answers; there is a page to try it, and /docs says everything. SIGTERM finishes what
    has begun; SIGHUP takes up runs that were replaced.

    Parameters
    ----------
    runs
        the runs' folders, of any number; a model's name is that of its folder; classifiers are skipped
    host
        the address to listen on; any but a loopback address needs a token
    port
        the port; 0 = one that is free
    token
        who asks must show it, as `Authorization: Bearer …` or `api_key`; or set REGARD_TOKEN, which no list of
        processes shows
    languages
        of a translator whose run does not say them: NAME=en-fr
    queue
        texts or sentences of a model that may be written or wait; more are answered 503
    precision
        of language models: fp32, or bf16: faster on a GPU, and less exact
    weights
        best on validation, or last
    device
        cpu, cuda, …; auto = a GPU if there is one
    """
    import os

    from regard.report.progress import say
    from regard.web.listening import listen, run
    from regard.web.serve.api_server import application
    from regard.web.serve.served_models import ServedModels

    if not runs:
        raise RegardError("Which runs? Give at least one folder, as in `regard serve runs/mine`.")
    check_range("--queue", queue, 1)
    token = token or os.environ.get("REGARD_TOKEN") or None
    named = dict(_language_pair(said) for said in languages)
    with listen(host, port) as listening:  # before the models are read, which may take a while
        how = {"weights": weights, "device": device, "precision": precision}
        models = ServedModels(runs, languages=named, places=queue, **how)
        app = application(models, host=host, token=token)
        for name, served in models.by_name.items():
            say(f"{name}: {served.worker.run}")
        run(app, listening, ready=lambda url: print(url, flush=True), hangup=models.reload_soon)


def _language_pair(said: str) -> tuple[str, tuple[str, str]]:
    name, _, both = said.partition("=")
    source, _, target = both.partition("-")
    if not name or not source.isalpha() or not target.isalpha():
        raise RegardError(f"--languages takes NAME=from-into, as in enfr=en-fr, not {said!r}.")
    return name, (source, target)
