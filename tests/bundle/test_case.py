"""The summary for a case: every item that AWS Support asks for, filled in or with the way to get it."""

from __future__ import annotations

import csv

import pytest

from hpslurm.bundle import case
from hpslurm.bundle.case import Case, Node
from hpslurm.show.page import Row

ITEMS = (
    "Cluster name", "Cluster ARN", "AWS region", "Orchestrator", "Slurm controller", "Window (UTC)", "Job",
    "Nodes involved", "Error lines", "NCCL settings", "Diagnostic output",
)  # fmt: skip


def rows(text: str) -> dict[str, str]:
    return {head: rest.strip() for head, colon, rest in (line.partition(":") for line in text.splitlines()) if colon}


def test_an_item_that_is_not_known_says_how_to_find_it() -> None:
    told = rows(case.text(Case(), []))
    assert set(ITEMS) <= set(told)
    unknown = [item for item in ITEMS if told[item].startswith("not known; to find it: ")]
    assert ["Orchestrator"] == [item for item in ITEMS if item not in unknown]


def test_a_full_case_fits_one_screen() -> None:
    nodes = tuple(Node(f"ip-10-1-0-{number}", f"i-{number:017x}", "efa-missing") for number in range(300))
    full = Case(
        "demo", "arn", "us-west-2", "InService", "24.11", ("c1",), "w", "4711", nodes, "x", "oom", ("e" * 900,) * 90
    )
    text = case.text(full, [(f"file{number}", "why") for number in range(40)])
    assert len(text.splitlines()) <= 50
    assert max(map(len, text.splitlines())) < 620
    assert "300: ip-10-1-0-[0-299] (the first 8 here, all in nodes.tsv)" in text
    assert "… and 28 more, in manifest.json" in text


def test_an_error_line_is_cut_in_the_summary_and_says_so() -> None:
    assert "e" * 300 + " […]" in case.text(Case(errors=("e" * 301,)), [])
    assert "[…]" not in case.text(Case(errors=("e" * 300,)), [])


@pytest.mark.parametrize(("count", "told", "more"), [(12, 12, None), (13, 12, "  … and 1 more, in manifest.json")])
def test_twelve_things_that_are_missing_are_named_and_the_others_counted(count: int, told: int, more: str) -> None:
    lines = case.text(Case(), [(f"file{number}", "why") for number in range(count)]).splitlines()
    assert told == sum(line.startswith("  file") for line in lines)
    assert (more in lines) if more else not any("more, in manifest.json" in line for line in lines)


@pytest.mark.parametrize(("count", "shown"), [(8, 8), (9, 8)])
def test_eight_nodes_and_eight_error_lines_are_in_the_summary(count: int, shown: int) -> None:
    nodes = tuple(Node(f"n{number}", f"i-{number}", "efa-missing") for number in range(count))
    text = case.text(Case(nodes=nodes, errors=tuple(f"line {number}" for number in range(count))), [])
    assert (shown, shown) == (text.count(": efa-missing\n"), text.count("\n  line "))
    assert (count > shown) == ("(the first 8 here, all in nodes.tsv)" in text)
    assert f"{count}, in errors.txt" in text


def test_a_case_without_settings_says_how_to_find_them() -> None:
    assert rows(case.text(Case(), []))["NCCL settings"].startswith("not known")
    assert "1 of NCCL and its plugin" in rows(case.text(Case(settings=1), []))["NCCL settings"]


def test_the_readme_tells_of_files_that_are_there_and_of_no_others() -> None:
    text = case.readme({"address": 3}, ["case.txt", "logs/x.log", "report-7.txt"])
    assert "logs/ " in text
    assert "report-*.txt" in text
    assert "cluster.json" not in text
    assert "Hidden: address 3." in text


@pytest.mark.parametrize(
    "reason", ['=HYPERLINK("http://x/","look")', "+1", "-2+3", "@SUM(A1)", '"=1+1"', "\uff1d1", "\t=1", " =1", "\r=1"]
)
def test_no_cell_of_the_table_of_nodes_is_a_formula_to_a_spreadsheet(reason: str) -> None:
    row = Row("n1", "worker", "g", "i-1", "DOWN", reason, "Running", "", "", (), "ok")
    head, cells = csv.reader(case.nodes_table([row]).splitlines(), delimiter="\t")
    assert len(head) == len(cells)
    assert f"'{reason.strip()}" == cells[5]


@pytest.mark.parametrize(("length", "kept"), [(4000, 4000), (4001, 4000)])
def test_a_cell_is_cut_where_a_spreadsheet_would_choke(length: int, kept: int) -> None:
    row = Row("n1", "worker", "g", "i-1", "DOWN", "x" * length, "Running", "", "", (), "ok")
    cell = case.nodes_table([row]).splitlines()[1].split("\t")[5]
    assert (kept, length > kept) == (len(cell), "x" * length != cell)


def test_a_plain_cell_of_the_table_of_nodes_stays_as_it_is() -> None:
    row = Row("n1", "worker", "g", "i-1", "DOWN", "Xid 79 = off the bus", "Running", "", "", (), "ok")
    assert "n1\ti-1\tg\tworker\tDOWN\tXid 79 = off the bus\tRunning\t" == case.nodes_table([row]).splitlines()[1]
