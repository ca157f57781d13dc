"""Every regular expression of the project, and the strings on which it might take long.

An expression is found where it is compiled on import, where it stands in a call of ``re`` or in a table. The strings
are made from the expression itself: for each repetition in it, what leads there, then what it repeats, again and
again, then an end at which it fails. They are what an attacker would find by reading the source, which is public.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import hpslurm
from hpslurm.core import linear, toml

if sys.version_info >= (3, 11):
    from re import _constants as sre
    from re import _parser as parser
else:
    import sre_constants as sre
    import sre_parse as parser

PACKAGE = Path(hpslurm.__file__).parent
CALLS = ("compile", "search", "match", "fullmatch", "sub", "subn", "split", "findall", "finditer")
KEYS = ("regex", "pattern", "words")  # of tables
BOUNDED = (
    "patterns",
    "trouble",
    "reasoning",
    "gpu_kernel",
    "xid",
    "sxid",
    "nccl_env",
    "events",
    "failures",
)  # tables compiled by core.linear
END = "\x01"
SHORT = 128  # characters of a piece that is repeated


@dataclass(frozen=True)
class Expression:
    where: str
    regex: str | bytes
    flags: int = 0
    how: tuple[str, ...] = ("finditer",)  # the methods that are called; what searches at all counts as finditer

    @property
    def compiled(self) -> re.Pattern[Any]:
        return re.compile(self.regex, self.flags & ~re.UNICODE if isinstance(self.regex, bytes) else self.flags)


def expressions() -> list[Expression]:
    """All of them, each once."""
    found: dict[tuple[str | bytes, int, tuple[str, ...]], Expression] = {}
    modules = list(_of_modules())
    known = {one.regex for one in modules}  # how a module uses them is known
    calls = (one for one in _of_calls() if one.regex not in known)
    for one in (*modules, *calls, *_of_tables()):
        found.setdefault((one.regex, one.flags & ~re.UNICODE, one.how), one)
    return list(found.values())


def _of_modules() -> Iterator[Expression]:
    for info in pkgutil.walk_packages([str(PACKAGE)], "hpslurm."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if name.startswith("__"):
                continue
            how = _how(module, name)
            for pattern in _inside(value, 4):
                yield Expression(f"{info.name}.{name}", pattern.pattern, pattern.flags, how)


def _how(module: ModuleType, name: str) -> tuple[str, ...]:
    used = set(re.findall(rf"\b{re.escape(name)}\.(\w+)", inspect.getsource(module))) - {"pattern"}
    return tuple(sorted(used)) if used and used <= {"match", "fullmatch"} else ("finditer",)


def _inside(value: object, deep: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif deep and isinstance(value, dict):
        for one in (*value.keys(), *value.values()):
            yield from _inside(one, deep - 1)
    elif deep and isinstance(value, (list, tuple, set, frozenset)):
        for one in value:
            yield from _inside(one, deep - 1)
    elif deep and type(value).__module__.startswith("hpslurm") and not isinstance(value, type):
        yield from _inside(getattr(value, "__dict__", {}), deep - 1)


def _of_calls() -> Iterator[Expression]:
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re" and node.args):
                continue
            how = (node.func.attr,) if node.func.attr.endswith("match") else ("finditer",)
            if isinstance(node.args[0], ast.Constant):
                yield Expression(f"{path.relative_to(PACKAGE)}:{node.lineno}", node.args[0].value, _flags(node), how)


def _flags(call: ast.Call) -> int:
    flags = 0
    for part in ast.walk(call):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id == "re":
            value = getattr(re, part.attr, 0)
            flags |= int(value) if isinstance(value, re.RegexFlag) else 0
    return flags


def _of_tables() -> Iterator[Expression]:
    for path in sorted((PACKAGE / "tables").glob("*.toml")):
        yield from _of_table(path.stem, toml.whole(path.stem))


def _of_table(where: str, value: object, key: str = "") -> Iterator[Expression]:
    if isinstance(value, dict):
        name = value.get("id") or value.get("name") or ""
        for inner, one in value.items():
            yield from _of_table(f"{where} {name}".strip(), one, inner)
    elif isinstance(value, list):
        for one in value:
            yield from _of_table(where, one, key)
    elif isinstance(value, str) and key in KEYS:
        table = where.partition(" ")[0]
        yield Expression(f"{where}.{key}", linear.bounded(value) if table in BOUNDED else value)


# strings


def strings(one: Expression, size: int) -> list[str]:
    """Strings of about ``size`` characters on which this expression may take long; as many for every size."""
    pieces: dict[tuple[str, str, str], None] = {}
    whole = _sample(_tree(one))
    for lead, pump, follow in (*_repeats(_tree(one), "", ""), ("", whole[:-1], "")):
        for piece in dict.fromkeys((pump, lead + pump, lead + pump + follow, follow, pump + follow)):
            if 0 < len(piece) <= SHORT:
                pieces.update(dict.fromkeys(((lead, piece, ""), ("", piece, ""), (lead, piece, follow))))
    return [f"{lead}{piece * (size // len(piece))}{follow}{END}" for lead, piece, follow in pieces]


def _tree(one: Expression) -> list[Any]:
    text = one.regex.decode("latin-1") if isinstance(one.regex, bytes) else one.regex
    return list(parser.parse(text, one.flags & ~re.UNICODE if isinstance(one.regex, bytes) else one.flags))


def _repeats(nodes: list[Any], lead: str, after: str) -> Iterator[tuple[str, str, str]]:
    """(what leads to it, what is repeated, what follows) for each repetition that may be long."""
    for number, (kind, value) in enumerate(nodes):
        before = lead + _sample(nodes[:number])
        follow = _sample(nodes[number + 1 :]) + after
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT) or str(kind) == "POSSESSIVE_REPEAT":
            _, high, body = value
            if high is sre.MAXREPEAT or high >= 16:
                for pump in _samples(list(body)):
                    yield before, pump, follow
            yield from _repeats(list(body), before, follow)
        elif kind is sre.SUBPATTERN:
            yield from _repeats(list(value[-1]), before, follow)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from _repeats(list(branch), before, follow)
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repeats(list(value[1]), before, follow)


def _samples(nodes: list[Any]) -> list[str]:
    """Some texts that the nodes match: for a single class of characters, one of each kind."""
    if len(nodes) == 1:
        return [text for text in (_one(nodes[0], which) for which in range(4)) if text]
    return [_sample(nodes)]


def _sample(nodes: list[Any]) -> str:
    return "".join(_one(node) for node in nodes)


_OF_CATEGORY = {
    "CATEGORY_DIGIT": "0",
    "CATEGORY_NOT_DIGIT": "x",
    "CATEGORY_SPACE": " ",
    "CATEGORY_NOT_SPACE": "x",
    "CATEGORY_WORD": "a",
    "CATEGORY_NOT_WORD": "-",
}


def _one(node: Any, which: int = 0) -> str:
    kind, value = node
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.NOT_LITERAL:
        return next(one for one in "x0 a"[which:] + "xy" if ord(one) != value)
    if kind is sre.ANY:
        return "x0 \t"[which]
    if kind is sre.CATEGORY:
        return _OF_CATEGORY.get(str(value), "x")
    if kind is sre.IN:
        return _of_class(value, which)
    if kind is sre.SUBPATTERN:
        return _sample(list(value[-1]))
    if kind is sre.BRANCH:
        branches = value[1]
        return _sample(list(branches[which % len(branches)]))
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT) or str(kind) == "POSSESSIVE_REPEAT":
        return _sample(list(value[2])) * min(8, max(value[0], 1))
    if str(kind) == "ATOMIC_GROUP":
        return _sample(list(value))
    return ""


def _of_class(items: list[Any], which: int) -> str:
    if items and items[0][0] is sre.NEGATE:
        expression = [one for one in "x0 -\n.:/\"'a" if not _in(items[1:], one)]
        return expression[which % len(expression)] if expression else ""
    kind, value = items[which % len(items)]
    if kind is sre.LITERAL:
        return chr(value)
    if kind is sre.RANGE:
        return chr(value[0])
    return _OF_CATEGORY.get(str(value), "x")


def _in(items: list[Any], char: str) -> bool:
    for kind, value in items:
        if kind is sre.LITERAL and ord(char) == value:
            return True
        if kind is sre.RANGE and value[0] <= ord(char) <= value[1]:
            return True
        if kind is sre.CATEGORY:
            word = str(value).removeprefix("CATEGORY_")
            test = {"DIGIT": char.isdigit(), "SPACE": char.isspace(), "WORD": char.isalnum() or char == "_"}
            if test.get(word.removeprefix("NOT_"), False) != word.startswith("NOT_"):
                return True
    return False


# time


def seconds(one: Expression, text: str, rounds: int = 1) -> float:
    """CPU time of trying it on the text, the best of some rounds."""
    given: Any = text.encode("latin-1", "replace") if isinstance(one.regex, bytes) else text
    expression = one.compiled
    best = float("inf")
    for _round in range(rounds):
        began = time.process_time()
        for method in one.how:
            found = getattr(expression, method)(given)
            for _ in found if method == "finditer" else ():
                pass
        best = min(best, time.process_time() - began)
    return best


@dataclass(frozen=True)
class Effort:
    """How hard to look. Times are seconds of CPU."""

    sizes: tuple[int, ...] = (24, 160, 400)  # characters; a few are enough where ways to match double with each
    suspect: float = 0.00005  # for the last of the sizes; what is quadratic takes more
    worst: int = 1  # strings of one expression that are tried at full length: its slowest
    small: int = 1024  # characters
    large: int = 4096  # four times as many, and the longest line
    most: float = 0.2  # for ``small``
    noticed: float = 0.015  # for ``large``, from which on growth can be told from noise
    growth: float = 8.0  # times as long for four times as much: 4 is linear, 16 is quadratic


SHORTLY = Effort()
THOROUGHLY = Effort(
    sizes=(24, 160, 400, 1024), suspect=0.0002, worst=4, small=4096, large=16384, most=0.5, noticed=0.03
)


def growing(one: Expression, how: Effort = SHORTLY) -> str:
    """The string on which the expression takes longer than its length explains, or nothing."""
    slow: list[tuple[float, int]] = []
    for size in how.sizes:
        for number, text in enumerate(strings(one, size)):
            took = seconds(one, text)
            if took > how.most / 10:
                return text[:80]
            if size == how.sizes[-1] and took > how.suspect:
                slow.append((took, number))
    if not slow:
        return ""
    small, large = strings(one, how.small), strings(one, how.large)
    return next(
        (
            large[number][:80]
            for _, number in sorted(slow)[-how.worst :]
            if _grows(one, small[number], large[number], how)
        ),
        "",
    )


def _grows(one: Expression, small: str, large: str, how: Effort) -> bool:
    brief = seconds(one, small)
    if brief > how.most:
        return True
    long = seconds(one, large)
    if long < max(how.noticed, how.growth * brief):
        return False
    return seconds(one, large, 2) > how.growth * seconds(one, small, 4)  # not for a moment's noise
