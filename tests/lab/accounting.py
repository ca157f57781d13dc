"""The lab's accounting: MariaDB on a socket of its own, and slurmdbd on 127.0.0.1. Both belong to one lab's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.lab.lab import Lab

PROGRAMS = ("mariadbd", "mariadb-install-db", "mariadb", "slurmdbd", "sacct", "sacctmgr")


class Row(NamedTuple):
    """A job that is over, for ``load``; times are seconds since the epoch."""

    job: int
    state: str
    start: int
    end: int
    user: str
    nodes: str
    code: int = 0
    signal: int = 0
    uid: int = 0
    partition: str = "p5"


def conf_lines(lab: Lab) -> dict[str, str]:
    """What slurm.conf says. Slurm's programs take the socket of munged from the word for a password."""
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(lab.port + len(lab.started) + 1),
        "AccountingStoragePass": lab.path("run", "munge.sock"),
    }


def start(lab: Lab, seconds: float) -> None:
    """The database, slurmdbd, and the cluster's name in it: before slurmctld, which registers there."""
    data, socket = lab.path("db"), lab.path("run", "db.sock")
    subprocess.run(
        [
            *("mariadb-install-db", "--no-defaults", "--user=root", "--auth-root-authentication-method=normal"),
            *("--skip-test-db", "--skip-name-resolve", f"--datadir={data}"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
        timeout=seconds,
    )
    lab.daemon(
        *("mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={socket}"),
        *(f"--pid-file={lab.path('run', 'db.pid')}", f"--log-error={lab.path('log', 'mariadbd.log')}"),
        # nobody but root reaches its socket's folder over the network: there is none
        *("--skip-networking", "--skip-grant-tables", "--innodb-flush-log-at-trx-commit=0"),
    )
    lab.wait_for_socket(socket, "mariadbd", seconds)
    _write_conf(lab, socket)
    lab.daemon("slurmdbd", "-D", env={"MYSQL_UNIX_PORT": socket})
    lab.wait_for_socket(lab.port + len(lab.started) + 1, "slurmdbd", seconds)
    lab.run("sacctmgr", "-i", "add", "cluster", "lab", check=True)


def _write_conf(lab: Lab, socket: str) -> None:
    path = lab.path("etc", "slurmdbd.conf")
    lines = {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={lab.path('run', 'munge.sock')}",
        "DbdHost": "localhost",
        "DbdAddr": "127.0.0.1",
        "DbdPort": str(lab.port + len(lab.started) + 1),
        "SlurmUser": "root",
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "LogFile": lab.path("log", "slurmdbd.log"),
        "PidFile": lab.path("run", "slurmdbd.pid"),
        "DebugLevel": "info",
        "CommunicationParameters": "NoInAddrAny",
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.writelines(f"{key}={value}\n" for key, value in lines.items())


# As Slurm's database has them: job_states and node_states of slurm.h.
STATES = {"COMPLETED": 3, "CANCELLED": 4, "FAILED": 5, "TIMEOUT": 6, "NODE_FAIL": 7}
NODE_IDLE_AND_DRAIN = 2 | 1 << 9


def load(lab: Lab, like: str, rows: Sequence[Row]) -> None:
    """Put jobs of other days into the database, each a copy of a job of this lab in all that a row does not say."""
    users = sorted({row.user for row in rows})
    lab.run("sacctmgr", "-i", "add", "account", "a")  # exit status 1 where it is there already
    lab.run("sacctmgr", "-i", "add", "user", ",".join(users), "account=a", check=True)
    values = ",".join(
        f"({row.job},{STATES[row.state]},{row.code << 8 | row.signal},{row.start},{row.end},"
        f"'{row.user}',{row.uid},'{row.partition}','{row.nodes}')"
        for row in rows
    )
    said = dict.fromkeys(("time_submit", "time_eligible", "time_start"), "m.start") | {
        "id_job": "m.job",
        "state": "m.state",
        "exit_code": "m.code",
        "derived_ec": "0",
        "id_user": "m.uid",
        "time_end": "m.end",
        "`partition`": "m.part",
        "nodelist": "m.nodes",
        "id_assoc": "(SELECT MAX(id_assoc) FROM lab_assoc_table WHERE user=m.user AND deleted=0 AND `partition`='')",
    }
    sql(
        lab,
        "CREATE TEMPORARY TABLE m (job INT, state INT, code INT, start BIGINT, end BIGINT, user TEXT, uid INT,"
        f" part TEXT, nodes TEXT); INSERT INTO m VALUES {values};"
        + _copy(lab, "lab_job_table", "job_db_inx", said, f"m JOIN lab_job_table j WHERE j.id_job={int(like)}"),
    )


def drain(lab: Lab, node: str, start: int, end: int, reason: str) -> None:
    """An event of another time, like the one with which a node of this lab began."""
    said = {"node_name": f"'{node}'", "time_start": str(start), "time_end": str(end), "reason": f"'{reason}'"}
    said["state"] = str(NODE_IDLE_AND_DRAIN)
    first = "(SELECT * FROM lab_event_table WHERE node_name<>'' ORDER BY time_start LIMIT 1) j"
    sql(lab, _copy(lab, "lab_event_table", "", said, first))


def _copy(lab: Lab, table: str, but: str, said: Mapping[str, str], source: str) -> str:
    """SQL that copies rows whatever columns this release's tables have."""
    about = f"table_schema='slurm_acct_db' AND table_name='{table}' AND column_name<>'{but}'"
    asked = f"SELECT column_name FROM information_schema.columns WHERE {about}"
    names = [f"`{name}`" if name == "partition" else name for name in sql(lab, asked).split()]
    assert set(said) <= set(names), names
    chosen = ",".join(said.get(name, f"j.{name}") for name in names)
    return f"INSERT INTO {table} ({','.join(names)}) SELECT {chosen} FROM {source};"


def sql(lab: Lab, words: str) -> str:
    """What MariaDB answers; the lab's own, behind its socket."""
    socket = f"--socket={lab.path('run', 'db.sock')}"
    return lab.run("mariadb", "--no-defaults", "-N", socket, "slurm_acct_db", "-e", words, check=True).stdout


def missing() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
