"""How many lines, hosts and bytes count in a scan: at each number and one step beside it."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pytest

from hpslurm.core import records, toml
from hpslurm.core.finding import NOISE, P0, ROOT, SYMPTOM, Culprit, Diagnosis, Event, Finding, Rule
from hpslurm.core.linear import LONGEST
from hpslurm.scan import (
    collect,
    culprit,
    diagnoses,
    flight,
    hit,
    hypotheses,
    joblog,
    life,
    lines,
    many,
    match,
    model,
    nccl_rows,
    nccl_tests,
    places,
    prefix,
    reason,
    trouble,
)
from hpslurm.scan.checks import CHECKS, slurm
from hpslurm.scan.collect import Collector
from hpslurm.scan.diagnoses import EPILOG, REPORT, Kept
from hpslurm.scan.hit import Context, Hit
from hpslurm.scan.patterns import Pattern
from tests.scan.cases import case_of

NO_WORDS = re.match(r"(?P<test>x)?(?P<health>x)?", "")
assert NO_WORDS


def event(line: int = 1, **more: object) -> Event:
    words = {"pattern": "x", "role": ROOT, "file": "a", "line": line, "text": "", **more}
    return Event(**words)  # type: ignore[arg-type]


def around(before: str, line: str, after: str = "") -> Context:
    """The lines around one, in a block."""
    text = f"{before}{line}\n{after}".encode()
    return Context(bytearray(text), len(text), len(before), len(before) + len(line))


def hit_of(line: str) -> Hit:
    return Hit("x", ROOT, "app_error", 50, line, prefix.read(line))


# checks of lines


@pytest.mark.parametrize("tasks, named", [((3,), "3"), ((3, 3), "3"), ((3, 5), None)])
def test_one_task_alone_is_who_did_not_come(tasks: tuple[int, ...], named: str | None) -> None:
    seen = hit_of(f"Timed out task names: {' '.join(f'/job:w/replica:0/task:{task}' for task in tasks)}")
    assert CHECKS["missingtasks"](seen, NO_WORDS, around("", seen.line))
    assert named == seen.facts.get("named_rank")


@pytest.mark.parametrize("above, test", [("| Memory |\n", "Memory"), ("| Memory\n", None)])
def test_the_test_of_dcgm_stands_between_two_bars(above: str, test: str | None) -> None:
    seen = hit_of("| Fail: GPU 3 |")
    assert (test is not None) is CHECKS["dcgm"](seen, NO_WORDS, around(above, seen.line))
    assert test == seen.facts.get("test")


@pytest.mark.parametrize("hosts, several", [(("n1", "n1"), False), (("n1", "n2"), True)])
def test_two_hosts_are_several(hosts: tuple[str, ...], several: bool) -> None:
    above = "".join(f"#  Rank  {rank} Pid 77 on  {host} device  0\n" for rank, host in enumerate(hosts))
    assert several is CHECKS["multinode"](hit_of("x"), NO_WORDS, around(above, "x"))


@pytest.mark.parametrize("ended, named", [("0-2,4", "3"), ("0-1,4", None)])
def test_the_one_task_that_slurm_did_not_end_failed(ended: str, named: str | None) -> None:
    seen = hit_of("x")
    slurm._ended_without(seen, around("", "x", f"srun: error: n1: tasks {ended}: Terminated\n"))
    assert named == seen.facts.get("named_rank")


@pytest.mark.parametrize("above, rank", [(2, None), (3, 3)])
def test_three_lines_above_tell_whose_line_it_is(above: int, rank: int | None) -> None:
    assert rank == hit.rank_of_neighbours(around("[rank3]: hello\n" * above, "x"))
    assert None is hit.rank_of_neighbours(around("[rank4]: hello\n" + "[rank3]: hello\n" * above, "x"))


def test_eight_kibibytes_before_a_line_are_looked_at_and_thirty_two_behind_it() -> None:
    context = around("a\n" * 20_000, "x", "b\n" * 20_000)
    assert (4096, 16384) == (len(context.before(99_999)), len(context.after(99_999)))


def test_a_row_of_the_table_takes_no_weight_away_unless_it_says_so() -> None:
    seen = hit_of("x")
    seen.turn(model.Turn("a", "b"))
    assert 50 == seen.weight
    seen.turn(model.Turn("a", "b", less=7))
    assert 43 == seen.weight


def test_a_row_of_the_table_says_only_what_is_out_of_the_ordinary() -> None:
    plain = Pattern("a", "b", "c", ROOT, "d", "e", "f")
    assert not any((plain.transient, plain.outlived, plain.echo, plain.part, plain.benign, plain.late, plain.teardown))


# what is looked at


@pytest.fixture
def taken() -> collect._File:
    return collect._File(Collector(), "job.out", match.finder((b"x",)))


def test_thirty_lines_before_a_trigger_and_sixty_behind_it_are_looked_at(taken: collect._File) -> None:
    text = bytearray(b"x\n" * 200)
    taken._window(text, len(text), 200, 201, 101)
    assert (71, 161, 91) == (min(taken.between), max(taken.between), len(taken.between))


def test_two_hundred_windows_of_a_file_are_looked_at(taken: collect._File) -> None:
    trigger = min(taken.owner.triggers)
    text = bytearray(b"x\n")
    for number in range(1, 202):
        assert taken.windows == min(200, number - 1)
        taken.examine(text, len(text), 0, 1, 100 * number, [trigger])
    assert 200 == taken.windows


def test_sixty_thousand_events_are_kept_and_every_root() -> None:
    collector = Collector()
    symptom = event(role=SYMPTOM)
    for number in range(60_001):
        collector.keep((number,), symptom)
    assert 60_000 == len(collector.events)
    collector.keep(("root",), event())
    assert 60_001 == len(collector.events)


@pytest.mark.parametrize("at, begin", [(LONGEST - 512, 1), (LONGEST - 511, LONGEST // 2 - 511)])
def test_of_a_line_that_is_too_long_512_bytes_behind_the_hit_are_looked_at(at: int, begin: int) -> None:
    data = bytearray(b"\n" + b"x" * 3 * LONGEST)
    assert (begin, begin + LONGEST) == match._bounds(data, at, len(data))


@pytest.mark.parametrize("lines, found", [(20_000, 20_000), (20_001, 20_000)])
def test_a_literal_is_looked_up_on_twenty_thousand_lines(lines: int, found: int) -> None:
    pytest.importorskip("hyperscan")
    data = bytearray(b"abc\n" * lines)
    assert found == len(list(match.finder((b"abc",))(data, len(data), 0, len(data))))


# who is to blame


def lines_of(*pairs: tuple[str, int]) -> list[Event]:
    return [event(pattern="desync-detected", rank=rank, facts=(("named_rank", named),)) for named, rank in pairs]


@pytest.mark.parametrize(
    "pairs, voted",
    [((("5", 1), ("5", 2)), ""), ((("5", 1), ("5", 2), ("5", 3)), "5"), ((("5", 1), ("2", 1), ("5", 2)), "")],
)
def test_three_lines_make_a_vote(pairs: tuple[tuple[str, int], ...], voted: str) -> None:
    events = lines_of(*pairs)
    assert voted == culprit._voted(events[0], events)


@pytest.mark.parametrize("host, named", [("n1", None), ("n2", 3)])
def test_where_two_hosts_say_the_same_the_launcher_says_who_was_first(host: str, named: int | None) -> None:
    first, other = event(cause="gpu_oom", host="n1"), event(2, cause="gpu_oom", host=host)
    end = event(3, pattern="launcher-child", rank=3, host="n2", cause="app_error")
    told = culprit._completed(case_of(first, other, end), first, Culprit(host="n1"), [first, other, end])
    assert (named, "n2" if named else "n1") == (told.rank, told.host)


@pytest.mark.parametrize("ends, named", [((3,), 3), ((3, 4), None)])
def test_the_one_process_that_ended_is_the_one_to_blame(ends: tuple[int, ...], named: int | None) -> None:
    chosen = event(cause="gpu_oom")
    told = [event(2 + rank, pattern="mpi-exit", rank=rank, host="n1", facts=(("block", "1"),)) for rank in ends]
    assert named == culprit._from_others(chosen, Culprit(), [chosen, *told]).rank


@pytest.mark.parametrize("hosts, only", [(("n1", "n1.local"), "n1"), (("n1", "n2"), None)])
def test_a_file_may_speak_of_one_host_only(hosts: tuple[str, ...], only: str | None) -> None:
    assert only == culprit._only_host(event(cause="gpu_ecc"), [event(host=host) for host in hosts])


@pytest.mark.parametrize("lines, chosen", [((-3, 0), 0), ((-3, 5), 5), ((-3, -1), -3)])
def test_lines_counted_from_the_end_come_behind_those_from_the_beginning(lines: tuple[int, int], chosen: int) -> None:
    events = [event(line, cause="gpu_oom", weight=50) for line in lines]
    assert chosen == hypotheses._decisive(case_of(*events), events).line


@pytest.mark.parametrize("weight, follows", [(2, True), (3, False)])
def test_a_launcher_that_says_much_more_than_that_a_child_ended_follows_no_watchdog(weight: int, follows: bool) -> None:
    hang = event(1, pattern="watchdog", role=SYMPTOM, cause="collective_timeout_unknown", time=1.0)
    case = case_of(hang)
    row = case.patterns.by_id["launcher-child"]
    end = event(2, pattern="launcher-child", weight=row.weight + weight, time=2.0)
    assert follows is reason._follows_a_hang(case_of(hang, end), end)


@pytest.mark.parametrize("last, loud", [(4, False), (5, False), (6, True), (-1, True), (0, False)])
def test_trouble_behind_the_last_words_is_no_good_end(last: int, loud: bool) -> None:
    good = event(5, pattern="ended-well", role=NOISE)
    bad = event(last, cause=next(cause for cause, row in model.causes().items() if row.fatal))
    assert loud is bool(reason._not_fatal(case_of(good, bad), [bad]))


WATCHDOG = "collective_timeout_unknown"


@pytest.mark.parametrize("named, rank", [(("2",), 2), (("2", "3"), None)])
def test_the_one_rank_that_is_named_is_waited_for(named: tuple[str, ...], rank: int | None) -> None:
    told = [
        event(line, role=SYMPTOM, cause=WATCHDOG, rank=7, facts=(("named_rank", name),))
        for line, name in enumerate(named, 1)
    ]
    *_, blamed, _ = reason._hung(case_of(*told), "low", "", None, told[0], [])
    assert rank == (blamed.rank if blamed else None)


# what is kept of jobs


def kept(**more: object) -> Kept:
    return Kept(**{"job": 7, "time": 0.0, "cause": "gpu_oom", **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("apart, near", [(899.9, 1), (900.0, 0)])
def test_an_epilog_within_fifteen_minutes_is_of_the_same_run(apart: float, near: int) -> None:
    assert near == len(diagnoses.of_run([kept(source=EPILOG, time=apart)], 0.0))


@pytest.mark.parametrize("apart, near", [(86399.9, 1), (86400.0, 0)])
def test_a_report_within_a_day_is_of_the_same_job(apart: float, near: int) -> None:
    assert near == len(diagnoses.of_run([kept(source=REPORT, time=apart)], 0.0))


@pytest.mark.parametrize("when, count", [(0, 1), (-1, 0)])
def test_a_time_before_the_epoch_is_none(when: int, count: int) -> None:
    line = {"type": "job_diagnosis", "job": 7, "time": when}
    assert count == len(list(diagnoses.parse(json.dumps(line))))


RUN = {"job": 7, "time": 1796000000.0, "node": "n3", "instance": "i-1"}
MONTH = "diagnoses/2026-11/n3.jsonl"


def of_node(folder: Path, rules: int = 1) -> list[Kept]:
    """What an epilog that found so much of its node keeps."""
    found = [Finding(Rule(f"gpu-{number}", P0, "t", "x", "gpu_ecc"), "d") for number in range(rules)]
    diagnoses.keep_of_node(str(folder), RUN, "n[1-3]", [], found)
    return diagnoses.read([str(folder)], 0)[0][7]


@pytest.mark.parametrize("found, count", [(20, 20), (21, 20)])
def test_twenty_findings_of_a_node_are_kept(found: int, count: int, tmp_path: Path) -> None:
    assert [count] == [len(one.seen) for one in of_node(tmp_path, found)]


@pytest.mark.parametrize("size, written", [(4 << 20, True), ((4 << 20) + 1, False)])
def test_a_node_keeps_four_mebibytes_a_month(size: int, written: bool, tmp_path: Path) -> None:
    of_node(tmp_path)
    os.truncate(tmp_path / MONTH, size)
    if written:
        assert of_node(tmp_path)
    else:
        with pytest.raises(OSError, match="no more than"):
            of_node(tmp_path)


def test_what_is_kept_is_for_its_owner_to_write_and_for_the_group_to_read(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        of_node(tmp_path)
    finally:
        os.umask(old)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("diagnoses", "diagnoses/2026-11", MONTH)]
    assert [0o750, 0o750, 0o640] == modes


def test_old_months_stay_unless_somebody_says_for_how_long(tmp_path: Path) -> None:
    (tmp_path / "diagnoses").mkdir()
    (tmp_path / "diagnoses/2020-01.jsonl").write_text("")
    of_node(tmp_path)
    assert (tmp_path / "diagnoses/2020-01.jsonl").exists()


def test_a_pipe_in_place_of_the_folder_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "results")
    with pytest.raises(NotADirectoryError):
        diagnoses._append(f"{tmp_path}/results", "a.jsonl", b"", 1)


@pytest.mark.parametrize("ranks, there, told", [(4, 2, False), (5, 2, True), (4, 1, True)])
def test_fewer_than_half_of_the_ranks_are_left_behind(ranks: int, there: int, told: bool) -> None:
    of_rank = {number: event(rank=number) for number in range(ranks)}
    told_of = flight._left_behind(of_rank, dict(list(of_rank.items())[:there]), 1)
    assert told is (told_of is not None)


# a job's own output


def test_of_two_folders_a_thousand_files_beside_the_output_are_read(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for number in range(513):
            (tmp_path / folder / f"rank-77-{number}.log").touch()
    names = {"stdout": f"{tmp_path}/a/slurm-77.out", "stderr": f"{tmp_path}/b/slurm-77.err"}
    job = joblog.Job("77", "", os.getuid(), os.getgid(), **names)
    assert 1024 == len(joblog.beside(job))


def job_with(text: str, folder: Path) -> joblog.Job:
    (folder / "slurm-77.out").write_text(text)
    return joblog.Job("77", "", os.getuid(), os.getgid(), stdout=f"{folder}/slurm-77.out")


@pytest.mark.parametrize("given, count", [(199, 199), (201, 200)])
def test_two_hundred_events_are_recorded(given: int, count: int, tmp_path: Path) -> None:
    text = "".join(f"Jan  1 00:00:01 n{number} app: widget failed to move\n" for number in range(given))
    assert count == len(joblog.look(job_with(text, tmp_path), seconds=600).events)


def test_without_time_nothing_is_read(tmp_path: Path) -> None:
    assert () == joblog.look(job_with("hello\n", tmp_path), seconds=600).notes
    assert "no time left" in joblog.look(job_with("hello\n", tmp_path), seconds=0.0).notes[0]


@pytest.mark.parametrize("in_hook, path", [(False, "/a-4294967294"), (True, "/a-%a")])
def test_a_hook_may_not_know_the_task_of_an_array(in_hook: bool, path: str) -> None:
    assert path == joblog.path_of("/a-%a", joblog.Job("77", in_hook=in_hook))
    assert "/a-4294967294" == joblog.path_of("/a-%a", joblog.Job("77"))


WORK = "step 7 loss 2.1\n"


@pytest.mark.parametrize("worked, helped", [(1, False), (2, True)])
def test_two_lines_of_work_show_that_a_restart_helped(worked: int, helped: bool) -> None:
    said = ["will restart worker group", *[WORK.strip()] * worked]
    assert helped is ("restart" in [one.pattern for one in life.events("a", list(enumerate(said, 1)))])


def test_a_line_of_a_record_has_our_schema_and_words_of_400_signs() -> None:
    line = lines.event_line(event(text="x" * 300))
    assert records.SCHEMA == line["schema"]
    read_again = lines.event_of({**line, "file": "f" * 401})
    assert read_again is not None
    assert (400, 300) == (len(read_again.file), len(read_again.text))


def test_a_diagnosis_is_of_one_schema() -> None:
    assert records.SCHEMA == lines.diagnosis_line(Diagnosis("app_error", "low", ""))["schema"]


@pytest.mark.parametrize("size, several", [((64 << 20) - 1, False), (64 << 20, True)])
def test_a_second_process_is_worth_it_from_64_mebibytes_on(size: int, several: bool, tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    os.truncate(tmp_path / "a", size)
    assert several is many._worth([f"{tmp_path}/a"])


# nccl-tests


def row(size: int, bandwidth: float = 100.0, wrong: str = "0") -> str:
    half = f"100.0 1.0 {bandwidth} {wrong}"
    return f"  {size}  {size // 4}  float  sum  -1  {half}  {half}"


def patterns(*rows: str) -> list[str]:
    return [one.pattern for one in nccl_rows.events("a", list(enumerate(rows, 1))) if one.role == ROOT]


@pytest.mark.parametrize("wrong, told", [("0", []), ("1", ["tests-wrong"])])
def test_one_wrong_result_is_wrong(wrong: str, told: list[str]) -> None:
    assert told == patterns(row(1 << 20, wrong=wrong))


@pytest.mark.parametrize("bandwidth, told", [(0.5, ["tests-slow"]), (0.0, [])])
def test_a_bandwidth_of_nothing_is_no_figure(bandwidth: float, told: list[str]) -> None:
    assert told == patterns(row(1 << 30, bandwidth))


def test_figures_of_one_node_say_nothing_of_several() -> None:
    figures = [
        max(one["busbw"].values())
        for one in toml.whole("bandwidth")["row"]
        if one["type"] == "p5.48xlarge" and one["nodes"] >= 2
    ]
    assert min(figures) / 2 == nccl_rows._floor("H100", 2, "Running on p5.48xlarge")[0]


@pytest.mark.parametrize("text, error", [("0.01", 0), ("0.0101", 1), ("4e-07", 0), ("3", 3), ("N/A", None)])
def test_an_error_of_more_than_a_hundredth_is_wrong(text: str, error: int | None) -> None:
    assert error == nccl_tests.wrong_of(text)


@pytest.mark.parametrize("code, version", [(10000, "1.0.0"), (9999, "9.9.99"), (23102, "2.31.2"), (2804, "2.8.4")])
def test_a_number_of_five_digits_is_a_version_of_the_new_kind(code: int, version: str) -> None:
    assert version == nccl_tests.library_version(code)


@pytest.mark.parametrize(
    "words, piece",
    [("1 2 3 4 5", False), ("1 2 3 4 5 6", True), ("1 2 3 a b c", True), ("1 2 a b c d", False)],
)  # fmt: skip
def test_most_words_of_a_piece_of_a_row_are_numbers(words: str, piece: bool) -> None:
    assert piece is nccl_tests._is_piece(words)


SHORT = nccl_tests.Half(1.0, 1.0, 1.0, 0)


@pytest.mark.parametrize(
    "sizes, size, again",
    [((8,), 8, True), ((0,), 0, False), ((8, 8), 8, False), ((8, 16), 8, True), ((8, 16), 16, False)],
)
def test_the_smallest_size_behind_the_largest_begins_a_sweep(sizes: tuple[int, ...], size: int, again: bool) -> None:
    sweep = [nccl_tests.Row(one, one, "float") for one in sizes]
    assert again is nccl_tests._begins_again(sweep, nccl_tests.Row(size, size, "float"))


@pytest.mark.parametrize(
    "type_, width",
    [("half", 2), ("bfloat16", 2), ("float", 4), ("double", 8), ("int", 4), ("int32", 4), ("uint32", 4), ("int64", 8),
     ("uint64", 8), ("int8", 1)],
)  # fmt: skip
def test_a_number_has_the_bytes_of_its_type(type_: str, width: int) -> None:
    assert nccl_tests.fits(nccl_tests.Row(1200 * width, 1200, type_))
    assert not nccl_tests.fits(nccl_tests.Row(1200 * width - 1, 1200, type_))


def test_twenty_lines_of_a_kind_are_evidence() -> None:
    told: list[str] = []
    for number in range(21):
        nccl_tests._keep(told, str(number))
    assert 20 == len(told)


def test_nothing_has_no_lines_and_no_rows_without_a_header() -> None:
    output = nccl_tests.read([])
    assert (0, 0, 0, 0) == (output.lines, output.orphans, output.log.over_net, output.log.over_gdr)
    assert 0 == nccl_tests.Row(8, 2, "float").line
    read_row = nccl_tests.row_of(["8", "2", "float", "sum", "1.0", "1.0", "1.0", "0"], nccl_tests._COLUMNS[8])
    assert read_row is not None
    assert 0 == read_row.line


@pytest.mark.parametrize("time, read_", [("0", True), ("0.5", True), ("-1", False)])
def test_no_time_is_negative(time: str, read_: bool) -> None:
    words = f"8 2 float sum {time} 1.0 1.0 0".split()
    assert read_ is (nccl_tests.row_of(words, nccl_tests._COLUMNS[8]) is not None)


# who is where


def test_prefixes_of_a_line_are_peeled_ten_deep() -> None:
    assert ["x", "[rank1]: x"] == [prefix.read("[rank1]: " * deep + "x").text.strip() for deep in (10, 11)]


def test_ranks_of_one_host_make_one_node() -> None:
    said = [f"n1:7{rank}:7{rank} [{rank}] NCCL INFO comm 0x1 rank {rank} nranks 2" for rank in (0, 1)]
    alone = [one.pattern for one in places.identities("a", list(enumerate(said, 1)))]
    two = [one.pattern for one in places.identities("a", list(enumerate([said[0], said[1].replace("n1", "n2")], 1)))]
    assert ("one-node" in alone, "one-node" in two) == (True, False)


@pytest.mark.parametrize("given, count", [(4096, 4096), (4097, 4096)])
def test_four_thousand_tasks_of_a_file_are_told_apart(given: int, count: int) -> None:
    said = f"srun: error: n1: tasks 0-{given - 1}: Exited with exit code 1"
    assert count == len([one for one in places.tasks("a", [(1, said)]) if one.pattern == "task"])


@pytest.mark.parametrize("given, count", [(512, 512), (513, 512)])
def test_of_512_hosts_is_seen_what_they_have_alike(given: int, count: int) -> None:
    said = [(number, f"n{number}:1:1 [0] NCCL INFO NCCL version 2.27.5") for number in range(given)]
    assert count == len([one for one in places.traits("a", said) if one.pattern == "trait"])


@pytest.mark.parametrize("uptime, boots", [("119.9", True), ("120.0", False)])
def test_a_machine_boots_for_two_minutes(uptime: str, boots: bool) -> None:
    told = [trouble.event_of("a", 1, f"[{when}] nvidia: probe of 0000:01:00.0 failed with error -1", 2026)
            for when in (uptime, "500.0")]  # fmt: skip
    weights = [one.weight if one else 0 for one in told]
    assert boots is (weights[0] < weights[1])


@pytest.mark.parametrize("before, ours", [(300, True), (301, False)])
def test_a_line_of_nccl_tests_is_known_behind_three_hundred_signs(before: int, ours: bool) -> None:
    line = "nThread 1 nGpus 1"
    assert ours is (nccl_tests.bare(f"{'x' * (before - 4)}  # {line}").strip() == line)


@pytest.mark.parametrize("text, orphans", [("  8  2  float", 1), ("  8  2  loaves", 0), ("  8  2", 0)])
def test_size_count_and_type_make_a_row(text: str, orphans: int) -> None:
    assert orphans == nccl_tests.read([text]).orphans


@pytest.mark.parametrize("programs", [1, 2])
def test_each_program_lists_rank_0_once(programs: int) -> None:
    device = "#  Rank  0 Group  0 Pid  77 on  n1 device  0 [0x53] NVIDIA H100"
    (table,) = nccl_tests.read([device] * programs).tables
    assert programs == table.copies


@pytest.mark.parametrize("factor, by_factor, step", [(0, False, 5), (1, True, 1), (2, True, 2)])
def test_a_factor_of_nothing_is_a_step_in_bytes(factor: int, by_factor: bool, step: int) -> None:
    text = json.dumps({"config": {"step_factor": factor, "step_bytes": 5}, "results": []})
    (table,) = nccl_tests.read_json(text).tables
    assert table.parameters
    assert (by_factor, step) == (table.parameters.by_factor, table.parameters.step)


def test_a_line_around_another_is_read_to_4096_signs() -> None:
    assert [4096] == [len(line) for line in around("x" * 5000 + "\n", "y").before(1, 9999)]


def test_a_row_without_a_header_has_a_column_for_each_word() -> None:
    assert list(nccl_tests._COLUMNS) == [len(columns) for columns in nccl_tests._COLUMNS.values()]


@pytest.mark.parametrize("less, missing", [((1 << 20) - 1, 0), (1 << 20, 1)])
def test_of_as_many_ranks_as_there_may_be_a_size_is_rounded_by_a_mebibyte(less: int, missing: int) -> None:
    """16 bytes for each of 65,536 ranks, where the list of devices does not say how many there are."""
    asked = 8 << 20
    table = nccl_tests.Table(parameters=nccl_tests.Parameters(1, 1, asked, asked, 2, True, 1, True), first_line=1)
    table.rows.append(nccl_tests.Row(asked - less, 1, "float"))
    assert missing == table.missing


@pytest.mark.parametrize("before, cut", [(4074, True), (4075, False)])
def test_a_number_in_front_of_a_row_is_looked_for_in_4096_signs(before: int, cut: bool) -> None:
    row_ = "8  2  float  sum"
    line = f"{'x' * before} 1234     {row_}"
    assert (4096 if cut else 4097) == line.index("float ") + len("float ")
    assert (row_ if cut else line) == nccl_rows._without_number(line)
