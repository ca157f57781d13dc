"""Who is where: which rank each process is, on which host, and what the hosts of a job have alike or not."""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core import linear
from hpslurm.core.finding import NOISE, Event
from hpslurm.core.text import whole
from hpslurm.scan import prefix

Lines = list[tuple[int, str]]  # line number, text
MOST_PROCESSES = 4096
MOST_TRAITS = 512
MOST_TASKS = 100_000  # of one list

_COMM = linear.compile(r"comm 0x[0-9a-f]+ rank (\d+) n[Rr]anks (\d+)")
_WORLD = linear.compile(r"(?:world[_ ]size|WORLD_SIZE|nranks|nRanks|num_processes)[ '\":=]+(\d+)")
_DEVICE = linear.compile(r"Rank\s+(\d+)(?:\s+Group\s+\d+)?\s+Pid\s+\d+ on\s+(\S+) device\s+\d+")
_RANK_ON_HOST = linear.compile(
    r"(?i)process rank (?P<rank>\d+) with PID \d+ on node (?P<host>[\w.-]+)"
    r"|\brank[ =:#]+(?P<rank2>\d+)\b[^\n]{0,60}\b(?:host(?:name)?|node)[ =:]+(?P<host2>[A-Za-z][\w.-]*\d[\w.-]*)"
    r"|\b(?:host(?:name)?|node)[ =:]+(?P<host3>[A-Za-z][\w.-]*\d[\w.-]*)[^\n]{0,40}\brank[ =:#]+(?P<rank3>\d+)\b"
)
_BLOCK = linear.compile(r"^\s*(host|rank)\s*: *(\S+)")  # of torchrun's summary
# One side of a connection: from, to, and how.
_CHANNEL = linear.compile(
    r"\b(\d+)\[\w+\] -> (\d+)\[\w+\] \[(send|receive)\] via NET/\S+?/\d+(?:\(\d+\))?(/GDRDMA)?(?=[\s(]|$)"
)

# The same on one node too; the sender prints the line where it does not say which side it is.
_ANY_CHANNEL = linear.compile(r"\bChannel \d+(?:/\d+)? : (\d+)\[\w+\] -> (\d+)\[\w+\] (?:\[(send|receive)\] )?via ")

# What every host of a job must have alike: name -> expression.
TRAITS = (
    ("nccl", linear.compile(r"NCCL version (\d+\.\d+\.\d+)")),
    ("plugin", linear.compile(r"Initializing aws-ofi-nccl (\S+)")),
    ("libfabric", linear.compile(r"NET/OFI Using Libfabric version (\S+)")),
    ("nics", linear.compile(r"\(found (\d+) nics\)")),
    ("network", linear.compile(r"Using network (\w[\w ]*)")),
    ("loader", linear.compile(r"(Using internal network plugin|using internal implementation)|(Plugin Path : \S*libnccl-net|Loaded net plugin|Successfully loaded external plugin)")),  # noqa: E501
)  # fmt: skip


def events(path: str, lines: Lines) -> Iterator[Event]:
    for events_of in (identities, hosts, tasks, claims, named, traits, channels):
        yield from events_of(path, lines)


def identities(path: str, lines: Lines) -> Iterator[Event]:
    """Which rank each process is, from NCCL's set-up lines: later lines carry only host and pid.

    Where the lines that say it outright are missing, those of the channels tell whose side they are.
    """
    known: set[tuple[str, int | None]] = set()
    by_channel: dict[tuple[str, int | None], Event] = {}
    members: set[tuple[str, int | None]] = set()  # threads of one process may be ranks, too
    world = 0
    for number, line in lines:
        if match := _COMM.search(line):
            mark = prefix.read(line)
            world = max(world, whole(match[2]) or 0)
            members.add((mark.host, whole(match[1])))
            if (mark.host, mark.pid) not in known and len(known) < MOST_PROCESSES:
                known.add((mark.host, mark.pid))
                yield Event("identity", NOISE, path, number, "", rank=whole(match[1]), host=mark.host, pid=mark.pid,
                            local_rank=mark.local_rank, facts=(("world", match[2]),))  # fmt: skip
        elif match := _WORLD.search(line):
            world = max(world, whole(match[1]) or 0)
        elif match := _ANY_CHANNEL.search(line):
            mark = prefix.read(line)
            if (mark.host, mark.pid) not in by_channel and len(by_channel) < MOST_PROCESSES:
                by_channel[mark.host, mark.pid] = Event(
                    "identity", NOISE, path, number, "", rank=whole(match[2 if match[3] == "receive" else 1]),
                    host=mark.host, pid=mark.pid, local_rank=mark.local_rank,
                )  # fmt: skip
    yield from (event for process, event in by_channel.items() if process not in known)
    if world == len(members) and len({host for host, _ in members}) == 1:
        yield Event("one-node", NOISE, path, 1, "", host=members.pop()[0])
    if world > 1:
        yield Event("world", NOISE, path, 1, "", facts=(("world", str(world)),))


def hosts(path: str, lines: Lines) -> Iterator[Event]:
    """Pairs of a world rank and its host."""
    known: set[tuple[int, str]] = set()
    block_host = ""
    for number, line in lines:
        rank, host = _pair(line)
        if block := _BLOCK.match(prefix.bare(line)):
            if block[1] == "host":
                block_host = block[2]
                continue
            rank, host = (whole(block[2]), block_host) if block_host else (rank, host)
            block_host = ""
        if rank is not None and host and (rank, host) not in known and len(known) < MOST_PROCESSES:
            known.add((rank, host))
            yield Event("place", NOISE, path, number, "", rank=rank, host=host.split(".")[0])


_TASK = linear.compile(
    r"srun: error: (?P<host>[\w.-]+): tasks? (?P<tasks>\d[\d,-]{0,1000}): (?P<end>[A-Z][\w ()-]{0,60})"
)


def tasks(path: str, lines: Lines) -> Iterator[Event]:
    """How each task of a step ended, and on which node, as srun lists it."""
    known: set[int] = set()
    for number, line in lines:
        if not (match := _TASK.search(line)):
            continue
        for task in task_numbers(match["tasks"]):
            if task not in known and len(known) < MOST_PROCESSES:
                known.add(task)
                yield Event("task", NOISE, path, number, line.strip()[:300], rank=task,
                            host=match["host"].split(".")[0], facts=(("end", match["end"]),))  # fmt: skip


_CLAIM = linear.compile(
    r"^\s{0,6}(?P<task>\d{1,6}): ?[^\n]{0,40}Initializing distributed: GLOBAL_RANK: (?P<rank>\d+), MEMBER: \d+/"
)


def claims(path: str, lines: Lines) -> Iterator[Event]:
    """Which task of srun --label says that it is which rank, as Lightning does when it starts."""
    known: set[tuple[str, str]] = set()
    for number, line in lines:
        claim = _CLAIM.match(line)
        if claim and claim.groups() not in known and len(known) < MOST_PROCESSES:
            known.add((claim["task"], claim["rank"]))
            facts = (("task", claim["task"]),)
            yield Event("claim", NOISE, path, number, line.strip()[:300], rank=whole(claim["rank"]), facts=facts)


def task_numbers(text: str) -> list[int]:
    """The tasks of a list as srun prints it; empty where it is none, or names more than 100,000.

    >>> task_numbers("0-2,5")
    [0, 1, 2, 5]
    """
    tasks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        begin, end = whole(first), whole(last or first)
        if begin is None or end is None or end - begin + len(tasks) >= MOST_TASKS:
            return []
        tasks += range(begin, end + 1)
    return tasks


_ALONE = linear.compile(
    r"(?:Exec(?:ution)? host|Hostname|Local host|Node name)\s*[:=]\s*(?P<host>[A-Za-z][\w.-]*)"
    r"|\bsrun [^\n]*(?: -w ?|--nodelist[= ])(?P<host2>[A-Za-z][\w-]*\d)(?=\s|$)"
    r"|^\[?\w+@(?P<host3>[A-Za-z][\w-]*\d[\w-]*)[\[\]~: ]"  # a prompt
)


def named(path: str, lines: Lines) -> Iterator[Event]:
    """Hosts that a report names without a rank."""
    known: set[str] = set()
    for number, line in lines:
        if not (match := _ALONE.search(line)):
            continue
        host = next(group for group in match.groups() if group).split(".")[0]
        if host not in known and len(known) < MOST_TRAITS:
            known.add(host)
            yield Event("place", NOISE, path, number, "", host=host)


def _pair(line: str) -> tuple[int | None, str]:
    if match := _DEVICE.search(line):
        return whole(match[1]), match[2]
    if match := _RANK_ON_HOST.search(line):
        groups = match.groupdict()
        rank = groups["rank"] or groups["rank2"] or groups["rank3"] or ""
        return whole(rank), groups["host"] or groups["host2"] or groups["host3"] or ""
    return None, ""


def traits(path: str, lines: Lines) -> Iterator[Event]:
    """Versions, devices and network of each host, as NCCL's set-up lines tell them."""
    known: set[tuple[str, str, str]] = set()
    for number, line in lines:
        if "NCCL" not in line:
            continue
        for name, expression in TRAITS:
            if match := expression.search(line):
                value = "internal" if name == "loader" and match[1] else "external" if name == "loader" else match[1]
                host = prefix.read(line).host
                if host and (name, value, host) not in known and len(known) < MOST_TRAITS:
                    known.add((name, value, host))
                    yield Event("trait", NOISE, path, number, line.strip()[:300], host=host, facts=((name, value),))


def channels(path: str, lines: Lines) -> Iterator[Event]:
    """Sides of a connection between nodes, with and without GPUDirect."""
    known: set[tuple[str, ...]] = set()
    for number, line in lines:
        if match := _CHANNEL.search(line):
            key = (match[1], match[2], "yes" if match[4] else "no")
            if key not in known and len(known) < MOST_TRAITS:
                known.add(key)
                facts = (("from", match[1]), ("to", match[2]), ("gdr", key[2]), ("side", match[3]))
                yield Event("channel", NOISE, path, number, line.strip()[:300], facts=facts)
