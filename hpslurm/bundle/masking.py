"""Hides what must not leave the site: tokens, account ids, user names, addresses and node names that hold one.

What is only secret is replaced by ``<masked:RULE>``. What a reader must be able to follow becomes a pseudonym of
the same shape, the same for the same value: 10.1.0.7 and the node ip-10-1-0-7 become 198.18.0.1 and
ip-198-18-0-1, so that ``hpslurm scan`` reads a masked log as it reads the raw one. Pseudonyms stand in ranges
that no network uses (198.18.0.0/16 is reserved for benchmarks, 2001:db8::/32 for documentation), so masking what
is masked changes nothing. Versions, bus ids, times and counts stay. The rules are ``tables/masking.toml``.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from hpslurm.core import nodeset, toml
from hpslurm.core.values import dataclass

MOST_NODES = 20_000  # of one folded list; a longer one is no list of nodes
SHORTEST_NAME = 3  # letters of a user's name that is looked for in any text
MASKED = "<masked:"
ACCOUNT = "00000000"  # how our accounts begin; AWS gives out none that does
_ADDRESSES = "198.18."
_ADDRESSES_6 = ipaddress.ip_network("2001:db8::/32")
_MARK = re.compile(r"<\|\w{1,40}\|?>?\Z|</?[a-z_]{1,12}>\Z|\[[A-Z]{1,8}\]\Z")  # of a tokenizer: <|im_end|>, </s>, [PAD]
_PSEUDONYM = re.compile(r"user-\d+")
_NODE_WORD = re.compile(r"node-?\d+")
_V4 = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?!\d|\.\d)")
_V6 = re.compile(  # a port may follow without brackets: after eight groups, or too long for a group
    r"(?<![0-9A-Za-z_:.])(?:(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?=:\d{1,5}(?![\w:]))"
    r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:(?![0-9A-Za-z_:])|(?=:\d{5}(?![\w:]))))"
)
_NODE = re.compile(
    r"(?<![A-Za-z0-9])(?P<kind>(?i:ip)|ec2)(?P<parts>(?:-(?:\d{1,3}(?!\d)|\[[\d,/-]{1,2000}\])){4})(?!\d|-\d+-\d)"
)
_WITH_LINES = re.compile(r"(?<![A-Za-z0-9])(?P<kind>(?i:ip)|ec2)(?P<parts>(?:_\d{1,3}){4})(?!\d|_\d+_\d)")
_CUT_LIST = re.compile(r"(?<![A-Za-z0-9])(?i:ip|ec2)-(?!198-18-)\d{1,3}-[\d,\[\]/-]*\[[\d,/-]*\]?")  # by us or by Slurm
_ANY_NODE = "ip-198-18-255-255"
# 9.1.0.70 is an address unless something says that it is a version; of a private network only a plain word does.
_LOOK_BACK = 80  # letters before an address that may say that it is a version
_SURELY_A_VERSION = re.compile(
    r"(?:[=~<>!]=|\b[Vv]ersions?[ :=\"']{1,4}"
    r"|(?<![\w.-])(?i:cudnn|tensorrt|cublas|nvidia-[a-z]+-cu\d+|(?:lib)?cu[a-z]{3,9})[ \t]{1,40})\Z"
)
_A_VERSION = re.compile(
    r"(?:\b[vV]|[A-Za-z]\d{0,3}[-_]|(?<![\w.-])(?i:fw|firmware|aws-ofi-nccl|libfabric|efa)[ \t]{1,40})\Z"
)
_LISTED = re.compile(r"(?:\A|\n)[A-Za-z][\w.-]*[A-Za-z_-][ \t]{2,60}\Z")  # by pip or conda: a name, blanks, its version
_LISTED_END = re.compile(r"[ \t]*(?:\n|\Z|[ \t][\w.]+_\d+\b)")
_HIGHEST_VERSION = 13  # first number of a version of four; 3, 8 and 9 are addresses of the internet, too
_OFTEN_ADDRESSES = (3, 8)  # of AWS and of name servers: a column of hosts looks like one of packages
_STAYS = tuple(
    ipaddress.ip_network(network)
    for network in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.0.0.0/8", "198.18.0.0/16")
)
_PRIVATE = tuple(
    ipaddress.ip_network(network) for network in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
_ROUTED_6 = tuple(ipaddress.ip_network(one) for one in ("2000::/3", "fc00::/7"))


@dataclass(frozen=True)
class Rule:
    """One row of the table. ``whole``: it may span lines."""

    id: str
    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    whole: bool

    def pieces(self, text: str, low: str) -> Iterator[tuple[int, int]]:
        """Where it can be found: whole lines that hold a hint. Trying every pattern everywhere costs 2 s for a MiB."""
        if self.whole:
            if any(hint in low for hint in self.hints):
                yield 0, len(text)
            return
        starts = set()
        for hint in self.hints:
            at = low.find(hint)
            while at >= 0:
                starts.add(low.rfind("\n", 0, at) + 1)
                end = low.find("\n", at)
                at = low.find(hint, end) if end >= 0 else -1
        for start in sorted(starts):
            end = low.find("\n", start)
            yield start, end if end >= 0 else len(low)


@cache
def rules() -> tuple[Rule, ...]:
    return tuple(
        Rule(row["id"], row["kind"], tuple(row["hints"]), re.compile(row["pattern"]), row.get("whole", False))
        for row in toml.table("masking")
    )


@cache
def _kept() -> frozenset[str]:
    return frozenset(toml.whole("masking")["keep_users"])


@cache
def _no_secrets() -> frozenset[str]:
    return frozenset(toml.whole("masking")["no_secrets"])


@cache
def _words_of_logs() -> frozenset[str]:
    """Words that our own tables know. A user may be called ``nccl`` or ``max``; error lines must stay what they are."""
    known = "".join(toml.text(f"{table}.toml") for table in ("patterns", "nccl_env", "reasons", "xid"))
    known = re.sub(r"/[^\s'\"\]]{1,200}", " ", known)  # a path of an example may have a user's name in it
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z]{3,}", known.replace("_", " ")))


class Masker:
    """One for a whole bundle: the same value gets the same pseudonym in every file.

    ``learn`` everything first, then ``mask`` it: a name that one file shows as a user's is hidden in all others.
    """

    def __init__(self, users: Iterable[str] = (), nodes: Iterable[str] = ()) -> None:
        self.counts: Counter[str] = Counter()  # of the text masked last
        self.names: dict[str, dict[str, str]] = {"account": {}, "user": {}, "address": {}}  # real -> pseudonym
        self._bare: re.Pattern[str] | None = None
        nodes = tuple(nodes)
        self._nodes = frozenset(nodes)
        for user in users:
            self._person(user)
        for node in nodes:  # in the order of Slurm, so that lists fold as well as before
            if match := _NODE.fullmatch(node):
                self._dashed(match)

    def learn(self, text: str) -> None:
        """Remember accounts and users that ``text`` names as such.

        Tokens go first: of redis://:password@10.1.0.7 only the password looks like a user's name.
        """
        counts = self.counts
        self._all_ruled(text)
        self.counts = counts

    def _all_ruled(self, text: str) -> str:
        """By every rule of the table, in its order: tokens first, so that none of them is learnt as a name."""
        self.counts = Counter()
        low = _lower(text)  # once more only where a rule changed something: it is what costs most
        for rule in rules():
            new = self._ruled(rule, text, low)
            text, low = (text, low) if new == text else (new, _lower(new))
        return text

    def mask(self, text: str) -> str:
        """The text with nothing in it that a rule knows; ``counts`` then says how often each rule hid something."""
        text = self._all_ruled(text)
        text = _NODE.sub(self._counted("node-name", self._node), text)
        text = _WITH_LINES.sub(self._counted("node-name", self._dashed), text)
        text = _CUT_LIST.sub(self._counted("node-name", lambda _: _ANY_NODE), text)
        text = _V4.sub(self._counted("address", self._v4), text)
        if text.count(":") > 1:
            text = _V6.sub(self._counted("address", self._v6), text)
        if known := self._known():
            text = known.sub(self._counted("known-name", lambda match: self._bare_name(match[0])), text)
        return text

    def mapping(self) -> dict[str, dict[str, str]]:
        """Pseudonym to real value, for the site alone. Tokens are in no mapping."""
        return {f"{kind}s" if kind != "address" else "addresses": {fake: real for real, fake in some.items()}
                for kind, some in self.names.items()}  # fmt: skip

    # rules of the table

    def _ruled(self, rule: Rule, text: str, low: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            group = _group(match)
            value, whole, start = match[group], match[0], match.start()
            begin, end = match.start(group) - start, match.end(group) - start
            new = self._pseudonym(rule.kind, value) if rule.kind != "token" else _hidden(rule.id, value)
            self.counts[rule.id] += new != value
            return whole[:begin] + new + whole[end:]

        done, parts = 0, []
        for start, end in rule.pieces(text, low):
            parts += [text[done:start], rule.pattern.sub(replaced, text[start:end])]
            done = end
        return "".join([*parts, text[done:]]) if parts else text

    def _pseudonym(self, kind: str, value: str) -> str:
        return self._account(value) if kind == "account" else self._person(value)

    def _account(self, value: str) -> str:
        if value.startswith(ACCOUNT):
            return value
        known = self.names["account"]
        return known.setdefault(value, f"{ACCOUNT}{len(known) + 1:04}")

    def _person(self, value: str) -> str:
        name = value.rstrip(".-")  # the end of a sentence
        if not name or name.lower() in _kept() or _PSEUDONYM.match(name):
            return value
        if name in self._nodes or _NODE_WORD.fullmatch(name):
            return value
        known = self.names["user"]
        return known.setdefault(name, f"user-{len(known) + 1}") + value[len(name) :]

    def _known(self) -> re.Pattern[str] | None:
        """Accounts and users that some text named as such, as words anywhere."""
        some = [*self.names["account"]]
        some += [
            name
            for name in self.names["user"]
            if len(name) >= SHORTEST_NAME and name.lower() not in _words_of_logs() and not name.isdigit()
        ]
        if not some:
            return None
        words = "|".join(map(re.escape, sorted(some, key=len, reverse=True)))
        if self._bare is None or self._bare.pattern != f"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])":
            self._bare = re.compile(f"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])")
        return self._bare

    def _bare_name(self, value: str) -> str:
        return self.names["account"].get(value) or self.names["user"][value]

    # addresses

    def _counted(self, what: str, how: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
        def replaced(match: re.Match[str]) -> str:
            new = how(match)
            self.counts[what] += new != match[0]
            return new

        return replaced

    def _address(self, dotted: str) -> str:
        """198.18.0.1 and on; beyond 65,534 addresses all further ones share the last."""
        known = self.names["address"]
        if dotted not in known:
            number = min(len(known) + 1, 0xFFFF)
            known[dotted] = f"{_ADDRESSES}{number >> 8}.{number & 255}"
        return known[dotted]

    def _v4(self, match: re.Match[str]) -> str:
        text = match[0]
        parts = [int(part) for part in text.split(".")]
        if max(parts) > 255:
            return text
        address = ipaddress.IPv4Address(bytes(parts))
        before = match.string[max(0, match.start() - _LOOK_BACK) : match.start()]
        if any(address in network for network in _STAYS) or _SURELY_A_VERSION.search(before):
            return text
        if parts[0] <= _HIGHEST_VERSION and not any(address in network for network in _PRIVATE):
            if _A_VERSION.search(before):
                return text
            if (
                parts[0] not in _OFTEN_ADDRESSES
                and _LISTED.search(before)
                and _LISTED_END.match(match.string, match.end())
            ):
                return text
        return self._address(str(address))

    def _v6(self, match: re.Match[str]) -> str:
        try:
            address = ipaddress.IPv6Address(match[0])
        except ValueError:
            return match[0]
        if address in _ADDRESSES_6 or not any(address in network for network in _ROUTED_6):
            return match[0]
        known = self.names["address"]
        return known.setdefault(str(address), f"2001:db8::{len(known) + 1:x}")

    def _node(self, match: re.Match[str]) -> str:
        if "[" in match[0]:
            return self._folded(match[0])
        return self._dashed(match)

    def _dashed(self, match: re.Match[str]) -> str:
        sign = match["parts"][0]
        dotted = match["parts"][1:].replace(sign, ".")
        if dotted.startswith(_ADDRESSES) or max(map(int, dotted.split("."))) > 255:
            return match[0]
        dotted = ".".join(str(int(part)) for part in dotted.split("."))
        return f"{match['kind']}{sign}{self._address(dotted).replace('.', sign)}"

    def _folded(self, text: str) -> str:
        """``ip-10-1-0-[3,7]``, as Slurm folds names: every one by itself, folded again."""
        names = nodeset.names_in(text, MOST_NODES)
        matches = [_NODE.fullmatch(name) for name in names]
        if not names or None in matches:
            return _ANY_NODE
        new = [self._dashed(match) for match in matches if match]
        return text if new == names else nodeset.fold(new)


def _lower(text: str) -> str:
    """Lower case, and every letter where it was: a few signs become two."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(sign.lower() if len(sign.lower()) == 1 else sign for sign in text)


def _group(match: re.Match[str]) -> str:
    """``it``, or ``it2`` where a pattern has two places for it."""
    return "it" if match["it"] is not None else "it2"


def _hidden(rule: str, value: str) -> str:
    plain = value.rstrip(".)]}").lower()
    return value if value.startswith(MASKED) or plain in _no_secrets() or _MARK.match(value) else f"{MASKED}{rule}>"
