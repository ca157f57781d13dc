"""What a cluster gets: the wheel, installed into an empty virtual environment, without this checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpslurm.cli import COMMANDS
from tests.test_constraints import constraints, plain
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


def documented(place: Path) -> Iterator[str]:
    """The commands of docs/install.md § 1, for folders below this one, as whoever runs the tests."""
    part = (REPO / "docs/install.md").read_text().partition("## 1. ")[2].partition("## 2. ")[0]
    for line in part.splitlines():
        if re.match(r"    \S", line) and not line.endswith("'") and "clush" not in line:  # the same again, for many
            text = line.strip().replace("sudo ", "").replace("/usr/local/bin/", f"{place}/bin/")
            yield text.replace("/opt/hpslurm", f"{place}/opt").replace("/fsx/", f"{place}/fsx/")


def typed(place: Path, *signs: str, venv: str = "opt") -> None:
    """Those of them that have one of the signs, in the checkout, in their order."""
    # pip's own settings stay: they may name a proxy or a mirror
    pip = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PIP_CONSTRAINT")}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # python3 is the one that runs the tests
    lines = [line for line in documented(place) if any(sign in line for sign in signs)]
    assert len(signs) <= len(lines)
    for line in lines:
        words = ["bash", "-ec", f"cd '{REPO}' && {line.replace(f'{place}/opt', f'{place}/{venv}')}"]
        assert 0 == run(*words, env={**pip, "PATH": path}, seconds=1200).returncode, line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels with their hashes, made as docs/install.md says. Packages come over the network."""
    place = tmp_path_factory.mktemp("wheel")
    (place / "bin").mkdir()
    typed(place, "python3 -m venv", "install -d", "pip wheel", "sha256sum", "grep -iE")
    return place


@pytest.fixture(scope="module")
def installed(place: Path) -> Path:
    """The ``bin`` folder of an environment that has the wheel and what it asks for, and nothing else."""
    typed(place, "--require-hashes", "ln -sf")
    assert (place / "bin/hpslurm-check").samefile(place / "opt/bin/hpslurm-check")
    return place / "opt/bin"


@pytest.fixture(scope="module")
def lean(place: Path) -> Path:
    """The same of an environment for nodes that only run hooks and jobs."""
    assert 0 == run(sys.executable, "-m", "venv", place / "lean").returncode
    wheels, pip = place / "fsx/hpslurm-wheels", place / "lean/bin/pip"
    words = f"cd '{wheels}' && '{pip}' install --no-index --no-deps --require-hashes -r ../hpslurm-lean.txt"
    assert 0 == run("bash", "-ec", words).returncode
    return place / "lean/bin"


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


@pytest.fixture(params=["installed", "lean"])
def either(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.mark.parametrize("hook", ["prolog", "epilog", "healthcheck"])
def test_a_hook_copied_from_the_wheel_leaves_a_record(either: Path, machine: Path, tmp_path: Path, hook: str) -> None:
    installed = either
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


def test_the_check_from_the_wheel_finds_what_is_wrong(either: Path, machine: Path) -> None:
    done = run(either / "hpslurm-check", "--root", machine)
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


def test_a_wheel_that_was_changed_is_not_installed(place: Path, tmp_path: Path) -> None:
    wheels = tmp_path / "hpslurm-wheels"
    shutil.copytree(place / "fsx/hpslurm-wheels", wheels)
    listed = (place / "fsx/hpslurm-wheels.txt").read_text()
    (tmp_path / "hpslurm-wheels.txt").write_text(listed)
    assert len(list(wheels.glob("*.whl"))) == listed.count("--hash=sha256:") > 15
    (wheel,) = wheels.glob("click-*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"x")
    words = ["install", "--no-index", "--no-deps", "--require-hashes", "--target", tmp_path / "there"]
    done = run(
        "bash",
        "-c",
        'cd "$1" && shift && "$@"',
        "-",
        wheels,
        place / "opt/bin/pip",
        *words,
        "-r",
        "../hpslurm-wheels.txt",
    )
    assert 0 != done.returncode
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not (tmp_path / "there/hpslurm").exists()


def test_the_wheels_are_of_the_versions_that_the_tests_run_with(place: Path) -> None:
    wanted = dict(line.split("==") for line in constraints())
    wheels = [path.name.split("-") for path in (place / "fsx/hpslurm-wheels").glob("*.whl")]
    had = {plain(words[0]): words[1] for words in wheels if words[0] != "hpslurm"}
    assert {name: version for name, version in wanted.items() if name in had} == had


def test_doctor_knows_a_lean_installation_and_where_its_wheels_are(lean: Path, place: Path) -> None:
    done = run(lean / "hpslurm", "doctor", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [] == [line["id"] for line in lines if line.get("id") in ("package-missing", "bytecode-missing")]
    facts = {line["probe"]: line.get("facts") for line in lines if line["type"] == "result"}
    assert facts["software"]["lean"] is True
    assert str(place / "fsx/hpslurm-wheels") == facts["owner"]["wheels"]


def test_a_lean_installation_is_small(lean: Path) -> None:
    (packages,) = (lean.parent / "lib").glob("python*/site-packages")
    tools = ("pip", "setuptools", "pkg_resources")
    files = [
        path for path in packages.rglob("*") if path.is_file() and path.relative_to(packages).parts[0] not in tools
    ]
    assert 5 < sum(path.stat().st_size for path in files) / (1 << 20) < 20  # docs/install.md says what it was


def test_a_lean_installation_says_what_the_others_need(lean: Path, tmp_path: Path) -> None:
    done = run(lean / "hpslurm", "diagnose", "--no-slurm", "--cluster", "x", "--region", "us-west-2")
    assert "AWS could not be asked: No module named 'boto3'" in done.stdout
    assert "efa-missing" in run(lean / "hpslurm", "explain", "efa-missing").stdout
    printed, page = REPO / "tests/scan/nccl_tests/2.20.txt", tmp_path / "x.html"
    done = run(lean / "hpslurm", "nccl-tests", "judge", printed, "--html", page)
    assert 1 == done.returncode
    assert "the package jinja2 is not installed: this may be a lean installation" in done.stderr
    assert "Traceback" not in done.stderr
