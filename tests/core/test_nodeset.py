"""Lists of node names, folded and unfolded, from Slurm and from anybody."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core import nodeset
from hpslurm.core.nodeset import MOST, NoNodeList

NAMES = st.from_regex(r"[a-z]{1,4}(-[0-9]{1,3}){0,3}[0-9]{0,5}", fullmatch=True)


@given(st.lists(NAMES, unique=True, max_size=30))
def test_what_was_folded_unfolds_to_the_same_names(names: list[str]) -> None:
    assert sorted(names) == sorted(nodeset.unfold(nodeset.fold(names)))


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n1"], "n1"),
        (["ip-10-1-0-7", "ip-10-1-0-3", "ip-10-1-0-4"], "ip-10-1-0-[3-4,7]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["a1-ib", "a2-ib", "login"], "a[1-2]-ib,login"),
        (["n[1-2]", "n3"], "n[1-3]"),
    ],
)
def test_names_that_differ_in_a_number_become_a_range(names: list[str], folded: str) -> None:
    assert folded == nodeset.fold(names)


@pytest.mark.parametrize("odd", ["n[1-", "a!b", "n1&n2", "x^y", "n[1-5000000]", "n[5-3]", "n1,"])
def test_a_name_that_no_list_can_hold_stands_behind_the_others(odd: str) -> None:
    assert f"n[1-2],{odd}" == nodeset.fold(["n1", odd, "n2"])
    assert odd == nodeset.fold([odd])


def test_a_name_with_a_group_sign_runs_no_program_and_is_a_name() -> None:
    assert ["@all"] == nodeset.unfold("@all")


def test_a_list_may_have_as_many_names_as_slurm_takes_and_not_one_more() -> None:
    assert 65_536 == len(nodeset.unfold("n[1-65536]"))
    with pytest.raises(NoNodeList, match=f"{MOST + 1} names, {MOST} at most"):
        nodeset.unfold(f"n[1-{MOST + 1}]")


def test_a_caller_may_want_fewer() -> None:
    assert ["n1", "n2"] == nodeset.unfold("n[1-2]", 2)
    with pytest.raises(NoNodeList, match="3 names, 2 at most"):
        nodeset.unfold("n[1-3]", 2)


@pytest.mark.parametrize(
    "text",
    [
        "n[1-5000000]",
        "a,n[1-40000],n[40001-80000]",
        "n[1-300]b[1-300]",
        "n1!n[1-5000000]",
        "n[1-5000000,[]",
        "n[1-5000000,[2]",
        "n[1-5000000],m[",
        "n[-9000000-9000000]",
        "n[1-5_000_000]",
        "n[1-\uff15000000]",
        "[" * 100_000,
        "n[" + "9" * 5000 + "]",
    ],
)
def test_a_range_that_would_fill_the_memory_is_refused_before_it_is_written_out(text: str) -> None:
    began = time.monotonic()
    with pytest.raises(NoNodeList):
        nodeset.unfold(text)
    assert 1 > time.monotonic() - began


def test_a_long_range_of_few_names_is_a_list() -> None:
    assert ["n0", "n4000000", "n8000000"] == nodeset.unfold("n[0-8000000/4000000]")


@pytest.mark.parametrize(
    ("text", "why"),
    [("n[1-", "missing bracket"), ("n[1-3,x]", "bad range: 'x'"), ("n[3-1]", "bad range"), ("n1,", "missing nodeset")],
)
def test_what_is_no_list_is_said_or_has_no_names(text: str, why: str) -> None:
    with pytest.raises(NoNodeList, match=why):
        nodeset.unfold(text)
    assert [] == nodeset.names_in(text)


def test_text_that_is_a_list_has_its_names() -> None:
    assert ["m", "n1", "n2"] == nodeset.names_in("n[1-2],m")
    assert [] == nodeset.names_in("n[1-2]", 1)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("n1", ["n1"], ["n11", "xn1", "n", "N1"]),
        ("n[1-3]", ["n1", "n3"], ["n0", "n4", "n01", "n", "n1x", "n²"]),
        ("n[01-10]", ["n01", "n10"], ["n1", "n010", "n11"]),
        ("n[1,5-7/2]", ["n1", "n5", "n7"], ["n6", "n2"]),
        ("r[1-2]n[1-2]-ib", ["r1n2-ib"], ["r1n3-ib", "r3n1-ib", "r1n2"]),
        ("gpu-[1-2],ip-10-1-*", ["gpu-2", "ip-10-1-0-3"], ["ip-10-2-0-3", "gpu-3"]),
        ("*", ["anything", "n1"], []),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_a_list_names_what_slurm_would_unfold_it_to_and_a_star_any_characters(
    text: str, inside: list[str], outside: list[str]
) -> None:
    assert "" == nodeset.trouble(text)
    assert [] == [name for name in inside if not nodeset.names(text, name)]
    assert [] == [name for name in outside if nodeset.names(text, name)]


@given(st.lists(NAMES, unique=True, min_size=1, max_size=10), NAMES)
def test_a_folded_list_names_its_members_and_nobody_else(members: list[str], other: str) -> None:
    folded = nodeset.fold(members)
    assert [True] * len(members) == [nodeset.names(folded, name) for name in members]
    assert (other in members) == nodeset.names(folded, other)
