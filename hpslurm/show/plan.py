"""One plan for each node: what all its findings ask for, merged into one list in order of harm.

Findings come by rule, and each brings advice of its own. A person repairs nodes, one after the other: evidence is
saved once, the node is drained once, the furthest step is taken once, and no command stands there twice. Nodes that
have the same troubles share one plan. Nothing here asks or prints anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from hpslurm.core import linear, suggest
from hpslurm.core.finding import DRAIN, HARMS, PRIORITIES, REBOOT, REPLACE, Finding, Rule, Suggestion
from hpslurm.core.nodeset import fold
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass, replace
from hpslurm.show.render import filled

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing costs the check as much as several probes
    from typing import Any

SCHEMA = 1
ACTS = (REBOOT, REPLACE)
MOST_WHYS = 4  # reasons in one step
REASON = 24  # characters of rule ids in the reason of a drain; Slurm shows reasons in tables
# What one node's fault makes others count: their partner did not answer.
OF_PEERS = frozenset({"efa-errors"})


@dataclass(frozen=True)
class Known:
    """What is known of a node beside its findings. ``waits`` says why there is nothing to do but wait."""

    out: bool = False  # Slurm starts nothing there any more
    waits: str = ""


@dataclass(frozen=True)
class Trouble:
    """A finding of a plan's nodes, in short; ``explained`` names the node whose fault it follows from."""

    rule: Rule
    words: str
    explained: str = ""


@dataclass(frozen=True)
class Step:
    """Something to do, once. ``nodes`` are those of the plan that it is for, ``rules`` the findings that ask for it."""

    harm: str
    why: str
    command: str
    nodes: tuple[str, ...]
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """``nodes`` is empty for what is of no single node. ``steps`` are in order of harm, commands ready to type."""

    nodes: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    steps: tuple[Step, ...]
    waits: str = ""

    @property
    def priority(self) -> str:
        return min(trouble.rule.priority for trouble in self.troubles)

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(trouble.rule.id for trouble in self.troubles))

    @property
    def furthest(self) -> str:
        """The step of most harm, ``wait``, or empty where nothing is asked for."""
        if self.waits:
            return "wait"
        return max((step.harm for step in self.steps), key=HARMS.index, default="")

    @property
    def do(self) -> str:
        """The same in words for a table."""
        harms = {step.harm for step in self.steps}
        if self.waits:
            return "drain, then wait" if DRAIN in harms else "wait"
        if {REBOOT, REPLACE} <= harms:
            return "reboot, else replace"
        return self.furthest or "-"

    @property
    def first(self) -> str:
        """The command to begin with: keep jobs off where that is asked for, else what comes first."""
        commands = [step for step in self.steps if step.command]
        drains = [step for step in commands if step.harm == DRAIN]
        return next((step.command for step in (*drains, *commands)), "")


Act = Callable[[Suggestion, Sequence[str]], Iterable[Suggestion]]


def as_it_is(item: Suggestion, nodes: Sequence[str]) -> Iterable[Suggestion]:
    """Acts as they are suggested; whoever knows instances and jobs has a better one."""
    return [item]


def plans(
    findings: Iterable[Finding],
    known: Mapping[str, Known] | None = None,
    explained: Mapping[tuple[str, str], str] | None = None,
    act: Act = as_it_is,
) -> list[Plan]:
    """One plan for each set of nodes with the same troubles, gravest first. Muted findings ask for nothing.

    ``explained`` maps a node and a rule id to the node whose fault it follows from. ``act`` words the reboot or
    replacement of some nodes: how many at once, by which ids, and whose jobs end with them.
    """
    known, explained = known or {}, explained or {}
    groups: dict[tuple[Any, ...], Group] = {}
    for (subject, rule_id), members in _by_subject(findings).items():
        groups.setdefault(_key(subject, rule_id, members, known, explained), []).append((subject, members))
    made = [_plan(group, known, explained, act) for group in groups.values()]
    return sorted(made, key=_order)


def _order(plan: Plan) -> tuple[Any, ...]:
    """The gravest first, and among those what most nodes have."""
    return PRIORITIES.index(plan.priority), not plan.nodes, -len(plan.nodes), plan.nodes[:1], plan.rules


Group = list[tuple[str, list[Finding]]]  # nodes with the same troubles, each with its findings


def _by_subject(findings: Iterable[Finding]) -> dict[tuple[str, str], list[Finding]]:
    """Findings of each node; of those that are of no node, each rule is for itself."""
    by_subject: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if not finding.muted:
            by_subject.setdefault((finding.subject, "" if finding.subject else finding.rule.id), []).append(finding)
    return by_subject


def _key(
    subject: str,
    rule_id: str,
    findings: list[Finding],
    known: Mapping[str, Known],
    explained: Mapping[tuple[str, str], str],
) -> tuple[Any, ...]:
    """Equal for nodes whose troubles are of the same shape."""
    about = known.get(subject, Known())
    troubles = {(one.rule.id, shape(one.detail), explained.get((subject, one.rule.id), "")) for one in findings}
    return about.out, about.waits, rule_id, tuple(sorted(troubles))


def _plan(group: Group, known: Mapping[str, Known], explained: Mapping[tuple[str, str], str], act: Act) -> Plan:
    about = known.get(group[0][0], Known())
    asking = [
        finding for _, findings in group for finding in findings if (finding.subject, finding.rule.id) not in explained
    ]
    nodes = tuple(subject for subject, _ in group if subject)
    return Plan(nodes, _troubles(group, explained), _steps(asking, about, act), about.waits)


def _troubles(group: Group, explained: Mapping[tuple[str, str], str]) -> tuple[Trouble, ...]:
    """Each rule once, gravest first, with what all its details have in common."""
    details: dict[Rule, dict[str, None]] = {}
    because: dict[Rule, str] = {}
    for subject, findings in group:
        for finding in findings:
            details.setdefault(finding.rule, {})[clean(finding.detail)] = None
            because[finding.rule] = explained.get((subject, finding.rule.id), "")
    made = [Trouble(rule, common(list(seen)), because[rule]) for rule, seen in details.items()]
    return tuple(sorted(made, key=lambda one: (bool(one.explained), PRIORITIES.index(one.rule.priority), one.rule.id)))


# shapes

# What differs between nearly equal texts: ids, addresses, node names, plain numbers. A code is what it says.
_CODES = r"(?:xid|sxid|signal|code|status|§)[ :=]{0,2}\d+"
_VARIES = re.compile(
    rf"(?P<code>{_CODES})"
    r"|\b(?:GPU|MIG)-[0-9a-f-]{8,}|\b[a-z]{1,6}-[0-9a-f]{8,17}\b|\b[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
    r"|\bip-\d{1,3}(?:-\d{1,3}){3}\b|(?<![\w.])[A-Z]{2,10}-\d{1,9}\b"
    r"|(?<![\w.-])\d{1,20}(?:[.,:]\d{1,20}){0,20}(?![\w.-]{0,64}[A-Za-z])",
    re.IGNORECASE,
)
OPEN = "…"  # stands for what differs
MOST_VALUES = 3


def shape(text: str) -> str:
    """The text without what differs between nearly equal ones, as ``Xid 48 on GPU …``."""
    return "".join(OPEN if varies else part for part, varies in _parts(clean(text)))


def common(texts: Sequence[str]) -> str:
    """One text for nearly equal ones: values that differ are listed while they are few."""
    if len(texts) == 1 or len({shape(text) for text in texts}) > 1:
        return texts[0]
    columns = zip(*(_parts(text) for text in texts), strict=True)
    return "".join(_listed([part for part, _ in column]) for column in columns)


def _parts(text: str) -> list[tuple[str, bool]]:
    """The text in pieces, each with whether it varies."""
    parts, at = [], 0
    for match in _VARIES.finditer(text):
        if not match["code"]:
            parts += [(text[at : match.start()], False), (match[0], True)]
            at = match.end()
    return [*parts, (text[at:], False)]


def _listed(values: Sequence[str]) -> str:
    unlike = sorted(set(values), key=lambda value: (len(value), value))
    return ", ".join(unlike) if len(unlike) <= MOST_VALUES else OPEN


# steps

_DRAIN = linear.late(r"reason='hpslurm: [^']*'")


def _steps(findings: list[Finding], about: Known, act: Act) -> tuple[Step, ...]:
    asked = _asked(findings, about, _replaced_at_once(findings))
    drains = {item: who for item, who in asked.items() if _DRAIN.search(item.command)}
    rest = {item: who for item, who in asked.items() if item not in drains}
    steps = [*(_drained(drains) if drains else ()), *_merged(rest, act)]
    evidence = suggest.save_evidence().command.partition("{nodes}")[0]
    return tuple(sorted(steps, key=lambda step: (HARMS.index(step.harm), step.command.startswith(evidence))))


Asked = dict[Suggestion, list[Finding]]  # who asks for it


def _asked(findings: list[Finding], about: Known, replaced: bool) -> Asked:
    """What is left to ask for, the advice of the gravest first."""
    asked: Asked = {}
    for finding in sorted(findings, key=lambda one: one.rule.priority):
        for item in finding.suggestions:
            needless = (item.harm == DRAIN and about.out) or (item.harm == REBOOT and replaced)
            if not needless and (item.harm == DRAIN or not about.waits):
                asked.setdefault(item, []).append(finding)
    return asked


def _replaced_at_once(findings: list[Finding]) -> bool:
    """Whether a finding asks for a replacement that no reboot is to be tried before."""
    harms = [{item.harm for item in finding.suggestions} for finding in findings]
    return any(REPLACE in one and REBOOT not in one for one in harms)


def _drained(drains: Asked) -> list[Step]:
    """One drain, with all that asks for it as its reason."""
    nodes, rules = _who(drains)
    item = suggest.drain(_named(rules))
    return [Step(DRAIN, item.why, filled(item.command, fold(nodes)), nodes, rules)]


def _named(rules: Sequence[str]) -> str:
    """As many of the ids as are short together, and how many more there are."""
    said = rules[0]
    for number, rule in enumerate(rules[1:], start=1):
        if len(said) + len(rule) > REASON:
            return f"{said} +{len(rules) - number}"
        said += f", {rule}"
    return said


def _merged(asked: Asked, act: Act) -> list[Step]:
    """Each command once, for all nodes that it is for, with the reasons of all who ask for it."""
    groups: dict[tuple[str, str], Asked] = {}
    for item, who in asked.items():
        groups.setdefault((item.harm, item.command or item.why), {})[item] = who
    steps = []
    for (harm, _), members in groups.items():
        nodes, rules = _who(members)
        whys = list(dict.fromkeys(clause for item in members for clause in item.why.split("; ")))
        merged = replace(next(iter(members)), why="; ".join(whys[:MOST_WHYS]))
        for put in act(merged, nodes) if harm in ACTS and merged.command and nodes else [merged]:
            steps.append(Step(harm, put.why, filled(put.command, fold(nodes)), nodes, rules))
    return steps


def _who(asked: Asked) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The nodes and the rules that ask, each once."""
    findings = [finding for members in asked.values() for finding in members]
    nodes = dict.fromkeys(finding.subject for finding in findings if finding.subject)
    return tuple(nodes), tuple(dict.fromkeys(finding.rule.id for finding in findings))


# as data


def line(plan: Plan) -> dict[str, Any]:
    """A plan as a line of JSON."""
    return {
        "schema": SCHEMA,
        "type": "plan",
        "nodes": list(plan.nodes),
        "priority": plan.priority,
        "furthest": plan.furthest,
        "waits": plan.waits,
        "findings": [
            {
                "id": trouble.rule.id,
                "priority": trouble.rule.priority,
                "words": trouble.words,
                "explained_by": trouble.explained,
            }
            for trouble in plan.troubles
        ],
        "steps": [
            {
                "step": step.harm,
                "why": clean(step.why),
                "command": step.command,
                "nodes": list(step.nodes),
                "findings": list(step.rules),
            }
            for step in plan.steps
        ],
    }


def with_plans(lines: Iterable[dict[str, Any]], made: Iterable[Plan]) -> list[dict[str, Any]]:
    """The lines of a report with its plans before the last, which ends it."""
    *before, end = lines
    return [*before, *map(line, made), end]
