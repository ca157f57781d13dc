"""Whether this node is in a partition, by the slurm.conf that slurmd reads here: a health check knows no job, and
hooks ask Slurm nothing. Light, so without ClusterShell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hpslurm.sources.host import SLURM_CONF, Host

CACHE = ("/var/spool/slurmd/conf-cache/slurm.conf", "/run/slurm/conf/slurm.conf")
MOST_BYTES = 16 << 20
_PART = re.compile(r"(?:[^\[,]|\[[^\[\]]*\])+")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


def is_in_one(host: Host, node: str, names: Iterable[str]) -> bool | None:
    """Whether the node is in one of these partitions; None where the file does not tell."""
    lines = _lines(host, next((path for path in _places(host) if host.exists(path)), ""))
    if lines is None:
        return None
    nodes, sets = _tables(lines)
    answers = [_holds(nodes.get(name), sets, node) for name in names]
    return True if True in answers else None if None in answers else False


def _places(host: Host) -> tuple[str, ...]:
    name, files = SLURM_CONF
    return tuple(filter(None, (host.env.get(name), *CACHE, *files)))


def _tables(lines: list[dict[str, str]]) -> tuple[dict[str, str], dict[str, str | None]]:
    """Node lists by partition, and by node set (None: a set by feature)."""
    nodes: dict[str, str] = {}
    sets: dict[str, str | None] = {}
    usual = ""
    for line in lines:
        if (name := line.get("partitionname")) == "DEFAULT":
            usual = line.get("nodes", usual)
        elif name:
            nodes[name] = line.get("nodes", usual)
        elif "nodeset" in line:
            sets[line["nodeset"]] = line.get("nodes") if "feature" not in line else None
    return nodes, sets


def _holds(text: str | None, sets: dict[str, str | None], node: str) -> bool | None:
    """None for a partition that the file does not have (made by scontrol), and for a node set by feature."""
    if text is None:
        return None
    answers: list[bool | None] = [None if text == "" else False]
    for part in _PART.findall(text):
        if part in sets:
            named = sets[part]
            answers.append(None if named is None else named == "ALL" or any(_each(named, node)))
        else:
            answers.append(part == "ALL" or _matches(part, node))
    return True if True in answers else None if None in answers else False


def _each(text: str, node: str) -> Iterator[bool]:
    return (_matches(part, node) for part in _PART.findall(text))


def _matches(pattern: str, node: str) -> bool:
    """``n[1-4,07]``: each bracket stands for as many digits as its numbers have.

    >>> [_matches("n[1-4,07]", node) for node in ("n1", "n4", "n5", "n07", "n7")]
    [True, True, False, True, False]
    """
    texts = _BRACKET.split(pattern)
    widest = [
        max((len(number) for number in re.findall(r"[0-9]{1,18}", bracket)), default=1) for bracket in texts[1::2]
    ]
    digits = [rf"([0-9]{{1,{width}}})" for width in widest]
    match = re.fullmatch(
        "".join(re.escape(text) + digit for text, digit in zip(texts[::2], [*digits, ""], strict=True)), node
    )
    return match is not None and all(map(_in_ranges, match.groups(), texts[1::2]))


def _in_ranges(number: str, ranges: str) -> bool:
    for match in _RANGE.finditer(ranges):
        first, last = match[1], match[2] or match[1]
        width = len(first) if first.startswith("0") else 1
        if int(first) <= int(number) <= int(last) and f"{int(number):0{width}}" == number:
            return True
    return False


def _lines(host: Host, path: str, deep: int = 4) -> list[dict[str, str]] | None:
    """Every line as keys (lower case) and values, those of included files too; None where one cannot be read."""
    try:
        text = host.read(path, MOST_BYTES) if path else None
    except OSError:
        text = None
    if text is None:
        return None
    rows: list[dict[str, str]] = []
    for line in text.replace("\\\n", " ").split("\n"):
        words = line.partition("#")[0].split()
        if len(words) == 2 and words[0].lower() == "include" and deep:
            where = words[1] if words[1].startswith("/") else f"{path.rpartition('/')[0]}/{words[1]}"
            for name in host.glob(where) or [where]:
                more = _lines(host, name, deep - 1)
                if more is None:
                    return None
                rows += more
        elif words and words[0].lower().startswith(("partitionname=", "nodeset=")):
            rows.append(_row(words))
    return rows


def _row(words: list[str]) -> dict[str, str]:
    """The words of a line of slurm.conf as keys and values.

    >>> _row('PartitionName=gpu Nodes="ip-10-1-0-[1-64]" Default=YES'.split())
    {'partitionname': 'gpu', 'nodes': 'ip-10-1-0-[1-64]', 'default': 'YES'}
    """
    return {key.lower(): value.strip("\"'") for key, _, value in (word.partition("=") for word in words)}
