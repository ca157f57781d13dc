"""What diagnose finds, and what AWS answered."""

from __future__ import annotations

import json
import os
import time
from functools import partial
from typing import Any

from hpslurm.bundle import case
from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.bundle.window import Window
from hpslurm.cluster import gather, guard, node_records, plans, view
from hpslurm.cluster.aws import checks, whom
from hpslurm.cluster.aws.events import EVENTS
from hpslurm.cluster.aws.hyperpod import INSTANCES
from hpslurm.cluster.aws.view import DESCRIBED, Need, View
from hpslurm.cluster.node_rows import node_rows
from hpslurm.core import records
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.values import asdict
from hpslurm.show import plan
from hpslurm.sources import hyperpod
from hpslurm.sources.host import Host

ANSWERS: tuple[tuple[str, Need[Any], str], ...] = (
    ("cluster.json", DESCRIBED, "DescribeCluster"),
    ("instances.json", INSTANCES, "ListClusterNodes"),
    ("events.json", EVENTS, "ListClusterEvents"),
)


def diagnosed(request: Request, rules: Policy, window: Window, parts: Parts) -> tuple[gather.Half | None, list[Result]]:
    host = Host(request.root, seconds=gather.SECONDS)
    named = request.options
    options = whom.Options(named.cluster, named.region, named.profile, max(60.0, time.time() - window.since))
    wanted = request.aws and whom.means_aws(options, host)
    ask = partial(_ask_aws, options) if wanted else None
    places = [f"{request.results}/nodes"] if request.results else node_records.folders_of(rules, request.root)
    places += request.reports
    try:
        half = parts.tried(
            "findings", lambda: gather.diagnose(host, rules, places, ask_slurm=request.slurm, ask_aws=ask), None
        )
    finally:
        host.end_all()
    if half is None:
        return None, []
    scene = guard.of_half(half, rules)
    results = guard.guarded(half.results, scene, rules)
    planned = plans.plans(half.results, scene, rules)
    made = plan.with_plans(records.lines(rules, os.environ, "diagnose", results), planned)
    parts.add("findings.jsonl", "\n".join(map(records.encode, made)), "hpslurm diagnose --json")
    parts.report("findings.txt", "hpslurm diagnose", lambda: view.text(results, half.members))
    if half.members.members:
        parts.text(
            "nodes.tsv", "Slurm, HyperPod and records", lambda: case.nodes_table(node_rows(results, half.members))
        )
    _add_aws(half.view, request, parts)
    return half, results


def _ask_aws(options: whom.Options, layout: hyperpod.Layout) -> View:
    return checks.collect(options, layout)


def _add_aws(view: View | None, request: Request, parts: Parts) -> None:
    if view is None:
        parts.miss(
            "cluster.json",
            "AWS was not asked: pass --cluster and --region" if request.aws else "AWS was not asked (--no-aws)",
        )
        return
    for name, need, source in ANSWERS:
        value, why = view.maybe(need, None)
        if value is None:
            parts.miss(name, str(view.trouble or why))
            continue
        if need is DESCRIBED:
            value = {field: answer for field, answer in value.items() if field != "ResponseMetadata"}
        else:
            value = {need.name: [asdict(item) for item in value[0]], "not_all": value[1]}
        parts.add(name, json.dumps(value, indent=1, ensure_ascii=False, default=str), source)
