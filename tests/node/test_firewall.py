"""Rules as nft and iptables-save print them."""

from __future__ import annotations

import pytest

from hpslurm.core.policy import Policy
from hpslurm.node import firewall


def nft(body: str) -> firewall.Facts:
    return firewall.facts_of(firewall.nft_chains(body), "nft")


def legacy(body: str) -> firewall.Facts:
    return firewall.facts_of(firewall.iptables_chains(body), "iptables_save")


def ids(facts: firewall.Facts) -> list[str]:
    return [finding.rule.id for finding in firewall.judge(facts, Policy())]


def chain(rules: str, policy: str = "accept", hook: str = "input") -> str:
    lines = "".join(f"\t\t{rule}\n" for rule in rules.split(";") if rule)
    head = f"\t\ttype filter hook {hook} priority filter; policy {policy};\n"
    return f"table inet filter {{\n\tchain X {{\n{head}{lines}\t}}\n}}\n"


@pytest.mark.parametrize(
    "rules", ["ct state invalid drop", "ip daddr 169.254.169.254 drop", "ip6 daddr ff02::1 drop", "icmp type 13 drop"]
)
@pytest.mark.parametrize("hook", ["input", "output"])
def test_drops_that_no_rank_can_meet_are_left_out(rules: str, hook: str) -> None:
    assert [] == ids(nft(chain(rules, hook=hook)))


@pytest.mark.parametrize(
    "rules",
    [
        "tcp dport 29500 drop",
        "tcp dport 9 reject with icmp port-unreachable",
        "ip saddr 10.1.0.9 reject",
        "tcp flags syn drop",
    ],
)
def test_other_drops_are_told(rules: str) -> None:
    assert ["firewall-drops"] == ids(nft(chain(rules)))


@pytest.mark.parametrize("rules", ["counter drop", "reject with icmpx admin-prohibited", "drop"])
def test_a_chain_that_ends_in_dropping_everything_is_closed(rules: str) -> None:
    assert ["firewall-closed"] == ids(nft(chain(f"tcp dport 22 accept;{rules}")))


def test_a_closed_chain_counts_its_accepting_rules() -> None:
    facts = nft(chain("tcp dport 22 accept;ip saddr 10.1.0.0/16 accept", policy="drop"))
    assert (("table inet filter X",), 2) == (facts.closed, facts.accepts)


def test_forward_is_dockers_own_matter() -> None:
    assert [] == ids(nft(chain("drop", policy="drop", hook="forward")))


def test_a_chain_that_input_jumps_to_counts_and_others_do_not() -> None:
    body = (
        chain("jump SITE")
        + "table inet filter {\n\tchain SITE {\n\t\ttcp dport 5 drop\n\t}\n\tchain OLD {\n\t\tdrop\n\t}\n}\n"
    )
    assert ("table inet filter SITE: tcp dport 5 drop",) == nft(body).drops


def test_iptables_policy_and_last_rule() -> None:
    assert ["firewall-closed"] == ids(legacy("*filter\n:INPUT DROP [0:0]\nCOMMIT\n"))
    assert ["firewall-closed"] == ids(legacy("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\nCOMMIT\n"))
    assert ["firewall-drops"] == ids(
        legacy("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 9 -j DROP\nCOMMIT\n")
    )
    assert [] == ids(legacy("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\nCOMMIT\n"))


def test_the_shortest_lines_of_iptables_are_read_and_shorter_ones_passed_over() -> None:
    chains = firewall.iptables_chains(":INPUT DROP\n-A INPUT\n:OUTPUT\n-A\n-A FORWARD -j DROP\n")
    assert {"INPUT": ("drop", ("-A INPUT",))} == {name: (one.policy, one.rules) for name, one in chains.items()}
