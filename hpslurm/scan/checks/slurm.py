"""Lines of Slurm and of containers that it starts: jobs, nodes, prologs."""

from __future__ import annotations

import re

from hpslurm.core import linear
from hpslurm.scan.hit import Context, Hit, check
from hpslurm.scan.places import task_numbers


@check("jobnode")
def _job_node(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The controller's log names a job here and its nodes when it was started."""
    if not hit.host and (job := re.search(r"\bJobId=(\d+)", hit.line)):
        for line in context.before(400, 16384):
            if f"JobId={job[1]} " in line and (nodes := re.search(r"NodeList=(\S+)", line)):
                hit.host = nodes[1]
                break
    return True


@check("immediate")
def _immediate(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if not re.search(r"--immediate|queued and waiting for resources", "\n".join(context.before(20))):
        hit.turn("job-gone")
    return True


@check("cancel")
def _cancel(hit: Hit, match: re.Match[str], context: Context) -> bool:
    why = match["text"]
    if why.startswith("NODE"):
        return False
    if why.startswith("TASK"):
        hit.turn("cancel-task-failed")
        _ended_without(hit, context)
    hit.facts["why"] = why
    return True


def _ended_without(hit: Hit, context: Context) -> None:
    """Slurm ends all other tasks and lists them: the one that is not in the list failed."""
    for line in context.after(6):
        if listed := re.search(r"srun: error: ([\w.-]+): tasks ([\d,-]+): (?:Terminated|Killed)", line):
            ended = set(task_numbers(listed[2]))
            missing = set(range(max(ended, default=0))) - ended
            if len(missing) == 1:
                hit.turn("cancel-names-others")
                hit.host = listed[1]
                hit.facts["named_rank"] = str(missing.pop())
            return


_TAKEN_DOWN = linear.late(
    r"Job step aborted: Waiting up to|Terminating (?:job step|StepId)|\*\*\* (?:STEP|JOB) \S+ ON \S+ CANCELLED"
)


@check("afterdown")
def _after_down(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """A task that is killed once the step is being ended did not start it."""
    if any(_TAKEN_DOWN.search(line) for line in context.before(200, 16384)):
        hit.turn("killed-after-down")
    return True


@check("jobstate")
def _job_state(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "CANCELLED" in match[0]:
        hit.turn("job-state-cancelled")
    return not re.search(r"Preempt(?:Mode|Type|ExemptTime)|PreemptEligible|PreemptTime|TimeLimit=", match[0])


@check("nodefail")
def _node_fail(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"nfs|server|GSP|nvme|GPU", match[0]):
        return False
    if batch := re.search(r"\*\*\* (?:JOB|STEP) \S+ ON ([\w.-]+) CANCELLED", hit.line):
        hit.facts["batch_host"] = batch[1]  # where the script ran, not the node that failed
        return True
    return _node_name(hit, match, context)


@check("nodename")
def _node_name(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "_slurm_rpc_submit_batch_job" in hit.line or "_slurm_rpc_allocate_resources" in hit.line:
        return False  # the controller refused what somebody asked for: no node's fault, and daily bread of its log
    if (
        named := re.search(
            r"\b(?:NodeName=|[Nn]odes? |node_name=|StepId=\S+ ON )([A-Za-z][\w.-]*(?:\[[\d,-]+\])?\w*)", hit.line
        )
    ) and named[1] not in ("has", "is", "not", "failure", "failed", "unexpectedly", "configuration", "state", "on"):
        hit.host = named[1]
        return True
    if row := re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\s+([A-Za-z][\w.,\[\]-]*)\s*$", hit.line):  # sinfo -R
        hit.host = row[1]
        return True
    for line in context.before(40):
        if named := re.match(r"\s*NodeName=(\S+)", line):
            hit.host = named[1]
            break
    return True


@check("reasonset")
def _reason_set(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The controller's log gives the node together with the reason that somebody set."""
    if node := re.search(r"\bnodes? ([A-Za-z][\w.-]*(?:\[[\d,-]+\])?) reason set to", hit.line):
        hit.host = node[1]
    return True


@check("slurmcomm")
def _slurm_comm(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"NVLink|nvlink|eth\d|mlx5|Link", hit.line):
        return False
    if match[0].strip() in ("is DOWN", "DOWN") and "lurm" not in hit.line:
        return False
    if "Transport endpoint" in match[0] and "slurm" not in hit.line.lower() and "srun" not in hit.line:
        return False
    if node := re.search(r"failed on node ([\w.-]+): Socket timed out", hit.line):
        hit.host = node[1]
    return True


@check("prolog")
def _prolog(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"(?:Prolog|Epilog)(?:Flags|EpilogTimeout|Slurmctld)?\s*=", hit.line):
        return False
    return _node_name(hit, match, context) if not hit.host else True


@check("container")
def _container(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if not re.search(
        r"pyxis|enroot|docker|podman|container|spank|apptainer|singularity|OCI|squashfs|registry|plugstack|manifest",
        hit.line,
        re.IGNORECASE,
    ) and not re.search(r"pyxis|enroot", "\n".join(context.before(6))):
        return False
    return not re.search(
        r"importing docker image|imported docker image|creating container filesystem|starting container", hit.line
    )


@check("daemonfatal")
def _daemon_fatal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.turn_by("daemonfatal", match["text"])
    return True


@check("tmpdir")
def _tmpdir(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Slurm says whether it goes on without."""
    return not any("Setting TMPDIR to /tmp" in line for line in [*context.before(40), *context.after(40)])
