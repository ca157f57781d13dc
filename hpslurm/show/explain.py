"""What a word means: a finding, a cause of ``scan``, a code of the GPU driver, or a section of the guide.

The answer is Markdown, made of the tables and the guide that ship with hpslurm; nothing
is looked up elsewhere, and a word that is in neither has no meaning here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from hpslurm.core import references
from hpslurm.core.references import Section
from hpslurm.core.text import clean
from hpslurm.node import xid_table
from hpslurm.node.xid_table import Row
from hpslurm.scan import model

_CODE = re.compile(r"(?:(sxid|xid)[ -]?)?(\d{1,5})", re.I)
GUIDE = "debugging-guide.md"


def explain(words: str) -> str:
    """Markdown on these words, or empty where nothing is known of them."""
    wanted = words.strip().strip("`'\".,:")
    code = _CODE.fullmatch(wanted)
    row = _row(code[1] or "", int(code[2])) if code else None
    section = references.by_name(wanted)
    if row and not (section and not code[1]):  # type: ignore[index]
        return _of_code(row)
    if section:
        note = f"*As an XID, {row.code} is something else: `hpslurm explain xid-{row.code}`.*" if row else ""
        return _joined(note, _of_section(section, whole=True))
    if wanted in model.causes():
        return _of_cause(wanted)
    covering = references.of_finding(wanted.casefold())
    return _of_finding(wanted.casefold(), covering) if covering else ""


def suggestions(words: str) -> list[str]:
    """Words that are like these and can be explained, the nearest first."""
    wanted = words.strip().casefold()
    known = {one for section in references.sections() for one in section.findings if not one.endswith("*")}
    known |= set(model.causes())
    known |= {row.id for table in (xid_table.xids(), xid_table.sxids()) for row in table.values()}
    near = get_close_matches(wanted, known, n=3)
    parts = [part for part in re.split(r"[^a-z0-9]+", wanted) if len(part) > 2]
    inside = sorted(word for word in known if any(part in re.split("[-_]", word) for part in parts))
    return list(dict.fromkeys([*near, *inside]))[:6]


def titles() -> Iterator[str]:
    """Every numbered section, as it can be asked for."""
    for section in references.sections():
        if section.number:
            yield f"{section.name}  {section.title}"


def _row(kind: str, code: int) -> Row | None:
    if kind.casefold() == "sxid":
        return xid_table.switch_row(code)
    return xid_table.row(code) or (None if kind else xid_table.switch_row(code))


def _of_code(row: Row) -> str:
    kind = "SXID" if row.id.startswith("sxid") else "XID"
    grave = {
        "info": "for information, never a finding by itself",
        "word": "P0 when the line says Fatal, else P1",
    }.get(row.priority, row.priority)
    told = [
        ("priority", grave),
        ("comes from", _plain(row.origin)),
        ("at once", _plain(row.action)),
        ("when it comes back", _plain(row.then)),
        ("for the node", _plain(row.suggest)),
        ("cause in `hpslurm scan`", f"`{row.cause}`" if row.cause else ""),
        ("reaches", _plain(row.reach)),
        ("on GPUs", ", ".join(row.applies)),
        ("HyperPod", row.hyperpod),
        ("note", row.note),
        ("the line goes on", f"`{clean(row.example)}`"),
    ]
    facts = "\n".join(f"- **{name}:** {value}" for name, value in told if value)
    covering = references.of_finding(row.id) or references.by_name(row.reference)
    return _joined(f"# {kind} {row.code}: {row.title}", f"{row.name}", facts, _of_section(covering) if covering else "")


def _of_cause(cause: str) -> str:
    row = model.causes()[cause]
    steps = []
    for item in row.suggest:
        command = item.get("command", "").replace("{node}", "NODE")
        steps.append(f"- {item['step']}: {item['why']}" + (f"\n\n      {command}\n" if command else ""))
    lines = next((one for one in references.sections() if not one.number and one.title == cause), None)
    section = references.by_name(f"{GUIDE} § {row.section}")
    return _joined(
        f"# {cause}",
        "A cause that `hpslurm scan` and `hpslurm report` name.",
        "**What a person could do** (hpslurm does none of it):" if steps else "",
        "\n".join(steps),
        f"**Lines that show it**\n\n{lines.text}" if lines else "",
        _of_section(section) if section else "",
    )


def _of_finding(rule_id: str, section: Section) -> str:
    said = list(_about(rule_id, section.text))
    return _joined(f"# {rule_id}", *said, _of_section(section))


def _about(rule_id: str, text: str) -> Iterator[str]:
    """The items of lists and rows of tables that begin with the id; they explain it alone."""
    for item in re.split(r"\n(?=- )|\n\n+", text):
        head = re.match(r"- ((?:`[^`]+`(?:, | and )?)+)", item)
        if head and f"`{rule_id}`" in head[1]:
            yield " ".join(item[2:].split())
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and f"`{rule_id}`" in cells[0]:
            yield ": ".join(cells)


def _of_section(section: Section, whole: bool = False) -> str:
    """The ids of a section fill a screen; who asked for one of them knows it."""
    text = section.text if whole else re.sub(r"^Findings:.*?(?:\n\s*\n|\Z)", "", section.text, flags=re.S | re.M)
    return f"## {section.name}  {section.title}\n\n{text}"


def _plain(word: str) -> str:
    return "" if word == "none" else word.replace("_", " ")


def _joined(*parts: str) -> str:
    return "\n\n".join(filter(None, parts)) + "\n"
