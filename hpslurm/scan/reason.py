"""From events to one cause. A pure function: the same events give the same answer, in any order.

Retries that succeeded are dropped, then look-alikes and echoes of somebody else's death. What is left are
hypotheses, weighed against each other (``hypotheses``). Only without a root do symptoms speak, and then absence is
evidence as well: the rank that says nothing while all others wait. ``healthy`` needs proof: work that went on, and
no line of trouble that nobody can explain.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpslurm.core import linear
from hpslurm.core.finding import P0, P1, ROOT, SYMPTOM, Culprit, Diagnosis, Event, Finding
from hpslurm.core.text import whole
from hpslurm.core.values import replace
from hpslurm.scan import advice, derive, hypotheses, model
from hpslurm.scan.case import Case
from hpslurm.scan.culprit import culprit_of
from hpslurm.scan.hypotheses import Hypothesis
from hpslurm.scan.model import Numbers
from hpslurm.scan.patterns import table

UNDETERMINED = "undetermined"
HEALTHY = "healthy"
WORDS = ("training", "squeue", "sacct")  # kinds of text that any failure may leave as well
# Reports of a state: without a line of trouble they say that all is well.
REPORTS = (
    "kernel-log",
    "slurmd-log",
    "slurmctld-log",
    "nvidia-smi",
    "fi_info",
    "sinfo",
    "scontrol",
    "megatron",
    "ras",
    "lspci",
    "nccl-tests",
    "straggler-report",
)
# A program says so of what it can do without.
_SHRUG = linear.compile(r"(?i)\b(?:ignoring|skipping|harmless|not fatal|falling back|continuing without)\b")
MOST_LINES = 5  # that are shown where no cause is known
ASK_ALL = "the output of all ranks, and dmesg and slurmd's log of the nodes"


def reason(
    events: Iterable[Event],
    findings: Iterable[Finding] = (),
    unread: Iterable[str] = (),
    *,
    numbers: Numbers | None = None,
) -> Diagnosis:
    """One answer for everything that was seen. ``findings`` are the nodes' own (XID, OOM, counters).

    ``numbers`` are the table's; whoever fits them passes others.
    """
    case = Case([*events, *_from_findings(findings)], table(), numbers or model.numbers())
    best, roots, symptoms = _chosen(case)
    unknown = [event for event in symptoms if event.cause == UNDETERMINED]
    if best is None:
        return _nothing(case, unknown, list(unread))
    return _answer(case, best, [*roots, *symptoms], unknown, list(unread))


def best_of(events: Iterable[Event], numbers: Numbers) -> tuple[Hypothesis | None, int]:
    """The hypothesis behind the answer, and how many lines nobody can explain: for the fit."""
    case = Case(events, table(), numbers)
    best, _, symptoms = _chosen(case)
    return best, sum(event.cause == UNDETERMINED for event in symptoms)


def _chosen(case: Case) -> tuple[Hypothesis | None, list[Event], list[Event]]:
    """The best hypothesis, and the roots and symptoms that count."""
    roots = [*_not_survived(case, case.roots), *derive.roots(case)]
    roots = _not_fatal(case, _drop_echoes(case, _drop_beaten(case, roots)))
    symptoms = _not_fatal(case, _not_survived(case, case.symptoms))
    roots = _not_outlived(case, roots, symptoms)
    known = [event for event in symptoms if event.cause != UNDETERMINED]
    roots = _drop_weak(case, roots, known)
    ranked = hypotheses.ranked(case, roots)
    best = ranked[0] if ranked else None
    if best is not None and best.cause == "job_cancelled":
        best = _cancelled_or_hung(case, best, ranked, known)
    if best is None and known:
        best = hypotheses.ranked(case, known)[0]
    return best, roots, symptoms


def _from_findings(findings: Iterable[Finding]) -> Iterable[Event]:
    bounds = model.bounds()
    weights = {P0: bounds.p0, P1: bounds.p1}
    for finding in findings:
        if finding.rule.cause and not finding.muted:
            weight = weights.get(finding.rule.priority, bounds.p2)
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


# --------------------------------------------------------------------------- what does not count


def _not_survived(case: Case, events: list[Event]) -> list[Event]:
    """Without retries that succeeded, what later work shows to be over, and what a restart healed."""
    by_id = case.patterns.by_id
    return [
        event for event in events
        if not (
            ((row := by_id.get(event.pattern)) and row.transient and case.survived(event))
            or (row is not None and row.outlived and case.went_on(event))
            or (event.role == ROOT and _SHRUG.search(event.text) and (case.went_on(event) or _ended_after(case, event)))
            or (_fatal(event) and case.survived(event) and case.went_on(event) and not _failed_later(case, event))
            or (case.restarted(event) and not _of_hardware(event))
            or (event.cause == "gdr_missing" and case.on_one_node())
        )
    ]  # fmt: skip


def _fatal(event: Event) -> bool:
    cause = model.causes().get(event.cause)
    return cause is not None and cause.fatal


def _failed_later(case: Case, event: Event) -> bool:
    """Something that a row knows speaks of an end after the work began that followed this line."""
    began = min((sign.line for sign in case.began if sign.file == event.file), default=0)
    return any(
        other.file == event.file and other.line > began and other.cause != UNDETERMINED and not _guessed(other)
        for other in [*case.roots, *case.symptoms]
    )


def _ended_after(case: Case, event: Event) -> bool:
    return any(ended.file == event.file and ended.line > event.line for ended in case.of("ended-well"))


def _of_hardware(event: Event) -> bool:
    cause = model.causes().get(event.cause)
    return cause is not None and cause.hardware


def _not_fatal(case: Case, events: list[Event]) -> list[Event]:
    """Without what would have ended a program that ran to its end and said so after all of it."""
    by_id = case.patterns.by_id
    ended = {event.file: event.line for event in case.of("ended-well")}
    loud = {
        event.file for event in [*case.roots, *case.symptoms]
        if event.file in ended and (event.line < 0 or max(event.line, event.last_line) > ended[event.file])
        and not ((row := by_id.get(event.pattern)) and row.teardown)
    }  # fmt: skip
    return [event for event in events if event.file not in ended or event.file in loud or not _fatal(event)]


def _not_outlived(case: Case, roots: list[Event], symptoms: list[Event]) -> list[Event]:
    """Without guesses about unknown lines, where nothing known speaks of an end and the work went on after them all.

    A line that a row knows counts all the same: a job that crashed and was started again shows work after it, too.
    """
    if any(event.cause != UNDETERMINED for event in symptoms) or not all(map(_guessed, roots)):
        return roots
    for life in case.life:
        begins = whole(life.fact("recent"))
        if begins is not None and all(
            event.file == life.file and max(event.line, event.last_line) < begins for event in roots
        ):
            return []
    return roots


def _guessed(event: Event) -> bool:
    return event.pattern.startswith("trouble:")


def _drop_beaten(case: Case, roots: list[Event]) -> list[Event]:
    """Without the look-alikes and consequences that a pattern's own row names."""
    beaten: set[int] = set()
    bounds = model.bounds()
    for strong in roots + case.symptoms:
        row = case.patterns.by_id.get(strong.pattern)
        if row is None or not row.beats or strong.cause != row.cause:  # its check gave the line another meaning
            continue
        for index, other in enumerate(roots):
            if other.pattern == strong.pattern or (other.cause == strong.cause and strong.role == ROOT):
                continue
            if other.pattern in row.beats or (strong.role == ROOT and other.cause in row.beats):
                if strong.role == ROOT and other.weight >= bounds.strong and strong.weight < bounds.weak:
                    continue
                if (
                    case.before(other, strong) is True
                    and model.explains(other.cause, strong.cause)
                    and other.cause in row.beats
                ):
                    continue
                beaten.add(index)
    return [event for index, event in enumerate(roots) if index not in beaten]


def _drop_echoes(case: Case, roots: list[Event]) -> list[Event]:
    """Without echoes that a proven root explains which did not come after them."""
    by_id = case.patterns.by_id
    echo = {pattern.id for pattern in by_id.values() if pattern.echo}
    proven = [
        event
        for event in roots
        if event.pattern not in echo and event.weight >= case.numbers.proven and event.cause != "job_cancelled"
    ]
    given = model.bounds().given
    kept = []
    for event in roots:
        if event.pattern == "launcher-child" and _follows_a_hang(case, event):
            continue
        if event.pattern in echo and any(
            other.cause != event.cause and case.before(event, other) is not True for other in proven
        ):
            continue
        if event.pattern in echo and any(
            model.explains(other.cause, event.cause) and other.weight >= given and case.before(other, event) is True
            for other in roots
        ):  # the first failure counts, however little its line proves
            continue
        kept.append(event)
    return kept


def _drop_weak(case: Case, roots: list[Event], symptoms: list[Event]) -> list[Event]:
    """Without what the generic reader guesses where a line that is known speaks, or spoke first."""
    weak = [event for event in roots if _guessed(event)]
    known = [event for event in roots if not _guessed(event)]
    if known or not symptoms:
        return known or weak
    return [event for event in weak if any(case.before(event, symptom) is True for symptom in symptoms)]


def _follows_a_hang(case: Case, event: Event) -> bool:
    """A launcher's exit code after a watchdog, or after a rank said that its peer is gone, is how that process ends."""
    row = case.patterns.by_id["launcher-child"]
    if event.weight > row.weight + 2 or event.fact("odd"):
        return False
    if event.rank is not None and any(
        gone.cause == "peer_exit" and gone.rank == event.rank and case.before(event, gone) is not True
        for gone in case.symptoms
    ):
        return True
    hangs = [hang for hang in case.symptoms if hang.cause == "collective_timeout_unknown"]
    return any(case.before(hang, event) is True for hang in hangs)


def _cancelled_or_hung(case: Case, chosen: Hypothesis, others: list[Hypothesis], symptoms: list[Event]) -> Hypothesis:
    """A time limit that ends a job which already hung or failed is a consequence."""
    bounds = model.bounds()
    rivals = [other for other in others if other.cause != chosen.cause and other.decisive.weight >= bounds.given]
    if chosen.decisive.fact("why").startswith(("PREEMPT", "JOB REQUEUE")):
        rivals = [other for other in rivals if other.decisive.weight > chosen.decisive.weight]
    hangs = [event for event in symptoms if event.cause in ("collective_timeout_unknown", "peer_exit")]
    rivals += hypotheses.ranked(case, [event for event in hangs if event.weight >= bounds.hang])
    # Slurm's word for how the job ended comes last, whatever its clock says.
    earlier = [
        other for other in rivals
        if chosen.decisive.pattern == "job-state" or case.before(other.decisive, chosen.first) is True
    ]  # fmt: skip
    if earlier:
        return max(earlier, key=lambda other: (other.decisive.role == ROOT, other.decisive.weight))
    return chosen


# --------------------------------------------------------------------------- the answer


def _nothing(case: Case, unknown: list[Event], missing: list[str]) -> Diagnosis:
    """No cause: healthy with proof, else undetermined with the lines that nobody can explain."""
    for drained in [*case.of("sinfo-drained"), *case.of("sinfo-reason")][:1]:
        why = "nodes are drained; the list does not say why"
        return Diagnosis(UNDETERMINED, "low", why, None, drained, (*missing, "the reasons: sinfo -R"))
    grave = [event for event in unknown if not _went_on(case, event)]
    lines = strangest(case, grave)
    if lines:
        count = sum(event.count for event in grave)
        why = f"{count} line{'s' if count != 1 else ''} of trouble that are not known here"
        ask = ask_for(case, lines)
        return Diagnosis(UNDETERMINED, "low", why, None, lines[0], (*missing, ask), tuple(lines[1:]))
    kinds = case.kinds - set(WORDS)
    benign = case.of("benign")
    for ended in case.of("ended-well"):
        why = f"the program says that it completed at {ended.file}:{ended.line}"
        return Diagnosis(HEALTHY, "medium", why, None, None, tuple(missing))
    if case.life:
        where = f"work went on at {case.life[-1].file}:{case.life[-1].line}"
        also = f"; recognised as {', '.join(sorted(kinds or case.kinds))}" if case.kinds else ""
        return Diagnosis(HEALTHY, "medium", f"no line of trouble, and {where}{also}", None, None, tuple(missing))
    if benign:
        why = f"all that looks like trouble is normal here: {benign[0].fact('why')}"
        return Diagnosis(HEALTHY, "low", why, None, None, tuple(missing), tuple(benign[:MOST_LINES]))
    reports = sorted(kinds & set(REPORTS)) or ["the flight recorders"] * bool(case.of("fr"))
    if reports or case.of("proof"):
        what = reports[0] if reports else case.of("proof")[0].fact("what")
        return Diagnosis(HEALTHY, "low", f"no line of trouble in {what}", None, None, tuple(missing))
    why = (
        "nothing here is known to this program"
        if not case.kinds
        else "no line of trouble, and none that shows work going on"
    )
    return Diagnosis(UNDETERMINED, "low", why, None, None, (*missing, ASK_ALL))


def _went_on(case: Case, event: Event) -> bool:
    """A line of little gravity, or one after which the work of the same file went on; a crash, if it ended well."""
    signs = case.of("ended-well")
    if event.weight < model.bounds().crash:
        signs += case.life
    return event.weight < model.bounds().serious or any(
        sign.file == event.file and sign.line > max(event.line, event.last_line) for sign in signs
    )


def strangest(case: Case, unknown: list[Event]) -> list[Event]:
    """At most five lines of trouble, the most telling first: grave, printed by one only, early, last before silence."""
    shapes: dict[str, set[tuple[int | None, str]]] = {}
    for event in unknown:
        shapes.setdefault(hypotheses.shape(event), set()).add((event.rank, event.host))
    once: dict[str, Event] = {}
    for event in sorted(unknown, key=lambda event: (event.time is None, event.time or 0.0, event.file, event.line)):
        once.setdefault(hypotheses.shape(event), event)
    order = sorted(once.values(), key=lambda event: (-event.weight, len(shapes[hypotheses.shape(event)])))
    return order[:MOST_LINES]


def ask_for(case: Case, lines: list[Event]) -> str:
    """The file to look at next."""
    ranks = sorted({event.rank for event in lines if event.rank is not None})
    if ranks:
        return f"all output of rank {ranks[0]}, and dmesg and slurmd's log of its node"
    hosts = sorted({event.host for event in lines if event.host})
    return f"dmesg and slurmd's log of {hosts[0]}, and the job's whole output" if hosts else ASK_ALL


def silent(case: Case, waiting: list[Event]) -> tuple[list[int], bool]:
    """(ranks that do not complain while others wait, whether their files were given)."""
    loud = {event.rank for event in waiting if event.rank is not None}
    world = case.world or (max(case.files, default=-1) + 1)
    if not loud or world < 2:
        return [], False
    quiet = [rank for rank in range(world) if rank not in loud]
    if not quiet or len(quiet) > max(1, world // 4):
        return [], False
    return quiet, all(rank in case.files for rank in quiet)


def _answer(case: Case, best: Hypothesis, events: list[Event], unknown: list[Event], missing: list[str]) -> Diagnosis:
    chosen = best.decisive
    row = case.patterns.by_id.get(chosen.pattern)
    victims = tuple(
        event for event in events
        if event is not chosen and event.cause != UNDETERMINED
        and (event.cause != chosen.cause or event.role == SYMPTOM)
    )  # fmt: skip
    culprit = culprit_of(case, chosen, [*events, *case.symptoms, *case.roots])
    why = advice.why(chosen, row, victims)
    confidence = hypotheses.confidence(hypotheses.probability(best, len(unknown), case.numbers), case.numbers)
    cause = chosen.cause
    if cause == "collective_timeout_unknown":
        cause, confidence, why, culprit, chosen = _hung(case, confidence, why, culprit, chosen, missing)
    elif cause == "peer_exit":
        missing.append(f"the log of the process that went away{advice.place(culprit)}")
    elif confidence == "low":
        missing.append(advice.ask(cause))
    section = f"debugging-guide.md § {advice.section(cause, row)}"
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


def _hung(
    case: Case, confidence: str, why: str, culprit: Culprit | None, chosen: Event, missing: list[str]
) -> tuple[str, str, str, Culprit | None, Event]:
    """Everybody waits: the rank that does not complain is the one that they wait for."""
    cause = chosen.cause
    waiting = [event for event in case.symptoms if event.cause == cause and event.rank is not None]
    named = {event.fact("named_rank") for event in case.symptoms if event.cause == cause} - {""}
    if len(named) == 1 and not (culprit and culprit.rank is not None):
        rank = whole(named.pop())
        culprit = Culprit(rank=rank, host=case.hosts.get(rank) if rank is not None else None)
    quiet, present = silent(case, waiting)
    if not quiet or (culprit and culprit.rank is not None):
        missing.append("the other ranks' logs, and dmesg and slurmd's log of their hosts")
        return cause, confidence, why, culprit, chosen
    ranks = ", ".join(map(str, quiet[:8]))
    if present and len(quiet) == 1:
        file = case.files.get(quiet[0], "")
        busy = next((event for event in case.busy if event.file == file), None)
        life = next((event for event in case.life if event.file == file), None)
        if busy is not None:
            cause, chosen = "slow_rank_work", busy
            why = f"rank {ranks} was still busy while {len(waiting)} others waited"
        else:
            cause = "straggler"
            why = f"rank {ranks} is the only one that does not complain; its log stops while {len(waiting)} others wait"
            chosen = replace(life, pattern="silent-rank") if life is not None else chosen
        confidence = "medium"
    else:
        missing.append(f"the logs of rank{'s' * (len(quiet) > 1)} {ranks}, silent while the others wait")
    host = case.hosts.get(quiet[0]) if len(quiet) == 1 else None
    return cause, confidence, why, Culprit(rank=quiet[0], host=host), chosen
