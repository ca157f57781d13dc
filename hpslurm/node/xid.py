"""XID and SXID: what the GPU driver printed in the kernel log since boot.

One fault prints many codes on many GPUs. Here they become incidents, each with one
cause per GPU; codes that only follow another (45 after a kill, 94 beside 48) are told
as its company. The driver's own recovery action, as NVML or the newest 154 line has it,
wins over the tables. In an epilog, what happened within the job is told apart from what
was there before, and what a program did to itself is told only then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from hpslurm.core.finding import P0, P1, Evidence, Finding, Rule
from hpslurm.core.policy import Policy
from hpslurm.core.probe import Skip, Unknown
from hpslurm.core.text import whole
from hpslurm.core.values import dataclass, field, replace
from hpslurm.node import gpu_driver, gpu_recovery, gpu_witness, gpus, xid_decode, xid_table
from hpslurm.node.gpu_processes import JOB_CGROUP
from hpslurm.node.xid_decode import INFO, Verdict
from hpslurm.node.xid_lines import MARKS, SXID, XID, Incident, Line, incidents, parse, uuids
from hpslurm.node.xid_table import Row, row, switch_row
from hpslurm.sources import gpu, kmsg
from hpslurm.sources.host import Host

__all__ = ["Facts", "collect", "judge", "row", "start", "switch_row", "table_rules"]

UNKNOWN_XID = Rule("xid-unknown", P1, "XID that no table has", "debugging-guide.md § 7")
UNKNOWN_SXID = Rule("sxid-unknown", P1, "SXID that no table has", "debugging-guide.md § 19")

BEFORE_SLACK = 5.0  # seconds; the kernel's clock drifts against the wall's
MOST_LINES, MOST_PIDS = 20_000, 200
ENOUGH = 24 * 3600.0  # seconds of kernel log without which an older start of the node is a gap worth telling
# Which code of an incident is the cause, gravest first
RANK = (79, 119, 120, 62, 140, 48, 95, 64, 74, 149, 150, 158, 46, 110, 143, 136, 155, 109, 94, 145, 146, 144, 63, 156)
RANKS = {code: number for number, code in enumerate((*RANK, 32, 31, 13))}
OURS = ("hardware", "driver_or_hardware", "driver", "event", "sympathetic")  # origins that are not the program
JOB, BEFORE, OTHER = "during this job", "before this job", "of another job"


@dataclass(frozen=True)
class Facts:
    incidents: tuple[Incident, ...] = ()
    gpus: dict[str, str] = field(default_factory=dict)  # address to GPU 3 (uuid, address), or to the UUID
    recovery: dict[str, int] = field(default_factory=dict)  # address to what NVML says the driver wants now
    driver: int | None = None  # branch, such as 570
    begins: float = 0.0  # since when the log is whole; 0: since boot
    booted: float = 0.0
    now: float = 0.0
    job_start: float | None = None  # only in an epilog or a step
    job_gpus: tuple[str, ...] | None = None  # addresses; None: not known, or all
    job: str = ""
    owners: dict[int, str] = field(default_factory=dict)  # process that a line names and that still runs, to its job
    boot: str = ""  # id of this boot, to which all lines belong
    signs: dict[str, str] = field(
        default_factory=dict
    )  # address of each GPU to what another source shows wrong with it
    unread: int = 0  # lines that look like one and could not be read


def start(host: Host) -> None:
    gpu.start(host)


def collect(host: Host) -> Facts:
    if not gpu.present(host):
        raise Skip("no NVIDIA GPU here")
    log = kmsg.read(host)
    records = log.matching(*MARKS)
    if len(records) > MOST_LINES:  # a flood: its beginning names the cause, its end what is now
        records = records[: MOST_LINES // 2] + records[-MOST_LINES // 2 :]
    read = [(record, parse(record)) for record in records]
    lines = [line for _, line in read if line]
    facts = Facts(
        begins=log.begins,
        booted=log.booted,
        now=_now(host, log),
        job_start=_job_start(host),
        boot=log.boot_id,
        unread=sum(line is None and "NVRM: Xid (" in record.text for record, line in read),
    )
    if not lines:
        return facts
    names, recovery = _names(host)
    return replace(
        facts,
        incidents=incidents(lines),
        gpus={**uuids(records), **names},
        recovery=recovery,
        signs=gpu_witness.signs(host),
        driver=_branch(host),
        job_gpus=_job_gpus(host),
        job=host.env.get("SLURM_JOB_ID", ""),
        owners=_owners(host, {line.pid for line in lines[-MOST_PIDS:] if line.pid}),
    )


def _now(host: Host, log: kmsg.Log) -> float:
    """A saved machine's clock stands where its uptime stands."""
    if not host.root:
        return time.time()
    try:
        return log.booted + float(host.read("/proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return log.booted


def _job_start(host: Host) -> float | None:
    if host.in_hook and host.env.get("SLURM_SCRIPT_CONTEXT") != gpus.EPILOG:
        return None
    began = host.env.get("SLURM_JOB_START_TIME", "")
    return float(began) if began.isdigit() else None


def _names(host: Host) -> tuple[dict[str, str], dict[str, int]]:
    try:
        seen = gpu.snapshot(host).gpus
    except (Skip, Unknown):
        seen = ()
    known = [one for one in seen if one.pci]
    return (
        {one.pci: str(one) for one in known},
        {one.pci: one.recovery for one in known if one.recovery is not None},
    )


def _owners(host: Host, pids: set[int]) -> dict[int, str]:
    """Job of each process that still runs, from its cgroup; an ended one is not there."""
    job_of = {}
    for pid in pids:
        try:
            if match := JOB_CGROUP.search(host.read(f"/proc/{pid}/cgroup")):
                job_of[pid] = match[1]
        except OSError:
            continue
    return job_of


def _branch(host: Host) -> int | None:
    return whole(gpu_driver.module_version(host).partition(".")[0])


def _job_gpus(host: Host) -> tuple[str, ...] | None:
    """Addresses of the job's GPUs. Slurm counts device files, which is not always NVML's order."""
    wanted = {word.strip() for word in host.env.get("SLURM_JOB_GPUS", "").split(",") if word.strip()}
    if not wanted:
        return None
    addresses = []
    for path in host.glob("/proc/driver/nvidia/gpus/*/information"):
        words = host.read(path).partition("Device Minor:")[2].split()
        if words and words[0] in wanted:
            addresses.append(gpu.short_pci(path.split("/")[5]))
    return tuple(addresses) if len(addresses) == len(wanted) else None


def table_rules() -> Iterator[Rule]:
    """A rule for every row that may become a finding, and for a code that no table has."""
    for kind, rows in ((XID, xid_table.xids()), (SXID, xid_table.sxids())):
        for known in rows.values():
            if known.priority != INFO or kind == SXID:
                yield _rule(kind, known, P1 if known.priority in ("word", INFO) else known.priority)


def worst_rules() -> Iterator[Rule]:
    """Every row's rule at its worst: what stands around a line can raise it, and only then may it gate."""
    for kind, rows in ((XID, xid_table.xids()), (SXID, xid_table.sxids())):
        yield from (_rule(kind, one, P0) for one in rows.values())


def _rule(kind: str, row: Row | None, priority: str) -> Rule:
    if row is None:
        return UNKNOWN_SXID if kind == SXID else UNKNOWN_XID
    cause = row.cause or ("gpu_nvlink" if kind == SXID else "")
    ours = row.origin in OURS and row.kind != "application"
    return Rule(row.id, priority, row.title, row.reference, cause, gateable=ours and priority in (P0, P1))


@dataclass(frozen=True)
class Case:
    """The cause of one incident on one GPU or switch, and what else was printed with it."""

    line: Line
    row: Row | None
    verdict: Verdict
    company: tuple[int, ...]
    whose: str
    count: int
    last: float


def judge(facts: Facts, policy: Policy) -> Iterator[Finding]:
    wanted = {**_last_154(facts), **facts.recovery}
    by_code: dict[tuple[str, int], list[Case]] = {}
    for incident in facts.incidents:
        for case in cases(incident, facts):
            if _worth_telling(case, facts):
                by_code.setdefault((case.line.kind, case.line.code if case.row else 0), []).append(case)
    for (kind, _), group in by_code.items():
        yield _finding(kind, [_lifted(case, group) for case in group], wanted, facts)
    if facts.unread:
        raise Unknown(f"{facts.unread} lines of the GPU driver have a shape that this version cannot read")
    if facts.job_start and facts.booted > facts.job_start + BEFORE_SLACK:
        raise Unknown(f"the node was booted at {_when(facts.booted)}, during the job: older lines are gone")
    since = facts.job_start - BEFORE_SLACK if facts.job_start else max(facts.booted, facts.now - ENOUGH)
    if facts.begins > since:
        raise Unknown(f"the kernel log begins at {_when(facts.begins)}, older lines were overwritten")


def _last_154(facts: Facts) -> dict[str, int]:
    """Address to the recovery action that the newest 154 line of this boot ends with."""
    newest: dict[str, tuple[float, int]] = {}
    lines = [line for incident in facts.incidents for line in incident.lines if line.code == 154 and line.kind == XID]
    for line in lines:
        pattern = xid_table.pattern(154)
        match = pattern.search(line.text) if pattern else None
        if match and line.last >= newest.get(line.pci, (0.0, 0))[0]:
            newest[line.pci] = (line.last, int(match["new"], 16))
    return {pci: action for pci, (_, action) in newest.items()}


def cases(incident: Incident, facts: Facts) -> Iterator[Case]:
    """One case for each GPU and switch that has a cause of its own; echoes of another one are left out."""
    on: dict[tuple[str, str], list[Line]] = {}
    for line in incident.lines:
        on.setdefault((line.kind, line.pci), []).append(line)
    causes = [case for lines in on.values() if (case := _cause(lines, facts))]
    fatal_switch = any(case.line.kind == SXID and case.verdict.priority == P0 for case in causes)
    broken = any(_of_hardware(case) and case.verdict.priority == P0 for case in causes)
    linked = any(_is_link(case) and not case.verdict.echo for case in causes)
    for case in causes:
        follows = (
            (fatal_switch and _is_link(case))
            or (linked and case.verdict.echo and case.line.kind == XID)
            or (broken and not _of_hardware(case))
        )
        if not follows:
            yield replace(case, company=tuple(sorted(_company(case, causes, incident))))


def _is_link(case: Case) -> bool:
    return case.line.kind == XID and case.row is not None and case.row.kind == "nvlink"


def _of_hardware(case: Case) -> bool:
    return case.line.kind == SXID or case.row is None or case.row.origin in ("hardware", "driver_or_hardware")


def _company(case: Case, causes: list[Case], incident: Incident) -> set[int]:
    """Codes on the same device; for a fatal switch, the link codes of the GPUs too."""
    codes = {line.code for line in incident.lines if line.pci == case.line.pci and line.kind == case.line.kind}
    if case.line.kind == SXID:
        codes |= {one.line.code for one in causes if _is_link(one)}
    return codes - {case.line.code}


def _cause(lines: list[Line], facts: Facts) -> Case | None:
    """The line of one device that is the cause, by rank and then by time; None where all are harmless."""
    judged = []
    for line in lines:
        known = row(line.code) if line.kind == XID else switch_row(line.code)
        verdict = xid_decode.decode(line, known, lines, facts.driver)
        if verdict.priority != INFO:
            judged.append((line, known, verdict))
    codes = {line.code for line, _, _ in judged}
    if codes & xid_decode.STRONGER_THAN_94:
        judged = [one for one in judged if one[0].code not in (94, 95)]
    first = [one for one in judged if one[0].code not in xid_decode.ECHOES or one[0].code in (94, 95)] or judged
    if not first:
        return None
    graded = sorted(first, key=lambda one: (RANKS.get(one[0].code, 99), one[2].priority, one[0].first))
    line, known, verdict = graded[0]
    same = [one for one in lines if one.code == line.code]
    whose = _whose(line, facts)
    return Case(line, known, verdict, (), whose, sum(one.count for one in same), max(one.last for one in same))


def _whose(line: Line, facts: Facts) -> str:
    if facts.job_start is None:
        return ""
    if line.first < facts.job_start - BEFORE_SLACK:
        return BEFORE
    # links and switches belong to the node: a peer's fault shows on another GPU
    shared = line.kind == SXID or line.code in (74, *range(144, 151))
    if facts.job_gpus is not None and line.pci not in facts.job_gpus and not shared:
        return OTHER
    if line.pid is not None and facts.owners.get(line.pid, facts.job) != facts.job:
        return OTHER
    return JOB


def _worth_telling(case: Case, facts: Facts) -> bool:
    """A program's own fault is told to the job that it happened to; otherwise only when it repeats on one GPU."""
    if case.row is None or case.row.origin in OURS or case.verdict.priority in (P0, P1):
        return True
    return case.whose == JOB or _repeats(case, facts)


def _repeats(case: Case, facts: Facts) -> bool:
    """The same program fault on one GPU in several incidents, by programs of different names or on the same unit."""
    same = [
        line
        for incident in facts.incidents
        for line in incident.lines
        if line.kind == case.line.kind and line.code == case.line.code and line.pci == case.line.pci
    ]
    if case.line.code == 13:
        units = [_unit(line) for line in {line.pid: line for line in same}.values()]
        return any(unit and units.count(unit) > 1 for unit in units)
    return len({line.name for line in same if line.name}) > 1


def _unit(line: Line) -> str:
    pattern = xid_table.pattern(13)
    match = pattern.search(line.text) if pattern else None
    return f"{match['gpc']}/{match['tpc']}" if match else ""


def _lifted(case: Case, group: list[Case]) -> Case:
    """Raised where a code that passes for harmless comes again on the same GPU."""
    again = sum(one.line.pci == case.line.pci for one in group) > 1
    if again and case.line.code == 109:
        return replace(case, verdict=replace(case.verdict, priority=P0))
    if again and case.row and case.row.origin in ("app_or_hardware", "app") and case.whose != JOB:
        return replace(case, verdict=replace(case.verdict, priority=P1, advice=gpus.WATCH))
    return case


def _finding(kind: str, group: list[Case], wanted: dict[str, int], facts: Facts) -> Finding:
    settled = [_settled(case, wanted) for case in group]
    worst = min(settled, key=lambda case: (case.verdict.priority, case.line.first))
    rule = _rule(kind, worst.row, worst.verdict.priority)
    alone = rule.gateable and not any(_confirmed(case, facts) for case in settled)
    if alone or worst.whose == OTHER or all(wanted.get(case.line.pci) == gpu_recovery.NONE for case in settled):
        rule = replace(rule, gateable=False)
    devices = {case.line.pci: _device(case.line, facts) for case in settled}
    told = f"{', '.join(_brief(name) for name in devices.values())}: {worst.verdict.words}"
    if worst.row is None:
        told = f"{kind.upper()} {worst.line.code} on {told}"
    if worst.company:
        told += f"; with {', '.join(map(str, worst.company))}"
    if worst.whose:
        told += f"; {worst.whose}"
    return rule.found(
        told,
        evidence=[*(_evidence(case, wanted, facts) for case in settled), *_alone(alone)],
        suggest=gpus.steps(rule.id, worst.verdict.advice),
    )


def _confirmed(case: Case, facts: Facts) -> bool:
    """Links and switches belong to the node: their fault may show on any GPU."""
    return gpu_witness.confirms(facts.signs, "" if case.line.kind == SXID or _is_link(case) else case.line.pci)


def _alone(so: bool) -> list[Evidence]:
    return [Evidence("NVML and the bus", gpu_witness.NOBODY)] if so else []


def _settled(case: Case, wanted: dict[str, int]) -> Case:
    """The driver's own verdict in place of the table's, for everything but a program's fault."""
    action = wanted.get(case.line.pci)
    if action is None or case.line.kind == SXID or (case.row and case.row.origin not in OURS):
        return case
    verdict = case.verdict
    if action == gpu_recovery.NONE:
        # the node was reset since, or the driver wants nothing: worth a look, no reason to stop a job
        calmer = P1 if verdict.priority == P0 else verdict.priority
        advice = gpus.WATCH if verdict.advice == gpus.REBOOT else verdict.advice
        words = f"{verdict.words}; the driver wants no recovery now"
        return replace(case, verdict=replace(verdict, priority=calmer, advice=advice, words=words))
    if action == gpu_recovery.DRAIN_AND_RESET:
        return replace(case, verdict=replace(verdict, priority=P1, advice=gpus.AFTER_JOB))
    advice = gpus.WATCH if action in (gpu_recovery.DRAIN_P2P, gpu_recovery.IMEX) else gpus.REBOOT
    return replace(case, verdict=replace(verdict, priority=P0, advice=advice))


def _device(line: Line, facts: Facts) -> str:
    if line.kind == SXID:
        return f"NVSwitch {line.pci}"
    known = facts.gpus.get(line.pci, "")
    return known if known.startswith("GPU ") else f"GPU at {line.pci}" + (f" ({known})" if known else "")


def _brief(device: str) -> str:
    """Without UUID and address where the number says enough."""
    words = device.split()
    return f"GPU {words[1]}" if words[0] == "GPU" and words[1].isdigit() else device


def _evidence(case: Case, wanted: dict[str, int], facts: Facts) -> Evidence:
    """Never in the driver's own shape: health agents read logs, and would act on a quote."""
    line = case.line
    words = [f"{line.kind}={line.code}", f"pci={line.pci}", f"lines={case.count}", f"first={_when(line.first)}"]
    if case.last > line.first:
        words.append(f"last={_when(case.last)}")
    if line.pid is not None:
        words.append(f"pid={line.pid} name={line.name or '?'}")
    if case.company:
        words.append(f"with={','.join(map(str, case.company))}")
    if line.pci in wanted and line.kind == XID:
        words.append(f"driver_wants={gpu_recovery.word(wanted[line.pci]).replace(' ', '_')}")
    message = f"{line.word}, {line.text}" if line.word else line.text
    return Evidence(f"kernel log, {_device(line, facts)}", f"{' '.join(words)}: {message}")


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds))
