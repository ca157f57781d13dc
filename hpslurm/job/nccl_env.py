"""The environment of a job step: settings that break NCCL on EFA, and those that should not stay.

Only a step has the user's variables; slurmd's say nothing. NCCL also reads nccl.conf
files, where the environment wins. What each variable means by version and instance type
stands in ``tables/nccl_env.toml``. Values are shown and recorded for ``NCCL_*``, ``OFI_NCCL_*``,
``FI_*`` and ``TORCH_*`` only; of any other variable nothing leaves this process but its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from hpslurm.core import linear, toml
from hpslurm.core.finding import CONFIGURE, LOOK, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, field
from hpslurm.node import instance, versions
from hpslurm.sources.host import Host

REFERENCE = "operations.md § 5"
LEFTOVER = Rule("env-leftover", P2, "Debugging switches that should not stay", REFERENCE)
PINNED = Rule("env-pinned", P2, "Settings that override a better automatic choice", REFERENCE)
RISKY = Rule("env-risky", P2, "Settings that are right in some places only", REFERENCE)
OBSOLETE = Rule("env-obsolete", P2, "Settings that are no longer needed", REFERENCE)
REMOVED = Rule("env-removed", P2, "Settings that nothing reads any more", REFERENCE)
RENAMED = Rule("env-renamed", P2, "Settings under an old name", REFERENCE)
INEFFECTIVE = Rule("env-ineffective", P2, "Settings without effect here", REFERENCE)
UNKNOWN_NAME = Rule("env-unknown-name", P2, "Settings that no library reads", REFERENCE)
HARMFUL = "harmful"
FOLDED = {
    "leftover": LEFTOVER,
    "pinned": PINNED,
    "risky": RISKY,
    "obsolete": OBSOLETE,
    "removed": REMOVED,
    "renamed": RENAMED,
    "ineffective": INEFFECTIVE,
    "unknown-name": UNKNOWN_NAME,
}

SHOWN = ("NCCL_", "OFI_NCCL_", "FI_", "TORCH_")
OURS = (
    "NCCL_",
    "OFI_NCCL_",
    "FI_EFA_",
    "TORCH_NCCL_",
    "TORCH_FR_",
)  # prefixes of names that may be mistyped
NEWEST = "2.32.3"  # NCCL, of the list of names
NEWEST_PLUGIN = "1.21.1"
ETC, HOME = "/etc/nccl.conf", ".nccl.conf"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# No library has such a name: it is a site's own, under a prefix that we show.
_SECRET = re.compile(r"SECRET|TOKEN|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY")
_YES, _NO = ("true", "yes", "on"), ("false", "no", "off")
_EXACT = ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")  # whole names, where NCCL takes beginnings


@dataclass(frozen=True)
class Facts:
    settings: dict[str, str]  # NCCL_*, OFI_NCCL_*, FI_* and TORCH_*
    hidden: dict[str, str] = field(repr=False, metadata={"names_only": True})  # others that the table knows
    files: dict[str, str]  # of settings that stand in a file: which
    type: str = ""  # instance type
    nccl: str = ""  # versions; empty where not known
    plugin: str = ""
    interfaces: tuple[str, ...] = ()
    gpus: int | None = None  # on this node, by its type
    trouble: str = ""


@cache
def table() -> dict[str, Any]:
    return toml.whole("nccl_env")


@cache
def rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table()["row"]}


def table_rules() -> list[Rule]:
    return [_rule(row, one) for row in table()["row"] for one in row["rules"] if one["verdict"] == HARMFUL]


def _rule(row: Mapping[str, Any], rule: Mapping[str, Any]) -> Rule:
    return Rule(rule["id"], rule["priority"], f"{row['name']} set to a harmful value", REFERENCE)


# collect


def collect(host: Host) -> Facts:
    if host.in_hook:
        raise Skip("the user's environment exists in a step only")
    trouble: list[str] = []
    settings, files = _gathered(host, trouble)
    try:
        kind = instance.instance_type(host)
    except Unknown as why:
        kind = ""
        trouble.append(f"rules for instance types left out: {why}")
    known = instance.table().get(kind)
    return Facts(
        {
            name: "(not shown)" if _SECRET.search(name.upper()) else value
            for name, value in settings.items()
            if name.startswith(SHOWN)
        },
        {name: value for name, value in settings.items() if not name.startswith(SHOWN) and row_of(name)},
        {name: path for name, path in files.items() if name.startswith(SHOWN) or row_of(name)},
        kind,
        versions.nccl_library(host)[1],
        versions.plugin_library(host)[1],
        tuple(path.rpartition("/")[2] for path in host.glob("/sys/class/net/*")),
        known.gpus if known else None,
        "; ".join(trouble),
    )


def _gathered(host: Host, trouble: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """All settings as NCCL sees them, and the file of those that come from one."""
    settings = dict(host.env)
    files: dict[str, str] = {}
    home = host.env.get("HOME", "")
    for path in (host.env.get("NCCL_CONF_FILE", ""), f"{home}/{HOME}" if home else "", ETC):
        if not path.startswith("/"):
            continue
        try:
            text = host.read(path, most=1 << 16)
        except FileNotFoundError:
            if path == host.env.get("NCCL_CONF_FILE"):
                trouble.append(f"{clean(path, 80)} (NCCL_CONF_FILE) does not exist")
            continue
        except OSError as error:
            trouble.append(f"{clean(path, 80)} not read: {error.strerror}")
            continue
        for name, value in parse_conf(text):
            if name not in settings:
                settings[name], files[name] = value, path
    return settings, files


def parse_conf(text: str) -> Iterator[tuple[str, str]]:
    """NAME=value lines of an nccl.conf; comments begin with #."""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and _NAME.fullmatch(name.strip()) and not line.lstrip().startswith("#"):
            yield name.strip(), value.strip()


def row_of(name: str) -> dict[str, Any] | None:
    """The row of a variable; a name in the table may end with a star."""
    row = rows().get(name)
    if row is None and name.startswith("FI_OFI_RXR_"):
        row = rows().get("FI_OFI_RXR_*")
    return row


# judge


@dataclass(frozen=True)
class Seen:
    """One setting with the rule that it met."""

    name: str
    row: Mapping[str, Any]
    rule: Mapping[str, Any]


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    settings = {**facts.settings, **facts.hidden}
    seen = [setting for name, value in sorted(settings.items()) if (setting := judged(name, value, facts))]
    seen += [_typo(name) for name in sorted(facts.settings) if is_unknown(name, facts)]
    for setting in seen:
        if setting.rule["verdict"] == HARMFUL:
            yield _rule(setting.row, setting.rule).found(
                f"{_shown(setting.name, facts)}: {setting.rule['why']}",
                evidence=[_evidence(setting.name, facts)],
                suggest=_suggest([setting], facts),
            )
    for verdict, rule in FOLDED.items():
        same = [one for one in seen if one.rule["verdict"] == verdict]
        if same:
            yield rule.found(
                "; ".join(f"{one.name}: {one.rule['why']}" for one in same),
                evidence=[_evidence(one.name, facts) for one in same],
                suggest=_suggest(same, facts),
            )
    if facts.trouble:
        raise Unknown(facts.trouble)


def judged(name: str, value: str, facts: Facts) -> Seen | None:
    """The first rule that the setting meets, if that asks for a finding."""
    row = row_of(name)
    if row is None:
        return None
    version = {"nccl": facts.nccl, "aws-ofi-nccl": facts.plugin}.get(row["owner"], "")
    since, until = row.get("since", ""), row.get("until", "")
    if since and versions.within(version, "", since):
        why = f"{row['owner']} {version} does not read it yet; {since} is the first that does"
        return Seen(name, row, {"verdict": "ineffective", "why": why})
    for rule in row["rules"]:
        if rule["verdict"] == "removed" and until and version and not versions.later(version, until):
            continue  # this version still reads it
        if "types" in rule and not facts.type.startswith(tuple(rule["types"])):
            continue
        if "versions" in rule and not versions.within(version, *rule["versions"]):
            continue
        if "plugin" in rule and not versions.within(facts.plugin, *rule["plugin"]):
            continue
        if matches(rule, name, value, facts):
            return Seen(name, row, rule) if rule["verdict"] == HARMFUL or rule["verdict"] in FOLDED else None
    return None


def matches(rule: Mapping[str, Any], name: str, value: str, facts: Facts) -> bool:
    """Does the value meet the rule's condition?"""
    words = {value.strip().lower()}
    if name.startswith(("FI_", "OFI_NCCL_")):
        words |= {"1" for word in words if word in _YES} | {"0" for word in words if word in _NO}
    if "in" in rule:
        return not words.isdisjoint(item.lower() for item in rule["in"])
    if "not_in" in rule:
        return words.isdisjoint(item.lower() for item in rule["not_in"])
    if "regex" in rule:
        return linear.compile(rule["regex"]).search(value[: linear.LONGEST]) is not None
    if rule["match"] == "no_interface":
        return bool(facts.interfaces) and not left_over(value, facts.interfaces, exact=name in _EXACT)
    if rule["match"] == "fewer_gpus":
        return facts.gpus is not None and len([part for part in value.split(",") if part.strip()]) < facts.gpus
    return True


def left_over(value: str, interfaces: Iterable[str], *, exact: bool = False) -> list[str]:
    """Interfaces that a list such as ``^docker,lo`` or ``=ens32`` leaves, by NCCL's rules."""
    excludes = value.startswith("^")
    value = value[1:] if excludes else value
    exact = exact or value.startswith("=")
    names = [part.split(":")[0] for part in value.lstrip("=").split(",") if part]

    def named(interface: str) -> bool:
        return interface in names if exact else interface.startswith(tuple(names))

    return [one for one in interfaces if named(one) != excludes and not (excludes and one == "lo")]


def is_unknown(name: str, facts: Facts) -> bool:
    """A name under one of our prefixes that no library reads, as far as our lists go."""
    if row_of(name) or not name.startswith(OURS):
        return False
    prefix, bare = parted(name)
    if bare in names_of(prefix) or bare.startswith(beginnings(prefix)):
        return False
    if prefix == "NCCL_" and not versions.later(facts.nccl, NEWEST):
        return True
    if prefix == "OFI_NCCL_" and versions.within(facts.plugin, "0", NEWEST_PLUGIN):
        return True
    return bool(closest(name))


def parted(name: str) -> tuple[str, str]:
    """Our prefix, and the rest."""
    prefix = next(one for one in OURS if name.startswith(one))
    return prefix, name[len(prefix) :]


_LISTS = {
    "NCCL_": ("present", "gone", "foreign"),
    "OFI_NCCL_": ("plugin_present", "plugin_gone"),
    "TORCH_NCCL_": ("torch_present",),
    "TORCH_FR_": ("torch_fr_present",),
}


@cache
def names_of(prefix: str) -> frozenset[str]:
    """What a library reads or read under this prefix, and what others use, without the prefix."""
    listed = {one.split()[0] for key in _LISTS.get(prefix, ()) for one in table()[key] if "*" not in one}
    return frozenset(listed | {name[len(prefix) :] for name in rows() if name.startswith(prefix)})


@cache
def beginnings(prefix: str) -> tuple[str, ...]:
    """Beginnings of names that others use."""
    return tuple(one.rstrip("*") for one in table()["foreign"] if "*" in one) if prefix == "NCCL_" else ()


def closest(name: str) -> str:
    """The known name that was probably meant, or empty."""
    from difflib import get_close_matches

    prefix, bare = parted(name)
    if prefix == "NCCL_" and bare.startswith("OFI_") and bare[len("OFI_") :] in names_of("OFI_NCCL_"):
        return f"OFI_NCCL_{bare[len('OFI_') :]}"  # as the plugin's own release notes have it once
    close = get_close_matches(bare, names_of(prefix), n=3, cutoff=0.8)
    return next((f"{prefix}{one}" for one in close if _typing_error(bare, one)), "")


def _typing_error(name: str, known: str) -> bool:
    """Word by word nearly the same: SHARP_DISABLE is another thing than SHM_DISABLE, and ENABLE than DISABLE."""
    from difflib import SequenceMatcher

    if name.replace("_", "") == known.replace("_", ""):
        return True
    words, others = name.split("_"), known.split("_")
    return len(words) == len(others) and all(
        word == other or SequenceMatcher(None, word, other).ratio() >= 0.75
        for word, other in zip(words, others, strict=True)
    )


def _typo(name: str) -> Seen:
    meant = closest(name)
    owner = {"NCCL_": f"no NCCL up to {NEWEST}", "OFI_NCCL_": f"no aws-ofi-nccl up to {NEWEST_PLUGIN}"}
    reader = owner.get(parted(name)[0], "")
    why = f"{reader} reads this name" if reader else "this name is not known"
    return Seen(
        name,
        {"owner": "nobody", "fix": f"use {meant}" if meant else "unset"},
        {"verdict": "unknown-name", "why": why + (f"; meant: {meant}" if meant else "")},
    )


def _shown(name: str, facts: Facts) -> str:
    if name in facts.settings:
        return f"{name}={clean(facts.settings[name], 120)}"
    return f"{name} (value not shown)"


def _evidence(name: str, facts: Facts) -> Evidence:
    return Evidence(facts.files.get(name, "environment of this step"), _shown(name, facts))


def _suggest(seen: list[Seen], facts: Facts) -> list[Suggestion]:
    fixes = [f"{one.name}: {one.row['fix']}" for one in seen if one.row.get("fix")]
    look = Suggestion(
        LOOK,
        "it comes from the job script, the submitting shell, a profile, or the container; see where",
        "srun -w {nodes} sh -c 'env | grep -E \"^(NCCL|OFI|FI|TORCH)_\" | sort; cat /etc/nccl.conf'",
    )
    return [look, Suggestion(CONFIGURE, "; ".join(fixes))] if fixes else [look]
