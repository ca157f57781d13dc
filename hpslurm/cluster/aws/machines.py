"""What HyperPod tells of machines over time, for ``history``: who is behind a name since when, and what befell it."""

from __future__ import annotations

from collections.abc import Iterator

from hpslurm.cluster.aws import checks, whom
from hpslurm.cluster.aws.events import EVENTS, INFO, level_of
from hpslurm.cluster.aws.health_agent import LINES
from hpslurm.cluster.aws.view import View
from hpslurm.cluster.history import Cloud, Trace
from hpslurm.core import probe
from hpslurm.core.probe import UNKNOWN, Result, Skip, Unknown
from hpslurm.core.text import clean
from hpslurm.sources import hyperpod
from hpslurm.sources.host import Host


def cloud(asked: whom.Options, host: Host) -> Cloud:
    """Never raises: what could not be asked is in ``missing``."""
    try:
        layout = hyperpod.layout(host)
    except (Skip, Unknown):
        layout = hyperpod.Layout()
    try:
        view = checks.collect(asked, layout)
    except Exception as error:
        return Cloud({}, missing=(Result("aws", UNKNOWN, clean(probe.reason(error))),))
    if view.trouble:
        return Cloud({}, missing=(Result("aws", UNKNOWN, clean(str(view.trouble))),))
    return of_view(view)


def of_view(view: View) -> Cloud:
    launched = {one.subject: (one.launched, one.id) for one in checks.listed(view)}
    missing = []
    for need in (EVENTS, LINES):
        answer = view.answers.get(need.name)
        if isinstance(answer, Unknown):
            missing.append(Result(f"hyperpod_{need.name}", UNKNOWN, clean(str(answer))))
    return Cloud(launched, tuple(_traces(view)), tuple(missing))


def _traces(view: View) -> Iterator[Trace]:
    """By instance id: events that are more than information, and what the health agent wrote."""
    events, _ = view.maybe(EVENTS, ((), ""))[0]
    for event in events:
        if event.instance and level_of(event) != INFO:
            yield Trace(event.time, event.instance, "HyperPod", clean(event.text, 200))
    lines, _ = view.maybe(LINES, ((), ""))[0]
    for line in lines:
        if line.instance:
            yield Trace(line.time, line.instance, "HyperPod", f"health agent: {clean(line.text, 160)}")
