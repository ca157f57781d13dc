"""pyslurm, which no Debian release can build: on objects made of recorded samples, and in every way it fails.

The package is copied beside a stand-in module ``pyslurm``, so that the real child imports it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import hpslurm
from hpslurm.core.values import replace
from hpslurm.sources import pyslurm_child, slurm

SAMPLES = Path(__file__).with_name("slurm")


def number(value):
    return value["number"] if isinstance(value, dict) else value


def as_pyslurm(raw):
    """A node as pyslurm shows it: the attributes that 22.5, 24.11 and 25.11 have in common."""
    words = raw["state"] if isinstance(raw["state"], list) else [raw["state"].upper(), *raw["state_flags"]]
    features = raw["features"] if isinstance(raw["features"], list) else raw["features"].split(",")
    active = raw["active_features"] if isinstance(raw["active_features"], list) else raw["active_features"].split(",")
    return SimpleNamespace(
        name=raw["name"],
        state="+".join(words),
        reason=raw["reason"] or None,
        reason_user=raw["reason_set_by_user"] or None,
        reason_time=number(raw["reason_changed_at"]),
        boot_time=number(raw["boot_time"]),
        slurmd_start_time=number(raw["slurmd_start_time"]),
        available_features=features,
        active_features=active,
        partitions=raw["partitions"],
        total_cpus=raw["cpus"],
        allocated_cpus=raw["alloc_cpus"],
        comment=raw["comment"] or None,
        extra=raw["extra"] or None,
        address=raw["address"],
        hostname=raw["hostname"],
        slurm_version=raw.get("version") or raw.get("slurmd_version"),
    )


@pytest.mark.parametrize("release", ["22.05.8", "24.11.5", "25.11.7", "26.05.5"])
def test_pyslurm_and_scontrol_lead_to_equal_nodes(release):
    text = (SAMPLES / release / "nodes.json").read_text()
    raw = json.loads(text)["nodes"]
    module = SimpleNamespace(
        __version__="0", Nodes=SimpleNamespace(load=lambda: {one["name"]: as_pyslurm(one) for one in raw})
    )
    first, *lines, last = [json.loads(json.dumps(line)) for line in pyslurm_child.lines("nodes", module)]
    assert ({"pyslurm": "0"}, {"end": 16}) == (first, last)
    wanted = [replace(node, gres="", instance_id=None, instance_type=None) for node in slurm.nodes_of_json(text)]
    assert wanted == [slurm.node_of_line(line) for line in lines]


@pytest.mark.parametrize(("used", "state"), [(7, "MIXED"), (8, "ALLOCATED")])
def test_a_node_in_use_in_part_is_called_as_scontrol_calls_it(used, state):
    # seen on 22.05: pyslurm says ALLOCATED for both
    raw = json.loads((SAMPLES / "26.05.5" / "nodes.json").read_text())["nodes"][0]
    raw.update(state=["ALLOCATED"], cpus=8, alloc_cpus=used)
    assert state == slurm.node_of_line(pyslurm_child.node_line(as_pyslurm(raw))).state


def test_a_job_of_pyslurm_is_a_line_of_the_queue():
    job = SimpleNamespace(
        id=7, state="PENDING", user_name="alice", user_id=1001, partition="all", num_nodes=2, start_time=None,
        end_time=None, allocated_nodes=None, state_reason="Resources",
    )  # fmt: skip
    wanted = slurm.Queued(7, "PENDING", "alice", 1001, "all", 2, None, None, "", "Resources")
    assert wanted == slurm.queued_of_line(pyslurm_child.job_line(job))


NODE = "type('N', (), {'state': 'IDLE+DRAIN', '__getattr__': lambda self, name: 'n1' if name == 'name' else None})()"
GOOD = f"""
class Nodes:
    @staticmethod
    def load():
        return {{'n1': {NODE}}}
"""
ASK = """
import sys; sys.path.insert(0, sys.argv[1])
from hpslurm.sources import slurm
from hpslurm.sources.host import Host
lines, note = slurm.from_pyslurm(Host(env={"SLURM_CONF": sys.argv[2]}), "pyslurm_nodes", seconds=float(sys.argv[3]))
print([line["name"] for line in lines] if lines else lines, "|", note)
"""


@pytest.fixture
def ask(tmp_path):
    """Ask nodes through a stand-in ``pyslurm``; what came, and why it did not."""
    shutil.copytree(Path(hpslurm.__file__).parent, tmp_path / "hpslurm", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "slurm.conf").touch()

    def asked(source, seconds=20.0, conf="slurm.conf"):
        (tmp_path / "pyslurm").mkdir(exist_ok=True)
        (tmp_path / "pyslurm" / "__init__.py").write_text(source)
        words = [sys.executable, "-I", "-c", ASK, str(tmp_path), str(tmp_path / conf) if conf else "", str(seconds)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.strip()

    return asked


def test_a_pyslurm_that_works_is_used(ask):
    assert "['n1'] |" == ask(GOOD)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("raise ImportError('undefined symbol: slurm_x')", "pyslurm: ImportError: undefined symbol: slurm_x"),
        ("import os, sys; print('no conf', file=sys.stderr, flush=True); os._exit(1)", "pyslurm: no conf"),
        ("class RPCError(Exception): pass\nclass Nodes:\n def load(): raise RPCError('no controller')",
         "pyslurm: RPCError: no controller"),
        ("import os; os.kill(os.getpid(), 11)", "pyslurm: exit status -11"),
        (GOOD + "\nimport os, sys\nsys.stdout.flush()\nprint('{}')\n", "pyslurm: its output is cut off"),
        (GOOD + "\nprint('hello')\n", "pyslurm: printed no nodes"),
        ("class Nodes:\n def load(): return {1: object()}", "pyslurm: AttributeError"),
    ],
)  # fmt: skip
def test_a_pyslurm_that_fails_leaves_the_word_to_scontrol_and_says_why(ask, source, why):
    out = ask(source)
    assert out.startswith("None |")
    assert why in out


def test_a_pyslurm_that_hangs_is_left_behind(ask):
    assert "None | pyslurm did not answer within 1 s" == ask(
        "import time\nclass Nodes:\n def load(): time.sleep(600)", 1
    )


def test_without_a_slurm_conf_it_is_not_even_imported(ask):
    assert "None |" == ask("raise SystemExit(5)", conf="")
