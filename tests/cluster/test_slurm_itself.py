"""Slurm's daemons, its configuration, the queue and our hooks: each judged on facts made by hand."""

from __future__ import annotations

from hpslurm.cluster import accounting, controllers, queue, slurm_conf
from hpslurm.cluster.model import Member, Members
from hpslurm.core.policy import Policy
from hpslurm.core.probe import PASS, SKIP, run
from hpslurm.setup import hook_lines
from hpslurm.sources.slurm import Controller, Queued, SlurmNode

NOW = 1_800_000_000


def ids(findings):
    return [finding.rule.id for finding in findings]


# controllers


def test_controllers_that_all_answer_are_fine():
    facts = controllers.Facts((Controller("head-1", "primary", True), Controller("head-2", "backup", True)))
    assert [] == list(controllers.judge(facts, Policy()))


def test_a_standby_that_is_down_is_not_hidden_by_the_one_that_is_up():
    facts = controllers.Facts((Controller("head-1", "primary", True), Controller("head-2", "backup", False)))
    (one,) = controllers.judge(facts, Policy())
    assert ("slurmctld-standby-down", "1 of 2 controllers down: head-2 (backup)") == (one.rule.id, one.detail)


def test_no_controller_at_all_blocks_training():
    (one,) = controllers.judge(controllers.Facts((Controller("head-1", "primary", False),)), Policy())
    assert ("slurmctld-down", "P0") == (one.rule.id, one.rule.priority)


MUNGE_DOWN = """\
scontrol: error: If munged is up, restart with --num-threads=10
scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory
slurm_load_ctl_conf error: Protocol authentication error
"""


def programs(write, tmp_path, scontrol="", sacctmgr=""):
    from hpslurm.sources.host import Host

    write("opt/slurm/bin/scontrol", "#!/bin/sh\n" + scontrol, 0o755)
    write("opt/slurm/bin/sacctmgr", "#!/bin/sh\n" + sacctmgr, 0o755)
    return Host(str(tmp_path), env={})


def test_munge_is_told_apart_from_a_dead_controller(write, tmp_path):
    host = programs(write, tmp_path, f"cat >&2 <<'E'\n{MUNGE_DOWN}E\nexit 1")
    result = run("controllers", controllers, host, Policy())
    (one,) = result.findings
    assert "munge-broken" == one.rule.id
    assert "If munged is up" in one.evidence[0].text


# accounting

ON = "echo 'AccountingStorageHost = head-1'; echo 'AccountingStorageType = accounting_storage/slurmdbd'"


# one that answers and one that does not: tests/lab/test_accounting.py
def test_a_cluster_without_accounting_is_skipped(write, tmp_path):
    host = programs(write, tmp_path, ON.replace("slurmdbd", "none"), "exit 1")
    assert SKIP == run("accounting", accounting, host, Policy()).outcome


# slurm.conf


def test_nodes_of_a_configuration_with_includes_and_continued_lines(write, tmp_path):
    from hpslurm.sources.host import Host

    write(
        "etc/slurm/slurm.conf",
        "NodeName=DEFAULT CPUs=2\nnodename=n[1-2],m1 \\\n  CPUs=4 # NodeName=x\ninclude nodes.*\n",
    )
    write("etc/slurm/nodes.conf", "NodeName=k1 Gres=gpu:8\nNodeName=f[1-9] State=FUTURE\n#NodeName=gone\n")
    assert {"n1", "n2", "m1", "k1"} == slurm_conf.nodes_of(Host(str(tmp_path), env={}), "/etc/slurm/slurm.conf")


CONTROLLER = """
case "$*" in
  *config*) echo 'HASH_VAL                = {hash}' ;;
  --json*) echo "scontrol: unrecognized option '--json'" >&2; exit 1 ;;
  *) for n in {names}; do printf 'NodeName=%s\\n   State={state}\\n\\n' $n; done ;;
esac
"""


def looked(write, tmp_path, names, hash="Match", state="IDLE"):
    write("etc/slurm/slurm.conf", "NodeName=n[1-3]\n")
    host = programs(write, tmp_path, CONTROLLER.format(hash=hash, names=names, state=state))
    return run("slurm_conf", slurm_conf, host, Policy())


def test_a_configuration_that_was_read_is_fine(write, tmp_path):
    assert PASS == looked(write, tmp_path, "n1 n2 n3").outcome


def test_an_edit_that_slurmctld_has_not_read_is_found(write, tmp_path):
    result = looked(write, tmp_path, "n1 n2 n3", hash="Different Ours=0x1 Slurmctld=0x2")
    assert ["slurm-conf-not-read"] == ids(result.findings)


def test_nodes_of_one_side_only_are_named(write, tmp_path):
    (one,) = looked(write, tmp_path, "n1 n2 n9").findings
    assert "only in /etc/slurm/slurm.conf: n3; only in slurmctld: n9" == one.detail
    assert "slurm-conf-nodes-differ" == one.rule.id


def test_nodes_that_registered_by_themselves_need_no_line(write, tmp_path):
    assert PASS == looked(write, tmp_path, "n1 n2 n3 n9", state="IDLE+DYNAMIC_NORM").outcome


def test_without_a_slurm_conf_here_there_is_nothing_to_compare(write, tmp_path):
    assert SKIP == run("slurm_conf", slurm_conf, programs(write, tmp_path), Policy()).outcome


# the queue


def cluster(*out):
    nodes = [SlurmNode(f"n{n}", "DOWN" if f"n{n}" in out else "IDLE", partitions=("all",)) for n in range(1, 5)]
    return Members(tuple(Member(node.name, node) for node in nodes), NOW)


def job(number, reason, state="PENDING", nodes="", ended=None, partition="all"):
    return Queued(number, state, "alice", 1001, partition, 1, None, ended, nodes, reason)


def judged(jobs, members, policy=None):
    return list(queue.judge(queue.Facts(tuple(jobs), members), policy or Policy()))


DOWN = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


def test_an_ordinary_queue_is_no_finding():
    jobs = [job(1, "Resources"), job(2, "Priority"), job(3, "PartitionNodeLimit"), job(4, "Dependency"), job(5, "None")]
    assert [] == judged(jobs, cluster("n1"))


def test_jobs_that_wait_for_nodes_that_are_out_are_found():
    jobs = [job(1, "ReqNodeNotAvail, UnavailableNodes:n[1-2]"), job(2, DOWN), job(3, "Resources")]
    (one,) = judged(jobs, cluster("n2", "n3"))
    assert ("jobs-wait-for-sick-nodes", "jobs waiting: 2, for nodes that are out: n[2-3]") == (one.rule.id, one.detail)
    assert "squeue -j 1,2" == one.suggestions[0].command


def test_jobs_that_wait_for_reserved_nodes_are_no_finding():
    jobs = [job(1, "ReqNodeNotAvail, UnavailableNodes:n[1-2]"), job(2, DOWN), job(3, DOWN, partition="other")]
    assert [] == judged(jobs, cluster())
    assert [] == judged(jobs[2:], cluster("n1"))


def test_jobs_that_slurm_holds_are_found_with_the_command_that_lets_them_go():
    held = [job(7, "launch failed requeued held"), job(8, "launch_failed_requeued_held")]
    (one,) = judged([*held, job(9, "JobHeldUser")], cluster())
    assert ("jobs-held", "sudo scontrol release 7 8") == (one.rule.id, one.suggestions[-1].command)


def test_a_job_is_stuck_completing_after_the_sites_limit():
    limit = Policy().completing_max
    assert [] == judged([job(7, "None", "COMPLETING", "n[1-2]", NOW - limit)], cluster())
    found = judged([job(7, "None", "COMPLETING", "n[1-2]", NOW - limit - 1)], cluster())
    assert [("job-stuck-completing", "n1"), ("job-stuck-completing", "n2")] == [
        (one.rule.id, one.subject) for one in found
    ]


# hooks

INSTALLED = "echo 'Prolog = {0}'; echo 'Epilog = {0}'; echo 'PrologFlags = {1}'"


def hooked(write, tmp_path, path, flags="Alloc", ran=()):
    host = programs(write, tmp_path, INSTALLED.format(path, flags))
    return list(hook_lines.judge(hook_lines.collect(host, frozenset(ran)), Policy()))


def test_hooks_that_slurm_conf_names_are_fine(write, tmp_path):
    assert [] == hooked(write, tmp_path, "/opt/slurm/etc/hpslurm/prolog.d/hpslurm.sh")


def test_hooks_behind_a_pattern_are_found_where_the_folder_is(write, tmp_path):
    write("etc/slurm/hooks.d/90-hpslurm.sh", "")
    assert [] == hooked(write, tmp_path, "/etc/slurm/hooks.d/*.sh", "Contain")


def test_hooks_that_ran_and_were_removed_are_worse_than_hooks_never_installed(write, tmp_path):
    foreign = "/opt/slurm/etc/scripts/prolog.sh"
    assert ["hooks-removed"] == ids(hooked(write, tmp_path, foreign, ran=("prolog", "epilog")))
    assert ["hooks-not-installed"] == ids(hooked(write, tmp_path, foreign, ran=("check",)))
    assert ["hooks-not-installed"] == ids(hooked(write, tmp_path, "(null)"))


def test_a_prolog_without_alloc_misses_nodes(write, tmp_path):
    ours = "/opt/slurm/etc/prolog.d/hpslurm.sh"
    assert ["hooks-no-alloc"] == ids(hooked(write, tmp_path, ours, "(null)"))
    assert ["hooks-no-alloc"] == ids(hooked(write, tmp_path, ours, "NoHold,Serial"))
    assert [] == hooked(write, tmp_path, ours, "nohold,alloc")
