"""doctor's judges at and beside each threshold, and what it reads of a machine made of a few files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hpslurm.core import policy as policies
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip
from hpslurm.setup import doctor_scripts, doctor_site, doctor_software, gates
from hpslurm.setup.doctor_scripts import BESIDE, Entry, Hook
from hpslurm.sources.host import Host

ROOT = Path(__file__).parents[2]
SCRIPT = "PYTHON=/opt/hpslurm/bin/python\nLIMIT=5\n"
FOLDER = "/etc/slurm/prolog.d"
GOOD = Entry(f"{FOLDER}/hpslurm.sh", False, True)
CONFIG = "Prolog = {}\nPrologEpilogTimeout = 60 sec\nBatchStartTimeout = 10 sec\nSLURM_VERSION = 24.11.5\n"


def hook(*entries, key="Prolog", **more):
    return Hook(key, GOOD.path, False, entries or (GOOD,), **{"limit": 5.0, **more})


def found(policy, *hooks, **more):
    return [one.rule.id for one in doctor_scripts.judge(doctor_scripts.Facts(hooks, **more), policy)]


def site(policy, **facts):
    return [one.rule.id for one in doctor_site.judge(doctor_site.Facts(**facts), policy)]


def software(policy, **facts):
    return [one.rule.id for one in doctor_software.judge(doctor_software.Facts("3.12.1", **facts), policy)]


def test_a_script_that_runs_is_silent(policy):
    assert [] == found(policy, hook(), hook_timeout=60, batch_timeout=10)


def test_a_line_that_finds_no_file_drains(policy):
    assert ["hook-script-missing"] == found(policy, Hook("Prolog", GOOD.path, False, ()))


def test_a_file_without_the_execute_bit_drains(policy):
    assert ["hook-not-executable"] == found(policy, hook(GOOD, Entry(f"{FOLDER}/README", False, False)))


def test_a_folder_where_all_entries_run_drains(policy):
    assert ["hook-subfolder"] == found(policy, hook(GOOD, Entry(f"{FOLDER}/old", True, True)))


def test_another_file_beside_a_named_script_is_not_run_and_under_a_glob_it_is(policy):
    beside = {"beside": (f"{FOLDER}/site.sh",)}
    for many, words in ((False, "not run now"), (True, "Slurm runs each of them too")):
        one = Hook("Prolog", GOOD.path, many, (GOOD,), **beside)
        [finding] = doctor_scripts.judge(doctor_scripts.Facts((one,)), policy)
        assert (BESIDE, True) == (finding.rule, words in finding.detail)


def test_a_script_that_others_may_change_is_named_with_its_mode(policy):
    loose = Entry(GOOD.path, False, True, f"{FOLDER} has mode 0777")
    [finding] = doctor_scripts.judge(doctor_scripts.Facts((hook(loose),)), policy)
    assert ("hook-owner", f"{FOLDER} has mode 0777; expected root's, mode 0755") == (finding.rule.id, finding.detail)


def test_a_python_that_is_not_there_is_told(policy):
    assert ["hook-does-nothing"] == found(policy, hook(python="/opt/hpslurm/bin/python"))


def test_the_kill_switch_is_told(policy):
    assert ["hook-switched-off"] == found(policy, hook(), off=True)


def test_a_hook_that_is_not_switched_off_is_not_told_to_be(policy):
    assert not doctor_scripts.Facts((hook(),)).off


@pytest.mark.parametrize(("timeout", "rules"), [(6, ["hook-timeout-short"]), (7, []), (0, []), (65534, []), (None, [])])
def test_slurm_must_wait_two_seconds_longer_than_the_script(policy, timeout, rules):
    assert rules == found(policy, hook(), hook_timeout=timeout)


def test_what_slurm_prints_for_no_limit_is_long_enough_for_any_script(policy):
    assert [[], []] == [found(policy, hook(limit=70_000.0), hook_timeout=timeout) for timeout in (0, 65534)]


@pytest.mark.parametrize(("timeout", "rules"), [(6, ["hook-timeout-batch"]), (7, []), (None, [])])
def test_a_batch_job_must_wait_longer_than_its_prolog(policy, timeout, rules):
    assert rules == found(policy, hook(), batch_timeout=timeout)
    assert [] == found(policy, hook(key="Epilog"), batch_timeout=timeout)


def test_a_hook_that_slurmd_s_copy_lacks_is_told(policy):
    assert ["hook-not-in-cache"] == found(policy, hook(), cache="/c/slurm.conf", not_in_cache=("Prolog",))


def machine(host_with, tmp_path, line, files, mode=0o755):
    host = host_with(
        {"/commands/scontrol_config.txt": CONFIG.format(line), f"{FOLDER}/hpslurm.sh": SCRIPT, **files}, env={}
    )
    os.chmod(tmp_path / f"root{FOLDER}/hpslurm.sh", mode)
    return host


def test_what_is_on_the_machine_is_read(host_with, tmp_path):
    host = machine(host_with, tmp_path, f"{FOLDER}/hpslurm.sh", {f"{FOLDER}/notes~": "", "/run/hpslurm.off": ""})
    facts = doctor_scripts.collect(host)
    wanted = Hook(
        "Prolog", f"{FOLDER}/hpslurm.sh", False, (GOOD,), (f"{FOLDER}/notes~",), 5.0, "/opt/hpslurm/bin/python"
    )
    assert doctor_scripts.Facts((wanted,), 60, 10, True) == facts


def test_a_glob_and_a_folder_take_every_entry(host_with, tmp_path, policy):
    for line in (f"{FOLDER}/*", FOLDER):
        host = machine(host_with, tmp_path, line, {f"{FOLDER}/old/x": "", f"{FOLDER}/README": ""})
        rules = [one.rule.id for one in doctor_scripts.judge(doctor_scripts.collect(host), policy)]
        assert {"hook-not-executable", "hook-subfolder"} <= set(rules)


def test_a_script_without_the_bit_or_that_others_may_write_is_seen(host_with, tmp_path, policy):
    host = machine(host_with, tmp_path, f"{FOLDER}/hpslurm.sh", {}, mode=0o666)
    [entry] = doctor_scripts.collect(host).hooks[0].entries
    assert (False, f"{FOLDER}/hpslurm.sh has mode 0666") == (entry.executable, entry.loose)


@pytest.mark.parametrize("mode", [0o744, 0o654, 0o645])
def test_one_execute_bit_is_enough(host_with, tmp_path, mode):
    host = machine(host_with, tmp_path, f"{FOLDER}/hpslurm.sh", {}, mode=mode)
    [entry] = doctor_scripts.collect(host).hooks[0].entries
    assert (True, "") == (entry.executable, entry.loose)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o4775])
def test_a_script_that_the_group_or_others_may_write_is_told_with_its_whole_mode(host_with, tmp_path, mode):
    host = machine(host_with, tmp_path, f"{FOLDER}/hpslurm.sh", {}, mode=mode)
    [entry] = doctor_scripts.collect(host).hooks[0].entries
    assert f"{FOLDER}/hpslurm.sh has mode {mode:04o}" == entry.loose


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_script_of_root_is_no_loose_one_whoever_looks():
    os.seteuid(65534)
    try:
        assert "" == doctor_scripts._loose(Host("/"), "/etc/passwd")
    finally:
        os.seteuid(0)


def test_six_files_beside_are_named_and_more_are_said(policy):
    for count, more in ((6, False), (7, True)):
        beside = tuple(f"{FOLDER}/{number}" for number in range(count))
        [finding] = doctor_scripts.judge(doctor_scripts.Facts((hook(beside=beside),)), policy)
        assert more == (" and more: " in finding.detail)


def test_a_relative_line_is_looked_for_in_slurmd_s_copy(host_with, tmp_path):
    cache = "/var/spool/slurmd/conf-cache"
    files = {
        f"{cache}/slurm.conf": "Prolog=prolog.d/hpslurm.sh\n",
        f"{cache}/prolog.d/hpslurm.sh": SCRIPT,
        "/commands/scontrol_config.txt": CONFIG.format("prolog.d/hpslurm.sh") + "Epilog = epilog.d/hpslurm.sh\n",
    }
    facts = doctor_scripts.collect(host_with(files, env={}))
    assert f"{cache}/prolog.d/hpslurm.sh" == facts.hooks[0].entries[0].path
    assert () == facts.hooks[1].entries
    assert (f"{cache}/slurm.conf", ("Epilog",)) == (facts.cache, facts.not_in_cache)


def test_without_a_hook_of_ours_there_is_nothing_to_look_at(host_with):
    with pytest.raises(Skip, match="hpslurm install --print"):
        doctor_scripts.collect(host_with({"/commands/scontrol_config.txt": CONFIG.format("/site/p.sh")}, env={}))


def test_a_policy_that_is_not_taken_is_told_in_its_own_words(policy, write):
    path = write("policy.toml", "memlok_min = 1\n")
    [finding] = doctor_site.judge(doctor_site.Facts(policies.load(str(path)).problems), policy)
    assert "policy-not-taken" == finding.rule.id
    assert "unknown key 'memlok_min'" in finding.detail


def test_a_table_of_nodes_that_is_not_taken_says_what_to_write(policy, write):
    path = write("policy.toml", '[nodes."gpu-[1-"]\ncpus_min = 1\n')
    [finding] = doctor_site.judge(doctor_site.Facts(policies.load(str(path)).problems), policy)
    assert "policy-not-taken" == finding.rule.id
    assert "write gpu-[1-64]" in finding.detail


@pytest.mark.parametrize(("shared", "found"), [(True, ["n[01-10]"]), (False, [])])
def test_a_table_that_names_no_node_with_a_record_is_told_where_all_records_are(policy, write, tmp_path, shared, found):
    write("shared/nodes/n1.prolog.jsonl", '{"schema":1,"type":"run","node":"n1"}\n')
    write("policy.toml", '[nodes."n[1-2]"]\ncpus_min = 1\n[nodes."n[01-10]"]\ncpus_min = 1\n')
    tables = policies.load(str(tmp_path / "policy.toml")).nodes
    folder = {"results_shared" if shared else "results": str(tmp_path / "shared")}
    facts = doctor_site.collect(Policy(nodes=tables, **{"results": str(tmp_path / "own"), **folder}))
    assert tuple(found) == facts.nameless
    assert ["policy-nodes-unknown"] * len(found) == [one.rule.id for one in doctor_site.judge(facts, policy)]


def test_a_mute_past_its_date_is_for_information_and_names_who_set_it(policy, write):
    rows = "[[mutes]]\nrule = 'efa-*'\nreason = 'r'\nauthor = 'on-call'\nuntil = '{}'\n"
    loaded = policies.load(str(write("policy.toml", rows.format("2000-01-01") + rows.format("2999-01-01"))))
    [finding] = doctor_site.judge(doctor_site.collect(loaded), policy)
    assert ("policy-mute-expired", "P2") == (finding.rule.id, finding.rule.priority)
    assert "the mute of efa-* by on-call ended on 2000-01-01" == finding.detail


def test_an_id_of_the_gate_that_never_gates_is_told_with_its_like(policy):
    gate = ("efa-missing", "efa-mising", "memlock-default", "xid-79", "sxid-20034", "xid-13", "xid-9999")
    facts = doctor_site.collect(Policy(gate=gate))
    [finding] = doctor_site.judge(facts, policy)
    assert ("policy-gate-unknown", "P1") == (finding.rule.id, finding.rule.priority)
    assert ["efa-mising", "memlock-default", "xid-13", "xid-9999"] == [one.split("'")[1] for one in facts.gate]
    assert "did you mean efa-missing" in facts.gate[0]
    assert "not about hardware of the node" in facts.gate[1]
    assert [] == site(policy, gate=())


def test_every_rule_that_the_catalogue_marks_may_be_named_in_the_gate():
    rows = (ROOT / "docs/rules.md").read_text().splitlines()
    marked = [row.split("`")[1] for row in rows if row.startswith("| `") and row.rstrip(" |").endswith("yes")]
    assert 20 < len(marked)
    assert [] == list(gates.strange(marked))


def test_one_trouble_is_told_in_its_words_and_two_are_counted(policy):
    mute = policies.Mute("efa-*", "r", until="2000-01-01")
    for facts, one, two in (
        ({"problems": ("a",)}, "a", "2 of its entries ignored"),
        ({"gate": ("a",)}, "a", "2 ids of gate never gate"),
        ({"expired": (mute,)}, "the mute of efa-* ended on 2000-01-01", "2 mutes are past their date"),
    ):
        for times, words in ((1, one), (2, two)):
            given = {name: values * times for name, values in facts.items()}
            [finding] = doctor_site.judge(doctor_site.Facts(**given), policy)
            assert (words, times) == (finding.detail, len(finding.evidence))


def test_folders_for_records_are_looked_at(policy, tmp_path):
    good = tmp_path / "good"
    good.mkdir(mode=0o755)
    loose = tmp_path / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    assert "" == doctor_site.trouble(str(good), made=True)
    assert "" == doctor_site.trouble(str(tmp_path / "new/deep"), made=True)
    assert "does not exist" == doctor_site.trouble(str(tmp_path / "new"), made=False)
    assert "group or others may write it" == doctor_site.trouble(str(loose), made=True)
    assert ["results-not-usable"] == site(policy, folders=((str(loose), "group or others may write it"),))
    assert [] == site(policy, folders=((str(good), ""),))


def test_nodes_of_different_releases_and_policies_are_named(policy):
    one, other = (("n1", "0.1.0"), ("n2", "0.1.0"), ("n3", "0.2.0")), (("n1", "a"), ("n2", "a"))
    [finding] = doctor_site.judge(doctor_site.Facts(versions=one, policies=other), policy)
    assert ("hpslurm-versions-differ", "0.1.0 on n[1-2]; 0.2.0 on n3") == (finding.rule.id, finding.detail)
    assert ["policies-differ"] == site(policy, policies=(("n1", "a"), ("n2", "b")))


def test_records_of_the_shared_folder_tell_the_versions(tmp_path):
    for node, version in (("n1", "0.1.0"), ("n2", "0.2.0")):
        (tmp_path / "nodes").mkdir(exist_ok=True)
        (tmp_path / f"nodes/{node}.prolog.jsonl").write_text(
            f'{{"schema":1,"type":"run","node":"{node}","version":"{version}","policy":"default"}}\n'
        )
    facts = doctor_site.collect(Policy(results=str(tmp_path)))
    assert (("n1", "0.1.0"), ("n2", "0.2.0")) == facts.versions


def test_packages_of_this_installation_are_all_there():
    assert [] == list(doctor_software.packages(doctor_software.requirements()))


@pytest.mark.parametrize(
    ("names", "lean"),
    [
        (["click", "no-such-package", "another-one"], True),
        (["click", "no-such-package", "pytest"], False),  # a part of the rest is there, so the other is missing
        (["click", "psutil"], False),
        (["hpslurm-of-nobody", "hpslurm"], False),
    ],
)
def test_an_installation_of_what_hooks_need_alone_is_told_from_one_that_lacks_something(names, lean):
    assert lean == doctor_software.is_lean(names)


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("", True),
        (" python_version < '3.10'", False),
        (" python_version < '4.0'", True),
        (' python_version >= "3.10"', True),
        (" sys_platform == 'linux' and platform_machine in 'x86_64 aarch64' and python_version < '4.0'", True),
        (" sys_platform == 'win32' and python_version < '4.0'", False),
        (" extra == 'test'", False),
        (" os_name != 'posix'", False),
    ],
)
def test_a_requirement_counts_where_its_conditions_hold(when, holds):
    assert holds == doctor_software._holds(when)


def test_requirements_are_read_as_the_installed_package_notes_them():
    wanted = dict(doctor_software.requirements())
    assert {"boto3", "click", "clustershell", "jinja2", "nvidia-ml-py", "psutil", "rich"} <= set(wanted)
    assert ("1.43", "3.1.6") == (wanted["boto3"], wanted["jinja2"])  # seen: "jinja2<4,>=3.1.6", the upper bound first
    assert (sys.version_info < (3, 11)) == ("tomli" in wanted)
    assert not {"pytest", "pyslurm", "prometheus-client"} & set(wanted)


def test_a_missing_and_an_old_package_are_told():
    wanted = [("no-such-package", "1"), ("pytest", "999"), ("click", "8"), ("psutil", "")]
    missing, old = doctor_software.packages(wanted)
    assert "no-such-package is not installed" == missing
    assert old.startswith("pytest is ") and old.endswith(", expected 999 or later")


def test_software_is_told_only_where_it_is_wrong(policy):
    assert [] == software(policy, pyslurm="24.11.0", slurm="24.11.5")
    assert ["pyslurm-differs"] == software(policy, pyslurm="25.5.0", slurm="24.11.5")
    assert ["package-missing"] == software(policy, packages=("rich is not installed",))
    assert ["bytecode-missing"] == software(policy, uncompiled=("hooks.py",))
    assert ["program-missing"] == software(policy, programs=(("fi_info", "why"),))


def test_a_module_without_bytecode_is_listed_and_a_compiled_one_is_not(tmp_path):
    import compileall

    (tmp_path / "a.py").write_text("x = 1\n")
    assert ["a.py"] == list(doctor_software.uncompiled(str(tmp_path)))
    assert compileall.compile_dir(tmp_path, quiet=1)
    assert [] == list(doctor_software.uncompiled(str(tmp_path)))


def test_programs_are_missed_only_where_they_have_something_to_ask(host_with):
    config = {"/commands/scontrol_config.txt": CONFIG.format("(null)")}
    bare = doctor_software.collect(host_with(config, env={}))
    assert () == bare.programs
    full = {"/sys/class/infiniband/rdmap0/x": "", "/proc/driver/nvidia/version": "", "/opt/sagemaker_cluster": ""}
    seen = doctor_software.collect(host_with({**config, **full}, env={})).programs
    assert ["fi_info", "libnvidia-ml.so.1", "session-manager-plugin"] == [name for name, _ in seen]


CONF = "/etc/slurm/slurm.conf"


@pytest.mark.parametrize(
    ("files", "lacks"),
    [
        ({CONF: "ClusterName=x\n"}, ("Prolog",)),
        ({CONF: f"Prolog={FOLDER}/hpslurm.sh\n"}, ()),
        ({CONF: f"  prolog = {FOLDER}/hpslurm.sh  # ours\n"}, ()),
        ({CONF: "Include hooks.conf\n", "/etc/slurm/hooks.conf": f"Prolog={FOLDER}/hpslurm.sh\n"}, ()),
        ({CONF: f"# Prolog={FOLDER}/hpslurm.sh\n"}, ("Prolog",)),
        ({CONF: "Include elsewhere.conf\n"}, ()),  # cannot be read: nothing is claimed
        ({CONF: f"Prolog={FOLDER}/hpslurm.sh\n", "/run/slurm/conf/slurm.conf": "x=1\n"}, ("Prolog",)),
    ],
)
def test_what_this_nodes_own_slurm_conf_lacks_does_not_run_here(host_with, tmp_path, files, lacks):
    host = machine(host_with, tmp_path, f"{FOLDER}/hpslurm.sh", files)
    assert lacks == doctor_scripts.collect(host).not_in_cache


def test_a_glob_in_slurmds_copy_is_the_line_that_slurmctld_names(host_with, tmp_path):
    for line in (f"{FOLDER}/*.sh", FOLDER):
        host = machine(host_with, tmp_path, line, {"/run/slurm/conf/slurm.conf": f"Prolog={line}\n"})
        assert () == doctor_scripts.collect(host).not_in_cache


def test_only_scripts_get_their_execute_bit(policy):
    names = ("README", "hpslurm.sh~", "site.sh")
    entries = [Entry(f"{FOLDER}/{name}", False, False) for name in names]
    facts = doctor_scripts.Facts((hook(GOOD, *entries),))
    (one,) = [one for one in doctor_scripts.judge(facts, policy) if one.rule.id == "hook-not-executable"]
    commands = [step.command for step in one.suggestions]
    assert [f"sudo mv {FOLDER}/README '{FOLDER}/hpslurm.sh~' /root/", f"sudo chmod 755 {FOLDER}/site.sh"] == commands
