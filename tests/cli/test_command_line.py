"""What holds for every command: help with examples, widths, colours, and no traceback for a user's mistake."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hpslurm import cli

WIDTHS = (60, 80, 120, 200)


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command and sub-command by its words."""
    context = click.Context(cli.group)
    for name in cli.COMMANDS:
        command = cli.group.get_command(context, name)
        assert command is not None
        yield name, command
        for sub in getattr(command, "commands", {}).values():
            yield f"{name} {sub.name}", sub


ALL = dict(commands())


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "AWS"))}
    command = [sys.executable, "-c", "from hpslurm.cli import main; main()", *words]
    return subprocess.run(command, env={**kept, **env}, cwd="/", capture_output=True, text=True, timeout=60)


def help_of(name: str, width: int) -> list[str]:
    done = CliRunner().invoke(cli.group, [*name.split(), "--help"], terminal_width=width)
    assert done.exit_code == 0, done.output
    return done.output.splitlines()


@pytest.mark.parametrize("name", ALL)
def test_help_shows_two_examples_that_can_be_typed_and_the_exit_codes(name: str) -> None:
    lines = help_of(name, 100)
    assert 2 <= len([line for line in lines if line.startswith("    ") and re.search(r"\bhpslurm(-check)? ", line)])
    assert any("Exit codes: 0 " in line for line in lines)


@pytest.mark.parametrize("name", ALL)
def test_options_of_examples_exist(name: str) -> None:
    shown = {word for line in help_of(name, 100) if line.startswith("    ") for word in own_options(name, line)}
    known = {option for param in ALL[name].params for option in param.opts}
    for sub in getattr(ALL[name], "commands", {}).values():
        known |= {option for param in sub.params for option in param.opts}
    assert set() == shown - known - {"--help"}


def own_options(name: str, line: str) -> list[str]:
    """Options behind our own name, up to the next program of a pipe."""
    _, found, rest = re.sub(r"\bhpslurm-check\b", "hpslurm check", line).partition(f"hpslurm {name}")
    return re.findall(r"(?<=\s)--[a-z-]+", rest.split("|")[0]) if found else []


@pytest.mark.parametrize("width", WIDTHS)
def test_help_fits_its_width_but_for_examples_which_are_not_broken(width: int) -> None:
    for name in ALL:
        wide = [line for line in help_of(name, width) if len(line) > width and not line.startswith("    ")]
        assert [] == wide, name


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("exlain",), 2, "Did you mean 'explain'?"),
        (("doctor", "--nonsense"), 2, "No such option"),
        (("scan", "/nonexistent/x"), 1, "nonexistent"),
        (("report", "x y"), 2, "x y"),
        (("report", "1", "--results", "/nonexistent"), 1, "/nonexistent"),
        (("what-if", "--policy", "/nonexistent"), 2, "/nonexistent"),
        (("metrics", "--shared", "--results", "/nonexistent"), 1, "/nonexistent"),
        (("diagnose", "--since", "yesterday"), 2, "write 90m, 2h or 1d"),
        (("install",), 2, "hpslurm install --print"),
        (("nccl-tests", "judge", "/nonexistent"), 1, "/nonexistent"),
        (("explain", "zzz"), 2, "nothing is known of"),
    ],
)
def test_a_mistake_is_told_in_words(words: tuple[str, ...], code: int, told: str) -> None:
    done = run(*words)
    assert (code, True) == (done.returncode, told in done.stderr), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("bundle", "--output", ""), "--output"),
        (("bundle", "--job", ""), "--job"),
        (("bundle", "--job="), "--job"),
        (("diagnose", "--node", ""), "--node"),
        (("diagnose", "--cluster", ""), "--cluster"),
        (("check", "--root", ""), "--root"),
        (("metrics", "--output", ""), "--output"),
        (("metrics", "--results", ""), "--results"),
        (("scan", ""), "an argument"),
        (("report", "--", ""), "an argument"),
    ],
)
def test_an_empty_word_is_refused_by_name(words: tuple[str, ...], named: str) -> None:
    done = run(*words)
    assert (2, f"Error: {named} is empty; give it a value, or leave it out\n") == (done.returncode, done.stderr)


def test_a_root_that_is_a_file_is_one_mistake(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("check", "--root", str(tmp_path / "file"))
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.endswith(f"Error: --root {tmp_path}/file is not a directory\n")


def test_diagnose_that_may_ask_nobody_says_so_instead_of_a_verdict(tmp_path: Path) -> None:
    done = run("diagnose", "--no-aws", "--no-slurm", "--root", str(tmp_path), COLUMNS="200")
    assert (1, "") == (done.returncode, done.stdout)
    for word in ("neither Slurm nor a node's record", f"{tmp_path}/var/lib/hpslurm/nodes", "--no-slurm and --no-aws"):
        assert word in " ".join(done.stderr.split())


@pytest.mark.parametrize("text", [None, "a=" + "[" * 3000, "x"])
def test_a_policy_that_cannot_be_used_ends_what_if_in_the_same_way(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml" if text else Path("/dev/null")
    if text:
        path.write_text(text)
    done = run("what-if", "--policy", str(path), "--records", str(tmp_path), COLUMNS="200")
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"[WARN] {path} ignored, defaults used: ")


@pytest.mark.parametrize(
    "words", [("check",), ("doctor", "-v"), ("metrics",), ("bundle", "--no-aws", "--no-slurm", "--dry-run")]
)
@pytest.mark.parametrize("text", ["a=" + "[" * 3000, 'results="\\u0000"', "\x00\x01"])
def test_a_broken_policy_is_told_by_every_command(words: tuple[str, ...], text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    done = run(*words, "--policy", str(path), COLUMNS="200")
    assert "Traceback" not in done.stderr
    assert f"[WARN] {path}" in done.stderr.replace("\n       ", " ") or str(path) in done.stdout
