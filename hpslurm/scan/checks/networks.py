"""Lines of networks: interfaces, connections, names, InfiniBand, EFA and its plugin."""

from __future__ import annotations

import re

from hpslurm.core import linear
from hpslurm.scan import prefix
from hpslurm.scan.hit import Context, Hit, check


@check("ncclinvalid")
def _nccl_invalid(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return "NCCL" in hit.line and not re.search(r"Cuda failure|NET/|Call to ibv|CUDA error", hit.line)


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
    return not any(re.search(r"\bn[Rr]anks 1\b", line) for line in context.after(120))  # alone, it needs no network


_CARD = linear.compile(r"\b\w+ ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d)\b")  # a driver, and which of its cards


# Drivers of cards for office and management networks: jobs' traffic does not run over them.
_ONBOARD = linear.compile(r"\b(?:e1000e?|igb|igc|r81\d\d|r8152|tg3|atlantic|alx|sky2|asix|cdc_ether|usb\d?|wl\w+)\b")


@check("netlink")
def _net_link(hit: Hit, match: re.Match[str], context: Context) -> bool:
    if prefix.boots(hit.line):
        return False
    if (card := _CARD.search(hit.line)) and not hit.peer:
        hit.peer = card[1]
    if _ONBOARD.search(hit.line):
        hit.turn("link-onboard")
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


_UNRESOLVED = linear.late(
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


@check("gloomesh")
def _gloo_mesh(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Only a loopback address shows a wrong interface; elsewhere the peers are gone or not there yet."""
    if re.search(r"[Rr]efused|timed out|[Rr]eset|closed", hit.line) and not re.search(r"127\.0\.[01]\.1", hit.line):
        hit.turn("gloo-peer-gone")
    return True


@check("efawanted")
def _efa_wanted(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Wherever no plugin is installed NCCL says so: it matters only where EFA was meant."""
    return bool(_EFA.search(hit.line) or _EFA.search(context.around(80)))


_EFA = linear.late(
    r"NET/OFI|FI_PROVIDER|FI_EFA|libnccl-ofi|aws-ofi|AWS Libfabric|Using EFA|\befa\b"
    r"|\b(?:p4de?|p5en?|p6-\w+)[.-]\d*x?large"
)


@check("otherprovider")
def _other_provider(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """One protocol found no provider and the next one did, or the fabric is not EFA."""
    if "<info>" in hit.line:  # libfabric tells of every provider that it asks
        return "efa" in match[0]
    if "No eligible providers" not in match[0]:
        return True
    return not any(re.search(r"Selected [Pp]rovider is (?!tcp|sockets|udp)", line) for line in context.after(20))


_HELP_HOST = linear.late(r"\s*(?:Hostname|Local host|Host): +([\w.-]+)")


@check("helpblock")
def _help_block(hit: Hit, match: re.Match[str], context: Context) -> bool:
    _host_of_help(hit, context.after(8))
    return "ibv_reg_mr" not in match[0] or "NCCL" not in hit.line


@check("portevent")
def _port_event(hit: Hit, match: re.Match[str], context: Context) -> bool:
    _host_of_help(hit, context.before(4))
    return True


def _host_of_help(hit: Hit, lines: list[str]) -> None:
    """Open MPI's help texts name the host some lines before or after what they are about."""
    named = next(filter(None, map(_HELP_HOST.match, lines)), None)
    hit.host = named[1] if named else hit.host


_MACHINE = linear.late(
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


@check("peerreset")
def _peer_reset(hit: Hit, match: re.Match[str], context: Context) -> bool:
    return not re.search(r"ssh|sshd|wandb|http|mysql|dbus", hit.line)


@check("lownodes")
def _low_nodes(hit: Hit, match: re.Match[str], context: Context) -> bool:
    """Which nodes a test names, if it is one."""
    if named := re.search(r"\bnodes?:? +([\w.-]{2,64})$", hit.line):
        hit.host = named[1]
    return not re.search(r"\b(?:might|may|can|could|if)\b|lower|power", hit.line)
