"""What a server keeps and takes is bounded: engines, texts, characters, choices; and a dead one says that it is."""

import asyncio

import httpx
import pytest

import regard
from regard.base.fields import FieldError
from regard.decoding.engine import Prompt
from regard.decoding.sampling import Sampling
from regard.web.serve.requests import (
    CHARACTERS,
    CHOICES,
    LONGEST_STOP,
    STOPS,
    TEXTS,
    CompletionRequest,
    DetectRequest,
    read_body,
)
from regard.web.serve.translation_api import Translations
from regard.web.serve.workers import ENGINES, LanguageWorker, TextJob


def test_a_server_whose_models_have_stopped_says_so(runs, served):
    """The answer of /health decides whether a supervisor starts it again."""
    with served(runs["writer"]) as (address, models):
        assert (httpx.get(f"{address}health").status_code, httpx.get(f"{address}health").json()) == (
            200,
            {"status": "ok"},
        )
        models.scheduler.inbox.put(models.scheduler._stop)
        models.scheduler.thread.join()
        dead = httpx.get(f"{address}health")
        assert (dead.status_code, dead.json()) == (500, {"status": "dead"})


# -- engines ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def worker(runs):
    return LanguageWorker(regard.load(runs["writer"], device="cpu"))


def job(temperature, tokens=3):
    return TextJob(
        Prompt([0]),
        Sampling(temperature),
        max_tokens=tokens,
        lines=0,
        seed=0,
        number=0,
        live=False,
        events=asyncio.Queue(),
    )


def work(worker, until):
    while not until():
        worker.step(lambda job, found: None)


def test_engines_of_a_few_ways_of_drawing_are_kept_those_used_last(worker):
    drawn = [0.1 * n for n in range(1, 3 * ENGINES)]
    for temperature in drawn:
        worker.submit(job(temperature))
        work(worker, lambda: not worker.busy)
        assert len(worker.engines) <= ENGINES
    assert [how.temperature for how in worker.engines] == drawn[-ENGINES:]
    again = drawn[1 - ENGINES]  # one of them is used once more: the others go before it
    for temperature in (again, 2.0):
        worker.submit(job(temperature))
        work(worker, lambda: not worker.busy)
    assert [how.temperature for how in worker.engines] == [*drawn[2 - ENGINES :], again, 2.0]


def test_an_engine_that_is_writing_is_never_given_up(worker):
    slow = [job(0.1 * n, tokens=40) for n in range(1, ENGINES + 3)]
    for one in slow:
        worker.submit(one)
    worker.step(lambda job, found: None)
    assert len(worker.writing) == len(worker.engines) == len(slow)
    work(worker, lambda: not worker.busy)
    assert all(one.over for one in slow)
    worker.submit(job(1.5))
    work(worker, lambda: not worker.busy)
    assert len(worker.engines) == ENGINES


# -- what one request may hold ---------------------------------------------------------------------------------------


def refused(field, read, *given):
    with pytest.raises(FieldError) as error:
        read(*given)
    assert error.value.field == field
    return str(error.value)


def test_texts_and_characters_of_a_translation_end_where_they_say():
    read = DetectRequest.read
    assert len(read({"q": ["a"] * TEXTS}).texts) == TEXTS
    assert (
        refused("q", read, {"q": ["a"] * (TEXTS + 1)})
        == f"q has {TEXTS + 1} texts; at most {TEXTS} are accepted at once."
    )
    assert read({"q": "a" * CHARACTERS}).texts == ("a" * CHARACTERS,)
    assert read({"q": ["a" * (CHARACTERS // 2)] * 2})
    assert "20,000" in refused("q", read, {"q": "a" * (CHARACTERS + 1)})
    assert refused("q", read, {"q": ["a" * (CHARACTERS // 2), "a" * (CHARACTERS // 2), "a"]})
    assert refused("q", read, {"q": []})
    form = "&".join(["q=a"] * (TEXTS + 1)).encode()
    assert refused("q", read, read_body(form, "application/x-www-form-urlencoded")[0])


def test_the_server_refuses_more_texts_before_it_translates_any(address):
    asked = {"q": ["a"] * (TEXTS + 1), "source": "en", "target": "fr"}
    answer = httpx.post(f"{address}translate", json=asked)
    assert answer.status_code == 400
    assert "at most 256" in answer.json()["error"]


def test_the_settings_that_a_client_reads_are_the_limits(server):
    _, models = server
    assert Translations(models).settings(False)["charLimit"] == CHARACTERS


@pytest.mark.parametrize(
    ("field", "fits", "too_much"),
    [
        ("n", {"n": CHOICES}, {"n": CHOICES + 1}),
        ("best_of", {"best_of": CHOICES}, {"best_of": CHOICES + 1}),
        ("n", {"n": CHOICES // 2, "prompt": ["a", "b"]}, {"n": CHOICES // 2 + 1, "prompt": ["a", "b"]}),
        ("prompt", {"prompt": ["a"] * CHOICES}, {"prompt": ["a"] * (CHOICES + 1)}),
        ("prompt", {"prompt": [9]}, {"prompt": [10]}),  # a vocabulary of 10
        ("stop", {"stop": ["a"] * STOPS}, {"stop": ["a"] * (STOPS + 1)}),
        ("stop", {"stop": "a" * LONGEST_STOP}, {"stop": "a" * (LONGEST_STOP + 1)}),
        ("logprobs", {"logprobs": 5}, {"logprobs": 6}),
        ("temperature", {"temperature": 2}, {"temperature": 2.001}),
        ("top_p", {"top_p": 1}, {"top_p": 1.001}),
        ("max_tokens", {"max_tokens": 2**20}, {"max_tokens": 2**20 + 1}),
        ("seed", {"seed": 2**63 - 1}, {"seed": 2**63}),
    ],
)
def test_what_one_completion_may_ask_for_ends_where_it_says(field, fits, too_much):
    def read(given):
        CompletionRequest.read({"model": "writer", **given}).check_tokens(10)

    read(fits)
    refused(field, read, too_much)
