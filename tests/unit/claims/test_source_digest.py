"""What a claim was measured with is found by following imports, also those made by name, and files beside them."""

import pytest

from regard.claims.all_claims import NAMES, module_of
from regard.claims.source_digest import HOME, files_of


def names(module):
    return {path.relative_to(HOME).as_posix() for path in files_of((module,))}


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_is_measured_with_its_own_file_and_the_layers_it_looks_into(name):
    found = names(f"regard.claims.{module_of(name)}")
    assert f"claims/{module_of(name)}.py" in found
    assert not any(path.startswith(("report/", "cli/")) for path in found)


def test_training_depends_on_every_system_and_kernel():
    found = names("regard.runs.train")
    for package in ("systems", "fast", "training"):
        files = {
            path.relative_to(HOME).as_posix() for path in (HOME / package).rglob("*.py") if path.name != "__init__.py"
        }
        assert files - {"training/probe.py"} <= found  # which only a dry run uses
    assert {"fast/kernels/persistent.cu", "layers/recurrent.py", "layers/attention.py"} <= found


def test_what_is_measured_by_one_claim_alone_does_not_make_the_others_stale():
    assert "claims/hull.py" not in names("regard.claims.symmetry")
