"""Everything that can be had, asked for in turn, and masked."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Sequence

from hpslurm.bundle import archive, case, environment, of_cluster, of_job, of_logs, of_machine, of_records, summary
from hpslurm.bundle.archive import Part
from hpslurm.bundle.masking import Masker
from hpslurm.bundle.parts import Parts
from hpslurm.bundle.request import Request
from hpslurm.bundle.window import Window, window_of
from hpslurm.cluster import gather
from hpslurm.core import policy, records
from hpslurm.core.values import dataclass
from hpslurm.scan.collect import Collector
from hpslurm.sources.slurm import SlurmJob

PEOPLE = range(1000, 60000)  # uids


@dataclass(frozen=True)
class Bundle:
    """``collected``: something of the cluster, the job or a log is in it, not only of this machine."""

    parts: tuple[Part, ...]
    missing: tuple[tuple[str, str], ...]
    window: Window
    masker: Masker
    collected: bool
    problems: tuple[str, ...] = ()  # of the policy


def collect(request: Request, say: Callable[[str], None]) -> Bundle:
    """Everything that can be had. Raises WrongWindow."""
    parts = Parts(say)
    rules = policy.load(request.policy)
    job_report = of_job.asked(request, rules, parts)
    job = job_report.job if job_report else None
    window = window_of(request, job_report)
    half, results = of_cluster.diagnosed(request, rules, window, parts)
    collector = Collector()
    read = of_logs.read_logs(request, job, collector, parts)
    ended = of_job.how_it_ended(job_report, read, collector, parts)
    known = of_job.add(request, rules, job_report, ended, parts)
    of_logs.add_logs(read, request.limit, parts)
    errors = of_logs.add_errors(ended, read, bool(read or (job_report and job_report.records)), parts)
    kept = of_records.add(request, rules, half, job_report, parts)
    settings = environment.add(kept, read, parts)
    machine = of_machine.look(request, rules, kept, parts)
    parts.add("window.json", records.encode({"schema": 1, **window.described()}), window.source)
    collected = summary.Collected(half, results, job_report, ended, window, errors, settings, machine)
    told = summary.of(request, collected)
    parts.text("case.txt", "everything here", lambda: case.text(told, parts.missing))
    masker = Masker(_people(half, job), [member.name for member in half.members.members] if half else ())
    say("masking")
    masked = list(_masked(parts.parts, masker))
    masked.append(Part("README.txt", case.readme(archive.masked(masked), [part.name for part in masked]), "hpslurm"))
    missing = tuple((masker.mask(what), masker.mask(why)) for what, why in parts.missing)
    collected_any = bool((half and half.readable) or known or read)
    return Bundle(tuple(masked), missing, window, masker, collected_any, rules.problems)


def _masked(parts: Sequence[Part], masker: Masker) -> Iterator[Part]:
    for part in parts:  # a name that one file shows as a user's is hidden in those before it, too
        masker.learn(part.text)
    for part in parts:
        text = masker.mask(part.text)
        counts = {rule: count for rule, count in masker.counts.items() if count}
        yield Part(masker.mask(part.name), text, masker.mask(part.source), part.kind, part.left_out,
                   masker.mask(part.note), counts)  # fmt: skip


def people_of(entries: Iterable[pwd.struct_passwd]) -> list[str]:
    """Names of people, by their uids: neither the system's accounts nor nobody's."""
    return [entry.pw_name for entry in entries if entry.pw_uid in PEOPLE]


def _people(half: gather.Half | None, job: SlurmJob | None) -> list[str]:
    """Who may be named anywhere: people of this machine, of the queue, of the job."""
    names = people_of(pwd.getpwall())
    names += [queued.user for member in (half.members.members if half else ()) for queued in member.jobs]
    names += [job.user] if job else []
    names += [os.environ.get(name, "") for name in ("SUDO_USER", "USER")]
    return [name for name in dict.fromkeys(names) if name]
