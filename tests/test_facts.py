"""The comparison of tables with their sources, on sources made by hand, and the date in each table."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from datetime import date, timedelta
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("facts_tool", ROOT / "docs/facts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["facts_tool"] = module
    spec.loader.exec_module(module)
    return module


facts = _load()
TODAY = date(2026, 12, 1)


def repository(folder: Path, files: dict[str, str], tag: str = "v2.30.7-1") -> str:
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    git = (
        "git",
        "-C",
        str(folder),
        "-c",
        "user.name=n",
        "-c",
        "user.email=n@example.com",
        "-c",
        "commit.gpgsign=false",
    )
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "all"), ("tag", tag)):
        subprocess.run([*git, *words], check=True, capture_output=True)
    return str(folder)


def compared(folder: Path, what: str, files: dict[str, str]) -> list[str]:
    return list(facts.SOURCES[what](facts.Source(repository(folder, files))))


def test_a_new_xid_and_another_name_are_told(tmp_path: Path) -> None:
    codes = {"ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS": 79, "GSP_RPC_TIMED_OUT": 119, "NEW_ONE": 999}
    header = "".join(f"#define {name} ({code})\n" for name, code in codes.items())
    switch = "    NVSWITCH_ERR_HW_HOST = 10000,\n    NVSWITCH_ERR_HW_NEW = 39999,\n"
    found = compared(
        tmp_path,
        "kernel-modules",
        {
            "src/common/sdk/nvidia/inc/nverror.h": header,
            "src/common/nvswitch/interface/ctrl_dev_nvswitch.h": switch,
        },
    )
    assert [
        "XIDs: 1 new: 999",
        "XIDs: 119 is GSP_RPC_TIMED_OUT there, GSP_RPC_TIMEOUT here",
        "SXIDs: 1 new: 39999",
    ] == found


def test_new_and_gone_names_of_nccl_are_told(tmp_path: Path) -> None:
    names = [name.split()[0] for name in facts.nccl_env.table()["present"] if name.split()[0] != "ALGO"]
    lines = "".join(f'NCCL_PARAM(X, "{name}", 0);\n' for name in (*names, "QUUX"))
    found = compared(tmp_path, "nccl", {"src/init.cc": lines})
    assert ["NCCL names: 1 new: QUUX", "NCCL names: 1 gone: ALGO"] == found


PLATFORM = """\
\t{
\t\t.name = "p4d.24xlarge",
\t\t.regex = NULL,
\t\t.gdr_required = false,
\t},
\t{
\t\t.name = "all",
\t\t/* the rest */
\t\t.regex = "^(p[4-9].*48xlarge|p4de|p6|g7e\\\\.(12|24|48)xlarge)",
\t\t.gdr_required = true,
\t},
"""


def test_names_of_the_plugin_and_who_needs_gpudirect_are_told(tmp_path: Path) -> None:
    listed = set(facts.nccl_env.table()["plugin_present"]) - {"PROTOCOL", "FORCE_PRODUCT_NAME"}
    bounce = {f"RDMA_{word}_POSTED_BOUNCE_BUFFERS" for word in ("MIN", "MAX")}
    params = "".join(f'OFI_NCCL_PARAM(bool, x, "{name}", false);\n' for name in (*listed, *bounce, "QUUX"))
    found = compared(tmp_path, "plugin", {"include/nccl_ofi_param.h": params, "src/platform-aws.cpp": PLATFORM})
    assert [
        "plugin's names: 1 new: QUUX",
        "plugin's names: 1 gone: PROTOCOL",
        "plugin's platforms: GPUDirect on p4d.24xlarge: False there, True in node/gpudirect.py",
    ] == found


def torch_names() -> list[str]:
    return [f"{prefix}{name}" for prefix in ("TORCH_NCCL_", "TORCH_FR_") for name in facts.nccl_env.names_of(prefix)]


def test_new_and_gone_names_of_pytorch_are_told_with_their_digits(tmp_path: Path) -> None:
    names = [name for name in torch_names() if name != "TORCH_NCCL_BLOCKING_WAIT"]
    text = "".join(f'getCvarInt({{"{name}"}}, 0);\n' for name in (*names, "TORCH_NCCL_QUUX_P2P_MODE"))
    found = compared(tmp_path, "pytorch", {"torch/csrc/distributed/c10d/NCCLUtils.cpp": text})
    assert [
        "PyTorch's names: 1 new: TORCH_NCCL_QUUX_P2P_MODE",
        "PyTorch's names: 1 gone: TORCH_NCCL_BLOCKING_WAIT",
    ] == found


def test_of_pytorchs_wheel_headers_and_whole_strings_of_libraries_count(tmp_path: Path) -> None:
    """A mangled name is none; two strings that a compiler laid over each other are for a person to see."""
    first, second, *rest = torch_names()
    wheel = tmp_path / "torch-2.99.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("torch/include/torch/csrc/distributed/c10d/X.hpp", "\n".join(f'"{name}"' for name in rest))
        strings = "\0".join(("x", first, second, f"_ZN4c10dL20{first}E", f"{first}{second}", "TORCH_FR_QUUX", "y"))
        file.writestr("torch/lib/libtorch_cuda.so", strings)
    said = [line for line in facts.report([f"pytorch={wheel}"], TODAY) if "PyTorch" in line]
    assert [f"PyTorch's names: 2 new: TORCH_FR_QUUX {first}{second}"] == said


def test_flags_and_reasons_of_slurm_that_no_table_has_are_told(tmp_path: Path) -> None:
    flags = '\t{ NODE_STATE_DRAIN, "DRAIN" },\n\t{ NODE_STATE_NEW, "ASLEEP" },\n'
    code = 'drain_nodes(x, "Epilog error", 0);\nset_node_reason(n, "too old", now);\n'
    found = compared(tmp_path, "slurm", {"src/common/slurm_protocol_defs.c": flags, "src/slurmctld/a.c": code})
    assert ["Slurm's node flags: 1 new: ASLEEP", "Slurm's reasons: 1 new: 'too old'"] == found


def test_a_source_that_was_not_named_is_said(tmp_path: Path) -> None:
    assert "slurm: not compared, no checkout was named" in list(facts.report([], TODAY))
    with pytest.raises(SystemExit, match="one of kernel-modules=FOLDER"):
        list(facts.report(["linux=/x"], TODAY))
    with pytest.raises(SystemExit, match="is it the right repository"):
        list(facts.report([f"slurm={repository(tmp_path, {'a': 'b'})}"], TODAY))
    with pytest.raises(SystemExit, match=r"no commit v9\.9"):
        list(facts.report([f"pytorch={tmp_path}@v9.9"], TODAY))


def test_what_is_installed_is_as_the_tables_have_it() -> None:
    assert [] == list(facts.botocore())


def test_each_table_of_facts_says_when_it_was_compared() -> None:
    newest = max(
        date.fromisoformat(facts.COMPARED.search((ROOT / f"hpslurm/tables/{name}.toml").read_text())[1])
        for name in facts.FACTS
    )
    assert [] == list(facts.ages(newest))
    assert len(facts.FACTS) == len(list(facts.ages(newest + timedelta(days=facts.OLD + 2))))
