"""Prolog, epilog and health check: ``python -I -m hpslurm.hooks prolog``.

Runs on every node at every job start, so it is light and never in the way: the word on
stdout is ``ok`` whatever breaks, and ``drain`` only for a finding that the site's policy
names. What it saw is in the record. The shell script around it holds the time limit.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from importlib import import_module

from hpslurm.core import notice, probe, records
from hpslurm.core import policy as policies
from hpslurm.core.finding import Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Result
from hpslurm.core.text import clean
from hpslurm.core.values import replace
from hpslurm.node.instance import instance_id
from hpslurm.sources.host import Host

OK, DRAIN = "ok", "drain"

_LIMITS = ("node.memlock", "node.stack", "node.shm", "node.shm_stale")
_EFA = ("node.efa", "node.efa_driver", "node.efa_counters", "node.gpudirect", "node.hugepages", "node.ofi_plugin")
_GPU = (
    "node.gpu_driver",
    "node.gpu_count",
    "node.gpu_recovery",
    "node.row_remap",
    "node.ecc",
    "node.nvlink",
    "node.fabric",
    "node.gpu_clocks",
    "node.pcie",
    "node.gpu_modes",
    "node.gpu_processes",
    "node.gpu_counters",
)
_KERNEL = ("node.xid", "node.gpu_kernel", "node.efa_kernel", "node.oom", "node.kernel_faults")
_HOST = (
    "node.disk",
    "node.clock",
    "node.munge",
    "node.names",
    "node.mtu",
    "node.firewall",
    "node.logind",
    "node.governor",
    "node.acs",
    "node.iommu",
    "node.versions",
)
_NODE = (*_LIMITS, *_EFA, *_GPU, *_KERNEL, *_HOST)
# What the site expects is asked before a job, and while none starts; never by a step, which sees its container.
PROLOG = (*_NODE, "node.site")
# Every process is looked at, some thousand on a p5: 50 ms that no job start shall pay.
EPILOG = (*_NODE, "node.dstate")
# Known combinations of versions change with the software only, and their table costs a prolog 5 ms.
# What jobs do on their GPUs means something only beside the health check before.
# A megabyte of log is no matter of a job's start either.
HEALTH = (*EPILOG, "node.site", "node.version_pairs", "node.job_activity", "node.dcgm_log")
# A step's device cgroup hides what is not its own, and only a step has the user's environment.
STEP = (*EPILOG, "node.version_pairs", "job.nccl_env", "job.rendezvous")
ALL = tuple(dict.fromkeys((*HEALTH, *STEP)))
COUNTERS = ("efa_counters", "gpu_counters")
HOOKS = {"prolog": PROLOG, "epilog": EPILOG, "health": HEALTH}
LOOKS = {**HOOKS, "step": STEP}

LIMIT = 5.0  # seconds, the script's own default
RESERVE = 1.5  # seconds of the limit kept for the records, the gate's cap and the copy
COPY = 1.0  # seconds for the copy to the shared folder; when it hangs, every job pays this
HOUR = 3600.0
HEALTH_LOCK = 9  # the descriptor by which healthcheck.d/hpslurm.sh gives us its lock
_OPTIONS = ("root", "results", "policy", "limit")


def strange_probes(policy: Policy) -> list[str]:
    """What the policy switches on or off, and nobody knows: a mistake in writing, to be reported."""
    known = {name.rpartition(".")[2] for name in ALL}
    troubles = []
    for key in ("probes_off", "probes_on"):
        for written in getattr(policy, key):
            hook, _, name = written.rpartition(".")
            if name not in known or (hook and hook not in LOOKS):
                troubles.append(f"policy: {key} names {clean(written, 60)!r}, which is not a probe: ignored")
    return troubles


def chosen(hook: str, policy: Policy) -> tuple[list[str], list[str]]:
    """Probes of a look, and those of them that the site has switched off."""

    def named(name: str, among: tuple[str, ...]) -> bool:
        short = name.rpartition(".")[2]
        return short in among or f"{hook}.{short}" in among

    names = [name for name in ALL if name in LOOKS[hook] or named(name, policy.probes_on)]
    off = [name for name in names if named(name, policy.probes_off)]
    return [name for name in names if name not in off], off


def run_probes(hook: str, host: Host, policy: Policy) -> Iterator[Result]:
    """Results of the probes of prolog, epilog, health or step; slow doors are started first and collected last."""
    loaded = []
    names, off = chosen(hook, policy)
    for name in off:
        yield Result(name.rpartition(".")[2], probe.SKIP, "switched off by the site's policy")
    for name in names:
        try:
            loaded.append((name.rpartition(".")[2], import_module(f"hpslurm.{name}")))
        except Exception as error:
            yield Result(name.rpartition(".")[2], probe.UNKNOWN, probe.reason(error))
    yield from probe.run_all(loaded, host, policy)


def node_name(env: Mapping[str, str]) -> str:
    """Slurm's name of this node; a task has it too."""
    return env.get("SLURMD_NODENAME") or os.uname().nodename.split(".")[0]


def site_policy(path: str, node: str, host: Host) -> Policy:
    loaded = policies.load(path, node=node, instance=instance_id(host))
    host.expected, host.mount_answer_max = loaded.expected(), loaded.mount_answer_max
    return replace(loaded, problems=(*loaded.problems, *strange_probes(loaded)))


def options(words: list[str]) -> dict[str, str]:
    """``--name value`` pairs; raises ValueError, naming the word, for anything else."""
    given: dict[str, str] = {}
    pairs = iter(words)
    for word in pairs:
        name = word.removeprefix("--")
        if not word.startswith("--") or name not in _OPTIONS:
            raise ValueError(f"unknown word {word!r}; options: {', '.join('--' + one for one in _OPTIONS)}")
        given[name] = next(pairs, "")
    return given


def say(text: str) -> None:
    """One line for the log; a log that cannot be written is no reason to stop."""
    try:
        print(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} hpslurm: {text}", file=sys.stderr, flush=True)
    except OSError:
        pass


def hook(name: str, words: list[str], env: Mapping[str, str]) -> str:
    """Look, record, decide. Returns the word for stdout; may raise, and then the word is ``ok``."""
    began = time.monotonic()
    given = options(words)
    limit = float(given.get("limit") or LIMIT)
    node = node_name(env)
    host = Host(given.get("root") or "/", env=env, in_hook=True, seconds=max(limit - RESERVE, limit / 2))
    policy = site_policy(given.get("policy") or policies.PATH, node, host)
    for problem in policy.problems:
        say(problem)
    if policy.partitions and _elsewhere(name, host, policy, node, env.get("SLURM_JOB_PARTITION", "")):
        return OK
    results_folder = given.get("results") or policy.results
    host.locks = f"{results_folder}/locks"

    writer = _writer(results_folder, node, name, env)
    run = records.run_line(policy, env, name)
    _keep(writer, run)
    results: list[Result] = []
    before, why = _before(results_folder, run) if name == "epilog" else (None, "")
    for result in _all_results(name, host, policy, results, results_folder, run, before, why):
        results.append(result)
        for line in records.result_lines(result, node):
            _keep(writer, line)
        if result.outcome == probe.UNKNOWN:
            say(f"{result.probe} not checked: {result.note}")
    host.end_all()
    gated = _gated(name, results, policy, results_folder, node)
    if name == "prolog":
        _tell(writer, node, env, results)
    _keep(writer, records.end_line(results, gated=[one.rule.id for one in gated], **_cost(began)))
    is_shared = bool(writer.part) and _finish(
        writer, policy, results_folder, min(COPY, limit - (time.monotonic() - began) - 0.2)
    )
    if name == "epilog" and writer.part:
        scans = policy.scan_job_output
        events = _add_output(writer, policy, results_folder, env, began + limit) if scans else []
        if is_shared:
            _keep_diagnosis(policy, results_folder, run, env, results, before, events, began + limit)
    return DRAIN if gated else OK


def _elsewhere(name: str, host: Host, policy: Policy, node: str, partition: str) -> bool:
    """Whether the policy's partitions leave this job out, or, where no job is, this node. What cannot be told is in."""
    if name != "health":
        return partition not in (*policy.partitions, "")
    from hpslurm.sources import partitions

    return partitions.is_in_one(host, node, policy.partitions) is False


def _all_results(
    name: str,
    host: Host,
    policy: Policy,
    so_far: list[Result],
    results: str,
    run: Mapping[str, object],
    before: records.Record | None,
    why: str,
) -> Iterator[Result]:
    for result in run_probes(name, host, policy):
        yield _since(result, results, run) if name == "health" and result.probe == "job_activity" else result
    if name == "epilog":
        yield from grown(policy, so_far, before, why)


def _add_output(
    writer: records.Writer | _NoWriter, policy: Policy, results: str, env: Mapping[str, str], end: float
) -> list[dict[str, object]]:
    """On the job's first node: what its output tells, as events into the record that is complete and copied by now.

    The output is the user's, and may be made to take all the time that there is.
    """
    seconds = end - time.monotonic() - COPY - 0.5
    if not env.get("SLURM_JOB_ID") or seconds <= 0:
        return []
    assert isinstance(writer, records.Writer)
    try:
        from hpslurm.scan import joblog

        events, notes = joblog.epilog(env, seconds=min(joblog.SECONDS, seconds))
        if events:
            writer.amend(events)
            _copy(writer, policy, results, min(COPY, end - time.monotonic() - 0.2))
    except Exception as error:
        say(f"the job's output was not scanned: {probe.reason(error)}")
        return []
    for note in notes:
        say(f"the job's output: {note}")
    return events


def _keep_diagnosis(
    policy: Policy,
    results: str,
    run: Mapping[str, object],
    env: Mapping[str, str],
    after: list[Result],
    before: records.Record | None,
    events: list[dict[str, object]],
    end: float,
) -> None:
    """A line in the index of what was found out, where there is something: by a child, as the copy of the record.

    Only what the prolog of this job had not seen came during the job; without its whole record nobody knows.
    """
    new = []
    if before is not None and before.complete:
        known = {finding.rule.id for finding in before.findings}
        new = [finding for finding in probe.unmuted(after) if finding.rule.id not in known]
    seconds = min(COPY, end - time.monotonic() - 0.2)
    if not (new or events) or run["job"] is None or seconds <= 0:
        return

    def keep() -> int:
        from hpslurm.scan import diagnoses, lines

        told = [event for line in events if (event := lines.event_of(line))]
        nodes = env.get("SLURM_JOB_NODELIST") or env.get("SLURM_NODELIST") or ""
        folder = policy.results_shared or results
        diagnoses.keep_of_node(folder, run, nodes, told, new, policy.diagnoses_keep_days)
        return 0

    code = records.in_child(keep, seconds, f"{results}/locks", "diagnoses")
    if code != 0:
        say(f"diagnosis not kept: {code if isinstance(code, str) else 'failed, see the lines above'}")


def grown(policy: Policy, after: list[Result], record: records.Record | None, why: str) -> Iterator[Result]:
    """What counters gained during the job: the epilog's minus those in the prolog's ``record`` of the same job,
    restart and boot. Without such a record that is unknown, not nothing."""
    counted = {one.probe: one.facts for one in after if one.probe in COUNTERS and one.facts}
    before = {one.probe: one.facts for one in record.results if one.facts} if record else {}
    for name, facts in counted.items():
        result = f"{name}_grown"
        if name not in before:
            yield Result(result, probe.UNKNOWN, why or f"the prolog's record has no {name}")
            continue
        try:
            from hpslurm.core import replay

            module = import_module(f"hpslurm.node.{name}")
            old, new = replay.rebuild(module.Facts, before[name]), replay.rebuild(module.Facts, facts)
            findings = tuple(policy.mute(one) for one in module.changed(old, new, policy))
            note = module.not_known(old, new)
            outcome = probe.FAIL if findings else probe.UNKNOWN if note else probe.PASS
            yield Result(result, outcome, note, findings=findings)
        except Exception as error:
            yield Result(result, probe.UNKNOWN, probe.reason(error))


def _since(result: Result, results: str, run: Mapping[str, object]) -> Result:
    """What jobs do, beside what the health check before saw of this boot: since when is it the same?"""
    if not result.facts:
        return result
    from hpslurm.node import job_activity

    try:
        before = records.read(f"{results}/nodes/{run['node']}.health.jsonl", str(run["node"]), "health")
        facts = job_activity.activity(before) if before.run.get("boot") == run["boot"] else None
    except (OSError, ValueError):  # the first one
        facts = None
    return replace(result, facts=job_activity.compared(facts, result.facts))


def _before(results: str, run: Mapping[str, object]) -> tuple[records.Record | None, str]:
    """The record of this job's prolog on this node, or why there is none to compare with."""
    path = f"{results}/jobs/{run['job']}/{run['node']}.prolog.jsonl"
    try:
        record = records.read(path, str(run["node"]), "prolog")
    except (OSError, ValueError) as error:
        return None, f"nothing to compare with: {probe.reason(error)}"
    for what in ("job", "restart", "boot"):
        if record.run.get(what) != run[what] and not (what == "restart" and _requeued(record, results, run)):
            return None, f"nothing to compare with: the prolog's record is of another {what}"
    return record, ""


def _requeued(prolog: records.Record, results: str, run: Mapping[str, object]) -> bool:
    """Slurm counts a restart before the epilog of the start that it ends. So the number may be one higher, as long as
    no epilog has come since that prolog."""
    before, now = prolog.run.get("restart"), run["restart"]
    if not isinstance(before, int) or now != before + 1:
        return False
    try:
        last = records.read(f"{results}/jobs/{run['job']}/{run['node']}.epilog.jsonl", str(run["node"]), "epilog")
    except (OSError, ValueError):
        return True
    return float(last.run.get("time") or 0) < float(prolog.run.get("time") or 0)


class _NoWriter:
    """Stands in where no record can be written, so that the look goes on."""

    part = ""

    def write(self, line: Mapping[str, object]) -> None:
        return


def _writer(results: str, node: str, name: str, env: Mapping[str, str]) -> records.Writer | _NoWriter:
    job = "" if name == "health" else env.get("SLURM_JOB_ID", "")
    gid = env.get("SLURM_JOB_GID", "")
    try:
        return records.Writer(results, node, name, job, int(gid) if gid.isdigit() else -1)
    except (OSError, ValueError) as error:
        say(f"no record in {results}: {error}")
        return _NoWriter()


def _tell(writer: records.Writer | _NoWriter, node: str, env: Mapping[str, str], results: list[Result]) -> None:
    """Leave a line for the job's own output where something blocks training."""
    if not writer.part or not env.get("SLURM_JOB_ID"):
        return
    assert isinstance(writer, records.Writer)
    gid = env.get("SLURM_JOB_GID", "")
    try:
        number = int(gid) if gid.isdigit() else -1
        notice.leave(writer.folder, node, env["SLURM_JOB_ID"], number, probe.unmuted(results))
    except OSError as error:
        say(f"no line for the job's output: {error.strerror}")


def _keep(writer: records.Writer | _NoWriter, line: Mapping[str, object]) -> None:
    try:
        writer.write(line)
    except OSError as error:
        if writer.part:
            say(f"record cut off, {writer.part}: {error.strerror}")
            writer.part = ""


def _finish(writer: records.Writer | _NoWriter, policy: Policy, results: str, seconds: float) -> bool:
    """Whether the shared folder, if there is one, took the copy."""
    assert isinstance(writer, records.Writer)
    try:
        writer.close()
    except OSError as error:
        say(f"record not completed, {writer.part}: {error.strerror}")
        writer.part = ""
        return False
    is_shared = _copy(writer, policy, results, seconds)
    if writer.name.endswith(".epilog.jsonl"):
        records.prune(results, policy.keep_days, policy.keep_jobs)
    return is_shared


def _copy(writer: records.Writer, policy: Policy, results: str, seconds: float) -> bool:
    if not policy.results_shared:
        return True
    days = policy.shared_keep_days if writer.name.endswith(".epilog.jsonl") else 0
    if why := records.copy_to_shared(writer.path, results, policy.results_shared, seconds, days):
        say(why)
    return not why


def _gated(name: str, results: list[Result], policy: Policy, results_folder: str, node: str) -> list[Finding]:
    """Findings for which Slurm shall drain this node: named by the site, and hardware of the node."""
    if name != "prolog" or not policy.gate:
        return []
    for wanted in policy.gate:
        if not _may_be_gated(wanted):
            say(f"gate names {clean(wanted, 60)!r}, which is not a rule about this node's hardware: it never gates")
    named = [finding for finding in probe.unmuted(results) if finding.rule.id in policy.gate]
    for finding in named:
        if not finding.rule.gateable:
            say(f"{finding.rule.id} is named in gate, but is not about hardware of this node: not gated")
    gated = [finding for finding in named if finding.rule.gateable]
    if gated and policy.results_shared and policy.gate_per_hour:
        answer = records.in_child(
            lambda: 0 if _may_gate(policy, node) else 1, COPY / 2, f"{results_folder}/locks", "gate"
        )
        if answer != 0:
            why = (
                f"{policy.gate_per_hour} nodes were gated within the hour" if answer == 1 else f"cap unknown: {answer}"
            )
            say(f"{', '.join(finding.rule.id for finding in gated)} found, not gated: {why}")
            return []
    for finding in gated:
        say(f"gate: {finding.rule.id}: {finding.detail}")
    return gated


def _may_be_gated(rule: str) -> bool:
    """A gate with a typing mistake would stay open for ever, and nobody would know."""
    if rule.startswith(("xid-", "sxid-")):  # their rules come from a table that a healthy node does not read
        return True
    modules = (sys.modules.get(f"hpslurm.{name}") for name in PROLOG)
    rules = (value for module in modules if module for value in vars(module).values() if isinstance(value, Rule))
    return any(value.id == rule and value.gateable for value in rules)


def _may_gate(policy: Policy, node: str) -> bool:
    """Take one of the places of this hour. Each node puts its mark first and counts then, so
    that nodes which start at the same moment cannot all believe to be the first."""
    folder = f"{policy.results_shared}/gate"
    records.refuse_foreign(policy.results_shared)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    now = time.time()
    with os.scandir(folder) as entries:
        fresh = {entry.name: changed for entry in entries if (changed := entry.stat().st_mtime) > now - HOUR}
    if node not in fresh:
        os.close(os.open(f"{folder}/{node}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o640))
        os.utime(f"{folder}/{node}")
        with os.scandir(folder) as entries:
            fresh = {entry.name: changed for entry in entries if (changed := entry.stat().st_mtime) > now - HOUR}
    first = sorted(fresh, key=lambda name: (fresh[name], name))[: policy.gate_per_hour]
    if node not in first:
        os.unlink(f"{folder}/{node}")
    return node in first


def _cost(began: float) -> dict[str, object]:
    """What this hook took: wall seconds, and its own peak memory in KiB."""
    peak = 0
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            match = re.search(r"^VmHWM:\s+(\d+) kB", file.read(), re.M)
        peak = int(match[1]) if match else 0
    except (OSError, ValueError):
        pass
    return {"seconds": round(time.monotonic() - began, 4), "peak_kib": peak}


def _keep_lock() -> None:
    """Ours alone: a program of ours that is stuck has a lock of its own, and is a result, not the end of all looks."""
    try:
        os.set_inheritable(HEALTH_LOCK, False)
    except OSError:  # started by hand, without the script
        pass


def main(words: list[str]) -> None:
    """Print the one word that the script reads, whatever happens, and end at once."""
    word = OK
    try:
        if not words or words[0] not in HOOKS:
            raise ValueError(f"usage: hpslurm.hooks {'|'.join(HOOKS)} [--root, --results, --policy, --limit VALUE]")
        if words[0] == "health":
            _keep_lock()
        word = hook(words[0], words[1:], os.environ)
    except BaseException as error:
        say(f"{words[0] if words else ''} broken, job goes on: {type(error).__name__}: {error}")
    try:
        os.write(1, f"{word}\n".encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
