"""What a cluster gets: the wheel, installed into an empty virtual environment, without this checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hpslurm.cli import COMMANDS
from hpslurm.core import toml
from tests.test_hosts import build

pytestmark = pytest.mark.slow
REPO = Path(__file__).parents[1]
HOOKS = ("prolog.d", "epilog.d", "taskprolog.d", "healthcheck.d")
ENV = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def run(*words: object, env: dict[str, str] | None = None, seconds: float = 300) -> subprocess.CompletedProcess[str]:
    """From another folder and with an environment of its own, so that nothing of this checkout is found."""
    done = subprocess.run(
        [str(word) for word in words],
        env={**ENV, **(env or {})},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    print(done.stdout[-3000:], done.stderr[-3000:])
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment that has the wheel and what it asks for, and nothing else."""
    place = tmp_path_factory.mktemp("wheel")
    # pip's own settings stay: they may name a proxy or a mirror
    pip = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    build_it = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, REPO]
    assert 0 == run(*build_it, env=pip).returncode
    (wheel,) = place.glob("hpslurm-*.whl")
    assert 0 == run(sys.executable, "-m", "venv", place / "venv").returncode
    install = [place / "venv/bin/python", "-m", "pip", "install", "--quiet", "--no-input", wheel]
    assert 0 == run(*install, env=pip, seconds=1200).returncode  # packages come over the network
    return place / "venv/bin"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine")
    build("p5-efa-missing", path)
    return path


def share(installed: Path) -> Path:
    """Where the printed steps of ``hpslurm install`` find the scripts."""
    text = "import hpslurm, os; print(os.path.dirname(hpslurm.__file__))"
    folder = Path(run(installed / "python", "-c", text).stdout.strip())
    assert REPO not in folder.parents
    return folder / "share"


def test_the_tables_are_there_as_json_too_and_say_the_same(installed: Path) -> None:
    text = "import hpslurm, os; print(os.path.dirname(hpslurm.__file__))"
    tables = Path(run(installed / "python", "-c", text).stdout.strip()) / "tables"
    names = {path.stem for path in (REPO / "hpslurm/tables").glob("*.toml")}
    assert len(names) > 10
    assert names == {path.stem for path in tables.glob("*.json")}
    for name in names:
        assert toml.whole(name) == json.loads((tables / f"{name}.json").read_text()), name


@pytest.mark.parametrize("hook", ["prolog", "epilog", "healthcheck"])
def test_a_hook_copied_from_the_wheel_leaves_a_record(
    installed: Path, machine: Path, tmp_path: Path, hook: str
) -> None:
    text = (share(installed) / f"{hook}.d/hpslurm.sh").read_text()
    values = {
        "PYTHON": installed / "python",
        "LIMIT": "20",
        "LOG": tmp_path / "log",
        "LOCK": tmp_path / "lock",
        "ARGS": f"(--root {machine} --results {tmp_path})",
    }
    for name, value in values.items():
        text = re.sub(rf"^{name}=.*$", f"{name}={value}", text, flags=re.M)
    script = tmp_path / "hpslurm.sh"
    script.write_text(text)
    script.chmod(0o755)
    done = run(script, env={"SLURM_JOB_ID": "77", "SLURM_JOB_GID": str(os.getgid()), "SLURMD_NODENAME": "n1"})
    assert (0, "") == (done.returncode, done.stdout)
    record = tmp_path / f"nodes/n1.{hook.removesuffix('check')}.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert "efa-missing" in [line["id"] for line in lines if line["type"] == "finding"]
    assert "end" == lines[-1]["type"]


def test_the_check_from_the_wheel_finds_what_is_wrong(installed: Path, machine: Path) -> None:
    done = run(installed / "hpslurm-check", "--root", machine)
    assert 3 == done.returncode
    assert "efa-missing" in done.stdout


def test_every_script_and_the_example_are_in_the_wheel(installed: Path) -> None:
    for hook in HOOKS:
        assert [f"{hook}/hpslurm.sh"] == [
            str(path.relative_to(share(installed))) for path in (share(installed) / hook).iterdir()
        ]
    example = (share(installed) / "slurm.conf.example").read_text()
    assert all(f"/etc/slurm/{hook}/hpslurm.sh" in example for hook in HOOKS)


def test_checkers_of_types_are_told_that_there_are_types(installed: Path) -> None:
    assert (share(installed).parent / "py.typed").is_file()


def test_the_guide_comes_with_the_wheel(installed: Path) -> None:
    done = run(installed / "hpslurm", "explain", "efa-missing")
    assert 0 == done.returncode
    assert "efa-missing" in done.stdout


def test_every_command_starts_from_the_wheel(installed: Path) -> None:
    for name in COMMANDS:
        assert 0 == run(installed / "hpslurm", name, "--help").returncode
