"""Host firewall: does this node drop the TCP connections between ranks?

NCCL's bootstrap, the framework's rendezvous and Gloo use TCP ports that the system picks.
EFA itself passes no firewall: a dropping rule lets a job hang at its start, or after it.
Nothing is asked for that is not loaded: listing rules would load the kernel's modules.
Docker's chain FORWARD drops by default, which is normal and touches no rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hpslurm.core.finding import CONFIGURE, LOOK, P1, P2, Evidence, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources.host import Host, error_of

SECTION = "debugging-guide.md § 16"
CLOSED = Rule("firewall-closed", P1, "Firewall drops what it does not know", SECTION)
DROPS = Rule("firewall-drops", P2, "Firewall rules that drop", SECTION)

LEGACY, NFT = "/proc/net/ip_tables_names", "/sys/module/nf_tables"
TABLES = ("filter", "nat", "mangle", "raw", "security")
HOOKS = ("input", "output", "INPUT", "OUTPUT")
# Drops that no rank can meet: broken packets, the metadata service, spoofed loopback, discovery.
_NORMAL = re.compile(
    r"invalid|169\.254\.|fe80::|127\.0\.0\.|(?:ip6? )?daddr ff|224\.0\.0\.|broadcast|multicast|limit"
    r"|icmp(?:v6)? type|(?:l4proto|-p) (?:ipv6-)?icmp",
    re.I,
)
_CHAIN = re.compile(r"\s*chain (\S+) \{")
_HOOK = re.compile(r"\s*type (\w+) hook (\w+) .*?(?:policy (\w+);)?$")


@dataclass(frozen=True)
class Facts:
    closed: tuple[str, ...]  # chains of input or output whose policy is drop
    accepts: int  # accepting rules in the closed ones
    drops: tuple[str, ...]  # dropping rules in or below input and output, that are no usual ones
    read: str  # nft, iptables or nothing


class Chain:
    def __init__(self, policy: str = "", hook: str = "") -> None:
        self.policy = policy
        self.hook = hook
        self.rules: tuple[str, ...] = ()


def _tool(host: Host) -> str:
    legacy = [name for name in (host.word(LEGACY) or "").split("\n") if name]
    if strange := [name for name in legacy if name not in TABLES]:
        raise Unknown(f"{LEGACY} names {clean(strange[0], 40)!r}, which is not a table")
    if "filter" in legacy:
        return "iptables_save"
    return "nft" if host.exists(NFT) else ""


def start(host: Host) -> None:
    if tool := _tool(host):
        host.start(tool)


def collect(host: Host) -> Facts:
    tool = _tool(host)
    if not tool:
        if not host.exists("/proc/net"):
            raise Unknown("/proc/net does not exist: no firewall can be seen")
        return Facts((), 0, (), "nothing")
    output = host.run(tool)
    if output.status:
        raise Unknown(f"{tool} may be asked by root only: {error_of(output)}")
    chains = nft_chains(output.out) if tool == "nft" else iptables_chains(output.out)
    if output.out.strip() and not chains and "table" not in output.out:
        raise Unknown(f"{tool} printed no rules but {clean(output.out, 60)!r}")
    return facts_of(chains, tool)


def nft_chains(text: str) -> dict[str, Chain]:
    """Chains by table and name, of what ``nft list ruleset`` prints; only filter hooks can drop what we care for.

    >>> chains = nft_chains('''
    ... table inet filter {
    ...     chain input {
    ...         type filter hook input priority filter; policy drop;
    ...         iif "lo" accept
    ...     }
    ... }
    ... ''')
    >>> [(name, chain.hook, chain.policy, chain.rules) for name, chain in chains.items()]
    [('table inet filter input', 'input', 'drop', ('iif "lo" accept',))]
    """
    chains: dict[str, Chain] = {}
    table, chain = "", None
    for line in text.splitlines():
        if line.startswith("table "):
            table, chain = line.split("{")[0].strip(), None
        elif match := _CHAIN.match(line):
            chain = chains.setdefault(f"{table} {match[1]}", Chain())
        elif chain is not None and (match := _HOOK.match(line.rstrip())):
            chain.hook, chain.policy = match[2], (match[3] or "accept")
        elif chain is not None and line.strip() not in ("", "}"):
            chain.rules += (line.strip(),)
    return chains


def iptables_chains(text: str) -> dict[str, Chain]:
    """Chains by name, of what ``iptables-save -t filter`` prints.

    >>> chains = iptables_chains('''
    ... *filter
    ... :INPUT DROP [0:0]
    ... :DOCKER - [0:0]
    ... -A INPUT -i lo -j ACCEPT
    ... COMMIT
    ... ''')
    >>> [(name, chain.hook, chain.policy, chain.rules) for name, chain in chains.items()]
    [('INPUT', 'input', 'drop', ('-A INPUT -i lo -j ACCEPT',)), ('DOCKER', '', '-', ())]
    """
    chains: dict[str, Chain] = {}
    for line in text.splitlines():
        words = line.split()
        if line.startswith(":") and len(words) > 1:
            name = words[0][1:]
            chains[name] = Chain(words[1].lower(), name.lower() if name in HOOKS else "")
        elif line.startswith("-A") and len(words) > 1 and words[1] in chains:
            chains[words[1]].rules += (line,)
    return chains


def facts_of(chains: dict[str, Chain], tool: str) -> Facts:
    hooked = {name for name, chain in chains.items() if chain.hook in HOOKS}
    reached, new = set(hooked), set(hooked)
    while new:  # chains that input and output jump to
        rules = " ".join(rule for name in new for rule in chains[name].rules)
        targets = set(re.findall(r"(?:jump|goto|-j|-g) (\S+)", rules))
        new = {name for name in chains if name.rpartition(" ")[2] in targets} - reached
        reached |= new
    closed = sorted(name for name in hooked if chains[name].policy == "drop")
    for name in hooked - set(closed):  # the last rule of a chain may be what its policy is not
        last = chains[name].rules[-1:] or ("",)
        if re.fullmatch(rf"(?:-A \S+ )?(?:counter )?(?:-j )?(?:{_VERDICT})(?: .*)?", last[0], re.I):
            closed.append(name)
    accepts = sum(bool(re.search(r"\baccept\b", rule, re.I)) for name in closed for rule in chains[name].rules)
    drops = [
        f"{name}: {rule}"
        for name in sorted(reached)
        for rule in chains[name].rules
        if re.search(rf"\b(?:{_VERDICT})\b", rule, re.I) and not _NORMAL.search(rule)
    ]
    return Facts(tuple(sorted(closed)), accepts, tuple(clean(rule, 160) for rule in drops[:50]), tool)


_VERDICT = "drop|reject"


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    see = Suggestion(LOOK, "see all rules", "clush -w {nodes} 'sudo nft list ruleset || sudo iptables-save'")
    if facts.closed:
        yield CLOSED.found(
            f"{', '.join(facts.closed)} drops what its {facts.accepts} accepting rules do not name; "
            "expected all TCP between the nodes of the cluster",
            evidence=[Evidence(facts.read, f"{name}: drop") for name in facts.closed],
            suggest=[
                see,
                Suggestion(
                    CONFIGURE, "accept all TCP from the cluster's subnets; the VPC's security group guards the rest"
                ),
            ],
        )
    elif facts.drops:
        yield DROPS.found(
            f"{len(facts.drops)} rules drop; none may touch TCP between the nodes of the cluster",
            evidence=[Evidence(facts.read, rule) for rule in facts.drops[:10]],
            suggest=[see],
        )
