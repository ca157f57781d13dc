"""What kind of text is this, and does it show life? Plus the tables that no single line explains.

Looks at the head and the tail of a file only. Everything it finds is an event: ``kind`` and ``life``
events are noise that speaks for health, the others come from tables: nccl-tests rows, nvidia-smi
sections, sinfo lists, RAS reports.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from hpslurm.core import toml
from hpslurm.core.finding import NOISE, ROOT, Event
from hpslurm.core.text import whole
from hpslurm.core.values import replace
from hpslurm.scan import places, prefix
from hpslurm.scan.checks import pci

Lines = list[tuple[int, str]]  # line number, text

KINDS = (
    ("nccl-tests", r"nThread \d+ nGpus|# nccl-tests version|Out of bounds values|Avg bus bandwidth|#\s+size\s+count\s+type|out-of-place\s+in-place"),  # noqa: E501
    ("nccl-log", r"NCCL (?:INFO|WARN|TRACE|VERSION) |NCCL version \d"),
    ("kernel-log", r"NVRM: |^\[ *\+?\d+\.\d{3,}\]|\bkernel: |^\d{1,3},\d+,\d+,[-\w,=]+;|^kern +:|nvidia-nvswitch\d|nvidia-peermem"),  # noqa: E501
    ("slurmctld-log", r"_slurm_rpc_|sched: Allocate|_job_complete:|slurmctld|^\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:error: |debug|sched|backfill|_|update_node|node_did_resp|cleanup)"),  # noqa: E501
    ("slurmd-log", r"slurmd(?:\[|:)|launch task StepId|\[\d+\.(?:batch|extern|\d+)\] "),
    ("scontrol", r"^\s*NodeName=\S+ |^JobId=\d+ |^PartitionName="),
    ("sinfo", r"^PARTITION +AVAIL|^REASON +USER|^NODELIST +NODES|^HOSTNAMES +"),
    ("squeue", r"^ +JOBID PARTITION|^JOBID "),
    ("sacct", r"^JobID(?:\||\s+)JobName|^\s*JobID\s"),
    ("nvidia-smi", r"NVSMI LOG|NVIDIA-SMI \d|Clocks (?:Event|Throttle) Reasons|Remapped Rows|^GPU \d+: |Driver Version +:|ECC Mode"),  # noqa: E501
    ("fi_info", r"^\s*provider: \S+|^\s*fabric: (?:EFA|efa)|protocol: FI_PROTO|fi_info "),
    ("ras", r"^Job summary$|Communicators\.\.\. |RAS client|^Gathering data about the"),
    ("lspci", r"ACSCtl:|LnkSta:"),
    ("slurm-output", r"^srun: |^slurmstepd|^salloc: |^sbatch: |pyxis: "),
    ("torchrun", r"torch\.distributed\.(?:run|elastic|launch)|torchrun|\[rank\d+\]:|ProcessGroupNCCL|\[c10d\]"),
    ("straggler-report", r"Straggler Report|[Nn]o stragglers? detected"),
    ("training", r"\bloss\b|[Ee]poch|\biter(?:ation)?s?\b|\bstep\b|tok(?:en)?s?/s|it/s|s/it|samples/s|lr[ :=]"),
    ("libfabric-log", r"^libfabric:\d+"),
    ("megatron", r"megatron|MnRtt|Straggler report|GPU relative performance"),
)  # fmt: skip
_KINDS = [(name, re.compile(expression, re.MULTILINE)) for name, expression in KINDS]

_LIFE = re.compile(
    r"\d{1,3}%\|[^|]*\| *\d+/\d+|(?:loss|Loss)\b(?: is)?[ :=]+\d|[Ee]poch(?: is)?[ :=\[]+\d+|(?:iter(?:ation)?|[Ss]tep)[ :=\[]+\d+[^\n]*(?:loss|time|lr|tok)|Init COMPLETE|"  # noqa: E501
    r"Training (?:complete|finished|done)|tokens?/s|it/s\]|s/it\]|samples?/s|Avg bus bandwidth|Out of bounds values : 0 OK|"  # noqa: E501
    r"throughput[ :=]+\d|elapsed time per iteration|Destroy COMPLETE|"
    r"Connected after \d+ retries|Step created for StepId|"
    r"\.\.\. passed$|All tests passed|Test [Pp]assed|now responding"
)


_WORK = re.compile(
    r"(?i)\bloss\b|\bepoch\b|\bstep\b|\biter(?:ation)?\b|tok(?:en)?s?/s|it/s|s/it|samples?/s|passed|now responding"
)


def look(path: str, lines: Lines, whole: bool) -> Iterator[Event]:
    """Events of the head and tail of a file; ``whole`` says that nothing lies between."""
    labelled = lines
    lines = [(number, prefix.bare(line)) for number, line in lines]
    text = "\n".join(line for _, line in lines)
    kinds = [name for name, expression in _KINDS if expression.search(text)]
    for name in kinds:
        yield Event(f"kind:{name}", NOISE, path, 1, name)
    yield from _life(path, labelled)
    yield from _progress(path, labelled)
    yield from _proof(path, labelled)
    for look_at in (places.identities, places.hosts, places.named, places.traits, places.channels):
        yield from look_at(path, labelled)
    if "nccl-tests" in kinds or _ROW.search(text):
        yield from nccl_tests(path, lines)
    if (
        "nvidia-smi" in kinds
        or "Uncorr. ECC" in text
        or "ECC Errors" in text
        or "Remapped" in text
        or "remapped_rows" in text
    ):
        yield from nvidia_smi(path, lines)
    if "sinfo" in kinds:
        yield from sinfo(path, lines)
    if "nccl-log" in kinds:
        yield from network(path, lines)
    if "ras" in kinds:
        from hpslurm.scan import ras

        yield from ras.events(path, lines)
    yield from small_tools(path, lines, text)
    yield from performance(path, lines)


# Lines with one of these, and their neighbours, are looked at wherever they stand in a file.
TRIGGERS = (
    b"#wrong", b"  float ", b"bfloat16 ", b"    half ", b"Avg bus bandwidth", b"Remapped Rows", b"remapped_rows", b"Uncorr. ECC", b"ECC Errors", b"NODELIST",  # noqa: E501
    b"Job summary", b"MISMATCH", b"INCOMPLETE", b" Score=", b"MnRtt/Rnk", b"locked memory", b" /dev/shm", b"Physical state", b"PORT_DOWN", b"state DOWN",  # noqa: E501
    b"Using network", b"NET/OFI Init", b"fi_info", b"-100% ", b"100% /",
)  # fmt: skip


# NCCL's set-up chose how to talk to other nodes.
_CHOSEN = re.compile(
    r"Using network (?!Socket)\w+|Using internal [Nn]etwork \w+|NET/(?:IB|Socket|OFI) ?: (?:Using \[|\d+ interfaces found)|Selected [Pp]rovider is (?!tcp|sockets)\w|Using transport protocol|Active: active \(running\)|\[c10d - debug\] The (?:server has started|client socket)"  # noqa: E501
)


def _proof(path: str, lines: Lines) -> Iterator[Event]:
    for number, line in lines:
        if _CHOSEN.search(line):
            yield Event(
                "proof", NOISE, path, number, line[:300], facts=(("what", "NCCL's set-up, as far as it is shown"),)
            )
            return


def _life(path: str, lines: Lines) -> Iterator[Event]:
    """The first and the last sign that work went on."""
    first: Event | None = None
    last: Event | None = None
    recent: list[int] = []
    for number, line in lines:
        if _LIFE.search(line):
            if first is None:
                first = Event("life-began", NOISE, path, number, line[:300])
            mark = prefix.read(line)
            recent = [*recent[-2:], number] if _WORK.search(line) else recent
            last = Event("life", NOISE, path, number, line[:300], mark.time, mark.rank, mark.host)
    if first and last:
        yield first
        # the line from which the last few are that show work, not only a start
        yield replace(last, facts=(("recent", str(recent[0])),)) if len(recent) == 3 else last


_BAR = re.compile(
    r"(?P<label>[^|%\r\n]{0,60}?)(?P<percent>\d{1,3})%\|[^|]*\| *(?P<done>[\d.]+\w*)/(?P<all>[\d.]+\w*) *"
    r"\[(?P<elapsed>[\d:]+)<[^\]]*?(?P<unit>[A-Za-z]+)/s"
)
_STEPS = re.compile(r"(?i)\b(?:train\w*|epoch|step|iter\w*)\b|loss=|it\b")  # bars of the training itself


def _progress(path: str, lines: Lines) -> Iterator[Event]:
    """The last state of each bar of preparing work: which share is done, after how many seconds."""
    last: dict[str, Event] = {}
    for number, line in lines:
        for segment in line.split("\r") if "%|" in line else ():
            for match in _BAR.finditer(segment):
                if _STEPS.search(match["label"]) or _STEPS.search(match["unit"]):
                    continue
                elapsed = 0
                for part in match["elapsed"].split(":"):
                    elapsed = elapsed * 60 + (whole(part) or 0)
                mark = prefix.read(segment[: match.start("percent")])
                label = re.sub(r"\W+", " ", match["label"])[-30:].strip()
                event = Event("progress", NOISE, path, number, segment[:300], mark.time, mark.rank, mark.host,
                              facts=(("percent", match["percent"]), ("elapsed", str(elapsed))))  # fmt: skip
                old = last.get(label)
                if old is None or (whole(old.fact("percent")) or 0) <= int(match["percent"]):
                    last[label] = event
    yield from last.values()


# --------------------------------------------------------------------------- nccl-tests

_TYPES = "int8|uint8|int32|uint32|int64|uint64|half|float|double|bfloat16|f8e4m3|f8e5m2|char|int"
_ROW = re.compile(
    rf"^(?:\s*\[\d+,\d+\]<std(?:out|err)>:\s?|\s*\d+: )?\s*(?:\d+ +)?(\d+)\s+(\d+)\s+({_TYPES})\s+(\S.*)$", re.MULTILINE
)
_DEVICE = re.compile(r"Rank\s+(\d+)(?:\s+Group\s+\d+)?\s+Pid\s+\d+ on\s+(\S+) device\s+\d+ \[[0-9a-fx:.]+\] (.+?)\s*$")
ANY_GPU = 5.0  # GB/s; a GPU that no row knows
COLLAPSE, FALLEN = 1 << 18, 0.1  # bytes from which a larger size must not fall to a tenth of the bandwidth
SATURATED = 64 << 20  # bytes from which a row says something about bandwidth


def nccl_tests(path: str, lines: Lines) -> Iterator[Event]:
    rows: list[tuple[int, str, int, list[float], str]] = []
    hosts: set[str] = set()
    model = ""
    test = ""
    for number, line in lines:
        if device := _DEVICE.search(line):
            hosts.add(device[2])
            model = device[3]
        elif started := re.search(
            r"Collective test starting: (\w+)|\b(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoall|sendrecv|broadcast)_perf\b",  # noqa: E501
            line,
        ):
            test = started[1] or started[2]
        elif row := _ROW.match(line):
            size, count = whole(row[1]), whole(row[2])
            if size is None or count is None:
                continue
            if count and not (size % count == 0 or size // max(count, 1) <= 16):
                continue
            rest = row[4].split()
            numbers = [word for word in rest if re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|N/A", word)]
            yield_wrong = _wrong(rest)
            if yield_wrong:
                yield Event("tests-wrong", ROOT, path, number, line.strip()[:300], cause="data_corruption", weight=84)
            bandwidth = _busbw(numbers)
            if bandwidth:
                rows.append((size, line.strip()[:300], number, bandwidth, row[3]))
    if not rows:
        return
    yield Event("life", NOISE, path, rows[-1][2], rows[-1][1])
    large = [row for row in rows if row[0] >= SATURATED]
    for before, after in pairwise(rows):
        if after[0] > before[0] >= COLLAPSE and max(after[3]) < FALLEN * max(before[3]):
            yield Event("tests-slow", ROOT, path, after[2], after[1], cause="slow_bandwidth", weight=58,
                        facts=(("busbw", f"{max(after[3])}"), ("expected", f"{max(before[3])}, as at a smaller size")))  # fmt: skip  # noqa: E501
            return
    if not large:
        return
    best = max(large, key=lambda row: max(row[3]))
    top = max(best[3])
    same = [row for row in large if row[0] == large[-1][0]]
    if len(same) >= 2:  # one size again and again: runs that were put side by side
        worst = min(same, key=lambda row: max(row[3]))
        if max(worst[3]) < 0.4 * max(max(row[3]) for row in same):
            first = next(row for row in same if max(row[3]) < 0.4 * max(max(r[3]) for r in same))
            yield Event("tests-slow", ROOT, path, first[2], first[1], cause="slow_bandwidth", weight=58,
                        facts=(("busbw", f"{max(worst[3])}"), ("expected", f"{max(max(r[3]) for r in same)} in another run"),))  # fmt: skip  # noqa: E501
            return
    floor = _floor(model, len(hosts), "\n".join(line for _, line in lines))
    if test and not re.match(r"all_?reduce", test):
        floor /= 4
    if best[0] < 1 << 30:
        floor /= 2
    if 0 < top < floor:
        last = large[-1]
        yield Event("tests-slow", ROOT, path, last[2], last[1], cause="slow_bandwidth", weight=58,
                    facts=(("busbw", f"{top}"), ("expected", f"{floor:g} or more")))  # fmt: skip


_MACHINE = re.compile(r"Running on (p\d\w*(?:-\w+)?\.\d+xlarge)")
HALF = 0.5  # of what others measured on the type: far below, whatever the run


def _floor(model: str, hosts: int, text: str) -> float:
    """Bus bandwidth of a large all_reduce, GB/s of 10^9 bytes, below which something is wrong (bandwidth.toml)."""
    tables = toml.whole("bandwidth")
    if (machine := _MACHINE.search(text)) and hosts > 1:
        figures: list[float] = [
            max(row["busbw"].values()) for row in tables["row"] if row["type"] == machine[1] and row["nodes"] > 1
        ]
        if figures:
            return HALF * min(figures)
    for row in tables["floor"]:
        if row["gpu"] in model:
            return float(row["several"] if hosts > 1 else row["one"])
    return ANY_GPU


def _busbw(numbers: list[str]) -> list[float]:
    """Bus bandwidth of both halves: time algbw busbw #wrong, twice; an optional root stands before."""
    values = _without_root(numbers)
    if len(values) < 4:
        return []
    halves = [values[0:4]] + ([values[4:8]] if len(values) >= 8 else [])
    try:
        return [float(half[2]) for half in halves]
    except (ValueError, IndexError):
        return []


def _without_root(values: list[str]) -> list[str]:
    """The figures of a row; a root stands before them, -1 where the collective has none."""
    rooted = values[:1] == ["-1"] or (len(values) % 4 == 1 and values[0].lstrip("-").isdigit())
    return values[1:] if rooted else values


def _wrong(rest: list[str]) -> bool:
    """The #wrong column holds whole numbers; the older error column holds tiny fractions, which are fine."""
    values = [word for word in rest if re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|N/A", word)]
    values = _without_root(values)
    if len(values) < 4:
        return False
    for half in (values[0:4], values[4:8]):
        if len(half) == 4 and half[3] != "N/A":
            if half[3].isdigit() and half[3].strip("0"):
                return True
            if ("e" in half[3] or "." in half[3]) and float(half[3]) > 0.01:
                return True
    return False


# --------------------------------------------------------------------------- nvidia-smi


def nvidia_smi(path: str, lines: Lines) -> Iterator[Event]:
    gpu = ""
    section = ""
    columns: list[str] = []
    for number, line in lines:
        text = line.strip()
        if match := re.match(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)", text):
            gpu = pci(match[1])
        if text and ":" not in text:
            section = text
        remap = "Remapped Rows" in section or section == "Bank Remap Availability Histogram"
        if remap and re.match(r"(?:Pending|Remapping Failure Occurred)\s*:\s*(?:Yes|[1-9])", text):
            failed = "Failure" in text
            yield Event("smi-remap", ROOT, path, number, text, cause="gpu_ecc", weight=88 if failed else 80, gpu=gpu)
        if (
            match := re.match(
                r"(?:DRAM|SRAM) Uncorrectable[^:]*:\s*([1-9]\d*)|Double Bit ECC\s*:\s*([1-9]\d*)|Total\s*:\s*\d+ uncorrect",  # noqa: E501
                text,
            )
        ) and section != "Aggregate":
            yield Event("smi-ecc", ROOT, path, number, text, cause="gpu_ecc", weight=76, gpu=gpu)
        if re.match(r"SRAM Threshold Exceeded\s*:\s*Yes", text):
            yield Event("smi-ecc", ROOT, path, number, text, cause="gpu_ecc", weight=84, gpu=gpu)
        if "remapped_rows" in text and "," in text:
            columns = [word.strip() for word in text.split(",")]
        elif columns and text.count(",") == len(columns) - 1:
            row = dict(zip(columns, (word.strip() for word in text.split(",")), strict=False))
            for name, value in row.items():
                if re.search(r"remapped_rows\.(?:pending|failure)", name) and value in ("1", "Yes"):
                    yield Event("smi-remap", ROOT, path, number, text, cause="gpu_ecc", weight=86, gpu=pci(text))
        if match := re.match(r"\|\s+(\d+)\s+NVIDIA[^|]*\|\s*([0-9A-Fa-f:.]+)\s+\w+\s*\|\s*([1-9]\d*)\s*\|$", text):
            yield Event("smi-ecc", ROOT, path, number, text, cause="gpu_ecc", weight=74, gpu=pci(match[2]))


# --------------------------------------------------------------------------- Slurm tables


def sinfo(path: str, lines: Lines) -> Iterator[Event]:
    """States of nodes. A star means not answering; fail, down and inval need a person, drain may be planned."""
    state_at = -1
    header: list[str] = []
    drained: tuple[int, str, str] | None = None
    reasons = False
    for number, line in lines:
        words = line.split()
        if words[:2] == ["REASON", "USER"]:
            reasons = True
            continue
        row = re.search(r"^(.+?)\s+\S+\s+\d{4}-\d\d-\d\dT[\d:]+\s+(\S+)\s*$", line) if reasons else None
        if row:  # reasons that Slurm writes itself are patterns; this is somebody else's
            failed = re.search(r"fail|dead|broken|hang|lost|unreach", row[1], re.IGNORECASE)
            yield Event("sinfo-reason", ROOT if failed else NOISE, path, number, line.strip()[:300], cause="node_fail" if failed else "",  # noqa: E501
                        weight=46 if failed else 0, host=row[2])  # fmt: skip
            continue
        if "STATE" in words and ("NODELIST" in words or "PARTITION" in words or "NODES" in words):
            header, state_at = words, words.index("STATE")
            continue
        if state_at < 0 or len(words) <= state_at:
            continue
        state = words[state_at].lower()
        nodes = words[-1] if header[-1].startswith("NODELIST") else words[0]
        if not re.match(r"[a-z]+[*~#!%$@+^-]?$", state):
            continue
        if re.match(r"down[#~]", state):  # a node of the cloud that did not come up
            yield Event("sinfo-powered-down", ROOT, path, number, line.strip()[:300], cause="capacity",
                        weight=60, host=re.sub(r"-\[.*", "", nodes.split(",")[0]))  # fmt: skip
            continue
        if re.match(r"(?:down|fail|failing|failg|inval|error|unk|unknown|no_respond)", state) or state.endswith("*"):
            first = re.sub(r"\[.*", "", nodes.split(",")[0]) if "[" not in nodes.split(",")[0] else nodes
            yield Event("sinfo-state", ROOT, path, number, line.strip()[:300], cause="slurm_node_config" if state.startswith("inval") else "node_fail",  # noqa: E501
                        weight=64, host=first, facts=(("state", state),))  # fmt: skip
        elif state.startswith(("drain", "drng")):
            drained = drained or (number, line.strip()[:300], nodes)
    if drained:
        yield Event("sinfo-drained", NOISE, path, drained[0], drained[1], host=drained[2])


# --------------------------------------------------------------------------- network choice


def network(path: str, lines: Lines) -> Iterator[Event]:
    """TCP where EFA was meant: by a setting, or because the plugin or the machine speaks of EFA and sockets are used."""  # noqa: E501
    socket: tuple[int, str] | None = None
    wanted = used = False
    for number, line in lines:
        if re.search(r"NCCL_NET set by environment to Socket", line):
            yield Event("net-socket", ROOT, path, number, line[:300], cause="efa_not_used", weight=52)
            return
        if re.search(
            r"Using network (?:AWS )?(?:Libfabric|IB\w*|OFI|UCX)|Selected [Pp]rovider is efa|via NET/(?:AWS )?Libfabric",  # noqa: E501
            line,
        ):
            used = True
        if "Using network Socket" in line:
            socket = socket or (number, line[:300])
        if re.search(
            r"NET/OFI|FI_PROVIDER|FI_EFA|libnccl-ofi|aws-ofi|AWS Libfabric|\b(?:p4de?|p5en?|p6-\w+)[.-]\d*x?large", line
        ):
            wanted = True
    if socket and wanted and not used:
        yield Event("net-socket", ROOT, path, socket[0], socket[1], cause="efa_not_used", weight=52)


# --------------------------------------------------------------------------- small outputs


def small_tools(path: str, lines: Lines, text: str) -> Iterator[Event]:
    for number, line in lines:
        if re.match(r"-61(?: \(No data available\))?$", line.strip()):  # some versions print the bare code
            yield Event("fi-info-bare", ROOT, path, number, line.strip(), cause="efa_not_used", weight=72)
            break
    for number, line in lines:
        if match := re.match(r"\S+\s+\S+\s+\S+\s+\S+\s+(\d+)%\s+(/\S*)\s*$", line):
            if (whole(match[1]) or 0) >= 98:
                shm = match[2].startswith("/dev/shm")
                if not re.search(r"/boot|/snap|loop|squashfs|/media|/run", line):
                    yield Event(
                        "df-full", ROOT, path, number, line.strip(), cause="shm_full" if shm else "storage", weight=62
                    )
        elif match := re.match(
            r"(?:max locked memory\s+\((?:kbytes|kb), -l\)|Max locked memory|-l: locked memory \(kbytes\))\s+(\d+)\b",
            line,
        ):
            limit = whole(match[1])
            if limit is not None and limit < (1 << 20) * (1024 if line.startswith("Max") else 1):
                yield Event("ulimit-low", ROOT, path, number, line.strip(), cause="memlock", weight=72)
        elif (
            (re.match(r"\s*State:\s*Down\b", line) and re.search(r"Physical state|CA '|Port \d", text))
            or re.match(r"\s*state:\s+PORT_DOWN", line)
            or re.search(r"link mlx5_\d+/\d state DOWN", line)
        ):
            yield Event("ib-port-down", ROOT, path, number, line.strip(), cause="network_link", weight=72)
    if (
        re.search(r"fi_info -p efa", text)
        and re.search(r"^provider: (?!efa)", text, re.MULTILINE)
        and "provider: efa" not in text
    ):
        yield Event(
            "fi-info-other", ROOT, path, 1, "fi_info -p efa lists no efa provider", cause="efa_not_used", weight=66
        )


_SCORE = re.compile(r"Rank=(\d+) Node=(\S+) Score=(\d+(?:\.\d+)?)")
_MEGATRON = re.compile(r"MnRtt/Rnk: (\d+(?:\.\d+)?)ms/(\d+) \| MxRtt/Rnk: (\d+(?:\.\d+)?)ms/(\d+)")
STRAGGLER_SCORE = 0.7  # the default threshold of NVRx
STRAGGLER_RATIO = 1.2


def performance(path: str, lines: Lines) -> Iterator[Event]:
    for number, line in lines:
        if (match := _SCORE.search(line)) and float(match[3]) < STRAGGLER_SCORE:
            yield Event(
                "score-low",
                ROOT,
                path,
                number,
                line.strip()[:200],
                cause="straggler",
                weight=66,
                rank=whole(match[1]),
                host=match[2],
            )
        elif (match := _MEGATRON.search(line)) and float(match[3]) > STRAGGLER_RATIO * float(match[1]):
            yield Event(
                "rtt-high", ROOT, path, number, line.strip()[:300], cause="straggler", weight=62, rank=whole(match[4])
            )
