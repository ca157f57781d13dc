#!/usr/bin/env python3
"""Stands in for AWS's session-manager-plugin, which no package registry has.

It takes the same words and variable, and refuses to work where the real one would: without
the response in its variable, with the token on its command line, without a terminal to
read from. What it prints for a node is in ``sessions/<instance id>.txt`` beside it; a line
``sleep N`` waits, and ``together N`` waits until N of them run.
"""

import glob
import json
import os
import sys
import time

variable, region, operation, profile, asked, endpoint = sys.argv[1:]
response = json.loads(os.environ[variable])
request = json.loads(asked)
assert (operation, region) == ("StartSession", "us-west-2"), sys.argv
assert response["TokenValue"] == "secret" and "secret" not in " ".join(sys.argv), sys.argv
assert request["DocumentName"] == "AWS-StartNonInteractiveCommand", request
assert request["Parameters"] == {"command": ["hpslurm-check --json"]}, request
assert sys.stdin.isatty(), "no terminal"
cluster, _, instance = request["Target"].rpartition("-i-")
assert cluster.startswith("sagemaker-cluster:abcdefghijkl_"), request
print(f"\nStarting session with SessionId: {response['SessionId']}\r", flush=True)
folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sessions")
with open(f"{folder}/i-{instance}.txt") as file:
    for line in file:
        if line.startswith("sleep "):
            time.sleep(float(line.split()[1]))
        elif line.startswith("together "):  # goes on only while that many run at the same time
            open(f"{folder}/i-{instance}.here", "w").close()
            until = time.monotonic() + 20
            while len(glob.glob(f"{folder}/*.here")) < int(line.split()[1]):
                assert time.monotonic() < until, "the others did not come"
                time.sleep(0.05)
        else:
            print(line.rstrip("\n") + "\r", flush=True)
print(f"\nExiting session with sessionId: {response['SessionId']}.\r")
