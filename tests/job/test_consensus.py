"""The odd node out, by majority; and nobody blamed where there is none."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core.probe import PASS, Result
from hpslurm.job import consensus
from hpslurm.job.consensus import judge, splits


def node(versions: dict[str, Any] | None = None, settings: dict[str, str] | None = None) -> list[Result]:
    results = []
    if versions is not None:
        results.append(Result("versions", PASS, facts={"type": "p5.48xlarge", "driver": "570.1", **versions}))
    if settings is not None:
        results.append(Result("nccl_env", PASS, facts={"settings": settings, "hidden": ["LD_PRELOAD"]}))
    return results


def told(nodes: dict[str, list[Result]]) -> list[tuple[str, str, str]]:
    return [(finding.rule.id, finding.subject, finding.detail) for finding in judge(nodes)]


def test_nodes_that_agree_are_no_finding() -> None:
    assert [] == told({"a": node({}, {"NCCL_DEBUG": "WARN"}), "b": node({}, {"NCCL_DEBUG": "WARN"})})


def test_the_odd_node_out_is_named_with_both_values() -> None:
    found = told({"a": node({"nccl": "2.26.2"}), "b": node({"nccl": "2.26.2"}), "c": node({"nccl": "2.21.5"})})
    assert [("versions-differ", "c", "nccl 2.21.5, 2.26.2 on 2 nodes")] == found


def test_without_a_majority_every_node_is_named() -> None:
    found = told({"a": node({"efa": "2.15.0"}), "b": node({"efa": "2.17.3"})})
    assert ["a", "b"] == [subject for _, subject, _ in found]
    assert all("no value that more than half of the nodes have" in detail for _, _, detail in found)


def test_half_of_the_nodes_is_no_majority() -> None:
    (one,) = splits({"a": {"x": "1"}, "b": {"x": "1"}, "c": {"x": "2"}, "d": {"x": "3"}})
    assert not one.has_majority
    assert ("a", "b", "c", "d") == one.odd


def test_a_version_that_is_not_known_is_no_difference() -> None:
    assert [] == told({"a": node({"nccl": "2.26.2"}), "b": node({"nccl": ""}), "c": node()})


def test_a_setting_that_is_missing_on_one_node_is_a_difference() -> None:
    found = told({"a": node({}, {"NCCL_NET": "ofi"}), "b": node({}, {"NCCL_NET": "ofi"}), "c": node({}, {})})
    assert [("environment-differs", "c", "NCCL_NET not set, ofi on 2 nodes")] == found


def test_a_node_whose_environment_was_not_seen_is_left_out() -> None:
    assert [] == told({"a": node({}, {"NCCL_NET": "ofi"}), "b": node({}), "c": node({}, {"NCCL_NET": "ofi"})})


def test_settings_that_are_meant_to_differ_do_not() -> None:
    assert [] == told({name: node({}, {"NCCL_DEBUG_FILE": f"/fsx/{name}.log"}) for name in "abc"})


def test_all_differences_of_one_node_are_one_finding() -> None:
    nodes = {name: node({"nccl": "2.26.2", "efa": "2.17.3"}) for name in "abcd"}
    nodes["d"] = node({"nccl": "2.21.5", "efa": "2.15.0"})
    (finding,) = judge(nodes)
    assert "d" == finding.subject
    assert 2 == len(finding.evidence)


def test_a_single_node_cannot_differ() -> None:
    assert [] == told({"a": node({"nccl": "2.26.2"}, {"NCCL_NET": "ofi"})})


TABLES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3),
    st.dictionaries(st.sampled_from("xyz"), st.sampled_from(["1", "2", "3", ""])),
    max_size=12,
)


@given(TABLES, st.sampled_from([None, consensus.NOT_SET]))
def test_every_node_is_in_exactly_one_group_and_a_majority_is_never_odd(
    tables: dict[str, dict[str, str]], absent: str | None
) -> None:
    for one in splits(tables, absent=absent):
        members = [name for _, group in one.groups for name in group]
        assert len(members) == len(set(members))
        assert set(one.odd) <= set(members)
        assert one.has_majority == (len(one.groups[0][1]) * 2 > len(members))
        if one.has_majority:
            assert set(one.odd) == set(members) - set(one.groups[0][1])
