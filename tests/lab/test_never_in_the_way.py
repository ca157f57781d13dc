"""On real Slurm: whatever breaks in a hook, the job runs and the node stays IDLE."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from tests.lab import hung
from tests.lab.lab import Lab

HOOKS = ("prolog", "epilog")
CONF = "PrologFlags=Alloc\nPrologEpilogTimeout=30\n"
LIMIT = 3
SLACK = 8  # seconds for srun, slurmd and a busy machine around two hooks


def fi_info(lab: Lab, body: str) -> None:
    path = Path(lab.host("n1"), "opt/amazon/efa/bin/fi_info")
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


@contextmanager
def sleeping_fi_info(lab: Lab) -> Iterator[None]:
    fi_info(lab, "exec sleep 600")
    yield


@contextmanager
def stubborn_fi_info(lab: Lab) -> Iterator[None]:
    fi_info(lab, "trap '' TERM INT HUP QUIT\nwhile :; do sleep 1; done")
    yield


@contextmanager
def full_results(lab: Lab) -> Iterator[None]:
    with hung.full(Path(lab.results("n1"))):
        yield


@contextmanager
def hung_results(lab: Lab) -> Iterator[None]:
    with hung.frozen(Path(lab.results("n1"))):
        yield


@contextmanager
def hung_shared(lab: Lab) -> Iterator[None]:
    Path(lab.path("policy.toml")).write_text(f"results_shared = '{lab.path('shared')}'\n")
    with hung.frozen(Path(lab.path("shared"))):
        yield


@contextmanager
def broken_policy(lab: Lab) -> Iterator[None]:
    Path(lab.path("policy.toml")).write_text("gate = [ 'efa-missing'\nmemlock_min = = 1\n")
    yield


@contextmanager
def open_policy(lab: Lab) -> Iterator[None]:
    Path(lab.path("policy.toml")).write_text("gate = ['efa-missing', 'memlock-default']\nmemlock_min = 9000000000000\n")
    os.chmod(lab.path("policy.toml"), 0o666)
    yield


def nothing(lab: Lab) -> nullcontext[None]:
    return nullcontext()


CASES = {
    # what breaks: (how, the script's assignments, words that the log or the record must hold)
    "nothing": (nothing, {}, '"type":"end"'),
    "a fi_info that sleeps for ever": (sleeping_fi_info, {}, "fi_info -p efa did not answer within"),
    "a child that ignores signals": (stubborn_fi_info, {}, "fi_info -p efa did not answer within"),
    "no Python": (nothing, {"PYTHON": "/opt/hpslurm/bin/python"}, "No such file or directory"),
    "hpslurm not installed": (nothing, {"PYTHON": "/usr/bin/python3"}, "hpslurm"),
    "a full results folder": (full_results, {}, "No space left on device"),
    "results on a hung mount": (hung_results, {}, f"gave no answer within {LIMIT} s and hangs in the kernel"),
    "a shared folder on a hung mount": (hung_shared, {}, "record not copied"),
    "a broken policy": (broken_policy, {}, "policy.toml ignored, defaults used"),
    "a policy that others may write": (open_policy, {}, "others may write it"),
    "a log that cannot be written": (nothing, {"LOG": "/dev/full"}, '"type":"end"'),
}


def told(lab: Lab) -> str:
    """All that the hooks left: their log, and the records of the node."""
    texts = [
        path.read_text() for path in (Path(lab.path("log/hooks.log")), Path(lab.path("run/stuck.n1"))) if path.exists()
    ]
    folder = Path(lab.results("n1"))
    if not os.path.ismount(folder):
        texts += [path.read_text() for path in folder.rglob("*.jsonl")]
    return "\n".join(texts)


@pytest.mark.parametrize("case", CASES)
def test_the_job_runs_and_the_node_stays_idle(make_lab: Callable[..., Lab], case: str) -> None:
    breaks, settings, words = CASES[case]
    lab = make_lab(nodes=1, hooks=HOOKS, conf=CONF, settings={"LIMIT": str(LIMIT), **settings})
    with breaks(lab):
        began = time.monotonic()
        job = lab.run("srun", "-N1", "sh", "-c", "echo the job ran", seconds=60)
        lab.wait_for_node("n1", "IDLE", seconds=30)  # it is COMPLETING until the epilog has ended
        took = time.monotonic() - began
        state = lab.node_fields()["n1"]
        print(f"{case}: srun {job.returncode}, {took:.1f} s for job and both hooks, node {state['State']}")
        assert (0, "the job ran\n") == (job.returncode, job.stdout)
        assert "Reason" not in state
        assert took < 2 * LIMIT + SLACK
        assert words in told(lab)
        assert "prolog failed" not in lab.log("n1")


def test_jobs_on_a_frozen_file_system_leave_one_process_behind_not_one_each(make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(nodes=1, hooks=HOOKS, conf=CONF, settings={"LIMIT": "1"})
    with hung.frozen(Path(lab.results("n1"))):
        for _ in range(3):
            assert 0 == lab.run("srun", "-N1", "true", seconds=60).returncode
            lab.wait_for_node("n1", "IDLE", seconds=30)
        stuck = [path.parent for path in Path("/proc").glob("[0-9]*/stat") if ") D " in text_of(path)]
        ours = [
            words for process in stuck if lab.folder in (words := text_of(process / "cmdline"))
        ]  # others have labs, too
        assert 1 >= len(ours), ours


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def test_two_hundred_hooks_at_once(make_lab: Callable[..., Lab]) -> None:
    # two cores run this whole cluster: without a longer MessageTimeout Slurm itself gives up on RPCs
    conf = f"{CONF}MessageTimeout=60\n"
    lab = make_lab(nodes=4, hooks=HOOKS, conf=conf, node_options="CPUs=64 RealMemory=500")
    jobs = lab.submit("--array=1-200", "-n1", "--output=/dev/null", "--wrap=true")
    end = time.monotonic() + 120
    while lab.run("squeue", "-h", "-j", jobs).stdout.strip():
        assert time.monotonic() < end, lab.run("squeue").stdout
        time.sleep(0.5)
    for node in lab.nodes:
        lab.wait_for_node(node, "IDLE", seconds=60)
        assert "Reason" not in lab.node_fields()[node]
    kept = [path for node in lab.nodes for path in Path(lab.results(node), "jobs").rglob("*.prolog.jsonl")]
    late = lab.log("hooks.log").count("gave no answer")
    print(f"200 jobs: {len(kept)} prolog records, {late} hooks late")
    assert len(kept) + late >= 200
