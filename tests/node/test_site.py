"""What the site expects of a node: at the threshold, with priorities of its own, on real files and programs."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpslurm import hooks
from hpslurm.core import probe
from hpslurm.core.policy import Policy, load
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Result
from hpslurm.core.values import replace
from hpslurm.node import site
from hpslurm.node.site import Facts, Mount
from hpslurm.sources.host import Host
from tests.lab import hung

Write = Callable[..., Path]
Expecting = Callable[..., Policy]


@pytest.fixture
def expecting(write: Write) -> Expecting:
    def loaded(text: str) -> Policy:
        policy = load(str(write("policy.toml", f'[nodes."*"]\n{text}\n')), node="n1")
        assert () == policy.problems
        return policy

    return loaded


def judged(facts: Facts, policy: Policy) -> list[tuple[str, str]]:
    return [(finding.rule.id, finding.detail) for finding in site.judge(facts, policy)]


def looked(policy: Policy, tmp_path: Path, root: str = "/") -> Result:
    """A look as a hook takes it, on this machine or a saved one."""
    host = Host(root, in_hook=True, seconds=5, locks=str(tmp_path / "locks"))
    host.expected, host.mount_answer_max = policy.expected(), policy.mount_answer_max
    return probe.run("site", site, host, policy)


@pytest.mark.parametrize(
    ("text", "facts", "found"),
    [
        ("cpus_min = 192", Facts(cpus=192), []),
        ("cpus_min = 192", Facts(cpus=191), [("site-cpus-fewer", "191 CPUs online, expected 192")]),
        ("memory_min = 2048", Facts(memory=2048), []),
        ("memory_min = 2048", Facts(memory=2047), [("site-memory-less", "1.9 KiB of memory, expected 2 KiB")]),
        ('mounts = ["/fsx"]', Facts({"/fsx": Mount("lustre")}), []),
        ('mounts = ["/fsx lustre"]', Facts({"/fsx": Mount("lustre")}), []),
        (
            'mounts = ["/fsx lustre"]',
            Facts({"/fsx": Mount("autofs")}),
            [("site-mount-missing", "/fsx: is autofs, expected lustre")],
        ),
        ('mounts = ["/fsx"]', Facts({"/fsx": Mount("")}), [("site-mount-missing", "/fsx: not in /proc/self/mounts")]),
        (
            'mounts = ["/fsx", "/home"]',
            Facts({"/fsx": Mount("lustre", "no answer within 2.0 s"), "/home": Mount("nfs4", "Stale file handle")}),
            [("site-mount-hung", "/fsx: lustre: no answer within 2.0 s; also /home")],
        ),
        ('services = ["munge"]', Facts(services={"munge": "reloading"}), []),
        (
            'services = ["munge"]',
            Facts(services={"munge": "failed"}),
            [("site-service-down", "munge: systemctl is-active: failed")],
        ),
    ],
)
def test_what_differs_from_the_policy_is_found_and_nothing_else(
    expecting: Expecting, text: str, facts: Facts, found: list[tuple[str, str]]
) -> None:
    assert found == judged(facts, expecting(text))


@pytest.mark.parametrize(("text", "priority"), [("", "P0"), ('P2 = ["mounts"]', "P2"), ('P1 = ["cpus"]', "P0")])
def test_a_check_has_the_priority_that_the_site_gives_it(expecting: Expecting, text: str, priority: str) -> None:
    policy = expecting(f'mounts = ["/fsx"]\n{text}')
    assert [priority] == [finding.rule.priority for finding in site.judge(Facts({"/fsx": Mount("")}), policy)]


def test_a_policy_that_expects_more_than_was_looked_at_is_told_so_and_nothing_is_found(expecting: Expecting) -> None:
    policy = expecting('mounts = ["/fsx"]\nmodules = ["efa"]\ncpus_min = 4')
    with pytest.raises(probe.Unknown, match="not looked at: /fsx, efa, CPUs"):
        list(site.judge(Facts(memory=7), policy))


def test_without_an_expectation_nothing_is_looked_at(tmp_path: Path) -> None:
    assert (SKIP, "the policy expects nothing of this node") == (
        looked(Policy(node="n1"), tmp_path).outcome,
        looked(Policy(node="n1"), tmp_path).note,
    )


def test_this_machine_has_what_it_has(expecting: Expecting, tmp_path: Path) -> None:
    policy = expecting(
        f'mounts = ["/proc proc"]\nfiles = ["{tmp_path}"]\ncpus_min = {len(os.sched_getaffinity(0))}\nmemory_min = 1000'
    )
    result = looked(policy, tmp_path)
    assert (PASS, "") == (result.outcome, result.note)


def test_what_this_machine_lacks_is_found(expecting: Expecting, tmp_path: Path) -> None:
    policy = expecting(
        f'mounts = ["{tmp_path}"]\nfiles = ["{tmp_path}/none"]\nprocesses = ["no-such-process"]\nmodules = ["no_such"]'
    )
    result = looked(policy, tmp_path)
    wanted = {"site-mount-missing", "site-file-missing", "site-process-missing", "site-module-missing"}
    assert (FAIL, wanted) == (result.outcome, {finding.rule.id for finding in result.findings})


@pytest.mark.parametrize("text", ["", "\n", "0-", "191-0", "0-9999999999", "0-1-2", "a-b", "²", "-1"])
def test_a_list_of_cpus_that_is_none_is_unknown(expecting: Expecting, write: Write, tmp_path: Path, text: str) -> None:
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    write(f"root{site.ONLINE}", text)
    result = looked(expecting("cpus_min = 4"), tmp_path, str(tmp_path / "root"))
    assert (UNKNOWN, True) == (result.outcome, "holds no list of CPUs" in result.note)


@pytest.mark.parametrize(("text", "count"), [("0-191\n", 192), ("0", 1), ("0-3,8,10-11\n", 7)])
def test_cpus_are_counted_from_their_ranges(
    expecting: Expecting, write: Write, tmp_path: Path, text: str, count: int
) -> None:
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    write(f"root{site.ONLINE}", text)
    result = looked(expecting("cpus_min = 1"), tmp_path, str(tmp_path / "root"))
    assert (PASS, count) == (result.outcome, (result.facts or {})["cpus"])


@pytest.mark.parametrize("text", ["", "MemTotal: none kB\n", "MemFree: 8 kB\n", "MemTotal:\n"])
def test_memory_that_nobody_tells_is_unknown(expecting: Expecting, write: Write, tmp_path: Path, text: str) -> None:
    write("root/proc/meminfo", text)
    result = looked(expecting("memory_min = 4"), tmp_path, str(tmp_path / "root"))
    assert (UNKNOWN, True) == (result.outcome, "does not list MemTotal; not looked at: memory" in result.note)


def test_without_a_place_for_its_lock_no_mount_is_touched_and_that_is_unknown(
    expecting: Expecting, write: Write, tmp_path: Path
) -> None:
    write("locks", "a file, no folder")
    result = looked(expecting('mounts = ["/proc"]'), tmp_path)
    assert (UNKNOWN, True) == (result.outcome, "/proc: no lock in" in result.note)


def test_a_process_counts_by_the_fifteen_characters_that_the_kernel_keeps(
    expecting: Expecting, write: Write, tmp_path: Path
) -> None:
    write("root/proc/7/comm", "nvidia-persiste\n")
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    policy = expecting('processes = ["nvidia-persistenced"]')
    assert PASS == looked(policy, tmp_path, str(tmp_path / "root")).outcome


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_users_process_of_the_same_name_does_not_count(expecting: Expecting, write: Write, tmp_path: Path) -> None:
    os.chown(write("root/proc/7/comm", "slurmd\n"), 1000, 1000)
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    result = looked(expecting('processes = ["slurmd"]'), tmp_path, str(tmp_path / "root"))
    assert ["site-process-missing"] == [finding.rule.id for finding in result.findings]


def test_services_that_cannot_be_asked_are_unknown_and_cost_nothing_else(
    expecting: Expecting, write: Write, tmp_path: Path
) -> None:
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    result = looked(expecting('services = ["munge"]\nmemory_min = 9000'), tmp_path, str(tmp_path / "root"))
    assert ["site-memory-less"] == [finding.rule.id for finding in result.findings]
    assert "systemctl is not installed" in result.note
    assert "not looked at: munge" in result.note


def test_an_answer_of_systemctl_that_is_not_one_word_a_service_is_unknown(
    expecting: Expecting, write: Write, tmp_path: Path
) -> None:
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    write("root/commands/systemctl_active.txt", "Failed to connect to bus\n")
    result = looked(expecting('services = ["munge"]'), tmp_path, str(tmp_path / "root"))
    assert (UNKNOWN, True) == (result.outcome, "5 answers for 1 services" in result.note)


def test_a_mount_that_hangs_is_found_and_costs_its_time_and_no_more(expecting: Expecting, tmp_path: Path) -> None:
    with hung.silent(tmp_path / "fsx") as folder:
        policy = replace(expecting(f'mounts = ["{folder}"]'), mount_answer_max=0.3)
        began = time.monotonic()
        result = looked(policy, tmp_path)
        assert 2 > time.monotonic() - began
    assert ["site-mount-hung"] == [finding.rule.id for finding in result.findings]
    assert "fuse: no answer within 0.3 s" in result.findings[0].detail


def test_what_an_earlier_look_still_hangs_on_is_not_touched_again(expecting: Expecting, tmp_path: Path) -> None:
    policy = replace(expecting('mounts = ["/proc"]'), mount_answer_max=0.2)
    assert PASS == looked(policy, tmp_path).outcome
    (lock,) = (tmp_path / "locks").iterdir()
    with open(lock) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = looked(policy, tmp_path)
    assert ["/proc: proc: an earlier one still hangs"] == [finding.detail for finding in result.findings]


def test_the_prolog_gates_on_it_only_where_the_policy_names_it(write: Write, tmp_path: Path) -> None:
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    table = '[nodes."n[1-2]"]\nmemory_min = 9000\n'
    words = ["--root", tmp_path / "root", "--results", tmp_path / "results", "--policy", tmp_path / "policy.toml"]
    for policy, node, word in (
        (table, "n1", "ok"),
        (f'gate = ["site-memory-less"]\n{table}', "n1", "drain"),
        (f'gate = ["site-memory-less"]\n{table}', "n3", "ok"),
    ):
        write("policy.toml", policy)
        job = {"SLURMD_NODENAME": node, "SLURM_JOB_ID": "7"}
        assert word == hooks.hook("prolog", [str(one) for one in words], job)


def test_the_health_check_looks_and_the_epilog_does_not(write: Write, tmp_path: Path) -> None:
    write("root/proc/meminfo", "MemTotal: 8 kB\n")
    write("policy.toml", '[nodes."*"]\nmemory_min = 9000\n')
    words = ["--root", tmp_path / "root", "--results", tmp_path / "results", "--policy", tmp_path / "policy.toml"]
    found = {}
    for hook in ("health", "epilog"):
        hooks.hook(hook, [str(one) for one in words], {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"})
        lines = map(json.loads, (tmp_path / f"results/nodes/n1.{hook}.jsonl").read_text().splitlines())
        found[hook] = [line["id"] for line in lines if line.get("id", "").startswith("site-")]
    assert {"health": ["site-memory-less"], "epilog": []} == found
