"""``history`` with a real slurmdbd and MariaDB, and a real Prometheus that scrapes what is known of the same lab.

One lab for all: real jobs, a node that really went down, what its epilogs and report found out. Its tests build on
each other's state, in this order.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_metrics import queries
from tests.lab import accounting, prepare, processes
from tests.lab.fixtures import why_not
from tests.lab.lab import SHARED, Lab, LabError, new_folder, wait_until
from tests.lab.test_guide_commands import commands

pytestmark = pytest.mark.lab
PROGRAM = (sys.executable, "-c", "from hpslurm.cli import main; main()")
LOG = "n2: NVRM: GPU at PCI:0000:b9:00: fallen off the bus and is not responding to commands."
REFUSES = ("allowed number of columns (=0)", "_check_mysql_concat_is_sane")  # for every query of slurmdbd
FORGETS = "MinJobAge=2\n"
FREE = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback goes through no proxy


@dataclass
class Month:
    """The lab, and its jobs by what befell them."""

    lab: Lab
    named: str
    crashed: str
    cancelled: str
    lost: str

    @property
    def results(self) -> str:
        return self.lab.path("shared")

    def hpslurm(self, *words: str) -> str:
        return told_by(self.lab, *words)

    def history(self, *words: str) -> list[dict[str, Any]]:
        told = self.hpslurm("history", "--no-aws", "--json", "--results", self.results, *words)
        return [json.loads(line) for line in told.splitlines()]

    def ask(self, code: str) -> str:
        return asked_of(self.lab, code)


@pytest.fixture(scope="module")
def month() -> Iterator[Month]:
    if reason := why_not():
        pytest.skip(reason)
    if accounting.missing():
        pytest.skip("needs slurmdbd and MariaDB (`make test` as root installs them)")
    words: dict[str, Any] = {"nodes": 3, "hooks": ("prolog", "epilog"), "machines": {"n2": {"efa": 16}}}
    folder = new_folder()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        lab = with_accounts(
            lambda **more: stack.enter_context(Lab(folder, policy=SHARED, **words, **more)), conf=FORGETS
        )
        named = lab.submit("-N3", "-J", "a|b\nc", "--wrap", f"echo '{LOG}'; exit 3")
        lab.wait_for_job(named)
        crashed = lab.submit("-w", "n3", "--wrap", "kill -SEGV $$")
        lost = lab.submit("-w", "n1", "--no-requeue", "--wrap", "sleep 60")
        cancelled = lab.submit("-w", "n2", "--wrap", "sleep 60")
        lab.wait_for_job(lost, "RUNNING")
        lab.run("scontrol", "update", "nodename=n1", "state=down", "reason=it is | gone", check=True)
        lab.run("scancel", cancelled, check=True)
        wait_for_accounts(lab, 4)
        yield Month(lab, named, crashed, cancelled, lost)


def with_accounts(make_lab: Callable[..., Lab], **settings: object) -> Lab:
    """A lab with slurmdbd; skips where that ends at once with the system's MariaDB library (11.8.9 does that)."""
    try:
        return make_lab(keeps_accounts=True, **settings)
    except LabError as error:
        if not any(words in str(error) for words in REFUSES):
            raise
        pytest.skip("slurmdbd ends at once with the MariaDB library of this system (11.8.9 does that)")


def wait_for_accounts(lab: Lab, count: int) -> None:
    """slurmctld hands jobs on to slurmdbd a moment after their end."""
    words = ("sacct", "-a", "-X", "-n", "-P", "--format=State,End", "--starttime=2020-01-01")
    wait_until(
        lambda: sum("Unknown" not in line for line in lab.run(*words).stdout.splitlines()) >= count,
        f"slurmdbd knows the end of {count} jobs",
    )


def forgotten(lab: Lab, job: str) -> bool:
    return "Invalid job id" in lab.run("scontrol", "show", "job", job).stderr


def kept(month: Month, pattern: str) -> list[dict[str, Any]]:
    """Lines of the index of diagnoses."""
    paths = Path(month.results, "diagnoses").glob(pattern)
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_the_epilog_keeps_why_a_job_failed_and_history_needs_no_report(month: Month) -> None:
    wait_until(lambda: kept(month, "*/*.jsonl"), "an epilog keeps why the job failed")
    told = {(line["job"], line["node"]): line for line in kept(month, "*/*.jsonl")}
    line = told[int(month.named), "n1"]
    assert ("gpu_fell_off_bus", "n2", "3:0") == (line["cause"], line["culprit"]["host"], line["exit_code"])
    # no hardware went, and the others' output holds at most Slurm's own word of how they ended
    others = {line["cause"] for (job, node), line in told.items() if (job, node) != (int(month.named), "n1")}
    assert others <= {"node_fail", "job_cancelled"}, told
    nodes = {line["node"]: line for line in month.history() if line["type"] == "node_history"}
    assert ({"gpu_fell_off_bus": 1}, 1) == (nodes["n2"]["causes"], nodes["n2"]["named"])


def test_real_accounting_tells_of_jobs_and_nodes(month: Month) -> None:
    month.hpslurm("report", month.named, "--results", month.results)  # root, so it is kept
    lines = month.history()
    nodes = {line["node"]: line for line in lines if line["type"] == "node_history"}
    # the word of the accounting, or of what the epilog read in the job's output, if that was there in time
    assert nodes["n1"]["causes"] in ({"NODE_FAIL": 1}, {"node_fail": 1})
    assert 1 == nodes["n1"]["named"]
    assert {"ended by signal 11": 1} == nodes["n3"]["causes"]
    assert [int(month.crashed)] == nodes["n3"]["job_ids"]
    assert [int(month.named)] == nodes["n2"]["job_ids"]  # and not the one that was cancelled
    assert [] == [line for line in lines if line["type"] == "result" and line["outcome"] == "unknown"]
    assert any("it is | gone" in trace["text"] for trace in nodes["n1"]["evidence"])
    assert [int(month.named)] == [line["job"] for line in kept(month, "*.jsonl")]


def test_the_readers_of_single_jobs_know_those_that_the_controller_forgot(month: Month) -> None:
    for job in (month.crashed, month.cancelled, month.lost):
        wait_until(partial(forgotten, month.lab, job), f"slurmctld forgets job {job}")
    show = "job = slurm.job(Host(), '{}')\nprint(job.state, job.exit_code, job.exit_signal, job.nodes, job.source, {})"
    assert "FAILED 0 11 n3 sacct None" == month.ask(show.format(month.crashed, "job.cancelled_by"))
    assert "CANCELLED 0 0 n2 sacct 0" == month.ask(show.format(month.cancelled, "job.cancelled_by"))
    assert month.ask(show.format(month.lost, "None")).startswith("NODE_FAIL ")
    failed = month.ask("jobs, why = slurm.failed_jobs(Host(), 0, time.time())\nprint([why, *jobs])")
    for job in (month.named, month.crashed, month.cancelled, month.lost):
        assert f"id={job}," in failed
    assert month.ask("print(slurm.job(Host(), '4711'))") == "None"


def test_what_the_guide_asks_the_accounting_works_as_printed(month: Month) -> None:
    asked = [command for command in commands() if re.match(r"sacct(mgr)?\b", command)]
    assert len(asked) >= 5
    for command in asked:
        done = month.lab.run("sh", "-c", command.replace("@JOB@", month.named))
        assert (0, "") == (done.returncode, done.stderr), command
        assert ("lab" if command.startswith("sacctmgr") else "FAILED") in done.stdout, command


def test_a_real_prometheus_answers_every_query_of_the_dashboard(month: Month, tmp_path: Path) -> None:
    program = prepare.prometheus()
    if not program:
        pytest.skip("needs prometheus (`make test` takes it out of Debian's package)")
    month.history("--keep")
    text = month.hpslurm("metrics", "--results", month.results)
    with serves(text) as port, scraped(program, tmp_path, port) as query:
        wait_until(lambda: query("hpslurm_record"), "Prometheus has read the records")
        assert [["3"]] == [row["value"][1:] for row in query("sum(hpslurm_nodes)")]
        findings = {(row["metric"]["node"], row["metric"]["rule"]) for row in query("hpslurm_finding")}
        assert ("n2", "efa-missing") in findings
        answers = {name: query(expression) for name, expression in queries().items()}
        last = query("time() - hpslurm_history_timestamp_seconds")
        assert 0 < float(last[0]["value"][1]) < 600
    # nobody waits on a GPU in this lab, no hook was cut off, and no node is a suspect after so few jobs
    empty = {name for name, rows in answers.items() if not rows}
    assert len(empty) < len(answers) / 2, empty


@contextlib.contextmanager
def serves(text: str) -> Iterator[int]:
    """A port of this machine that answers every request with the text, as node_exporter would."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def scraped(program: str, folder: Path, port: int) -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """Prometheus on a port of its own that scrapes this one; asks it a query, which must not be an error."""
    target = {"targets": [f"127.0.0.1:{port}"]}
    job = {"job_name": "lab", "scrape_interval": "1s", "static_configs": [target]}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": [job]}))
    own = free_port()
    words = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        daemon = subprocess.Popen([program, *words, f"--web.listen-address=127.0.0.1:{own}"], stdout=log, stderr=log)
    try:

        def ready() -> bool:
            assert daemon.poll() is None, (folder / "log").read_text()
            try:
                return bool(FREE.open(f"http://127.0.0.1:{own}/-/ready", timeout=5).status == 200)
            except OSError:
                return False

        def query(expression: str) -> list[dict[str, Any]]:
            words = urllib.parse.urlencode({"query": expression})
            with FREE.open(f"http://127.0.0.1:{own}/api/v1/query?{words}", timeout=30) as answer:
                told = json.load(answer)
            assert "success" == told["status"], (expression, told)
            rows = told["data"]["result"]
            assert isinstance(rows, list)
            return rows

        wait_until(ready, "Prometheus is ready")
        yield query
    finally:
        daemon.terminate()
        daemon.wait(30)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_accounting_that_went_away_is_found_and_no_job_is_said_never_to_have_been(month: Month) -> None:
    check = (
        "from hpslurm.cluster import accounting\nfrom hpslurm.core import policy, probe\n"
        "result = probe.run('accounting', accounting, Host(), policy.Policy())\n"
        "print(result.outcome, *(finding.rule.id for finding in result.findings))"
    )
    assert "pass" == month.ask(check)
    processes.stop([month.lab.running["slurmdbd"]], 4)
    assert "fail slurmdbd-unreachable" == month.ask(check)
    done = month.lab.run(*PROGRAM, "report", month.crashed, "--results", month.lab.path("work"))
    assert done.returncode == 1
    assert "Problem talking to the database: Connection refused" in done.stderr
    found = month.history()
    assert ["sacctmgr", "sacct"] == [
        line["probe"] for line in found if line["type"] == "result" and line["outcome"] == "unknown"
    ]


@pytest.mark.skipif(bool(accounting.missing()), reason="needs slurmdbd and MariaDB (`make test` as root installs them)")
def test_arrays_and_heterogeneous_jobs_are_told_whole_after_the_controller_forgot_them(
    make_lab: Callable[..., Lab],
) -> None:
    conf = f"{FORGETS}SchedulerParameters=bf_interval=1,bf_hetjob_immediate\n"
    lab = with_accounts(make_lab, nodes=2, conf=conf)
    again = lab.script("train.sbatch", "#!/bin/sh\nexit 1\n")
    submitted = lab.submit("-w", "n2", again, "--lr", "1e-4")
    task = "exit $((2 * (SLURM_ARRAY_TASK_ID == 1)))"
    array = lab.submit("-N1", "--array=0-2", "-o", lab.path("work/a-%A_%a"), "--wrap", task)
    script = Path(lab.path("work/het.sh"))
    script.write_text(
        "#!/bin/bash\n#SBATCH -w n1\n#SBATCH hetjob\n#SBATCH -w n2\nsrun true\nsrun --het-group=1 sh -c 'exit 3'\n"
    )
    both = lab.submit("-o", lab.path("work/het.out"), str(script))
    lab.wait_for_job(both, seconds=60)
    wait_for_accounts(lab, 6)
    for job in (array, both, submitted):
        wait_until(partial(forgotten, lab, job), f"slurmctld forgets job {job}")
    asked = ["report", "-v", "--results", lab.path("none")]
    told = {name: told_by(lab, *asked, name) for name in (array, f"{array}_2", f"{array}_1", both, f"{both}+1")}
    assert "the first that failed, 1 of 3 tasks" in told[array]
    assert "COMPLETED" in told[f"{array}_2"]
    assert "FAILED" in told[f"{array}_1"] and "exit code 2" in told[f"{array}_1"]
    assert "2 components" in told[both] and "n[1-2]" in told[both]
    assert "n2" in told[f"{both}+1"] and "n1" not in told[f"{both}+1"]
    line = f"sbatch --parsable -w n2 {again} --lr 1e-4"
    told_of = told_by(lab, "report", submitted, "--results", lab.path("none"))
    assert [f"Again     {line}"] == [told for told in told_of.splitlines() if told.startswith("Again")]
    lab.run("bash", "-c", line, check=True)


def asked_of(lab: Lab, code: str) -> str:
    """What a few lines of Python print that ask the Slurm of a lab."""
    head = "import time\nfrom hpslurm.sources import slurm\nfrom hpslurm.sources.host import Host\n"
    done = lab.run(sys.executable, "-c", head + code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def told_by(lab: Lab, *words: str) -> str:
    done = lab.run(*PROGRAM, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout
