#!/bin/bash -p
# hpslurm's epilog: records what this node looks like after each job, for hpslurm report.
#
# Slurm runs it as root, with almost no environment, on every node of a job. It exits 0 whatever
# happens: no hpslurm here (a node just replaced), no Python, a full disk, a file system that hangs.
#
# Kill switch:  touch /run/hpslurm.off
#
# Slurm runs every file of an Epilog folder and drains the node for one that it cannot run: keep
# nothing else in this folder.

PYTHON=/opt/hpslurm/bin/python
LIMIT=5
LOG=/var/log/hpslurm.log
ARGS=()

[ -e /run/hpslurm.off ] && exit 0

# All that may hang (Python on a network mount, the log on a full disk) happens in a child that we
# read with a time limit and never wait for: a process stuck in the kernel cannot be killed.
exec 3< <(
    exec 3<&- </dev/null
    exec 2>/dev/null
    exec 2>>"$LOG" # one that cannot be opened leaves /dev/null in place
    exec "$PYTHON" -I -m hpslurm.hooks epilog "${ARGS[@]}" --limit "$LIMIT"
)
child=$!
IFS= read -r -t "$LIMIT" -u 3 word
status=$?

if [ "$status" -gt 128 ]; then
    kill -KILL "$child" 2>/dev/null
    read -r -t 0.3 -u 4 _ 4< <(
        exec 2>/dev/null
        exec 2>>"$LOG"
        printf '%(%FT%T%z)T hpslurm: epilog of job %s gave no answer within %s s, job goes on\n' \
            -1 "$SLURM_JOB_ID" "$LIMIT" >&2
    )
fi
exit 0
