"""`make mutants` draws from every package, and each fault that once survived names a test that exists."""

import tomllib
from pathlib import Path

import pytest

from mutants import SOURCE, TESTS

ROOT = Path(__file__).parents[2]
FAULTS = tomllib.loads((ROOT / "tools" / "known_faults.toml").read_text(encoding="utf-8"))["fault"]


@pytest.mark.parametrize("package", sorted(path.parent.name for path in SOURCE.glob("*/__init__.py")))
def test_every_package_has_tests_that_its_faults_are_tried_with(package):
    assert TESTS[package]
    for name in TESTS[package]:
        assert (ROOT / "tests" / name).is_file()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault['file']}: {fault['was'][:30]!r}")
def test_a_known_fault_has_a_test_of_its_name(fault):
    file, _, name = fault["test"].partition("::")
    assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")
    assert (SOURCE / fault["file"]).is_file()
    assert fault["was"] != fault["becomes"]
