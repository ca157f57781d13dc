"""Ten situations, and what the first screen says of each: its first line, and how long it is."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hpslurm import cli
from hpslurm.core import records, suggest
from hpslurm.core.finding import LOOK, P0, P1, Event, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import FAIL, PASS, Result
from hpslurm.core.records import Record
from hpslurm.job import cause, first_screen, report
from hpslurm.job.report import JobReport
from hpslurm.scan import joblog
from hpslurm.scan.collect import Collector
from hpslurm.show.render import as_wide_as
from hpslurm.show.screen import COLUMNS, LINES
from hpslurm.sources.slurm import SlurmJob
from tests.aws_server import serve
from tests.cluster.aws.test_checks import scenario

Screen = list[str]
CONFIG = "Prolog = /opt/hpslurm/prolog.d/hpslurm.sh\nEpilog = /opt/hpslurm/epilog.d/hpslurm.sh\nPrologFlags = Alloc\n"


def shown(*words: str) -> Screen:
    """What a command prints on a terminal of 100 columns."""
    done = CliRunner().invoke(cli.group, words, env={"COLUMNS": "100"}, standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.stdout.splitlines()


def fits(screen: Screen) -> bool:
    """Only a command to type may be longer than a line; it takes two then."""
    wide = [line for line in screen if len(line) > COLUMNS and not line.startswith(" " * 9)]
    return not wide and sum(-(-len(line) // COLUMNS) or 1 for line in screen) <= LINES


# diagnose, on a saved controller


@pytest.fixture
def controller(tmp_path: Path, write: Callable[..., Path]) -> Callable[..., Screen]:
    """``diagnose`` where Slurm has these nodes: name -> state, reason; and where those of ``seen`` left a record."""

    def diagnose(
        nodes: dict[str, tuple[str, str]], *words: str, seen: dict[str, list[Finding]] | None = None
    ) -> Screen:
        listed = [
            {"name": name, "state": state.split("+"), "reason": reason, "partitions": ["all"]}
            for name, (state, reason) in nodes.items()
        ]
        write("commands/scontrol_nodes_json.txt", json.dumps({"nodes": listed}))
        write("commands/squeue.txt", "")
        write("commands/scontrol_ping.txt", "Slurmctld(primary) at head is UP\n")
        write("commands/scontrol_config.txt", CONFIG)
        for name, findings in (seen or {}).items():
            keep(str(tmp_path / "var/lib/hpslurm"), name, findings)
        return shown("diagnose", "--root", str(tmp_path), "--policy", "/nonexistent", *words)

    return diagnose


def keep(results: str, node: str, findings: Iterable[Finding], hook: str = "prolog", job: str = "") -> None:
    """A record of the node with these findings."""
    found = tuple(findings)
    writer = records.Writer(results, node, hook, job)
    outcome = [Result("efa", FAIL if found else PASS, findings=found), Result("shm", PASS)]
    for line in records.lines(Policy(node=node), {"SLURM_JOB_ID": job}, hook, outcome):
        writer.write(line)
    writer.close()


GONE = Rule("gpu-lost", P0, "GPU lost", "debugging-guide.md § 7", "gpu_fell_off_bus")
FULL = Rule("shm-full", P1, "/dev/shm nearly full", "debugging-guide.md § 17")


def lost(detail: str = "1 of 8 GPUs lost: 0000:b9:00.0") -> Finding:
    steps = (Suggestion(LOOK, "see the kernel log", "srun -w {nodes} sudo dmesg -T"), suggest.save_evidence())
    return GONE.found(detail, suggest=[*steps, suggest.drain("gpu-lost"), suggest.reboot("it may come back")])


IDLE = ("IDLE", "")


def test_1_a_healthy_cluster(controller: Callable[..., Screen]) -> None:
    screen = controller({"n1": IDLE, "n2": IDLE}, seen={"n1": [], "n2": []})
    assert fits(screen)
    assert ("[PASS] Cluster: no trouble found on 2 nodes", True) == (screen[0], len(screen) <= 8), screen


def test_2_one_sick_node(controller: Callable[..., Screen]) -> None:
    screen = controller({"n1": IDLE, "n2": IDLE}, seen={"n1": [], "n2": [lost()]})
    assert fits(screen)
    assert "[FAIL] Cluster: 1 of 2 nodes needs attention" == screen[0]
    assert "Next      sudo scontrol update nodename=n2 state=drain reason='hpslurm: gpu-lost'" in screen
    assert ["n2", "P0", "gpu-lost: 1 of 8 GPUs lost: 0000:b9:00.0", "reboot"] in [
        re.split(" {2,}", line) for line in screen
    ]
    assert len(screen) <= 25


HALF = {f"ip-10-1-0-{number}": IDLE for number in range(1, 21)}


def test_6_half_the_cluster_down_by_one_cause(controller: Callable[..., Screen]) -> None:
    screen = controller(HALF, seen={name: [lost()] if number < 10 else [] for number, name in enumerate(HALF)})
    assert fits(screen)
    assert "[FAIL] Cluster: 10 of 20 nodes need attention, 1 trouble of the cluster itself" == screen[0]
    assert screen[1].startswith("Cause     10 of 20 nodes are in trouble at once")
    row = next(line for line in screen if line.startswith("ip-10-1-0-[1-10]"))
    assert row.endswith("  drain")  # the reboots are taken back: one cause is likelier
    assert len(screen) <= 20


def test_7_a_node_that_hyperpod_replaces(controller: Callable[..., Screen]) -> None:
    nodes = {"n1": IDLE, "n2": ("IDLE+DRAIN+FAIL", "Action:Replace")}
    screen = controller(nodes, seen={"n1": [], "n2": [lost()]})
    assert fits(screen)
    row = next(line for line in screen if line.startswith("n2 "))
    assert row.endswith("  wait")
    assert "[FAIL] Cluster: 1 of 2 nodes waits for HyperPod" == screen[0]
    assert not [line for line in screen if line.startswith("Next")]
    assert not [line for line in screen if "nodename=n2" in line]


def test_7_a_node_that_needs_a_person_comes_before_one_that_waits(controller: Callable[..., Screen]) -> None:
    nodes = {"n1": IDLE, "n2": ("IDLE+DRAIN+FAIL", "Action:Replace")}
    screen = controller(nodes, seen={"n1": [lost()], "n2": [lost()]})
    assert "[FAIL] Cluster: 1 of 2 nodes needs attention, 1 waits for HyperPod" == screen[0]
    assert "Worst     n1: gpu-lost: 1 of 8 GPUs lost: 0000:b9:00.0" in screen


def test_7_a_single_plan_is_shown_in_full_where_there_is_room(controller: Callable[..., Screen]) -> None:
    screen = controller({"n1": IDLE, "n2": IDLE}, "--node", "n2", seen={"n1": [], "n2": [lost()]})
    assert fits(screen)
    assert "Plan for n2:" in screen
    assert ["  1. look:", "  2. look:", "  3. drain:", "  4. reboot:"] == [
        re.match(r"  \d\. \w+:", line)[0]
        for line in screen
        if re.match(r"  \d\. ", line)  # type: ignore[index]
    ]


def test_8_aws_denies_everything(tmp_path: Path) -> None:
    with serve(scenario("healthy", trouble=[{"operation": "*", "kind": "denied"}])):
        words = ("--cluster", "demo", "--no-slurm", "--root", str(tmp_path), "--policy", "/nonexistent")
        screen = shown("diagnose", *words)
    assert fits(screen)
    assert "[WARN] Cluster: no node could be looked at" == screen[0]
    assert "grant sagemaker:DescribeCluster, operations.md § 2" in " ".join(" ".join(screen).split())


def test_9_no_records(controller: Callable[..., Screen]) -> None:
    screen = controller({"n1": IDLE, "n2": IDLE})
    assert fits(screen)
    assert screen[0].startswith("[WARN] Cluster: no trouble in what could be checked on 2 nodes")
    assert "2 of 2 nodes left no record" in " ".join(" ".join(screen).split())


KINDS = 30


def test_10_ten_thousand_nodes_of_which_500_are_sick_in_30_ways(controller: Callable[..., Screen]) -> None:
    """Slurm's side of it: reasons that people and programs wrote, no two alike."""
    chance = random.Random(1)
    nodes = {f"ip-10-{number // 65536}-{number // 256 % 256}-{number % 256}": IDLE for number in range(10_000)}
    for number, name in enumerate(chance.sample(sorted(nodes), 500)):
        xid, gpu, ticket = 40 + number % KINDS, chance.randrange(8), chance.randrange(10_000)
        nodes[name] = ("IDLE+DRAIN", f"Xid {xid} on GPU {gpu}, ticket INC-{ticket}")
    began = time.monotonic()
    screen = controller(nodes)
    assert fits(screen)
    assert "[FAIL] Cluster: 500 of 10,000 nodes need attention" == screen[0]
    rows = [line for line in screen if re.search(r" P1 .*Xid \d\d on GPU …, ticket ?…", line)]
    assert len(rows) >= 25
    assert time.monotonic() - began < 30


# report


def job(state: str = "FAILED", **more: Any) -> SlurmJob:
    known = {"exit_code": 1, "nodes": "n[1-3]", "start_time": 1_800_000_000, "end_time": 1_800_008_040}
    return SlurmJob(4711, "train", "alice", 1000, 1000, state, **{**known, "source": "scontrol", **more})


def record(node: str, hook: str, *findings: Finding, whole: bool = True) -> Record:
    result = Result("gpu", FAIL if findings else PASS, findings=tuple(findings))
    named = tuple(Finding(one.rule, one.detail, one.evidence, one.suggestions, node) for one in findings)
    return Record(node, hook, {"time": 1.0}, (Result(result.probe, result.outcome, findings=named),), (), {}, whole)


def known(about: SlurmJob | None, *found: Record, why: str = "") -> JobReport:
    seen = report.view(found, report.nodes_of(about))
    return JobReport("4711", about, why, found, (), seen, seen.findings)


def ended(about: SlurmJob, log: str, tmp_path: Path, *found: Record) -> cause.Cause:
    """The job's output read as hpslurm reads it, and its nodes' records."""
    path = tmp_path / "slurm-4711.out"
    path.write_text(log)
    collector = Collector()
    collector.add(str(path))
    counted = report.view(found, report.nodes_of(about)).findings
    return cause.judged(about, joblog.Found(tuple(collector.result()), (), (str(path),)), found, counted)


def told(about: JobReport, why: cause.Cause | None, now: float = 1_900_000_000.0) -> Screen:
    with as_wide_as(100):
        return [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in first_screen.lines(about, why, now)]


VICTIMS = "".join(
    f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:93, remote process exited or "
    "there was a network error\n"
    for rank in (0, 1, 3)
)
BEFORE = FULL.found("/dev/shm 96 % used", suggest=[Suggestion(LOOK, "who uses it", "srun -w {nodes} ls -l /dev/shm")])


def of_all(hook: str, **findings: Finding) -> list[Record]:
    return [record(node, hook, *([findings[node]] if node in findings else [])) for node in ("n1", "n2", "n3")]


def test_3_a_job_that_died_with_a_culprit(tmp_path: Path) -> None:
    found = [*of_all("prolog", n3=BEFORE), *of_all("epilog", n2=lost(), n3=BEFORE)]
    screen = told(known(job(), *found), ended(job(), "step 9 loss 2.0\n" + VICTIMS, tmp_path, *found))
    assert fits(screen)
    first = " ".join(" ".join(screen[:2]).split())
    assert first.startswith("[FAIL] Job 4711 (train) of alice: FAILED after 2 h 14 min on n[1-3]: ")
    assert "gpu_fell_off_bus on n2 (" in first
    assert "Again     sbatch --exclude=n2 JOBSCRIPT" in screen
    assert "Next      sudo scontrol update nodename=n2 state=drain reason='hpslurm: gpu-lost'" in screen
    assert "follow from it: peer_exit" in " ".join(screen)
    cut = screen.index("Also seen, there before the job:")
    assert [True, False] == ["n2    P0" in "\n".join(part) for part in (screen[:cut], screen[cut:])]
    assert "n3    P1" in "\n".join(screen[cut:])
    assert "node record:0" not in "\n".join(screen)


def test_4_a_job_that_died_without_one(tmp_path: Path) -> None:
    found = [*of_all("prolog"), *of_all("epilog")]
    screen = told(known(job(), *found), ended(job(), "step 9 loss 2.0\n", tmp_path, *found))
    assert fits(screen)
    assert (
        "[WARN] Job 4711 (train) of alice: FAILED, exit code 1 after 2 h 14 min on n[1-3]: the cause is not"
        == screen[0]
    )
    assert "--exclude" not in "\n".join(screen)
    assert "name them (--output)" in " ".join(" ".join(screen).split())


def test_5_a_job_that_hung_and_was_cancelled(tmp_path: Path) -> None:
    about = job("CANCELLED", exit_code=0, exit_signal=15)
    found = [*of_all("prolog"), *of_all("epilog")]
    log = "step 9 loss 2.0\nslurmstepd-n1: error: *** STEP 4711.0 ON n1 CANCELLED AT 2027-01-15T10:14:00 ***\n"
    screen = told(known(about, *found), ended(about, log, tmp_path, *found))
    assert fits(screen)
    assert " CANCELLED after 2 h 14 min on n[1-3]: " in screen[0]
    assert "Again     sbatch JOBSCRIPT" in screen


def test_a_job_that_went_well_on_a_sick_node_says_so_and_names_the_node() -> None:
    about = job("COMPLETED", exit_code=0)
    found = [*of_all("prolog", n2=lost()), *of_all("epilog", n2=lost())]
    screen = told(known(about, *found), None)
    assert screen[0].startswith("[WARN] Job 4711 (train) of alice: COMPLETED after 2 h 14 min on n[1-3]; trouble was")
    assert "Avoid     --exclude=n2" in screen
    assert "Again" not in "\n".join(screen)


def test_a_job_that_went_well_on_healthy_nodes_is_two_lines_at_most() -> None:
    found = [*of_all("prolog"), *of_all("epilog")]
    screen = told(known(job("COMPLETED", exit_code=0), *found), None)
    assert (
        "[PASS] Job 4711 (train) of alice: COMPLETED after 2 h 14 min on n[1-3]; nothing found on its nodes"
        == screen[0]
    )
    assert len(screen) <= 2


def test_while_the_epilog_runs_what_is_missing_is_said() -> None:
    about = job("COMPLETING")
    found = [*of_all("prolog"), record("n1", "epilog"), record("n2", "epilog", whole=False)]
    text = " ".join(" ".join(told(known(about, *found), None)).split())
    assert "the epilog has not finished on n[2-3]: what these nodes saw at the end is missing" in text
    over = [*of_all("prolog"), record("n1", "epilog")]
    assert "has not finished on n[2-3]" in " ".join(told(known(job(), *over), None, now=1_800_008_060.0))
    assert "has not finished" not in " ".join(told(known(job(), *over), None))  # long ago: it left none


def test_a_report_of_one_node_leaves_the_others_out() -> None:
    found = [*of_all("epilog", n2=lost(), n3=BEFORE)]
    only = report.of_nodes(known(job(), *found), {"n3"})
    assert ["n3"] == [one.subject for one in only.named]
    text = "\n".join(told(only, None))
    assert "Again" not in text and "--exclude" not in text  # n2 is as sick, and nobody asked for it


def test_an_event_of_a_record_is_placed_in_words() -> None:
    from hpslurm.show import diagnosis

    event = Event("finding:gpu-lost", "root", "node record", 0, "1 of 8 GPUs lost", host="n2")
    assert "found by hpslurm on n2" == diagnosis.origin(event)
    assert "Slurm's state of job 4711" == diagnosis.origin(Event("job-state", "root", "job 4711", 0, "Slurm: TIMEOUT"))
    assert "a.log:7" == diagnosis.origin(Event("oom", "root", "a.log", 7, "x"))


def test_without_a_job_id_the_newest_that_failed_is_explained_and_the_others_are_listed(
    tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = int(time.time())
    jobs = [
        {"job_id": number, "name": f"train{number}", "user_name": "alice", "user_id": 0, "job_state": [state],
         "end_time": now - number, "start_time": now - 4000, "nodes": "n[1-2]", "exit_code": {"return_code": 1}}
        for number, state in ((7, "FAILED"), (8, "TIMEOUT"), (9, "COMPLETED"))
    ]  # fmt: skip
    write("commands/scontrol_job_json.txt", json.dumps({"jobs": jobs}))
    write("commands/sacct.txt", "")
    keep(str(tmp_path / "results"), "n1", [lost()], "epilog", "7")
    screen = shown(
        "report", "--root", str(tmp_path), "--results", str(tmp_path / "results"), "--policy", "/nonexistent"
    )
    assert fits(screen)
    assert screen[0].startswith("[FAIL] Job 7 (train7) of alice: FAILED after 66 min on n[1-2]: ")
    assert "Also failed or cancelled in the last 24 h (1):" in screen
    assert ["8", "TIMEOUT", "train8 of alice", "n[1-2]"] == next(
        re.split(" {2,}", line)[1:] for line in screen if "TIMEOUT" in line
    )


def test_without_a_job_that_failed_there_is_nothing_to_explain(tmp_path: Path, write: Callable[..., Path]) -> None:
    write("commands/scontrol_job_json.txt", '{"jobs": []}')
    write("commands/sacct_day_all.txt", "")
    write("commands/sacct_day.txt", "")
    said = " ".join(shown("report", "--root", str(tmp_path), "--policy", "/nonexistent"))
    assert "[PASS] no job failed, hung or was cancelled in the last 24 h; of another one: hpslurm report JOBID" == said


def test_the_report_is_a_page_too(tmp_path: Path) -> None:
    from hpslurm.job import report_view

    found = [*of_all("prolog", n3=BEFORE), *of_all("epilog", n2=lost(), n3=BEFORE)]
    about, why = known(job(), *found), ended(job(), "step 9 loss 2.0\n" + VICTIMS, tmp_path, *found)
    text = report_view.page_of(about, why, report_view.results_of(about, why), 1_900_000_000.0)
    assert "<title>hpslurm report · job 4711</title>" in text
    assert "gpu_fell_off_bus on n2" in text
    assert '<pre class="command">sbatch --exclude=n2 JOBSCRIPT</pre>' in text
    assert "\x1b" not in text
    heads = re.findall(r"<h2>(.*?)</h2>|<h3>P\d · (n\d)", text)
    assert ["What to do, by node", "n2", "Also seen, there before the job", "n3"] == [a or b for a, b in heads][1:5]
    assert f'<b class="ok">{about.seen.passed}</b>checks passed' in text
    assert about.seen.passed > 0
    assert "node record:0" not in text
    assert re.findall(r"■</span> (n\d)</td>", text) == ["n2", "n3", "n1"]


def test_a_job_on_a_thousand_sick_nodes_fits_the_screen(tmp_path: Path) -> None:
    names = [f"ip-10-{number % 7}-{number % 11}-{number}" for number in range(1000)]
    about = job(nodes=",".join(names))
    found = [record(name, "epilog", lost(f"1 of 8 GPUs lost: GPU {number % 8}")) for number, name in enumerate(names)]
    screen = told(known(about, *found), ended(about, VICTIMS, tmp_path, *found))
    assert fits(screen)
    assert " on 1,000 nodes: gpu_fell_off_bus on ip-10-" in " ".join(" ".join(screen[:2]).split())
    assert "Avoid     1,000 nodes, those with P0 below" in screen
    assert [line for line in screen if line.startswith("Next      hpslurm report 4711 --node ip-10-")]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h 0 min"), (8040, "2 h 14 min")],
)
def test_how_long_a_job_lasted(seconds: int, said: str) -> None:
    assert said == first_screen.duration(seconds)


@pytest.mark.parametrize(("count", "more"), [(9, []), (10, ["… and 1 more"])])
def test_nine_other_jobs_of_the_day_are_named(count: int, more: list[str]) -> None:
    rows = first_screen.others([job()] * count, "")
    assert (9, more) == (sum("4711" in row for row in rows), rows[2 + 9 :])


@pytest.mark.parametrize(("letters", "said"), [(40, "n" * 40), (41, "1 node")])
def test_a_long_list_of_nodes_is_counted(letters: int, said: str) -> None:
    assert said == first_screen._where(job(nodes="n" * letters))
