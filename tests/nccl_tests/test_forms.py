"""The ways in which people show an output of nccl-tests: each is read as the output itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpslurm.core import toml
from hpslurm.core.policy import Policy
from hpslurm.nccl_tests import judge
from hpslurm.nccl_tests.verdict import Facts
from hpslurm.scan.nccl_tests import read_text

FOLDER = Path(__file__).parent / "public"
BY_HAND = "n25.txt"  # its rows have numbers in front, which a label hides
LABELLED = ("n01.txt", "n03.txt", "n19.txt")  # of Open MPI
CASES = [case for case in toml.loads((FOLDER / "index.toml").read_text())["case"] if case["file"] != BY_HAND]
ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z](?!.*: Test )")
Form = Callable[[str], str]


def each_line(change: Form) -> Form:
    return lambda text: "".join(f"{change(line)}\n" for line in text.splitlines())


def labelled(label: str) -> Form:
    return each_line(lambda line: label + line)


def wrapped(width: int) -> Form:
    return each_line(lambda line: "\n".join(line[at : at + width] for at in range(0, max(1, len(line)), width)))


def rows(change: Form) -> Form:
    return each_line(lambda line: change(line) if ROW.match(line) else line)


def coloured(line: str) -> str:
    return "\x1b[1;34m" + re.sub(r"(\d+\.\d+)", "\x1b[36m\\1\x1b[39m", line) + "\x1b[0m\x1b[K"


def numbered(sign: str) -> Form:
    return lambda text: "".join(f"{i}{sign}{line}\n" for i, line in enumerate(text.splitlines(), 1))


def thousands(line: str) -> str:
    return re.sub(r"(?<![\d.])(\d{4,})(?![\d.])", lambda match: f"{int(match[1]):,}", line, count=2)


def shortened_size(line: str) -> str:
    size = int(line.split()[0])
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size and size % (1 << shift) == 0:
            return line.replace(str(size), f"{size >> shift}{unit}", 1)
    return line


def cut_by_nccl(text: str) -> str:
    cut = r"\1node-a:12:34 [0] NCCL INFO Using network IBext_v8\n\2"
    return re.sub(r"(?m)^((?:\[1,0\]<stdout>:)?\s*\d+\s+\d+\s+[a-z0-9]+\s+\w+\s+-1)(.*)$", cut, text, count=3)


FORMS: dict[str, Form] = {
    "Open MPI": labelled("[1,0]<stdout>:"),
    "Open MPI 5": labelled("[prterun-n-1-2744@1,0]<stdout>: "),
    "Open MPI 5 in detail": labelled("[prterun-n-1-2744@1,0][n-1:2750]<stdout>: "),
    "Open MPI with the time": labelled("Mon Jan  2 15:04:05 2023[1,0]<stdout>:"),
    "MPICH with the host": labelled("[0@node-1] "),
    "host and rank": labelled("[node-1:0] "),
    "torchrun": labelled("[rank0]: "),
    "torchrun, older": labelled("[default0]:"),
    "srun -l": labelled(" 0: "),
    "kubectl logs --timestamps": labelled("2024-01-01T00:00:00.123456789Z "),
    "kubectl logs --prefix": labelled("[pod/nccl-launcher-abcde/nccl] "),
    "stern": labelled("nccl-launcher-abcde nccl "),
    "docker compose": labelled("nccl-1  | "),
    "SkyPilot": labelled("(worker1, rank=1, pid=2769, ip=10.1.0.8) "),
    "journalctl": labelled("Jan 02 15:04:05 node-1 sh[1234]: "),
    "pdsh": labelled("node-1: "),
    "a log's time": labelled("[2024-01-01 00:00:00,123] {subprocess.py:93} INFO - "),
    "a quotation": labelled("> "),
    "an indented one": labelled("\t"),
    "Ansible's list": each_line(lambda line: f'        "{line}",'.replace('\\"', '"')),
    "Python's list": each_line(lambda line: f"'{line}\\n'"),
    "cat -n": numbered("\t"),
    "grep -n": numbered(":"),
    "grep": labelled("slurm-4711.out:"),
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "colours": each_line(coloured),
    "colours as text": each_line(lambda line: f"^[[32m{line}^[[0m"),
    "one blank": lambda text: re.sub(r"[ \t]+", " ", text),
    "tabs": lambda text: re.sub(r"  +", "\t", text),
    "a page's blanks": lambda text: re.sub(" {2,}", lambda match: "\xa0" * len(match[0]), text),
    "a page's signs": lambda text: text.replace("<", "&lt;").replace(">", "&gt;"),
    "a byte order mark": lambda text: "\ufeff" + text,
    "no signs of a comment": lambda text: re.sub(r"(?m)^((?:\[\d,\d\]<stdout>:|.*\) )?\s*)#", r"\1", text),
    "signs of a comment escaped": lambda text: re.sub(r"(?m)^(\s*)#", r"\1\\#", text),
    "a blank line between": lambda text: text.replace("\n", "\n\n"),
    "cells": rows(lambda line: f"| {' | '.join(line.split())} |"),
    "sizes with a unit": rows(shortened_size),
    "thousands": rows(thousands),
    "rows cut by NCCL": cut_by_nccl,
    "rows of another program between": rows(
        lambda line: f"{line}\n[1712345678.123456] [node-a:1234 :0]  ucp_context.c:1774 UCX  WARN  UCP version"
    ),
}
WRAPPED: dict[str, Form] = {f"wrapped at {width}": wrapped(width) for width in (80, 100, 120)}


def said(text: str, case: dict[str, Any]) -> tuple[str, list[str], list[tuple[int, int]]]:
    output = read_text(text, case["file"])
    found = judge.verdict(Facts(output, case["type"]), Policy())
    tables = [(len(table.rows), len(table.devices)) for table in output.tables]
    return found.words, sorted({finding.rule.id for finding in found.findings}), tables


# Somebody left out the columns of count and type: nothing tells such a row behind a number of grep's.
BARE = {("grep -n", "u20.txt")}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_an_output_changes_nothing(form: str) -> None:
    texts = {case["file"]: (FOLDER / case["file"]).read_text() for case in CASES if (form, case["file"]) not in BARE}
    assert any(FORMS[form](text) != text for text in texts.values())
    for case in CASES:
        if (text := texts.get(case["file"])) is not None:
            assert said(text, case) == said(FORMS[form](text), case), case["file"]


@pytest.mark.parametrize("form", WRAPPED)
def test_rows_that_a_screen_wrapped_are_read_whole(form: str) -> None:
    for case in CASES:
        if case["file"] not in LABELLED:
            text = (FOLDER / case["file"]).read_text()
            words, ids, tables = said(text, case)
            shown = said(WRAPPED[form](text), case)
            assert (words, tables) == (shown[0], shown[2]), case["file"]
            assert set(ids) <= set(shown[1]), case["file"]


def test_the_format_of_2017_has_other_names_milliseconds_and_devices_without_a_process() -> None:
    text = """\
nThread 1 nGpus 2 minBytes 33554432 maxBytes 67108864 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
# NCCL Tests compiled with NCCL 2.2
# Using devices
#   Rank  0 on  dgx1 device  0 [0x06] Tesla V100-SXM2-16GB
#   Rank  1 on  dgx1 device  1 [0x07] Tesla V100-SXM2-16GB

#                                                 out-of-place                    in-place
#      bytes             N    type      op     time  algbw  busbw      res     time  algbw  busbw      res
    33554432       8388608   float     sum    0.523  64.11  64.11    0e+00    0.520  64.52  64.52    0e+00
    67108864      16777216   float     sum    1.010  66.44  66.44    1e-02    1.009  66.50  66.50    2e-02
 Out of bounds values : 2 FAILED
 Avg bus bandwidth    : 65.9
"""
    table = read_text(text).tables[0]
    assert [523.0, 1010.0] == [row.out.time for row in table.rows if row.out]
    assert (2, True, 2, False, 65.9) == (
        len(table.devices),
        table.complete,
        table.bounds,
        table.bounds_ok,
        table.average,
    )


@pytest.mark.parametrize(
    "header",
    ["#       size     time   algbw   busbw", "size(B)  time(us)  algbw(GB/s)  busbw(GB/s)"],
)
def test_a_table_of_fewer_columns_is_read_by_their_names(header: str) -> None:
    output = read_text(f"{header}\n  1073741824  4524.3  237.33  444.99\n  2147483648  8787.5  244.38  458.21\n")
    found = judge.verdict(Facts(output), Policy())
    assert [444.99, 458.21] == [size.busbw for size in found.sizes]
    assert ("nothing to compare with", {"busbw-head-missing"}) == (
        found.words,
        {one.rule.id for one in found.findings} - {"busbw-no-floor"},
    )


def test_a_sentence_that_begins_with_size_is_no_header() -> None:
    assert [] == read_text("size of the message and time it took, in busbw\n").tables


def test_bandwidth_that_collapses_at_a_larger_size_is_low_whatever_the_machine() -> None:
    def words(last: float) -> str:
        text = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        for size, rate in ((1 << 28, 100.0), (1 << 29, last)):
            half = f"99.0 {rate / 1.875:.2f} {rate:.2f} 0"
            text += f"{size} {size // 4} float sum -1 {half} {half}\n"
        return judge.verdict(Facts(read_text(text)), Policy()).words

    assert ("low", "nothing to compare with") == (words(9.9), words(10.1))
