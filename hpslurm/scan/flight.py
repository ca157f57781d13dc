"""PyTorch's NCCL flight recorder: what each rank had enqueued, started and completed.

A dump is a pickle, or JSON. A pickle can run code when it is read, and a dump lies where a job wrote it, so
only plain values are taken from it: a dump that asks for anything else is refused.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, TypeGuard

from hpslurm.core.finding import NOISE, Event
from hpslurm.core.text import clean, whole
from hpslurm.scan.prefix import rank_of_file

LARGEST = 128 << 20  # bytes of one dump
MOST = 1 << 63  # of a number in a dump
DEFAULT_GROUP = "default"


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


def load(stream: IO[bytes]) -> dict[str, Any]:
    """The dump as plain values. Raises NotADump."""
    data = stream.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise NotADump(f"larger than {LARGEST >> 20} MiB")
    try:
        found = _Plain(io.BytesIO(data)).load() if data[:1] == b"\x80" else json.loads(data)
    except NotADump:
        raise
    except (MemoryError, RecursionError) as error:
        raise NotADump(f"too large to read ({type(error).__name__})") from None
    except Exception as error:  # damaged pickles raise nearly anything
        raise NotADump(f"damaged or cut off ({type(error).__name__})") from None
    if not isinstance(found, dict) or not isinstance(found.get("entries"), list):
        raise NotADump("no list of entries in it")
    return found


def events(dump: Mapping[str, Any], path: str) -> Iterator[Event]:
    """For each process group: where this rank waits, and what it completed last."""
    rank = _rank(dump, path)
    yield Event("kind:flight-recorder", NOISE, path, 1, "flight-recorder")
    if rank is None:
        return
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
    members = _members(dump)
    for group in sorted({*waiting, *done, *members}):
        facts = [
            ("pg", group),
            ("done", str(done.get(group, 0))),
            ("members", ",".join(map(str, members.get(group, ())))),
        ]
        text = f"rank {rank}, group {group}: {done.get(group, 0)} completed"
        if one := waiting.get(group):
            facts += [
                ("at", str(_seq(one))),
                ("op", clean(str(one.get("profiling_name", "")), 60)),
                ("sizes", clean(str(one.get("input_sizes", "")), 120)),
            ]
            text += f", waits in {_seq(one)} {one.get('profiling_name', '')} {one.get('input_sizes', '')} ({one.get('state', '')})"  # noqa: E501
        yield Event("fr", NOISE, path, 1, clean(text), rank=rank, facts=tuple(facts))


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
    found: dict[str, list[int]] = {}
    if isinstance(config, dict):
        for name, one in config.items():
            ranks = one.get("ranks") if isinstance(one, dict) else None
            if isinstance(ranks, str):
                try:
                    ranks = json.loads(ranks)
                except ValueError:
                    ranks = None
            if isinstance(ranks, list):
                found[clean(str(name), 60)] = [rank for rank in ranks if _fits(rank)][:65536]
    return found


def _rank(dump: Mapping[str, Any], path: str) -> int | None:
    own = dump.get("rank")
    return own if _fits(own) else rank_of_file(path)


# --------------------------------------------------------------------------- across ranks


class Verdict:
    """Who broke one group: ``cause`` straggler, collective_desync or collective_timeout_unknown."""

    def __init__(self, cause: str, rank: int, text: str, event: Event, weight: int) -> None:
        self.cause, self.rank, self.text, self.event, self.weight = cause, rank, text, event, weight


def judge(found: Iterable[Event]) -> Verdict | None:
    """The rank that did not join a collective, or joined with another operation or shape."""
    groups: dict[str, dict[int, Event]] = {}
    for event in found:
        if event.pattern == "fr" and event.rank is not None:
            groups.setdefault(event.fact("pg"), {})[event.rank] = event
    best: Verdict | None = None
    for ranks in groups.values():
        verdict = _judge_group(ranks)
        if verdict and (best is None or verdict.weight > best.weight):
            best = verdict
    return best


def _judge_group(ranks: dict[int, Event]) -> Verdict | None:
    waiting = {rank: event for rank, event in ranks.items() if event.fact("at")}
    if not waiting:
        return None
    members = {
        whole(text) or 0 for event in ranks.values() for text in event.fact("members").split(",") if text
    } or set(ranks)
    first = min((whole(event.fact("at")) or 0) for event in waiting.values())
    there = {rank: event for rank, event in waiting.items() if (whole(event.fact("at")) or 0) == first}
    some = next(iter(there.values()))
    shapes: dict[tuple[str, str], list[int]] = {}
    for rank, event in sorted(there.items()):
        shapes.setdefault((event.fact("op"), event.fact("sizes")), []).append(rank)
    if len(shapes) > 1:
        shape, odd = min(shapes.items(), key=lambda item: len(item[1]))
        return Verdict(
            "collective_desync",
            odd[0],
            f"ranks {odd[:8]} joined collective {first} as {shape[0]} {shape[1]}, the others did not",
            there[odd[0]],
            82,
        )
    absent = [
        rank
        for rank in sorted(members)
        if rank in ranks and rank not in there and (whole(ranks[rank].fact("done")) or 0) < first
    ]
    if absent:
        return Verdict(
            "straggler",
            absent[0],
            f"ranks {absent[:8]} did not join collective {first} ({some.fact('op')}) that {len(there)} others wait in",
            ranks[absent[0]],
            78,
        )
    unseen = [rank for rank in sorted(members) if rank not in ranks]
    if unseen and len(unseen) <= max(1, len(members) // 2):
        return Verdict(
            "collective_timeout_unknown",
            unseen[0],
            f"no dump of ranks {unseen[:8]}, and all others wait in collective {first} ({some.fact('op')})",
            some,
            60,
        )
    behind = [rank for rank in there if len(there) < len(ranks) - len(there)]
    if behind:
        return Verdict(
            "collective_desync",
            behind[0],
            f"ranks {behind[:8]} still wait in collective {first} that the others completed",
            there[behind[0]],
            62,
        )
    return None
