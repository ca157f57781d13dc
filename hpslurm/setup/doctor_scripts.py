"""Our entry scripts on this machine: will Slurm run them, and only them, and with what?

Slurm drains a node whose Prolog or Epilog it cannot run. With a folder or a glob it runs
every file there, so one editor's backup or one sub-folder drains the whole fleet, a node
at each job's start. Looks at the machine it runs on: the controller, or a node.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P0, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.core.values import dataclass
from hpslurm.setup import hook_lines as hooks
from hpslurm.sources import slurm
from hpslurm.sources.host import Host

SECTION = "operations.md § 7"
MISSING = Rule("hook-script-missing", P0, "Slurm names a hook that is not on this machine", SECTION)
NO_EXEC = Rule("hook-not-executable", P0, "A file that Slurm runs as a hook cannot be run", SECTION)
SUBFOLDER = Rule("hook-subfolder", P0, "A folder lies where Slurm runs every entry as a hook", SECTION)
BESIDE = Rule("hook-folder-shared", P2, "Other files lie beside hpslurm's entry script", SECTION)
OWNER = Rule("hook-owner", P1, "Others than root may change what root runs as a hook", SECTION)
IDLE = Rule("hook-does-nothing", P1, "The hook ends at once: the Python that it names is not there", SECTION)
OFF = Rule("hook-switched-off", P2, "The kill switch is set: hooks end at once", SECTION)
KILLED = Rule("hook-timeout-short", P0, "Slurm kills the hook before it ends by itself", SECTION)
LATE = Rule("hook-timeout-batch", P1, "The hook may take longer than Slurm waits for a batch job to start", SECTION)
NOT_SEEN = Rule("hook-not-in-cache", P1, "slurmd's copy of the configuration lacks a hook", SECTION)

HOOKS = {
    "Prolog": "prolog",
    "Epilog": "epilog",
    "TaskProlog": "taskprolog",
    "HealthCheckProgram": "healthcheckprogram",
}
TIMED = ("Prolog", "Epilog")
CACHE = ("/var/spool/slurmd/conf-cache", "/run/slurm/conf")
SWITCH = "/run/hpslurm.off"
NEVER = (0, 65534)  # what PrologEpilogTimeout says for no limit
SLACK = 2  # seconds for Python's start and the shell's own end


@dataclass(frozen=True)
class Entry:
    """One file or folder; ``loose`` is in words who may change it beside root, or empty."""

    path: str
    is_folder: bool
    executable: bool
    loose: str = ""


@dataclass(frozen=True)
class Hook:
    """One line of the configuration that runs us. ``many``: it names a folder or a glob, so all entries run.

    ``beside`` are other names in the script's folder, ``limit`` the script's own in seconds (None: it
    has none), ``python`` what it starts when that is not there, else empty.
    """

    key: str
    line: str
    many: bool
    entries: tuple[Entry, ...]
    beside: tuple[str, ...] = ()
    limit: float | None = None
    python: str = ""


@dataclass(frozen=True)
class Facts:
    """Time limits in seconds as Slurm has them; None where it does not say."""

    hooks: tuple[Hook, ...]
    hook_timeout: int | None = None
    batch_timeout: int | None = None
    off: bool = False
    cache: str = ""
    not_in_cache: tuple[str, ...] = ()


def collect(host: Host) -> Facts:
    config = slurm.config(host)
    folder = slurm.slurm_conf(host).rpartition("/")[0]
    ours = [
        _hook(host, key, line, folder)
        for key, name in HOOKS.items()
        for line in config.get(name, ())
        if line != "(null)" and hooks.is_ours(host, line)
    ]
    if not ours:
        raise Skip("slurm.conf names no hook of hpslurm: hpslurm install --print has the steps")
    cache, not_in_cache = _cached(host, ours, slurm.slurm_conf(host))
    return Facts(
        tuple(ours),
        _seconds(config.get("prologepilogtimeout", ())),
        _seconds(config.get("batchstarttimeout", ())),
        host.exists(SWITCH),
        cache,
        not_in_cache,
    )


def _hook(host: Host, key: str, line: str, conf_folder: str) -> Hook:
    path = line
    if not line.startswith("/"):  # slurmctld ships it: beside slurm.conf there, in slurmd's copy here
        places = (conf_folder, *CACHE)
        path = next((f"{one}/{line}" for one in places if host.exists(f"{one}/{line}")), f"{conf_folder}/{line}")
    many = any(mark in path for mark in "*?[") or os.path.isdir(host.path(path))
    if many:
        folder = path if os.path.isdir(host.path(path)) else path.rpartition("/")[0]
        names = host.glob(path) if folder != path else host.glob(f"{path.rstrip('/')}/*")
    else:
        folder = path.rpartition("/")[0]
        names = [path] if host.exists(path) else []
    entries = tuple(_entry(host, name) for name in names)
    ours = next((entry.path for entry in entries if hooks.NAME in entry.path.rpartition("/")[2]), "")
    beside = tuple(one for one in host.glob(f"{folder.rstrip('/')}/*") if one != ours)
    limit, python = _settings(host, ours)
    return Hook(key, line, many, entries, beside, limit, python)


def _entry(host: Host, path: str) -> Entry:
    try:
        about = os.stat(host.path(path))
    except FileNotFoundError:  # a link to nowhere
        return Entry(path, False, False)
    is_folder = stat.S_ISDIR(about.st_mode)
    loose = next(filter(None, (_loose(host, one) for one in (path, path.rpartition("/")[0]))), "")
    return Entry(path, is_folder, is_folder or bool(about.st_mode & 0o111), loose)


def _loose(host: Host, path: str) -> str:
    about = os.stat(host.path(path))
    if about.st_uid not in (0, os.geteuid()):
        return f"{path} is owned by uid {about.st_uid}"
    if about.st_mode & 0o022:
        return f"{path} has mode {about.st_mode & 0o7777:04o}"
    return ""


def _settings(host: Host, path: str) -> tuple[float | None, str]:
    """LIMIT of the script, and its PYTHON where that cannot be started."""
    if not path:
        return None, ""
    text = host.read(path)
    limit = re.search(r"^LIMIT=[\"']?(\d+(?:\.\d+)?)", text, re.M)
    python = re.search(r"^PYTHON=[\"']?([^\"'\n]+)", text, re.M)
    missing = python[1] if python and not os.access(host.path(python[1]), os.X_OK) else ""
    return (float(limit[1]) if limit else None), missing


def _cached(host: Host, ours: list[Hook], conf: str) -> tuple[str, tuple[str, ...]]:
    """The slurm.conf that slurmd reads on this machine, and the hooks that it does not name: its copy where it is
    configless, else the machine's own file, which may lack what slurmctld's has."""
    path = next((f"{one}/slurm.conf" for one in CACHE if host.exists(f"{one}/slurm.conf")), conf)
    named = _lines(host, path)
    if named is None:
        return "", ()
    lacks = [hook.key for hook in ours if not any(_same(hook, value) for value in named.get(hook.key.lower(), ()))]
    return path, tuple(dict.fromkeys(lacks))


def _same(hook: Hook, value: str) -> bool:
    return hook.line in (value, value.strip("\"'")) or hooks.NAME in value


def _lines(host: Host, path: str, deep: int = 4) -> dict[str, list[str]] | None:
    """Values by key of a slurm.conf and of what it includes; None where it cannot be read whole."""
    try:
        text = host.read(path)
    except OSError:
        return None
    values_of: dict[str, list[str]] = {}
    for line in text.split("\n"):
        words = line.partition("#")[0].strip()
        if words[:8].lower() == "include " and deep:
            name = words[8:].strip()
            more = _lines(host, name if name.startswith("/") else f"{path.rpartition('/')[0]}/{name}", deep - 1)
            if more is None:
                return None
            for key, values in more.items():
                values_of.setdefault(key, []).extend(values)
        key, mark, value = words.partition("=")
        if mark:
            values_of.setdefault(key.strip().lower(), []).append(value.strip())
    return values_of


def _seconds(values: tuple[str, ...]) -> int | None:
    number = re.match(r"\d+", "".join(values[:1]))
    return int(number[0]) if number else None


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    yield from _runnable(facts.hooks)
    yield from _around(facts)
    yield from _times(facts)
    if facts.not_in_cache:
        names = ", ".join(facts.not_in_cache)
        yield NOT_SEEN.found(
            f"slurmctld names {names} of hpslurm, {facts.cache} does not: they do not run on this node",
            evidence=[Evidence(facts.cache, f"no line of hpslurm for {names}")],
            suggest=[
                Suggestion(
                    CONFIGURE,
                    "let slurmd fetch the configuration again; without configless mode each node has its own file: "
                    "copy the controller's there first",
                    "sudo scontrol reconfigure",
                )
            ],
        )


def _runnable(ours: tuple[Hook, ...]) -> Iterator[Finding]:
    gone = [hook for hook in ours if not hook.entries]
    if gone:
        yield MISSING.found(
            "; ".join(f"{hook.key}={hook.line} finds no file here" for hook in gone)
            + ": Slurm drains the node at its next job",
            evidence=[Evidence("scontrol show config", f"{hook.key} = {hook.line}") for hook in gone],
            suggest=[Suggestion(LOOK, "the steps that copy the scripts, for this cluster", "hpslurm install --print")],
        )
    plain = sorted({entry.path for hook in ours for entry in hook.entries if not entry.executable})
    if plain:
        yield NO_EXEC.found(
            f"{', '.join(plain)}: no execute bit; Slurm drains the node at its next job",
            evidence=[Evidence("mode", path) for path in plain],
            suggest=_make_runnable(plain),
        )
    folders = sorted({entry.path for hook in ours for entry in hook.entries if entry.is_folder})
    if folders:
        yield SUBFOLDER.found(
            f"{', '.join(folders)}: Slurm tries to run it, fails, and drains the node at its next job",
            evidence=[Evidence("folder", path) for path in folders],
            suggest=[Suggestion(LOOK, "what it holds; then move it elsewhere", f"ls -la {shlex.quote(folders[0])}")],
        )


def _make_runnable(plain: list[str]) -> list[Suggestion]:
    """A README or an editor's backup would run, too, if it could: those move, only scripts get their bit."""
    scripts = [path for path in plain if path.endswith(".sh")]
    others = [path for path in plain if path not in scripts]
    steps = []
    if others:
        away = f"sudo mv {' '.join(map(shlex.quote, others))} /root/"
        steps.append(Suggestion(CONFIGURE, "no script: move it out of the folder", away))
    if scripts:
        runs = f"sudo chmod 755 {' '.join(map(shlex.quote, scripts))}"
        steps.append(Suggestion(CONFIGURE, "make it executable, or move it elsewhere where it is no hook", runs))
    return steps


def _around(facts: Facts) -> Iterator[Finding]:
    beside = sorted({path for hook in facts.hooks for path in hook.beside})
    if beside:
        runs = any(hook.many and hook.beside for hook in facts.hooks)
        yield BESIDE.found(
            f"{', '.join(beside[:6])}{' and more' * (len(beside) > 6)}: "
            + ("Slurm runs each of them too" if runs else "not run now; a line with a folder or a glob would run them"),
            suggest=[Suggestion(LOOK, "keep the folder for entry scripts alone")],
        )
    loose = sorted({one.loose for hook in facts.hooks for one in hook.entries if one.loose})
    if loose:
        yield OWNER.found(
            f"{'; '.join(loose)}; expected root's, mode 0755",
            evidence=[Evidence("owner and mode", one) for one in loose],
            suggest=[Suggestion(CONFIGURE, "chown root:root and chmod go-w what is named")],
        )
    idle = sorted({hook.python for hook in facts.hooks if hook.python})
    if idle:
        yield IDLE.found(
            f"PYTHON={', '.join(idle)} cannot be started on this machine, so the hook looks at nothing and exits 0",
            suggest=[Suggestion(LOOK, "the steps that install hpslurm there", "hpslurm install --print")],
        )
    if facts.off:
        yield OFF.found(
            f"{SWITCH} exists",
            suggest=[Suggestion(CONFIGURE, "when the doubt is over", f"sudo rm {SWITCH}")],
        )


def _times(facts: Facts) -> Iterator[Finding]:
    limits = [hook.limit for hook in facts.hooks if hook.limit is not None and hook.key in TIMED]
    if not limits:
        return
    longest = max(limits)
    slurms = facts.hook_timeout
    if slurms is not None and slurms not in NEVER and slurms < longest + SLACK:
        yield KILLED.found(
            f"PrologEpilogTimeout is {slurms} s, expected {longest + SLACK:g} s or more for the script's LIMIT "
            f"of {longest:g} s, or Slurm kills a slow hook and drains the node",
            evidence=[Evidence("scontrol show config", f"PrologEpilogTimeout = {slurms} sec")],
            suggest=[Suggestion(CONFIGURE, "PrologEpilogTimeout=60 in slurm.conf, then", "sudo scontrol reconfigure")],
        )
    batch = facts.batch_timeout
    prologs = [hook.limit for hook in facts.hooks if hook.limit is not None and hook.key == "Prolog"]
    if batch and prologs and batch < max(prologs) + SLACK:
        yield LATE.found(
            f"BatchStartTimeout is {batch} s, the script's LIMIT {max(prologs):g} s; "
            f"{max(prologs) + SLACK:g} s or more is expected",
            evidence=[Evidence("scontrol show config", f"BatchStartTimeout = {batch} sec")],
            suggest=[Suggestion(CONFIGURE, "a shorter LIMIT in prolog.d/hpslurm.sh, or a longer BatchStartTimeout")],
        )
