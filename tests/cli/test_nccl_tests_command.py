"""The command as a person types it, without a cluster; runs on real Slurm are in tests/lab."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from hpslurm.core.policy import Mute, Policy
from hpslurm.core.values import replace
from hpslurm.nccl_tests import baseline, find_slow, html_page, report, runs, steps, view
from hpslurm.nccl_tests.judge import verdict as verdict_on
from hpslurm.nccl_tests.runs import Run
from hpslurm.nccl_tests.verdict import Facts
from hpslurm.scan import nccl_tests as reading
from hpslurm.sources import launch
from tests.fake import cluster as model
from tests.fake import nccl_tests as fake

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
GIB = 1 << 30
HEALTHY = {GIB: 437.0, 2 * GIB: 443.7, 4 * GIB: 465.9, 8 * GIB: 479.3}


def run(*words, stdin="", **env):
    command = [sys.executable, "-c", "from hpslurm.cli import main; main()", "nccl-tests", *words]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}
    done = subprocess.run(command, input=stdin, env={**clean, **env}, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def saved(tmp_path):
    def save(text, name="run.txt"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return save


def judge(*words, **more):
    return run("judge", *words, "--policy", "/nonexistent", "--baselines", "/nonexistent", **more)


def test_judge_prints_a_table_with_a_curve_and_a_verdict(saved):
    code, out, err = judge(saved(fake.table(HEALTHY)), "--instance-type", "ml.p5.48xlarge")
    assert (0, "") == (code, err)
    assert "all_reduce on 2 nodes, 16 ranks, p5.48xlarge, NCCL 2.27.7" in out
    assert re.search(r"8 GiB +479\.3 +478\.0 +358\.5 +100%  good +█+\|█", out)
    assert "Verdict: GOOD; 4 of 4 sizes compared" in out
    assert "\x1b" not in out


def test_judge_exits_3_below_the_floor_and_1_for_what_cannot_be_judged(saved):
    slow = saved(fake.table({**HEALTHY, 8 * GIB: 100.0}))
    assert 3 == judge(slow, "--instance-type", "p5.48xlarge")[0]
    assert 1 == judge(saved(""))[0]


def test_judge_reads_standard_input():
    code, out, _ = judge("-", "--instance-type", "p5.48xlarge", stdin=fake.table(HEALTHY))
    assert 0 == code
    assert "GOOD" in out


def test_judge_of_one_table_of_several(saved):
    path = saved(fake.table(HEALTHY) + fake.table({GIB: 100.0}))
    assert 0 == judge(path, "--table", "1", "--instance-type", "p5.48xlarge")[0]
    assert 3 == judge(path, "--table", "2", "--instance-type", "p5.48xlarge")[0]
    code, _, err = judge(path, "--table", "3")
    assert 2 == code
    assert "holds 2 tables" in err


def test_odd_lines_of_baselines_are_counted_and_passed_over(saved):
    text = saved(fake.table(HEALTHY))
    for lines, said in (
        ('{"type":"bandwidth","nodes":1e999}\n', "1 line cannot"),
        ("[" * 10**5 + "\n{\n", "2 lines cannot"),
    ):
        words = ("--instance-type", "p5.48xlarge", "--policy", "/nonexistent")
        code, out, err = run("judge", text, *words, "--baselines", saved(lines, "own.jsonl"))
        assert (0, True) == (code, f"own.jsonl: {said} be read, passed over" in err)
        assert "Verdict: GOOD" in out


def test_a_run_that_is_not_credible_is_said_and_is_no_pass(saved):
    code, out, _ = judge(saved(fake.table({**HEALTHY, 8 * GIB: 900.0})), "--instance-type", "p5.48xlarge")
    assert (1, True) == (code, "Verdict: NOT CREDIBLE; 4 of 4 sizes" in out)


@pytest.mark.parametrize(
    ("text", "muted", "why"),
    [
        (fake.table(HEALTHY), (), ""),
        (fake.table({**HEALTHY, 8 * GIB: 100.0}), (), "bad (busbw-failed)"),
        (fake.table({**HEALTHY, 8 * GIB: 100.0}), ("busbw-failed",), "(busbw-failed (muted))"),
        (fake.table({**HEALTHY, 8 * GIB: 400.0}), (), "low (busbw-low)"),
        (fake.table({**HEALTHY, 8 * GIB: 400.0}), ("*",), "(busbw-low (muted))"),
        (fake.table({**HEALTHY, 8 * GIB: 900.0}), (), "not credible (busbw-above-ceiling)"),
        (fake.table({**HEALTHY, 8 * GIB: 900.0}), ("busbw-above-ceiling",), "(busbw-above-ceiling (muted))"),
        (fake.table(HEALTHY, wrong=1), ("busbw-wrong-data",), "(busbw-wrong-data (muted))"),
        (fake.table(HEALTHY).replace("# Avg", "# error: x\n# Avg"), ("*",), "(busbw-run-failed (muted))"),
        (fake.table(HEALTHY, cpu=True), ("*",), "(busbw-cpu-time (muted))"),
    ],
)
def test_only_a_good_run_is_kept_as_a_measure_whatever_is_muted(tmp_path, text, muted, why):
    facts = Facts(reading.read_text(text), "p5.48xlarge", 2, 8, 0)
    verdict = verdict_on(facts, Policy(mutes=tuple(Mute(rule, "we live with it") for rule in muted)))
    path = tmp_path / "own.jsonl"
    said = baseline.keep(facts, verdict, str(path), "1")
    assert (why, bool(why)) == (why if why in said else said, said.startswith("not recorded: "))
    assert bool(why) != path.exists()


def test_json_lines_hold_the_same_and_nothing_else(saved):
    _, out, _ = judge(saved(fake.table({**HEALTHY, GIB: 100.0})), "--instance-type", "p5.48xlarge", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert ["bandwidth", "finding", "end"] == [line["type"] for line in lines]
    assert {1} == {line["schema"] for line in lines}
    assert ("bad", "failed", "busbw-failed") == (lines[0]["verdict"], lines[0]["sizes"][0]["outcome"], lines[1]["id"])


def test_nccl_logs_are_read_beside_the_table(saved):
    log = saved("a:1:2 [0] NCCL INFO Using network Socket\n", "nccl.log")
    code, out, _ = judge(saved(fake.table({GIB: 2.2})), "--instance-type", "p5.48xlarge", "--nccl-log", log)
    assert 3 == code
    assert "busbw-over-tcp" in out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["judge", "/nonexistent/file"], 1, "/nonexistent/file: No such file or directory"),
        (["judge", "/"], 1, "Is a directory"),
        (["judge", "/dev/null", "--instance-type", "p5.48xlarg"], 2, "p5.48xlarge"),
        (["judge", "/dev/null", "--nodes", "0"], 2, "--nodes"),
        (["jugde", "x"], 2, "jugde"),
        ([], 1, "not inside a Slurm allocation"),
        (["--find-slow"], 1, "salloc"),
        (["--resume", "x"], 1, "not inside a Slurm allocation"),
    ],
)
def test_a_mistake_is_named_with_what_to_do(words, code, said):
    status, out, err = run(*words)
    assert code == status
    assert said in err
    assert "Traceback" not in out + err


def test_foreign_text_cannot_move_the_cursor(saved):
    evil = "srun: error: \x1b[2J\x1b]0;owned\x07 x: Segmentation fault\n"
    for more in ((), ("-v",)):
        _, out, _ = judge(saved("# Using devices\n" + evil), *more)
        assert "\x1b" not in out
    assert "owned" in out


def test_help_shows_how_to_run_it_in_a_job():
    _, out, _ = run("--help")
    assert "#SBATCH --nodes=4" in out
    assert "salloc -N2" in out
    assert "Exit codes: 0 judged fine" in out


TOPOLOGY = """\
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=ip-10-1-0-[1-2]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=ip-10-1-0-[3-4]
SwitchName=spine Level=1 LinkSpeed=1 Nodes=ip-10-1-0-[1-4] Switches=leaf[1-2]
"""


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (TOPOLOGY, {"ip-10-1-0-1": "leaf1", "ip-10-1-0-3": "leaf2"}),
        (TOPOLOGY.replace("3-4", "4-5"), {}),  # a node that no leaf has: better none than half
        ("", {}),
    ],
)
def test_the_leaf_switches_are_taken_from_slurms_topology(tmp_path, text, blocks):
    program = tmp_path / "scontrol"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}END\n")
    program.chmod(0o755)
    where = launch.Allocation(
        "7", ("ip-10-1-0-1", "ip-10-1-0-3"), str(tmp_path / "srun"), env={"PATH": "/usr/bin:/bin"}
    )
    assert blocks == find_slow.blocks_of(where)


# pages


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "xlink:href", "action")]

    def handle_data(self, data):
        self.words.append(data)


def verdict_of(text):
    output = reading.read_text(text, "run <b>.txt")
    facts = Facts(output, "p5.48xlarge")
    return verdict_on(facts, Policy()), output


def test_the_page_of_a_run_shows_curve_table_and_findings_and_needs_no_network():
    page = Page(html_page.of_run(*verdict_of(fake.table({**HEALTHY, 2 * GIB: 100.0}))))
    assert [] == page.links
    assert {"svg", "polyline", "circle", "table"} <= set(page.tags)
    assert not {"script", "img", "link", "iframe"} & set(page.tags)
    assert "busbw-failed" in " ".join(page.words)


def test_a_host_name_that_is_markup_stays_text():
    text = fake.table(HEALTHY, hosts=["<script>alert(1)</script>", "b"])
    assert "script" not in Page(html_page.of_run(*verdict_of(text))).tags
    hosts = ("<img/src=x>", '"onload="x', "c", "d")
    cluster = model.Cluster(hosts, {}, (model.Fault("node", hosts[:1], 0.5),), __import__("random").Random(1))
    cluster.blocks = dict.fromkeys(hosts, "")
    state, verdict = model.search(cluster, replace(runs.QUICK, alone=False))
    page = Page(html_page.of_search(state, verdict, "", report.findings(verdict, Policy(), "", 8, GIB)))
    assert "img" not in page.tags


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")
def test_a_browser_draws_the_page_without_scripts_or_errors(tmp_path):
    text = fake.table({**HEALTHY, 2 * GIB: 100.0}, hosts=["</title><script>document.title='owned'</script>", "b"])
    page = tmp_path / "page.html"
    page.write_text(html_page.of_run(*verdict_of(text)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    done = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    drawn = Page(done.stdout)
    assert {"polyline": 5, "circle": 4} == {tag: drawn.tags.count(tag) for tag in ("polyline", "circle")}
    assert "<title>owned" not in done.stdout


def test_the_page_of_a_search_has_a_cell_for_each_pair_and_a_row_for_each_node():
    cluster = model.cluster(16, "node", 1, 0.6, 3)
    state, verdict = model.search(cluster, runs.QUICK)
    text = html_page.of_search(state, verdict, "p5.48xlarge", report.findings(verdict, Policy(), "", 8, GIB))
    pairs = {frozenset(one.run.nodes) for one in view.pairs_of(state)}
    assert 2 * len(pairs) == text.count("<title>") - 1  # one of them is the page's own
    assert "busbw-slow-node" in text
    assert 16 == text.count('<svg width="310"')


def test_the_page_of_a_thousand_nodes_stays_small():
    cluster = model.cluster(1024, "node", 1, 0.6, 3)
    state, verdict = model.search(cluster, runs.QUICK)
    text = html_page.of_search(state, verdict, "")
    assert 300_000 > len(text)
    assert "960 nodes that were fast are left out" in " ".join(text.split())


def test_a_page_without_rows_is_still_a_page():
    assert "Verdict: not judged" in html_page.of_run(*verdict_of(""))


# what is started


HOW = steps.How("/opt/all_reduce_perf", 8, steps.QUICK, "pmix", options=("--container-image=x",), logs="/shared/out")


def test_one_process_a_gpu_with_nccls_lines_in_a_file_for_each_rank():
    step = steps.whole(("a", "b"), HOW)
    assert (8, 8, 180.0) == (step.tasks, step.gpus, step.seconds)
    assert ("-b", str(GIB), "-e", str(8 * GIB), "-f", "2") == step.argv[1:7]
    assert "-g 1 -c 1" in " ".join(step.argv)
    assert {"--mpi=pmix", "--label", "--container-image=x"} == set(step.options)
    env = dict(step.env)
    assert ("INFO", "/shared/out/nccl.all_reduce-2.%h.%p") == (env["NCCL_DEBUG"], env["NCCL_DEBUG_FILE"])


def test_one_process_a_node_drives_all_gpus():
    step = steps.whole(("a", "b"), replace(HOW, per_node=True))
    assert 1 == step.tasks
    assert "-g 8" in " ".join(step.argv)


def test_a_rail_is_chosen_inside_the_task_because_slurm_sets_the_variable_outside():
    step = steps.of_run(Run("rail", ("a", "b"), 5), HOW, "3.0")
    assert (1, ("env", "CUDA_VISIBLE_DEVICES=5")) == (step.tasks, step.argv[:2])


@pytest.mark.parametrize(
    ("text", "best"),
    [
        ("srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix\n", "pmix"),
        ("MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n", "pmi2"),
        ("\tpmix_v3\n\tpmix_v4\n\tpmi2\n", "pmix_v4"),
        ("", "none"),
    ],
)
def test_the_best_pmi_is_taken(text, best):
    assert best == steps.best_mpi(text)


def test_the_program_is_taken_from_what_the_user_gave_else_from_path(tmp_path):
    program = tmp_path / "all_reduce_perf"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert {str(program)} == {
        steps.find_program("all_reduce_perf", str(program), ""),
        steps.find_program("all_reduce_perf", str(tmp_path), ""),
        steps.find_program("all_reduce_perf", "", str(tmp_path)),
    }
    assert None is steps.find_program("no_such_perf", "", "/nonexistent")
