"""The steps that put the hooks on a cluster: never a line that drains it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from hpslurm.core import toml as tomli
from hpslurm.setup import hook_lines
from hpslurm.setup.install import Site, _wrapper, conf_lines, site, snippet, steps
from hpslurm.sources.host import Host
from tests.cli.test_schema import wrong as undocumented
from tests.lab.lab import Lab

CONF = "/opt/slurm/etc/slurm.conf"


def here(version: tuple[int, int] | None = (24, 11), prolog: Sequence[str] = (), **how: object) -> Site:
    words = {
        "flags": (),
        "timeout": "65534",
        "except_limits": (),
        "configless": False,
        "hyperpod": False,
        **how,
    }
    return Site(version, CONF, {"Prolog": tuple(prolog), "Epilog": ()}, **words)  # type: ignore[arg-type]


def added(one: Site, relative: bool = False) -> list[str]:
    return conf_lines(one, "/opt/slurm/etc", relative)[0]


def removed(one: Site) -> list[str]:
    return conf_lines(one, "/opt/slurm/etc", False)[1]


def test_a_cluster_without_hooks_gets_absolute_paths_and_what_they_need() -> None:
    assert [
        "Prolog=/opt/slurm/etc/prolog.d/hpslurm.sh",
        "Epilog=/opt/slurm/etc/epilog.d/hpslurm.sh",
        "PrologFlags=Alloc",
        "PrologEpilogTimeout=60",
        "PropagateResourceLimitsExcept=MEMLOCK",
    ] == added(here())


def test_where_lines_add_up_the_sites_own_stays() -> None:
    one = here((24, 5), ["/etc/site/prolog.sh"])
    assert [] == removed(one)
    assert "Prolog=/opt/slurm/etc/prolog.d/hpslurm.sh" in added(one)


def test_where_the_last_line_wins_one_folder_holds_both() -> None:
    one = here((23, 11), ["/etc/site/prolog.sh"])
    assert ["Prolog=/etc/site/prolog.sh"] == removed(one)
    assert "Prolog=/opt/slurm/etc/prolog.d/*.sh" in added(one)


def test_a_sites_prolog_that_sources_its_neighbour_still_finds_it(tmp_path: Path) -> None:
    """A copy in another folder exits 1, and drains every node."""
    theirs, ours = tmp_path / "site's own", tmp_path / "prolog.d"
    for folder in (theirs, ours):
        folder.mkdir()
    (theirs / "lib.sh").write_text("say() { echo $1; }\n")
    (theirs / "prolog.sh").write_text('#!/bin/sh\n. "$(dirname "$0")/lib.sh" && say "looked at $SLURM_JOB_ID"\n')
    (theirs / "prolog.sh").chmod(0o755)
    (ours / "hpslurm.sh").write_text("#!/bin/sh\n")
    lines = _wrapper(str(theirs / "prolog.sh"), str(ours / "site.sh"))
    done = subprocess.run(["sh", "-c", "\n".join(lines).replace("sudo ", "")], capture_output=True, text=True)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    run = subprocess.run([ours / "site.sh"], env={"SLURM_JOB_ID": "7"}, capture_output=True, text=True)
    assert (0, "looked at 7\n") == (run.returncode, run.stdout)
    (theirs / "prolog.sh").chmod(0o644)
    done = subprocess.run(["sh", "-c", lines[-1]], capture_output=True, text=True)
    assert f"STOP: {theirs}/prolog.sh\n" == done.stdout


def test_a_sites_folder_of_hooks_is_run_whole_and_no_glob_of_theirs_is_taken_for_ours() -> None:
    one = here((23, 11), ["/etc/slurm/prolog.d/*.sh"])
    assert ["Prolog=/etc/slurm/prolog.d/*.sh"] == removed(one)
    lines = [line for step in steps(one) for line in step.lines]
    assert any('for hook in /etc/slurm/prolog.d/*.sh; do "$hook" || exit; done' in line for line in lines)
    mine = here((23, 11), ["/etc/slurm/prolog.d/*.sh"], mine=frozenset({"/etc/slurm/prolog.d/*.sh"}))
    assert not any(line.startswith("Prolog=") for line in added(mine))


def test_a_time_limit_is_never_put_on_a_sites_own_hooks() -> None:
    assert not any("PrologEpilogTimeout" in line for line in added(here((24, 5), ["/etc/site/prolog.sh"])))


def test_a_policy_that_is_there_keeps_what_it_says(tmp_path: Path) -> None:
    (line,) = [line for line in told(here(), "Records that the controller can read") if "results_shared" in line]
    policy = tmp_path / "policy.toml"
    command = line.replace("sudo ", "").replace("/etc/hpslurm/policy.toml", str(policy))
    subprocess.run(["sh", "-c", command], check=True)
    assert 'results_shared = "/fsx/hpslurm"\n' == policy.read_text()
    policy.write_text('partitions = ["canary"]\n[[mutes]]\nrule = "efa-*"\nreason = "RMA"\n')
    for _ in range(2):
        subprocess.run(["sh", "-c", command], check=True)
    taken = tomli.loads(policy.read_text())
    assert ("/fsx/hpslurm", ["canary"], 1) == (taken["results_shared"], taken["partitions"], len(taken["mutes"]))


def test_scripts_are_tried_on_every_node_before_slurm_conf_names_them() -> None:
    titles = [step.title for step in steps(here())]
    order = ("The two scripts", "Records that the controller can read", "Try the scripts on every node", "slurm.conf")
    assert sorted(titles.index(title) for title in order) == [titles.index(title) for title in order]
    assert any("clush" in line and "test -x" in line for line in told(here(), "Try the scripts on every node"))
    last = next(step for step in steps(here()) if step.title == "Take it into use")
    assert "ALL partitions" in last.why


def test_the_steps_name_the_environment_that_prints_them() -> None:
    lines = [line for step in steps(here(venv="/srv/tools/hpslurm")) for line in step.lines]
    assert [] == [line for line in lines if "/opt/hpslurm" in line]
    assert any("PYTHON=/srv/tools/hpslurm/bin/python" in line for line in lines)


def test_an_unknown_release_is_taken_for_an_old_one() -> None:
    assert ["Prolog=/etc/site/prolog.sh"] == removed(here(None, ["/etc/site/prolog.sh"]))


@pytest.mark.parametrize(
    ("version", "relative"), [((22, 5), False), ((24, 5), False), ((24, 11), True), ((26, 5), True)]
)
def test_a_relative_path_only_where_slurmctld_ships_it(version: tuple[int, int], relative: bool) -> None:
    lines = [line for step in steps(here(version, configless=True)) for line in step.lines]
    assert relative == ("Prolog=prolog.d/hpslurm.sh" in lines)
    assert (not relative) == ("Prolog=/opt/slurm/etc/prolog.d/hpslurm.sh" in lines)


def test_what_is_set_already_is_not_asked_for() -> None:
    one = here(flags=("Contain",), timeout="120", except_limits=("MEMLOCK",))
    assert ["Prolog", "Epilog"] == [line.partition("=")[0] for line in added(one)]


def test_other_flags_are_kept() -> None:
    one = here(flags=("Serial",), except_limits=("NOFILE",))
    assert "PrologFlags=Serial,Alloc" in added(one)
    assert "PropagateResourceLimitsExcept=NOFILE,MEMLOCK" in added(one)
    assert ["PrologFlags=Serial", "PropagateResourceLimitsExcept=NOFILE"] == removed(one)


def test_our_own_lines_are_known_by_what_they_run(host_with: Callable[..., Host]) -> None:
    host = host_with({"/etc/slurm/prolog.d/hpslurm.sh": "", "/etc/site/prolog.d/site.sh": ""})
    for path in ("/etc/slurm/prolog.d/hpslurm.sh", "/etc/slurm/prolog.d/*.sh", "/etc/slurm/prolog.d"):
        assert hook_lines.is_ours(host, path), path
    for path in ("/opt/slurm/etc/scripts/prolog.sh", "/etc/site/prolog.d/*.sh", "/etc/site/prolog.d/*"):
        assert not hook_lines.is_ours(host, path), path


def test_every_node_has_the_script_before_slurm_conf_names_it() -> None:
    titles = [step.title for step in steps(here())]
    assert titles.index("The two scripts") < titles.index("slurm.conf") < titles.index("Take it into use")


def told(one: Site, title: str) -> list[str]:
    return [line for step in steps(one) if step.title == title for line in step.lines]


def test_a_health_check_is_offered_with_its_lines() -> None:
    lines = told(here(), "Look between jobs")
    assert [
        "HealthCheckProgram=/opt/slurm/etc/healthcheck.d/hpslurm.sh",
        "HealthCheckInterval=300",
        "HealthCheckNodeState=ANY,CYCLE",
    ] == lines[-3:]


def test_the_sites_own_health_check_is_chained_and_its_interval_kept() -> None:
    lines = told(here(health="/usr/sbin/nhc"), "Look between jobs")
    assert any("NEXT=(/usr/sbin/nhc)" in line for line in lines)
    assert "HealthCheckProgram=/opt/slurm/etc/healthcheck.d/hpslurm.sh" == lines[-1]


def test_what_runs_already_is_not_offered_again() -> None:
    one = here(health="/etc/slurm/healthcheck.d/hpslurm.sh", task_prolog="/etc/slurm/taskprolog.d/hpslurm.sh")
    assert [] == told(one, "Look between jobs") + told(one, "Tell the user")


def test_a_sites_own_task_prolog_is_never_replaced() -> None:
    lines = told(here(task_prolog="/etc/site/task.sh"), "Tell the user")
    assert not any(line.startswith("TaskProlog=") for line in lines)
    assert any("/etc/site/task.sh is there already" in line for line in lines)


def test_the_snippet_adds_our_lines_once() -> None:
    lines = snippet(here(hyperpod=True))
    assert any("! grep -q hpslurm" in line for line in lines)
    assert "Prolog=/opt/slurm/etc/prolog.d/hpslurm.sh" in lines


def test_config_as_slurm_prints_it_is_understood() -> None:
    config = {
        "slurm_version": ("24.11.5",),
        "prolog[0]": (),
        "prolog": ("/a.sh", "/b.sh"),
        "epilog": ("(null)",),
        "prologflags": ("Alloc,Contain",),
        "prologepilogtimeout": ("65534",),
        "slurmctldparameters": ("enable_configless,power_save",),
    }
    one = site(config, CONF, True)
    assert ((24, 11), ("/a.sh", "/b.sh"), (), True) == (
        one.version,
        one.hooks["Prolog"],
        one.hooks["Epilog"],
        one.configless,
    )


@pytest.mark.lab
def test_the_printed_lines_are_taken_by_a_real_slurm_and_run(make_lab: Callable[..., Lab], tmp_path: Path) -> None:
    lab = make_lab(nodes=1)
    before = Path(lab.conf).read_text()
    shown = lab.run("hpslurm", "install", "--print", check=True).stdout
    assert before == Path(lab.conf).read_text()
    lines = [line.strip() for line in shown.split("As part of")[0].splitlines()]
    wanted = [
        line for line in lines if line.split("=")[0] in ("Prolog", "Epilog", "PrologFlags", "PrologEpilogTimeout")
    ]
    assert 4 == len(wanted)
    steps = [json.loads(line) for line in lab.run("hpslurm", "install", "--print", "--json").stdout.splitlines()]
    assert [] == [fault for step in steps for fault in undocumented(step)]
    assert set(wanted) <= {line for step in steps for line in step["lines"]}
    for name in ("prolog", "epilog"):
        script = Path(lab.path("etc", f"{name}.d"))
        script.mkdir()
        (script / "hpslurm.sh").write_text(f"#!/bin/sh\ntouch {lab.path(f'work/{name}')}\n")
        (script / "hpslurm.sh").chmod(0o755)
    Path(lab.conf).write_text("\n".join([before, *wanted, ""]))
    lab.run("scontrol", "reconfigure", check=True)
    for _ in range(20):  # slurmd hears of it a moment after scontrol has returned
        assert 0 == lab.run("srun", "-N1", "true").returncode
        lab.wait_for_node("n1", "IDLE")
        if Path(lab.path("work/prolog")).exists() and Path(lab.path("work/epilog")).exists():
            break
    assert Path(lab.path("work/prolog")).exists()
    assert Path(lab.path("work/epilog")).exists()


@pytest.mark.parametrize(("timeout", "wanted"), [("0", True), ("1", False), ("65534", True), ("", True)])
def test_a_time_limit_is_asked_for_where_slurm_has_none(timeout: str, wanted: bool) -> None:
    assert wanted == ("PrologEpilogTimeout=60" in added(here(timeout=timeout)))


def test_the_log_is_rotated(tmp_path: Path) -> None:
    (line,) = told(here(), "Log rotation")
    target = tmp_path / "hpslurm"
    subprocess.run(["sh", "-c", line.replace("sudo ", "").replace("/etc/logrotate.d/hpslurm", str(target))], check=True)
    assert ["/var/log/hpslurm.log {", "    weekly"] == target.read_text().splitlines()[:2]
