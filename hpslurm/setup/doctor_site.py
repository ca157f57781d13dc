"""What the site set up around the hooks: its policy, the folders for records, and one version everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from hpslurm.core import nodeset, records
from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Mute, Policy
from hpslurm.core.probe import reason
from hpslurm.core.values import dataclass
from hpslurm.setup import gates

SECTION = "operations.md § 7"
POLICY = Rule("policy-not-taken", P1, "The site's policy is not taken as it was written", SECTION)
EXPIRED = Rule("policy-mute-expired", P2, "A mute is past its date", SECTION)
GATE = Rule("policy-gate-unknown", P1, "The gate names what can never gate", SECTION)
NAMELESS = Rule("policy-nodes-unknown", P2, "A table of nodes names no node that left a record", SECTION)
RESULTS = Rule("results-not-usable", P1, "Records cannot be kept", SECTION)
SKEW = Rule("hpslurm-versions-differ", P2, "Nodes run different versions of hpslurm", SECTION)
POLICIES = Rule("policies-differ", P2, "Nodes run under different policies", SECTION)


@dataclass(frozen=True)
class Facts:
    """``gate`` says why ids of the gate never gate. ``nameless`` are node lists of tables that name no node which left
    a record in the shared folder. ``folders`` maps a folder of the policy to what is wrong
    with it (empty: nothing).

    ``versions`` and ``policies`` map a node to what its newest record was made with.
    """

    problems: tuple[str, ...] = ()
    expired: tuple[Mute, ...] = ()
    gate: tuple[str, ...] = ()
    folders: tuple[tuple[str, str], ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    policies: tuple[tuple[str, str], ...] = ()
    nameless: tuple[str, ...] = ()


def collect(policy: Policy) -> Facts:
    folders = [(policy.results, trouble(policy.results, made=True))]
    if policy.results_shared:
        folders.append((policy.results_shared, trouble(policy.results_shared, made=False)))
    newest: dict[str, records.Record] = {}
    for folder, wrong in reversed(folders):
        if not wrong:
            newest.update(records.newest(records.node_records(folder)[0]))
    return Facts(
        policy.problems,
        policy.expired(),
        tuple(gates.strange(policy.gate)),
        tuple(folders),
        _said(newest, "version"),
        _said(newest, "policy"),
        _nameless(policy, newest) if policy.results_shared else (),  # else only this node's own are here
    )


def _nameless(policy: Policy, newest: dict[str, records.Record]) -> tuple[str, ...]:
    return tuple(
        table.nodes for table in policy.nodes if newest and not any(nodeset.names(table.nodes, node) for node in newest)
    )


def trouble(folder: str, *, made: bool) -> str:
    """Why the hooks cannot write there, or empty. ``made``: they make the folder themselves."""
    try:
        records.refuse_foreign(folder)
    except FileNotFoundError:
        if not made:
            return "does not exist"
        above = folder
        while not os.path.exists(above):
            above = os.path.dirname(above)
        return "" if os.access(above, os.W_OK) or os.geteuid() else f"{above} cannot be written"
    except OSError as error:
        return error.strerror or reason(error)
    if not os.path.isdir(folder):
        return "is not a directory"
    # the kernel says so of a read-only file system even to root; another user cannot tell
    return "" if os.access(folder, os.W_OK) or os.geteuid() else "cannot be written"


def _said(newest: dict[str, records.Record], key: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((node, str(record.run[key])) for node, record in newest.items() if record.run.get(key)))


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    if facts.problems:
        yield POLICY.found(
            f"{len(facts.problems)} of its entries ignored" if len(facts.problems) > 1 else facts.problems[0],
            evidence=[Evidence("policy", problem) for problem in facts.problems],
            suggest=[Suggestion(CONFIGURE, "correct the file; until then defaults hold")],
        )
    if facts.gate:
        yield GATE.found(
            f"{len(facts.gate)} ids of gate never gate" if len(facts.gate) > 1 else facts.gate[0],
            evidence=[Evidence("policy", one) for one in facts.gate],
            suggest=[Suggestion(CONFIGURE, "correct the id, or take it out; the other ids of gate hold")],
        )
    if facts.nameless:
        yield NAMELESS.found(
            f"{', '.join(facts.nameless)}: no node of these names left a record",
            evidence=[Evidence("policy", f'[nodes."{nodes}"]') for nodes in facts.nameless],
            suggest=[
                Suggestion(LOOK, "the names that Slurm knows", "sinfo -N -o '%N %T %E' | head"),
                Suggestion(CONFIGURE, "correct the list, or take it out: what it expects is looked for nowhere"),
            ],
        )
    if facts.expired:
        told = [
            f"the mute of {mute.rule}{f' by {mute.author}' if mute.author else ''} ended on {mute.until}"
            for mute in facts.expired
        ]
        yield EXPIRED.found(
            f"{len(told)} mutes are past their date" if len(told) > 1 else told[0],
            evidence=[Evidence("policy", one) for one in told],
            suggest=[Suggestion(CONFIGURE, "take it out of the policy, or renew its date")],
        )
    bad = [(folder, wrong) for folder, wrong in facts.folders if wrong]
    if bad:
        yield RESULTS.found(
            "; ".join(f"{folder} {wrong}" for folder, wrong in bad),
            evidence=[Evidence(folder, wrong) for folder, wrong in bad],
            suggest=[
                Suggestion(LOOK, "owner, mode and file system", f"ls -ld {bad[0][0]}; df {bad[0][0]}"),
                Suggestion(CONFIGURE, "a folder of root that nobody else may write, on a file system with space"),
            ],
        )
    yield from _differ(SKEW, facts.versions, "install the same release on every node")
    yield from _differ(POLICIES, facts.policies, "the same /etc/hpslurm/policy.toml on every node")


def _differ(rule: Rule, said: Iterable[tuple[str, str]], remedy: str) -> Iterator[Finding]:
    nodes: dict[str, list[str]] = {}
    for node, word in said:
        nodes.setdefault(word, []).append(node)
    if len(nodes) < 2:
        return
    parts = [f"{word} on {nodeset.fold(names)}" for word, names in sorted(nodes.items(), key=lambda one: -len(one[1]))]
    yield rule.found(
        "; ".join(parts),
        evidence=[Evidence("newest record of each node", part) for part in parts],
        suggest=[Suggestion(CONFIGURE, remedy)],
    )
