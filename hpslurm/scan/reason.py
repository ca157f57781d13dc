"""From events to one cause. A pure function: the same events give the same answer, in any order.

Noise is dropped first. Then roots are compared: what a root explains loses against it, echoes of a
dead peer lose against whatever killed the peer, and the rest is decided by how directly a line proves
its cause, then by time. Only without a root do symptoms speak, and then absence is evidence as well:
the rank that says nothing while all others wait.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable

from hpslurm.core.finding import NOISE, ROOT, SYMPTOM, Culprit, Diagnosis, Event, Finding
from hpslurm.core.text import whole
from hpslurm.core.values import replace
from hpslurm.scan import advice
from hpslurm.scan.patterns import Table, table

UNDETERMINED = "undetermined"
HEALTHY = "healthy"

# A root whose line is also printed by the survivors of somebody else's death.
ECHOES = frozenset({
    "ib-error-12", "ib-error-any", "ib-error-10", "ucx-transport", "nccl-conn-refused", "c10d-conn-refused", "conn-refused-any", "conn-timedout-any",  # noqa: E501
    "store-wait-timeout", "rdzv-timeout", "c10d-client-timeout", "efa-unresponsive-recv", "nccl-bootstrap-timeout", "hung-task", "nan-loss", "fatal-word",  # noqa: E501
    "sigbus", "elastic-exit-9", "exit-137", "bash-killed", "cuda-device-lost", "cuda-no-device",
})  # fmt: skip
PROVEN = 50  # weight from which a root explains an echo
LATE = 3.0  # seconds: clocks of different hosts may differ by this much

KIND_ONLY = frozenset({"kind:training"})  # words that any text may hold


class _Case:
    """The events of one scan, sorted by what they are."""

    def __init__(self, events: Iterable[Event], patterns: Table) -> None:
        self.patterns = patterns
        self.all = sorted(events, key=lambda event: (event.file, event.line, event.pattern))
        self.identity: dict[tuple[str, int | None], int] = {}
        self.world = 0
        for event in self.all:
            if event.pattern == "identity" and event.rank is not None:
                self.identity[(event.host, event.pid)] = event.rank
            if event.pattern in ("identity", "world"):
                self.world = max(self.world, whole(event.fact("world")) or 0)
        self.kinds = {event.pattern[5:] for event in self.all if event.pattern.startswith("kind:")}
        self.life = [event for event in self.all if event.pattern == "life"]
        self.began = [event for event in self.all if event.pattern == "life-began"]
        self.busy = [event for event in self.all if event.pattern == "busy"]
        self.files = {
            event.rank: event.file for event in self.all if event.pattern == "file" and event.rank is not None
        }
        named = [self._named(event) for event in self.all if event.role != NOISE]
        self.roots = [event for event in named if event.role == ROOT]
        self.symptoms = [event for event in named if event.role == SYMPTOM]

    def _named(self, event: Event) -> Event:
        """With the world rank, where NCCL's set-up told which process it is."""
        if event.rank is None and event.pid is not None:
            rank = self.identity.get((event.host, event.pid))
            if rank is not None:
                return replace(event, rank=rank)
        return event

    def before(self, one: Event, other: Event) -> bool | None:
        """Whether ``one`` came first; None when nothing tells."""
        if (
            one.time is not None
            and other.time is not None
            and abs(one.time - other.time) > (LATE if one.file != other.file else 0)
        ):
            return one.time < other.time
        if one.file == other.file and one.line != other.line:
            if (one.line < 0) != (other.line < 0):  # a negative number is counted from the end
                return other.line < 0
            return one.line < other.line
        return None

    def survived(self, event: Event) -> bool:
        """A retry of the start that succeeded: work went on after it, and none before it."""
        for life in self.life:
            if life.file == event.file and life.line > max(event.line, event.last_line):
                return not any(began.file == event.file and began.line < event.line for began in self.began)
            if life.time is not None and event.time is not None and life.time > event.time + 30:
                return True
        return False


def reason(events: Iterable[Event], findings: Iterable[Finding] = (), unread: Iterable[str] = ()) -> Diagnosis:
    """One answer for everything that was seen. ``findings`` are the nodes' own (XID, OOM, counters)."""
    case = _Case([*events, *_from_findings(findings)], table())
    roots = [*_drop_survived(case, case.roots), *_derived(case)]
    roots = _drop_beaten(case, roots)
    roots = _drop_echoes(case, roots)
    symptoms = _drop_beaten_symptoms(case, roots, _drop_survived(case, case.symptoms))
    missing = list(unread)
    chosen = _best(case, roots)
    if chosen is not None and chosen.cause == "job_cancelled":
        chosen = _cancelled_or_hung(case, chosen, roots, symptoms)
    if chosen is None and symptoms:
        chosen = _best(case, symptoms)
    if chosen is None:
        return _nothing(case, missing)
    if chosen.cause == UNDETERMINED:
        ask = "the output of all ranks, and dmesg and slurmd's log of the nodes"
        return Diagnosis(
            UNDETERMINED,
            "low",
            f"{chosen.count} lines of trouble that are not known here",
            None,
            chosen,
            (*missing, ask),
        )
    return _answer(case, chosen, [*roots, *symptoms], missing)


# --------------------------------------------------------------------------- choosing


def _from_findings(findings: Iterable[Finding]) -> Iterable[Event]:
    for finding in findings:
        if finding.rule.cause and not finding.muted:
            weight = {"P0": 86, "P1": 66}.get(finding.rule.priority, 30)
            yield Event(
                f"finding:{finding.rule.id}",
                ROOT,
                "node record",
                0,
                finding.detail,
                host=finding.subject,
                cause=finding.rule.cause,
                weight=weight,
            )


def _drop_survived(case: _Case, events: list[Event]) -> list[Event]:
    """Retries that succeeded: work went on after the last of them."""
    kept = []
    for event in events:
        pattern = case.patterns.by_id.get(event.pattern)
        if pattern is not None and pattern.transient and case.survived(event):
            continue
        kept.append(event)
    return kept


def _drop_beaten(case: _Case, roots: list[Event]) -> list[Event]:
    beaten: set[int] = set()
    for strong in roots + case.symptoms:
        pattern = case.patterns.by_id.get(strong.pattern)
        if pattern is None or not pattern.beats:
            continue
        if strong.cause != pattern.cause:  # its check gave the line another meaning
            continue
        for index, other in enumerate(roots):
            if other.pattern == strong.pattern or (other.cause == strong.cause and strong.role == ROOT):
                continue
            if other.pattern in pattern.beats or (strong.role == ROOT and other.cause in pattern.beats):
                if strong.role == ROOT and other.weight >= 90 and strong.weight < 80:
                    continue
                beaten.add(index)
    return [event for index, event in enumerate(roots) if index not in beaten]


def _drop_beaten_symptoms(case: _Case, roots: list[Event], symptoms: list[Event]) -> list[Event]:
    return symptoms


def _drop_echoes(case: _Case, roots: list[Event]) -> list[Event]:
    """An echo loses against a proven root that did not come after it."""
    proven = [
        event
        for event in roots
        if event.pattern not in ECHOES and event.weight >= PROVEN and event.cause != "job_cancelled"
    ]
    kept = []
    for event in roots:
        if event.pattern == "launcher-child" and event.weight <= 34 and _follows_a_hang(case, event):
            continue
        if event.pattern in ECHOES and any(
            other.cause != event.cause and case.before(event, other) is not True for other in proven
        ):
            continue
        kept.append(event)
    return kept


def _follows_a_hang(case: _Case, event: Event) -> bool:
    """A launcher's exit code after a watchdog is how the watchdog ends its process."""
    hangs = [one for one in case.symptoms if one.cause == "collective_timeout_unknown"]
    return any(case.before(event, one) is not True for one in hangs) and not any(
        case.before(event, one) is True for one in hangs
    )


def _best(case: _Case, events: list[Event]) -> Event | None:
    if not events:
        return None
    top = max(event.weight for event in events)
    # Lines that prove about as much: the earliest of them started it.
    near = [event for event in events if event.weight >= top - 3]
    timed = [event for event in near if event.time is not None]
    if len(timed) == len(near):
        first = min(near, key=lambda event: (event.time or 0.0, -event.weight, event.file, event.line))
        best = max(near, key=lambda event: event.weight)
        if (
            best.time is not None
            and first.time is not None
            and best.time - first.time <= LATE
            and best.cause != first.cause
        ):
            return best
        rivals = [
            event
            for event in near
            if event.time is not None
            and first.time is not None
            and event.time - first.time <= LATE
            and event.cause == first.cause
        ]
        return _odd_one_out(rivals) or first
    best = max(near, key=lambda event: (event.weight, -_order(event)[0], -_order(event)[1]))
    rivals = [event for event in near if event.cause == best.cause and event.weight == best.weight]
    rivals.sort(key=lambda event: (event.time is None, event.time or 0.0, event.file, event.line))
    return _odd_one_out(rivals) or rivals[0]


def _order(event: Event) -> tuple[int, int]:
    return (0, event.line)


def _odd_one_out(rivals: list[Event]) -> Event | None:
    """Among the same cause on several ranks, the one whose text differs from what all others print."""
    if len(rivals) < 3:
        return None
    texts = Counter(_shape(event) for event in rivals)
    if len(texts) == 2:
        (_, many), (rare, once) = texts.most_common(2)
        if once == 1 and many >= 2:
            return next(event for event in rivals if _shape(event) == rare)
    return None


def _shape(event: Event) -> str:
    return re.sub(r"\d+", "#", event.text.split("]", 1)[-1])[:120]


def _cancelled_or_hung(case: _Case, chosen: Event, roots: list[Event], symptoms: list[Event]) -> Event:
    """A time limit that ends a job which already hung or failed is a consequence."""
    others = [event for event in roots if event.cause != "job_cancelled" and event.weight >= 30]
    others += [
        event for event in symptoms if event.cause in ("collective_timeout_unknown", "peer_exit") and event.weight >= 24
    ]
    # Slurm's word for how the job ended comes last, whatever its clock says.
    earlier = [event for event in others if chosen.pattern == "job-state" or case.before(event, chosen) is True]
    if earlier:
        return max(earlier, key=lambda event: (event.role == ROOT, event.weight))
    return chosen


# --------------------------------------------------------------------------- derived evidence


def _derived(case: _Case) -> list[Event]:
    """Roots that no single line shows."""
    found: list[Event] = []
    watched = [event for event in case.symptoms if event.pattern == "watchdog"]
    found += _desync(case, watched)
    found += _finished_barrier(watched)
    found += _busy(case, watched)
    found += _flight(case)
    found += _differences(case)
    return found


def _desync(case: _Case, watched: list[Event]) -> list[Event]:
    """Ranks that wait in different collectives. Sequence numbers of different groups must not be compared."""
    groups: dict[str, dict[int, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for event in watched:
        if event.rank is not None and whole(event.fact("seq")) is not None:
            groups[event.fact("pg")][event.rank].append(event)
    for ranks in groups.values():
        if len(ranks) < 2 or any(len(events) > 2 for events in ranks.values()):
            continue
        first = {rank: min(events, key=_seq) for rank, events in ranks.items()}
        numbers = {_seq(event) for event in first.values()}
        shapes = Counter(
            (event.fact("seq"), event.fact("op"), event.fact("inn"), event.fact("out")) for event in first.values()
        )
        kinds_of_op = {event.fact("op") for event in first.values()}
        if len(shapes) < 2:
            continue
        near = max(numbers) - min(numbers) <= 64
        differ = len(kinds_of_op) > 1 and near
        if len(numbers) == 1 and len(kinds_of_op) == 1:
            differ = len({(event.fact("inn"), event.fact("out")) for event in first.values()}) > 1
        behind = near and len(numbers) > 1 and len(kinds_of_op) == 1
        if not (differ or behind):
            continue
        rare = min(shapes, key=lambda shape: (shapes[shape], whole(shape[0]) or 0))
        event = next(
            event
            for event in first.values()
            if (event.fact("seq"), event.fact("op"), event.fact("inn"), event.fact("out")) == rare
        )
        return [
            replace(event, pattern="desync-watchdog", role=ROOT, cause="collective_desync", weight=56 if differ else 42)
        ]
    return []


def _finished_barrier(watched: list[Event]) -> list[Event]:
    """After the end of training one rank waits in a barrier that nobody else enters."""
    ranks = {event.rank for event in watched}
    for event in watched:
        if event.fact("finished") and len(ranks) == 1 and event.fact("inn") in ("1", ""):
            return [replace(event, pattern="lone-barrier", role=ROOT, cause="collective_desync", weight=54)]
    return []


def _busy(case: _Case, watched: list[Event]) -> list[Event]:
    """Long work that began about one time-out before the watchdog fired and was not seen to end."""
    for event in watched:
        limit = (whole(event.fact("ran") or event.fact("limit")) or 0) / 1000
        for busy in case.busy:
            if busy.time is None or event.time is None or limit < 30:
                continue
            if 0.85 * limit <= event.time - busy.time <= 1.25 * limit + 5:
                rank = busy.rank if busy.rank is not None else 0  # rank 0 saves and logs by convention
                return [replace(busy, pattern="busy-timeout", role=ROOT, cause="slow_rank_work", weight=52, rank=rank)]
    return []


# trait -> (cause, weight): a host that differs from the others in it
DIFFERENT = {
    "nccl": ("nccl_version_mismatch", 64),
    "network": ("efa_not_used", 58),
    "nics": ("efa_not_used", 54),
    "plugin": ("efa_version", 46),
    "libfabric": ("efa_version", 46),
}


def _differences(case: _Case) -> list[Event]:
    """Hosts of one job that are not alike; evidence only where something went wrong."""
    if not case.roots and not case.symptoms:
        return []
    found = []
    for name, (cause, weight) in DIFFERENT.items():
        hosts: dict[str, dict[str, Event]] = defaultdict(dict)
        for event in case.all:
            if event.pattern == "trait" and event.fact(name):
                hosts[event.fact(name)].setdefault(event.host, event)
        if len(hosts) != 2:  # more values than two: each host has several, as with several communicators
            continue
        (_, few), (_, many) = sorted(hosts.items(), key=lambda item: (len(item[1]), item[0]))
        if set(few) & set(many):
            continue
        host, event = min(few.items())
        found.append(replace(event, pattern=f"host-{name}", role=ROOT, cause=cause, weight=weight, host=host))
    return found


def _flight(case: _Case) -> list[Event]:
    """What the flight recorders of all ranks say together."""
    dumps = [event for event in case.all if event.pattern == "fr"]
    if not dumps:
        return []
    from hpslurm.scan import flight

    verdict = flight.judge(dumps)
    if verdict is None:
        return []
    pattern = "fr-shape" if verdict.cause == "collective_desync" else "fr-silent"
    return [
        replace(
            verdict.event,
            pattern=pattern,
            role=ROOT,
            cause=verdict.cause,
            weight=verdict.weight,
            rank=verdict.rank,
            text=verdict.text,
        )
    ]


def _silent(case: _Case, waiting: list[Event]) -> tuple[list[int], bool]:
    """(ranks that do not complain while others wait, whether their files were given)."""
    loud = {event.rank for event in waiting if event.rank is not None}
    world = case.world or (max(case.files, default=-1) + 1)
    if not loud or world < 2:
        return [], False
    quiet = [rank for rank in range(world) if rank not in loud]
    if not quiet or len(quiet) > max(1, world // 4):
        return [], False
    return quiet, all(rank in case.files for rank in quiet)


# --------------------------------------------------------------------------- the answer


def _nothing(case: _Case, missing: list[str]) -> Diagnosis:
    strong = case.kinds - {"training", "squeue", "sacct"}
    drained = next((event for event in case.all if event.pattern in ("sinfo-drained", "sinfo-reason")), None)
    if drained is not None:
        return Diagnosis(
            UNDETERMINED,
            "low",
            "nodes are drained; the list does not say why",
            None,
            drained,
            (*missing, "the reasons: sinfo -R"),
            section="",
        )
    if case.life or strong:
        why = "no fault line" + (f"; recognised as {', '.join(sorted(strong or case.kinds))}" if case.kinds else "")
        if case.life:
            why += f"; work went on at {case.life[-1].file}:{case.life[-1].line}"
        return Diagnosis(HEALTHY, "medium" if case.life else "low", why, None, None, tuple(missing))
    ask = "the output of all ranks, and dmesg and slurmd's log of the nodes"
    return Diagnosis(UNDETERMINED, "low", "nothing here is known to this program", None, None, (*missing, ask))


def _seq(event: Event) -> int:
    return whole(event.fact("seq")) or 0


def _confidence(chosen: Event) -> str:
    return "high" if chosen.weight >= 70 else "medium" if chosen.weight >= 45 else "low"


def _short(host: str) -> str:
    return host if not host or re.fullmatch(r"[\d.]+|[0-9a-f:.\[\]]+|i-[0-9a-f]+", host) else host.split(".")[0]


def _culprit(case: _Case, chosen: Event, events: list[Event]) -> Culprit | None:
    rank, local, host, pid, gpu, peer = chosen.rank, chosen.local_rank, chosen.host, chosen.pid, chosen.gpu, chosen.peer
    named = chosen.fact("named_rank")
    if named:
        rank, local, pid = whole(named), None, None
        host = ""
    elif chosen.role == SYMPTOM and chosen.pattern != "launcher-child":
        rank = local = pid = None
        host, gpu = "", ""
        if chosen.cause == "peer_exit":
            closed = Counter(event.fact("closed") for event in events if event.fact("closed"))
            if closed:
                most = closed.most_common(1)[0][0]
                local = whole(most)
                host = next((event.host for event in events if event.fact("closed") == most), "")
            elif any(event.fact("store") for event in events) and not peer:
                rank = 0
    if chosen.fact("busy_rank"):
        rank, local, host, pid = whole(chosen.fact("busy_rank")), None, "", None
    if chosen.cause in advice.HARDWARE:  # the process on the line is whoever touched the GPU next
        pid = None
    if (
        not host
        and chosen.role == ROOT
        and chosen.cause in ("prolog_epilog", "node_fail", "host_oom", "pcie_acs_iommu", "slurm_comm", "gdr_missing")
    ):
        hosts = Counter(event.host for event in events if event.host and event.cause == chosen.cause)
        hosts = hosts or Counter(event.host for event in events if event.host and event.cause != UNDETERMINED)
        if hosts:
            host = hosts.most_common(1)[0][0]
    if rank is None and local is None and pid is None and not (host or gpu or peer):
        return None
    return Culprit(rank, local, _short(host) or None, gpu or None, pid, peer or None)


def _answer(case: _Case, chosen: Event, events: list[Event], missing: list[str]) -> Diagnosis:
    pattern = case.patterns.by_id.get(chosen.pattern)
    victims = tuple(
        event for event in events if event is not chosen and (event.cause != chosen.cause or event.role == SYMPTOM)
    )
    culprit = _culprit(case, chosen, [*events, *case.symptoms, *case.roots])
    why = advice.why(chosen, pattern, victims)
    confidence = _confidence(chosen)
    cause = chosen.cause
    waiting = [
        event for event in case.symptoms if event.cause == "collective_timeout_unknown" and event.rank is not None
    ]
    if cause == "collective_timeout_unknown":
        quiet, present = _silent(case, waiting)
        if quiet and not (culprit and culprit.rank is not None):
            ranks = ", ".join(map(str, quiet[:8]))
            if present and len(quiet) == 1:
                cause, confidence = "straggler", "medium"
                why = f"rank {ranks} is the only one that does not complain; its log stops while {len(waiting)} others wait"  # noqa: E501
                silent_file = case.files.get(quiet[0], "")
                life = next((event for event in case.life if event.file == silent_file), None)
                busy = next((event for event in case.busy if event.file == silent_file), None)
                if busy is not None:
                    cause, chosen = "slow_rank_work", busy
                    why = f"rank {ranks} was still busy while {len(waiting)} others waited"
                elif life is not None:
                    chosen = replace(life, pattern="silent-rank")
            else:
                missing.append(f"logs of ranks {ranks}: they do not complain while the others wait")
            culprit = Culprit(rank=quiet[0])
        else:
            missing.append("the other ranks' logs, and dmesg and slurmd's log of their hosts")
    elif cause == "peer_exit":
        where = advice.place(culprit)
        missing.append(f"the log of the process that went away{where}")
    elif confidence == "low":
        missing.append(advice.ask(cause))
    section = f"debugging-guide.md § {advice.section(cause, pattern)}"
    return Diagnosis(
        cause,
        confidence,
        why,
        culprit,
        chosen,
        tuple(dict.fromkeys(missing)),
        victims[:50],
        section,
        advice.suggest(cause, culprit),
    )
