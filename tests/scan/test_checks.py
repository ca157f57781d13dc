"""What a check makes of a line: the weight of an XID, what is refused, and that every row of the table is used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from hpslurm.core.finding import ROLES
from hpslurm.scan import model
from hpslurm.scan.checks.gpu import xid_meaning
from tests.scan.cases import events_of, patterns_of

SCAN = Path(model.__file__).parent
SOURCES = [path.read_text(encoding="utf-8") for path in sorted(SCAN.rglob("*.py"))]
CAUSES = set(model.causes())


@pytest.mark.parametrize("number, cause, weight", [
    (48, "gpu_ecc", 90),
    (79, "gpu_fell_off_bus", 96),
    (31, "gpu_app_fault", 62),
    (399, "gpu_app_fault", 50),  # no table has it
])  # fmt: skip
def test_an_xid_proves_what_its_table_says(number: int, cause: str, weight: int):
    (event,) = [one for one in events_of(f"NVRM: Xid (PCI:0000:53:00): {number}, pid=7\n".encode()) if one.cause]
    assert (cause, weight, "0000:53:00") == (event.cause, event.weight, event.gpu)


@pytest.mark.parametrize("number", [0, 401])
def test_a_number_that_no_driver_prints_is_no_xid(number: int):
    assert [] == [one for one in patterns_of(f"NVRM: Xid (PCI:0000:53:00): {number}, pid=7\n") if one == "xid"]


def test_the_drivers_own_words_count_whatever_the_number():
    assert ("gpu_fell_off_bus", 50) == xid_meaning(399, "GPU has fallen off the bus")
    assert ("gpu_ecc", 50) == xid_meaning(399, "uncorrectable error")
    assert ("", 0) == xid_meaning(112), "the table calls it information"


def test_a_non_fatal_error_and_an_echo_prove_less():
    line = "NVRM: Xid (PCI:0000:53:00): 74, pid=7, NVLink: {} error\n"
    fatal, nonfatal = (events_of(line.format(word).encode())[0].weight for word in ("fatal", "non-fatal"))
    assert nonfatal == min(44, fatal) < fatal
    echo = "NVRM: Xid (PCI:0000:53:00): 45, pid=7, caused by previous Xid 48\n"
    assert [("gpu_ecc", 88)] == [(event.cause, event.weight) for event in events_of(echo.encode()) if event.cause]


LINK = "[{}] mlx5_core 0000:05:00.0 eth0: Link down\n"


@pytest.mark.parametrize("uptime, wanted", [("  119.900000", []), ("  120.000000", ["link-down-kernel"])])
def test_links_come_and_go_in_the_first_two_minutes(uptime: str, wanted: list[str]):
    assert wanted == [one for one in patterns_of(LINK.format(uptime)) if one == "link-down-kernel"]


# Every weight, cause and role of a line stands in a table.


def test_no_weight_and_no_cause_stands_in_the_code_of_the_readers():
    checks = [f"checks/{path.stem}" for path in sorted((SCAN / "checks").glob("*.py"))]
    assert len(checks) > 5
    named = ("hit", "kinds", "life", "nccl_rows", "node_lists", "nvidia_smi", "network_choice", "places", "ras",
             "slow_ranks", "small_tools", "flight")  # fmt: skip
    for name in (*checks, *named):
        tree = ast.parse((SCAN / f"{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg in ("weight", "cause"):
                assert not isinstance(node.value, ast.Constant), (name, node.value.lineno)
            if isinstance(node, ast.Assign):
                targets = [ast.unparse(target) for target in node.targets]
                if any(target.endswith((".weight", ".cause", ".role")) for target in targets):
                    assert not isinstance(node.value, ast.Constant), (name, node.lineno)


def test_every_row_is_used_and_every_use_has_its_row():
    text = "\n".join(SOURCES)
    used = set(re.findall(r'\.turn\("([\w-]+)"\)', text)) | set(re.findall(r'turns\(\)\["([\w-]+)"\]', text))
    groups = set(re.findall(r'turn_by\("(\w+)"', text))
    rows = model.turns()
    assert set() == used - set(rows)
    assert {row.check for row in rows.values() if row.check} == groups
    assert {row.id for row in rows.values() if not row.check} == used


def test_a_row_names_known_causes_and_roles_and_changes_something():
    for row in model.turns().values():
        assert row.cause in ("", *CAUSES), row.id
        assert row.role in ("", *ROLES), row.id
        assert row.cause or row.role or row.weight is not None or row.at_most is not None or row.less, row.id
        assert bool(row.check) == bool(row.words), row.id
    for derived in model.derived().values():
        assert (True, True) == (derived.cause in CAUSES, derived.role in ROLES), derived.id
        assert derived.pattern in ("", *model.derived()), derived.id


@pytest.mark.parametrize("check, text, row", [
    ("cudafail", "out of memory", "cuda-failure-oom"),
    ("cudafail", "uncorrectable ECC error encountered", "cuda-failure-ecc"),
    ("mpisignal", "9", "mpi-signal-kill"),
    ("mpisignal", "19", None),
    ("launcher", "-9", "launcher-kill"),
    ("launcher", "-6", "launcher-ended"),
    ("launcher", "1", None),
    ("splat", "efa_poll+0x1/0x2 [efa]", "splat-efa"),
    ("abortreason", "Socket closed", "abort-reason-peer"),
])  # fmt: skip
def test_the_words_of_a_line_pick_the_row(check: str, text: str, row: str | None):
    turn = model.turn_by(check, text)
    assert row == (turn.id if turn else None)
