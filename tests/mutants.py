"""Would a test notice? Changes one constant at a time, runs the tests of its module, says whether one failed.

    make mutants                                        a sample of each folder
    .venv/bin/python tests/mutants.py hpslurm/node/shm.py
    .venv/bin/python tests/mutants.py hpslurm/core hpslurm/setup --sample 40 --seed 7

What is changed: numbers and True or False at the top of a module, among the defaults of a class and of
arguments, numbers that something is compared with, octal masks, and the flags that ``os.open`` is given.
A number becomes a tenth larger, at least by one; a mask loses its highest bit, or its lowest; a flag goes.
What only changes pace, memory or look stays as it is: ``NOT_SEEN`` has the names.
A module's own tests are asked first. What they do not notice is tried with all others of the folder, or that import it.
All happens in a copy of the checkout. A change that no test notices has *lived*: write a test at the
threshold and one step beside it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import glob
import importlib
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "node", "sources", "setup", "scan", "show", "job", "cluster", "nccl_tests", "bundle")
WANTED = 90  # percent of the changes that a test has to notice
# Where a flag's absence cannot be seen: O_RDONLY is 0, and Python itself sets O_CLOEXEC.
NO_FLAGS = ("O_RDONLY", "O_CLOEXEC")
# What a test cannot see, or should not, by the names that such constants have all over the package: sizes of buffers
# and how long somebody else is waited for change how long something takes; how much of a file is read at most, what it
# takes of memory; the width of a column, how a text for people looks.
PACE = (
    "BLOCK",
    "AHEAD",
    "BEHIND",
    "EDGE",
    "FEW_LINES",
    "MOST_SHAPES",
    "SECONDS",
    "seconds",
    "PATIENCE",
    "PAUSE",
    "GRACE",
)
MEMORY = ("LARGEST", "MOST_BYTES", "ALL")
LOOK = ("WIDTH", "COLUMNS", "FIELD")
NOT_SEEN = ("TYPE_CHECKING", *PACE, *MEMORY, *LOOK)
# Arguments that say how many answers a function remembers, and what a type checker is told.
NOT_ARGUMENTS = ("maxsize", "contravariant")
# Single ones, by file and the piece of a line that they stand in, each with why no test can see it, or none should.
PACE_ALONE, MEMORY_ALONE = "how long something may take", "how much is read, kept or asked for at most"
SOONER = "both ways find the same lines (tests/scan/test_robust.py), one of them sooner"
SAME = {
    "hpslurm/bundle/masking.py": {"if end >= 0": "no hint begins with a newline, so that none ends at 0"},
    "hpslurm/cluster/aws/checks.py": {"LOG_IN_SECONDS = 20.0": PACE_ALONE},
    "hpslurm/cluster/aws/events.py": {"MOST = 500": MEMORY_ALONE},
    "hpslurm/cluster/aws/health_agent.py": {"most: int = 2000": MEMORY_ALONE, "pages: int = 40": MEMORY_ALONE},
    "hpslurm/cluster/guard.py": {
        "workers: int = 1": "scene_of sets it before anybody asks",
        "too_many: bool = False": "scene_of sets it before anybody asks",
    },
    "hpslurm/cluster/history.py": {
        "HEAD = 4096": MEMORY_ALONE,
        "MOST_RECORDS = 200_000": PACE_ALONE,
        "MOST_JUDGED = 5_000": PACE_ALONE,
    },
    "hpslurm/cluster/history_machines.py": {"begins: float = 0.0": "what was before the first is the first's, too"},
    "hpslurm/cluster/history_stats.py": {"total * 1e-12": "digits of a sum that nobody prints"},
    "hpslurm/core/probe.py": {"value > 0": "infinity is larger than any number"},
    "hpslurm/core/records.py": {
        "gid: int = -1": "no number below 0 is a group",
        "os.O_EXCL | os.O_NOFOLLOW": "O_EXCL follows no link either",
        '.lock", os.O_RDWR': "that a lock needs a file open for writing is so over NFS only",
        "os.open(mark, os.O_WRONLY": "nothing is written to it",
    },
    "hpslurm/job/hang/sample.py": {"APART = 2.0": PACE_ALONE},
    "hpslurm/job/hang/told.py": {"MOST_DUMPS = 2048": MEMORY_ALONE},
    "hpslurm/nccl_tests/running.py": {"os.O_EXCL | os.O_NOFOLLOW": "O_EXCL follows no link either"},
    "hpslurm/node/job_activity.py": {"uid: int = -1": "no number below 0 is a user"},
    "hpslurm/scan/collect.py": {
        "fast: bool = True": SOONER,
        "if newline > 0": "what is looked for begins behind the first byte",
    },
    "hpslurm/scan/diagnoses.py": {
        "WAIT = 0.5": PACE_ALONE,
        "os.O_NONBLOCK": "a pipe that is opened for reading and writing keeps nobody waiting",
    },
    "hpslurm/scan/flight.py": {"MEMORY = 1 << 30": MEMORY_ALONE, "time.monotonic()) > 0": PACE_ALONE},
    "hpslurm/scan/hypotheses.py": {"rival: float = 0.0": "what _summary leaves out, _weighed sets"},
    "hpslurm/scan/joblog.py": {
        "SLICE = 512 << 10": PACE_ALONE,
        "if left <= 0": PACE_ALONE,
        "fast: bool = False": SOONER,
    },
    "hpslurm/scan/many.py": {"MOST_PROCESSES = 8": PACE_ALONE},
    "hpslurm/scan/match.py": {
        "fast: bool = True": SOONER,
        "high if stop < 0": "a hit ends behind the beginning of its line",
        "> len(lines) // 4": SOONER,
        "FEW = 3": SOONER,
    },
    "hpslurm/scan/ras.py": {"_END = (0": "the line that ends a report is none of the file's"},
    "hpslurm/show/screen.py": {"5, 20": "how wide a column is"},
    "hpslurm/sources/aws.py": {
        "CONNECT_SECONDS = 3": PACE_ALONE,
        "READ_SECONDS = 15": PACE_ALONE,
        "WHO_SECONDS = 8": PACE_ALONE,
        "THREADS = 8": PACE_ALONE,
        "LOG_PAUSE = 0.25": PACE_ALONE,
        "seconds: float = 120.0": PACE_ALONE,
        "pause: float = 0.0": PACE_ALONE,
        "most: int = 1_000_000": MEMORY_ALONE,
        "pages: int = 1000": MEMORY_ALONE,
        "most: int = 2000": MEMORY_ALONE,
        "pages: int = 40": MEMORY_ALONE,
    },
    "hpslurm/sources/aws_access.py": {"PROCESS_SECONDS = 15.0": PACE_ALONE},
    "hpslurm/sources/gpu.py": {"length: int = -1": "no number below 0 is a length"},
    "hpslurm/sources/host.py": {
        "NO_LOCK = -1": "a name for what is no lock",
        "BROKEN = 99": "a name for what is no answer",
        "KILL_GRACE = 0.3": PACE_ALONE,
        "seconds: float = 20.0": PACE_ALONE,
        "if seconds <= 0": PACE_ALONE,
        "left <= 0": PACE_ALONE,
        "if handle >= 0": "a file opened now is none of the first",
        "flags = os.O_WRONLY": "nothing is written to it",
    },
    "hpslurm/sources/kmsg.py": {
        "RECORD = 8192": "a larger buffer is as good",
        "MOST_READS = 1 << 18": PACE_ALONE,
        "== (0, len(self.raw) - 1)": "a short cut: the loop behind it says the same",
    },
    "hpslurm/sources/slurm.py": {"if end < 0": "a node's name stands before it"},
    "hpslurm/sources/launch.py": {"MOST_SIDE_BY_SIDE = 64": PACE_ALONE},
}
ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Set)
DEFINED = (*ARITHMETIC, ast.Dict, ast.Call, ast.Starred, ast.IfExp)  # where numbers count that give a name its value
COMPARED = ARITHMETIC
BOUNDS = ("thresholds.py", "bounds.py")  # tests of many modules; they may import them through helpers
FEW_USERS = 12  # test files that import a module; host.py and finding.py have nearly all
HOSTS = "tests/hosts"
SHOWS = "tests/test_hosts.py::test_a_saved_machine_shows_exactly_what_is_expected"
HIDES = "tests/test_hosts.py::test_a_saved_machine_hides_exactly_what_is_expected"
EXAMPLES = "tests/test_examples.py::test_an_example_in_a_docstring_is_what_the_function_gives"
CATALOGUE = "tests/test_docs.py::test_the_catalogue_of_rules_is_current"  # it says which rules may gate
PYTEST = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not lab and not slow")
# Loaded once, before each trial forks: importing them takes longer than most tests.
LOADED = ("pytest", "hypothesis", "jsonschema", "click", "rich.console", "rich.table", "boto3", "jinja2")
SAID = "pytest.txt"  # its output, beside the copy
SLOWER = 5  # times as long as the tests take without a change: then it hangs, and somebody would notice


@dataclass(frozen=True)
class Change:
    """One constant of a file, and what it becomes. Offsets count bytes within the line."""

    path: str  # from the checkout's top
    line: int
    begin: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old} -> {self.new}"


# what can be changed


def changes(path: str, text: str) -> list[Change]:
    """Every change of a file, in the order of its lines."""
    lines = text.encode().splitlines()
    found = []
    for node in dict.fromkeys(_constants(ast.parse(text), lines)):
        if any(_is_in(piece, node, lines) for piece in SAME.get(path, ())):
            continue
        for new in _instead(node, _source(node, lines)):
            found.append(
                Change(path, node.lineno, node.col_offset, node.end_col_offset or 0, _source(node, lines), new)
            )
    return sorted(found, key=lambda change: (change.line, change.begin))


def _is_in(piece: str, node: ast.expr, lines: list[bytes]) -> bool:
    begin = lines[node.lineno - 1].find(piece.encode())
    return begin >= 0 and begin <= node.col_offset < begin + len(piece.encode())


def _source(node: ast.expr, lines: list[bytes]) -> str:
    return lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()


def _constants(tree: ast.Module, lines: list[bytes]) -> Iterator[ast.expr]:
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        for statement in scope.body:
            if (
                isinstance(statement, (ast.Assign, ast.AnnAssign))
                and statement.value
                and not _is_of(statement, NOT_SEEN)
            ):
                yield from _numbers(statement.value, DEFINED, (int, float, bool))
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            for default in (*node.defaults, *filter(None, node.kw_defaults)):
                yield from _numbers(default, DEFINED, (int, float, bool))
        elif isinstance(node, ast.Compare) and "version_info" not in ast.dump(node):
            for operand in (node.left, *node.comparators):
                yield from _numbers(operand, COMPARED, (int, float))
        elif (isinstance(node, ast.Attribute) and node.attr.startswith("O_") and node.attr not in NO_FLAGS) or (
            isinstance(node, ast.Constant) and type(node.value) is int and _source(node, lines).startswith("0o")
        ):
            yield node


def _is_of(statement: ast.Assign | ast.AnnAssign, names: tuple[str, ...]) -> bool:
    target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
    return isinstance(target, ast.Name) and target.id in names


def _numbers(value: ast.expr, within: tuple[type[ast.AST], ...], kinds: tuple[type, ...]) -> Iterator[ast.expr]:
    """The numbers of an expression; of what stands inside others only those within expressions of some kinds."""
    if isinstance(value, ast.Constant):
        if type(value.value) in kinds:
            yield value
    elif isinstance(value, within):
        for child in ast.iter_child_nodes(value):
            if isinstance(child, ast.keyword) and child.arg in NOT_ARGUMENTS:
                continue
            if isinstance(child, (ast.expr, ast.keyword)):
                yield from _numbers(child.value if isinstance(child, ast.keyword) else child, within, kinds)


def _instead(node: ast.expr, old: str) -> list[str]:
    if isinstance(node, ast.Attribute):
        return ["0"]
    value = node.value if isinstance(node, ast.Constant) else None
    if isinstance(value, bool):
        return [str(not value)]
    if isinstance(value, float):
        return [f"{value * 1.1 or 0.1:.12g}"]
    if isinstance(value, int) and old.startswith("0o") and value:
        highest, lowest = 1 << (value.bit_length() - 1), value & -value
        return [f"0o{value & ~bit:03o}" for bit in dict.fromkeys((highest, lowest))]
    if isinstance(value, int):
        return [str(value + max(1, value // 10))]
    return []


# which tests concern a module


def tests_of(path: str, top: Path = CHECKOUT) -> list[str]:
    """Tests for a module: of its name, or those beside it that import it, or all that do; and saved machines.

    What no test imports is seen through the modules that import it. Tests of the bounds of many modules are asked for
    each module of their folder, and for each that they import.
    """
    module = _module(path)
    folder, name = os.path.split(path.removesuffix(".py"))
    text = (top / path).read_text("utf-8")
    examples = [f"{EXAMPLES}[{module}]"] if ">>> " in text else []
    named, beside, importing = _of_module(path, top)
    thresholds = [
        test
        for test in _test_files(top)
        if test.endswith(BOUNDS) and (os.path.dirname(test) == _beside(folder) or module in _reached(top / test, top))
    ]
    if folder == "hpslurm/node":
        return list(dict.fromkeys((*examples, *named, *beside, *thresholds, *_machines(name, text, top), CATALOGUE)))
    nearest = named or beside or importing or _through_importers(path, top)
    above, own = os.path.split(_beside(folder))  # hpslurm/scan/checks is tried by tests/scan/test_checks.py
    of_folder = (f"{_beside(folder)}/test_*.py", f"{above}/test_{own}*.py")
    nearest = nearest or [test for each in of_folder for test in sorted(glob.glob(each, root_dir=top))]
    return list(dict.fromkeys((*examples, *nearest, *thresholds)))


def others_of(path: str, top: Path = CHECKOUT) -> list[str]:
    """All tests of the folder that are not the module's own, and those elsewhere that import it, if they are few."""
    beside = _beside(os.path.dirname(path))
    found = {test for test in _test_files(top) if test.startswith(f"{beside}/")}
    users = [test for test in _test_files(top) if _module(path) in _imported(top / test)]
    found.update(users if len(users) <= FEW_USERS else ())
    return sorted(found.difference(tests_of(path, top)))


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _beside(folder: str) -> str:
    return folder.replace("hpslurm", "tests", 1)


def _of_module(path: str, top: Path) -> tuple[list[str], list[str], list[str]]:
    """Tests with its name, those beside it that import it, and all that do; those of many modules are none of them."""
    folder, name = os.path.split(path.removesuffix(".py"))
    longer = [other.stem for other in (top / folder).glob(f"{name}_*.py")]  # test_history_jobs is no test of history
    named = [
        test
        for test in sorted(glob.glob(f"{_beside(folder)}/**/test_{name}*.py", root_dir=top, recursive=True))
        if not any(Path(test).stem.startswith(f"test_{other}") for other in longer)
    ]
    one_module = (test for test in _test_files(top) if not test.endswith(BOUNDS))
    importing = [test for test in one_module if _module(path) in _imported(top / test)]
    return named, [test for test in importing if test.startswith(f"{_beside(folder)}/")], importing


def _through_importers(path: str, top: Path) -> list[str]:
    """Tests of the nearest modules that need it: of their names, beside them, or any."""
    known, asked = {path}, [path]
    while asked:
        asked = [other for other in _importers(tuple(map(_module, asked)), top) if other not in known]
        known |= set(asked)
        tests = [
            named or beside or importing for named, beside, importing in (_of_module(other, top) for other in asked)
        ]
        if nearest := sorted({test for several in tests for test in several}):
            return nearest
    return []


@cache
def _ours(top: Path) -> list[str]:
    return sorted(file.relative_to(top).as_posix() for file in (top / "hpslurm").rglob("*.py"))


def _importers(modules: tuple[str, ...], top: Path) -> list[str]:
    return [file for file in _ours(top) if not _imported(top / file).isdisjoint(modules)]


@cache
def _test_files(top: Path) -> list[str]:
    found = glob.glob("tests/**/test_*.py", root_dir=top, recursive=True)
    return sorted(test for test in found if not test.startswith("tests/lab/"))


def _reached(test: Path, top: Path) -> frozenset[str]:
    """What a test imports, and what its helpers do."""
    known = _imported(test)
    helpers = (top / f"{module.replace('.', '/')}.py" for module in known if module.startswith("tests."))
    return known.union(*(_imported(helper) for helper in helpers if helper.exists()))


@cache
def _imported(file: Path) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def _machines(name: str, text: str, top: Path) -> list[str]:
    """The saved machines that carry the probe's name or expect one of its findings, and a healthy one."""
    words = set(re.findall(r'"([a-z0-9-]+)"', text))
    found = ["p5-healthy"]
    for case in sorted(os.listdir(top / HOSTS)):
        expected, unknown = (
            set(file.read_text().split()) if (file := top / HOSTS / case / f"{which}.txt").exists() else set()
            for which in ("expected", "unknown")
        )
        if name.partition("_")[0] in case.split("-") or expected & words or name in unknown:
            found.append(case)
    hiding = [case for case in found if (top / HOSTS / case / "unknown.txt").exists()]
    return [*(f"{SHOWS}[{case}]" for case in found), *(f"{HIDES}[{case}]" for case in hiding)]


# a copy to change


def copy_to(folder: Path) -> Path:
    """A copy of the checkout with a Python of its own, which finds our package there and all others in our .venv."""
    shutil.copytree(CHECKOUT, folder, ignore=shutil.ignore_patterns(".*", "build", "dist", "__pycache__"))
    venv.create(folder / ".venv", symlinks=True)
    (packages,) = glob.glob(f"{folder}/.venv/lib/python3*/site-packages")
    ours = next(place for place in sys.path if place.endswith("site-packages"))
    Path(packages, "copy.pth").write_text(f"{folder}\n{ours}\n")
    return folder


def passes(copy: Path, tests: list[str], limit: float = 600.0) -> bool:
    """Whether all these tests pass in the copy, within so many seconds. Each run is a fork of this process."""
    scratch = tempfile.mkdtemp(prefix="t", dir=copy.parent)
    pid = os.fork()
    if not pid:
        os._exit(_run(copy, tests, scratch))
    end = time.monotonic() + limit
    try:
        while not (ended := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < end:
            time.sleep(0.02)
        return ended == (pid, 0)
    finally:
        with contextlib.suppress(ProcessLookupError):  # whatever the tests left behind ends with them
            os.killpg(pid, signal.SIGKILL)
        if not ended[0]:
            os.waitpid(pid, 0)
        shutil.rmtree(scratch, ignore_errors=True)


def _run(copy: Path, tests: list[str], scratch: str) -> int:
    """In the child: as if Python had been started in the copy."""
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(copy)
        said = os.open(copy.parent / SAID, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        for standard in (0, 1, 2):
            os.dup2(said, standard)
        os.environ["TMPDIR"] = tempfile.tempdir = scratch
        sys.executable = f"{copy}/.venv/bin/python"
        sys.path[:] = [str(copy), *(place for place in sys.path[1:] if Path(place) != CHECKOUT)]
        return int(importlib.import_module("pytest").main([*PYTEST, f"--basetemp={scratch}/t", *tests]))
    except BaseException:
        return 1


def changed(text: bytes, change: Change) -> bytes:
    """The text of a file with the change in it."""
    lines = text.splitlines(keepends=True)
    row = lines[change.line - 1]
    lines[change.line - 1] = row[: change.begin] + change.new.encode() + row[change.end :]
    return b"".join(lines)


def lives(copy: Path, change: Change, tests: list[str], limit: float) -> bool:
    """Whether no test notices the change. The copy is as before afterwards."""
    path = copy / change.path
    text = path.read_bytes()
    try:
        path.write_bytes(changed(text, change))
        _forget_bytecode(path)
        return passes(copy, tests, limit)
    finally:
        path.write_bytes(text)
        _forget_bytecode(path)


def _forget_bytecode(path: Path) -> None:
    """Python takes bytecode for new if time, in seconds, and size agree; a change may be quicker, and as long."""
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        compiled.unlink()


# all of it


def try_file(copy: Path, found: list[Change], own: bool = False) -> list[Change]:
    """Print what became of each change of one file; returns those that no test noticed, or could have.

    ``own``: the module's own tests only.
    """
    tests = tests_of(found[0].path, copy)
    began = time.monotonic()
    if not passes(copy, tests):
        why = "".join((copy.parent / SAID).read_text("utf-8", "replace").splitlines(keepends=True)[-30:])
        print(f"{why}\n{found[0].path} not tried: its tests do not pass without a change", flush=True)
        return found
    limit = SLOWER * (time.monotonic() - began) + 30
    lived = []
    for change in found:
        if lives(copy, change, tests, limit) and (own or lives_among(copy, change, others_of(change.path, copy))):
            lived.append(change)
        print("lived " if change in lived else "killed", change, flush=True)
    return lived


@cache
def _time_of(copy: Path, tests: tuple[str, ...]) -> float | None:
    """Seconds that tests take without a change; None where they do not pass."""
    began = time.monotonic()
    return time.monotonic() - began if passes(copy, list(tests)) else None


def lives_among(copy: Path, change: Change, tests: list[str]) -> bool:
    """Whether the other tests of the folder do not notice it either. Those that fail without a change say nothing."""
    took = _time_of(copy, tuple(tests)) if tests else None
    return took is None or lives(copy, change, tests, SLOWER * took + 30)


def chosen(places: list[str], sample: int, seed: int) -> list[list[Change]]:
    """The changes to try, by file; of each place at most ``sample`` of them (0: all)."""
    by_file: dict[str, list[Change]] = {}
    for place, _, line in (where.partition(":") for where in places):
        files = sorted(CHECKOUT.glob(f"{place}/**/*.py")) if (CHECKOUT / place).is_dir() else [CHECKOUT / place]
        names = [file.relative_to(CHECKOUT).as_posix() for file in files]
        found = [change for name in names for change in changes(name, (CHECKOUT / name).read_text("utf-8"))]
        found = [change for change in found if line in ("", str(change.line))]
        if sample and sample < len(found):
            found = sorted(random.Random(seed).sample(found, sample), key=found.index)
        for change in found:
            by_file.setdefault(change.path, []).append(change)
    return list(by_file.values())


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "places", nargs="*", metavar="FILE[:LINE]|FOLDER", default=[f"hpslurm/{name}" for name in FOLDERS]
    )
    parser.add_argument("--sample", type=int, default=0, help="changes of each place, chosen by chance; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--own", action="store_true", help="ask a module's own tests only, which is quick")
    parser.add_argument("--list", action="store_true", help="only say what would be changed")
    options = parser.parse_args(words)
    files = chosen(options.places, options.sample, options.seed)
    if options.list:
        print(*(change for changed in files for change in changed), sep="\n")
        return 0
    os.nice(5)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the copy goes, too
    for name in LOADED:
        importlib.import_module(name)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = copy_to(Path(folder, "copy"))
        lived = [change for changed in files for change in try_file(copy, changed, options.own)]
    total = sum(map(len, files))
    percent = 100 * (total - len(lived)) // max(total, 1)
    print(f"{total - len(lived)} of {total} changes were noticed, {percent} %; wanted {WANTED} %", *lived, sep="\n  ")
    return 0 if percent >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
