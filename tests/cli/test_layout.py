"""What commands that print findings look like: within the width, in colour on a terminal only, and plain if asked."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpslurm import cli
from hpslurm.core import records
from hpslurm.core.policy import Policy
from hpslurm.job.hang import facts as hang_facts
from hpslurm.show import screen
from tests.aws_server import serve
from tests.core.test_replay import efa
from tests.fake import accounts, hanging, nccl_tests
from tests.test_hosts import build

ROOT = Path(__file__).parents[2]
WIDTHS = (60, 80, 120, 200)
PROGRAM = [sys.executable, "-c", "from hpslurm.cli import main; main()"]
SLOW = {1 << 30: 200.0, 8 << 30: 210.0}
# Everything that prints findings, with findings to print; @ is a folder that ``things`` fills.
PRINTS = {
    "bundle": ("bundle", "--log", "@/logs", "--no-aws", "--no-slurm", "--dry-run", "--policy", "@/strange.toml"),
    "check": ("check", "--root", "@/sick", "--policy", "@/none"),
    "diagnose": ("diagnose", "--no-slurm", "--region", "us-west-2", "--reports", "@/results", "--policy", "@/none"),
    "doctor": ("doctor", "--policy", "@/strange.toml"),
    "explain": ("explain", "79", "--no-pager"),
    "history": ("history", "--root", "@/month/root", "--results", "@/month/results", "--policy", "@/none", "--no-aws"),
    "hang": ("hang", "--from", "@/hang.jsonl", "--stacks", "-v"),
    "iam-policy": ("iam-policy", "--why", "--ssm"),
    "nccl-tests judge": ("nccl-tests", "judge", "@/run.txt", "--instance-type", "p5.48xlarge", "--nodes", "2"),
    "report": ("report", "77", "--results", "@/results", "--policy", "@/none"),
    "scan": ("scan", "@/logs"),
    "what-if": ("what-if", "--policy", "@/what.toml", "--records", "@/results"),
}
# What else prints, for programs and for those who ask how it works.
ALSO = {
    "completion": ("completion", "bash"),
    "hang --json": ("hang", "--from", "@/hang.jsonl", "--json"),
    "help": ("--help",),
    "iam-policy as JSON": ("iam-policy",),
    "metrics": ("metrics", "--results", "@/results"),
    "scan --json": ("scan", "@/logs", "--json"),
    "version": ("--version",),
}
# Those that begin with a verdict, and print all of it with -v.
SCREENS = ("check", "diagnose", "doctor", "nccl-tests judge", "report", "scan")


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Something wrong of every kind, and AWS's stand-in for diagnose."""
    folder = tmp_path_factory.mktemp("layout")
    build("p5-efa-missing", folder / "sick")
    (folder / "strange.toml").write_text('nonsense = 1\nother = 2\ngate = ["efa-mising"]\n')
    (folder / "what.toml").write_text('gate = ["efa-missing"]\n')
    made = hanging.made(128, "save", 2, 8, True, 0).sample
    (folder / "hang.jsonl").write_text("".join(records.encode(line) + "\n" for line in hang_facts.lines_of(made)))
    (folder / "run.txt").write_text(nccl_tests.table(SLOW))
    (folder / "logs").mkdir()
    for path in (ROOT / "tests/scan/corpus").glob("c00*.log"):
        (folder / "logs" / path.name).write_bytes(path.read_bytes())
    for node in ("ip-10-1-0-3", "ip-10-1-0-7"):
        policy = Policy(node=node)
        writer = records.Writer(str(folder / "results"), node, "prolog", "77")
        for line in records.lines(policy, {"SLURM_JOB_ID": "77"}, "prolog", [efa(16, policy)]):
            writer.write(line)
        writer.close()
    accounts.month(folder / "month", time.time())
    with serve("sick"):
        yield folder


def environment(**env: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "NO_COLOR", "COLUMNS"))}
    return {**kept, "TERM": "xterm", "PAGER": "cat", **env}


def words(name: str, things: Path) -> list[str]:
    return [word.replace("@", str(things)) for word in {**PRINTS, **ALSO}[name]]


def printed(command: list[str], width: int) -> str:
    """What it prints into a pipe of this width, without a process of its own."""
    done = CliRunner().invoke(cli.group, command, env={"COLUMNS": str(width), "TERM": "xterm"}, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.output


def on_a_terminal(command: list[str], **env: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*PROGRAM, *command], env=environment(**env), cwd="/", stdout=theirs, stderr=theirs)
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    process.wait(60)
    return b"".join(parts).decode()


def too_wide(text: str, width: int) -> list[str]:
    """Lines beyond the width, but for what must not be broken: a command to type, and a word without a blank."""
    return [
        line
        for line in text.splitlines()
        if len(line) > width and not is_to_type(line) and max(map(len, line.split())) < width - 12
    ]


def is_to_type(line: str) -> bool:
    return bool(re.match(r" {9,}\S|    \S|(Next|Again) {5,}\S| {7}Next: ", line))


@pytest.mark.parametrize("name", PRINTS)
def test_nothing_but_a_command_to_type_is_wider_than_the_screen(name: str, things: Path) -> None:
    for width in WIDTHS:
        for more in ([], *([["-v"]] if name in SCREENS else [])):
            text = printed([*words(name, things), *more], width)
            assert [] == too_wide(text, width), (width, more)
            assert "\x1b" not in text
            assert text.strip()


@pytest.mark.parametrize("name", SCREENS)
def test_without_v_it_is_one_screen_that_begins_with_the_verdict(name: str, things: Path) -> None:
    lines = printed(words(name, things), 100).splitlines()
    assert len(lines) <= screen.LINES
    assert re.match(r"\[(FAIL|WARN)\] ", lines[0])
    assert len(lines) < len(printed([*words(name, things), "-v"], 100).splitlines())


@pytest.mark.parametrize("name", [name for name in PRINTS if name not in ("what-if", "iam-policy")])
def test_a_terminal_gets_colours(name: str, things: Path) -> None:
    assert "\x1b[" in on_a_terminal(words(name, things), COLUMNS="100")


@pytest.mark.parametrize("name", PRINTS)
def test_a_terminal_that_wants_none_or_has_none_gets_no_colours(name: str, things: Path) -> None:
    for how in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        text = on_a_terminal(words(name, things), COLUMNS="100", **how)
        assert text.strip()
        assert "\x1b" not in text


def ended(command: list[str], stdout: int, said: Path) -> int:
    """The exit code of a command that writes there, and its stderr in ``said``."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.dup2(stdout, 1)
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
        sys.stdout, sys.stderr = open(1, "w"), open(2, "w")
        sys.argv = ["hpslurm", *command]
        cli.main()
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(end.code if isinstance(end.code, int) else 99)
    except BaseException as error:
        os.write(2, f"Traceback: {error!r}".encode())
    os._exit(99)


@pytest.mark.parametrize("name", [*PRINTS, *ALSO])
def test_a_reader_that_had_enough_is_no_failure(name: str, things: Path, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        assert ended(words(name, things), theirs, tmp_path / "said") in (0, 3)
    finally:
        os.close(theirs)
    assert "Traceback" not in (tmp_path / "said").read_text()
    assert "Broken pipe" not in (tmp_path / "said").read_text()


@pytest.mark.parametrize("name", [*PRINTS, *ALSO])
def test_a_device_that_is_full_is_told_in_one_line(name: str, things: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert ended(words(name, things), full.fileno(), tmp_path / "said") == 1
    said = (tmp_path / "said").read_text().splitlines()
    assert said[-1] == "hpslurm: could not write all of it: No space left on device"
    assert "Traceback" not in "".join(said)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_was_closed_before_we_came_is_nowhere_to_write_to(closed: str, things: Path) -> None:
    command = ["bash", "-c", f'"$@" {closed}', "bash", *PROGRAM, *words("check", things)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60)
    assert (3, "") == (done.returncode, done.stderr)
    assert (">&-" in closed.replace("2>&-", "")) == (done.stdout == "")
