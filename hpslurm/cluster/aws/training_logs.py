"""Training logs in CloudWatch: what jobs printed, where a site's agent ships it into the cluster's log group.

HyperPod ships none by itself. Every stream that is not one of its own is taken for a log of jobs. ``scan`` reads all of
them together, and its cause is told of the machine whose line decided it; then each for itself: a cause that does not
follow from the first one, or the same fault of another machine, is told of that machine.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping

from hpslurm.cluster.aws import deep_checks, health_agent, lifecycle
from hpslurm.cluster.aws.health_agent import LogLine, evidence, known_instances, log_group, log_need
from hpslurm.cluster.aws.hyperpod import INSTANCES, about_role, ago
from hpslurm.cluster.aws.view import CLUSTER, View
from hpslurm.cluster.model import Cluster, Instance
from hpslurm.core.finding import LOOK, P1, Diagnosis, Finding, Rule, Suggestion
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.scan.collect import Collector
from hpslurm.scan.model import explains
from hpslurm.scan.reason import HEALTHY, UNDETERMINED, reason

TROUBLE = Rule("training-log", P1, "Training logs in CloudWatch show why a job failed", "operations.md § 4")

OWN = (health_agent.PREFIX, deep_checks.PREFIX, lifecycle.PREFIX)
# CloudWatch compares letter by letter. A line with none of these is read from the file itself: hpslurm scan.
WORDS = (
    *("NCCL WARN", "NCCL error", "unhandled system error", "Test NCCL failure", "Watchdog caught", "timed out"),
    *("Xid", "SXid", "CUDA error", "Cuda failure", "ECC", "out of memory", "OutOfMemoryError", "CUDA_ERROR"),
    *("Traceback", "RuntimeError", "Segmentation fault", "Bus error", "Killed", "No space left on device"),
    *("loss: nan", "grad norm: nan", "NaN", "Connection refused", "Connection reset", "libfabric:", "srun: error"),
)
PATTERN = " ".join(f'?"{word}"' for word in WORDS)
LINES = log_need("training_log_lines", "", PATTERN, after=lifecycle.LINES, without=OWN)
NEEDS = (CLUSTER, INSTANCES, LINES)
# Another machine with the same one of these is another fault, and not the same one seen from elsewhere.
OF_ONE_MACHINE = ("gpu_ecc", "gpu_fell_off_bus", "gpu_nvlink", "gpu_gsp")
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8}(?:[0-9a-f]{9})?\b")
_NODE = re.compile(r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b")


@dataclass(frozen=True)
class Facts:
    cluster: Cluster
    lines: tuple[LogLine, ...]
    instances: tuple[Instance, ...] | None  # None where the list could not be read
    now: float
    trouble: str = ""


def collect(view: View) -> Facts:
    lines, trouble = view.get(LINES)
    instances, why = known_instances(view)
    theirs = tuple(line for line in lines if not _gone(line, instances))
    if not theirs and not trouble:
        raise Skip(
            "no line of trouble in streams other than HyperPod's own; a job's output is there only where a site's "
            "agent ships it, operations.md § 4"
        )
    return Facts(view.get(CLUSTER), theirs, instances, view.now, "; ".join(filter(None, (trouble, why))))


def _gone(line: LogLine, instances: tuple[Instance, ...] | None) -> bool:
    """Whether its stream is that of an instance which exists no more."""
    named = _INSTANCE.search(line.stream)
    return named is not None and instances is not None and all(named[0] != instance.id for instance in instances)


def machine_of(stream: str, instances: tuple[Instance, ...] | None) -> Instance | None:
    """The instance that a stream names by its id or its host name."""
    identity, node = _INSTANCE.search(stream), _NODE.search(stream)
    for instance in instances or ():
        if (identity and instance.id == identity[0]) or (node and instance.node == node[0]):
            return instance
    return None


def by_stream(lines: Iterable[LogLine]) -> dict[str, list[LogLine]]:
    """The lines of each stream, oldest first."""
    streams: dict[str, list[LogLine]] = {}
    for line in sorted(lines, key=lambda line: line.time):
        streams.setdefault(line.stream, []).append(line)
    return streams


def diagnosed(streams: Mapping[str, Iterable[LogLine]]) -> Diagnosis:
    """What scan makes of all streams together, each one a file."""
    collector = Collector()
    for stream, printed in streams.items():
        text = "\n".join(line.text.replace("\n", " ") for line in printed)
        collector.stream(io.BytesIO(text.encode("utf-8", "replace")), stream)
    return reason(collector.result())


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    streams = by_stream(facts.lines)
    first = diagnosed(streams)
    told: set[str] = set()  # subjects
    if named(first) and first.decisive is not None:
        finding = _found(
            facts, streams, first, f"; {len(streams)} of the streams that jobs wrote have lines of trouble"
        )
        told.add(finding.subject)
        yield finding
    for stream, printed in streams.items():
        diagnosis = diagnosed({stream: printed})
        if not named(diagnosis) or follows(diagnosis.cause, first.cause):
            continue
        finding = _found(facts, streams, diagnosis, "")
        if finding.subject not in told:
            told.add(finding.subject)
            yield finding
    if facts.trouble:
        raise Unknown(facts.trouble)


def named(diagnosis: Diagnosis) -> bool:
    return diagnosis.decisive is not None and diagnosis.cause not in (HEALTHY, UNDETERMINED)


def follows(cause: str, first: str) -> bool:
    """Whether the cause of one stream is, or comes from, that of all; a broken GPU is one of its own machine."""
    return explains(first, cause) or (cause == first and cause not in OF_ONE_MACHINE)


def _found(facts: Facts, streams: Mapping[str, list[LogLine]], diagnosis: Diagnosis, more: str) -> Finding:
    assert diagnosis.decisive is not None
    stream = diagnosis.decisive.file
    proof = streams[stream][diagnosis.decisive.line - 1]
    instance = machine_of(stream, facts.instances)
    who = about_role(instance.role) if instance else ""
    return TROUBLE.found(
        f"{who}{ago(facts.now, proof.time)}: {diagnosis.cause} ({diagnosis.confidence} confidence), by a line of "
        f"{clean(stream, 120)}{more}",
        evidence=evidence([proof]),
        suggest=[_read(facts.cluster, stream), explained(diagnosis.cause)],
        subject=instance.subject if instance else facts.cluster.name,
    )


def explained(cause: str) -> Suggestion:
    return Suggestion(LOOK, "what that cause means, and what to do", f"hpslurm explain {cause}")


def _read(cluster: Cluster, stream: str) -> Suggestion:
    return Suggestion(
        LOOK,
        "read the whole stream, or give it to hpslurm scan",
        f"aws logs tail {shlex.quote(log_group(cluster))} --since 3h --log-stream-names {shlex.quote(stream)}",
    )
