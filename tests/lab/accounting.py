"""The lab's accounting: MariaDB on a socket of its own, and slurmdbd on 127.0.0.1. Both belong to one lab's folder."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.lab.lab import Lab

PROGRAMS = ("mariadbd", "mariadb-install-db", "slurmdbd", "sacct", "sacctmgr")


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


def missing() -> list[str]:
    return [name for name in PROGRAMS if not shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")]
