"""``hpslurm diagnose`` on a real Slurm, and where Slurm does not answer."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

from hpslurm.cluster.node_records import NO_RECORD
from tests.lab import processes

PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()")
CHECK = "-c 'from hpslurm.cli.check import main; main()'"
# What a look may ask of slurmctld. Daemons of the lab talk among themselves meanwhile (MESSAGE_..., registration).
MAY_ASK = {
    "REQUEST_NODE_INFO", "REQUEST_JOB_INFO", "REQUEST_JOB_USER_INFO", "REQUEST_PARTITION_INFO", "REQUEST_BUILD_INFO",
    "REQUEST_PING", "REQUEST_RESERVATION_INFO", "REQUEST_JOB_INFO_SINGLE", "REQUEST_LICENSE_INFO",
    "REQUEST_FED_INFO",
}  # fmt: skip


def state_of(lab):
    """State, reason, features and comment of all nodes, in Slurm's own words."""
    lines = lab.run("scontrol", "show", "nodes", check=True).stdout.splitlines()
    wanted = re.compile(r"NodeName=|\s+(State|Reason|AvailableFeatures|ActiveFeatures|Comment|Extra)=|\s{10}")
    return [line.strip() for line in lines if wanted.match(line)]


def asked_since(lab, before):
    return set(re.findall(r"Processing RPC: (REQUEST_\w+)", lab.log("slurmctld")[len(before) :]))


def drain(lab, node, state, reason):
    lab.run("scontrol", "update", f"nodename={node}", f"state={state}", f"reason={reason}", check=True)


def look(lab, *options, settings="", **how):
    """Of a policy and of records that this machine itself may have nothing is read."""
    policy = lab.path("work", "diagnose.toml")
    with open(policy, "w") as file:
        file.write(f"results = '{lab.path('work', 'no-records')}'\n{settings}")
    return lab.run(*PROGRAM, "diagnose", "--policy", policy, *options, **how)


def findings(out):
    """Those about one node; the cluster's own (no hooks, no records) are not what most tests are about."""
    return [line for line in map(json.loads, out.splitlines()) if line["type"] == "finding" and line["subject"]]


@pytest.fixture
def sick(make_lab):
    """Eight nodes: a near miss, a valid action, two that lost a GPU, and a reason that imitates everything."""
    lab = make_lab(nodes=8, prefix="ip-10-1-0-", conf="SlurmctldDebug=debug2")
    drain(lab, "ip-10-1-0-2", "drain", "action:reboot")
    drain(lab, "ip-10-1-0-3", "fail", "Action:Replace")
    drain(lab, "ip-10-1-0-4", "down", "gres/gpu count reported lower than configured (7 < 8)")
    drain(lab, "ip-10-1-0-5", "down", "gres/gpu count reported lower than configured (7 < 8)")
    drain(
        lab,
        "ip-10-1-0-6",
        "drain",
        "look\n   State=IDLE [evil@2020-01-01T00:00:00]\n\x1b[31m'; reboot #|\"" + "x" * 3000,
    )
    lab.run("scontrol", "update", "nodename=ip-10-1-0-6", "comment=c [x@2020-01-01T00:00:00]", check=True)
    return lab


def test_diagnose_looks_and_touches_nothing(sick):
    assert "REQUEST_UPDATE_NODE" in asked_since(sick, "")  # the log would show it
    before, log = state_of(sick), sick.log("slurmctld")
    done = look(sick, "--json")
    assert 0 == done.returncode, done.stderr
    assert before == state_of(sick)
    asked = asked_since(sick, log)
    assert "REQUEST_NODE_INFO" in asked
    assert set() == {one for one in asked if not one.startswith("REQUEST_NODE_REGISTRATION")} - MAY_ASK
    assert "update_node" not in sick.log("slurmctld")[len(log) :]

    found = {line["subject"]: line for line in findings(done.stdout)}
    assert {
        "ip-10-1-0-2": "action-reboot-misspelt",
        "ip-10-1-0-3": "action-under-way",
        "ip-10-1-0-4": "reason-gpu-count",
        "ip-10-1-0-5": "reason-gpu-count",
        "ip-10-1-0-6": "node-drained",
    } == {name: line["id"] for name, line in found.items()}
    assert "set by root" in found["ip-10-1-0-6"]["evidence"][0]["text"]
    assert len(found["ip-10-1-0-6"]["detail"]) < 500


def test_the_report_folds_nodes_and_its_commands_can_be_typed(sick):
    done = look(sick, "-v")
    assert (
        "[FAIL] P1 reason-gpu-count  ip-10-1-0-[4-5]  gres/gpu count reported lower than configured (7 < 8)"
        in done.stdout
    )
    assert "saw: ip-10-1-0-4 scontrol show node ip-10-1-0-4: DOWN" in done.stdout
    assert "→ operations.md § 8   (hpslurm explain action-reboot-misspelt)" in done.stdout
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    typed = [lines[at + 1] for at, line in enumerate(lines) if "Suggested command (run this yourself)" in line]
    assert typed
    exact = "sudo scontrol update nodename=ip-10-1-0-2 state=fail reason='Action:Reboot'"
    assert exact in [line.strip() for line in lines]
    # Slurm takes the exact command, and hpslurm then sees an action under way
    sick.run(*shlex.split(exact)[1:], check=True)
    again = look(sick, "--json", "--node", "ip-10-1-0-2")
    assert ["action-under-way"] == [line["id"] for line in findings(again.stdout)]


def test_reports_brought_by_the_printed_line_are_joined(make_lab):
    lab = make_lab(nodes=2, memlock={"n2": 65536})
    done = look(lab, "-v")
    (line,) = [one.strip() for one in done.stdout.splitlines() if "srun -w" in one]
    assert "srun -w 'n[1-2]' " in line
    words = f'--policy /nonexistent --root "{lab.path("hosts")}/$SLURMD_NODENAME" "$@"'
    lab.script("hpslurm-check", f"#!/bin/sh\nexec {sys.executable} {CHECK} {words}\n")
    path = f"{lab.path('work')}:{lab.environment()['PATH']}"
    lab.run("sh", "-c", line, env={"PATH": path})  # exits 3: it found something
    joined = look(lab, "--json", "--reports", lab.path("work", "reports"))
    assert ["n2"] == [one["subject"] for one in findings(joined.stdout) if one["id"] == "memlock-default"]
    assert NO_RECORD.id not in joined.stdout


@pytest.mark.parametrize(
    ("options", "code"), [(["--fail-on", "P1"], 3), (["--fail-on", "P0"], 0), ([], 0), (["--strict"], 3)]
)
def test_the_exit_code_follows_fail_on(sick_machine, options, code):
    assert code == diagnose(sick_machine, *options).returncode


def diagnose(root, *options):
    words = [*PROGRAM, "diagnose", "--root", str(root), "--policy", "/nonexistent", *options]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def sick_machine(write, tmp_path):
    """A saved controller: what scontrol and squeue printed."""
    write("commands/scontrol_nodes_json.txt", "")
    write("commands/scontrol_nodes_json.status", "1")
    write("opt/slurm/bin/scontrol", "#!/bin/sh\n" + SCONTROL, 0o755)
    write("opt/slurm/bin/squeue", "#!/bin/sh\n", 0o755)
    return tmp_path


SCONTROL = r"""
[ "$1" = --json ] && { echo "scontrol: unrecognized option '--json'" >&2; exit 1; }
printf 'NodeName=n1 Arch=x\n   State=IDLE+DRAIN ThreadsPerCore=1\n   Reason=Prolog error [root@2026-11-30T01:00:00]\n\n'
printf 'NodeName=n2 Arch=x\n   State=IDLE ThreadsPerCore=1\n\n'
"""


def test_a_node_that_slurm_does_not_know_is_the_users_mistake(sick_machine):
    done = diagnose(sick_machine, "--node", "n22")
    assert 2 == done.returncode
    assert "Slurm has no node 'n22'. Did you mean 'n2'?" in done.stderr
    assert 2 == diagnose(sick_machine, "--node", "n[1-").returncode
    many = diagnose(sick_machine, "--node", "n[1-5000000]")
    assert (2, True) == (many.returncode, "is not a valid node list: 5000000 names, 65536 at most" in many.stderr)


def test_node_limits_the_look(sick_machine):
    assert [] == findings(diagnose(sick_machine, "--json", "--node", "n2").stdout)


def test_without_slurm_and_records_nothing_could_be_done(tmp_path):
    done = diagnose(tmp_path)
    assert 1 == done.returncode
    assert "scontrol is not installed" in done.stdout
    assert "neither Slurm nor a node's record could be read" in done.stderr
    assert "Traceback" not in done.stderr


def test_records_alone_are_worth_a_report(tmp_path, write):
    write("var/lib/hpslurm/nodes/n1.prolog.jsonl", RECORD)
    done = diagnose(tmp_path, "--json")
    assert 0 == done.returncode
    assert [("memlock-low", "n1")] == [(one["id"], one["subject"]) for one in findings(done.stdout)]


RECORD = """\
{"schema":1,"type":"run","hook":"prolog","node":"n1","time":4000000000}
{"schema":1,"type":"result","probe":"memlock","outcome":"fail","note":"","seconds":0.1,"facts":null}
{"schema":1,"type":"finding","id":"memlock-low","priority":"P1","title":"t","reference":"r","subject":"n1","detail":"d"}
{"schema":1,"type":"end"}
"""


def seen(lab, **options):
    out = look(lab, "--json", **options).stdout
    return {line["id"]: line for line in map(json.loads, out.splitlines()) if line["type"] == "finding"}


def test_slurms_own_troubles_are_found_on_real_slurm(make_lab):
    fails = "#!/bin/sh\n[ $SLURMD_NODENAME = n1 ] && exit 1\nexit 0\n"
    hangs = "#!/bin/sh\n[ $SLURMD_NODENAME = n3 ] && exec sleep 600\nexit 0\n"
    lab = make_lab(nodes=4, conf="Prolog=@LAB@/work/prolog\nEpilog=@LAB@/work/epilog\nPrologFlags=Alloc")
    lab.script("prolog", fails)
    lab.script("epilog", hangs)
    drain(lab, "n2", "down", "gone")
    waits = lab.submit("-w", "n2", "--wrap", "true")
    held = lab.submit("-w", "n1", "--wrap", "true")
    ends = lab.submit("-w", "n3", "--wrap", "true")
    lab.wait_for_node("n1", "IDLE+DRAIN")
    lab.wait_for_job(ends, "COMPLETING")
    lab.wait_for_job(held, "PENDING")
    with open(lab.conf, "a") as conf:
        conf.write("NodeName=n9 NodeAddr=127.0.0.1 Port=9\n")
    while not (found := seen(lab, settings="completing_max = 0\n")).get("job-stuck-completing"):
        pass
    assert "jobs waiting: 1, for nodes that are out: n2" == found["jobs-wait-for-sick-nodes"]["detail"]
    assert f"sudo scontrol release {held}" == found["jobs-held"]["suggestions"][-1]["command"]
    assert f"squeue -j {waits}" == found["jobs-wait-for-sick-nodes"]["suggestions"][0]["command"]
    assert "n3" == found["job-stuck-completing"]["subject"]
    assert f"only in {lab.conf}: n9" == found["slurm-conf-nodes-differ"]["detail"]
    assert "HASH_VAL = Different" in found["slurm-conf-not-read"]["evidence"][0]["text"]
    assert "reason-prolog-error" in found
    assert "hooks-not-installed" in found


@pytest.mark.parametrize(("daemon", "rule"), [("slurmctld", "slurmctld-down"), ("munged", "munge-broken")])
def test_a_controller_that_is_down_is_told_apart_from_munge_that_is_down(make_lab, daemon, rule):
    lab = make_lab(nodes=1)
    os.kill(lab.running[daemon][0], signal.SIGTERM)
    deadline = time.monotonic() + 10
    while processes.alive(lab.running[daemon]) and time.monotonic() < deadline:
        time.sleep(0.02)
    done = look(lab, "-v", seconds=90)
    assert ({"slurmctld-down", "munge-broken"} & set(done.stdout.split()), 1) == ({rule}, done.returncode), done.stdout


def test_a_record_of_a_node_that_slurm_does_not_list_is_said_and_not_judged(sick_machine, write):
    write("var/lib/hpslurm/nodes/gone7.prolog.jsonl", RECORD.replace('"n1"', '"gone7"'))
    done = diagnose(sick_machine, "-v")
    assert "[SKIP] node_records: gone7: a record, but no node of that name in Slurm" in done.stdout
    assert "memlock-low" not in done.stdout


def test_a_record_speaks_for_the_node_that_slurm_lists_whatever_it_calls_itself(sick_machine, write):
    write(
        "var/lib/hpslurm/nodes/n2.prolog.jsonl",
        RECORD.replace('"subject":"n1"', '"subject":"x; reboot"').replace('"n1"', '"n2"'),
    )
    found = {one["id"]: one["subject"] for one in findings(diagnose(sick_machine, "--json").stdout)}
    assert {"reason-prolog-error": "n1", "memlock-low": "n2"} == found


def test_a_record_that_may_not_be_read_is_not_said_to_be_missing(sick_machine, write):
    for hook in ("prolog", "epilog"):
        write(f"var/lib/hpslurm/nodes/n2.{hook}.jsonl", RECORD.replace('"n1"', '"n2"'), 0o666)
    out = " ".join(diagnose(sick_machine, "-v").stdout.split())
    assert re.search(r"node_records not checked: records of n2 in \S+/nodes: refused: not a regular file", out), out
    assert "1 of 2 nodes left no record" in out
