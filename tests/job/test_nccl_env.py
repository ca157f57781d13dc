"""Every row of the table meets its example; values that may be secret stay inside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpslurm.core import records
from hpslurm.core.finding import P2
from hpslurm.core.policy import Policy
from hpslurm.core.probe import run
from hpslurm.core.values import replace
from hpslurm.job import nccl_env
from hpslurm.job.nccl_env import FOLDED, HARMFUL, Facts, collect, judge, left_over, parse_conf
from hpslurm.node.versions import order
from hpslurm.sources.host import Host
from tests.job import env_reference

P5 = Facts({}, {}, {}, "p5.48xlarge", "", "", ("lo", "ens32", "docker0"), 8)
ROWS = [(row, one) for row in nccl_env.table()["row"] for one in row["rules"]]


def facts(name: str, value: str, **changes: Any) -> Facts:
    shown = name.startswith(nccl_env.SHOWN)
    return replace(P5, settings={name: value} if shown else {}, hidden={} if shown else {name: value}, **changes)


def found(name: str, value: str, **changes: Any) -> list[str]:
    return [finding.rule.id for finding in judge(facts(name, value, **changes), Policy())]


def fitting(row: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """A machine and versions for which the rule is meant."""
    changes: dict[str, Any] = {}
    if "types" in one:
        changes["type"] = one["types"][0] + "48xlarge" if one["types"][0].endswith(".") else one["types"][0] + "xlarge"
    owner = {"nccl": "nccl", "aws-ofi-nccl": "plugin"}.get(row["owner"])
    if "plugin" in one:
        changes["plugin"] = one["plugin"][0] or "1.0"
    if owner and "versions" in one:
        changes[owner] = one["versions"][0] or "1.0"
    elif owner and one["verdict"] == "removed" and row.get("until"):
        changes[owner] = row["until"] + ".99"
    return changes


@pytest.mark.parametrize(("row", "one"), ROWS, ids=[f"{row['name']}-{one['verdict']}" for row, one in ROWS])
def test_each_rule_is_the_first_that_its_example_meets(row: dict[str, Any], one: dict[str, Any]) -> None:
    name = row["name"].replace("*", "RX_COPY_OOO")
    here = facts(name, one["example"], **fitting(row, one))
    if one["verdict"] in (HARMFUL, *FOLDED):
        met = nccl_env.judged(name, one["example"], here)
        assert met is not None
        assert (one["verdict"], one["why"]) == (met.rule["verdict"], met.rule["why"])
    else:
        assert nccl_env.matches(one, name, one["example"], here)
        assert [] == found(name, one["example"], **fitting(row, one))


def test_rows_are_sorted_and_each_variable_has_one() -> None:
    names = [row["name"] for row in nccl_env.table()["row"]]
    assert sorted(set(names)) == names


def test_only_harmful_rules_carry_an_id_and_may_fail() -> None:
    for row, one in ROWS:
        assert (one["verdict"] == HARMFUL) == ("id" in one), row["name"]
        assert one["verdict"] in (HARMFUL, *FOLDED, "fine", "recommended", "depends"), row["name"]
    assert {P2} == {rule.priority for rule in FOLDED.values()}


def test_an_id_has_one_priority() -> None:
    priorities: dict[str, set[str]] = {}
    for rule in nccl_env.table_rules():
        priorities.setdefault(rule.id, set()).add(rule.priority)
    assert {} == {id: found for id, found in priorities.items() if len(found) > 1}


def test_bounds_of_versions_are_versions() -> None:
    for row, one in ROWS:
        bounds = filter(None, (*one.get("versions", []), *one.get("plugin", [])))
        for version in (row.get("since", "1"), row.get("until", "1"), *bounds):
            assert order(version), row["name"]


SILENT = [
    ("NCCL_SOCKET_IFNAME", "^docker,lo,veth"),
    ("NCCL_SOCKET_IFNAME", "=ens32x,ens32"),
    ("NCCL_DEBUG", "WARN"),
    ("NCCL_NET", "ofi"),
    ("FI_PROVIDER", "efa;ofi_rxd"),
    ("FI_HMEM", "system,cuda"),
    ("NCCL_DEBUG_SUBSYS", "INIT,NET"),
    ("NCCL_P2P_LEVEL", "MAX"),
    ("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7"),
    ("FI_EFA_USE_DEVICE_RDMA", "true"),
    ("PATH", "/usr/bin"),
    ("NCCL_VERSION", "2.26.2"),
    ("NCCL_INSPECTOR_ENABLE", "1"),
    ("NCCL_RAS_ADDR", "localhost:28028"),
]


@pytest.mark.parametrize(("name", "value"), SILENT)
def test_a_harmless_value_is_no_failure(name: str, value: str) -> None:
    assert [] == [
        one for one in found(name, value) if one.startswith("env-") and one not in ("env-obsolete", "env-risky")
    ]


@pytest.mark.parametrize("value", ["system", "^cuda", "system,^cuda,rocr", "^rocr,CUDA"])
def test_memory_of_gpus_may_be_kept_from_libfabric_in_two_ways(value: str) -> None:
    assert ["env-fi-hmem"] == found("FI_HMEM", value)


def test_the_first_rule_that_matches_counts() -> None:
    assert ["env-nccl-socket-ifname"] == found("NCCL_SOCKET_IFNAME", "lo")
    assert ["env-risky"] == found("NCCL_SOCKET_IFNAME", "ens32")


def test_a_list_that_leaves_no_interface_is_harmful() -> None:
    assert ["env-nccl-socket-ifname"] == found("NCCL_SOCKET_IFNAME", "bond0")
    assert [] == found("NCCL_SOCKET_IFNAME", "bond0", interfaces=("lo", "bond0"))


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("ens", ["ens32", "ens33"]),
        ("=ens32", ["ens32"]),
        ("=ens3", []),
        ("ens32:1", ["ens32"]),
        ("^docker,lo", ["ens32", "ens33"]),
        ("^ens,docker", []),
    ],
)
def test_interface_lists_are_read_as_nccl_does(value: str, left: list[str]) -> None:
    assert left == left_over(value, ["lo", "ens32", "ens33", "docker0"])


def test_a_version_that_does_not_read_the_variable_yet_is_told() -> None:
    (finding,) = judge(facts("NCCL_NVLS_ENABLE", "0", nccl="2.16.2"), Policy())
    assert "env-ineffective" == finding.rule.id
    assert "NCCL_NVLS_ENABLE: nccl 2.16.2 does not read it yet; 2.17.1 is the first that does" == finding.detail


def test_a_version_that_still_reads_a_removed_variable_is_no_finding() -> None:
    assert [] == found("NCCL_CREATE_THREAD_CONTEXT", "1", nccl="2.26.2")
    assert ["env-removed"] == found("NCCL_CREATE_THREAD_CONTEXT", "1", nccl="2.30.7")
    assert ["env-removed"] == found("NCCL_CREATE_THREAD_CONTEXT", "1")


def test_one_variable_is_judged_by_instance_type() -> None:
    assert ["env-fi-efa-use-device-rdma-on"] == found("FI_EFA_USE_DEVICE_RDMA", "1", type="g5.48xlarge")
    assert ["env-obsolete"] == found("FI_EFA_USE_DEVICE_RDMA", "1", type="p5.48xlarge")
    assert [] == found("FI_EFA_USE_DEVICE_RDMA", "1", type="")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("NCCL_DEBUG_SUBSYSTEM", "NCCL_DEBUG_SUBSYS"),
        ("NCCL_IGNORE_CPU_AFINITY", "NCCL_IGNORE_CPU_AFFINITY"),
        ("FI_EFA_USE_DEVICE_RDMAS", "FI_EFA_USE_DEVICE_RDMA"),
        ("TORCH_NCCL_DEBUG_INFO_PIP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"),
        ("TORCH_FR_BUFER_SIZE", "TORCH_FR_BUFFER_SIZE"),
        ("TORCH_NCCL_BLOCKNG_WAIT", "TORCH_NCCL_BLOCKING_WAIT"),
        ("OFI_NCCL_PROTOCOLL", "OFI_NCCL_PROTOCOL"),
        ("OFI_NCCL_DISABLE_DMA_BUF", "OFI_NCCL_DISABLE_DMABUF"),
        ("NCCL_OFI_EAGER_MAX_SIZE", "OFI_NCCL_EAGER_MAX_SIZE"),
    ],
)
def test_a_typing_error_is_told_with_what_was_meant(name: str, meant: str) -> None:
    (finding,) = judge(facts(name, "1"), Policy())
    assert "env-unknown-name" == finding.rule.id
    assert f"meant: {meant}" in finding.detail


def test_a_name_that_resembles_none_is_still_told() -> None:
    (finding,) = judge(facts("NCCL_QUUX_ZZZ", "1"), Policy())
    assert "NCCL_QUUX_ZZZ: no NCCL up to 2.32.3 reads this name" == finding.detail
    assert [] == found("NCCL_QUUX_ZZZ", "1", nccl="2.33.0")  # its names are not known yet


def test_names_of_the_plugin_are_known_up_to_its_newest_source() -> None:
    (finding,) = judge(facts("OFI_NCCL_QUUX", "1", plugin="1.19.0"), Policy())
    assert "OFI_NCCL_QUUX: no aws-ofi-nccl up to 1.21.1 reads this name" == finding.detail
    assert [] == found("OFI_NCCL_QUUX", "1", plugin="1.22.0")
    assert [] == found("OFI_NCCL_QUUX", "1")


@pytest.mark.parametrize(
    "name",
    [
        "OFI_NCCL_CM_NUM_RX_BUFFERS",
        "OFI_NCCL_DISABLE_CLOSE_MESSAGE",
        "OFI_NCCL_GIN_CQ_PROCESS_MAX_ITER",
        "OFI_NCCL_MR_KEY_SIZE",
        "OFI_NCCL_NVTX_TRACE_DIMENSION",
        "OFI_NCCL_RDMA_MAX_POSTED_CONTROL_BUFFERS",
        "OFI_NCCL_RDMA_MAX_POSTED_EAGER_BUFFERS",
        "OFI_NCCL_RDMA_MIN_POSTED_CONTROL_BUFFERS",
        "OFI_NCCL_RDMA_MIN_POSTED_EAGER_BUFFERS",
        "OFI_NCCL_RR_CTRL_MSG",
        "OFI_NCCL_TUNER_NET_COMP_OVERHEAD",
        "NCCL_TESTS_DEVICE",
        "NCCL_TUNER_CONFIG_FILE",
        "NCCL_PROFILER_CE_TIMING",
        "NCCL_SHARP_DISABLE",
        "NCCL_IB_RAIL_POLICY",  # NCCL 2.32
        "NCCL_RUN_DIAGNOSTICS",  # NCCL 2.31
    ],
)
def test_a_name_that_something_reads_is_not_to_be_unset(name: str) -> None:
    assert [] == found(name, "1", plugin="1.21.0", nccl="2.30.7")


@pytest.mark.parametrize(
    ("name", "harmful"),
    [
        ("NCCL_SHARD_DISABLE", "NCCL_SHM_DISABLE"),
        ("NCCL_P2P_ENABLE", "NCCL_P2P_DISABLE"),
        ("NCCL_MIN_CTA", "NCCL_MAX_CTAS"),
    ],
)
def test_a_name_that_means_something_else_is_not_offered(name: str, harmful: str) -> None:
    (finding,) = judge(facts(name, "1"), Policy())
    assert harmful not in finding.detail


@pytest.mark.parametrize(
    ("plugin", "ids"),
    [("1.15.0", ["env-ofi-nccl-rdma-min-posted-bounce-buffers"]), ("1.14.2", ["env-pinned"]), ("", ["env-risky"])],
)
def test_bounce_buffers_keep_a_plugin_of_today_from_starting(plugin: str, ids: list[str]) -> None:
    assert ids == found("OFI_NCCL_RDMA_MIN_POSTED_BOUNCE_BUFFERS", "64", plugin=plugin)


@pytest.mark.parametrize("name", ["AWS Libfabric", "Libfabric", "OFI", "ofi"])
def test_the_plugin_answers_to_three_names(name: str) -> None:
    assert [] == found("NCCL_NET", name, plugin="1.13.0")
    assert [] == found("NCCL_NET", name)
    assert ([] if name == "AWS Libfabric" else ["env-nccl-net"]) == found("NCCL_NET", name, plugin="1.12.1")


def test_dma_buf_is_switched_on_only_where_it_was_off() -> None:
    assert [] == found("OFI_NCCL_DISABLE_DMABUF", "0", plugin="1.14.1")
    assert ["env-obsolete"] == found("OFI_NCCL_DISABLE_DMABUF", "0", plugin="1.14.2")


def test_unknown_names_of_libraries_whose_list_is_not_complete_are_left_alone() -> None:
    assert [] == found("TORCH_NCCL_SOMETHING_QUITE_NEW", "1")
    assert [] == found("TORCH_FR_SOMETHING_QUITE_NEW", "1")


@pytest.mark.parametrize("name", ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_RANKS_PER_ROOT", "TORCH_FR_CPP_STACK"])
def test_a_name_that_pytorch_reads_is_known_without_a_row(name: str) -> None:
    assert [] == found(name, "1")


def test_findings_of_one_verdict_are_one_finding() -> None:
    here = replace(P5, settings={"NCCL_DEBUG": "INFO", "NCCL_CHECK_POINTERS": "1"})
    (finding,) = judge(here, Policy())
    assert "env-leftover" == finding.rule.id
    assert ["NCCL_CHECK_POINTERS=1", "NCCL_DEBUG=INFO"] == [one.text for one in finding.evidence]


# the doors


def saved(tmp_path: Path, files: dict[str, str]) -> str:
    for path, text in {"/proc/sys/kernel/hostname": "n1\n", **files}.items():
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return str(tmp_path)


def test_values_of_other_variables_leave_the_process_nowhere(tmp_path: Path) -> None:
    secret = "hunter2-aws-ofi-nccl"
    env = {
        "LD_LIBRARY_PATH": f"/{secret}",
        "AWS_SECRET_ACCESS_KEY": secret,
        "WANDB_API_KEY": secret,
        "FOO_OFI_NCCL_PROTOCOL": secret,
        "OFI_NCCL_PROTOCOL": "SENDRECV",
        "LD_PRELOAD": f"/nccl/{secret}",
        "NCCL_PROXY_TOKEN": secret,
        "TORCH_SITE_SECRET": secret,
        "NCCL_P2P_DISABLE": "1",
    }
    result = run("nccl_env", nccl_env, Host(saved(tmp_path, {}), env=env), Policy())
    text = json.dumps(list(records.lines(Policy(), {}, "check", [result])), default=str)
    assert "hunter2" not in text
    assert "LD_PRELOAD (value not shown)" in text
    assert "NCCL_PROXY_TOKEN=(not shown)" in text
    assert "NCCL_P2P_DISABLE=1" in text
    assert "SENDRECV" == result.facts["settings"]["OFI_NCCL_PROTOCOL"]  # type: ignore[index]
    assert ["LD_LIBRARY_PATH", "LD_PRELOAD"] == result.facts["hidden"]  # type: ignore[index]


def test_a_setting_in_a_file_names_the_file_and_the_environment_wins(tmp_path: Path) -> None:
    root = saved(
        tmp_path,
        {
            "/etc/nccl.conf": "# site\nNCCL_P2P_DISABLE=1\nNCCL_NET = Socket\nnonsense\n",
            "/home/u/.nccl.conf": "NCCL_NET=ofi\n",
        },
    )
    here = collect(Host(root, env={"HOME": "/home/u"}))
    assert {"NCCL_P2P_DISABLE": "1", "NCCL_NET": "ofi"} == here.settings
    assert {"NCCL_P2P_DISABLE": "/etc/nccl.conf", "NCCL_NET": "/home/u/.nccl.conf"} == here.files
    assert "0" == collect(Host(root, env={"NCCL_P2P_DISABLE": "0"})).settings["NCCL_P2P_DISABLE"]


def test_a_conf_file_that_is_named_but_missing_is_told(tmp_path: Path) -> None:
    assert (
        "/fsx/nccl.conf (NCCL_CONF_FILE) does not exist"
        in collect(Host(saved(tmp_path, {}), env={"NCCL_CONF_FILE": "/fsx/nccl.conf"})).trouble
    )


def test_lines_of_a_conf_file() -> None:
    assert [("A", "1"), ("B", "x=y")] == list(parse_conf("A=1\n#C=2\n  B = x=y \n=5\nno line\n"))


def test_the_reference_says_what_the_table_says() -> None:
    told = "run: python tests/job/env_reference.py"
    assert env_reference.section() in env_reference.GUIDE.read_text(), told


def test_this_process_can_be_looked_at() -> None:
    result = run("nccl_env", nccl_env, Host(env=dict(os.environ)), Policy())
    assert result.facts is not None


def test_no_name_that_nccl_reads_is_taken_for_a_secret() -> None:
    assert [] == [name for name in nccl_env.rows() if nccl_env._SECRET.search(name)]
