#!/bin/bash -p
# hpslurm's prolog: looks at this node before each job, and is never the reason why the job waits.
#
# Slurm runs it as root, with almost no environment, on every node of a job. It exits 0 whatever
# happens: no hpslurm here (a node just replaced), no Python, a full disk, a file system that hangs.
# It exits 1, and Slurm then drains the node, only when hpslurm prints the one word "drain": for a
# finding that the site's own policy names (gate, in /etc/hpslurm/policy.toml).
#
# Kill switch:  touch /run/hpslurm.off
#
# Slurm runs every file of a Prolog folder and drains the node for one that it cannot run: keep
# nothing else in this folder.

PYTHON=/opt/hpslurm/bin/python
LIMIT=5
LOG=/var/log/hpslurm.log
ARGS=()
STUCK=/run/hpslurm.stuck

[ -e /run/hpslurm.off ] && exit 0

# Slurm drains the node where this shell is killed, so memory pressure shall end something else.
echo -1000 2>/dev/null >/proc/self/oom_score_adj

hangs() { # process $1 hangs in the kernel, and no signal reaches it
    local about
    IFS= read -r about 2>/dev/null <"/proc/$1/stat" && [[ ${about##*) } == D* ]]
}

# One that hangs stays for good, with all its memory. A second would join it with every job.
[ -e "$STUCK" ] && read -r child <"$STUCK" && hangs "$child" && exit 0

# All that may hang (Python on a network mount, the log on a full disk) happens in a child that we
# read with a time limit and never wait for: a process stuck in the kernel cannot be killed.
exec 3< <(
    exec 3<&- </dev/null
    exec 2>/dev/null
    echo 0 >/proc/self/oom_score_adj
    exec 2>>"$LOG" # one that cannot be opened leaves /dev/null in place
    exec "$PYTHON" -I -m hpslurm.hooks prolog "${ARGS[@]}" --limit "$LIMIT"
)
child=$!
IFS= read -r -t "$LIMIT" -u 3 word
status=$?

if [ "$status" -gt 128 ]; then
    kill -KILL "$child" 2>/dev/null
    for _ in 1 2 3 4; do
        hangs "$child" || break
        read -r -t 0.05 _ <> <(:)
    done
    if hangs "$child"; then # the log may hang as it does
        printf '%s\n%(%FT%T%z)T hpslurm: prolog of job %s gave no answer within %s s and hangs in the kernel, job goes on\n' \
            "$child" -1 "$SLURM_JOB_ID" "$LIMIT" >"$STUCK"
        exit 0
    fi 2>/dev/null
    read -r -t 0.3 -u 4 _ 4< <(
        exec 2>/dev/null
        exec 2>>"$LOG"
        printf '%(%FT%T%z)T hpslurm: prolog of job %s gave no answer within %s s, job goes on\n' \
            -1 "$SLURM_JOB_ID" "$LIMIT" >&2
    )
fi
[ "$word" = drain ] && exit 1
exit 0
