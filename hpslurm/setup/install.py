"""The steps that put the hooks on this cluster, made from its own configuration. Prints, changes nothing.

What differs between clusters: whether slurmctld ships the scripts (configless, 24.11 and
later), whether one more Prolog line can be added (24.05 and later) or the last one wins,
and whether HyperPod's lifecycle scripts will delete our lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from hpslurm import __version__
from hpslurm.core.values import dataclass

VENV = "/opt/hpslurm"
WHEEL = f"./hpslurm-{__version__}-py3-none-any.whl"
OUR_FOLDERS = {"Prolog": "prolog.d", "Epilog": "epilog.d"}
SCRIPT = "hpslurm.sh"
LINES_ADD_UP = (24, 5)  # from here on several Prolog lines are all run; before, the last one wins
SHIPS_RELATIVE = (24, 11)  # seen; 22.05 drains the node for a relative path


@dataclass(frozen=True)
class Site:
    """What the running controller says of itself."""

    version: tuple[int, int] | None
    conf: str  # path of slurm.conf
    hooks: dict[str, tuple[str, ...]]  # Prolog, Epilog: the lines in force
    flags: tuple[str, ...]  # PrologFlags
    timeout: str  # PrologEpilogTimeout as printed
    except_limits: tuple[str, ...]  # PropagateResourceLimitsExcept
    configless: bool
    hyperpod: bool
    task_prolog: str = ""  # the line in force, or empty
    health: str = ""  # HealthCheckProgram in force, or empty
    mine: frozenset[str] = frozenset()  # of the lines in ``hooks``, those that run hpslurm already
    venv: str = VENV


@dataclass(frozen=True)
class Step:
    """One thing to do; ``where`` is every node, the controller, or one of them."""

    title: str
    why: str
    where: str
    lines: tuple[str, ...]


def by_name(path: str) -> bool:
    """A script of ours by its name alone. What a glob or a folder holds only the machine knows."""
    return path.endswith(f"/{SCRIPT}")


def site(
    config: Mapping[str, Sequence[str]],
    conf: str,
    hyperpod: bool,
    is_ours: Callable[[str], bool] = by_name,
    venv: str = VENV,
) -> Site:
    """``config`` is ``scontrol show config``, keys in lower case."""

    def words(key: str) -> tuple[str, ...]:
        listed = [word for value in config.get(key, ()) for word in re.split(r"[,\s]+", value)]
        return tuple(word for word in listed if word and word not in ("(null)", "NONE", "N/A"))

    version = re.match(r"(\d+)\.(\d+)", "".join(config.get("slurm_version", ())))
    hooks = {name: words(name.lower()) for name in OUR_FOLDERS}
    return Site(
        (int(version[1]), int(version[2])) if version else None,
        conf or "".join(config.get("slurm_conf", ())) or "/etc/slurm/slurm.conf",
        hooks,
        words("prologflags"),
        "".join(config.get("prologepilogtimeout", ())),
        words("propagateresourcelimitsexcept"),
        "enable_configless" in words("slurmctldparameters"),
        hyperpod,
        " ".join(words("taskprolog")),
        " ".join(words("healthcheckprogram")),
        mine=frozenset(path for paths in hooks.values() for path in paths if is_ours(path)),
        venv=venv,
    )


def conf_lines(here: Site, folder: str, relative: bool) -> tuple[list[str], list[str]]:
    """Lines to add to slurm.conf, and lines in it that must go first."""
    add: list[str] = []
    remove: list[str] = []
    for name, sub in OUR_FOLDERS.items():
        theirs = _theirs(here)[name]
        if here.mine & set(here.hooks[name]):
            continue
        if theirs and not _adds_up(here):
            remove += [f"{name}={path}" for path in theirs]
            add.append(f"{name}={folder}/{sub}/*.sh")
        else:
            add.append(f"{name}={sub if relative else f'{folder}/{sub}'}/{SCRIPT}")
    flags = {flag.lower() for flag in here.flags}
    if not flags & {"alloc", "contain", "runinjob"}:
        add.append(f"PrologFlags={','.join([*here.flags, 'Alloc'])}")
        remove += [f"PrologFlags={','.join(here.flags)}"] if here.flags else []
    seconds = re.match(r"\d+", here.timeout)
    if (not seconds or int(seconds[0]) in (0, 65534)) and not any(_theirs(here).values()):
        add.append("PrologEpilogTimeout=60")
    if not {"MEMLOCK", "ALL"} & set(here.except_limits):
        add.append(f"PropagateResourceLimitsExcept={','.join([*here.except_limits, 'MEMLOCK'])}")
        remove += [f"PropagateResourceLimitsExcept={','.join(here.except_limits)}"] if here.except_limits else []
    return add, remove


def _adds_up(here: Site) -> bool:
    return here.version is not None and here.version >= LINES_ADD_UP


def steps(here: Site) -> list[Step]:
    """In the order in which they are safe: a script is everywhere before slurm.conf names it."""
    relative = here.configless and here.version is not None and here.version >= SHIPS_RELATIVE
    folder = here.conf.rpartition("/")[0]
    add, remove = conf_lines(here, folder, relative)
    ordered = [
        Step(
            "hpslurm itself",
            "in a virtual environment of its own; installing compiles its bytecode, which halves a hook's time",
            "every node, and the controller",
            (
                f"sudo python3 -m venv {here.venv}",
                f"sudo {here.venv}/bin/pip install {WHEEL}   # the file that `python3 -m pip wheel --no-deps .` made",
            ),
        ),
        _scripts(here, folder, relative),
    ]
    if any(_theirs(here).values()) and not _adds_up(here):
        ordered.append(_join_folders(here, folder))
    ordered += [_records(), _rotation(), _tried(folder, relative)]
    if add:
        ordered.append(_configure(here, add, remove))
    ordered += [*_told(here, folder), *_health(here, folder)]
    return [*ordered, *_into_use(here)]


def _records() -> Step:
    """The policy may be there already, with partitions, a gate and mutes: a key is put before what it holds."""
    path = "/etc/hpslurm/policy.toml"
    key = 'results_shared = "/fsx/hpslurm"'
    return Step(
        "Records that the controller can read",
        "optional, on a file system that all nodes mount; without it each node keeps its own, and report and "
        'diagnose see the controller\'s only. To begin with one partition, put partitions = ["NAME"] there as well',
        "the controller, and the policy on every node",
        (
            "sudo install -d -m 755 /fsx/hpslurm        # root owns it, nobody else may write",
            "sudo install -d -m 755 /etc/hpslurm",
            f"grep -qs '^results_shared' {path} || {{ {{ echo '{key}'; cat {path} 2>/dev/null; }} "
            f"| sudo tee {path}.new >/dev/null && sudo mv {path}.new {path}; }}",
        ),
    )


def _rotation() -> Step:
    rules = "weekly,rotate 4,maxsize 1M,missingok,notifempty,copytruncate"
    words = " ".join(f"'    {rule}'" for rule in rules.split(","))
    target = "/etc/logrotate.d/hpslurm"
    return Step(
        "Log rotation",
        "the log says only what went wrong; after a year of it, it shall not be what fills the disk",
        "every node",
        (f"printf '%s\\n' '/var/log/hpslurm.log {{' {words} '}}' | sudo tee {target} >/dev/null",),
    )


def _tried(folder: str, relative: bool) -> Step:
    scripts = [f"{folder}/{sub}/{SCRIPT}" for sub in OUR_FOLDERS.values()]
    look = " && ".join(f"test -x {script} && {script}" for script in scripts)
    if relative:
        return Step(
            "Try the scripts",
            "as Slurm will run them; it must print 0. Only then name them in slurm.conf",
            "the controller",
            (f"sudo sh -c '{look}; echo $?'",),
        )
    return Step(
        "Try the scripts on every node",
        "as Slurm will run them; every node must print 0, and none be missing. Only then name them in slurm.conf: "
        "Slurm drains each node on which one cannot be run",
        "the controller",
        (
            "NODES=$(sinfo -h -o %N | paste -sd,)",
            f'clush -bw "$NODES" \'sudo sh -c "{look}"; echo $?\'',
        ),
    )


def _into_use(here: Site) -> list[Step]:
    return [
        Step(
            "Take it into use",
            "slurmctld and slurmd read the new lines; running jobs go on. From here on the scripts run on the nodes of "
            "ALL partitions: with partitions in the policy they look at jobs of those only, and end at once elsewhere",
            "the controller",
            ("sudo scontrol reconfigure", "scontrol show config | grep -E '^(Prolog|Epilog)'"),
        ),
        Step(
            "See it work on one node",
            "the node must be idle again afterwards, and the report say that nothing was found or what was",
            "the controller",
            (
                "srun -N1 true",
                "sinfo -N -o '%N %T %E' | head",
                f"{here.venv}/bin/hpslurm report JOBID      # the number that squeue or srun -v named",
            ),
        ),
        Step(
            "If ever in doubt",
            "the kill switch: the hooks then end at once, with exit code 0",
            "a node, or all",
            ("sudo touch /run/hpslurm.off",),
        ),
    ]


def _theirs(here: Site) -> dict[str, list[str]]:
    return {name: [path for path in paths if path not in here.mine] for name, paths in here.hooks.items()}


def _copy(here: Site, sub: str, folder: str) -> tuple[str, ...]:
    share = f'$({here.venv}/bin/python -c "import hpslurm, os; print(os.path.dirname(hpslurm.__file__))")/share'
    lines = [
        f"sudo install -d -m 755 {folder}/{sub}",
        f'sudo install -m 755 "{share}/{sub}/{SCRIPT}" {folder}/{sub}/{SCRIPT}',
    ]
    if here.venv != VENV and sub != "taskprolog.d":
        lines.append(f"sudo sed -i 's|^PYTHON=.*|PYTHON={here.venv}/bin/python|' {folder}/{sub}/{SCRIPT}")
    return tuple(lines)


def _told(here: Site, folder: str) -> list[Step]:
    """A job that starts on a sick node is told. Slurm takes one TaskProlog, and ships none."""
    if SCRIPT in here.task_prolog:
        return []
    script = f"{folder}/taskprolog.d/{SCRIPT}"
    line = f"TaskProlog={script}"
    if here.task_prolog:
        line = f"# {here.task_prolog} is there already: add a line to it that runs  {script}"
    return [
        Step(
            "Tell the user",
            "optional: one line in the output of a job that starts on a node where the prolog found something that "
            "blocks training. The script on every node first: a task ends where its TaskProlog is missing",
            "every node, then slurm.conf on the controller",
            (*_copy(here, "taskprolog.d", folder), f"# add to {here.conf}:", line),
        )
    ]


def _health(here: Site, folder: str) -> list[Step]:
    """Slurm takes one HealthCheckProgram, so ours runs the site's."""
    if SCRIPT in here.health:
        return []
    script = f"{folder}/healthcheck.d/{SCRIPT}"
    lines = [*_copy(here, "healthcheck.d", folder)]
    if here.health:
        lines.append(f"sudo sed -i 's|^NEXT=.*|NEXT=({here.health})|' {script}      # the site's own goes on")
        lines.append(f"# in {here.conf} replace HealthCheckProgram={here.health} by this, and keep the other lines:")
    else:
        lines.append(f"# add to {here.conf}:")
    lines.append(f"HealthCheckProgram={script}")
    if not here.health:
        lines += ["HealthCheckInterval=300", "HealthCheckNodeState=ANY,CYCLE"]
    return [
        Step(
            "Look between jobs",
            "optional: a fresh record of nodes that run one long job, or none. It drains nothing; slurm.conf.example "
            "explains the lines",
            "every node, then slurm.conf on the controller",
            tuple(lines),
        )
    ]


def _scripts(here: Site, folder: str, relative: bool) -> Step:
    copies = tuple(line for sub in OUR_FOLDERS.values() for line in _copy(here, sub, folder))
    if relative:
        return Step(
            "The two scripts",
            "beside slurm.conf; slurmctld ships them to every node, also to one that is replaced tomorrow",
            "the controller",
            copies,
        )
    return Step(
        "The two scripts",
        "on every node BEFORE slurm.conf names them: Slurm drains a node whose Prolog is missing. A node that is "
        "replaced needs them too, so this belongs into the lifecycle script",
        "every node, and the controller",
        copies,
    )


def _join_folders(here: Site, folder: str) -> Step:
    lines = []
    for name, theirs in _theirs(here).items():
        for path in theirs[-1:]:
            lines += _wrapper(path, f"{folder}/{OUR_FOLDERS[name]}/site.sh")
    return Step(
        "The site's own hooks",
        "this Slurm keeps the LAST Prolog line only, so both scripts go into one folder, named by a glob. Slurm runs "
        "it in reverse order (z to a, then Z to A, 9 to 0): site.sh before hpslurm.sh. It starts the site's script "
        "where it is, since a copy would miss what lies beside it. A file there that cannot be run drains the node, so "
        "the last line must print nothing",
        "every node, and the controller",
        tuple(lines),
    )


def _wrapper(path: str, target: str) -> list[str]:
    """Lines that write a script which runs the site's own where it is, and that look whether it can be run."""
    many = any(mark in path for mark in "*?[")
    runs = f'for hook in {path}; do "$hook" || exit; done' if many else f'exec {shlex.quote(path)} "$@"'
    each = f"{path if many else shlex.quote(path)} {target}"
    return [
        f"printf '%s\\n' '#!/bin/sh' {shlex.quote(runs)} | sudo tee {target} >/dev/null && sudo chmod 755 {target}",
        f'for hook in {each}; do test -x "$hook" || echo "STOP: $hook"; done',
    ]


def _configure(here: Site, add: list[str], remove: list[str]) -> Step:
    lines = [f"# remove from {here.conf}:  {line}" for line in remove]
    lines += [f"# add to {here.conf}:", *add]
    why = "slurm.conf.example explains each line"
    if any(_theirs(here).values()):
        why += (
            "; PrologEpilogTimeout holds for the site's own hooks, too: leave it out, or take more than they need: "
            "Slurm kills what takes longer and drains the node"
        )
    if here.hyperpod:
        why += "; HyperPod's lifecycle scripts delete Prolog and Epilog lines: add these after them, see below"
    return Step("slurm.conf", why, "the controller", tuple(lines))


def snippet(here: Site) -> list[str]:
    """The same as lines for a HyperPod lifecycle script; safe to run again."""
    relative = here.configless and here.version is not None and here.version >= SHIPS_RELATIVE
    folder = here.conf.rpartition("/")[0]
    add, remove = conf_lines(here, folder, relative)
    lines = [
        "# hpslurm: on every node, after the base configuration has run",
        f"[ -x {here.venv}/bin/hpslurm ] || {{ python3 -m venv {here.venv} && {here.venv}/bin/pip install {WHEEL}; }}",
        f'SHARE=$({here.venv}/bin/python -c "import hpslurm, os; print(os.path.dirname(hpslurm.__file__))")/share',
    ]
    for sub in OUR_FOLDERS.values():
        lines.append(f'install -D -m 755 "$SHARE/{sub}/{SCRIPT}" {folder}/{sub}/{SCRIPT}')
    lines += [
        "# on the controller only: the base scripts delete Prolog= and Epilog= lines, so add ours after them",
        *(f"# this Slurm keeps one of each, so remove from {here.conf} first:  {line}" for line in remove),
        f"if [ -w {here.conf} ] && ! grep -q hpslurm {here.conf}; then",
        f"    cat >> {here.conf} <<'END'",
        "# hpslurm",
        *add,
        "END",
        "    scontrol reconfigure",
        "fi",
    ]
    return lines
