"""What to say about a cause: why it was chosen, what is still missing, what a person could type."""

from __future__ import annotations

import re
import shlex

from hpslurm import suggest as words
from hpslurm.finding import CONFIGURE, LOOK, Culprit, Event, Suggestion
from hpslurm.scan.patterns import Pattern

SECTIONS = {
    "collective_timeout_unknown": 1, "collective_desync": 18, "slow_rank_work": 18, "straggler": 9, "app_error": 18, "rendezvous_unreachable": 1,
    "rendezvous_dns": 12, "rendezvous_port_in_use": 1, "peer_exit": 20, "network_link": 3, "socket_firewall": 16, "efa_not_used": 13, "efa_version": 10,
    "efa_mr_limit": 6, "memlock": 17, "security_group": 2, "shm_full": 17, "shm_removed": 15, "gpu_oom": 11, "host_oom": 4, "gpu_ecc": 21,
    "gpu_fell_off_bus": 7, "gpu_nvlink": 7, "gpu_gsp": 7, "gpu_app_fault": 7, "fabric_manager": 7, "nvls_multicast": 19, "driver_mismatch": 10,
    "nccl_version_mismatch": 10, "nccl_invalid_usage": 18, "iface_wrong": 3, "pcie_acs_iommu": 14, "topo_file": 19, "gdr_missing": 6, "job_cancelled": 8,
    "node_fail": 8, "slurm_comm": 8, "prolog_epilog": 8, "slurm_node_config": 8, "storage": 18, "slow_bandwidth": 13, "data_corruption": 5, "capacity": 8,
}  # fmt: skip
CAUSES = ("healthy", *SECTIONS)
HARDWARE = ("gpu_ecc", "gpu_fell_off_bus", "gpu_nvlink", "gpu_gsp")


def section(cause: str, pattern: Pattern | None) -> int:
    if pattern is not None and pattern.cause == cause and pattern.section:
        return pattern.section
    return SECTIONS.get(cause, 1)


def why(chosen: Event, pattern: Pattern | None, victims: tuple[Event, ...]) -> str:
    meaning = pattern.meaning if pattern is not None else _DERIVED.get(chosen.pattern, "the evidence of several lines")
    said = meaning[0].upper() + meaning[1:] if chosen.pattern not in _DERIVED else _DERIVED[chosen.pattern]
    if chosen.fact("xid"):
        said += f"; number {chosen.fact('xid')}"
    louder = [event for event in victims if event.count >= chosen.count]
    if not louder:
        return said
    causes = sorted({event.cause for event in louder if event.cause and event.cause != chosen.cause})
    lines = sum(event.count for event in louder)
    if chosen.role == "root":
        return f"{said}. The {lines} other lines ({', '.join(causes[:4]) or 'same cause'}) are what its victims and clean-up print"
    return said


_DERIVED = {
    "desync-watchdog": "Ranks wait in different collectives: the few took another path",
    "lone-barrier": "Training was finished, and one rank waits in a barrier that the others do not enter",
    "busy-timeout": "This long work began one time-out before the watchdog fired and was not seen to end",
    "tests-slow": "The largest sizes stay far below what this machine does",
    "tests-wrong": "The #wrong column is not zero",
    "smi-remap": "A repair of GPU memory waits for a reset, or failed",
    "smi-ecc": "Uncorrectable errors are counted on this GPU",
    "sinfo-state": "This state means that a person must look, or that the node does not answer",
    "net-socket": "NCCL uses sockets although EFA was meant",
    "ras-behind": "These ranks have launched fewer operations than the others",
    "ras-ahead": "The ranks that are listed are ahead; the unlisted ones are behind",
    "ras-dead": "RAS gave this process up",
    "ras-missing": "RAS has no data from this process",
    "ras-missing-rank": "RAS misses this rank",
    "score-low": "The performance score is below the threshold",
    "rtt-high": "The slowest rank takes much longer than the fastest",
    "df-full": "This file system is full",
    "ulimit-low": "The locked-memory limit is small",
    "ib-port-down": "A port is down",
    "fr-silent": "The flight recorder shows that this rank did not join",
    "fr-shape": "The flight recorder shows different shapes or operations",
}


def ask(cause: str) -> str:
    return {
        "app_error": "the failing rank's own output (the traceback above its first error)",
        "host_oom": "dmesg of that node (an oom-kill line), and the job's memory limit",
        "job_cancelled": "sacct -j JOBID --format=State,ExitCode,Reason, and who cancelled it",
    }.get(cause, "dmesg and slurmd's log of the node, and the output of the other ranks")


def place(culprit: Culprit | None) -> str:
    if culprit is None:
        return ""
    if culprit.rank is not None:
        return f" (rank {culprit.rank})"
    if culprit.local_rank is not None:
        return f" (local rank {culprit.local_rank})"
    return f" ({culprit.peer or culprit.host})" if culprit.peer or culprit.host else ""


# A node name comes from a log, so anybody may have written it: only plain names enter a command.
_NODE = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}(?:\[[0-9,-]{1,60}\])?$")


def suggest(cause: str, culprit: Culprit | None) -> tuple[Suggestion, ...]:
    node = culprit.host if culprit is not None and culprit.host and _NODE.match(culprit.host) else ""
    where = shlex.quote(node) if node else "NODE"
    given: list[Suggestion] = []
    for step, text, command in _COMMANDS.get(cause, ()):
        given.append(Suggestion(step, text, command.replace("{node}", where)))
    if cause in HARDWARE:
        given.insert(0, words.save_evidence())
        given.append(words.drain(cause.replace("_", "-")))
        given.append(words.reboot("a reset is needed; replace when the same fault is back within a day"))
        given = [Suggestion(s.step, s.why, s.command.replace("{nodes}", where)) for s in given]
    return tuple(given)


_COMMANDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "collective_timeout_unknown": ((LOOK, "scan all ranks together with the nodes' kernel logs", "hpslurm scan LOGFOLDER"),
                                   (LOOK, "see what the nodes recorded for the job", "hpslurm report JOBID")),
    "collective_desync": ((LOOK, "let the next run say which rank differs", "export TORCH_DISTRIBUTED_DEBUG=DETAIL TORCH_NCCL_TRACE_BUFFER_SIZE=2000"),),
    "slow_rank_work": ((CONFIGURE, "give the process group a time-out above the longest save or evaluation", "init_process_group(timeout=timedelta(hours=2))"),),
    "straggler": ((LOOK, "compare clocks and throttling of that node", "srun -w {node} nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE"),),
    "app_error": ((LOOK, "read the first traceback of that rank", ""),),
    "rendezvous_unreachable": ((LOOK, "is anything listening at the master, and can this node reach it", "srun -w {node} bash -c 'getent hosts $MASTER_ADDR; ss -ltn'"),),
    "rendezvous_dns": ((LOOK, "does the name resolve on every node of the job", "srun -w {node} getent hosts MASTER"),),
    "rendezvous_port_in_use": ((LOOK, "who holds the port; is the launcher started once per node", "srun -w {node} ss -ltnp"),),
    "peer_exit": ((LOOK, "read the log of the peer that went away, and its node's kernel log", "hpslurm report JOBID"),),
    "network_link": ((LOOK, "state and counters of the links", "srun -w {node} bash -c 'ibstat; rdma link'"),),
    "socket_firewall": ((LOOK, "rules of the host firewall, and routes of the chosen interface", "srun -w {node} bash -c 'sudo iptables -S; ip route'"),),
    "efa_not_used": ((LOOK, "does libfabric see EFA where the job runs (in its container)", "srun -w {node} fi_info -p efa -t FI_EP_RDM"),),
    "efa_version": ((LOOK, "versions of installer, libfabric and plugin", "srun -w {node} bash -c 'cat /opt/amazon/efa_installed_packages; fi_info --version'"),),
    "efa_mr_limit": ((LOOK, "locked-memory limit of a step, then the kernel's own messages", "srun -w {node} bash -c 'ulimit -l; sudo dmesg | grep -i efa'"),),
    "memlock": ((LOOK, "the limit a job step gets", "srun -w {node} bash -c 'ulimit -l'"),
                (CONFIGURE, "raise it for slurmd (LimitMEMLOCK=infinity) and exclude it from propagation", "sudo systemctl edit slurmd")),
    "security_group": ((LOOK, "rules of the group: all traffic to and from itself, in both directions", "aws ec2 describe-security-groups --group-ids SG"),),
    "shm_full": ((LOOK, "size and use of /dev/shm where the job runs", "srun -w {node} df -h /dev/shm"),),
    "shm_removed": ((LOOK, "does logind remove IPC objects", "srun -w {node} loginctl show-logind -p RemoveIPC"),),
    "gpu_oom": ((LOOK, "is another process on the GPU", "srun -w {node} nvidia-smi --query-compute-apps=pid,used_memory --format=csv"),),
    "host_oom": ((LOOK, "the kernel's account of the kill", "srun -w {node} bash -c 'sudo dmesg -T | grep -i oom'"),
                 (LOOK, "memory used against requested", "sacct -j JOBID --format=JobID,MaxRSS,ReqMem,State")),
    "gpu_ecc": ((LOOK, "counters and remaps of the GPU", "srun -w {node} nvidia-smi -q -d ECC,ROW_REMAPPER"),),
    "gpu_fell_off_bus": ((LOOK, "what PCIe still shows", "srun -w {node} lspci -d 10de:"),),
    "gpu_nvlink": ((LOOK, "state of the links", "srun -w {node} nvidia-smi nvlink --status"),),
    "gpu_gsp": ((LOOK, "does the driver still answer", "srun -w {node} timeout 20 nvidia-smi"),),
    "gpu_app_fault": ((LOOK, "find the kernel that fails", "CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer on one rank"),),
    "fabric_manager": ((LOOK, "is the service up and of the driver's version", "srun -w {node} systemctl status nvidia-fabricmanager"),),
    "nvls_multicast": ((LOOK, "does the job run without NVLink SHARP", "NCCL_NVLS_ENABLE=0"),),
    "driver_mismatch": ((LOOK, "version of the loaded module and of the libraries", "srun -w {node} bash -c 'cat /proc/driver/nvidia/version; nvidia-smi'"),),
    "nccl_version_mismatch": ((LOOK, "which NCCL each rank loads", "NCCL_DEBUG=VERSION on every rank"),),
    "nccl_invalid_usage": ((LOOK, "which GPU each rank takes", "srun -w {node} bash -c 'echo $SLURM_PROCID $SLURM_LOCALID $CUDA_VISIBLE_DEVICES'"),),
    "iface_wrong": ((LOOK, "interfaces of every node against NCCL_SOCKET_IFNAME", "srun -w {node} ip -br addr"),),
    "pcie_acs_iommu": ((LOOK, "ACS on the bridges", "srun -w {node} bash -c 'sudo lspci -vvv | grep -i acsctl'"),),
    "topo_file": ((LOOK, "which file is forced, and by whom", "srun -w {node} bash -c 'env | grep NCCL_; cat /etc/nccl.conf'"),),
    "gdr_missing": ((LOOK, "is the peer-memory module loaded", "srun -w {node} bash -c 'lsmod | grep -i peermem'"),),
    "job_cancelled": ((LOOK, "who ended it, and the limit", "sacct -j JOBID --format=JobID,State,Elapsed,Timelimit,ExitCode"),),
    "node_fail": ((LOOK, "state and reason of the node", "scontrol show node {node}"),),
    "slurm_comm": ((LOOK, "controller, munge and clocks", "scontrol ping; munge -n | ssh {node} unmunge; timedatectl"),),
    "prolog_epilog": ((LOOK, "slurmd's log has the script's output", "srun -w {node} sudo journalctl -u slurmd -n 200"),),
    "slurm_node_config": ((LOOK, "what the node has against what slurm.conf says", "srun -w {node} slurmd -C"),),
    "storage": ((LOOK, "space, inodes and quota where it wrote", "df -h; df -i; lfs df -h; lfs quota -u $USER /fsx"),),
    "slow_bandwidth": ((LOOK, "which network NCCL used", "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"),),
    "data_corruption": ((LOOK, "repeat on pairs of nodes to find the one that is wrong", "hpslurm nccl-tests"),),
    "capacity": ((LOOK, "what the cluster says about its instances", "aws sagemaker list-cluster-nodes --cluster-name CLUSTER"),),
}  # fmt: skip
