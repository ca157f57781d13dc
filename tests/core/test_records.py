"""Records: what a hook writes is what report reads, and nothing of another's is trusted."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from hpslurm.core import records
from hpslurm.core.finding import LOOK, P0, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, Result

RULE = Rule("efa-missing", P0, "EFA devices missing", "debugging-guide.md § 6", cause="efa_not_used")
FOUND = Finding(RULE, "16 of 32", (Evidence("sysfs", "rdmap0s1"),), (Suggestion(LOOK, "see", "ls {nodes}"),), "n1")
RESULTS = [
    Result("memlock", PASS, "", 0.001, {"whose": "slurmd", "soft": "infinity"}),
    Result("efa", FAIL, "", 0.2, {"devices": ["rdmap0s1"]}, (FOUND,)),
]
ENV = {"SLURM_JOB_ID": "77", "SLURM_JOB_RESTART_COUNT": "2", "SLURM_JOB_EXIT_CODE2": "7:0"}


def write(folder: Path, job: str = "77", hook: str = "prolog", node: str = "n1") -> records.Writer:
    writer = records.Writer(str(folder), node, hook, job, os.getgid())
    for line in records.lines(Policy(node=node), ENV, hook, RESULTS):
        writer.write(line)
    return writer


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    write(tmp_path).close()
    (record,), troubles = records.job_records(str(tmp_path), "77")
    assert ([], True, "n1", "prolog") == (troubles, record.complete, record.node, record.hook)
    assert [FOUND] == record.findings
    assert [result.facts for result in RESULTS] == [result.facts for result in record.results]
    assert (77, 2, "7:0") == (record.run["job"], record.run["restart"], record.run["exit_code"])


def test_the_newest_record_of_the_node_is_the_jobs_record(tmp_path: Path) -> None:
    write(tmp_path).close()
    (record,), _ = records.node_records(str(tmp_path))
    assert [FOUND] == record.findings


def test_a_record_is_for_its_owner_and_the_jobs_group(tmp_path: Path) -> None:
    writer = write(tmp_path)
    writer.close()
    assert 0o640 == os.stat(writer.path).st_mode & 0o777
    assert 0o750 == os.stat(writer.folder).st_mode & 0o777


def test_a_part_that_is_left_over_is_read_as_cut_off(tmp_path: Path) -> None:
    writer = records.Writer(str(tmp_path), "n1", "epilog", "77", os.getgid())
    for line in list(records.lines(Policy(node="n1"), ENV, "epilog", RESULTS))[:-2]:
        writer.write(line)
    os.write(writer.handle, b'{"schema":1,"type":"fin')
    (record,), _ = records.job_records(str(tmp_path), "77")
    assert (False, 2) == (record.complete, len(record.results))


def test_a_whole_record_wins_over_an_old_part(tmp_path: Path) -> None:
    writer = write(tmp_path)
    writer.close()
    Path(writer.part).write_text("{}")
    (record,), _ = records.job_records(str(tmp_path), "77")
    assert record.complete


@pytest.mark.parametrize("node", ["../etc/passwd", ".hidden", "a b", "", "n1\n", "-x"])
def test_a_node_name_that_leaves_the_folder_is_refused(tmp_path: Path, node: str) -> None:
    with pytest.raises(ValueError, match="not a node name"):
        records.Writer(str(tmp_path), node, "prolog", "1")


@pytest.mark.parametrize("job", ["../1", "1a", "-1", "1\n"])
def test_a_job_id_that_is_no_number_is_refused(tmp_path: Path, job: str) -> None:
    with pytest.raises(ValueError, match="not a job id"):
        records.Writer(str(tmp_path), "n1", "prolog", job)


def test_a_results_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o777)
    with pytest.raises(PermissionError):
        records.Writer(str(tmp_path), "n1", "prolog", "1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_record_of_another_user_is_refused_and_named(tmp_path: Path) -> None:
    writer = write(tmp_path)
    writer.close()
    os.chown(writer.path, 4242, 4242)
    found, (trouble,) = records.job_records(str(tmp_path), "77")
    assert [] == found
    assert "n1.prolog.jsonl" in str(trouble)
    assert "refused" in str(trouble)


def test_a_link_in_the_place_of_a_record_is_refused(tmp_path: Path) -> None:
    writer = write(tmp_path)
    writer.close()
    os.rename(writer.path, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", writer.path)
    found, (trouble,) = records.job_records(str(tmp_path), "77")
    assert [] == found
    assert ("n1", "prolog") == (trouble.node, trouble.hook)
    assert "n1.prolog.jsonl" in str(trouble)


def test_control_characters_of_a_record_do_not_reach_the_terminal() -> None:
    result = json.dumps({"type": "result", "probe": "x\x1b[31m", "outcome": "fail"})
    finding = json.dumps({"type": "finding", "id": "a-b", "detail": "\x1b]0;t\x07"})
    record = records.parse(f"{result}\n{finding}", "n1", "prolog")
    assert "\x1b" not in record.results[0].probe + record.findings[0].detail


def test_lines_that_are_passed_over_are_known_by_their_numbers() -> None:
    record = records.parse('{"type":"run"}\nnull\n{"type":"end"}\n{"type":"e', "n1", "prolog")
    assert ((2, 4), False) == (record.strange, record.complete)
    assert () == records.parse('{"type":"end"}\n', "n1", "prolog").strange


@pytest.mark.parametrize(
    "text", ["", "null\n", "[]\n", '{"type":5}\n', '{"type":"end"}', '{"type":"result"}\n', "\xff", "[" * 200_000]
)
def test_a_strange_record_is_never_an_exception(text: str) -> None:
    assert "n1" == records.parse(text, "n1", "prolog").node


def test_a_copy_goes_to_the_shared_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    writer = write(tmp_path / "local")
    writer.close()
    assert "" == records.copy_to_shared(writer.path, str(tmp_path / "local"), str(shared), 5)
    assert [FOUND] == records.job_records(str(shared), "77")[0][0].findings
    assert [FOUND] == records.node_records(str(shared))[0][0].findings


def test_a_shared_folder_of_anybody_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    os.chmod(shared, 0o777)
    writer = write(tmp_path / "local")
    writer.close()
    assert "not copied" in records.copy_to_shared(writer.path, str(tmp_path / "local"), str(shared), 5)
    assert "others may write" in capfd.readouterr().err
    assert [] == list(shared.iterdir())


def test_a_child_that_hangs_costs_its_time_limit_only(tmp_path: Path) -> None:
    def hang() -> int:
        time.sleep(60)
        return 0

    assert "no answer within 0.2 s" == records.in_child(hang, 0.2, str(tmp_path), "copy")


def test_a_child_that_hangs_is_not_joined_by_a_second(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        records.in_child(lambda: time.sleep(3) or 0, 3, str(tmp_path), "copy")
        os._exit(0)
    time.sleep(0.3)
    assert "an earlier one still hangs" == records.in_child(lambda: 0, 0.2, str(tmp_path), "copy")
    os.waitpid(pid, 0)


def test_old_jobs_go_by_count_and_by_age(tmp_path: Path) -> None:
    for number in range(5):
        writer = write(tmp_path, job=str(number + 1))
        writer.close()
        changed = time.time() - (100 * 86400 if number == 0 else number)
        os.utime(writer.folder, (changed, changed))
    records.prune(str(tmp_path), keep_days=30, keep_jobs=2)
    assert ["2", "3"] == sorted(os.listdir(tmp_path / "jobs"))


def test_pieces_of_several_nodes_are_joined_however_they_mix() -> None:
    texts = {
        node: records.encode({"type": "run", "node": node, "x": "é" * 1500}, ascii_only=True) for node in ("n1", "n2")
    }
    cut = {node: list(records.pieces(node, text)) for node, text in texts.items()}
    assert all(len(piece) < 1000 and piece.isascii() for piece in cut["n1"])
    mixed = [piece for pair in zip(cut["n1"], cut["n2"], strict=True) for piece in pair]
    assert {node: f"{text}\n" for node, text in texts.items()} == records.joined([*mixed, "srun: something else", "n1"])


@pytest.mark.parametrize(
    "values",
    [{"job": {}, "time": []}, {"time": "soon"}, {"time": 1e300}, {"time": -1}, {"time": float("nan")}, {"job": True}],
)
def test_a_run_line_with_values_of_another_kind_is_read_without_them(values: dict[str, object]) -> None:
    line = {"type": "run", "node": "n1", "boot": "\x1b[31mb", **values}
    assert {"type": "run", "node": "n1", "boot": "[31mb"} == records.parse(json.dumps(line), "n1", "prolog").run
