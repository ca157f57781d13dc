"""The Slurm door on output that four real releases printed (``slurm/<release>/``, scrubbed)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpslurm.core.probe import Unknown
from hpslurm.core.values import replace
from hpslurm.sources import slurm
from hpslurm.sources.host import COMMANDS, SACCT_FIELDS, SACCT_MARK, Host, Output

SAMPLES = Path(__file__).with_name("slurm")
RELEASES = ["22.05.8", "24.11.5", "25.11.7", "26.05.5"]


def sample(release, name):
    return (SAMPLES / release / name).read_text()


def by_name(nodes):
    return {node.name: replace(node, reason=slurm.folded(node.reason)) for node in nodes}


@pytest.mark.parametrize("release", RELEASES)
def test_text_and_json_lead_to_equal_nodes(release):
    text = by_name(slurm.nodes_of_text(sample(release, "nodes.txt")))
    assert text == by_name(slurm.nodes_of_json(sample(release, "nodes.json")))
    assert 16 == len(text)


@pytest.mark.parametrize("release", RELEASES[1:])
def test_text_and_json_lead_to_equal_jobs(release):
    # the text of the samples was printed without -d, so it has no derived exit code
    json = [
        replace(job, derived_code=None, derived_signal=None) for job in slurm.jobs_of_json(sample(release, "jobs.json"))
    ]
    assert json == list(slurm.jobs_of_text(sample(release, "jobs.txt")))
    assert ["RUNNING", "FAILED"] == [job.state for job in json]
    assert [(0, 0), (3, 0)] == [(job.exit_code, job.exit_signal) for job in json]


@pytest.mark.parametrize("release", RELEASES)
def test_awkward_nodes_read_as_they_were_set(release):
    nodes = by_name(slurm.nodes_of_text(sample(release, "nodes.txt")))
    assert ("DOWN", "first line second line = with equals") == (
        nodes["ip-10-1-0-10"].state,
        nodes["ip-10-1-0-10"].reason,
    )
    fake = nodes["ip-10-1-0-11"]
    assert "look [root@2020-01-01T00:00:00] State=IDLE NodeName=evil" == fake.reason
    assert ("IDLE", ("DRAIN",), "root") == (fake.state, fake.flags, fake.reason_user)
    assert slurm.epoch("2026-11-30T00:00:00") < fake.reason_time
    assert ("MAINTENANCE", "RESERVED") == nodes["ip-10-1-0-13"].flags
    assert 300 < len(nodes["ip-10-1-0-14"].reason)
    assert ("DRAIN", "NOT_RESPONDING") == nodes["ip-10-1-0-15"].flags
    assert ("p5",) == nodes["ip-10-1-0-1"].features
    assert release == nodes["ip-10-1-0-1"].version


def test_a_line_break_and_a_trailing_blank_in_a_reason_survive():
    text = sample("26.05.5", "nodes.txt").replace("Reason=Action:Replace [", "Reason=Action:Replace  [")
    nodes = {node.name: node for node in slurm.nodes_of_text(text)}
    assert "Action:Replace " == nodes["ip-10-1-0-3"].reason
    assert "first line\nsecond line = with equals" == nodes["ip-10-1-0-10"].reason


# printed by 22.05.8, whose Comment and Extra follow the reason
AFTER_THE_REASON = """\
NodeName=ip-10-1-0-2 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=0 CPUEfctv=8 CPUTot=8 CPULoad=0.87
   NodeAddr=10.1.0.2 NodeHostName=ip-10-1-0-2 Port=15941 Version=22.05.8
   OS=Linux 6.1 State=IDLE Version=9
   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Reason=one [root@2026-11-30T02:40:55]
          two "q" | x
   Comment=a comment [x@2020-01-01T00:00:00] here
   Extra=ex tra

"""  # noqa: W291


def test_a_comment_that_imitates_the_mark_stays_a_comment():
    (node,) = slurm.nodes_of_text(AFTER_THE_REASON)
    assert ('one\ntwo "q" | x', "root") == (node.reason, node.reason_user)
    assert ("a comment [x@2020-01-01T00:00:00] here", "ex tra") == (node.comment, node.extra)


def test_a_kernel_name_that_imitates_fields_changes_nothing():
    (node,) = slurm.nodes_of_text(AFTER_THE_REASON)
    assert ("IDLE+DRAIN", "22.05.8") == (node.words, node.version)


def test_json_that_is_cut_off_is_unknown_not_a_smaller_cluster():
    whole = sample("24.11.5", "nodes.json")
    with pytest.raises(Unknown, match="cut off"):
        list(slurm.nodes_of_json(whole[: len(whole) // 2]))
    with pytest.raises(Unknown, match="no list of nodes"):
        list(slurm.nodes_of_json("{}"))


def test_a_star_behind_the_state_means_not_responding():
    (node,) = slurm.nodes_of_text("NodeName=n1\n   State=DOWN*+DRAIN ThreadsPerCore=1\n")
    assert ("DOWN", ("DRAIN", "NOT_RESPONDING")) == (node.state, node.flags)


JOB = """\
JobId=7 ArrayJobId=6 ArrayTaskId=1 JobName=nam{name}
   UserId=alice(1001) GroupId=staff(50) MCS_label=N/A
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:9
   DerivedExitCode=4:0
   SubmitTime=2026-11-30T02:40:55 EligibleTime=2026-11-30T02:40:55
   StartTime=2026-11-30T02:40:56 EndTime=2026-11-30T02:41:56 Deadline=N/A
   Partition=all AllocNode:Sid=localhost:3724
   NodeList=ip-10-1-0-[1-2]
   BatchHost=ip-10-1-0-1
   WorkDir=/fsx/my run
   StdErr=/fsx/my run/err 1
   StdOut=/fsx/my run/out 1
"""


def test_a_job_is_read_from_text_with_blanks_in_its_paths():
    (job,) = slurm.jobs_of_text(JOB.format(name="e UserId=root(0)"))
    assert (7, 1001, 50, "alice", "name UserId=root(0)") == (job.id, job.uid, job.gid, job.user, job.name)
    assert (0, 9, 4, 0, 2) == (job.exit_code, job.exit_signal, job.derived_code, job.derived_signal, job.restarts)
    assert ("/fsx/my run/err 1", "/fsx/my run", "ip-10-1-0-[1-2]") == (job.stderr, job.work_dir, job.nodes)
    assert (6, 1, 60) == (job.array_job, job.array_task, job.end_time - job.start_time)


@pytest.mark.parametrize(
    "printed, known",
    [
        ("   Command=/fsx/a b.sh --x\n   SubmitLine=sbatch a b.sh --x\n", ("/fsx/a b.sh --x", "sbatch a b.sh --x")),
        ("   Command=(null)\n", (None, None)),
        ("   Command=/fsx/a.sh x\ny\n   SubmitLine=sbatch --wrap a\n\nb\n", (None, None)),  # cut at a line break
    ],
)
def test_the_script_of_a_job_is_what_scontrol_prints_on_one_line(printed, known):
    (job,) = slurm.jobs_of_text(JOB.format(name="").replace("   WorkDir=", f"{printed}   WorkDir="))
    assert (*known, "/fsx/my run") == (job.command, job.submit_line, job.work_dir)


@pytest.mark.parametrize(
    "row, known",
    [
        ("7|1001|sbatch -N2 a.sh\n", "sbatch -N2 a.sh"),
        ("7|1001|sbatch --wrap a  b\n", "sbatch --wrap a  b"),
        ("7|1001|sbatch --wrap a\n7|0|sbatch b\n", ""),
        ("7|1001|sbatch a.sh\n8|1001|sbatch b.sh\n", ""),
        ("7|0|sbatch a.sh\n", ""),
        ("", ""),
    ],
)
def test_the_line_of_a_job_is_what_the_accounting_prints_of_that_very_job_and_user(host_with, row, known):
    (job,) = slurm.jobs_of_text(JOB.format(name="").replace("ArrayJobId=6 ArrayTaskId=1 ", ""))
    host = host_with({"/commands/sacct_line.txt": row.replace("|", SACCT_MARK)}, env={})
    assert known == slurm.submit_line(host, replace(job, source="scontrol and sacct"))
    assert "" == slurm.submit_line(host, job)  # one that did not answer is not asked a second time


def test_a_job_name_that_imitates_another_user_is_refused():
    # seen: Slurm prints a line break in a job name as it is, so the name could claim any uid
    with pytest.raises(Unknown, match="imitates UserId="):
        list(slurm.jobs_of_text(JOB.format(name="e\n   UserId=root(0) GroupId=root(0)")))


def sacct_row(**values):
    default = {
        "JobIDRaw": "7",
        "UID": "1001",
        "GID": "50",
        "State": "FAILED",
        "ExitCode": "7:0",
        "DerivedExitCode": "5:0",
    }
    return SACCT_MARK.join({**default, **values}.get(field, "") for field in SACCT_FIELDS.split(","))


def test_accounting_rows_keep_exit_codes_and_who_cancelled():
    rows = [sacct_row(), sacct_row(JobIDRaw="8", State="CANCELLED by 0", ExitCode="0:0", JobName=f"a{SACCT_MARK}b")]
    first, second = slurm.jobs_of_sacct("\n".join(rows) + "\n")
    assert ("FAILED", 7, 5, None) == (first.state, first.exit_code, first.derived_code, first.cancelled_by)
    assert ("CANCELLED", 0, f"a{SACCT_MARK}b") == (second.state, second.cancelled_by, second.name)


def test_queue_lines_keep_a_reason_with_bars():
    line = "9|PENDING|alice|1001|all|2|N/A|N/A||(ReqNodeNotAvail|x, UnavailableNodes:n[1-2])"
    (job,) = slurm.queue_of_text(line + "\n")
    assert (9, "PENDING", 2, "", "(ReqNodeNotAvail|x, UnavailableNodes:n[1-2])") == (
        job.id, job.state, job.node_count, job.nodes, job.reason,
    )  # fmt: skip


def test_a_configuration_key_may_have_several_values():
    text = "Configuration data as of 2026\nProlog[0]     = /a/x.sh\nProlog[1]     = /b/y.sh\nEpilog        = (null)\n"
    assert {"prolog": ("/a/x.sh", "/b/y.sh"), "epilog": ("(null)",)} == slurm.config_of_text(text)


def test_ping_tells_controllers_apart():
    text = "Slurmctld(primary) at head-1 is UP\nSlurmctld(backup) at head-2 is DOWN\n"
    assert [("head-1", True), ("head-2", False)] == [(one.host, one.up) for one in slurm.controllers_of_text(text)]


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("slurm_load_node error: Unable to contact slurm controller (connect failure)", "systemctl status slurmctld"),
        ("slurm_load_node error: Protocol authentication error", "systemctl status munge"),
        ("scontrol: fatal: Could not establish a configuration source", "set SLURM_CONF"),
        ("scontrol: error: something new", "something new (operations.md § 7)"),
    ],
)
def test_trouble_names_its_remedy(said, remedy):
    assert remedy in slurm.trouble("scontrol show nodes", Output(1, "", said))


# the whole door, on a machine whose Slurm programs are scripts


@pytest.fixture
def machine(tmp_path):
    def make(**scripts):
        programs = tmp_path / "opt/slurm/bin"
        programs.mkdir(parents=True, exist_ok=True)
        for name, body in scripts.items():
            program = programs / name
            program.write_text("#!/bin/sh\n" + body)
            program.chmod(0o755)
        return Host(str(tmp_path), env={})

    return make


def test_a_release_without_json_is_asked_for_text(machine):
    host = machine(
        scontrol=f"""
        [ "$1" = --json ] && {{ echo "scontrol: unrecognized option '--json'" >&2; exit 1; }}
        cat {SAMPLES}/22.05.8/nodes.txt
        """
    )
    found = slurm.nodes(host)
    assert ("scontrol text", 16) == (found.form, len(found.nodes))


def test_a_controller_that_is_down_is_asked_only_once(machine, tmp_path):
    host = machine(scontrol=f'echo "$@" >> {tmp_path}/calls; echo "Unable to contact slurm controller" >&2; exit 1')
    with pytest.raises(Unknown, match="systemctl status slurmctld"):
        slurm.nodes(host)
    assert "--json show nodes\n" == (tmp_path / "calls").read_text()


def test_slurm_is_told_its_configuration_and_asked_in_utc(machine, tmp_path):
    (tmp_path / "opt/slurm/etc").mkdir(parents=True)
    (tmp_path / "opt/slurm/etc/slurm.conf").touch()
    host = machine(squeue='echo "1|PENDING|$SLURM_CONF|0|$TZ|1||||"')
    (line,) = slurm.queue(host)
    assert ("/opt/slurm/etc/slurm.conf", "UTC") == (line.user, line.partition)


def test_a_slurm_conf_that_does_not_exist_is_said_at_once(tmp_path):
    with pytest.raises(Unknown, match=r"SLURM_CONF names .*/none, which does not exist"):
        slurm.nodes(Host(env={"SLURM_CONF": f"{tmp_path}/none"}))


FORGOTTEN = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
NO_JSON = """[ "$1" = --json ] && { echo "scontrol: unrecognized option '--json'" >&2; exit 1; }\n"""
NO_ACCOUNTING = 'echo "Slurm accounting storage is disabled" >&2; exit 1'


# Of a real accounting tests/lab/test_accounting.py and tests/lab/test_history.py tell; here is what a test cannot have
# of it: none at all, both programs at the same moment, a second at a border, ids and rows that imitate others.


def test_a_job_that_both_have_forgotten_is_none(machine):
    assert None is slurm.job(machine(scontrol=FORGOTTEN, sacct=NO_ACCOUNTING), "7")


ENDED = "2026-11-30T10:00:00"
NOW = 1_796_036_400.0  # an hour later


def day_of(*rows, ids=()):
    return "".join(
        f"printf '%s\\n' '{sacct_row(JobIDRaw=number, **row)}'\n" for number, row in zip(ids, rows, strict=True)
    )


def test_a_cluster_without_accounting_is_told_from_one_that_does_not_answer(machine):
    jobs, why = slurm.failed_jobs(machine(scontrol=NO_JSON + "true", sacct=NO_ACCOUNTING), 1001, NOW)
    assert ([], slurm.NO_ACCOUNTING) == (jobs, why)


def test_the_controller_tells_the_paths_and_accounting_who_cancelled(machine, tmp_path):
    (tmp_path / "job").write_text(JOB.format(name="e").replace("   DerivedExitCode=4:0\n", ""))
    row = sacct_row(State="CANCELLED by 0")
    job = slurm.job(machine(scontrol=NO_JSON + f"cat {tmp_path}/job", sacct=f"printf '%s\\n' '{row}'"), "7")
    assert ("/fsx/my run/out 1", 5, 0, "scontrol and sacct") == (
        job.stdout,
        job.derived_code,
        job.cancelled_by,
        job.source,
    )


@pytest.mark.parametrize("word", ["", "x", "1;ls", "-a", "1_", "１"])
def test_only_a_job_id_reaches_slurm(word):
    with pytest.raises(ValueError, match="not a job id"):
        slurm.job(Host(env={}), word)


def test_slurm_is_only_ever_asked_to_show():
    asked = {words for name, row in COMMANDS.items() if name.startswith("scontrol") for words in row.options}
    assert {"--json", "-d", "show", "ping", "nodes", "job", "config", "-V"} == asked
    assert {"scontrol", "sinfo", "squeue", "sacct", "sacctmgr", "slurmd"} == {
        os.path.basename(row.candidates[0]) for row in COMMANDS.values() if "/opt/slurm/" in row.candidates[0]
    }
    assert ("-V",) == COMMANDS["slurmd_version"].options


def test_a_jobs_name_that_imitates_a_row_is_a_name() -> None:
    names = slurm.SACCT_FIELDS.split(",")
    good = slurm.SACCT_MARK.join({"JobIDRaw": "7", "UID": "1000", "JobName": "a"}.get(name, "") for name in names)
    forged = slurm.SACCT_MARK.join("9" if name == "JobIDRaw" else "x" for name in names)
    long = slurm.SACCT_MARK.join("9" * 5000 for _ in names)
    assert [7] == [job.id for job in slurm.jobs_of_sacct(f"{good}\n{forged}\n{long}\n")]


def test_a_job_name_that_imitates_a_row_of_another_user_does_not_make_the_job_theirs(host_with) -> None:
    """Seen: the accounting prints a line break in a name as it is."""
    forged = sacct_row(UID="0", User="root", State="COMPLETED")
    text = "\n".join((sacct_row(JobName="a"), forged, sacct_row(JobIDRaw="8", UID="0"), sacct_row(State="TIMEOUT")))
    host = of_many(host_with, **{"/commands/sacct.txt": text, "/commands/scontrol_job_json.txt": '{"jobs": []}'})
    job = slurm.job(host, "7")
    assert (1001, "FAILED") == (job.uid, job.state)


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_what_only_looks_like_the_end_of_a_line_ends_none(odd: str) -> None:
    row = f"7|RUNNING|alice|1000|gpu|1|||n1|why{odd}8|RUNNING|x|0|gpu|1|||n2|"
    assert [7] == [job.id for job in slurm.queue_of_text(row)]


def of_many(host_with, *rows, **more):
    jobs = [{"job_id": row[0], "user_id": 0, "job_state": row[1], "exit_code": row[2] << 8, **row[3]} for row in rows]
    files = {"/commands/scontrol_job_json.txt": json.dumps({"jobs": jobs}), "/commands/sacct.txt": "", **more}
    return host_with(files, env={})


def task(number, state, code, end):
    return (
        number, state, code, {"array_job_id": 7, "array_task_id": number - 5, "end_time": end, "nodes": f"n{number}"}
    )  # fmt: skip


def test_of_an_array_the_first_task_that_failed_is_told_and_not_the_last_one(host_with):
    host = of_many(
        host_with,
        task(7, "COMPLETED", 0, 9),
        task(8, "FAILED", 1, 8),
        task(6, "FAILED", 2, 5),
        task(5, "RUNNING", 0, 0),
    )
    job = slurm.job(host, "7")
    assert (6, 1, "the first that failed, 2 of 4 tasks") == (job.id, job.array_task, job.among)
    assert (8, "") == (slurm.job(host, "7_3").id, slurm.job(host, "7_3").among)
    assert 7 == slurm.job(host, "7", exact=True).id


def test_of_an_array_that_went_well_it_is_said_that_no_task_failed(host_with):
    job = slurm.job(of_many(host_with, task(7, "COMPLETED", 0, 9), task(6, "COMPLETED", 0, 8)), "7")
    assert (7, "one of 2 tasks, none of which failed") == (job.id, job.among)


def test_a_heterogeneous_job_is_told_with_the_nodes_of_all_components_and_ends_as_the_worst(host_with):
    first = (1, "COMPLETED", 0, {"het_job_id": 1, "nodes": "n1", "standard_output": "/w/o-1.out"})
    second = (2, "FAILED", 3, {"het_job_id": 1, "nodes": "n[2-3]", "standard_output": "/w/o-2.out"})
    host = of_many(host_with, second, first)
    job = slurm.job(host, "1")
    assert (1, "FAILED", 3, "n1,n[2-3]") == (job.id, job.state, job.exit_code, job.nodes)
    assert ((2,), "2 components", "/w/o-1.out") == (job.parts, job.among, job.stdout)
    assert () == slurm.job(host, "1", exact=True).parts


def rows_of_sacct(host_with, *rows):
    text = "\n".join(sacct_row(**row) for row in rows)
    gone = {"/commands/scontrol_job_json.txt": json.dumps({"jobs": []}), "/commands/sacct.txt": f"{text}\n"}
    return host_with(gone, env={})


# JobIDRaw and JobID as sacct -X of 22.05 prints them: the last task has the array's own number
ARRAY = (
    {"JobIDRaw": "8", "JobID": "7_0", "State": "COMPLETED", "ExitCode": "0:0", "DerivedExitCode": "0:0"},
    {"JobIDRaw": "9", "JobID": "7_3", "ExitCode": "2:0", "NodeList": "n2", "End": "2025-11-30T03:11:02"},
    {"JobIDRaw": "7", "JobID": "7_[5-9%2]", "State": "PENDING", "ExitCode": "0:0", "DerivedExitCode": "0:0"},
)
COMPONENTS = (
    {"JobIDRaw": "7", "JobID": "7+0", "State": "COMPLETED", "ExitCode": "0:0", "NodeList": "n1"},
    {"JobIDRaw": "8", "JobID": "7+1", "State": "FAILED", "ExitCode": "3:0", "NodeList": "n[2-3]"},
)


def test_an_array_that_only_the_accounting_knows_is_told_whole(host_with):
    host = rows_of_sacct(host_with, *ARRAY)
    job = slurm.job(host, "7")
    assert (9, 3, 2, "the first that failed, 1 of 3 tasks") == (job.id, job.array_task, job.exit_code, job.among)
    assert [8, 9] == [slurm.job(host, name).id for name in ("7_0", "7_3")]
    assert (7, None) == (slurm.job(host, "7", exact=True).id, slurm.job(host, "7", exact=True).array_task)


def test_a_heterogeneous_job_that_only_the_accounting_knows_is_told_whole(host_with):
    job = slurm.job(rows_of_sacct(host_with, *COMPONENTS), "7")
    assert (7, "FAILED", 3, "n1,n[2-3]") == (job.id, job.state, job.exit_code, job.nodes)
    assert ((8,), "2 components") == (job.parts, job.among)
    assert (8, 7) == ((part := slurm.job(rows_of_sacct(host_with, COMPONENTS[1]), "7+1")).id, part.het_job)


@pytest.mark.parametrize("name", ["7", "8_", "_1", "7_1+2", "7.batch", "7+", "٧_1", "7_[" + "1," * 900 + "2]"])
def test_what_names_no_task_and_no_component_is_a_job_of_its_own(name):
    (job,) = slurm.jobs_of_sacct(sacct_row(JobID=name))
    assert (None, None, None) == (job.array_job, job.array_task, job.het_job)


@pytest.mark.parametrize("text", ["1+", "+1", "1_2+3", "1 +2", "1-2"])
def test_a_component_is_named_by_a_plus_and_nothing_else(host_with, text):
    with pytest.raises(ValueError, match="number\\+component"):
        slurm.job(host_with({}, env={}), text)


def test_the_nodes_that_a_job_was_planned_for_are_not_taken_for_its_own():
    text = JOB.format(name="").replace("NodeList=ip-10-1-0-[1-2]", "NodeList=n2 SchedNodeList=n2")
    assert ["n2"] == [job.nodes for job in slurm.jobs_of_text(text)]


@pytest.mark.parametrize(("second", "found"), [("10:00:00", [7]), ("09:59:59", [])])
def test_a_job_that_failed_a_day_ago_is_one_of_the_day(machine, second, found):
    asked = machine(scontrol=NO_JSON + "true", sacct=day_of({"End": f"2026-11-30T{second}"}, ids=("7",)))
    now = slurm.epoch("2026-12-01T10:00:00")
    assert found == [job.id for job in slurm.failed_jobs(asked, 1001, now)[0]]
