"""What asks the accounting, against a real slurmdbd and MariaDB: jobs of this lab, and a month that was put there.

The month is the one of tests/fake/accounts.py, whose programs print it on machines without daemons for the tests of
the command; here both are asked the same. Elsewhere text of sacct stands where the text itself is looked at: rows that
imitate others, releases that are not installed here, what no accounting says.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpslurm.sources.host import SACCT_MARK
from tests.fake import accounts
from tests.lab import accounting, processes
from tests.lab.accounting import Row
from tests.lab.fixtures import why_not
from tests.lab.lab import Lab, new_folder, wait_until
from tests.lab.test_history import FORGETS, PROGRAM, asked_of, told_by, wait_for_accounts, with_accounts

pytestmark = pytest.mark.lab
HOUR, DAY = 3600, 86400
ASKED = ((), ("--user", "u4"), ("--partition", "none"), ("--since", "132h"), ("--since", "10d"))


@dataclass
class Accounts:
    """A lab, and beside it the programs and results that stand for the same month elsewhere."""

    lab: Lab
    root: Path
    results: Path
    real: str  # the job of this lab
    now: int

    def history(self, *words: str, stands_in: bool = False) -> str:
        of = ("--root", str(self.root)) if stands_in else ()
        return told_by(self.lab, "history", *of, "--no-aws", "--results", str(self.results), *words)

    def ask(self, code: str) -> str:
        return asked_of(self.lab, code)


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    if reason := why_not():
        pytest.skip(reason)
    if accounting.missing():
        pytest.skip("needs slurmdbd and MariaDB (`make test` as root installs them)")
    folder, now = new_folder(), int(time.time())
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        words: dict[str, Any] = {"nodes": len(accounts.NODES), "prefix": "ip-10-1-0-", "start": 1}
        lab = with_accounts(lambda **more: stack.enter_context(Lab(folder, **words, **more)), conf=FORGETS)
        real = lab.submit("--wrap", "exit 5")
        lab.wait_for_job(real)
        wait_for_accounts(lab, 1)
        root, results = accounts.month(tmp_path_factory.mktemp("month"), now)
        printed = (root / "usr/bin/sacct.txt").read_text().splitlines()
        accounting.load(lab, real, [row_of(line) for line in printed])
        accounting.drain(lab, accounts.SICK, now - 3 * DAY, now - 2 * DAY, "looks | bad")
        yield Accounts(lab, root, results, real, now)


def row_of(line: str) -> Row:
    job, state, code, start, end, user, _, nodes = line.split(SACCT_MARK)
    first, second = map(int, code.split(":"))
    times = [calendar.timegm(time.strptime(when, "%Y-%m-%dT%H:%M:%S")) for when in (start, end)]
    return Row(int(job), state, *times, user, nodes, first, second)


@pytest.mark.parametrize("words", ASKED)
def test_history_says_of_a_real_slurmdbd_what_it_says_of_the_printed_month(
    month: Accounts, words: tuple[str, ...]
) -> None:
    keys = ("node", "verdict", "jobs", "node_hours", "failures", "named", "expected", "ratio", "causes", "job_ids")
    told = []
    for stands_in in (False, True):
        # the lab's own job is of another partition
        text = month.history("--json", "--partition", "p5", *words, stands_in=stands_in)
        lines = [json.loads(line) for line in text.splitlines()]
        told.append([{key: line[key] for key in keys} for line in lines if line["type"] == "node_history"])
    assert told[0] == told[1]
    assert ("none" in words) == (told[0] == [])
    if not words:
        assert ("suspect", 5, accounts.SICK) == tuple(told[0][0][key] for key in ("verdict", "named", "node"))


def test_the_real_story_of_a_node_is_the_printed_one(month: Accounts) -> None:
    real, printed = (month.history("--node", accounts.SICK, stands_in=one).splitlines() for one in (False, True))
    of_jobs = [line for line in printed if line.startswith("  20")]
    assert 6 == len(of_jobs)
    assert any("DRAIN until" in line and "looks | bad" in line for line in of_jobs)
    assert set(of_jobs) <= set(real)
    assert f"--exclude={accounts.SICK}\n" == month.history("--exclude")


def test_the_days_failed_jobs_of_a_user_come_newest_first_and_no_others(month: Accounts) -> None:
    ends = {  # sacct takes only the number of a user that this machine has: 65534 is nobody
        701: (HOUR, "FAILED", 65534), 702: (HOUR // 2, "TIMEOUT", 65534), 703: (HOUR, "COMPLETED", 65534),
        704: (HOUR, "FAILED", 1), 705: (3 * DAY, "FAILED", 65534),
    }  # fmt: skip
    rows = [
        Row(job, state, month.now - ago - HOUR, month.now - ago, f"w{uid}", "ip-10-1-0-1", uid=uid)
        for job, (ago, state, uid) in ends.items()
    ]
    accounting.load(month.lab, month.real, rows)
    asked = "jobs, why = slurm.failed_jobs(Host(), {}, {})\nprint([(job.id, job.state) for job in jobs], why)"
    assert "[(702, 'TIMEOUT'), (701, 'FAILED')]" == month.ask(asked.format(65534, month.now))
    others = json.loads(month.ask(asked.format(None, month.now)).replace("(", "[").replace(")", "]").replace("'", '"'))
    assert [702, 704, 701] == [job for job, _ in others if job > 700 and job < 800]


def test_a_job_that_the_controller_forgot_comes_from_the_accounting(month: Accounts) -> None:
    wait_until(lambda: "Invalid job id" in month.lab.run("scontrol", "show", "job", month.real).stderr,
               f"slurmctld forgets job {month.real}")  # fmt: skip
    show = "job = slurm.job(Host(), '{}')\nprint(job and (job.state, job.exit_code, job.source))"
    assert "('FAILED', 5, 'sacct')" == month.ask(show.format(month.real))
    assert "None" == month.ask(show.format(99999))


def test_where_slurmdbd_and_then_the_controller_are_gone_that_is_said(month: Accounts) -> None:
    """The last of these: nothing is there afterwards."""
    check = (
        "from hpslurm.cluster import accounting\nfrom hpslurm.core import policy, probe\n"
        "found = probe.run('accounting', accounting, Host(), policy.Policy())\n"
        "print(found.outcome, *((one.rule.id, one.detail, one.evidence[0].text) for one in found.findings))"
    )
    assert "pass" == month.ask(check)
    processes.stop([month.lab.running["slurmdbd"]], 4)
    told = month.ask(check)
    assert told.startswith("fail ('slurmdbd-unreachable', 'slurmdbd on 127.0.0.1 does not answer', ")
    assert "Connection refused" in told
    failed = "slurm.failed_jobs(Host(), 65534, time.time())"
    assert month.ask(f"print({failed})").startswith("([], 'sacct: ")
    unknown = "from hpslurm.core.probe import Unknown\ntry:\n    {}\nexcept Unknown as why:\n    print(why)"
    assert month.ask(unknown.format("slurm.job(Host(), '7')")).startswith("sacct: ")  # no proof that it never was
    processes.stop([month.lab.running["slurmctld"]], 4)
    assert "slurmctld does not answer" in month.ask(unknown.format(failed))
    record = Path(month.lab.path("work", "results", "jobs", "7", "n1.prolog.jsonl"))
    record.parent.mkdir(parents=True)
    record.write_text('{"type":"run","node":"n1"}\n{"type":"end"}\n')
    done = month.lab.run(*PROGRAM, "report", "7", "-v", "--results", month.lab.path("work", "results"))
    assert 0 == done.returncode, done.stderr
    assert done.stdout.startswith("Job 7: state unknown, Slurm could not be asked; its nodes' records are here")
    assert "forgotten" not in done.stdout
    assert "slurmctld does not answer" in " ".join(done.stdout.split())
