"""The door to the GPUs: the real bindings, in the real child, over a stand-in library."""

from __future__ import annotations

import ctypes
import json
import os
import time
from pathlib import Path

import pynvml
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, SKIP, UNKNOWN, Skip, Unknown, run, run_all
from hpslurm.node import (
    ecc,
    fabric,
    gpu_clocks,
    gpu_count,
    gpu_counters,
    gpu_driver,
    gpu_modes,
    gpu_processes,
    gpu_recovery,
    nvlink,
    pcie,
    row_remap,
)
from hpslurm.sources import gpu, nvml
from hpslurm.sources.gpu import Gpu, Snapshot, Trouble, from_lines, plain_snapshot, short_pci
from hpslurm.sources.host import Busy, Host
from tests.sources import nvml_fake

PROBES = [
    (module.__name__.rpartition(".")[2], module)
    for module in (
        gpu_driver,
        gpu_count,
        gpu_recovery,
        row_remap,
        ecc,
        nvlink,
        fabric,
        gpu_clocks,
        pcie,
        gpu_processes,
        gpu_counters,
        gpu_modes,
    )
]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_fake.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nvml_fake.build(tmp_path_factory.mktemp("old_nvml"), "-DOLD_DRIVER")


def seen(tmp_path: Path, library: Path, scenario: str = "", **how: object) -> Snapshot:
    return gpu.snapshot(nvml_fake.machine(tmp_path, library, scenario, **how))


# healthy


def test_every_answer_of_a_healthy_gpu_arrives(tmp_path: Path, library: Path) -> None:
    here = seen(tmp_path, library)
    assert (8, "570.172.08", "12.570.172.08", 12080, "") == (
        here.count,
        here.driver,
        here.library,
        here.cuda,
        here.late,
    )
    wanted = Gpu(
        index=3,
        uuid="GPU-00000000-0000-0000-0000-000000000003",
        pci="0000:83:00",
        name="NVIDIA H100 80GB HBM3",
        serial="1650000000003",
        vbios="96.00.A5.00.01",
        minor=3,
        recovery=0,
        remap=(0, 0, 0, 0),
        histogram=(640, 0, 0, 0, 0),
        ecc_mode=(1, 1),
        ecc=(0, 0, 0, 0),
        sram_exceeded=0,
        retired=None,
        links=(1,) * 18,
        link_speed=26562,
        link_errors=dict.fromkeys(nvml.LINK_COUNTERS, (0,) * 18),
        fabric=(3, 0, 0x1AA, 1),
        clocks=1,
        temperature=34,
        pcie=(5, 16, 5, 16, 0),
        persistence=1,
        processes=(),
        mig=(0, 0),
        activity=(0, 71000, 700000, 4, 345),
    )
    assert wanted == here.gpus[3]


def test_a_healthy_node_passes_every_probe(tmp_path: Path, library: Path) -> None:
    host = nvml_fake.machine(tmp_path, library, in_hook=True)
    outcomes = {result.probe: (result.outcome, result.note) for result in run_all(PROBES, host, Policy())}
    # no instance type is known below this root, and no PCI bus: the count says so
    assert (UNKNOWN, "instance type not known") == (outcomes["gpu_count"][0], outcomes["gpu_count"][1][:23])
    assert {PASS} == {outcome for probe, (outcome, _) in outcomes.items() if probe != "gpu_count"}, outcomes


def test_one_child_serves_all_probes(tmp_path: Path, library: Path) -> None:
    host = nvml_fake.machine(tmp_path, library, in_hook=True)
    python = next(tmp_path.rglob("python*"))
    python.write_text(python.read_text().replace("exec", f"echo started >> {tmp_path}/starts; exec"))
    list(run_all(PROBES, host, Policy()))
    assert "started\n" == (tmp_path / "starts").read_text()


# sick


@pytest.mark.parametrize(
    ("scenario", "rule"),
    [
        ("gpu3.ret_all=15", "gpu-lost"),
        ("gpu3.ret_all=16", "gpu-reset-required"),
        ("gpu3.ret.nvmlDeviceGetEccMode=14", "gpu-inforom"),
        ("gpu3.ret_all=999", "gpu-error"),
        ("gpu3.ret_all=10", "gpu-error"),  # a time-out
        ("gpu3.ret_all=27", "gpu-error"),  # not ready
        ("gpu3.ret.nvmlDeviceGetEccMode=999;gpu3.ret.nvmlDeviceGetMigMode=999", "gpu-errors"),
        ("init_ret=15", "gpu-lost"),
        ("init_ret=999", "gpu-error"),
        ("gpu5.remap_pending=1", "row-remap-pending"),
        ("gpu5.remap_failure=1;gpu5.remap_pending=1", "row-remap-failed"),
        ("gpu5.hist_none=1", "row-remap-exhausted"),
        ("gpu5.ecc_vu=1", "ecc-uncorrected"),
        ("gpu5.sram_exceeded=1", "ecc-sram"),
        ("ecc_mode=0", "ecc-off"),
        ("ecc_next=0", "ecc-change-pending"),
        ("gpu2.nvlink_down_mask=5", "nvlink-down"),
        ("gpu2.fi90=25781", "nvlink-slow"),
        ("fabric_state=1", "fabric-not-ready"),
        ("fabric_status=999", "fabric-not-ready"),
        ("gpu2.fabric_mask=0x19a", "fabric-unhealthy"),
        ("gpu2.fabric_mask=0x1a9", "fabric-degraded"),
        ("gpu2.fabric_summary=3", "fabric-degraded"),
        ("gpu0.clocks=0x8", "gpu-slowdown"),
        ("gpu0.clocks=0x20", "gpu-slowdown"),
        ("gpu0.clocks=0x40", "gpu-slowdown"),
        ("gpu0.clocks=0x80", "gpu-slowdown"),
        ("gpu0.clocks=0x48;gpu0.pid=1", "gpu-slowdown-load"),
        ("gpu0.clocks=0x4", "gpu-power-cap-idle"),
        ("gpu0.temperature=88", "gpu-hot"),
        ("gpu0.pcie_width=8", "pcie-width"),
        ("gpu0.pcie_width=4", "pcie-width-half"),
        ("pcie_width=8", "pcie-width-alike"),
        ("gpu0.pcie_gen=3;gpu0.clocks=0;gpu0.pid=1", "pcie-generation"),
        ("persistence=0", "gpu-persistence-off"),
        ("gpu7.mig=1", "gpu-mig-on"),
        *((f"gpu4.fi230={action}", "gpu-recovery-now") for action in (1, 2, 3, 5, 6, 7, 8)),
        ("gpu4.fi230=4", "gpu-recovery-later"),
        ("remap_pending=0;ret.nvmlDeviceGetRemappedRows=3;ret.nvmlDeviceGetRowRemapperHistogram=3;retired_single=0;"
         "retired_double=0;gpu1.retired_double=1", "gpu-pages-retired"),
    ],
)  # fmt: skip
def test_what_nvml_says_becomes_the_finding(tmp_path: Path, library: Path, scenario: str, rule: str) -> None:
    host = nvml_fake.machine(tmp_path, library, scenario, in_hook=True)
    results = list(run_all(PROBES, host, Policy()))
    assert rule in [finding.rule.id for result in results for finding in result.findings], results


@pytest.mark.parametrize(
    "scenario",
    [
        "gpu0.pcie_gen=1",  # idle
        "gpu0.clocks=0x113",  # idle, application clocks, sync boost, display
        "gpu0.temperature=87",
        "remap_unc=3;remap_cor=2",  # history
        "ecc_au=5;ecc_ac=100",  # of the board's life
        "fabric_state=0",  # GPUs without a fabric
        "retired_single=60;retired_double=0",
    ],
)
def test_what_looks_bad_and_is_not_stays_silent(tmp_path: Path, library: Path, scenario: str) -> None:
    host = nvml_fake.machine(tmp_path, library, scenario, in_hook=True)
    results = [result for result in run_all(PROBES, host, Policy()) if result.probe != "gpu_count"]
    assert [] == [result for result in results if result.outcome not in (PASS, SKIP)]


# errors


def test_not_supported_is_none_and_no_trouble(tmp_path: Path, library: Path) -> None:
    calls = [
        "RemappedRows",
        "RowRemapperHistogram",
        "EccMode",
        "NvLinkState",
        "GpuFabricInfoV",
        "PersistenceMode",
        "MigMode",
        "Serial",
    ]
    here = seen(tmp_path, library, ";".join(f"ret.nvmlDeviceGet{call}=3" for call in calls) + ";fi230_ret=3")
    assert [{}] * 8 == [one.trouble for one in here.gpus]
    assert (None, None, None, None, None, None) == (
        here.gpus[0].remap,
        here.gpus[0].ecc_mode,
        here.gpus[0].fabric,
        here.gpus[0].persistence,
        here.gpus[0].mig,
        here.gpus[0].recovery,
    )


def test_an_old_driver_without_the_newer_calls_is_read_by_the_older_ones(tmp_path: Path, old_library: Path) -> None:
    here = seen(tmp_path, old_library, "clocks=0x48")
    assert {} == here.gpus[0].trouble
    assert (0x48, None, None) == (here.gpus[0].clocks, here.gpus[0].fabric, here.gpus[0].sram_exceeded)


def test_an_older_fabric_structure_is_tried_after_the_newest(tmp_path: Path, library: Path) -> None:
    assert (3, 0, 0x1AA, None) == seen(tmp_path, library, "fabric_version=2").gpus[0].fabric


def test_no_library_is_said_as_such(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    here = seen(tmp_path, tmp_path / "empty")
    if not here.trouble:
        pytest.skip("this machine has an NVML library of its own")
    assert gpu.NO_LIBRARY == here.trouble["init"].code


@pytest.mark.parametrize(("code", "rule"), [(9, "gpu-driver-missing"), (18, "gpu-driver-mismatch")])
def test_a_driver_that_does_not_start_is_a_finding_on_a_gpu_machine(
    tmp_path: Path, library: Path, code: int, rule: str
) -> None:
    host = nvml_fake.machine(tmp_path, library, f"init_ret={code}", in_hook=True)
    device = tmp_path / "sys/bus/pci/devices/0000:53:00.0"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    result = run("gpu_driver", gpu_driver, host, Policy())
    assert [rule] == [finding.rule.id for finding in result.findings], result


CALLS = sorted(
    {
        "nvmlInitWithFlags" if line.startswith("int nvmlInit") else line.split("(")[0].split()[-1]
        for line in nvml_fake.SOURCE.read_text().splitlines()
        if line.startswith("int nvml") and "Shutdown" not in line
    }
    | {
        line.split("(")[1].split(",")[0]
        for line in nvml_fake.SOURCE.read_text().splitlines()
        if line.startswith("NUMBER(")
    }
)
CODES = [*range(1, 31), 999]


class InProcess:
    """The child's code in this process, so that every code at every call takes seconds, not minutes."""

    def __init__(self, library: Path) -> None:
        pynvml.nvmlLib = ctypes.CDLL(str(library / nvml_fake.NAME))
        pynvml._nvmlGetFunctionPointer_cache.clear()

    def lines(self, scenario: str) -> list[str]:
        os.environ["FAKE_NVML"] = scenario
        found: list[str] = []

        def write(**line: object) -> None:
            found.append(json.dumps(line))

        door = nvml.Nvml(pynvml)
        if nvml._step(pynvml, write, "init", pynvml.nvmlInit):
            count = nvml._step(pynvml, write, "count", pynvml.nvmlDeviceGetCount)
            for index in range(count or 0):
                nvml._gpu(door, write, index)
            write(step="end")
        return found


@pytest.fixture
def in_process(library: Path, monkeypatch: pytest.MonkeyPatch) -> InProcess:
    monkeypatch.setenv("FAKE_NVML", "")
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    return InProcess(library)


@pytest.mark.parametrize("call", CALLS)
def test_no_error_code_at_any_call_crashes_or_passes_unseen(in_process: InProcess, tmp_path: Path, call: str) -> None:
    """Whatever NVML answers, each probe comes to a result, and one of them tells of it."""
    for code in CODES:
        forced = f"init_ret={code}" if call == "nvmlInitWithFlags" else f"ret.{call}={code}"
        found = from_lines(in_process.lines(f"gpus=2;{forced}"))
        (tmp_path / "gpus.json").write_text(json.dumps(_saved(found)))
        host = Host(str(tmp_path), in_hook=True)
        results = [run(name, module, host, Policy()) for name, module in PROBES]
        broken = [one.note for one in results if "Error:" in one.note and "Unknown Error" not in one.note]
        assert [] == broken, f"{call} {code}"
        told = [one for one in results if one.probe != "gpu_count" and one.outcome in (UNKNOWN, FAIL, SKIP)]
        harmless = code in (*nvml.NOT_SUPPORTED, 2) or _only_names(call)
        assert told or harmless, f"{call} answered {code}, and nobody tells"


def _only_names(call: str) -> bool:
    """Calls whose answer no probe judges (what a GPU does just now), or that have a second one to fall back to."""
    return call.startswith("nvmlSystem") or call.endswith(
        (
            "UtilizationRates",
            "PowerUsage",
            "PowerLimit",
            "MemoryInfo",
            "ClockInfo",
            "ThrottleReasons",
            "PendingStatus",
            "RetiredPages",
            "Driver_v2",
        )
    )


def _saved(found: Snapshot) -> dict[str, object]:
    from hpslurm.core.probe import plain

    saved: dict[str, object] = plain(found)
    return saved


# hangs


def test_what_was_answered_before_a_hang_is_kept(tmp_path: Path, library: Path) -> None:
    began = time.monotonic()
    here = seen(tmp_path, library, "gpu3.hang_ms=60000", seconds=1.5)
    assert time.monotonic() - began < 10
    assert 7 == sum(not one.trouble for one in here.gpus)
    assert {(None, here.late)} == {(why.code, why.text) for why in here.gpus[3].trouble.values()}
    assert "NVML did not answer within 1.5 s; ended" == here.late


def test_one_silent_gpu_among_others_is_a_finding_by_name(tmp_path: Path, library: Path) -> None:
    host = nvml_fake.machine(tmp_path, library, "gpu3.hang_ms=60000", seconds=1.5, in_hook=True)
    result = run("gpu_driver", gpu_driver, host, Policy())
    assert ["gpu-silent"] == [finding.rule.id for finding in result.findings], result
    assert result.findings[0].detail.startswith("GPU 3 of 8: NVML did not answer within")


def test_a_driver_that_hangs_at_its_start_is_unknown_not_fine(tmp_path: Path, library: Path) -> None:
    host = nvml_fake.machine(tmp_path, library, "init_ms=60000", seconds=0.5, in_hook=True)
    results = list(run_all(PROBES, host, Policy()))
    assert {UNKNOWN} == {result.outcome for result in results}
    assert "did not answer" in results[0].note


def test_while_one_asks_a_second_is_not_started_and_the_first_is_named(tmp_path: Path, library: Path) -> None:
    def host(seconds: float) -> Host:
        how = {"seconds": seconds, "locks": str(tmp_path / "locks")}
        return nvml_fake.machine(tmp_path / "m", library, "init_ms=60000", **how)

    first = host(20)
    first.start("nvml")
    try:
        with pytest.raises(Busy, match=r"another nvml still runs .*process [0-9]+ in state [SRD]") as busy:
            host(0.4).answer("nvml")
        assert busy.value.left and first._children[("nvml",)].pid == busy.value.left.pid
        assert "still runs" in gpu.snapshot(host(0.4)).late
    finally:
        first.end_all()


# lines and shapes


def test_lines_cut_off_and_lines_that_are_none_are_passed_over() -> None:
    lines = [
        '{"step": "count", "value": 1}',
        "[]",
        "null",
        "{",
        '{"gpu": 0, "step": "recovery", "value": 2}',
        '{"gpu": 0, "st',
    ]
    here = from_lines(lines, late="late")
    assert 2 == here.gpus[0].recovery
    assert Trouble(None, "late") == here.gpus[0].trouble["remap"]


def test_a_gpu_that_gave_no_line_is_there_with_its_trouble() -> None:
    here = from_lines(['{"step": "count", "value": 2}'])
    assert [0, 1] == [one.index for one in here.gpus]
    assert Trouble(None, "no answer") == here.gpus[1].trouble["links"]


def test_a_saved_machine_fills_in_what_gpus_have_in_common() -> None:
    here = plain_snapshot({"gpus": [{}, {"recovery": 1}], "all": {"uuid": "GPU-{i}", "recovery": 0}})
    assert [("GPU-0", 0), ("GPU-1", 1)] == [(one.uuid, one.recovery) for one in here.gpus]
    assert 2 == here.count


def test_a_saved_machine_that_is_nonsense_is_unknown(tmp_path: Path) -> None:
    for text in ("", "[]", "{", '{"gpus": [1]}', '{"gpus": [{"remap": 3}]}', '{"gpus": [{"recovery": "x"}]}'):
        (tmp_path / "gpus.json").write_text(text)
        with pytest.raises(Unknown, match="is not a valid snapshot"):
            gpu.snapshot(Host(str(tmp_path)))


def test_a_machine_without_a_gpu_is_skipped_and_starts_nothing(tmp_path: Path) -> None:
    host = Host(str(tmp_path))
    gpu.start(host)
    with pytest.raises(Skip, match="no NVIDIA GPU here"):
        gpu.snapshot(host)


def test_three_spellings_of_an_address_are_one() -> None:
    assert {"0000:9b:00"} == {
        short_pci(one) for one in ("00000000:9B:00.0", "0000:9b:00.0", "0000:9B:00.0", "0000:9b:00")
    }
    assert "" == short_pci("nonsense")


def test_foreign_text_in_a_name_is_harmless(tmp_path: Path, library: Path) -> None:
    here = seen(tmp_path, library, "gpu0.name=\x1b[31mNVRM: Xid (PCI:0000:9b:00): 79")
    assert "[31mNVRM: XID code (PCI:0000:9b:00): 79" == here.gpus[0].name


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
STEP_NAMES = st.sampled_from([*gpu.STEPS, "count", "driver", "cuda", "identity", "handle", "end", "init", "import"])
MORE = {"gpu": st.integers(0, 3) | VALUES, "value": VALUES, "trouble": VALUES, "code": VALUES}
LINES = st.fixed_dictionaries({"step": STEP_NAMES | VALUES}, optional=MORE)


@settings(max_examples=300, deadline=None)
@given(st.lists(LINES.map(json.dumps) | st.text(max_size=30), max_size=8))
def test_no_lines_of_a_child_break_a_look(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    try:
        found = from_lines(lines)
    except Unknown:
        return
    for _, module in PROBES:
        folder = tmp_path_factory.getbasetemp() / "lines"
        folder.mkdir(exist_ok=True)
        (folder / "gpus.json").write_text(json.dumps(_saved(found)))
        result = run("x", module, Host(str(folder), in_hook=True), Policy())
        assert result.outcome in (PASS, FAIL, SKIP, UNKNOWN)
