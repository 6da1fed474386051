"""Runs claims: several in parallel, those that measure time alone; results are cached by code and settings.

results = run_claims(["any-b", "hull"], quick=True)
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread

import torch

from regard.base.device import cores, device_name, pick_device
from regard.base.errors import RegardError
from regard.base.writing import write_text
from regard.claims.all_claims import get_claim, module_of
from regard.claims.claim import Claim
from regard.claims.models import claims_cache
from regard.claims.result import ClaimResult, result_of
from regard.claims.source_digest import digest
from regard.report.progress import hushed, progress
from regard.text.corpus import open_corpus


def run_claim(
    name: str,
    *,
    quick: bool = False,
    device: str = "cpu",
    again: bool = False,
    first_seed: int | None = None,
    data: str = "",
    jobs: int = 1,
    **knobs: float,
) -> ClaimResult:
    """One claim, from the cache if it was measured before; other seeds (from `first_seed` on) or `knobs` explore it.
    `data` is the text of a claim that reads one; `jobs` seeds run side by side where the experiment can."""
    claim = get_claim(name)
    claim.trial(quick=quick, device=device, first_seed=first_seed, data=data, **knobs)  # refuses unknown knobs
    path = record_of(claim, quick, device, knobs, first_seed, data)
    if not again and (record := read_record(path)) is not None:
        return record
    with progress(claim.name) as bar:
        return _measure(
            claim, path, quick, device, knobs, first_seed, data, step=lambda note: bar.advance(1, note), jobs=jobs
        )


def run_claims(
    names: Sequence[str],
    *,
    quick: bool = False,
    device: str = "cpu",
    again: bool = False,
    jobs: int | None = None,
    each: Callable[[ClaimResult], object] | None = None,
) -> list[ClaimResult]:
    """All claims, in the given order; `each` is called with every result as it is ready. A claim that fails does not
    stop the others."""
    claims = {claim.name: claim for claim in map(get_claim, names)}
    results: dict[str, ClaimResult] = {}

    def note(result: ClaimResult) -> None:
        results[result.name] = result
        if each:
            each(result)

    missing = []
    for claim in claims.values():
        record = None if again else read_record(record_of(claim, quick, device, {}))
        if record is not None:
            note(record)
        else:
            missing.append(claim)
    with progress("claims", len(claims), len(claims) - len(missing)) as bar:
        together = sorted((c for c in missing if "timing" not in c.kinds), key=lambda c: -c.cost)
        alone = [c for c in missing if "timing" in c.kinds]  # timing needs the machine for itself
        failed: list[str] = []
        aside = _side_by_side(together, quick, device, jobs or cores())
        for outcome in chain(aside, _side_by_side(alone, quick, device, 1)):
            if isinstance(outcome, ClaimResult):
                note(outcome)
                bar.advance(1, f"{outcome.sign} {outcome.name}")
            else:
                failed.append(outcome)
                bar.advance(1)
    if failed:
        raise RegardError(f"Some claims could not be measured: {' '.join(failed)} The other results are saved.")
    return [results[name] for name in claims]


def record_of(
    claim: Claim, quick: bool, device: str, knobs: dict[str, float], first_seed: int | None = None, data: str = ""
) -> Path:
    """The cache file of a result, by claim, settings, measuring code and version of torch."""
    code = digest(f"regard.claims.{module_of(claim.name)}", "regard.claims.verdict")
    where = [device if claim.on_device else "cpu", torch.get_num_threads() if "timing" in claim.kinds else 0]
    own: list[object] = [] if first_seed is None else [first_seed]
    own += [open_corpus(data).checksum()] if data else []
    made_of = json.dumps([quick, where, {**claim.knobs, **knobs}, code, torch.__version__, *own], sort_keys=True)
    return claims_cache() / "results" / f"{claim.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.json"


def read_record(path: Path) -> ClaimResult | None:
    try:
        return ClaimResult.from_json(json.loads(path.read_text(encoding="utf-8"))).again()
    except (OSError, ValueError, KeyError, TypeError):  # missing, or from another version
        return None


def _measure(
    claim: Claim,
    path: Path,
    quick: bool,
    device: str,
    knobs: dict[str, float],
    first_seed: int | None = None,
    data: str = "",
    step: Callable[[str], None] = lambda note: None,
    jobs: int = 1,
) -> ClaimResult:
    chosen = pick_device(device if claim.on_device else "cpu")
    asked = claim.trial(quick=quick, device=str(chosen), first_seed=first_seed, data=data, **knobs)
    trial = replace(asked, step=step, jobs=jobs)
    torch.manual_seed(0)
    began = time.perf_counter()
    with hushed():  # hides the progress bars of training and testing
        evidence = claim.measure(trial)
    seconds = time.perf_counter() - began
    threads = f", {torch.get_num_threads()} threads" if chosen.type == "cpu" else ""
    result = result_of(
        claim, trial, evidence, seconds=seconds, device=device_name(chosen) + threads, code=path.stem.split("-")[-1]
    )
    write_text(path, json.dumps(result.as_json(), ensure_ascii=False) + "\n")
    return result


def _side_by_side(claims: Sequence[Claim], quick: bool, device: str, jobs: int) -> Iterator[ClaimResult | str]:
    """The result of each claim, or a sentence on why there is none."""
    jobs = min(jobs, len(claims))
    if jobs <= 1:
        for claim in claims:
            yield _outcome(partial(_measure, claim, record_of(claim, quick, device, {}), quick, device, {}), claim.name)
        return
    spawn = get_context("spawn")
    with _one_thread_each(), ProcessPoolExecutor(jobs, spawn, _end_with_parent, max_tasks_per_child=1) as pool:
        try:
            waiting: dict[Future[ClaimResult], str] = {
                pool.submit(_in_a_process, claim.name, quick, device): claim.name for claim in claims
            }
            for future in as_completed(waiting):
                yield _outcome(future.result, waiting[future])
        except BaseException:  # Ctrl-C: stop the others
            pool.shutdown(wait=False, cancel_futures=True)
            for child in active_children():
                child.terminate()
            raise


def _outcome(measure: Callable[[], ClaimResult], name: str) -> ClaimResult | str:
    try:
        return measure()
    except RegardError as error:
        return f"{name}: {error}"
    except Exception as error:
        return f"{name}: {type(error).__name__}: {error}."


def _end_with_parent() -> None:
    """Ends this process when its parent ends, for whatever reason."""
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    Thread(target=follow, daemon=True).start()


def _in_a_process(name: str, quick: bool, device: str) -> ClaimResult:
    torch.set_num_threads(1)
    claim = get_claim(name)
    return _measure(claim, record_of(claim, quick, device, {}), quick, device, {})


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """One thread per process, set by environment variables, which children inherit."""
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
