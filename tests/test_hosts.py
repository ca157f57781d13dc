"""Saved machines: every probe runs over every case, and finds exactly what is written there.

A case is a folder below ``tests/hosts``, a root such as ``--root`` takes, and these
files beside the tree (a line that begins with # is a comment):

    expected.txt  ids that must be found, one a line; nothing else may be found
    unknown.txt   probes that must be unknown, one a line; not compared where absent
    base          the name of another case whose files lie below those of this one
    gone          paths of the base that this machine does not have
    step          NAME=VALUE lines; the probes run as in a step with this environment
    policy        ``name = value`` lines (Python literals) that change the default policy
    policy.toml   a site's policy as it is, instead; the node is ip-10-1-0-3
    gpus          ``3.remap = [0, 1, 1, 0]`` lines (Python literals) that change gpus.json: of GPU 3, of
                  ``all``, or, without a dot, of the whole; ``gpus = 7`` keeps the first seven
    later/        files as they are when the job ended, for probes with ``changed``
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from hpslurm.core import references
from hpslurm.core.finding import Rule
from hpslurm.core.policy import Policy, load
from hpslurm.core.probe import UNKNOWN, Result, run_all
from hpslurm.core.rules import modules as every_module
from hpslurm.core.rules import rules
from hpslurm.sources.host import Host

HOSTS = Path(__file__).parent / "hosts"
CASES = sorted(path.parent.name for path in HOSTS.glob("*/expected.txt"))
ABOUT = ("expected.txt", "unknown.txt", "base", "gone", "step", "policy", "policy.toml", "gpus", "later")


def modules() -> list[ModuleType]:
    return every_module(("node", "job"))


def probes() -> list[tuple[str, ModuleType]]:
    """The modules that look through the door to this machine."""
    found = []
    for module in modules():
        collect = getattr(module, "collect", None)
        if collect and [one.annotation for one in inspect.signature(collect).parameters.values()] == ["Host"]:
            found.append((module.__name__.rpartition(".")[2], module))
    return found


def lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return sorted(line for raw in path.read_text().splitlines() if (line := raw.strip()) and line[0] != "#")


def lay(source: Path, target: Path) -> None:
    """The files of a case into the target, over those that are there; links, because copies take long."""
    for folder, folders, files in os.walk(source):
        here = Path(folder)
        if here == source:
            folders[:] = [name for name in folders if name not in ABOUT]
            files = [name for name in files if name not in ABOUT]
        (target / here.relative_to(source)).mkdir(parents=True, exist_ok=True)
        for name in files + [name for name in folders if (here / name).is_symlink()]:
            put = target / here.relative_to(source) / name
            put.unlink(missing_ok=True)
            try:
                os.link(here / name, put, follow_symlinks=False)
            except OSError:  # the temporary folder is on another file system
                shutil.copy(here / name, put, follow_symlinks=False)


def build(case: str, target: Path) -> None:
    """The whole machine: the base first, then what this case changes."""
    for base in lines(HOSTS / case / "base"):
        build(base, target)
    for path in lines(HOSTS / case / "gone"):
        for gone in list(target.glob(path.lstrip("/"))):
            if gone.is_dir() and not gone.is_symlink():
                shutil.rmtree(gone)
            else:
                gone.unlink()
    lay(HOSTS / case, target)
    patch_gpus(HOSTS / case / "gpus", target / "gpus.json")


def weave(below: Path, case: Path, target: Path) -> None:
    """The machine as ``build`` makes it, where folders that the case leaves alone are links to those below.

    For looking only: whoever writes there would write into the saved machine itself.
    """
    gone = {
        str(path.relative_to(below)) for pattern in lines(case / "gone") for path in below.glob(pattern.lstrip("/"))
    }

    def into(here: str, own: Path | None) -> None:
        (target / here).mkdir(parents=True)
        mine = set(os.listdir(own)) if own else set()
        theirs = set(os.listdir(below / here)) if (below / here).is_dir() else set()
        for name in sorted(mine | theirs):
            path = f"{here}/{name}".lstrip("/")
            if not here and name in ABOUT:
                continue
            changed = own / name if own and name in mine else None
            touched = changed or any(one == path or one.startswith(f"{path}/") for one in gone)
            if not touched:
                (target / path).symlink_to(below / path)
            elif changed is None and path in gone:
                continue
            elif changed is None or (changed.is_dir() and not changed.is_symlink()):
                into(path, changed)
            else:
                shutil.copy(changed, target / path, follow_symlinks=False)

    into("", case)


def patch_gpus(changes: Path, target: Path) -> None:
    if not changes.exists():
        return
    saved = json.loads(target.read_text())
    for line in lines(changes):
        name, _, value = line.partition("=")
        whose, _, what = name.strip().rpartition(".")
        new = ast.literal_eval(value.strip())
        if not whose and what == "gpus":
            saved["gpus"] = saved["gpus"][:new]
        else:
            into = saved if not whose else saved["all"] if whose == "all" else saved["gpus"][int(whose)]
            into[what] = new
    target.unlink()  # it may be a link to the file of the base
    target.write_text(json.dumps(saved))


@dataclass
class Seen:
    results: list[Result]

    @property
    def ids(self) -> list[str]:
        return sorted(finding.rule.id for result in self.results for finding in result.findings)

    @property
    def unknown(self) -> list[str]:
        return sorted(result.probe for result in self.results if result.outcome == UNKNOWN)

    def told(self) -> str:
        rows = [f"{one.probe}: {one.outcome} {one.note}" for one in self.results if one.note]
        rows += [f"{found.rule.id}: {found.detail}" for one in self.results for found in one.findings]
        return "\n".join(rows)


def ancestry(case: str) -> list[str]:
    """The case, its base, the base of that."""
    return [case, *(name for base in lines(HOSTS / case / "base") for name in ancestry(base))]


def policy_of(case: str, folder: Path) -> Policy:
    settings = dict(line.split("=", 1) for line in lines(HOSTS / case / "policy"))
    policy = Policy(**{name.strip(): ast.literal_eval(value.strip()) for name, value in settings.items()})
    written = HOSTS / case / "policy.toml"
    if written.exists():
        folder.mkdir(exist_ok=True)
        shutil.copy(written, folder / "policy.toml")
        (folder / "policy.toml").chmod(0o644)  # a checkout's files may be writable by the group
        policy = load(str(folder / "policy.toml"), node="ip-10-1-0-3")
        assert () == policy.problems
    return policy


def look(case: str, folder: Path) -> Seen:
    first, *later = reversed(ancestry(case))
    root = HOSTS / first
    for number, name in enumerate(later):
        below, root = root, folder / f"machine{number}"
        weave(below, HOSTS / name, root)
        patch_gpus(HOSTS / name / "gpus", root / "gpus.json")
    step = HOSTS / case / "step"
    env = dict(line.split("=", 1) for line in lines(step))
    policy = policy_of(case, folder)

    def door() -> Host:
        host = Host(str(root), env=env, in_hook=not step.exists())
        host.expected = policy.expected()
        return host

    results = list(run_all(probes(), door(), policy))
    if (HOSTS / case / "later").is_dir():
        counting = [(name, module) for name, module in probes() if hasattr(module, "changed")]
        before = {name: module.collect(door()) for name, module in counting}
        below, root = root, folder / "later"
        weave(below, HOSTS / case / "later", root)
        patch_gpus(HOSTS / case / "later" / "gpus", root / "gpus.json")
        for name, module in counting:
            grown = tuple(module.changed(before[name], module.collect(door()), policy))
            results.append(Result(f"{name} later", "fail" if grown else "pass", findings=grown))
    return Seen(results)


_seen: dict[str, Seen] = {}


def seen(case: str, folder: Path) -> Seen:
    if case not in _seen:
        _seen[case] = look(case, folder)
        shutil.rmtree(folder, ignore_errors=True)
    return _seen[case]


@pytest.mark.parametrize("case", CASES)
def test_a_saved_machine_shows_exactly_what_is_expected(case: str, tmp_path: Path) -> None:
    here = seen(case, tmp_path)
    assert lines(HOSTS / case / "expected.txt") == here.ids, here.told()


@pytest.mark.parametrize("case", [case for case in CASES if (HOSTS / case / "unknown.txt").exists()])
def test_a_saved_machine_hides_exactly_what_is_expected(case: str, tmp_path: Path) -> None:
    here = seen(case, tmp_path)
    assert lines(HOSTS / case / "unknown.txt") == here.unknown, here.told()


def declared() -> list[str]:
    """Ids of the rules that the probes over a machine declare."""
    return sorted({value.id for _, module in probes() for value in vars(module).values() if isinstance(value, Rule)})


@pytest.mark.parametrize("rule", declared())
def test_every_rule_fires_on_one_machine_and_is_silent_on_another(rule: str) -> None:
    fires = [case for case in CASES if rule in lines(HOSTS / case / "expected.txt")]
    assert fires, f"no case in tests/hosts expects {rule}"
    assert set(CASES) - set(fires), f"every case expects {rule}"


def test_no_case_expects_an_id_that_no_rule_has() -> None:
    assert [] == sorted({id for case in CASES for id in lines(HOSTS / case / "expected.txt")} - set(rules(modules())))


def test_every_saved_machine_says_what_is_expected() -> None:
    assert [] == [path.name for path in HOSTS.iterdir() if path.is_dir() and not (path / "expected.txt").exists()]


def test_files_of_a_base_lie_below_those_of_the_case(tmp_path: Path) -> None:
    build("p5-memlock-low", tmp_path)
    assert "2147483648" in (tmp_path / "proc/2310/limits").read_text()
    assert "p5.48xlarge\n" == (tmp_path / "sys/devices/virtual/dmi/id/product_name").read_text()


def test_every_rule_stands_in_the_section_that_it_points_to() -> None:
    sections = list(references.sections())
    named = {one: section.name for section in sections for one in section.findings}
    families = {one[:-1]: section for one, section in named.items() if one.endswith("*")}

    def section_of(rule: Rule) -> str:
        family = next((section for start, section in families.items() if rule.id.startswith(start)), "nowhere")
        return named.get(rule.id, family)

    assert {} == {rule.id: rule.reference for rule in rules(modules()).values() if section_of(rule) != rule.reference}


def test_a_family_of_findings_leads_to_its_section_and_a_member_named_elsewhere_does_not() -> None:
    for rule, wanted in (("xid-79", "§ 7"), ("xid-48", "§ 21"), ("xid-74", "§ 19"), ("sxid-20034", "§ 19")):
        section = references.of_finding(rule)
        assert section and section.name.endswith(wanted), rule
