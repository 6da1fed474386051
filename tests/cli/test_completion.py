"""`regard --install-completion`: in a real bash, Tab completes verbs, options, systems, corpora and runs."""

import shutil
import subprocess
import sys

import pytest

from terminal import Terminal

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("bash"), reason="there is no bash with pseudo-terminals here"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory, trained):
    """A home with the completion installed, a `regard` on the path, and runs in runs/."""
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    shim = home / "bin" / "regard"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m regard "$@"\n')
    shim.chmod(0o755)
    shutil.copytree(trained["ngram"], home / "runs" / "counted-one")
    (home / ".bashrc").write_text("PS1='ready$ '\n# mine\n")
    done = subprocess.run(
        [str(shim), "--install-completion", "--shell", "bash"],
        env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().endswith("bash-completion/completions/regard")
    assert (home / ".bashrc").read_text().startswith("PS1='ready$ '\n# mine\n")  # what was there stays
    return home


def test_tab_completes_in_a_real_bash(home):
    terminal = Terminal("bash", "-i", HOME=str(home), PATH=f"{home / 'bin'}:/usr/bin:/bin")
    terminal.expect(r"ready\$ ")
    terminal.type(f"cd {home}\n")
    terminal.expect(r"ready\$ ")
    for typed, completed in [
        ("regard transl\t", "regard translate "),
        ("regard train --print\t", "regard train --print-recipe "),
        ("regard train self\t", "regard train self-attention "),
        ("regard train lstm --data shakes\t", "regard train lstm --data shakespeare "),
        ("regard train lstm --size med\t", "regard train lstm --size medium "),
        ("regard evaluate runs/cou\t", "regard evaluate runs/counted-one "),
        ("regard evaluate gallery/ng\t", "regard evaluate gallery/ngram "),
        ("regard runs ren\t", "regard runs rename "),
        ("regard runs remove runs/c\t", "regard runs remove runs/counted-one "),
    ]:
        terminal.type(typed)
        terminal.expect(completed)
        terminal.type("\x15\n")  # Ctrl-U: the line is empty again
        terminal.expect(r"ready\$ ")
    terminal.type("exit\n")
    terminal.end()


def test_what_is_asked_for_loads_nothing_heavy(home):
    for words in (["train", ""], ["chat", ""], ["train", "lstm", "--data", ""]):
        code = (
            f"import sys\nfrom regard.cli import main\nmain(['__complete', *{words!r}])\n"
            "assert 'torch' not in sys.modules, 'torch was loaded'\n"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=home, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.split()) >= 2


def test_an_unknown_shell_is_one_sentence(wrong, monkeypatch):
    from cyclopts.completion import detect

    def fail():
        raise detect.ShellDetectionError

    monkeypatch.setattr(detect, "detect_shell", fail)
    assert "--shell bash" in wrong("--install-completion")
