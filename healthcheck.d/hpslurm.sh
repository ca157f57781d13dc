#!/bin/bash -p
# hpslurm's health check: looks at this node now and then, so that diagnose has a fresh record without a job.
#
# Slurm runs it as root, with almost no environment, every HealthCheckInterval. It starts one while
# another still runs, and kills each after 60 s, so this takes a lock: where the one before still
# looks, there is no second look. It drains nothing, changes nothing and always exits 0.
#
# Kill switch:  touch /run/hpslurm.off      (the site's own check, NEXT, still runs)

PYTHON=/opt/hpslurm/bin/python
LIMIT=5
LOG=/var/log/hpslurm.log
ARGS=()
LOCK=/run/hpslurm-health.lock
# Slurm takes one HealthCheckProgram. The site's own, run after ours:  NEXT=(/usr/sbin/nhc)
NEXT=()

say() { # a log that hangs costs 0.3 s
    read -r -t 0.3 -u 4 _ 4< <(
        exec 2>/dev/null
        exec 2>>"$LOG"
        printf '%(%FT%T%z)T hpslurm: health check %s\n' -1 "$1" >&2
    )
}

look() {
    # All that may hang (Python on a network mount, the log on a full disk) happens in a child that we
    # read with a time limit and never wait for: a process stuck in the kernel cannot be killed.
    # It inherits the lock, descriptor 9, and so keeps it as long as it lives.
    exec 3< <(
        exec 3<&- </dev/null
        exec 2>/dev/null
        exec 2>>"$LOG" # one that cannot be opened leaves /dev/null in place
        exec "$PYTHON" -I -m hpslurm.hooks health "${ARGS[@]}" --limit "$LIMIT"
    )
    child=$!
    IFS= read -r -t "$LIMIT" -u 3 _
    if [ $? -gt 128 ]; then
        kill -KILL "$child" 2>/dev/null
        say "gave no answer within $LIMIT s"
    fi
}

if [ ! -e /run/hpslurm.off ]; then
    busy=0 # without a lock file or flock we look all the same
    exec 9>>"$LOCK" && /usr/bin/flock -n 9 || busy=$?
    if [ "$busy" = 1 ] && [ -e /dev/fd/9 ]; then
        say "left out: the one before still runs"
    else
        look
    fi
    exec 9>&-
fi 2>/dev/null

[ "${#NEXT[@]}" -gt 0 ] && "${NEXT[@]}"
exit 0
