"""The guide that ships with hpslurm: finds the section that a finding points to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from hpslurm.core.values import dataclass

_HEADING = re.compile(r"^## (?:§ (\d+) )?(.+)$", re.M)
_IDS = re.compile(r"`([a-z0-9][a-z0-9_-]*\*?)`")  # a star at the end stands for all that begin so


@dataclass(frozen=True)
class Section:
    """One ``## § 17 Locked memory`` of a file, with all text up to the next heading."""

    file: str
    number: int | None
    title: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.file} § {self.number}" if self.number else f"{self.file}, {self.title}"

    @property
    def findings(self) -> tuple[str, ...]:
        """Ids on the ``Findings:`` line, which may run over several lines until a blank one."""
        match = re.search(r"^Findings:(.*?)(?:\n\s*\n|\Z)", self.text, re.M | re.S)
        return tuple(_IDS.findall(match[1])) if match else ()


def folder() -> Path:
    """Inside the wheel, or beside the package in a source tree."""
    package = Path(__file__).parents[1]
    shipped = package / "share" / "references"
    return shipped if shipped.is_dir() else package.parent / "references"


def sections() -> Iterator[Section]:
    for path in sorted(folder().glob("*.md")):
        text = path.read_text(encoding="utf-8")
        heads = list(_HEADING.finditer(text))
        for head, following in zip(heads, [*heads[1:], None], strict=True):
            body = text[head.end() : following.start() if following else len(text)].strip("\n")
            yield Section(path.name, int(head[1]) if head[1] else None, head[2], body)


def of_finding(rule_id: str) -> Section | None:
    """The section that names the id, or else one that names a family it belongs to, such as ``xid-*``."""
    everywhere = list(sections())
    for section in everywhere:
        if rule_id in section.findings:
            return section
    return next(
        (section for section in everywhere if any(_covers(family, rule_id) for family in section.findings)), None
    )


def _covers(family: str, rule_id: str) -> bool:
    return family.endswith("*") and rule_id.startswith(family[:-1])


def by_name(words: str) -> Section | None:
    """``debugging-guide.md § 17``, ``debugging-guide 17``, or ``§ 17`` and ``17`` for the guide itself."""
    match = re.fullmatch(r"(?:([a-z-]{1,40})(?:\.md)?)?(?:\s{0,9},)?\s{0,9}(?:§\s{0,9})?([0-9]{1,4})", words.strip())
    if not match:
        return None
    file = f"{match[1] or 'debugging-guide'}.md"
    return next((one for one in sections() if one.file == file and one.number == int(match[2])), None)
