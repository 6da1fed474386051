"""What a server says about itself: the OpenAPI document holds, metrics can be read, pages load nothing else."""

import re
from types import SimpleNamespace

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from schemathesis.specs.openapi.checks import positive_data_acceptance

from regard.web.serve.server_metrics import Metrics


@pytest.fixture(scope="module")
def document(address):
    return httpx.get(f"{address}openapi.json").json()


@pytest.mark.slow
def test_the_document_holds_for_whatever_is_sent(address, document):
    """Schemathesis sends what the document allows and what it forbids; every answer is one that it names, and no 5xx.

    What the document allows may be refused: it does not say that a prompt must fit the model.
    """
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=address)
    quick = settings(
        max_examples=15, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate],
    )  # fmt: skip
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) == len(document["paths"])
    for operation in operations:

        @quick
        @given(case=operation.as_strategy())
        def send(case):
            answer = case.call_and_validate(excluded_checks=[positive_data_acceptance], timeout=60)
            assert answer.status_code < 500

        send()


def test_metrics_are_what_prometheus_reads(address):
    asked = {"model": "writer", "prompt": "The", "max_tokens": 3, "seed": 1}

    def read():
        text = httpx.get(f"{address}metrics").text
        return {
            (sample.name, *sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    httpx.post(f"{address}v1/completions", json=asked)
    before = read()
    httpx.post(f"{address}v1/completions", json=asked)
    httpx.get(f"{address}no/such/path")
    after = read()
    ok = ("regard_requests_total", ("path", "/v1/completions"), ("status", "200"))
    written = ("regard_tokens_total", ("kind", "completion"), ("model", "writer"))
    first = ("regard_first_token_seconds_count", ("model", "writer"))
    assert after[ok] == before[ok] + 1
    assert after[written] == before[written] + 3
    assert after[first] == before[first] + 1
    assert after["regard_requests_total", ("path", "other"), ("status", "404")] >= 1
    assert after["regard_jobs", ("model", "writer")] == 0
    assert after[("process_resident_memory_bytes",)] > 10**7


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=50))
@settings(derandomize=True, deadline=None, max_examples=50)
def test_any_model_name_is_a_label_that_prometheus_reads(name):
    metrics = Metrics()
    metrics.tokens.labels(name, "prompt").inc(3)
    text = metrics.text({name: SimpleNamespace(inside=2, places=8)}).decode()
    samples = {
        (sample.name, sample.labels.get("model")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert [samples[key, name] for key in ("regard_tokens_total", "regard_jobs", "regard_places")] == [3, 2, 8]


@pytest.mark.parametrize("path", ["", "docs"])
def test_pages_load_nothing_from_elsewhere_and_nothing_inline(address, path):
    answer = httpx.get(f"{address}{path}")
    assert answer.headers["content-type"].startswith("text/html")
    assert "unsafe" not in answer.headers["content-security-policy"]
    for loaded in re.findall(r'<(?:link|script|img)[^>]*(?:href|src)="([^"]+)"', answer.text):
        if loaded == "data:,":  # no icon is asked for
            continue
        assert loaded.startswith("/static/")
        assert httpx.get(f"{address.rstrip('/')}{loaded}").status_code == 200
    assert not re.search(r"<style|<script>|\sstyle=|\son\w+=", answer.text)
    assert '<html lang="en">' in answer.text
    for field in re.findall(r'<(?:input|select|textarea) id="(\w+)"', answer.text):
        assert f'<label for="{field}">' in answer.text  # for who cannot see it


def test_the_api_page_names_every_path_and_field(address, document):
    text = httpx.get(f"{address}docs").text
    for path in document["paths"]:
        assert path in text
    for field in document["components"]["schemas"]["CompletionRequest"]["properties"]:
        assert f"<code>{field}</code>" in text
