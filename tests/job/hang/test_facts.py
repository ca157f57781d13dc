"""Samples as lines: what goes to a file or over srun comes back, and what anybody else wrote is made harmless."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpslurm.core import records
from hpslurm.job.hang import facts as hang_facts
from hpslurm.job.hang import gather as hang_gather
from hpslurm.job.hang import ranks as hang_ranks
from hpslurm.job.hang import sample as hang_sample
from hpslurm.job.hang.facts import Frame, Node, Rank
from hpslurm.sources.host import Host
from hpslurm.sources.processes import Process
from tests.fake import hanging

SLURM = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4"}


def test_a_saved_sample_is_the_same_when_it_is_read_again() -> None:
    sample = hanging.made(16, "gone", 1, 4, True, 0).sample
    lines = [json.loads(records.encode(line)) for line in hang_facts.lines_of(sample)]
    assert sample == hang_facts.sample_of(lines)


def test_equal_stacks_of_many_ranks_are_one_object() -> None:
    sample = hanging.made(64, "nobody", 0, 1, True, 0).sample
    read = hang_facts.sample_of(json.loads(records.encode(line)) for line in hang_facts.lines_of(sample))
    assert read is not None
    assert 1 == len({id(rank.stack) for rank in read.ranks})


def test_control_characters_of_a_foreign_sample_do_not_reach_the_terminal() -> None:
    line = {"type": "hang_node", "name": "n1\x1b[2J", "ranks": [{"stack": [["f\x1b]0;x\x07", "a.py", 3, False]]}]}
    read = hang_facts.sample_of([line])
    assert read is not None
    assert "\x1b" not in repr(read)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["type", "ranks", "stack", "later", "gpus", "children", "threads", "name", "pid", "world"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["ranks", "gpus", "zombies", "notes", "seconds", "ras", "efa"]), _JSON))
def test_any_json_is_a_sample_or_none(line: dict[str, object]) -> None:
    read = hang_facts.sample_of([{"type": "hang_node", "name": "n1", **line}])
    assert read is not None
    assert ["n1"] == [node.name for node in read.nodes]


def test_pieces_of_several_nodes_may_come_in_any_mixture() -> None:
    nodes = hanging.made(16, "data", 1, 1, True, 0).sample.nodes
    pieces = [
        list(records.pieces(node.name, records.encode(hang_facts.line_of(node), ascii_only=True))) for node in nodes
    ]
    joiner = hang_gather.Joiner()
    for turn in range(max(map(len, pieces))):
        for lines in pieces:
            if turn < len(lines):
                assert joiner.add(lines[turn])
    assert not joiner.add("srun: error: something else")
    assert {node.name: node for node in nodes} == joiner.nodes


def test_a_node_sends_at_most_64_kib_and_what_says_least_goes_first() -> None:
    deep = tuple(Frame(f"function_{number}" * 5, f"package/module_{number}.py", number, True) for number in range(60))
    ranks = tuple(
        Rank("n1", number, number, stack=deep, later=deep[1:], threads=(("t", deep),)) for number in range(64)
    )
    small = hang_gather.fitting(Node("n1", ranks, ras="x" * 100_000))
    assert len(records.encode(hang_facts.line_of(small), ascii_only=True)) <= 64 << 10
    assert 64 == len(small.ranks)


# which process is which rank


def process(pid: int, parent: int, name: str = "python3", cpu: float = 1.0, **env: str) -> Process:
    return Process(pid, parent, name, "S", 0.0, cpu, env={**SLURM, **env})


def ranks(*found: Process) -> list[tuple[int, int]]:
    return [(name.rank, one.pid) for name, one in hang_ranks.ranks_of(found)]


def test_torchruns_workers_are_the_ranks_and_not_torchrun_or_data_loaders() -> None:
    launcher = process(10, 1, SLURM_PROCID="0")
    workers = [process(11 + n, 10, SLURM_PROCID="0", RANK=str(n), LOCAL_RANK=str(n), WORLD_SIZE="2") for n in range(2)]
    loaders = [process(20 + n, 11, SLURM_PROCID="0", RANK="0", LOCAL_RANK="0", WORLD_SIZE="2") for n in range(3)]
    assert [(0, 11), (1, 12)] == ranks(launcher, *workers, *loaders)


def test_plain_srun_has_slurms_ranks_behind_a_shell() -> None:
    shell = process(10, 1, "bash", 0.0, SLURM_PROCID="3")
    assert [(3, 11)] == ranks(shell, process(11, 10, SLURM_PROCID="3"), process(12, 11, SLURM_PROCID="3"))


def test_a_program_without_python_is_who_takes_the_cpu_time() -> None:
    shell = process(10, 1, "bash", 0.0, SLURM_PROCID="3")
    assert [(3, 11)] == ranks(shell, process(11, 10, "xhpl", 99.0, SLURM_PROCID="3"))


def test_the_number_of_ranks_is_that_of_whoever_gave_the_rank() -> None:
    (name, _), *_ = hang_ranks.ranks_of([process(11, 1, SLURM_PROCID="0", RANK="5", WORLD_SIZE="16", LOCAL_RANK="5")])
    assert (5, 5, 16) == (name.rank, name.local, name.world)
    (name, _), *_ = hang_ranks.ranks_of([process(11, 1, SLURM_PROCID="1", SLURM_LOCALID="1")])
    assert (1, 1, 4) == (name.rank, name.local, name.world)


# stacks


def test_library_code_is_known_by_its_path_in_a_virtual_environment_and_in_a_container() -> None:
    assert (True, "torch/_tensor.py") == hang_sample.short_path(
        "/fsx/me/.venv/lib/python3.11/site-packages/torch/_tensor.py"
    )
    assert (True, "threading.py") == hang_sample.short_path("/usr/lib/python3.12/threading.py")
    assert (True, "asyncio/base_events.py") == hang_sample.short_path(
        "/opt/conda/lib/python3.10/asyncio/base_events.py"
    )
    assert (False, "llm/train.py") == hang_sample.short_path("/fsx/home/someone/llm/train.py")


def test_values_of_variables_are_never_taken_from_a_stack() -> None:
    row = {"name": "f", "filename": "/a/b.py", "line": 3, "locals": [{"name": "token", "repr": "secret"}]}
    assert Frame("f", "a/b.py", 3, False) == hang_sample.frame_of(row)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("py-spy is not installed: none of /usr/bin/py-spy", "py-spy is not installed on the nodes"),
        (
            "Permission Denied: Try running again with elevated permissions",
            "kernel.yama.ptrace_scope is 1: root gets them on a node (sudo hpslurm hang JOBID --here), all with 0, or",
        ),
        ("Failed to find python version from target process", "of some processes: Failed to find python version"),
    ],
)
def test_one_line_says_what_is_missing_and_what_would_bring_it(
    host_with: Callable[..., Host], said: str, words: str
) -> None:
    note = hang_sample.without_stacks(said, host_with({hang_sample.PTRACE: "1\n"}))
    assert words in note
    assert "\n" not in note


@pytest.mark.parametrize("scope", [{}, {hang_sample.PTRACE: "0\n"}])
def test_where_ptrace_scope_is_not_the_reason_it_is_not_blamed(
    host_with: Callable[..., Host], scope: dict[str, str]
) -> None:
    note = hang_sample.without_stacks("Permission Denied (os error 13)", host_with(scope))
    assert "to read the processes is not permitted: root gets them" in note
    assert "ptrace_scope" not in note
    assert "all with 0" not in note
