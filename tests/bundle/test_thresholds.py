"""What is masked and what stays, and what a part says of itself: at each limit and a step beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hpslurm.bundle import of_machine
from hpslurm.bundle.masking import Masker, _lower
from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.cli.bundle import command
from hpslurm.core.probe import Unknown
from hpslurm.sources.host import Host


def masked(text: str, **known: list[str]) -> str:
    return Masker(**known).mask(text)


@pytest.mark.parametrize("nodes, hidden", [("ip-10-1-0-[3-7]", False), ("ip-10-[0-2]-[0-58]-[0-112]", True)])
def test_a_list_of_20001_nodes_is_hidden_whole(nodes: str, hidden: bool) -> None:
    assert hidden is ("on ip-198-18-255-255 x" == masked(f"on {nodes} x"))


def test_a_users_name_of_three_letters_is_looked_for_in_any_text() -> None:
    assert "user-1 al" == masked("ada al", users=["ada", "al"])


@pytest.mark.parametrize("letters, stays", [(80, True), (81, False)])
def test_eighty_letters_may_say_that_it_is_a_version(letters: int, stays: bool) -> None:
    before = f"nvidia-{'a' * (letters - len('nvidia--cu12 '))}-cu12 "
    assert letters == len(before)
    assert stays is ("99.1.0.70" in masked(f"{before}99.1.0.70"))


@pytest.mark.parametrize(
    "text, stays",
    [
        ("libfabric 13.1.0.7", True),
        ("libfabric 14.1.0.7", False),  # no version begins with 14
        ("numpy   9.1.0.70\n", True),  # a row of pip
        ("numpy   8.1.0.70\n", False),  # of AWS and of name servers
        ("numpy   3.1.0.70\n", False),
        ("to 2001::5", False),  # as short as an address of IPv6 gets
        ("10:05", True),
    ],
)
def test_versions_stay_and_addresses_go(text: str, stays: bool) -> None:
    assert stays is (text == masked(text))


def test_every_letter_stays_where_it_was_in_lower_case() -> None:
    assert "İab" == _lower("İAB")  # its lower case is two signs


def test_of_a_part_nothing_is_left_out_unless_somebody_says_so() -> None:
    parts = Parts(lambda _: None)
    parts.add("case.txt", "x", "all")
    parts.add("logs/1", "x", "all", left_out=7)
    assert [0, 7] == [part.left_out for part in parts.parts]


@pytest.mark.parametrize("status, name, told", [(0, "sinfo", True), (1, "sinfo", False), (1, "scontrol_ping", True)])
def test_what_a_program_prints_counts_where_it_ended_well(
    status: int, name: str, told: bool, host_with: Callable[..., Host]
) -> None:
    host = host_with({f"/commands/{name}.txt": "said\n", f"/commands/{name}.status": f"{status}\n"})
    if told:
        assert "said" in of_machine._program(host, name, name)
    else:
        with pytest.raises(Unknown):
            of_machine._program(host, name, name)


def test_who_asks_for_nothing_gets_what_the_command_line_gives() -> None:
    typed = command.make_context("bundle", []).params
    request = Request()
    assert typed["limit"] == request.limit
    assert [typed["no_aws"], typed["no_slurm"], typed["hang"]] == [not request.aws, not request.slurm, request.hang]
