"""The docs say what the code says: rules, policy keys, commands and links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import catalogue, man
from hpslurm.cli import COMMANDS
from hpslurm.core import references
from hpslurm.core.policy import Mute, Policy
from hpslurm.core.rules import rules
from hpslurm.core.values import fields

TOP = Path(__file__).parents[1]
PAGES = sorted([*TOP.glob("*.md"), *TOP.glob("docs/*.md"), *TOP.glob("references/*.md")])
WRITTEN_BY_HAND = [page for page in PAGES if page.name not in ("rules.md", "error-patterns-quick-ref.md")]


def name(page: Path) -> str:
    return str(page.relative_to(TOP))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, without signs, blanks as hyphens."""
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_catalogue_of_rules_is_current():
    assert (TOP / "docs/rules.md").read_text(encoding="utf-8") == catalogue.catalogue(), (
        "run: python docs/catalogue.py > docs/rules.md"
    )


def test_the_catalogue_has_every_finding_that_the_guide_names():
    known = set(rules()) | set(catalogue.causes())
    named = {one for section in references.sections() for one in section.findings if not one.endswith("*")}
    assert set() == named - known


def test_the_guide_explains_every_rule_of_the_catalogue_where_the_rule_points_to():
    places = {rule.id: (references.of_finding(rule.id), rule.reference) for rule in rules().values()}
    assert {} == {one: where for one, (here, where) in places.items() if here is None or here.name != where}


def test_the_admin_guide_has_every_key_of_the_policy():
    text = (TOP / "docs/admin.md").read_text(encoding="utf-8")
    keys = [one.name for one in fields(Policy) if one.name not in ("node", "instance", "hash", "problems")]
    assert [] == [key for key in keys if f"`{key}`" not in text]
    assert [] == [one.name for one in fields(Mute) if not re.search(rf"^\s+{one.name} = ", text, re.M)]


@pytest.mark.parametrize(
    "key", ["memlock_min", "stack_min", "gate_per_hour", "completing_max", "guard_share", "gpu_hot"]
)
def test_the_admin_guide_has_the_default_that_the_policy_has(key):
    text = (TOP / "docs/admin.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{key}` \| `{getattr(Policy(), key)}` \|", text, re.M)


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=name)
def test_every_command_that_a_page_shows_exists(page):
    text = page.read_text(encoding="utf-8")
    shown = set(re.findall(r"(?:^\s{4,}|`|sudo |/bin/)hpslurm ([a-z][a-z-]+)", text, re.M))
    assert set() == shown - set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page):
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        if path.startswith("http"):
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert [] == broken


def test_every_section_that_a_text_points_to_exists():
    there = {(section.file, section.number) for section in references.sections()}
    texts = [*WRITTEN_BY_HAND, *TOP.glob("hpslurm/**/*.py"), *TOP.glob("hpslurm/tables/*.toml")]
    missing = []
    for page in texts:
        text = page.read_text(encoding="utf-8")
        named = [(file, int(number)) for file, number in re.findall(r"([a-z-]+\.md) § (\d+)", text)]
        if page.parent.name == "references":
            named += [(page.name, int(number)) for number in re.findall(r"(?<!\.md )§ (\d+)", text)]
        missing += [f"{name(page)}: {file} § {number}" for file, number in named if (file, number) not in there]
    assert [] == missing


def test_every_command_has_a_man_page_with_its_options():
    pages = man.pages()
    assert set() == {f"hpslurm-{command}.1" for command in COMMANDS} - set(pages)
    assert r"\-\-find\-slow" in pages["hpslurm-nccl-tests.1"]
    assert r"\-h, \-\-help" in pages["hpslurm-scan.1"]


def test_a_line_that_roff_would_take_as_a_request_is_text():
    assert "\\&.TH" == man.roff(".TH")
