"""The guide's commands that Slurm alone can answer are typed on real Slurm, as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator

import pytest

from hpslurm import references
from tests.lab.fixtures import why_not
from tests.lab.lab import SYSTEM_PATH, Lab, new_folder

# Commands that look only, and that a lab without GPUs, EFA, accounting or AWS can answer.
LOOKS = re.compile(
    r"^(scontrol (show|ping)|sinfo|squeue|sdiag|srun\b.*\b(ulimit|df -h|getent)|getent|df|cat /proc/sys|ip -br)"
)
ELSEWHERE = ("/fsx", "MASTER_ADDR", "USER", "lfs ", "SLURM_JOB_NODELIST", "hostname")


def commands() -> list[str]:
    """Indented lines of all sections; what stands behind three blanks is a remark."""
    found = []
    for section in references.sections():
        for line in re.findall(r"^    (\S.*)$", section.text, re.M):
            command = re.split(r"\s{3,}|\s#\s", line)[0].strip()
            if LOOKS.match(command) and not any(word in command for word in ELSEWHERE):
                found.append(command)
    return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Lab, str]]:
    """A lab with a job that runs, for commands that name one."""
    if reason := why_not():
        pytest.skip(reason)
    with Lab(new_folder(), nodes=2) as lab:
        job = lab.submit("-w", "n1", "--wrap", "sleep 600")
        lab.wait_for_job(job, "RUNNING")
        yield lab, job


def test_there_are_commands_to_try() -> None:
    assert 8 < len(commands())


@pytest.mark.lab
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_guide_works_as_printed(started: tuple[Lab, str], command: str) -> None:
    lab, job = started
    program = command.split()[0]
    if not shutil.which(program, path=SYSTEM_PATH):
        pytest.skip(f"{program} is not installed")
    typed = re.sub(r"\bNODE\b", "n2", re.sub(r"\bJOBID\b", job, command))
    done = lab.run("bash", "-c", typed)
    assert 0 == done.returncode, f"{shlex.quote(typed)}: {done.stderr}"
    assert done.stdout.strip()
