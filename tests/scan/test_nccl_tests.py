"""Lines here are as the versions print them; only hosts are invented."""

import json
import math
from pathlib import Path

import pytest

from hpslurm.scan import nccl_tests as output
from tests.fake import nccl_tests as fake

SAMPLES = Path(__file__).parent / "nccl_tests"
GIB = 1 << 30
RATES = {GIB: 437.0, 2 * GIB: 443.7, 4 * GIB: 465.9, 8 * GIB: 479.3}

OLD = (SAMPLES / "2.11.txt").read_text()

MIDDLE = (SAMPLES / "2.13.txt").read_text()

NEW = (SAMPLES / "2.20.txt").read_text()


def only(text):
    (table,) = output.read_text(text).tables
    return table


def test_columns_of_2_11_without_root_and_with_a_float_error_are_read_by_name():
    table = only(OLD)
    assert [(8, 0.0), (16, 0.02)] == [(row.size, row.inside.busbw) for row in table.rows]
    assert (0, 2, True, 0) == (table.rows[0].out.wrong, len(table.devices), table.complete, table.bounds)
    assert ("host3",) == table.hosts


def test_a_table_of_2_13_below_open_mpis_labels_is_read():
    table = only(MIDDLE)
    assert [313.29, 437.89] == [row.inside.busbw for row in table.rows]
    assert (("worker-0", "worker-1"), 375.565, True) == (table.hosts, table.average, table.complete)


def test_a_row_of_2_20_with_time_stamps_ends_before_them():
    table = only(NEW)
    assert (479.27, 479.95, 0) == (table.rows[0].out.busbw, table.rows[0].inside.busbw, table.rows[0].wrong)
    assert ("2.20.0", "2.31.2", "all_reduce") == (table.version, table.nccl, table.collective)
    assert table.concluded


@pytest.mark.parametrize(
    "version", ["2.4", "2.11", "2.13.4", "2.14.1", "2.16.7", "2.17.3", "2.17.6", "2.18.5", "2.19.2", "2.20.0"]
)
def test_every_layout_gives_the_same_rows(version):
    table = only(fake.table(RATES, version=version))
    assert RATES == {row.size: row.inside.busbw for row in table.rows}
    assert (16, True, output.DONE) == (len(table.devices), table.complete, table.phase())


@pytest.mark.parametrize(
    "form", [{"stamps": True}, {"each": True}, {"cpu": True}, {"check": 0}, {"stamps": True, "each": True}]
)
def test_options_that_add_or_rename_columns_do_not_move_the_bandwidth(form):
    table = only(fake.table(RATES, version="2.20.0", **form))
    assert RATES == {row.size: row.inside.busbw for row in table.rows}
    assert RATES == {row.size: row.out.busbw for row in table.rows}


def test_unchecked_data_is_none_and_not_zero_wrong():
    assert None is only(fake.table(RATES, check=0)).rows[0].out.wrong
    assert 0 == only(fake.table(RATES)).rows[0].out.wrong


def test_all_gather_of_an_old_version_has_neither_redop_nor_root():
    table = only(fake.table(RATES, version="2.11", test="all_gather_perf"))
    assert [437.0, 443.7, 465.9, 479.3] == [row.out.busbw for row in table.rows]


def test_sruns_labels_are_taken_off_and_other_ranks_lines_kept_apart():
    text = "".join(f"0: {line}\n" for line in fake.table(RATES).splitlines())
    text += "3: ip-10-1-0-1: Test NCCL failure common.cu:958 'unhandled system error / no detail'\n"
    found = output.read_text(text)
    assert [479.3] == [row.inside.busbw for row in found.tables[0].rows[-1:]]
    assert 1 == len(found.failures)


def test_a_row_that_nccls_line_cut_in_two_is_put_together():
    whole = fake.row(GIB, 437.0, 16)
    cut = len(whole) // 2
    cut = whole.index(" ", cut)
    text = fake.table({GIB: 437.0}).replace(
        whole,
        f"{whole[:cut]} ip-10-1-0-1:7:9 [0] NCCL INFO Channel 00/0 : 3[3] -> 14[6] [send] via NET/Libfabric/3/GDRDMA\n"
        f"ip-10-1-0-2:77:99 [0] NCCL INFO comm 0x1 rank 3 nRanks 16\n{whole[cut:]}",
    )
    found = output.read_text(text)
    assert [437.0] == [row.inside.busbw for row in found.tables[0].rows]
    assert (1, 1, 16) == (found.log.over_net, found.log.over_gdr, found.log.ranks)


NCCL_LINE = "ip-10-1-0-1:77:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA"


def cut_in_two(text, row, at, between=f"{NCCL_LINE}\n"):
    return text.replace(row, f"{row[:at]}{between}{row[at:]}")


@pytest.mark.parametrize("test", ["all_reduce_perf", "all_gather_perf"])
def test_a_row_cut_at_any_place_is_the_row_it_was(test):
    text = fake.table(RATES, test=test)
    row = next(line for line in text.splitlines() if line.startswith(f"  {2 * GIB} "))
    whole = [(one.size, one.count, one.type, one.halves) for one in only(text).rows]
    for at in range(1, len(row)):
        for between in (f"{NCCL_LINE}\n", f"{NCCL_LINE}\n{NCCL_LINE}\n"):
            table = only(cut_in_two(text, row, at, between))
            assert whole == [(one.size, one.count, one.type, one.halves) for one in table.rows], row[:at]


def test_a_row_cut_twice_is_the_row_it_was():
    text = fake.table(RATES)
    row = next(line for line in text.splitlines() if line.startswith(f"  {2 * GIB} "))
    for first in range(1, 40, 3):
        torn = f"{row[:first]}{NCCL_LINE}\n{row[first : first + 9]}{NCCL_LINE}\n{row[first + 9 :]}"
        table = only(text.replace(row, torn))
        assert [(GIB, 437.0), (2 * GIB, 443.7)] == [(one.size, one.out.busbw) for one in table.rows[:2]], row[:first]


def test_a_row_whose_beginning_is_lost_is_no_row_of_another_size():
    """Without a list of devices the first piece looks like a part of the host's name."""
    text = "".join(line for line in fake.table(RATES).splitlines(True) if not line.startswith("#  Rank"))
    row = next(line for line in text.splitlines() if line.startswith(f"  {2 * GIB} "))
    for at in range(1, len(row)):
        table = only(cut_in_two(text, row, at))
        assert {one.size for one in table.rows} <= set(RATES), row[:at]
        assert 4 == len(table.rows) + table.missing


@pytest.mark.parametrize(
    ("size", "count", "kind", "whole"),
    [
        (1024, 256, "float", True),
        (1023, 256, "float", False),
        (24, 256, "float", False),
        (1024, 16, "float", True),  # all_gather over 16 ranks
        (1020, 16, "float", False),
        (1024, 1024, "f8e4m3", True),
        (0, 0, "float", True),
        (8, 0, "float", False),
    ],
)
def test_size_and_count_of_a_row_belong_together(size, count, kind, whole):
    assert whole == output.fits(output.Row(size, count, kind))


def test_rows_are_wanted_for_the_sizes_that_were_asked_for():
    other = fake.table({size >> 10: rate for size, rate in RATES.items()})
    other = other.replace(f"minBytes {GIB >> 10} maxBytes {GIB >> 7}", f"minBytes {GIB} maxBytes {8 * GIB}")
    assert (4, 4, 4) == ((table := only(other)).missing, table.wanted, len(table.rows))
    steps = fake.table(dict.fromkeys((GIB, 3 * GIB, 5 * GIB), 437.0)).replace("step: 2(factor)", f"step: {GIB}(bytes)")
    assert (2, 5) == ((table := only(steps)).missing, table.wanted)


def test_a_collective_that_splits_its_buffer_may_print_a_little_less_than_was_asked_for():
    def missing(size):
        rates = {GIB: 437.0, size: 443.7}
        text = fake.table(rates, test="all_gather_perf", hosts=["a", "b", "c"])
        return only(text.replace(f"maxBytes {size}", f"maxBytes {2 * GIB}")).missing

    assert [0, 0, 1] == [missing(2 * GIB - less) for less in (0, 16 * 24 - 4, 16 * 24)]


def test_nothing_is_missing_above_what_memory_allowed():
    text = fake.table(RATES).replace("# Using", f"# Reducing maxBytes to {5 * GIB} due to memory limitation\n# Using")
    lines = [line for line in text.splitlines() if line.split()[:1] != [str(8 * GIB)]]
    assert (0, 3) == ((table := only("\n".join(lines))).missing, table.wanted)
    lines = [line for line in lines if line.split()[:1] != [str(2 * GIB)]]
    assert 1 == only("\n".join(lines)).missing


def test_a_row_glued_to_a_host_name_keeps_its_number():
    whole = fake.row(GIB, 437.0, 16)
    text = fake.table({GIB: 437.0}).replace(whole, f"{whole}ip-10-1-0-1:77:99 [0] NCCL INFO Using network Socket")
    found = output.read_text(text)
    assert [437.0] == [row.inside.busbw for row in found.tables[0].rows]
    assert "tcp" == found.log.fabric


def test_a_half_row_that_never_ends_is_no_row_and_swallows_no_footer():
    whole = fake.row(GIB, 437.0, 16)
    text = fake.table({GIB: 437.0}).replace(whole, whole[:60] + " h:1:2 [0] NCCL INFO x")
    table = only(text)
    assert ([], 1, 0) == (table.rows, table.missing, table.bounds)


def test_two_runs_in_one_file_are_two_tables():
    assert 2 == len(output.read_text(fake.table(RATES) + fake.table(RATES)).tables)
    assert 2 == len(output.read_text(OLD + OLD).tables)


def test_programs_that_do_not_know_each_other_are_counted():
    head = "\n".join(fake.head())
    text = f"{head}\n{head}\n# Using devices\n# Using devices\n" + "\n".join(fake.devices(["a"], 1)[1:] * 2)
    assert 2 == only(text).copies


@pytest.mark.parametrize(
    ("keep", "phase"),
    [
        ("# nThread", output.BEFORE_DEVICES),
        ("#  Rank 15", output.IN_INIT),
        ("#        (B)", output.IN_WARMUP),
        (f"  {GIB} ", output.IN_SIZE),
        (f"  {8 * GIB} ", output.IN_TEARDOWN),
        ("# Avg", output.DONE),
    ],
)
def test_where_the_output_stops_tells_the_phase(keep, phase):
    lines = fake.table(RATES).splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith(keep))
    assert phase == output.read(lines[: last + 1]).phase()


def test_nothing_at_all_stopped_before_the_start():
    assert output.BEFORE_START == output.read([]).phase()


def test_numbers_that_make_no_sense_are_kept_for_the_judge():
    text = fake.table({GIB: 437.0}).replace(" 437.00", " -nan  ", 1)
    assert math.isnan(only(text).rows[0].out.busbw)


def test_the_log_names_the_network_the_nics_and_the_settings():
    log = output.NcclLog()
    output.read_nccl_lines(
        [
            "ip-10-1-0-1:5:6 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.16.3",
            "ip-10-1-0-1:5:6 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)",
            "ip-10-1-0-1:5:6 [0] NCCL INFO Using network AWS Libfabric",
            "ip-10-1-0-1:5:6 [0] NCCL INFO NCCL_ALGO set by environment to Ring.",
            "[2026-03-13 22:26:02] ip-10-1-0-2:5:6 [5] net.cc:262 NCCL WARN Request completed with error. RC: 15",
        ],
        log,
    )
    assert ("efa", {"ip-10-1-0-1": 16}, "1.16.3", {"NCCL_ALGO": "Ring"}) == (
        log.fabric,
        log.nics,
        log.plugin,
        log.settings,
    )
    assert "RC: 15" in log.unreachable
    assert 1 == len(log.warnings)


@pytest.mark.parametrize(
    ("line", "fabric"),
    [
        ("a:1:2 [0] NCCL INFO Using network Libfabric", "efa"),
        ("a:1:2 [0] NCCL INFO Using network Socket", "tcp"),
        ("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0", "tcp"),
        ("a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA", "efa"),
        ("a:1:2 [0] NCCL INFO Using network IB", "other"),
        ("a:1:2 [0] NCCL INFO Bootstrap : Using eth0", ""),
    ],
)
def test_the_fabric_follows_from_nccls_own_words(line, fabric):
    log = output.NcclLog()
    output.read_nccl_lines([line], log)
    assert fabric == log.fabric


JSON = {
    "version": 2,
    "start_time": "2026-07-09 16:03:21",
    "args": ["/opt/all_reduce_perf", "-b", "1G"],
    "env": ["HF_TOKEN=very-secret", "NCCL_DEBUG=INFO"],
    "nccl_version": 22707,
    "config": {
        "nthreads": 1,
        "ngpus": 1,
        "minimum_bytes": GIB,
        "maximum_bytes": GIB,
        "step_factor": 2,
        "iterations": 20,
        "validation": 1,
        "devices": [{"rank": 0, "hostname": "ip-10-1-0-1", "device_info": "NVIDIA H100 80GB HBM3"}],
    },
    "results": [
        {
            "size": GIB,
            "count": GIB // 4,
            "type": "float",
            "out_of_place": {"time": 4600.0, "alg_bw": 233.0, "bus_bw": 437.0, "nwrong": 0},
            "in_place": {"cpu_time": 4600.0, "alg_bw": 233.0, "bus_bw": "nan", "nwrong": None},
        }
    ],
    "out_of_bounds": {"count": 0, "okay": "true"},
    "average_bus_bandwidith": {"bandwidith": 437.0, "okay": "unchecked"},
    "errors": ["something"],
    "end_time": "2026-07-09 16:03:31",
}


def test_json_is_read_with_its_misspelt_keys_and_words_for_numbers():
    table = only(json.dumps(JSON))
    assert (437.0, True, 437.0) == (table.average, table.complete, table.rows[0].out.busbw)
    assert math.isnan(table.rows[0].inside.busbw)
    assert None is table.rows[0].inside.wrong
    assert ("all_reduce", "2.27.7", ("ip-10-1-0-1",), True) == (
        table.collective,
        table.nccl,
        table.hosts,
        table.concluded,
    )


def test_json_of_cpu_time_is_known_as_such():
    assert only(json.dumps(JSON)).cpu_time
    half = JSON["results"][0]["out_of_place"]
    assert not only(json.dumps({**JSON, "results": [{**JSON["results"][0], "in_place": half}]})).cpu_time


def test_the_environment_in_the_json_is_nowhere_in_what_we_keep():
    assert "very-secret" not in repr(output.read_text(json.dumps(JSON)))
    nested = {**JSON, "env": {"HF_TOKEN": "very-secret"}, "config": {**JSON["config"], "env": ["very-secret"]}}
    assert "very-secret" not in repr(output.read_text(json.dumps(nested)))


def test_json_without_an_end_time_did_not_finish():
    unfinished = {key: value for key, value in JSON.items() if key not in ("end_time", "average_bus_bandwidith")}
    assert output.IN_TEARDOWN == only(json.dumps(unfinished)).phase()


@pytest.mark.parametrize("text", [json.dumps(JSON)[:-40], "{", '{"a": 1}', "{" * 100000])
def test_json_that_is_cut_off_or_something_else_says_so(text):
    found = output.read_text(text)
    assert [] == found.tables
    assert "JSON" in found.bad_json


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("gpu: Test CUDA failure common.cu:1030 'system not yet initialized'", "failures"),
        ("gpu: Test timeout (60s) common.cu:523", "timeout"),
        ("Invalid number of GPUs: 16 requested but only 8 were found.", "too_few_gpus"),
        ("invalid option '?'", "usage"),
        ("USAGE: all_reduce_perf ", "usage"),
        ("invalid size specified for 'minbytes'", "bad_argument"),
        ("invalid sizes for 'minbytes' and 'maxbytes': 2147483648 > 1073741824", "bad_argument"),
        (
            "a: error while loading shared libraries: libnccl.so.2: cannot open shared object file: No such file",
            "library",
        ),
        ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***", "cancelled"),
        ("srun: error: n2: task 3: Segmentation fault", "launcher"),
    ],
)
def test_lines_of_trouble_are_told_apart(line, field):
    found = output.read([line])
    blank = output.read([])
    assert {field} == {
        name
        for name in ("failures", "timeout", "too_few_gpus", "usage", "bad_argument", "library", "cancelled", "launcher")
        if getattr(found, name) != getattr(blank, name)
    }


def test_a_tag_of_open_mpi_anywhere_in_a_line_changes_nothing():
    """As Open MPI 4.1 wrote them: it tags each piece that it reads, and pieces end before a newline or in a row."""
    plain = fake.table(RATES)
    row = next(line for line in plain.splitlines() if line.strip().startswith("8589934592"))
    half = len(row) // 2
    torn = f"{row[:half]}[1,0]<stdout>:{row[half:]}[1,0]<stdout>:"
    tagged = "".join(f"[1,0]<stdout>:{torn if line == row else line}\n" for line in plain.splitlines())
    whole, cut = output.read(plain.splitlines()), output.read(tagged.splitlines())
    assert [one.size for one in whole.tables[0].rows] == [one.size for one in cut.tables[0].rows]
    assert whole.tables[0].rows[-1].halves == cut.tables[0].rows[-1].halves
    assert (True, True) == (whole.tables[0].complete, cut.tables[0].complete)


def test_two_processes_in_one_line_are_taken_apart():
    assert [("0", "one"), ("1", "two")] == list(output.by_label("[1,0]<stdout>:one[1,1]<stderr>:two"))
    assert [("0", "one")] == list(output.by_label("[1,0]<stdout>:on[1,0]<stdout>:e"))
    assert [("", "[0] plain")] == list(output.by_label("[0] plain"))


HALF = "0.10    0.10      0"
MPICH = f"""\
[0] # nThread 1 nGpus 1 minBytes 1024 maxBytes 2048 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
[0] #  Rank  0 Pid  7 on a device  0 [0x35] NVIDIA H100
[0] #  Rank  1 Pid  8 on b device  0 [0x35] NVIDIA H100
[1] b:8:9 [0] NCCL INFO Using network Socket
[0] #       size   count    type   redop  root   time   algbw   busbw #wrong   time   algbw   busbw #wrong
[0]         1024     256   float     sum    -1[0]     10.5    {HALF}[0]     10.1    {HALF}
[0]         2048     512   float     sum    -1[0]     10.5    {HALF}     10.1    {HALF}
[0] # Out of bounds values : 0 OK
[0] # Avg bus bandwidth    : 0.15
"""


def test_labels_of_mpich_are_read_in_front_and_inside_of_rows():
    found = output.read(MPICH.splitlines())
    (table,) = found.tables
    assert ([1024, 2048], 0.15, ("a", "b")) == ([row.size for row in table.rows], table.average, table.hosts)
    assert [0, 0] == [row.wrong for row in table.rows]
    assert {"b"} == found.log.hosts


@pytest.mark.parametrize(
    "prefix", ["node-1: ", "[pod/nccl-0/main] ", "2026-07-09T16:03:21.123Z ", "(head, rank=0, pid=3808) ", "nccl-0 | "]
)
def test_labels_that_no_launcher_of_ours_prints_are_no_hindrance(prefix):
    table = only("".join(prefix + line for line in fake.table(RATES).splitlines(True)))
    assert (sorted(RATES), True, 16) == ([row.size for row in table.rows], table.complete, len(table.devices))


def test_a_table_that_somebody_numbered_by_hand_is_none():
    half = "8142.6  131.87  230.77  2e-07"
    assert [] == output.read([f"   1   1073741824     268435456     float     sum   {half}   {half}"]).tables


@pytest.mark.parametrize(
    ("rest", "known"),
    [
        ("float sum -1 100.5 10.1 18.9 0 99.9 10.2 19.0 0", True),  # 13 words
        ("float sum 100.5 10.1 18.9 0e+00 99.9 10.2 19.0 0e+00", True),  # 12, before 2.12
        ("float 100.5 10.1 18.9 0e+00 99.9 10.2 19.0 0e+00", True),  # 11, of all_gather then
        ("float sum -1 100.5 10.1 18.9 0", True),  # 9, out of place only
        ("float sum 100.5 10.1 18.9 0e+00", True),  # 8
        ("float 100.5 10.1 18.9 0e+00", False),
        ("float sum -1 100.5 10.1 18.9 0 99.9 10.2 19.0 0 7", False),
    ],
)
def test_rows_without_a_header_are_known_by_their_number_of_words(rest: str, known: bool) -> None:
    rows = [f"{1 << power} {1 << power - 2} {rest}" for power in (20, 21, 22)]
    tables = output.read(rows).tables
    assert known == any(table.headless and len(table.rows) == 3 for table in tables)


def test_of_a_table_nothing_is_known_at_first() -> None:
    table = output.Table()
    assert not (table.cut or table.shortened or table.headless or table.announced or table.concluded)
    assert (0, 0, 0) == (table.copies, table.torn, table.first_line)


@pytest.mark.parametrize(
    ("smallest", "largest", "step", "by_factor", "rows"),
    [
        (1, 1, 2, True, 1),
        (8, 8, 2, True, 1),
        (8, 15, 2, True, 1),
        (8, 16, 2, True, 2),
        (8, 64, 2, True, 4),
        (8, 64, 1, True, 1),
        (8, 64, 8, False, 8),
        (8, 71, 8, False, 8),
        (8, 72, 8, False, 9),
        (16, 8, 2, True, None),
        (0, 8, 2, True, None),
        (8, 64, 0, True, None),
    ],
)
def test_how_many_rows_a_run_has(smallest: int, largest: int, step: int, by_factor: bool, rows: int | None) -> None:
    asked = output.Parameters(1, 8, smallest, largest, step, by_factor, 20, True)
    assert rows == asked.row_count()


def test_a_failure_counts_without_the_host_that_said_it_and_by_how_it_was_handed_up():
    excerpt = ["524288 131072 float sum -1", "Test CUDA failure common.cu:516 'an illegal memory access'"]
    assert excerpt[1:] == output.read(excerpt).failures
    handed = "n1 pid 73980: Test failure common.cu:893"
    assert [handed] == output.read([handed, "n1 pid 73980: Test failure all_reduce.cu:90"]).failures
    assert excerpt[1:] == output.read([*excerpt, handed]).failures
