"""Looking at a job: at each limit and a step beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpslurm.core.finding import P0, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.records import Record
from hpslurm.job import cause, first_screen, logs, nccl_env, report, report_view, resubmit
from hpslurm.job.report import JobReport, Unseen, View
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.show.plan import plans
from hpslurm.sources.slurm import SlurmJob

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root reads with the rights of others")
OOM = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"
END = 1_800_008_040


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file that root alone may read, in a folder that all may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o011)
    path = tmp_path / "slurm-7.out"
    path.write_text(OOM)
    path.chmod(0o600)
    return path


@needs_root
@pytest.mark.parametrize("uid, read", [(0, True), (1, False), (65534, False)])
def test_root_reads_a_jobs_output_with_no_more_rights_than_its_user_has(uid: int, read: bool, secret: Path) -> None:
    job = joblog.Job("7", uid=uid, gid=uid, stdout=str(secret))
    assert read is ("gpu_oom" in [event.cause for event in cause._read(job).events])
    found, missing = logs.look([str(secret)], job, Collector())
    assert (read, not read) == (bool(found), bool(missing))


@pytest.mark.parametrize("given, kept", [(2000, 2000), (2001, 2000)])
def test_two_thousand_files_of_a_folder_are_logs(given: int, kept: int, tmp_path: Path) -> None:
    for number in range(given):
        (tmp_path / f"{number}.log").touch()
    assert kept == len(logs.files([str(tmp_path)]))


def test_variables_of_which_only_the_name_matters_show_no_value() -> None:
    facts = nccl_env.Facts({"NCCL_DEBUG": "INFO"}, {"SITE_TOKEN": "secret"}, {})
    assert ("INFO" in repr(facts), "secret" in repr(facts)) == (True, False)


def job(state: str = "FAILED") -> SlurmJob:
    return SlurmJob(7, "train", "me", 1000, 1000, state, nodes="n[1-2]", start_time=END - 60, end_time=END)


@pytest.mark.parametrize("seconds, owed", [(119.9, ["n2"]), (120, [])])
def test_two_minutes_after_a_jobs_end_no_epilog_is_still_to_come(seconds: float, owed: list[str]) -> None:
    kept = (Record("n1", "epilog", {"time": 1.0}, (), (), {}, complete=True),)
    about = JobReport("7", job(), "", kept, (), View((), (), 1, ()), ())
    assert owed == first_screen.unfinished(about, END + seconds)


def test_slurm_is_asked_unless_somebody_forbids_it(tmp_path: Path) -> None:
    asked = [report.gather(Policy(), str(tmp_path), "7", str(tmp_path), ask_slurm=ask).why for ask in (True, False)]
    assert [False, True] == ["--no-slurm" in why for why in asked]
    assert asked[0] == report.gather(Policy(), str(tmp_path), "7", str(tmp_path)).why


PROLOG, EPILOG = Unseen("no record of the prolog", ("n1",)), Unseen("no record of the epilog", ("n1",))


@pytest.mark.parametrize(
    "unseen, passed, words",
    [
        ((PROLOG, EPILOG), 0, "its nodes left no record"),
        ((PROLOG, EPILOG), 3, "nothing found on its nodes; no record of the prolog: n1; no record of the epilog: n1"),
        ((EPILOG,), 0, "nothing found on its nodes; no record of the epilog: n1"),
        ((), 0, "nothing found on its nodes"),
    ],
)
def test_without_both_hooks_there_is_no_record(unseen: tuple[Unseen, ...], passed: int, words: str) -> None:
    assert words == report_view._recorded(View((), (), passed, unseen), job())


@pytest.mark.parametrize("word, value", [("-wn1", "n1"), ("-wn", "n"), ("-w", None), ("--nodelist=n1", "n1")])
def test_an_options_value_may_be_one_letter(word: str, value: str | None) -> None:
    assert value == resubmit._value(word, "-w", "--nodelist")


@pytest.mark.parametrize("nodes, more", [(("n1",), False), (("n1", "n2"), True)])
def test_of_several_sick_nodes_the_worst_alone_may_be_looked_at(nodes: tuple[str, ...], more: bool) -> None:
    rules = [Rule(f"gpu-{node}", P0, "GPU lost", "x") for node in nodes]
    grave = plans(rule.found("d", subject=node) for rule, node in zip(rules, nodes, strict=True))
    about = JobReport("7", job(), "", (), (), View((), (), 1, ()), ())
    assert more is any("--node" in words for words in first_screen._more(about, None, grave))
