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
from hpslurm.core.probe import FAIL, PASS, UNKNOWN, Result

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


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_a_results_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    os.chmod(tmp_path, mode)
    with pytest.raises(PermissionError, match="group or others may write it"):
        records.Writer(str(tmp_path), "n1", "prolog", "1")


@pytest.mark.parametrize(("mode", "troubles"), [(0o644, 0), (0o620, 1), (0o602, 1)])
def test_a_record_that_others_may_write_is_refused(tmp_path: Path, mode: int, troubles: int) -> None:
    writer = write(tmp_path)
    writer.close()
    os.chmod(writer.path, mode)
    found, said = records.job_records(str(tmp_path), "77")
    assert (1 - troubles, troubles) == (len(found), sum("refused" in str(one) for one in said))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_belongs_to_root_is_believed_whoever_reads_it() -> None:
    os.seteuid(65534)
    try:
        records.refuse_foreign("/etc")
        assert "root:" in records.read_text("/etc/passwd")
    finally:
        os.seteuid(0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_jobs_folder_and_record_belong_to_its_group_in_the_shared_folder_too(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    writer = records.Writer(str(tmp_path / "local"), "n1", "prolog", "77", 4242)
    writer.close()
    assert "" == records.copy_to_shared(writer.path, str(tmp_path / "local"), str(tmp_path / "shared"), 5)
    for place in ("local", "shared"):
        for name in ("jobs/77", "jobs/77/n1.prolog.jsonl", "nodes/n1.prolog.jsonl"):
            about = (tmp_path / place / name).stat()
            assert (place, name, 0, 4242) == (place, name, about.st_uid, about.st_gid)
        assert 0 == (tmp_path / place / "jobs").stat().st_gid


def test_folders_and_records_have_their_modes_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    before = os.umask(0)
    try:
        writer = write(tmp_path / "local")
        writer.close()
        assert "" == records.copy_to_shared(writer.path, str(tmp_path / "local"), str(tmp_path / "shared"), 5)
    finally:
        os.umask(before)
    wanted = {"nodes": 0o755, "jobs": 0o755, "jobs/77": 0o750}
    wanted |= {f"{folder}/n1.prolog.jsonl": 0o640 for folder in ("nodes", "jobs/77")}
    assert wanted == {name: (tmp_path / "shared" / name).stat().st_mode & 0o777 for name in wanted}
    wanted |= {".": 0o755, "locks": 0o700, "locks/shared.lock": 0o600}
    assert wanted == {name: (tmp_path / "local" / name).stat().st_mode & 0o777 for name in wanted}


def test_a_part_of_an_earlier_start_is_written_anew(tmp_path: Path) -> None:
    writer = write(tmp_path)
    Path(writer.part).write_text("x" * 100_000)
    write(tmp_path).close()
    assert records.job_records(str(tmp_path), "77")[0][0].complete


def test_a_link_in_the_place_of_a_part_a_lock_or_a_copy_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for folder, name in (("results/nodes", "n1.prolog.jsonl.part"), ("locks", "copy.lock"), ("shared", "x.part")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).symlink_to(victim)
    with pytest.raises(OSError):
        records.Writer(str(tmp_path / "results"), "n1", "prolog")
    assert "no lock in" in str(records.in_child(lambda: 0, 1, str(tmp_path / "locks"), "copy"))
    (tmp_path / "shared/y.part").write_text("another's")
    for name in ("x", "y"):
        with pytest.raises(FileExistsError):
            records._copy(str(victim), str(tmp_path / f"shared/{name}.part"))
    assert ("mine", "another's") == (victim.read_text(), (tmp_path / "shared/y.part").read_text())


def test_of_a_record_sixteen_mebibytes_are_read(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.touch(0o600)
    os.truncate(path, (16 << 20) + 1)
    assert 16 << 20 == len(records.read_text(str(path)))


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
    os.mkfifo(Path(writer.folder) / "n2.prolog.jsonl", 0o600)  # and nobody waits for a pipe
    found, troubles = records.job_records(str(tmp_path), "77")
    assert [] == found
    assert ["n1.prolog.jsonl", "n2.prolog.jsonl"] == [f"{one.node}.{one.hook}.jsonl" for one in troubles]


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


def test_a_child_tells_by_its_exit_code_how_it_went(tmp_path: Path) -> None:
    assert 7 == records.in_child(lambda: 7, 5, str(tmp_path), "copy")
    assert 0 == records.in_child(lambda: os.write(1, b"to nobody") - 9, 5, str(tmp_path), "copy")


def test_a_child_that_breaks_is_no_success_and_says_why(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert 99 == records.in_child(lambda: int("seven"), 5, str(tmp_path), "copy")
    assert "hpslurm: copy: invalid literal" in capfd.readouterr().err


def test_a_child_keeps_nothing_open_that_the_hook_was_given(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)

    def open_files() -> int:
        return sum(int(name) > 2 for name in os.listdir("/proc/self/fd"))

    try:
        # the lock itself, and the folder that is being listed
        assert 2 == records.in_child(open_files, 5, str(tmp_path), "copy")
    finally:
        os.close(reader)
        os.close(writer)


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


def test_times_of_a_calendar_are_taken_to_its_ends() -> None:
    for when, kept in ((0, True), (0.5, True), (99_999_999_999, True), (100_000_000_000, False)):
        assert kept == ("time" in records.parse(json.dumps({"type": "run", "time": when}), "n1", "prolog").run)


def test_a_line_of_eight_hundred_characters_goes_in_one_piece() -> None:
    assert ["n1 . " + "x" * 800] == list(records.pieces("n1", "x" * 800))
    assert ["n1 + " + "x" * 800, "n1 . x"] == list(records.pieces("n1", "x" * 801))


def test_lines_are_of_the_first_schema_and_keep_letters_that_are_not_ascii() -> None:
    assert '{"schema":1,"type":"end","note":"é"}' == records.encode({**records._line("end"), "note": "é"})


def test_a_record_is_whole_unless_somebody_says_otherwise() -> None:
    assert records.Record("n1", "prolog", {}, ()).complete


def test_a_record_that_was_emptied_while_it_was_written_has_no_hole(tmp_path: Path) -> None:
    writer = records.Writer(str(tmp_path), "n1", "prolog")
    writer.write({"type": "run", "node": "n1"})
    os.truncate(writer.part, 0)
    writer.write({"type": "end"})
    writer.close()
    assert '{"type":"end"}\n' == Path(writer.path).read_text()


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c"])
def test_what_only_looks_like_the_end_of_a_line_moves_no_finding_to_another_probe(tmp_path: Path, odd: str) -> None:
    writer = records.Writer(str(tmp_path), "n1", "prolog", "77", os.getgid())
    named = Result("shm", FAIL, f"a{odd}b", 0.1, {"name": f"x{odd}y"}, (FOUND,))
    for line in records.lines(Policy(node="n1"), ENV, "prolog", [RESULTS[0], named]):
        writer.write(line)
    writer.close()
    (record,), _ = records.job_records(str(tmp_path), "77")
    assert (True, ()) == (record.complete, record.strange)
    assert {"shm": 1, "memlock": 0} == {result.probe: len(result.findings) for result in record.results}


def test_what_breaks_lines_or_cannot_be_written_leaves_as_an_escape() -> None:
    odd = "a\u2028b\u2029c\x85d\ud800e\x7ff"
    text = records.encode({"name": odd, "ü": 1})
    assert 1 == len(text.splitlines()) and "ü" in text
    text.encode("utf-8")
    assert odd == json.loads(text)["name"]


def old(folder: Path, job: str) -> Path:
    one = folder / "jobs" / job
    one.mkdir(parents=True)
    (one / "n1.prolog.jsonl").write_text("")
    os.utime(one, (1, 1))
    return one


def test_pruning_takes_old_jobs_and_follows_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "precious").write_text("")
    results = tmp_path / "results"
    gone = old(results, "1")
    (results / "jobs/2").symlink_to(victim)
    (results / "jobs").chmod(0o755)
    gone.chmod(0o750)
    os.utime(results / "jobs/2", (1, 1), follow_symlinks=False)
    records.prune(str(results), 30, 1000)
    assert (False, True) == (gone.exists(), (victim / "precious").exists())


def test_below_a_folder_that_others_may_rename_nothing_is_written_or_removed(tmp_path: Path) -> None:
    loose = tmp_path / "loose"
    one = old(loose / "results", "1")
    loose.chmod(0o777)
    records.prune(str(loose / "results"), 30, 1000)
    assert one.exists()
    with pytest.raises(PermissionError, match="may write"):
        records.Writer(str(loose / "results"), "n1", "prolog", "77")


@pytest.mark.parametrize(("mode", "refused"), [(0o755, False), (0o775, True), (0o757, True), (0o1777, False)])
def test_folders_above_are_root_s_alone_or_sticky(tmp_path: Path, mode: int, refused: bool) -> None:
    (tmp_path / "above/results").mkdir(parents=True)
    (tmp_path / "above").chmod(mode)
    if refused:
        with pytest.raises(PermissionError, match="may write"):
            records.refuse_foreign_above(str(tmp_path / "above/results"))
    else:
        records.refuse_foreign_above(str(tmp_path / "above/results"))


def test_five_hundred_jobs_are_removed_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o755)
    (tmp_path / "nodes").mkdir(mode=0o755)
    for number in range(502):
        (tmp_path / "jobs" / str(number)).mkdir(mode=0o750)
        os.utime(tmp_path / "jobs" / str(number), (number, number))
    records.prune(str(tmp_path), 30, 1000)
    assert {"500", "501"} == {folder.name for folder in (tmp_path / "jobs").iterdir()}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
@pytest.mark.parametrize("folder", ["jobs/77", "jobs", "."])
def test_readers_refuse_a_folder_that_others_may_write(tmp_path: Path, folder: str, mode: int) -> None:
    write(tmp_path).close()
    (tmp_path / folder).chmod(mode)
    found, (refused,) = records.job_records(str(tmp_path), "77")
    assert ([], True) == (found, "may write" in refused.why)
    assert os.path.realpath(tmp_path / folder) == refused.path
    if folder == ".":
        found, (refused,) = records.node_records(str(tmp_path))
        assert ([], True) == (found, "may write" in refused.why)


def test_readers_follow_a_link_to_the_results(tmp_path: Path) -> None:
    write(tmp_path / "there").close()
    (tmp_path / "here").symlink_to("there")
    assert 1 == len(records.job_records(str(tmp_path / "here"), "77")[0])


def test_the_shared_folder_is_cleaned_once_a_day_by_age(tmp_path: Path) -> None:
    local, shared = tmp_path / "local", tmp_path / "shared"
    writer = write(local, hook="epilog")
    writer.close()
    aged = old(shared, "5")
    for folder in (shared, shared / "jobs", aged):
        folder.chmod(0o755)
    (shared / "nodes").mkdir(mode=0o755)
    left = shared / "nodes/n2.prolog.jsonl.7.part"
    left.write_text("")
    os.utime(left, (1, 1))
    assert "" == records.copy_to_shared(writer.path, str(local), str(shared), 5)
    assert aged.exists()  # nobody asked
    assert "" == records.copy_to_shared(writer.path, str(local), str(shared), 5, 90)
    assert (False, False, True) == (aged.exists(), left.exists(), (shared / "jobs/77").exists())
    assert 0o644 == (shared / "nodes/.cleaned").stat().st_mode & 0o777
    again = old(shared, "6")
    again.chmod(0o755)
    assert "" == records.copy_to_shared(writer.path, str(local), str(shared), 5, 90)
    assert again.exists()  # not twice a day


def test_a_record_that_was_given_another_nodes_name_is_refused_and_blames_nobody(tmp_path: Path) -> None:
    writer = write(tmp_path, node="n1")
    writer.close()
    for folder in (f"{tmp_path}/jobs/77", f"{tmp_path}/nodes"):
        os.rename(f"{folder}/n1.prolog.jsonl", f"{folder}/n2.prolog.jsonl")
    for found, (refused,) in (records.job_records(str(tmp_path), "77"), records.node_records(str(tmp_path))):
        assert [] == found
        assert ("n2", "refused: n1 wrote it, not the node that the file is named after") == (refused.node, refused.why)


def test_a_record_that_was_cut_off_before_it_named_its_node_is_read(tmp_path: Path) -> None:
    writer = records.Writer(str(tmp_path), "n1", "epilog", "77", os.getgid())
    os.write(writer.handle, b'{"schema":1,"type":"ru')
    (record,), _ = records.job_records(str(tmp_path), "77")
    assert ("n1", False) == (record.node, record.complete)


def test_a_brief_reading_has_what_was_found_or_not_looked_at_and_the_names_of_the_rest() -> None:
    results = (
        Result("memlock", PASS, seconds=0.1, facts={"soft": 1}),
        Result("efa", FAIL, "in part", 0.1, {"devices": 16}, (FOUND,)),
        Result("shm", UNKNOWN, "may not look", facts={"size": 1}),
    )
    text = "".join(f"{records.encode(line)}\n" for line in records.lines(Policy(node="n1"), {}, "prolog", results))
    whole, brief = (records.parse(text, "n1", "prolog", brief=brief) for brief in (False, True))
    assert whole.findings == brief.findings and 1 == len(brief.findings)
    assert [(one.probe, one.outcome) for one in whole.results] == [(one.probe, one.outcome) for one in brief.results]
    assert ["", "in part", "may not look"] == [one.note for one in brief.results]
    assert {None} == {one.facts for one in brief.results}
    assert whole.run == brief.run and brief.complete
    assert not records.parse(text[:-9], "n1", "prolog", brief=True).complete
    assert (1,) == records.parse(text.replace('"version"', "version"), "n1", "prolog", brief=True).strange


def test_a_brief_reading_of_a_job_keeps_its_events_and_drops_facts(tmp_path: Path) -> None:
    writer = write(tmp_path)
    writer.write({"schema": 1, "type": "event", "pattern": "oom", "role": "root"})
    writer.close()
    (whole,), _ = records.job_records(str(tmp_path), "77")
    (brief,), _ = records.job_records(str(tmp_path), "77", brief=True)
    assert 1 == len(brief.events) and whole.events == brief.events
    assert whole.findings == brief.findings and whole.complete == brief.complete
    assert any(result.facts for result in whole.results) and {None} == {result.facts for result in brief.results}
