"""The four promises: read-only, never in the way, honest, explained. What keeps each, in one place.

Where another test proves a part on real Slurm it is named here, and this file sees to it
that nothing was left out of it.
"""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import hpslurm
from hpslurm import hooks
from hpslurm.cli import COMMANDS
from hpslurm.core import references
from hpslurm.core.finding import HARMS
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, SKIP, UNKNOWN, Result, run_all
from hpslurm.core.rules import rules
from hpslurm.scan import model
from hpslurm.sources import host as door
from hpslurm.sources.aws import OPERATIONS
from hpslurm.sources.host import Host
from tests.cli.test_diagnose import MAY_ASK, PROGRAM, asked_since, drain, state_of
from tests.lab import test_never_in_the_way
from tests.lab.lab import Lab
from tests.test_hosts import CASES, build, probes, seen

PACKAGE = Path(hpslurm.__file__).parent
NOBODY = 65534


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        if "share" not in path.relative_to(PACKAGE).parts:
            yield str(path.relative_to(PACKAGE)), ast.parse(path.read_text(encoding="utf-8"))


def calls(tree: ast.Module) -> Iterator[str]:
    """``os.fork`` and such: every call by its last two names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ".".join(ast.unparse(node.func).split(".")[-2:])


def imported(tree: ast.Module) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


class TestReadOnly:
    def test_programs_are_started_by_two_files_only(self) -> None:
        starts = re.compile(r"os\.(posix_spawnp?|system|popen|exec\w+|spawn\w+|startfile)|pty\.\w+|subprocess\.\w+")
        found = {file for file, tree in sources() if any(starts.fullmatch(call) for call in calls(tree))}
        found |= {file for file, tree in sources() if imported(tree) & {"subprocess", "pty", "multiprocessing"}}
        assert {"sources/host.py", "sources/launch.py"} == found

    def test_no_shell_is_asked_to_run_anything(self) -> None:
        words = [
            file
            for file, tree in sources()
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword) and node.arg == "shell"
        ]
        assert [] == words

    def test_nothing_is_signalled_but_our_own_children(self) -> None:
        kills = {file for file, tree in sources() if {"os.kill", "os.killpg"} & set(calls(tree))}
        assert {
            "core/records.py",
            "scan/flight.py",
            "sources/aws_access.py",
            "sources/host.py",
            "sources/launch.py",
            "sources/userfile.py",
        } >= kills

    def test_what_may_be_run_on_a_machine_only_looks(self) -> None:
        words = {
            name: [*command.options] for name, command in door.COMMANDS.items() if not name.startswith(("nvml", "pys"))
        }
        verbs = re.compile(
            r"update|delete|create|suspend|resume|requeue|hold|release|reboot|reconfig\w*|shutdown|abort|takeover"
            r"|cancel_reboot|setdebug\w*|write|add|modify|flush|insert|restore|makestep|burst"
        )
        assert {} == {
            name: bad for name, said in words.items() if (bad := [one for one in said if verbs.fullmatch(one)])
        }
        assert {"scontrol", "squeue", "sacct", "sacctmgr"} <= {
            os.path.basename(command.candidates[0]) for command in door.COMMANDS.values()
        }

    def test_options_cannot_be_passed_to_a_program(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="belong into COMMANDS"):
            Host(str(tmp_path)).start("scontrol_nodes", "--update")

    def test_aws_is_only_read(self) -> None:
        # that the client refuses every other operation is shown in tests/sources/test_aws.py
        changes = [row for row in OPERATIONS if not re.search(r"(Describe|List|Get|Filter|StartSession)", str(row))]
        assert [] == changes

    def test_no_command_of_ours_asks_slurm_for_a_change(self, make_lab: Callable[..., Lab], tmp_path: Path) -> None:
        lab = make_lab(nodes=3, conf="SlurmctldDebug=debug2\nPrologFlags=Alloc", hooks=("prolog", "epilog"))
        drain(lab, "n2", "drain", "action:reboot")
        job = lab.submit("-w", "n1", "--wrap", "echo NCCL WARN Timeout; exit 1")
        lab.wait_for_job(job)
        # No file may come later: neither its output nor its prolog's record; Slurm says RUNNING before that is written.
        running = lab.submit("-w", "n3", "-o", "/dev/null", "--wrap", f"touch {tmp_path}/began; sleep 600")
        lab.wait_for_job(running, "RUNNING")
        lab.wait_for_file(f"{tmp_path}/began")
        lab.wait_for_node("n1", "IDLE")
        (tmp_path / "job.log").write_text("NCCL WARN Timeout\n")
        (tmp_path / "policy.toml").write_text("shm_min = 1\n")
        root = ("--root", lab.host("n1"))
        lines = {
            "bundle": [
                ["bundle", "--job", job, "--no-aws", "--results", lab.results("n1"), "--dry-run"],
                [
                    "bundle",
                    "--job",
                    job,
                    "--no-aws",
                    "--output",
                    f"{tmp_path}/b.tar.gz",
                    "--log",
                    f"{tmp_path}/job.log",
                ],
            ],
            "check": [["check", *root], ["check", *root, "--json"]],
            "diagnose": [
                ["diagnose", "--no-aws"],
                ["diagnose", "--json", "--no-aws", "--html", f"{tmp_path}/page.html"],
            ],
            "completion": [["completion", "bash"]],
            "doctor": [["doctor"], ["doctor", "--json"]],
            "explain": [["explain", "efa-missing"]],
            "history": [["history", "--no-aws", "--results", lab.results("n1")]],
            "hang": [["hang", running, "--here"], ["hang", running, "--here", "--json"]],  # its step: test_hang.py
            "iam-policy": [["iam-policy"]],
            "install": [["install", "--print"], ["install", "--snippet"]],
            "metrics": [["metrics", "--results", lab.results("n1")]],
            "nccl-tests": [["nccl-tests"]],  # outside an allocation: it starts nothing
            "scan": [["scan", f"{tmp_path}/job.log"]],
            "report": [["report", job, "--results", lab.results("n1")]],
            "what-if": [["what-if", "--policy", f"{tmp_path}/policy.toml", "--records", lab.results("n1")]],
        }
        assert set(COMMANDS) == set(lines)  # a new command is tried here, too
        Path(lab.results("n1"), "diagnoses").mkdir(mode=0o750, exist_ok=True)  # where report keeps what it found out
        files = snapshot(lab)
        nodes, jobs, log = state_of(lab), lab.run("squeue", "-a", "-h").stdout, lab.log("slurmctld")
        for line in (one for tries in lines.values() for one in tries):
            done = lab.run(*PROGRAM, *line)
            assert "Traceback" not in done.stderr, (line, done.stderr)
            assert done.stdout + done.stderr, line
        daemons = ("REQUEST_NODE_REGISTRATION", "REQUEST_COMPLETE_PROLOG")  # slurmd's own words
        asked = {one for one in asked_since(lab, log) if not one.startswith(daemons)}
        assert "REQUEST_NODE_INFO" in asked
        assert set() == asked - MAY_ASK
        assert nodes == state_of(lab)
        assert running in jobs
        assert [one.split()[:5] for one in jobs.splitlines()] == [
            one.split()[:5] for one in lab.run("squeue", "-a", "-h").stdout.splitlines()
        ]
        assert files == snapshot(lab)
        assert {"b.tar.gz", "b.names.json"} == {path.name for path in tmp_path.glob("b.*")}


def snapshot(lab: Lab) -> dict[str, tuple[int, int]]:
    """Size and time of every file that is not Slurm's own to write; of folders only that they are there."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) if path.is_file() else (0, 0)
        for folder in ("etc", "hosts", "results", "shared", "work")
        for path in Path(lab.path(folder)).rglob("*")
        if not path.is_symlink() and "diagnoses" not in path.parts
    }


class TestNeverInTheWay:
    def test_every_way_to_break_a_hook_is_tried_on_real_slurm(self) -> None:
        ways = "sleeps|signals|no Python|not installed|full results|results on a hung|shared folder on a hung|broken"
        tried = [case for case in test_never_in_the_way.CASES if re.search(f"{ways}|others may write", case)]
        assert 9 == len(tried)
        assert hasattr(test_never_in_the_way, "test_two_hundred_hooks_at_once")

    @pytest.mark.parametrize("hook", ["epilog", "health"])
    def test_only_a_prolog_can_hold_a_node(self, tmp_path: Path, hook: str) -> None:
        assert hooks.OK == self.word(tmp_path, hook)

    def test_a_prolog_can_where_the_site_asks_for_it(self, tmp_path: Path) -> None:
        assert hooks.DRAIN == self.word(tmp_path, "prolog")

    @staticmethod
    def word(tmp_path: Path, hook: str) -> str:
        build("p5-efa-missing", tmp_path / "root")
        (tmp_path / "policy.toml").write_text("gate = ['efa-missing']\n")
        words = ["--root", tmp_path / "root", "--results", tmp_path / "results", "--policy", tmp_path / "policy.toml"]
        return hooks.hook(hook, [str(word) for word in words], {"SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"})

    def test_configuration_is_never_gateable(self) -> None:
        wrong = re.compile(r"memlock|shm|stack|nccl-|env|mtu|firewall|logind|clock|disk|name|hugepages|plugin|version")
        assert [] == [rule.id for rule in rules().values() if rule.gateable and wrong.match(rule.id)]


PROBES = probes()  # now: a test looks as a user who may not enter a checkout below /root


def look(root: Path, **how: object) -> dict[str, Result]:
    machine = Host(str(root), env={}, seconds=10, **how)  # type: ignore[arg-type]
    return {one.probe: one for one in run_all(PROBES, machine, Policy())}


class TestHonest:
    @pytest.mark.parametrize("in_hook", [True, False], ids=["hook", "step"])
    def test_where_nothing_can_be_seen_nothing_passes(self, tmp_path: Path, in_hook: bool) -> None:
        outcomes = {name: one.outcome for name, one in look(tmp_path, in_hook=in_hook).items()}
        assert {} == {name: one for name, one in outcomes.items() if one not in (SKIP, UNKNOWN)}

    @pytest.mark.parametrize("in_hook", [True, False], ids=["hook", "step"])
    def test_what_may_not_be_read_does_not_pass_and_is_not_taken_for_absent(
        self, tmp_path: Path, in_hook: bool
    ) -> None:
        build("p5-healthy", tmp_path / "linked")
        root = tmp_path / "machine"
        shutil.copytree(tmp_path / "linked", root, symlinks=True, copy_function=shutil.copy)
        firewall = root / "proc/net/ip_tables_names"
        firewall.write_text("filter\n")
        for path in root.rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.chmod(0)
        for path in (tmp_path, *tmp_path.parents):  # pytest's own folders are root's alone
            if path.stat().st_uid == os.geteuid() and not path.stat().st_mode & 0o001:
                path.chmod(0o711)
        me = os.geteuid()
        if me == 0:  # root may read all
            os.seteuid(NOBODY)
        try:
            results = look(root, in_hook=in_hook)
        finally:
            os.seteuid(me)
        # nothing of theirs is on this machine, and to see that takes no right to read a file
        nothing_there = {"shm_stale", "governor"}
        assert {} == {name: one.outcome for name, one in results.items() if one.outcome == PASS} | {
            name: one.note for name, one in results.items() if one.findings
        }
        told = [one for one in results.values() if one.outcome == UNKNOWN and "permission denied" in one.note]
        assert len(told) > 25
        assert nothing_there.isdisjoint(one.probe for one in told)


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(hpslurm.__path__, "hpslurm."):
        if not found.name.endswith(("__main__", "pyslurm_child")):
            yield importlib.import_module(found.name)


class TestExplained:
    def test_every_rule_has_a_section_that_names_it(self) -> None:
        every = rules()
        assert len(every) > 150
        lost = {rule.id: rule.reference for rule in every.values() if not (section := references.of_finding(rule.id))
                or section.name != rule.reference}  # fmt: skip
        assert {} == lost

    def test_every_id_that_a_section_names_exists(self) -> None:
        known = set(rules()) | set(model.causes())
        named = {one for section in references.sections() for one in section.findings}
        families = {one for one in named if one.endswith("*")}
        assert set() == {one for one in named - families if one not in known and not known_row(one)}
        assert set() == {one for one in families if not any(rule.startswith(one[:-1]) for rule in known)}

    def test_ids_have_a_hyphen_and_causes_have_none(self) -> None:
        assert [] == [one for one in rules() if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9.]+)+", one)]
        assert [] == [one for one in model.causes() if "-" in one]

    def test_a_cause_that_a_rule_points_to_is_one_that_is_explained(self) -> None:
        assert {} == {one.id: one.cause for one in rules().values() if one.cause and one.cause not in model.causes()}

    @pytest.mark.parametrize("case", [case for case in CASES if case != "p5-healthy"])
    def test_every_finding_shows_what_was_seen_and_what_to_do(self, case: str, tmp_path: Path) -> None:
        for result in seen(case, tmp_path).results:
            ids = [(one.rule.id, one.subject) for one in result.findings]
            assert sorted(set(ids)) == sorted(ids)  # one finding per rule and node
            for found in result.findings:
                assert found.detail, found.rule.id
                assert "\n" not in found.detail
                assert found.evidence, f"{found.rule.id} shows no evidence"
                assert all(one.source and one.text for one in found.evidence), found.rule.id
                assert all(one.harm in HARMS for one in found.suggestions), found.rule.id
                assert found.suggestions or found.rule.priority == "P2", f"{found.rule.id} says not what to do"


def known_row(name: str) -> bool:
    """An id of a table that makes its rules while it judges (an XID)."""
    return re.fullmatch(r"s?xid-\d+", name) is not None
