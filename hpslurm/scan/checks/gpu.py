"""Lines of GPUs: driver events, CUDA's words, fabric manager, PCIe and GPUDirect."""

from __future__ import annotations

import re

from hpslurm.core import linear
from hpslurm.core.text import whole
from hpslurm.node import xid_table
from hpslurm.scan import model, prefix
from hpslurm.scan.gpu_names import gpu_of, pci
from hpslurm.scan.hit import Context, Hit, check

MOST_ABOVE = 40  # lines of a table between the name of a test and the result of its last GPU
MOST_JSON = 400  # lines; the context is bounded in bytes, too
_JSON_NAME = re.compile(r'"name" ?: ?"([^"\n]{1,80})"')
_JSON_GPU = re.compile(r'"(?:gpu_ids?|entity_id)" ?: ?"?(\d{1,3})\b')
_JSON_RESULT = re.compile(r'"(?:status|name|gpu_ids?|entity_group)" ?:')
_JSON_CATEGORY = re.compile(r'"error_category" ?: ?(\d{1,3})\b')


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


@check("dcgm")
def _dcgm(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Which test it was may stand in a line above; what failed of the software says nothing of a GPU."""
    test = (match["test"] or match["health"] or "").strip(" ->")
    above = iter(context.before(MOST_ABOVE))
    while (not test or re.match("Warning|Info", test)) and (line := next(above, "")):
        cells = line.split("|")
        test = cells[1].strip() if len(cells) > 2 else ""
    if re.search(r"(?i)^overall|^gpu\b(?! mem)|^$", test):  # a sum of others
        return False
    named = re.search(r"\bGPUs?:? ?(\d+)", hit.line)
    hit.gpu = named[1] if named else ""
    hit.facts["test"] = test
    return hit.turn_by("dcgm", test)


@check("dcgm_json")
def _dcgm_json(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """A result of ``dcgmi diag -j``: its test and GPU stand before it, what DCGM found behind it.

    The summary of a test repeats its results, and is no GPU's. What DCGM counts as software says nothing of a GPU.
    """
    start = hit.line.find(match.group())
    before = "\n".join([*reversed(context.before(MOST_JSON)), hit.line[:start]])
    after = "\n".join([hit.line[start + len(match.group()) :], *context.after(MOST_JSON)])
    names = _JSON_NAME.findall(before)
    result = before[before.rfind("{") :]
    entity = _JSON_GPU.search(result)
    if not names or entity is None:
        return False
    after = _JSON_RESULT.split(after, maxsplit=1)[0]
    categories = _JSON_CATEGORY.findall(after)
    hit.gpu = entity[1]
    hit.facts["test"] = names[-1]
    return hit.turn_by("dcgm_category", categories[0]) if categories else hit.turn_by("dcgm", names[-1])


@check("dcgm_says")
def _dcgm_says(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.gpu = next((number for number in match.groups() if number), "")
    return hit.turn_by("dcgm_says", match.group())


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


@check("remalloc")
def _rem_allocator(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """NCCL's remote allocator may read a random size from a connection that was not meant for it."""
    return not any("[Rem Allocator]" in line for line in context.before(3))


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
    if "bind NVLink SHARP" in hit.line:  # its "out of memory" is that of multicast slots
        return True
    return not re.search(r"'(?:out of memory|initialization error|no CUDA-capable)", hit.line)


@check("nodevice")
def _no_device(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if "not compiled with CUDA" in hit.line:
        hit.turn("no-device-cpu-build")
    elif re.search(r"driver|NVML|mismatch", context.around(4)):
        hit.turn("no-device-driver")
    return True


@check("oom")
def _oom(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if not hit.gpu and (gpu := re.search(r"\bGPU (\d{1,2}) has a total", hit.line)):
        hit.gpu = gpu[1]
    return "more than 1EB" not in hit.line


@check("aer")
def _aer(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """The root port reports; the card below it is named by its driver."""
    for line in [*context.before(8), *context.after(8)]:
        if named := re.search(r"\bnvidia ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2})\.\d: ", line):
            hit.gpu = named[1]
            return True
        if named := _OTHER_CARD.search(line):
            hit.peer = named["card"]
            if named["disk"]:
                hit.turn("pcie-disk")
            else:
                hit.turn("pcie-network-card")
            return True
    return True


# Drivers of network cards, or of disks, and the address of the card that they speak of.
_OTHER_CARD = linear.compile(
    r"\b(?:mlx[45]_\w+|bnxt_en|ice|i40e|ixgbe|irdma|efa|ena|hfi1|cxi\w*|(?P<disk>nvme|ahci|megaraid\w*|mpt\dsas))"
    r"(?: nvme\d+:)? (?P<card>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): "
)


@check("fmfatal")
def _fm_fatal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    hit.gpu = gpu_of(hit.line)
    if not hit.gpu:  # nvidia-smi lists links under their GPU
        hit.gpu = next((named[1] for line in context.before(20) if (named := re.match(r"\s*GPU (\d+):", line))), "")
    if re.search(r"non-?fatal", hit.line, re.IGNORECASE):
        hit.turn("fabric-nonfatal")
    return True


@check("thermal")
def _thermal(hit: Hit, match: re.Match[str], context: Context) -> bool:
    for line in context.before(300, 16384):
        if gpu := re.match(r"GPU ([0-9A-Fa-f:.]+)$", line.strip()):
            hit.gpu = pci(gpu[1])
            break
    return True


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
        if "Error: CUDA error" in hit.line:
            hit.turn("peer-of-program")
        else:
            hit.turn("acs-no-peer")
    elif "HINT" in hit.line:
        hit.turn("acs-hint")
    return not re.search(r"ACS (?:is )?(?:disabled|off)\b", hit.line)


@check("amdgpu")
def _amd_gpu(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Only some of the driver's lines name the GPU; they stand close together."""
    if not hit.gpu:
        near = re.search(r"amdgpu ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): ", context.around(8))
        hit.gpu = pci(near[1]) if near else ""
    return True
