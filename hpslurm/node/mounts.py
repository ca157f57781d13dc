"""What is mounted where, as ``/proc/self/mounts`` shows it. No probe itself."""

from __future__ import annotations


def kinds(text: str) -> dict[str, str]:
    """Path to type of file system; the last mount on a path is the one in force.

    >>> kinds('''
    ... /dev/root / ext4 rw,relatime,discard 0 0
    ... tmpfs /dev/shm tmpfs rw,nosuid,nodev,inode64 0 0
    ... /dev/md0 /opt/dlami/nvme xfs rw,noatime 0 0
    ... ''')
    {'/': 'ext4', '/dev/shm': 'tmpfs', '/opt/dlami/nvme': 'xfs'}
    """
    rows = [line.split() for line in text.splitlines()]
    return {words[1]: words[2] for words in rows if len(words) == 6}
