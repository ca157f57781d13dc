#!/bin/sh
# hpslurm's task prolog: says in the job's own output that its node is sick, if the prolog found that.
#
# Slurm runs it as the user before each task, and writes what follows the word "print" into the
# job's output. It looks at nothing itself: it reads one line that hpslurm's prolog left. It uses the
# shell alone, prints nothing for a healthy node, and always exits 0: any other exit ends the task.
#
# Kill switch:  touch /run/hpslurm.off

# Where hpslurm's hooks write (results, in /etc/hpslurm/policy.toml).
RESULTS=/var/lib/hpslurm

# Once per node and job: the first task of the first step, and of the batch script.
[ "${SLURM_LOCALID:-0}" = 0 ] || exit 0
case "${SLURM_STEP_ID:-0}" in
    0 | -5 | 4294967[0-9][0-9][0-9]) ;; # -5: the batch script, on 26.05
    *) exit 0 ;;
esac
# A batch script's own task, whose step id is no number from 0 on, came first on its node, and has said it.
[ "${SLURM_STEP_ID:-}" = 0 ] && [ "${ENVIRONMENT:-}" = BATCH ] && [ "${SLURM_NODEID:-0}" = 0 ] && exit 0
[ -e /run/hpslurm.off ] && exit 0

told="$RESULTS/jobs/$SLURM_JOB_ID/$SLURMD_NODENAME.told"
if [ -f "$told" ] && [ -r "$told" ]; then
    IFS= read -r line <"$told" || line=""
    [ -n "$line" ] && printf 'print %s\n' "$line"
fi
exit 0
