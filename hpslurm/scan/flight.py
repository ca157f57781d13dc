"""PyTorch's NCCL flight recorder: what each rank had enqueued, started and completed.

A dump is a pickle, or JSON. A pickle can run code when it is read, and a dump lies where a job wrote it, so
only plain values are taken from it: a dump that asks for anything else is refused.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import resource
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, NoReturn, TypeGuard

from hpslurm.core.finding import NOISE, Event
from hpslurm.core.text import clean, whole
from hpslurm.core.values import asdict, dataclass
from hpslurm.scan import model
from hpslurm.scan.prefix import rank_of_file

LARGEST = 128 << 20  # bytes of one dump
MOST = 1 << 63  # of a number in a dump
MOST_MEMBERS = 65_536  # of one group
DEFAULT_GROUP = "default"


SECONDS = 20.0  # for reading one dump
MEMORY = 1 << 30  # bytes that reading it may take, and ten times its own size


class NotADump(Exception):
    """This is no flight recorder dump, or one that cannot be trusted; says why."""


class _Plain(pickle.Unpickler):
    """Numbers, text, lists, tuples, dicts. Never a class, never a function."""

    def find_class(self, module: str, name: str) -> Any:
        raise NotADump(f"it asks for {clean(module, 60)}.{clean(name, 60)}, which a dump has no need of")

    def persistent_load(self, pid: Any) -> Any:
        raise NotADump("it refers to objects outside of itself")


def looks_like(head: bytes) -> bool:
    """Whether the first bytes of a file can begin a dump."""
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return True
    start = head.lstrip()[:1]
    return start == b"{" and any(
        word in head for word in (b'"pg_config"', b'"entries"', b'"pg_status"', b'"nccl_version"')
    )


def read(stream: IO[bytes], path: str) -> list[Event]:
    """The events of a dump. Raises NotADump.

    Nine bytes of a pickle can ask for two gigabytes, and some hundred can mean a list without end. So a child reads
    it, with little memory and little time, and hands back what it found.
    """
    data = stream.read(LARGEST + 1)

    def found() -> bytes:
        return json.dumps([asdict(event) for event in events(load(io.BytesIO(data)), path)]).encode()

    said = _apart(found, MEMORY + 10 * len(data))
    if said[:1] != b"[":
        raise NotADump(clean(said.decode("utf-8", "replace"), 200))
    return [Event(**{**row, "facts": tuple(map(tuple, row["facts"]))}) for row in json.loads(said)]


def _apart(work: Callable[[], bytes], memory: int) -> bytes:
    """What ``work`` gives, done in a child; words where it came to nothing."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        _child(send, work, memory)
    os.close(send)
    data, until = bytearray(), time.monotonic() + SECONDS
    try:
        while (left := until - time.monotonic()) > 0 and select.select([receive], [], [], left)[0]:
            piece = os.read(receive, 1 << 16)
            if not piece:
                return bytes(data) or b"too large to read"
            data += piece
        return f"not read within {SECONDS:g} s".encode()
    finally:
        os.close(receive)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _child(send: int, work: Callable[[], bytes], memory: int) -> NoReturn:
    """Ends here whatever happens, or our caller would run twice."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, now + memory))
        try:
            said = work()
        except NotADump as why:
            said = str(why).encode("utf-8", "replace")
        while said:
            said = said[os.write(send, said) :]
    finally:
        os._exit(0)


def load(stream: IO[bytes]) -> dict[str, Any]:
    """The dump as plain values. Raises NotADump."""
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise NotADump(f"larger than {LARGEST >> 20} MiB")
    try:
        dump = _Plain(io.BytesIO(data)).load() if data[:1] == b"\x80" else json.loads(data)
    except NotADump:
        raise
    except (MemoryError, RecursionError) as error:
        raise NotADump(f"too large to read ({type(error).__name__})") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise NotADump(f"damaged or cut off ({type(error).__name__})") from None
    if not isinstance(dump, dict) or not isinstance(dump.get("entries"), list):
        raise NotADump("no list of entries in it")
    return dump


def events(dump: Mapping[str, Any], path: str) -> Iterator[Event]:
    """For each process group: where this rank waits, and what it completed last."""
    rank = _rank(dump, path)
    yield Event("kind:flight-recorder", NOISE, path, 1, "flight-recorder")
    if rank is None:
        return
    waiting, done = _progress(dump)
    members = _members(dump)
    for group in sorted({*waiting, *done, *members}):
        facts = [
            ("pg", group),
            ("done", str(done.get(group, 0))),
            ("members", ",".join(map(str, members.get(group, ())))),
        ]
        text = f"rank {rank}, group {group}: {done.get(group, 0)} completed"
        if entry := waiting.get(group):
            name, sizes = entry.get("profiling_name", ""), entry.get("input_sizes", "")
            facts += [("at", str(_seq(entry))), ("op", clean(str(name), 60)), ("sizes", clean(str(sizes), 120))]
            text += f", waits in {_seq(entry)} {name} {sizes} ({entry.get('state', '')})"
        yield Event("fr", NOISE, path, 1, clean(text), rank=rank, facts=tuple(facts))


def _progress(dump: Mapping[str, Any]) -> tuple[dict[str, Mapping[str, Any]], dict[str, int]]:
    """For each group: the first entry that is not completed, and the number of the last one that is."""
    waiting: dict[str, Mapping[str, Any]] = {}
    done: dict[str, int] = {}
    for entry in dump["entries"]:
        if not isinstance(entry, dict) or entry.get("is_p2p"):
            continue
        group, seq = _group(entry), entry.get("collective_seq_id", entry.get("seq_id"))
        if not _fits(seq):
            continue
        if entry.get("state") == "completed" or entry.get("retired") is True:
            done[group] = max(done.get(group, 0), seq)
        elif group not in waiting or seq < _seq(waiting[group]):
            waiting[group] = entry
    return waiting, done


def _seq(entry: Mapping[str, Any]) -> int:
    value = entry.get("collective_seq_id", entry.get("seq_id"))
    return value if _fits(value) else 0


def _fits(value: Any) -> TypeGuard[int]:
    """A number that can be one: a pickle holds any, and Python refuses to print those of thousands of digits."""
    return isinstance(value, int) and 0 <= value < MOST


def _group(entry: Mapping[str, Any]) -> str:
    group = entry.get("process_group") or entry.get("pg_name") or entry.get("pg_id")
    if isinstance(group, (list, tuple)) and group:
        group = group[0]
    return clean(str(group if group is not None else DEFAULT_GROUP), 60)


def _members(dump: Mapping[str, Any]) -> dict[str, list[int]]:
    config = dump.get("pg_config")
    members: dict[str, list[int]] = {}
    for name, group in config.items() if isinstance(config, dict) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(ranks, str):
            try:
                ranks = json.loads(ranks)
            except ValueError:
                ranks = None
        if isinstance(ranks, list):
            members[clean(str(name), 60)] = [rank for rank in ranks if _fits(rank)][:MOST_MEMBERS]
    return members


def _rank(dump: Mapping[str, Any], path: str) -> int | None:
    own = dump.get("rank")
    return own if _fits(own) else rank_of_file(path)


# --------------------------------------------------------------------------- across ranks


@dataclass(frozen=True)
class Verdict:
    """Who broke one group; ``row`` of reasoning.toml says what that is worth."""

    row: str
    rank: int
    text: str
    event: Event


def judge(dumps: Iterable[Event]) -> Verdict | None:
    """The rank that did not join a collective, or joined with another operation or shape."""
    groups: dict[str, dict[int, Event]] = {}
    for event in dumps:
        if event.pattern == "fr" and event.rank is not None:
            groups.setdefault(event.fact("pg"), {})[event.rank] = event
    verdicts = [verdict for ranks in groups.values() if (verdict := _judge_group(ranks))]
    return max(verdicts, key=lambda verdict: model.derived()[verdict.row].weight, default=None)


def _judge_group(ranks: dict[int, Event]) -> Verdict | None:
    waiting = {rank: event for rank, event in ranks.items() if event.fact("at")}
    if not waiting:
        return None
    first = min(_number(event, "at") for event in waiting.values())
    there = {rank: event for rank, event in waiting.items() if _number(event, "at") == first}
    return _odd_shape(there, first) or _not_there(ranks, there, first) or _left_behind(ranks, there, first)


def _number(event: Event, fact: str) -> int:
    return whole(event.fact(fact)) or 0


def _odd_shape(there: dict[int, Event], first: int) -> Verdict | None:
    shapes: dict[tuple[str, str], list[int]] = {}
    for rank, event in sorted(there.items()):
        shapes.setdefault((event.fact("op"), event.fact("sizes")), []).append(rank)
    if len(shapes) < 2:
        return None
    (operation, sizes), odd = min(shapes.items(), key=lambda item: len(item[1]))
    text = f"ranks {odd[:8]} joined collective {first} as {operation} {sizes}, the others did not"
    return Verdict("fr-shape", odd[0], text, there[odd[0]])


def _not_there(ranks: dict[int, Event], there: dict[int, Event], first: int) -> Verdict | None:
    """A member that has not come, by its own dump or because it left none."""
    members = {whole(text) or 0 for event in ranks.values() for text in event.fact("members").split(",") if text}
    members = members or set(ranks)
    some = next(iter(there.values()))
    absent = [
        rank for rank in sorted(members) if rank in ranks and rank not in there and _number(ranks[rank], "done") < first
    ]
    if absent:
        text = (
            f"ranks {absent[:8]} did not join collective {first} ({some.fact('op')}) that {len(there)} others wait in"
        )
        return Verdict("fr-absent", absent[0], text, ranks[absent[0]])
    unseen = [rank for rank in sorted(members) if rank not in ranks]
    if unseen and len(unseen) <= max(1, len(members) // 2):
        text = f"no dump of ranks {unseen[:8]}, and all others wait in collective {first} ({some.fact('op')})"
        return Verdict("fr-silent", unseen[0], text, some)
    return None


def _left_behind(ranks: dict[int, Event], there: dict[int, Event], first: int) -> Verdict | None:
    behind = list(there)
    if len(there) * 2 >= len(ranks):
        return None
    text = f"ranks {behind[:8]} still wait in collective {first} that the others completed"
    return Verdict("fr-behind", behind[0], text, there[behind[0]])
