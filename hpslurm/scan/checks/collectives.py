"""Lines of collectives: time-outs, stores, who did not come, who is slow, whose numbers are wrong."""

from __future__ import annotations

import re

from hpslurm.core import linear
from hpslurm.core.text import whole
from hpslurm.scan.hit import Context, Hit, check
from hpslurm.scan.places import MOST_TASKS


@check("storegone")
def _store_gone(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.facts["store"] = "gone"
    if server := re.search(r"remote=\[(?:::ffff:)?([\w.:-]+)\]:\d+", hit.line):
        hit.peer = server[1]
    return True


_BUSY = linear.late(
    r"(?:[Tt]okeniz\w+|[Ss]av(?:e|ing)\b|[Ww]riting\b|[Cc]heckpoint\w*|[Ee]valuat\w+|[Vv]alidat\w+|[Pp]reprocess\w*|[Gg]enerating|[Ll]oading|"
    r"[Dd]ownload\w*|[Mm]ap\b|[Mm]apping|[Ff]iltering|[Ii]ndexing|[Bb]uilding|[Cc]ompil\w+|[Ss]huffl\w+|[Pp]acking|[Cc]onverting|[Uu]pload\w*|"
    r"[Mm]erging|[Ee]xporting|[Pp]rocessing|[Ss]orting|[Dd]ecoding|[Cc]onsolidat\w+|[Gg]athering|[Ss]erializ\w+)"
)


_BAR = linear.late(r"\d{1,3}%\|.{0,200}\[\d{1,6}:\d\d")


_BUSY_DONE = linear.late(
    r"(?i)\b(?:saved|done|finished|completed|successfully|took \d|resum\w+|elapsed|every \d+ steps?)\b|100%\||=True|=False"  # noqa: E501
)


@check("busy")
def _busy(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not _BUSY_DONE.search(hit.line) and "NCCL" not in hit.line


@check("storewait")
def _store_wait(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """A store time-out beside a running progress bar: somebody is busy, nothing is broken."""
    nearby = hit.line[: match.start()] + "\n" + "\n".join(context.before(6))
    if _BAR.search(nearby) and _BUSY.search(nearby) and "100%|" not in nearby[-400:]:
        hit.turn("store-busy")
        hit.facts["busy_rank"] = "0"  # rank 0 saves and logs by convention
    return True


@check("monitored")
def _monitored(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if named := re.search(r"[Rr]anks? ([\d, ]+) failed to pass", hit.line):
        hit.facts["named_rank"] = named[1].split(",")[0].strip()
    return True


_WORK = linear.compile(
    r"\[Rank (?P<rank>\d+)\].*?WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?(?:\.\.\., )?(?:OpType=(?P<op>\w+))?"
    r"(?:, NumelIn=(?P<inn>\d+), NumelOut=(?P<out>\d+))?(?:, Timeout\(ms\)=(?P<limit>\d+))?\)(?:.*? ran for (?P<ran>\d+))?",  # noqa: E501
    re.DOTALL,
)


@check("watchdog")
def _watchdog(hit: Hit, match: re.Match[str], context: Context) -> bool:
    text = hit.line
    if "WorkNCCL(" not in text:
        text = text + " " + " ".join(line.strip() for line in context.after(2))
    if work := _WORK.search(text, max(0, match.start() - 200)):
        hit.rank = whole(work["rank"])
        for name in ("seq", "op", "inn", "out", "limit", "ran"):
            if work[name]:
                hit.facts[name] = work[name]
    if group := re.search(r"\[PG (?:ID )?(\d+)(?: PG GUID [^\]]{0,80}?\(([^)]{0,200})\))?", text):
        hit.facts["pg"] = group[2] or group[1]
    before = hit.line[: match.start()] + "\n" + "\n".join(context.before(40, 16384))
    if re.search(
        r"max_(?:epochs|steps)=\S{0,40} reached|[Tt]raining (?:is )?(?:complete|completed|finished|done)|Finished training|[Tt]rain(?:ing)? (?:loss|run) .{0,200}complete",  # noqa: E501
        before,
    ):
        hit.facts["finished"] = "yes"
    return True


@check("collto")
def _collective_timeout(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if match.groupdict().get("rank"):
        hit.facts["named_rank"] = match["rank"]
        hit.rank = None
    if waits := re.search(r"barrier to initialize process group for rank: (\d+)", hit.line):
        hit.rank = whole(waits[1])
    if re.search(
        r"TORCH_NCCL\w{0,40}=|NCCL_\w{0,40}TIMEOUT\w{0,40}[ =:]|timeout[ =:]{1,8}\d{1,12}(?:\.\d{1,9})?(?:s|ms)?[,)]?$|ddp_timeout|set by environment|nccl_timeout|--\w{0,40}timeout|connect",  # noqa: E501
        hit.line,
    ):
        return False
    return "NCCL INFO" not in hit.line and not ("elastic" in hit.line and "timeout" in hit.line)


@check("localrank")
def _local_rank(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.facts["closed"] = match["closed"]
    return True


@check("desync")
def _desync(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "NCCL_DESYNC" in hit.line or "DESYNC_DEBUG=" in hit.line:
        return False
    if "inconsistent 0 params" in hit.line and any("Watchdog caught" in line for line in context.before(200, 32768)):
        return False  # the comparison itself was aborted, and compared nothing
    if named := re.search(r"but [Rr]ank (\d+) is running|while rank (\d+) has", hit.line) or re.search(
        r"at and around rank (\d+)", hit.line
    ):
        hit.facts["named_rank"] = next(group for group in named.groups() if group)
    elif named := re.search(r"\[(\d+)\] (?:finished collective .{0,200} but didn't join|never joined)", hit.line):
        hit.facts["named_rank"] = named[1]
        hit.turn("desync-never-joined")
    elif named := re.search(
        r"[Rr]anks? \[?(\d+)\]?[^\n]{0,40}(?:did not join|has not joined|not join|diverged|inconsistent)", hit.line
    ):
        hit.facts["named_rank"] = named[1]
    return True


_RANKS = linear.late(r"\[rank(\d+)\]|\[Rank (\d+)\]|\brank[ =:]+(\d+)\b")


@check("rankabove")
def _rank_above(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """A message of several lines carries its rank on the first."""
    if hit.rank is None:
        for line in [hit.line, *context.before(8)]:
            if named := _RANKS.search(line):
                hit.rank = whole(next(group for group in named.groups() if group))
                break
    return True


@check("missingtasks")
def _missing_tasks(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The tasks that a barrier waits for; one alone is who did not come."""
    text = " ".join([hit.line, *context.after(40)])
    missing = re.findall(r"/task:(\d+)", text.partition("imed out task names")[2][:2000])
    if len(set(missing)) == 1:
        hit.facts["named_rank"] = missing[0]
    return True


_READY = linear.late(r"\[ready ranks: ([\d, ]+)\]")


@check("stalled")
def _stalled(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Horovod lists who waits for what: those missing, or those that ask for something else."""
    text = " ".join([hit.line, *context.after(12)])
    ready = [frozenset(ranks.replace(",", " ").split()) for ranks in _READY.findall(text)]
    apart = [ranks for ranks in ready for others in ready if not ranks & others]
    if apart:
        hit.turn("stalled-apart")
    # The last that names exactly one rank counts.
    for ranks in (_missing_ranks(text), _stalled_ranks(text), _not_ready(ready), min(apart, key=len, default=())):
        if len(ranks) == 1:
            hit.facts["named_rank"] = next(iter(ranks))
    return True


def _missing_ranks(text: str) -> list[str]:
    """
    >>> _missing_ranks("Stalled ops: allreduce.3 [missing ranks: 2, 3]")
    ['2', '3']
    """
    missing = re.search(r"[Mm]issing ranks: ?\[?([\d, ]{1,2000})(?!\d{0,9}:)", text)
    return missing[1].replace(",", " ").split() if missing else []


def _stalled_ranks(text: str) -> set[str]:
    """
    >>> _stalled_ranks("Stalled ranks: 1: [HorovodAllreduce_grads_0_0, HorovodAllreduce_grads_1_0]")
    {'1'}
    >>> _stalled_ranks("Missing ranks: 0: [cond_1/then/_10/SGD/DistributedSGD_Allreduce/cond/HorovodAllreduce_grads_0]")
    {'0'}
    """
    listed = re.split(r"(?:[Ss]talled|[Mm]issing) ranks", text, maxsplit=1)[1:]
    return set(re.findall(r"(?:^|[\s:>])(\d+): \[\S{0,300}Horovod", "".join(listed), re.IGNORECASE))


def _not_ready(ready: list[frozenset[str]]) -> set[str]:
    """Who is in no list of ready ranks, where all lists are the same.

    >>> _not_ready([frozenset({"0", "1", "3"})])
    {'2'}
    """
    if len(set(ready)) != 1 or not ready[0] or not all(rank.isdigit() for rank in ready[0]):
        return set()
    ranks = {int(rank) for rank in ready[0]} if len(ready[0]) < MOST_TASKS else set()
    # A rank far beyond the others is no number of a task: nothing is counted up to it.
    return {str(rank) for rank in set(range(max(ranks) + 1)) - ranks} if ranks and max(ranks) < MOST_TASKS else set()


@check("namedtask")
def _named_task(hit: Hit, match: re.Match[str], context: Context) -> bool:
    below = re.search(r"^/job:\S*/task:(\d+)$", "\n".join(context.after(3)), re.MULTILINE)
    if task := match["task"] or match["task2"] or (below[1] if below else ""):
        hit.facts["named_rank"] = task
    return True


_NO_STRAGGLER = linear.late(
    r"(?i)no stragglers?|\b(?:possible|potential|maybe|perhaps)\b"
    r"|stragglers?(?: found)?:? *(?:none|\[\]|set\(\)|0\b)|straggler_|--\w*straggler|import "
)


@check("straggler")
def _straggler(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if _NO_STRAGGLER.search(hit.line):
        return False
    if named := re.search(r"[Rr]ank[s]?[ :=#]*\[?(\d+)", hit.line):
        hit.rank = whole(named[1])
    if host := re.search(r"(?:[Nn]ode|[Hh]ost|on)[ :=]+([A-Za-z][\w.-]*\d[\w.-]*)", hit.line):
        hit.host = host[1]
    return bool(hit.rank is not None or hit.host or re.search(r"detected|found", hit.line))


@check("slowbw")
def _slow_bandwidth(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"--\w+|=\s*\d+\s*$", hit.line) or "FAILED" in hit.line or "threshold" in hit.line


@check("checksum")
def _checksum(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"pip|wheel|apt|package|download|config|enabled|disabled|=(?:True|False)", hit.line, re.IGNORECASE):
        return False
    if named := re.search(r"(?:and|on|from|by) rank[ :=]*(\d+)", hit.line):
        hit.facts["named_rank"] = named[1]
    return True


@check("fsdporder")
def _fsdp_order(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """FSDP holds every rank against rank 0, and names the first that differs."""
    hit.facts["named_rank"] = match["rank"]
    return True


@check("nan")
def _nan(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(
        r"check_for_nan|detect_anomaly|nan_to_num|=(?:True|False)|RuntimeWarning|skip_nan|ignore_nan", hit.line
    ):
        return False
    hit.turn("nan-loss")
    told = re.sub(r"(?i)skipped iterations:\s*0\b", "", hit.line)  # a column of a report that is always printed
    return not re.search(r"(?i)skipp|reducing (?:the )?(?:loss )?scale|loss scale to (?!0\b|1e-)", told)


@check("ncclwarn")
def _nccl_warn(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """What a warning is about, where no row knows it: weak evidence."""
    hit.turn_by("ncclwarn", match["text"])
    return True
