"""What a single expression cannot say: functions that refuse a line or sharpen the event it makes.

Each takes the hit (which it may change), the match and the surrounding lines, and returns whether the
line counts. A refused line is offered to the next pattern. What a line then proves stands in
tables/reasoning.toml (``Hit.turn``).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hpslurm.core import linear
from hpslurm.core.linear import LONGEST
from hpslurm.core.text import whole
from hpslurm.node import xid_table
from hpslurm.scan import model, prefix


class Hit:
    """An event in the making. ``text`` is the line without its prefix."""

    def __init__(self, pattern: str, role: str, cause: str, weight: int, line: str, mark: prefix.Mark) -> None:
        self.pattern, self.role, self.cause, self.weight = pattern, role, cause, weight
        self.line, self.text = line, mark.text
        self.rank, self.local_rank, self.host, self.pid, self.time = (
            mark.rank,
            mark.local_rank,
            mark.host,
            mark.pid,
            mark.time,
        )
        self.gpu = ""
        self.peer = ""
        self.facts: dict[str, str] = {}

    def turn(self, row: model.Turn | str) -> None:
        """Make of the line what a row of reasoning.toml says."""
        turn = model.turns()[row] if isinstance(row, str) else row
        self.cause = turn.cause or self.cause
        self.role = turn.role or self.role
        self.weight = (self.weight if turn.weight is None else turn.weight) - turn.less
        self.weight = self.weight if turn.at_most is None else min(self.weight, turn.at_most)

    def turn_by(self, check: str, text: str) -> bool:
        """Make of the line what the first row of a check says whose words stand in the text."""
        turn = model.turn_by(check, text)
        if turn is not None:
            self.turn(turn)
        return turn is not None


class Context:
    """The lines around a hit, in the block that is in memory."""

    def __init__(self, data: bytearray, size: int, begin: int, stop: int) -> None:
        self._data, self._size, self._begin, self._stop = data, size, begin, stop

    def before(self, count: int, most: int = 8192) -> list[str]:
        """The nearest line first."""
        piece = bytes(self._data[max(0, self._begin - most) : self._begin]).decode("utf-8", "replace")
        return [prefix.plain(line[:LONGEST]) for line in piece.splitlines()[::-1][:count]]

    def after(self, count: int, most: int = 32768) -> list[str]:
        piece = bytes(self._data[self._stop + 1 : min(self._size, self._stop + 1 + most)]).decode("utf-8", "replace")
        return [prefix.plain(line[:LONGEST]) for line in piece.splitlines()[:count]]

    def around(self, count: int) -> str:
        return "\n".join([*self.before(count), *self.after(count)])


MOST_FEW = 3  # lines that agree by chance
MOST_TASKS = 100_000  # of one list

Check = Callable[[Hit, "re.Match[str]", Context], bool]
CHECKS: dict[str, Check] = {}


def check(name: str) -> Callable[[Check], Check]:
    def keep(function: Check) -> Check:
        CHECKS[name] = function
        return function

    return keep


# --------------------------------------------------------------------------- GPU events


def xid_meaning(number: int, text: str = "") -> tuple[str, int]:
    """(cause, weight) of a driver event, by tables/xid.toml; ("", 0) for one that is no cause by itself."""
    row = xid_table.row(number)
    words = model.turn_by("xid", text)  # the driver's own words count, whatever the number
    said = words.cause if words else ""
    unknown = model.turns()["xid-unknown"]
    least = unknown.weight or 0
    if row is None:
        return (said or unknown.cause, least)
    if said and said != row.cause and row.priority != "info" and row.origin not in ("app", "sympathetic"):
        return said, max(row.proof, least)
    return (row.cause, row.proof) if row.cause and row.proof else ("", 0)


_GPU_INDEX = re.compile(r"\bGPU[ :#-]?(\d{1,2})\b(?!:)")
_GPU_UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_PCI = re.compile(r"\b([0-9A-Fa-f]{4,8}):([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.[0-9A-Fa-f])?\b")


def pci(text: str) -> str:
    """dddd:bb:dd in lower case, the spelling of the kernel."""
    match = _PCI.search(text.replace("GPU0", "GPU 0"))  # glued: GPU0000:03:00.0
    return f"{int(match[1], 16):04x}:{match[2]}:{match[3]}".lower() if match else ""


def gpu_of(line: str) -> str:
    """The GPU that a line names: by address, else by UUID, else by index; empty where it names none."""
    if address := pci(line):
        return address
    if uuid := _GPU_UUID.search(line):
        return uuid[0]
    index = _GPU_INDEX.search(line)
    return index[1] if index else ""


@check("xid")
def _xid(hit: Hit, match: re.Match[str], context: Context) -> bool:
    found = next((value for key, value in match.groupdict().items() if key.startswith("xid") and value), "")
    number = whole(found) or 0
    if earlier := re.search(r"caused by previous Xid (\d+)", hit.line):
        hit.facts["echo"] = str(number)
        number = whole(earlier[1]) or 0
    cause, weight = xid_meaning(number, hit.line)
    if not cause or number == 0 or number > 400:
        return False
    hit.cause, hit.weight = cause, weight
    if cause == "gpu_nvlink" and re.search(r"\bNon-?fatal\b", hit.line, re.IGNORECASE):
        hit.turn("xid-nonfatal")
    if hit.pattern == "xid-word":
        hit.turn("xid-retold")
    if hit.facts.get("echo"):
        hit.turn("xid-echo")
    hit.facts["xid"] = str(number)
    hit.gpu = gpu_of(hit.line)
    return True


@check("sxid")
def _sxid(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.turn("sxid-fatal")
    hit.gpu = pci(hit.line)
    hit.facts["sxid"] = match["sxid"]
    if re.search(r"\bNon-fatal\b", hit.line, re.IGNORECASE):
        hit.turn("sxid-nonfatal")
    elif re.search(r"\d, (?:Severity|Data)\b", hit.line):
        hit.turn("sxid-detail")
    return True


@check("lookback")
def _lookback(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.gpu = (
        pci(hit.line)
        or next(filter(None, map(pci, context.before(4))), "")
        or next(filter(None, map(pci, context.after(2))), "")
        or gpu_of(hit.line)
    )
    return True


@check("cudafail")
def _cuda_failure(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if not _rem_allocator(hit, match, context):
        return False
    text = match.groupdict().get("text")
    if text is None:  # the framework repeats that NCCL met a CUDA error; the error itself stands elsewhere
        hit.turn("cuda-failure-elsewhere")
        nearby = "\n".join(context.after(6))
        return not re.search(r"Cuda failure (?:\d+ )?'[^']+'|CUDA error \d+ '[^']+'", nearby)
    hit.turn_by("cudafail", text)
    return True


@check("notbenign")
def _not_benign(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"\bStarted\b|active \(running\)|[Ss]uccessfully|status: OK", hit.line)


@check("fabricstate")
def _fabric_state(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return "abric" in hit.line or any(prefix.bare(line).strip() == "Fabric" for line in context.before(2))


@check("notcudainit")
def _not_cuda_init(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"NCCL INFO .{0,200}(?:NVLS|[Mm]ulticast) (?:multicast )?support is", hit.line):
        return False
    return not re.search(r"'(?:out of memory|initialization error|no CUDA-capable)", hit.line)


@check("nodevice")
def _no_device(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "not compiled with CUDA" in hit.line:
        hit.turn("no-device-cpu-build")
    elif re.search(r"driver|NVML|mismatch", context.around(4)):
        hit.turn("no-device-driver")
    return True


# --------------------------------------------------------------------------- NCCL and networks


@check("ncclinvalid")
def _nccl_invalid(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return "NCCL" in hit.line and not re.search(r"Cuda failure|NET/|Call to ibv|CUDA error", hit.line)


@check("oom")
def _oom(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if not hit.gpu and (gpu := re.search(r"\bGPU (\d{1,2}) has a total", hit.line)):
        hit.gpu = gpu[1]
    return "more than 1EB" not in hit.line


@check("jobnode")
def _job_node(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The controller's log names a job here and its nodes when it was started."""
    if not hit.host and (job := re.search(r"\bJobId=(\d+)", hit.line)):
        for line in context.before(400, 16384):
            if f"JobId={job[1]} " in line and (nodes := re.search(r"NodeList=(\S+)", line)):
                hit.host = nodes[1]
                break
    return True


@check("nccl-only")
def _nccl_only(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return "NCCL" in hit.line


@check("notversionline")
def _not_version_line(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"NCCL version [\d.]+\+cuda[\d.]+\s*$", hit.line)


@check("iface")
def _iface(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "NCCL INFO" in hit.line and "set by environment" in hit.line:
        return False
    if re.search(r"nterface", match[0]) and not re.search(
        r"IFNAME|socket|NCCL|[Gg]loo|network|eth|ens|ib\d|bond|address", hit.line
    ):
        return False
    if hit.peer:
        return True
    nearby = [hit.line, *context.before(80), *context.after(20)]
    for line in nearby:
        if named := re.search(r"SOCKET_IFNAME(?: set by environment to| set to|=| ?: ?) ?=?\^?([\w.,:-]+)", line):
            hit.peer = named[1]
            break
    return True


@check("loopback")
def _loopback(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.peer = next(filter(None, match.groups()), "")
    return True


@check("aer")
def _aer(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The root port reports; the GPU below it is named by its driver."""
    for line in [*context.before(8), *context.after(8)]:
        if named := re.search(r"\bnvidia ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.\d: ", line):
            hit.gpu = named[1]
            break
    return True


@check("localof")
def _local_of(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if named := re.search(r"local_rank: (\d+)", hit.line):
        hit.local_rank = whole(named[1])
    return True


@check("fmfatal")
def _fm_fatal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.gpu = gpu_of(hit.line)
    if not hit.gpu:  # nvidia-smi lists links under their GPU
        hit.gpu = next((named[1] for line in context.before(20) if (named := re.match(r"\s*GPU (\d+):", line))), "")
    if re.search(r"non-?fatal", hit.line, re.IGNORECASE):
        hit.turn("fabric-nonfatal")
    return True


BOOT = 120.0  # seconds of uptime in which links come and go


@check("netlink")
def _net_link(hit: Hit, match: re.Match[str], context: Context) -> bool:
    uptime = re.search(r"^(?:<\d>)?\[ *(\d+\.\d+)\]", hit.line)
    if uptime and float(uptime[1]) < BOOT:
        return False
    return not re.search(r"NCCL|ProcessGroup|[Ll]ink (?:is )?[Uu]p|becomes ready", hit.line)


@check("iberr")
def _ib_error(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"with (?:error|status) ?=?(?:\w+\()?5\b|WR_FLUSH", hit.line):
        hit.turn("ib-flushed")
    return True


@check("nccl-conn")
def _nccl_connect(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "retrying" in hit.line or "c10d" in hit.line or "slurm" in hit.line:
        return False
    if not re.search(r"NCCL|socket\w{0,40}Connect|ncclSocket|Net :|<\d+>|socket\.(?:h|cc|cu):\d+", hit.line):
        return False
    if re.search(r"127\.0\.[01]\.1<|::1<", hit.line):
        hit.turn("connect-loopback")
    return True


@check("multinode")
def _multi_node(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hosts = set()
    for line in context.before(100):
        if device := re.search(r"Rank\s{1,8}\d{1,9} .{0,80}? on\s{1,8}(\S{1,253}) device", line):
            hosts.add(device[1])
    return len(hosts) >= 2


@check("noroute")
def _no_route(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"slurm|srun|nfs|Lustre|curl|wget|pip |apt|http", hit.line):
        return False
    if re.search(r"NCCL|socket\w{0,40}Connect|<\d+>", hit.line):
        hit.turn("no-route-nccl")
    return True


@check("plainrefused")
def _plain_refused(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"NCCL|slurm|munge|dbus|systemd|kubelet|wandb|mlflow|http|nvidia-smi|retry", hit.line)


_UNRESOLVED = re.compile(
    r"(?:resolve host(?:name)?|host(?:name)?|address for|resolve|addresses of \() ?:?\"?'?((?!hostname)[A-Za-z][\w.-]+)"
)


@check("dnswho")
def _dns(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"wandb|huggingface\.co|hf\.co|pypi|github\.com|mlflow|api\.|https?://|s3[.-]", hit.line):
        hit.turn("dns-service")
    if not hit.peer and (name := _UNRESOLVED.search(hit.line)):
        hit.peer = name[1]
    return True


@check("realport")
def _real_port(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if port := re.search(r":(\d{2,5})\b(?!:)", hit.line):
        hit.facts["port"] = port[1]
    return "errno: 97" not in hit.line


@check("storegone")
def _store_gone(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.facts["store"] = "gone"
    return True


_BUSY = re.compile(
    r"(?:[Tt]okeniz\w+|[Ss]av(?:e|ing)\b|[Ww]riting\b|[Cc]heckpoint\w*|[Ee]valuat\w+|[Vv]alidat\w+|[Pp]reprocess\w*|[Gg]enerating|[Ll]oading|"
    r"[Dd]ownload\w*|[Mm]ap\b|[Mm]apping|[Ff]iltering|[Ii]ndexing|[Bb]uilding|[Cc]ompil\w+|[Ss]huffl\w+|[Pp]acking|[Cc]onverting|[Uu]pload\w*|"
    r"[Mm]erging|[Ee]xporting|[Pp]rocessing|[Ss]orting|[Dd]ecoding|[Cc]onsolidat\w+|[Gg]athering|[Ss]erializ\w+)"
)
_BAR = re.compile(r"\d{1,3}%\|.{0,200}\[\d{1,6}:\d\d")


_BUSY_DONE = re.compile(
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
    return not ("elastic" in hit.line and "timeout" in hit.line)


@check("localrank")
def _local_rank(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.facts["closed"] = match["closed"]
    return True


@check("peerreset")
def _peer_reset(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"ssh|sshd|wandb|http|mysql|dbus", hit.line)


@check("desync")
def _desync(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "NCCL_DESYNC" in hit.line or "DESYNC_DEBUG=" in hit.line:
        return False
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


_RANKS = re.compile(r"\[rank(\d+)\]|\[Rank (\d+)\]|\brank[ =:]+(\d+)\b")


NEIGHBOURS = 12  # lines above that speak of the same process, if they all name one rank


def rank_of_neighbours(context: Context) -> int | None:
    """The rank in front of all lines above, where they have one and it is the same."""
    lines = [line for line in context.before(NEIGHBOURS) if line.strip()]
    ranks = {prefix.read(line).rank for line in lines}
    return ranks.pop() if len(lines) >= MOST_FEW and len(ranks) == 1 else None


@check("remalloc")
def _rem_allocator(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """NCCL's remote allocator may read a random size from a connection that was not meant for it."""
    return not any("[Rem Allocator]" in line for line in context.before(3))


@check("namedtask")
def _named_task(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.facts["named_rank"] = match["task"] or match["task2"]
    return True


@check("rayip")
def _ray_ip(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Ray names the node on the line after the error's class."""
    for line in [hit.line, *context.after(3)]:
        if named := re.search(r"\bIP: (\d{1,3}(?:\.\d{1,3}){3})", line):
            hit.host = named[1]
            break
    return True


@check("remotedaemon")
def _remote_daemon(hit: Hit, match: re.Match[str], context: Context) -> bool:
    for line in context.after(6):
        if named := re.search(r"Remote daemon: \S+ on node ([\w.-]+)", line):
            hit.peer = named[1]
            break
    return True


@check("gloomesh")
def _gloo_mesh(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Only a loopback address shows a wrong interface; elsewhere the peers are gone or not there yet."""
    if re.search(r"[Rr]efused|timed out|[Rr]eset|closed", hit.line) and not re.search(r"127\.0\.[01]\.1", hit.line):
        hit.turn("gloo-peer-gone")
    return True


@check("rankabove")
def _rank_above(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """A message of several lines carries its rank on the first."""
    if hit.rank is None:
        for line in [hit.line, *context.before(8)]:
            if named := _RANKS.search(line):
                hit.rank = whole(next(group for group in named.groups() if group))
                break
    return True


@check("helpblock")
def _help_block(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Open MPI's help texts name the host some lines on."""
    for line in context.after(8):
        if named := re.match(r"\s*(?:Hostname|Local host|Host): +([\w.-]+)", line):
            hit.host = named[1]
            break
    return "ibv_reg_mr" not in match[0] or "NCCL" not in hit.line


@check("efawanted")
def _efa_wanted(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Wherever no plugin is installed NCCL says so: it matters only where EFA was meant."""
    return bool(_EFA.search(hit.line) or _EFA.search(context.around(80)))


_EFA = re.compile(
    r"NET/OFI|FI_PROVIDER|FI_EFA|libnccl-ofi|aws-ofi|AWS Libfabric|Using EFA|\befa\b"
    r"|\b(?:p4de?|p5en?|p6-\w+)[.-]\d*x?large"
)


@check("otherprovider")
def _other_provider(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """One protocol found no provider and the next one did, or the fabric is not EFA."""
    if "No eligible providers" not in match[0]:
        return True
    return not any(re.search(r"Selected [Pp]rovider is (?!tcp|sockets|udp)", line) for line in context.after(20))


@check("missingtasks")
def _missing_tasks(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The tasks that a barrier waits for; one alone is who did not come."""
    text = " ".join([hit.line, *context.after(40)])
    missing = re.findall(r"/task:(\d+)", text.partition("imed out task names")[2][:2000])
    if len(set(missing)) == 1:
        hit.facts["named_rank"] = missing[0]
    return True


_READY = re.compile(r"\[ready ranks: ([\d, ]+)\]")


@check("stalled")
def _stalled(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Horovod lists who waits for what: those missing, or those that ask for something else."""
    text = " ".join([hit.line, *context.after(12)])
    if (named := re.search(r"[Mm]issing ranks: ?\[?([\d, ]+)", text)) and len(named[1].replace(",", " ").split()) == 1:
        hit.facts["named_rank"] = named[1].strip(" ,")
    if (
        stalled := set(re.findall(r"(?:^|[\s:>])(\d+): \[Horovod", text.partition("talled ranks")[2], re.IGNORECASE))
    ) and len(stalled) == 1:
        hit.facts["named_rank"] = next(iter(stalled))
    sets = [frozenset(found.replace(",", " ").split()) for found in _READY.findall(text)]
    if sets and len(set(sets)) == 1 and all(word.isdigit() for word in sets[0]):
        absent = set(range(max(map(int, sets[0])) + 1)) - set(map(int, sets[0])) if len(sets[0]) < MOST_TASKS else set()
        if len(absent) == 1:
            hit.facts["named_rank"] = str(absent.pop())
    apart = [one for one in sets for other in sets if not one & other]
    if apart:
        fewest = min(apart, key=len)
        hit.turn("stalled-apart")
        if len(fewest) == 1:
            hit.facts["named_rank"] = next(iter(fewest))
    return True


@check("mpisignal")
def _mpi_signal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    signal = match["signal"] or match["code"] or ""
    if not signal and (more := re.match(r"\s*signal (\d+)", next(iter(context.after(1)), ""))):
        signal = more[1]
    hit.turn_by("mpisignal", signal)
    return bool(signal)


@check("immediate")
def _immediate(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if not re.search(r"--immediate|queued and waiting for resources", "\n".join(context.before(20))):
        hit.turn("job-gone")
    return True


@check("splat")
def _splat(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The kernel's own trace: modules stand in brackets behind the functions."""
    after = context.after(30)
    if not any(re.search(r"\+0x[0-9a-f]+/0x[0-9a-f]+|RIP:|Call Trace", line) for line in [hit.line, *after]):
        return False
    hit.turn_by("splat", "\n".join(after))
    return True


@check("abortreason")
def _abort_reason(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.turn_by("abortreason", match["text"])
    return True


# --------------------------------------------------------------------------- topology, GPUDirect

_MACHINE = re.compile(
    r"\b(p3dn|p4de?|p5en|p5e?|p6(?:-b\d+)?|g[456]e?|trn[12]|nd?v[2345]|ncv4|ndv[45]|a[23])\b", re.IGNORECASE
)


@check("topoenv")
def _topo_env(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The plugin sets this variable itself; only a file made for another machine is wrong."""
    made_for = {name.lower() for name in _MACHINE.findall(match["text"].replace("-", " ").replace("_", " "))}
    if not made_for:
        return False
    around = context.around(60)
    running = {
        name.lower()
        for name in re.findall(r"Running on (\w+)\.\w+ platform|[Ii]nstance type:? (\w+)\.", around)
        for name in name
        if name
    }
    return bool(running) and not (made_for & running)


@check("gdr")
def _gdr(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"Enabled|is available|registrations: ", match[0]) or "nv_get_p2p_free_callback" in hit.line:
        return False
    if re.search(r"DMA-?BUF", match[0]) and not re.search(r"failed", match[0]):
        return False
    return "nv_peer_mem" not in match[0] or "Disabled" in hit.line or bool(re.search(r"not|missing|failed", match[0]))


@check("acs")
def _acs(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"P2P is disabled between|failed to peer|peer access is not|peer mapping", match[0]):
        hit.turn("acs-no-peer")
    elif "HINT" in hit.line:
        hit.turn("acs-hint")
    return not re.search(r"ACS (?:is )?(?:disabled|off)\b", hit.line)


# --------------------------------------------------------------------------- Slurm


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
        if named := re.search(r"srun: error: ([\w.-]+): tasks ([\d,-]+): (?:Terminated|Killed)", line):
            ranges = [part.split("-") for part in named[2].split(",")]
            ended = {
                task
                for first, *last in ranges
                for task in range(whole(first) or 0, (whole(last[0] if last else first) or 0) + 1)
            }
            missing = set(range(max(ended))) - ended if ended and max(ended) < MOST_TASKS else set()
            if len(missing) == 1:
                hit.turn("cancel-names-others")
                hit.host = named[1]
                hit.facts["named_rank"] = str(missing.pop())
            return


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


@check("hungtask")
def _hung_task(hit: Hit, match: re.Match[str], context: Context) -> bool:
    after = "\n".join(context.after(30))
    if re.search(r"lustre|ptlrpc|\bll_|nfs|rpc_wait|fuse_|ceph|gpfs|cxi|ext4|xfs_", after):
        hit.turn("hung-task-storage")
    elif re.search(r"nvidia|nv_|uvm_|rm_", after):
        hit.turn("hung-task-driver")
    return True


# --------------------------------------------------------------------------- storage


@check("nospace")
def _no_space(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "/sys/fs/cgroup" in hit.line:
        hit.turn("no-space-cgroup")
    elif "inotify" in hit.line:
        hit.turn("no-space-watches")
    elif re.search(r"/dev/shm|shm|torch_\d+_", hit.line) or re.search(
        r"/dev/shm|shm_|shared memory|memfd", "\n".join([*context.before(4), *context.after(4)])
    ):
        hit.turn("no-space-shm")
    return True


@check("diskquota")
def _disk_quota(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"vCPU|instance|Capacity|API|rate|requests", hit.line)


@check("ioerr")
def _io_error(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"slurm|srun|munge|NCCL|socket\.|OFI|MPI|UCX", hit.line)


@check("lustre")
def _lustre(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if any("Connection restored" in line or "recovery complete" in line for line in context.after(60)):
        hit.turn("lustre-restored")
    return True


@check("notcapacity")
def _not_capacity(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"Capacity|RunInstances|CreateFleet|LimitExceeded", hit.line)


# --------------------------------------------------------------------------- results


@check("checksum")
def _checksum(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"pip|wheel|apt|package|download|config|enabled|disabled|=(?:True|False)", hit.line, re.IGNORECASE):
        return False
    if named := re.search(r"(?:and|on|from|by) rank[ :=]*(\d+)", hit.line):
        hit.facts["named_rank"] = named[1]
    return True


@check("nan")
def _nan(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(
        r"check_for_nan|detect_anomaly|nan_to_num|=(?:True|False)|RuntimeWarning|skip_nan|ignore_nan", hit.line
    ):
        return False
    hit.turn("nan-loss")
    return not re.search(r"(?i)skipp|reducing (?:the )?(?:loss )?scale|loss scale to (?!0\b|1e-)", hit.line)


# --------------------------------------------------------------------------- programs

# The class name says that another process or another line is to blame.
_WRAPPERS = re.compile(
    r"(?:ChildFailedError|DistBackendError|DistNetworkError|DistStoreError|ProcessRaisedException|ProcessExitedException|CalledProcessError|"
    r"RayTaskError\S*|RayActorError|ActorDiedError|EngineDeadError|SystemExit|KeyboardInterrupt|SignalException|ConnectionResetError|"
    r"ConnectionAbortedError|BrokenPipeError|EOFError|ConnectionError|ConnectionRefusedError|CancelledError|RendezvousConnectionError|"
    r"RendezvousTimeoutError|RendezvousClosedError|WorkerTerminated|SubprocessTerminated)$"
)
_OTHERS_FAULT = re.compile(
    r"NCCL|nccl|[Ww]atchdog|TCPStore|[Cc]onnection (?:reset|closed|refused|timed|aborted|lost)|Broken pipe|timed out|Socket Timeout|"  # noqa: E501
    r"Engine (?:core|process)|EngineCore|[Cc]ancelled|exited unexpectedly|process \d+ terminated|[Ll]ost connection|[Gg]loo|"  # noqa: E501
    r"remote (?:process|peer|rank)|[Pp]eer (?:closed|reset|gone)|[Ww]orker failed|Horovod has been shut down|onitoredBarrier|onitored_barrier|store->|HCCL|RCCL|hccl|died unexpectedly|wait timeout|more than 1EB"  # noqa: E501
)


@check("exception")
def _exception(hit: Hit, match: re.Match[str], context: Context) -> bool:
    name = match["cls"]
    if _WRAPPERS.search(name) or _OTHERS_FAULT.search(hit.text[:300]):
        return False
    if name.endswith(("Warning",)) or "ignored" in hit.text[:60]:
        return False
    hit.facts["class"] = name
    if name.rsplit(".", 1)[-1] in ("MemoryError", "_ArrayMemoryError"):
        hit.turn("exception-memory")
    return True


_EXCEPTION_LINE = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: .*|:?)$")
_SHM_FRAMES = re.compile(
    r"multiprocessing/(?:spawn|resource_tracker|resource_sharer|synchronize|shared_memory|reduction|heap|popen\w*)\.py"
)


@check("traceback")
def _traceback(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Walks to the exception that ends a traceback, also among other ranks' lines."""
    own = prefix.read(hit.line)
    frames: list[str] = []
    for raw in context.after(400):
        mark = prefix.read(raw)
        if (mark.rank, mark.pid) != (own.rank, own.pid) and (own.rank is not None or own.pid is not None):
            continue
        text = mark.text
        if not text.strip():
            continue
        if text.startswith((" ", "\t")):
            frames.append(text)
            continue
        ended = _EXCEPTION_LINE.match(text.rstrip())
        if not ended or text.startswith(("During handling", "The above exception", "Traceback")):
            break
        name = ended[1]
        if not re.search(r"[A-Z.]", name):  # another program's line in between
            continue
        if (
            name.rsplit(".", 1)[-1] == "FileNotFoundError"
            and _SHM_FRAMES.search("\n".join(frames))
            and re.search(r"Errno 2\]", text)
        ) and not re.search(r"\.(?:py|json|yaml|pt|bin|txt|parquet|arrow)\b", text):
            hit.turn("traceback-shm")
            hit.facts["at"] = text.strip()[:200]
            return True
        if _WRAPPERS.search(name) or _OTHERS_FAULT.search(text[:300]):
            return False
        hit.facts["at"] = text.strip()[:300]
        hit.facts["class"] = name
        return True
    hit.turn("traceback-cut")
    hit.facts["cut"] = "yes"
    return True


@check("modmiss")
def _module_missing(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(
        r"[Ww]arning|optional|falling back|skipping|nvidia-smi: command|/etc/profile|\.bashrc", hit.line
    )


@check("segv")
def _segfault(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(r"Abort|Bus error|SIGABRT", hit.line) and not re.search(r"SIGSEGV|[Ss]egmentation|segfault", hit.line):
        return False
    return not ("core dumped" in match[0] and not re.search(r"fault|SEGV|instruction|exception", hit.line))


@check("abort")
def _abort(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The watchdog ends its process by abort; only another reason in the next lines makes it a cause."""
    hit.turn("abort-alone")
    for line in context.after(3):
        if (what := re.search(r"what\(\): +(.+)", line)) and not _OTHERS_FAULT.search(what[1]):
            hit.turn("abort-with-reason")
            hit.facts["at"] = what[1].strip()[:300]
            break
    return True


_BLOCK_FIELD = re.compile(r"^\s*(time|host|rank|exitcode|error_file|traceback)\s*: *(.*)$")


@check("launcher")
def _launcher(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """torchrun's summary: one block per failed rank; the earliest counts, wherever it is printed."""
    groups = match.groupdict()
    code = next((value for key, value in groups.items() if key.startswith("code") and value), "")
    if groups.get("pid") or groups.get("pid2"):
        hit.pid = whole(groups.get("pid") or groups.get("pid2") or "")
    if re.match(r"\s*exitcode", hit.text):
        for line in [*context.before(5), *context.after(4)]:
            _take_field(hit, line)
        hit.facts["block"] = "yes"
        hit.turn("launcher-block")
    if not hit.turn_by("launcher", code) and _is_wrapper(match[0]):
        hit.turn("launcher-wrapper")
    hit.facts["code"] = code
    return True


def _is_wrapper(text: str) -> bool:
    return "ChildFailedError" in text or bool(re.match(r"Process\w+Exception", text))


def _take_field(hit: Hit, line: str) -> None:
    """One line of a block: who failed, where and when."""
    text = prefix.read(line).text if "host" not in line and "time" not in line else line
    field = _BLOCK_FIELD.match(re.sub(r"^(?:\s*\d+: |\[\S+\]:? ?)", "", text))
    if field is None:
        return
    name, value = field[1], field[2].strip()
    if name == "rank" and (ranks := re.match(r"(\d+) \(local_rank: (\d+)\)", value)):
        hit.rank, hit.local_rank = whole(ranks[1]), whole(ranks[2])
    elif name == "host":
        hit.host = value
    elif name == "time":
        hit.time = prefix.read(value.replace("_", "T") + " ").time
    elif name == "traceback" and "Traceback" not in value and "see:" not in value:
        hit.facts["at"] = value[:200]


@check("fatalword")
def _fatal_word(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(
        r"EngineDeadError|See stack trace|log_?level|--|NCCL|[Nn]on-?fatal|CRITICAL\s*[=:]\s*\d|0 fatal|AER|slurm",
        hit.line,
    )


# --------------------------------------------------------------------------- slow


@check("straggler")
def _straggler(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if re.search(
        r"no stragglers?|stragglers?(?: found)?:? *(?:none|\[\]|set\(\)|0\b)|straggler_|--\w*straggler|import ",
        hit.line,
        re.IGNORECASE,
    ):
        return False
    if named := re.search(r"[Rr]ank[s]?[ :=#]*\[?(\d+)", hit.line):
        hit.rank = whole(named[1])
    if host := re.search(r"(?:[Nn]ode|[Hh]ost|on)[ :=]+([A-Za-z][\w.-]*\d[\w.-]*)", hit.line):
        hit.host = host[1]
    return bool(hit.rank is not None or hit.host or re.search(r"detected|found", hit.line))


@check("thermal")
def _thermal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    for line in context.before(300, 16384):
        if gpu := re.match(r"GPU ([0-9A-Fa-f:.]+)$", line.strip()):
            hit.gpu = pci(gpu[1])
            break
    return True


@check("slowbw")
def _slow_bandwidth(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"--\w+|=\s*\d+\s*$", hit.line) or "FAILED" in hit.line or "threshold" in hit.line
