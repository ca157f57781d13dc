"""Anything may stand in a log: no crash, no hang, bounded memory, and the cause is still found."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpslurm.scan import match, prefix, read
from hpslurm.scan.collect import Collector, scan
from hpslurm.scan.match import finder
from hpslurm.scan.patterns import table
from hpslurm.scan.reason import reason
from tests.scan.cases import WRITTEN, diagnose, events_of, healthy_lines, log_of

OOM = b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.\n"
PIECES = st.sampled_from(
    [
        *(log_of(case) for case in WRITTEN[:40]),
        b"\x00" * 40,
        b"\r\r\n",
        b"\x1b[31mERROR\x1b[0m ",
        b"Traceback (most recent call last):\n",
        b"\xff\xfe\x80\n",
        "日本語 エラー\n".encode("utf-16"),
        b" 3: [rank3]: ",
        b"NVRM: Xid (PCI:",
        b"Epoch 1:  10%|\xe2\x96\x88 | 1/10 [00:01<00:09]\r",
    ]
)
unhurried = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@unhurried
@given(st.lists(st.one_of(st.binary(max_size=200), PIECES), max_size=12).map(b"".join))
def test_no_input_breaks_the_scan_and_both_passes_agree(data: bytes):
    events = events_of(data)
    assert events == events_of(data, fast=False)
    assert reason(events).cause
    for event in events:
        assert event.text == event.text.strip()
        assert not any(ord(sign) < 32 for sign in event.text)


@unhurried
@given(st.lists(st.sampled_from(WRITTEN), min_size=1, max_size=3), st.randoms())
def test_the_order_of_events_does_not_change_the_answer(cases, chance):
    events = [event for number, case in enumerate(cases) for event in events_of(log_of(case), f"{number}.log")]
    answer = reason(events)
    chance.shuffle(events)
    assert answer == reason(events)


@unhurried
@given(st.text(max_size=300))
def test_no_prefix_breaks_the_reader(line: str):
    mark = prefix.read(line)
    assert line.endswith(mark.text)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(1, 40), st.integers(1, 8))
def test_every_line_is_seen_once_whatever_the_block(data: bytes, behind: int, ahead: int):
    sizes = read.BLOCK, read.BEHIND, read.AHEAD
    read.BLOCK, read.BEHIND, read.AHEAD = 64, behind, ahead
    try:
        seen = [(part.line, bytes(part.data[part.start : part.end])) for part in read.parts(io.BytesIO(data))]
    finally:
        read.BLOCK, read.BEHIND, read.AHEAD = sizes
    assert data == b"".join(piece for _, piece in seen)
    line = 1
    for number, piece in seen:
        assert line == number
        line += piece.count(b"\n")


def test_a_line_longer_than_every_block_neither_hangs_nor_hides_what_follows():
    diagnosis = diagnose(b"x" * (9 << 20) + b"\n" + OOM)
    assert ("gpu_oom", 2) == (diagnosis.cause, diagnosis.decisive.line)


def test_the_cause_inside_an_endless_line_of_progress_is_found():
    bars = b"".join(b"Epoch 1:  %d%%|##  | %d/100 [00:01<00:09]\r" % (n % 100, n) for n in range(4000))
    assert "gpu_oom" == diagnose(bars + OOM + bars).cause


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_a_compressed_log_is_read(tmp_path: Path, pack):
    path = tmp_path / "job.out.1"
    path.write_bytes(pack(healthy_lines(200).encode() + OOM))
    assert ("gpu_oom", 201) == (lambda d: (d.cause, d.decisive.line))(reason(scan([str(path)]).result()))


def test_a_zstd_log_is_read_or_the_missing_module_is_named(tmp_path: Path):
    path = tmp_path / "job.out.zst"
    try:
        import zstandard

        path.write_bytes(zstandard.ZstdCompressor().compress(OOM))
        assert "gpu_oom" == reason(scan([str(path)]).result()).cause
    except ImportError:
        path.write_bytes(b"\x28\xb5\x2f\xfd" + b"\0" * 20)
        assert "zstandard" in scan([str(path)]).unread[0]


def test_a_damaged_archive_is_named_and_what_came_before_counts(tmp_path: Path):
    path = tmp_path / "job.out.gz"
    path.write_bytes(gzip.compress(OOM + os.urandom(200_000))[:-5000])
    collector = scan([str(path)])
    assert "job.out.gz" in collector.unread[0]


def test_what_cannot_be_read_is_named(tmp_path: Path):
    collector = scan([str(tmp_path / "missing"), "/dev/null", str(tmp_path)])
    assert [
        "missing" in collector.unread[0],
        "/dev/null" in collector.unread[1],
        "no files" in collector.unread[2],
    ] == [True, True, True]


def test_a_flood_of_one_fault_is_folded_and_counted():
    line = b"ip-10-1-0-7:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.1.0.8<1> with error 12, opcode 0, len 0, vendor err 129\n"  # noqa: E501
    events = [event for event in events_of(line * 3000) if event.pattern == "ib-error-12"]
    assert [(3000, 1, 3000)] == [(event.count, event.line, event.last_line) for event in events]


def test_memory_stays_bounded_however_large_the_log():
    code = (
        "import io, re; from hpslurm.scan.collect import Collector\n"
        "class Endless(io.RawIOBase):\n"
        "    left = 80 << 20\n"
        "    line = b'step 1 | loss 2.0 | 10231 tok/s and some more words to make it as long as usual lines are\\n'\n"
        "    def readinto(self, into):\n"
        "        count = min(len(into), self.left); self.left -= count\n"
        "        into[:count] = (self.line * (count // len(self.line) + 1))[:count]; return count\n"
        "Collector().stream(Endless(), 'x')\n"
        "print(int(re.search('VmHWM:\\\\s+(\\\\d+)', open('/proc/self/status').read())[1]) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert int(done.stdout) < 100


def test_the_two_passes_see_the_same_lines():
    literals = table().literals
    data = bytearray(b"".join(log_of(case) for case in WRITTEN))
    fast, slow = (
        {begin: set(numbers) for begin, _, numbers in finder(literals, fast=way)(data, len(data), 0, len(data))}
        for way in (True, False)
    )
    assert fast == slow


@pytest.mark.parametrize("case", WRITTEN[::9], ids=str)
def test_little_text_is_searched_without_the_fast_pass_and_says_the_same(case, monkeypatch: pytest.MonkeyPatch):
    literals = table().literals
    line = b"AAAA" + b"".join(literal for literal in literals if not literal.endswith(b"\n"))[-3000:]  # they overlap
    data = bytearray(log_of(case) + line)
    start = len(data) // 3

    def seen():
        found = finder(literals)(data, len(data), start, len(data))
        return [(begin, stop, sorted(set(numbers))) for begin, stop, numbers in found]

    monkeypatch.setattr(match, "_small", lambda literals: match._Small(literals))
    monkeypatch.setattr(match, "_large", lambda literals: pytest.fail("the database was made for little text"))
    little = seen()
    monkeypatch.undo()
    monkeypatch.setattr(match, "SMALL", 0)
    monkeypatch.setattr(match, "_small", lambda literals: match._Small(literals))
    assert little and little == seen()


def test_after_so_much_text_the_fast_pass_is_worth_its_database():
    small = match._Small((b"lost",))
    assert small.has_room(match.SMALL - 1)
    assert not small.has_room(2)


@pytest.mark.parametrize("size, said", [(match.BIG - 1, False), (match.BIG, True)])
def test_a_large_log_without_the_fast_pass_says_what_would_be_faster(size: int, said: bool):
    code = f"import sys; sys.modules['hyperscan'] = None; from hpslurm.scan import match; print(match.hint({size}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said is ("pip install hyperscan" in done.stdout)


def test_with_the_fast_pass_nothing_would_be_faster():
    assert "" == match.hint(match.BIG)


def test_the_two_passes_see_the_same_where_no_two_lines_are_alike():
    literals = table().literals
    texts = [literals[number % len(literals)].rstrip(b"\n") for number in range(5 * len(literals))]
    lines = [hashlib.sha256(b"%d" % number).hexdigest().encode() + text + b"\n" for number, text in enumerate(texts)]
    data = bytearray(b"".join(lines))
    fast, slow = (
        {begin: set(numbers) for begin, _, numbers in finder(literals, fast=way)(data, len(data), 0, len(data))}
        for way in (True, False)
    )
    assert len(lines) == len(fast)
    assert fast == slow


def test_a_table_row_matches_its_example_through_its_own_literals():
    for row in table().patterns:
        events = events_of(row.example.encode() + b"\n") if row.role != "noise" or row.literals else []
        assert row.role == "noise" or any(literal in row.example.encode() + b"\n" for literal in row.literals), row.id
        if row.role != "noise" and not row.check:
            assert events, row.id


def test_noise_examples_raise_nothing():
    for row in table().patterns:
        if row.role == "noise":
            assert [] == [event for event in events_of(row.example.encode() + b"\n") if event.role == "root"], row.id


def test_collector_counts_files_and_bytes():
    collector = Collector()
    collector.stream(io.BytesIO(OOM), "a")
    assert (1, len(OOM)) == (collector.files, collector.bytes)


# Set-up lines that NCCL and its plugin print on machines where nothing is wrong.
SETUP = """\
Could not open XML topology file /var/run/nvidia-topologyd/virtualTopology.xml : No such file or directory
Detected mixed local Net device counts across ranks (min 15, max 16). Ignoring due to NCCL_IGNORE_NET_MISMATCH.
NET/Plugin: Failed to find ncclNetPlugin_v10 symbol.
NET/IB : No device found.
Failed to open libibverbs.so[.1]
NVLS multicast support is not available on dev 0
DMA-BUF is available on GPU device 0
P2P plugin v10 IBext
Call to connect returned Connection refused, retrying
NET/OFI Need to force simple protocol: FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES not supported
RAS client listening socket at ::1<28028>
NCCL_DEBUG_SUBSYS set by environment to INIT,NET,ENV
Setting affinity for GPU 0 to ffff,ffffffff
comm 0x55 rank 0 nranks 16 cudaDev 0 busId 53000 - Destroy COMPLETE
"""


@pytest.mark.parametrize("line", SETUP.splitlines())
def test_a_set_up_line_of_nccl_accuses_nobody(line: str):
    diagnosis = diagnose(f"ip-10-1-0-7:1:2 [0] NCCL INFO {line}\n".encode())
    assert (True, None) == (diagnosis.cause in ("healthy", "undetermined"), diagnosis.decisive)


NINES = "9" * 5000  # int() refuses more than 4300 digits
FELL_OFF = "NVRM: Xid (PCI:0000:53:00): 79, pid=1, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "line",
    [
        f"NVRM: Xid (PCI:0000:53:00): {NINES}, pid=1",
        f"NVRM: Xid (PCI:0000:53:00): 43, caused by previous Xid {NINES}",
        f"NVRM: Xid (PCI:0000:53:00): 43, pid={NINES}, Ch 1",
        f"[rank{NINES}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        f"[1,{NINES}]<stderr>: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        f"(Worker pid={NINES}, ip=10.1.0.4) torch.OutOfMemoryError: CUDA out of memory.",
        f"Mon Nov {NINES} 03:04:05 2025 torch.OutOfMemoryError: CUDA out of memory.",
        f"[Rank {NINES}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={NINES}, OpType=ALLREDUCE, "
        f"NumelIn=1, NumelOut=1, Timeout(ms)={NINES}) ran for {NINES} milliseconds before timing out.",
        f"ip-10-1-0-4:1:1 [0] NCCL INFO comm 0x1 rank {NINES} nranks {NINES} cudaDev 0",
        f"world_size={NINES}",
        f"  {NINES}  {NINES}  float  sum  -1  1.0  2.0  3.0  {NINES}  1.0  2.0  3.0  {NINES}",
        f"tmpfs 1G 1G 0 {NINES}% /dev/shm",
        f"Max locked memory {NINES} {NINES} bytes",
        f"Rank={NINES} Node=ip-10-1-0-4 Score=0.1.2",
        f"MnRtt/Rnk: 1.1.1ms/{NINES} | MxRtt/Rnk: 9..9ms/{NINES}",
        f"Job summary\n#1-1 (1) INCOMPLETE\n  Rank {NINES} -- GPU 0 managed by process {NINES} on node a\n",
        f"Detected straggler rank {NINES}",
        f"  rank      : {NINES} (local_rank: {NINES})\n  exitcode  : 1 (pid: {NINES})",
    ],
)
def test_a_number_of_thousands_of_digits_costs_only_its_own_line(line: str, tmp_path: Path):
    (tmp_path / "job.log").write_text(f"{line}\n{FELL_OFF}\n")
    found = scan([str(tmp_path / "job.log")])
    assert [] == found.unread
    assert "gpu_fell_off_bus" == reason(found.result()).cause


@pytest.mark.parametrize("rank", [NINES, "9" * 20])
def test_a_timeout_of_any_length_and_rank_is_judged(rank: str, tmp_path: Path):
    line = (
        f"[Rank %s] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={rank}, OpType=ALLREDUCE, "
        f"NumelIn=1, NumelOut=1, Timeout(ms)={rank}) ran for {rank} milliseconds before timing out.\n"
    )
    (tmp_path / "job.log").write_text("".join(line % number for number in (0, 1, rank)))
    found = scan([str(tmp_path / "job.log")])
    assert [] == found.unread
    assert reason(found.result()).cause.startswith("collective")


def test_a_line_that_a_look_cannot_bear_does_not_end_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from hpslurm.scan import checks

    look = checks.CHECKS["xid"]

    def breaks(hit, match, around):
        if "pid=666" in hit.line:
            raise ValueError("odd")
        return look(hit, match, around)

    monkeypatch.setitem(checks.CHECKS, "xid", breaks)
    (tmp_path / "job.log").write_text(f"\n{FELL_OFF.replace('pid=1', 'pid=666')}\n{FELL_OFF}\n")
    found = scan([str(tmp_path / "job.log")])
    assert [f"{tmp_path}/job.log:2: could not be understood (odd); passed over"] == found.unread
    assert "gpu_fell_off_bus" == reason(found.result()).cause


def test_a_dump_with_numbers_of_thousands_of_digits_is_read_without_them(tmp_path: Path):
    import pickle

    huge = 10**5000
    entry = {"process_group": ("0", "default"), "collective_seq_id": 7, "state": "scheduled", "profiling_name": "x"}
    dump = {
        "rank": huge,
        "pg_config": {"0": {"ranks": [0, huge]}},
        "entries": [{**entry, "collective_seq_id": huge}, entry],
    }
    path = tmp_path / "nccl_trace_rank_3"
    path.write_bytes(pickle.dumps(dump))
    found = scan([str(path)])
    assert [] == found.unread
    assert [3] == [event.rank for event in found.result() if event.pattern == "fr"]
