"""Ten situations on real Slurm daemons, and the first screen of each: its first line, how long it is, what to type.

One cluster of eight nodes goes through nine of them, one after the other, as an unlucky day would have it; slurmctld
with 10,000 configured nodes is the tenth. ``tests/cli/test_first_screen.py`` has the same ten in one process, where
10,000 nodes can be healthy: here nobody answers for those that were only configured.
"""

from __future__ import annotations

import itertools
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpslurm.show.screen import COLUMNS, LINES
from tests.aws_server import serve
from tests.aws_server.scenario import FOLDER, tomllib
from tests.lab import fixtures, machine
from tests.lab.lab import CHECKOUT, Lab, new_folder

pytestmark = pytest.mark.lab

PCI = "0000:b9:00"
CONF = "PrologFlags=Alloc\nPrologEpilogTimeout=30\nSchedulerParameters=sched_interval=1,batch_sched_delay=0\n"
TRAINS = f"""#!/bin/bash
#SBATCH --job-name=train --nodes=1-3
export LAB=@LAB@
srun {CHECKOUT}/tests/lab/training.sh
"""
Screens = dict[str, list[str]]


class Day:
    """One cluster, and what hpslurm said of it when it was in each situation."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.screens: Screens = {}
        self.again = ""  # the job that was submitted again

    def type(self, situation: str, *words: str, **env: str) -> None:
        done = self.lab.run("hpslurm", *words, env={"COLUMNS": str(COLUMNS), **env})
        assert "Traceback" not in done.stderr, done.stderr
        self.screens[situation] = done.stdout.splitlines()

    def diagnose(self, situation: str, *words: str, **env: str) -> None:
        self.type(situation, "diagnose", "--policy", self.lab.path("policy.toml"), *words, **env)

    def report(self, situation: str, job: str) -> None:
        self.lab.wait_for_job(job)
        self.settled()
        self.type(situation, "report", job, "--policy", self.lab.path("policy.toml"))

    def submit_again(self) -> None:
        """What the report says, word for word."""
        (line,) = (line for line in self.screens["died with a culprit"] if line.startswith("Again "))
        self.again = self.lab.run("bash", "-c", line.removeprefix("Again "), check=True).stdout.split()[-1]
        self.lab.wait_for_job(self.again)

    def settled(self) -> None:
        """The epilogs are over, and their records copied."""
        end = time.monotonic() + 30
        while self.lab.run("squeue", "-h").stdout and time.monotonic() < end:
            time.sleep(0.05)

    def wait_for_words(self, job: str, words: str, count: int) -> None:
        path = Path(self.lab.path("work", f"slurm-{job}.out"))
        end = time.monotonic() + 30
        while not path.exists() or path.read_text().count(words) < count:
            assert time.monotonic() < end, f"{words} in {path}"
            time.sleep(0.05)


@pytest.fixture(scope="module")
def day() -> Iterator[Day]:
    if reason := fixtures.why_not():
        pytest.skip(reason)
    lab = Lab(new_folder(), nodes=8, hooks=("prolog", "epilog"), conf=CONF, policy='results_shared = "@LAB@/shared"\n')
    with lab:
        day = Day(lab)
        live_through(day)
        yield day
    shutil.rmtree(lab.folder, ignore_errors=True)


def live_through(day: Day) -> None:
    lab = day.lab
    day.diagnose("no records")
    day.report("died without a culprit", lab.submit("-N8", "--wrap", "srun echo step 9 loss 2.0; exit 1"))
    day.diagnose("healthy")
    refuses = tomllib.loads((FOLDER / "healthy.toml").read_text()) | {"trouble": [{"operation": "*", "kind": "denied"}]}
    with serve(refuses) as server:
        day.diagnose("AWS denied", "--cluster", "demo", "--region", "us-west-2", **server.environ)

    hung = lab.submit("-N2", "--wrap", f"srun python {CHECKOUT}/tests/fake/training/train.py data 1")
    day.wait_for_words(hung, "loss", 2)
    day.type("hung", "hang", hung)
    lab.run("scancel", hung)
    day.report("hung and cancelled", hung)

    script = lab.script("train.sbatch", TRAINS.replace("@LAB@", lab.folder))
    job = lab.run("sbatch", "--parsable", "-N3", script, env={"STEPS": "1000"}).stdout.strip()
    day.wait_for_words(job, "loss", 3)
    machine.lose_gpu(lab.host("n2"), PCI)
    lab.script("gpu-is-gone", "")
    day.report("died with a culprit", job)
    day.submit_again()
    day.diagnose("one sick node")

    for node in ("n3", "n4", "n5"):
        machine.lose_gpu(lab.host(node), PCI)
    lab.wait_for_job(lab.submit("-w", "n[3-5]", "--wrap", "true"))
    day.settled()
    day.diagnose("half of them down")
    lab.run("scontrol", "update", "nodename=n[2-5]", "state=fail", "reason=Action:Replace", check=True)
    day.diagnose("replaced")


def first(screen: list[str]) -> str:
    """Its first line, which may go on."""
    rest = itertools.takewhile(lambda line: line.startswith(" " * 10), screen[1:])
    return " ".join([screen[0], *map(str.strip, rest)])


FIRST = {
    "healthy": r"\[PASS\] Cluster: no trouble found on 8 nodes",
    "one sick node": r"\[FAIL\] Cluster: 1 of 8 nodes needs attention",
    "died with a culprit": r"\[FAIL\] Job \d+ \(train\) of root: FAILED after \d+ s on n\[1-3\]: "
    r"gpu_fell_off_bus on n2 \(high confidence\)",
    "died without a culprit": r"\[WARN\] Job 1 \(wrap\) of root: FAILED, exit code 1 after \d+ s on n\[1-8\]: "
    "the cause is not clear from what could be read",
    "hung": r"Job 2 of root: 2 of 2 ranks seen on n\[1-2\]",
    "hung and cancelled": r"\[FAIL\] Job 2 \(wrap\) of root: CANCELLED after \d+ s on n\[1-2\]: "
    r"job_cancelled \(low confidence\)",
    "half of them down": r"\[FAIL\] Cluster: 4 of 8 nodes need attention, 1 trouble of the cluster itself",
    "replaced": r"\[FAIL\] Cluster: 4 of 8 nodes wait for HyperPod",
    "AWS denied": r"\[WARN\] Cluster: no trouble in what could be checked on 8 nodes",
    "no records": r"\[WARN\] Cluster: no trouble in what could be checked on 8 nodes",
}
# Lines that must stand there, words for words; and how many lines it may be.
SAYS: dict[str, tuple[int, list[str]]] = {
    "healthy": (5, []),
    "one sick node": (
        LINES,
        [
            "Keep out  --exclude=n2",
            "Next      sudo scontrol update nodename=n2 state=drain reason='hpslurm: gpu-lost, xid-79'",
        ],
    ),
    "died with a culprit": (LINES, ["Saw       GPU 6: GPU is lost  [found by hpslurm on n2]", "Plan for n2:"]),
    "died without a culprit": (8, ["Again     sbatch JOBSCRIPT"]),
    "hung": (22, []),
    "hung and cancelled": (16, ["Again     sbatch JOBSCRIPT"]),
    "half of them down": (24, []),
    "replaced": (20, []),
    "AWS denied": (10, []),
    "no records": (20, []),
}


@pytest.mark.parametrize("situation", FIRST)
def test_the_first_line_says_what_happened_and_the_screen_has_an_end(day: Day, situation: str) -> None:
    screen = day.screens[situation]
    most, lines = SAYS[situation]
    assert re.fullmatch(FIRST[situation], first(screen)), screen
    assert [] == [line for line in lines if line not in screen], screen
    wide = [line for line in screen if len(line) > COLUMNS and not line.startswith(" " * 9)]  # but for commands
    assert ([], True) == (wide, sum(-(-len(line) // COLUMNS) or 1 for line in screen) <= most), (len(screen), screen)


def test_the_line_that_submits_again_is_taken_by_slurm_and_keeps_off_the_node(day: Day) -> None:
    fields = day.lab.job(day.again)
    assert ("COMPLETED", day.lab.path("work/train.sbatch"), "n2") == (
        fields["JobState"], fields["Command"], fields["ExcNodeList"]
    )  # fmt: skip


def test_the_hanging_rank_is_named_in_the_second_line(day: Day) -> None:
    assert "[FAIL] slow_rank_work  rank 1, local rank 0, on n2" in day.screens["hung"][1]


def test_a_common_cause_takes_the_reboots_back_and_a_replacement_asks_for_nothing(day: Day) -> None:
    half, replaced = ("\n".join(day.screens[situation]) for situation in ("half of them down", "replaced"))
    assert re.search(r"^Cause +4 of 8 nodes are in trouble at once", half, re.M)
    assert re.search(r"^n\[2-5\] +P0 .* drain$", half, re.M)
    assert re.search(r"^n\[2-5\] +P0 .* wait$", replaced, re.M)
    assert "scontrol update" not in replaced


def test_what_aws_denies_is_said_with_what_to_grant(day: Day) -> None:
    assert "grant sagemaker:DescribeCluster, operations.md § 2" in " ".join(" ".join(day.screens["AWS denied"]).split())


KINDS = 30  # reasons, but for numbers


def test_ten_thousand_nodes_of_which_500_are_drained_in_30_ways_fit_one_screen() -> None:
    if reason := fixtures.why_not():
        pytest.skip(reason)
    chance = random.Random(1)
    with Lab(new_folder(), nodes=10_000, start=1, prefix="ip-10-1-0-", conf="SlurmdTimeout=0\n") as lab:
        others = "nodename=ip-10-1-0-[2-10000]"
        drains = [
            f"update nodename=ip-10-1-0-{node} state=drain reason="
            f'"Xid {40 + number % KINDS} on GPU {chance.randrange(8)}, ticket INC-{chance.randrange(10_000)}"'
            for number, node in enumerate(chance.sample(range(2, 10_001), 500))
        ]
        words = [f"update {others} state=down reason=new", f"update {others} state=resume", *drains]
        told = "\n".join(words).encode()
        subprocess.run(["scontrol"], env=lab.environment(), input=told, stdout=subprocess.DEVNULL, check=True)
        done = lab.run("hpslurm", "diagnose", "--policy", lab.path("policy.toml"), env={"COLUMNS": str(COLUMNS)})
    screen = done.stdout.splitlines()
    assert "[FAIL] Cluster: 9,999 of 10,000 nodes need attention, 1 trouble of the cluster itself" == screen[0]
    assert screen[1].startswith("Cause     9,999 of 10,000 nodes are in trouble at once")
    reasons = set(re.findall(r"reason 'Xid (\d\d) on GPU …, ticket …'", done.stdout))
    assert (True, True) == (len(reasons) >= KINDS - 6, len(screen) <= LINES), screen
    assert [] == [line for line in screen if len(line) > COLUMNS]
