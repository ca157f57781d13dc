"""Which rules a site may name in ``gate``, and which of its words never gate. Not for hooks: it reads all rules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib import import_module

from hpslurm import hooks
from hpslurm.core import rules as every
from hpslurm.core.finding import Rule
from hpslurm.core.text import clean
from hpslurm.node.xid import worst_rules


def rules() -> dict[str, Rule]:
    """Every rule that a prolog can find, by id; XIDs at their worst, since what stands around a line can raise them."""
    return {
        **every.rules(import_module(f"hpslurm.{name}") for name in hooks.PROLOG),
        **{one.id: one for one in worst_rules()},
    }


def strange(gate: Iterable[str]) -> Iterator[str]:
    """A line for each id that the prolog will never say ``drain`` for: misspelt, or no hardware of the node."""
    if not (wanted := tuple(gate)):
        return
    known = rules()
    able = [name for name, rule in known.items() if rule.gateable]
    for name in wanted:
        if name in able:
            continue
        if name in known:
            yield f"gate names {name!r}, which is not about hardware of the node itself: it never gates"
            continue
        close = get_close_matches(name, able, n=3, cutoff=0.6)
        meant = f"did you mean {' or '.join(close)}?" if close else "docs/rules.md marks those that can be named"
        yield f"gate names {clean(name, 60)!r}, which no look of a prolog can find: it never gates; {meant}"
