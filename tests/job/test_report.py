"""One job: the epilog's word counts, the prolog's dates it, silence is named."""

from __future__ import annotations

from hpslurm.core.finding import P0, Finding, Rule
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result
from hpslurm.core.records import Record
from hpslurm.job.report import Unseen, view

EFA = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6")


def record(node: str, hook: str, *found: Rule, complete: bool = True, unknown: str = "") -> Record:
    results = [Result("efa", FAIL if found else PASS, findings=tuple(Finding(rule, "16 of 32") for rule in found))]
    if unknown:
        results.append(Result("gpu", UNKNOWN, unknown))
    return Record(node, hook, {}, tuple(results), complete=complete)


def when(*records: Record) -> list[str]:
    return [finding.evidence[-1].text for finding in view(records, ["n1"]).findings]


def test_what_the_prolog_saw_too_was_there_before_the_job() -> None:
    assert ["seen by the prolog already, so it was there before the job"] == when(
        record("n1", "prolog", EFA), record("n1", "epilog", EFA)
    )


def test_what_only_the_epilog_saw_came_during_the_job() -> None:
    assert ["seen by the epilog only, so it came during the job"] == when(
        record("n1", "prolog"), record("n1", "epilog", EFA)
    )


def test_a_prolog_that_was_cut_off_dates_nothing() -> None:
    assert ["seen by the epilog; the prolog left no whole record"] == when(
        record("n1", "prolog", complete=False), record("n1", "epilog", EFA)
    )


def test_without_an_epilog_the_prolog_has_the_word() -> None:
    assert ["seen by the prolog; the epilog left no record"] == when(record("n1", "prolog", EFA))


def test_what_went_away_during_the_job_is_no_finding() -> None:
    assert [] == when(record("n1", "prolog", EFA), record("n1", "epilog"))


def test_nodes_without_a_record_are_named_for_each_hook() -> None:
    seen = view([record("n1", "prolog"), record("n1", "epilog"), record("n2", "prolog")], ["n1", "n2", "n3"])
    assert (
        Unseen("no record of the prolog", ("n3",)),
        Unseen("no record of the epilog", ("n2", "n3")),
    ) == seen.unseen


def test_a_running_job_owes_no_epilog() -> None:
    assert () == view([record("n1", "prolog")], ["n1"], over=False).unseen


def test_a_record_that_was_cut_off_is_named() -> None:
    seen = view([record("n1", "prolog"), record("n1", "epilog", complete=False)], ["n1"])
    assert (Unseen("record of the epilog cut off", ("n1",)),) == seen.unseen


def test_what_could_not_be_looked_at_is_kept_with_its_node() -> None:
    assert (("gpu", "no driver", "n1"),) == view([record("n1", "epilog", unknown="no driver")], ["n1"]).not_checked


def test_records_of_nodes_that_slurm_has_forgotten_are_read_all_the_same() -> None:
    assert ["n7"] == [finding.subject or "n7" for finding in view([record("n7", "epilog", EFA)], []).findings]


def test_where_a_record_could_not_be_read_no_node_is_said_to_have_left_none() -> None:
    assert ["no record of the prolog", "no record of the epilog"] == [one.what for one in view([], ["n1"]).unseen]
    told = [one.what for one in view([], ["n1"], all_read=False).unseen]
    assert ["no readable record of the prolog", "no readable record of the epilog"] == told
