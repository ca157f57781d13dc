"""RemoveIPC: does logind delete a user's shared memory while his job still runs?

With RemoveIPC=yes systemd-logind removes everything a user owns in /dev/shm when his
last login session ends. A job is no session: closing the terminal takes the segments
from under its ranks ("unlink shared memory /dev/shm/nccl-... failed"). The setting
is looked up as logind does: the main file, then the drop-ins of all folders by name.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host

SECTION = "debugging-guide.md § 15"
SET = Rule("logind-removeipc", P1, "logind removes shared memory at logout", SECTION)
DEFAULT = Rule("logind-removeipc-default", P2, "logind removes shared memory at logout, by default", SECTION)
PROGRAMS = ("/usr/lib/systemd/systemd-logind", "/lib/systemd/systemd-logind")
FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
_YES, _NO = ("1", "yes", "y", "true", "t", "on"), ("0", "no", "n", "false", "f", "off")


@dataclass(frozen=True)
class Facts:
    removes: bool
    where: str  # the file that says so; empty: nobody does, and the built-in default holds


def collect(host: Host) -> Facts:
    if not any(host.exists(path) for path in PROGRAMS):
        raise Skip("systemd-logind is not installed")
    removes, where, stock = None, "", None
    for path in _files(host):
        for value, is_set in remove_ipc(host.read(path)):
            word = value.lower()
            if not is_set:
                stock = word in _YES
            elif word in _YES + _NO:
                removes, where = word in _YES, path
            else:
                raise Unknown(f"{path} sets RemoveIPC to {clean(value, 40)!r}, which is neither yes nor no")
    if removes is None:
        # systemd's own default is yes; a distribution may build another one and shows it in the file
        removes = stock is not False
    return Facts(removes, where)


def remove_ipc(text: str) -> Iterator[tuple[str, bool]]:
    """Each value of RemoveIPC in a ``logind.conf``, and whether it is set: the file as shipped shows the default.

    >>> list(remove_ipc('''
    ... [Login]
    ... #RemoveIPC=yes
    ... RemoveIPC = no
    ... [Other]
    ... RemoveIPC=yes
    ... '''))
    [('yes', False), ('no', True)]
    """
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        section = line if line.startswith("[") else section
        name, equals, value = line.lstrip("#").partition("=")
        if equals and name.strip() == "RemoveIPC" and section in ("[Login]", ""):
            yield value.strip(), not line.startswith("#")


def _files(host: Host) -> list[str]:
    """The main file that counts, then the drop-ins; of one name only that of the first folder counts."""
    main = [path for path in (f"{folder}/logind.conf" for folder in FOLDERS) if host.exists(path)][:1]
    drop_ins: dict[str, str] = {}
    for folder in FOLDERS:
        for path in host.glob(f"{folder}/logind.conf.d/*.conf"):
            drop_ins.setdefault(path.rpartition("/")[2], path)
    return main + [drop_ins[name] for name in sorted(drop_ins)]


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if not facts.removes:
        return
    rule = SET if facts.where else DEFAULT
    yield rule.found(
        f"RemoveIPC=yes {'in ' + facts.where if facts.where else 'is the built-in default'}, expected RemoveIPC=no",
        evidence=[Evidence(facts.where or "logind.conf and its drop-ins", "RemoveIPC=yes")],
        suggest=[
            Suggestion(LOOK, "see what logind uses", "srun -w {nodes} systemd-analyze cat-config systemd/logind.conf"),
            Suggestion(
                CONFIGURE,
                "write RemoveIPC=no into /etc/systemd/logind.conf.d/hpslurm.conf under [Login], in the lifecycle "
                "script as well; it holds from the next boot (restarting logind may log users out)",
            ),
        ],
    )
