"""The accounting's text, of several releases and of people who mean harm."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm.core.probe import Unknown
from hpslurm.sources import sacct, slurm
from hpslurm.sources.host import SACCT_MARK, Output
from hpslurm.sources.sacct import Ended, Event

SAMPLES = Path(__file__).with_name("slurm")
RELEASES = ("22.05.8", "24.11.5", "25.11.7", "26.05.5")

# As the releases print them; the second is of 22.05, where NODE_FAIL has the exit code 0:0.
ROWS = (
    "1|FAILED|7:0|2026-11-30T01:32:58|2026-11-30T01:32:58|alice|all|ip-10-1-0-1",
    "3|NODE_FAIL|0:0|2026-11-30T01:32:58|2026-11-30T01:33:00|alice|all|ip-10-1-0-3",
    "3|NODE_FAIL|1:0|2026-11-30T01:36:20|2026-11-30T01:36:23|alice|all|ip-10-1-0-3",
    "5|CANCELLED by 1000|0:15|2026-11-30T02:00:00|2026-11-30T03:00:00|bob|p5|ip-10-1-0-[1,3-4]",
)
EVENTS = """\
lab||2026-11-30T01:32:54|Unknown|||Cluster Registered TRES
lab|ip-10-1-0-2|2026-11-30T01:32:56|Unknown|DRAIN|root(0)|hpslurm: [FAIL] XID 79
other|ip-10-1-0-3|2026-11-30T01:33:00|2026-11-30T02:00:00|DOWN*|slurm(64030)|Not responding | and more
"""


def text(*rows: str) -> str:
    return "".join(row.replace("|", SACCT_MARK) + "\n" for row in rows)


def one(row: str) -> list[Ended]:
    return list(sacct.jobs_of_text(text(row)))


def test_rows_of_all_releases_are_read_alike() -> None:
    jobs = list(sacct.jobs_of_text(text(*ROWS)))
    assert ["FAILED", "NODE_FAIL", "NODE_FAIL", "CANCELLED"] == [job.state for job in jobs]
    assert (7, 0, "alice", ("ip-10-1-0-1",)) == (jobs[0].code, jobs[0].signal, jobs[0].user, jobs[0].nodes)
    assert (0, 15, ("ip-10-1-0-1", "ip-10-1-0-3", "ip-10-1-0-4")) == (jobs[3].code, jobs[3].signal, jobs[3].nodes)
    assert 3600 == jobs[3].end - jobs[3].start


@pytest.mark.parametrize("row", [
    "1|RUNNING|0:0|2026-11-30T01:32:58|Unknown|alice|all|n1",
    "1|PENDING|0:0|Unknown|Unknown|alice|all|None assigned",
    "1|CANCELLED|0:0|None|2026-11-30T01:32:58|alice|all|None assigned",
    "1|FAILED|7:0|2026-11-30T01:32:58+01:00|2026-11-30T01:32:58|alice|all|n1",
    "1|FAILED|7:0|yesterday|2026-11-30T01:32:58|alice|all|n1",
    "1|FAILED|7:0|2026-11-30T01:32:58|2026-11-30T01:32:58|al|ice|all|n1",
    "a job's second line", "", "1.batch|FAILED|7:0|2026-11-30T01:32:58|2026-11-30T01:32:58|alice|all|n1",
    "1|FAILED|7:0|2026-11-30T01:32:58|2026-11-30T01:32:58|alice|all|n1;reboot",
    "1|FAILED|7:0|2026-11-30T01:32:58|2026-11-30T01:32:58|alice|all|n[1-9999999999]",
])  # fmt: skip
def test_what_is_no_run_that_is_over_is_passed_over(row: str) -> None:
    assert [] == one(row)


def test_a_state_that_nobody_knows_and_a_strange_code_are_passed_on() -> None:
    (job,) = one("1|NEW_STATE|x:y|2026-11-30T01:32:58|2026-11-30T01:32:59|alice|all|n1")
    assert ("NEW_STATE", 0, 0) == (job.state, job.code, job.signal)


@pytest.mark.parametrize(("folded", "names"), [
    ("n1", ("n1",)), ("n[1-3]", ("n1", "n2", "n3")), ("n[1,3]", ("n1", "n3")), ("n[08-10]", ("n08", "n09", "n10")),
    ("n1,m2", ("m2", "n1")), ("a[1-2]b", ("a1b", "a2b")), ("None assigned", ()), ("n[3-1]", ()), ("@all", ()),
])  # fmt: skip
def test_lists_of_nodes(folded: str, names: tuple[str, ...]) -> None:
    assert names == tuple(sorted(sacct.names(folded)))


def test_events_are_read_by_node_and_their_reasons_may_hold_anything() -> None:
    drain, down = sacct.events_of_text(EVENTS)
    assert Event("lab", "ip-10-1-0-2", 1796002376, None, "DRAIN", "root(0)", "hpslurm: [FAIL] XID 79") == drain
    assert ("other", "DOWN*", 1620, "Not responding | and more") == (
        down.cluster, down.state, (down.end or 0) - down.start, down.reason,
    )  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
class TestRecorded:
    """What a lab's real slurmdbd and MariaDB answered to our own command lines, in four releases.

    Debian's 22.05.8 and, in chroots of Debian 13 and testing, 24.11.5 and 26.05.5; there slurmdbd had to be given the
    MariaDB library of Debian 12, since it ends at once with that of 11.8.9. 25.11.7 was compiled from its source on
    Debian 12. There the slurmd of n3 was killed and Slurm noticed it by itself, which took half a minute; with the
    others its node was set down by hand. Only the lab's folder and the port are not as they were.
    """

    def test_jobs(self, release: str) -> None:
        jobs = {job.id: job for job in sacct.jobs_of_text((SAMPLES / release / "sacct_ended.txt").read_text())}
        lost = 0 if release == "22.05.8" else 1
        assert {
            1: ("FAILED", 7, 0, ("n1", "n2", "n3")),
            2: ("FAILED", 0, 11, ("n3",)),
            3: ("CANCELLED", 0, 0, ("n2",)),
            4: ("NODE_FAIL", lost, 0, ("n1",)),
            5: ("NODE_FAIL", lost, 0, ("n3",)),  # and the run that waits after it has not begun
            6: ("COMPLETED", 0, 0, ("n2",)),
            7: ("COMPLETED", 0, 0, ("n2",)),
        } == {number: (job.state, job.code, job.signal, job.nodes) for number, job in jobs.items()}
        assert {("root", "all")} == {(job.user, job.partition) for job in jobs.values()}
        assert all(0 <= job.end - job.start < 30 for job in jobs.values())

    def test_events(self, release: str) -> None:
        events = list(sacct.events_of_text((SAMPLES / release / "sacctmgr_events.txt").read_text()))
        grave = {(event.node, event.state, event.end is None, event.reason) for event in events if event.state != "UNK"}
        assert {
            ("n1", "DOWN", True, "it is | gone"),
            ("n2", "DRAIN", True, "looks bad"),
            ("n3", "DOWN*" if release == "25.11.7" else "DOWN", False, "Not responding"),  # the star: by itself
        } == grave
        assert {("lab", "root(0)")} == {(event.cluster, event.user) for event in events}

    def test_one_job_whose_name_has_a_bar_and_a_line_break(self, release: str) -> None:
        text = (SAMPLES / release / "sacct_job.txt").read_text()
        if release != "25.11.7":  # recorded before JobID was asked for as well, which of a plain job is the same number
            text = text.replace("1\x1f", "1\x1f1\x1f", 1)
        (job,) = slurm.jobs_of_sacct(text)
        assert (1, "FAILED", 7, 0, "n[1-3]", "root") == (
            job.id, job.state, job.exit_code, job.uid, job.nodes, job.user,
        )  # fmt: skip

    def test_a_slurmdbd_that_is_gone(self, release: str) -> None:
        said = Output(1, "", (SAMPLES / release / "sacct_down.txt").read_text())
        assert "Problem talking to the database: Connection refused" in slurm.trouble("sacct", said)
        assert not any(words in said.err.lower() for words in sacct.DISABLED)


ASKED = """#!/bin/sh
echo "$@" >> {log}
case "$*" in *"--starttime={day}T00:00:00 --endtime={next}T00:00:00"*) cat {rows};; esac
"""


def test_a_month_is_asked_for_day_by_day_and_a_job_counts_where_it_ended(
    tmp_path: Path, write: Callable[..., Path]
) -> None:
    over_midnight = "9|COMPLETED|0:0|2026-11-29T23:00:00|2026-12-01T01:00:00|bob|p5|n1"
    rows = write("rows", text(*ROWS, over_midnight))
    script = ASKED.format(log=tmp_path / "log", day="2026-11-30", next="2026-12-01", rows=rows)
    write("root/usr/bin/sacct", script, 0o755)
    now = sacct.moment("2026-12-01T12:00:00") or 0
    said: list[str] = []
    jobs = list(sacct.ended_jobs(str(tmp_path / "root"), now - 2 * 86400, now, said.append))
    assert [1, 3, 3, 5] == [job.id for job in jobs]
    assert 3 == len((tmp_path / "log").read_text().splitlines())
    assert "sacct: day 2 of 3, 0 jobs so far" in said
    assert "-a -X -D -n -P" in (tmp_path / "log").read_text()


def test_without_an_accounting_it_says_so(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("root/usr/bin/sacct", "#!/bin/sh\necho 'Slurm accounting storage is disabled' >&2\nexit 1\n", 0o755)
    with pytest.raises(Unknown, match="no accounting here"):
        list(sacct.ended_jobs(str(tmp_path / "root"), 0, 10))


def test_times_are_utc_whatever_the_zone_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TZ", "America/New_York")
    time.tzset()
    try:
        assert 1796088600 == sacct.moment("2026-12-01T01:30:00")
    finally:
        monkeypatch.undo()
        time.tzset()
