"""The HTTP side: reads a request as boto3 sends it, answers from the scenario, counts.

Trouble of a scenario, by ``kind``: denied, throttled, validation, expired, missing,
failure (HTTP 500), slow (``seconds`` before the answer), broken (the connection ends
in the middle of the answer), garbage (200 and a page of HTML, as proxies answer), empty (200 and no member),
repeat_token (the same NextToken for ever). ``after`` good calls it begins, and it
lasts ``times`` calls, or for ever.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from tests.aws_server.scenario import ACCOUNT, Scenario, load

ROLE = f"arn:aws:sts::{ACCOUNT}:assumed-role/on-call/somebody"
PREFIXES = {"SageMaker": "sagemaker", "Logs_20140328": "logs", "AmazonSSM": "ssm"}
# kind: (code in JSON, code of ec2 and sts, HTTP status, message)
ERRORS = {
    "denied": ("AccessDeniedException", "UnauthorizedOperation", 400, "{who} is not authorized to perform: {action}"),
    "throttled": ("ThrottlingException", "RequestLimitExceeded", 400, "Rate exceeded"),
    "validation": ("ValidationException", "InvalidParameterValue", 400, "The request is not valid for this cluster"),
    "expired": (
        "ExpiredTokenException",
        "RequestExpired",
        400,
        "The security token is expired",
    ),
    "missing": ("ResourceNotFoundException", "InvalidGroup.NotFound", 400, "It does not exist"),
    "failure": ("InternalFailure", "InternalError", 500, "Something went wrong"),
}


class Refused(Exception):
    """An answer that is an error, by its code in JSON and in XML."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class Server:
    """Answers for one scenario; ``calls`` counts by ``service:Operation``, retries too."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.calls: Counter[str] = Counter()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.off_list: list[str] = []
        self.running = 0
        self.most_at_once = 0
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self.operations: dict[str, Callable[[dict[str, Any]], Any]] = {
            "sagemaker:ListClusters": self._list_clusters,
            "sagemaker:DescribeCluster": self._describe_cluster,
            "sagemaker:ListClusterNodes": self._list_nodes,
            "sagemaker:ListClusterEvents": self._list_events,
            "sagemaker:DescribeClusterEvent": self._describe_event,
            "sagemaker:ListClusterOperations": self._list_operations,
            "logs:FilterLogEvents": self._filter_log_events,
            "ec2:DescribeSecurityGroupRules": self._rules,
            "ec2:DescribeSubnets": self._subnets,
            "ec2:DescribeNetworkInterfaces": self._interfaces,
            "ec2:DescribeVpcEndpoints": lambda asked: self._pick(self.scenario.endpoints, asked, "vpcEndpointSet"),
            "sts:GetCallerIdentity": self._identity,
        }

        if scenario.sessions:
            self.operations["ssm:StartSession"] = self._start_session
            self.operations["ssm:TerminateSession"] = lambda asked: {"SessionId": asked["SessionId"]}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def environ(self) -> dict[str, str]:
        """What a process needs to talk to this server and to nobody else."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_DEFAULT_REGION": self.scenario.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    # requests

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # headers and body in one packet; apart they wait 40 ms for each other

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with server._lock:
                    server.running += 1
                    server.most_at_once = max(server.most_at_once, server.running)
                try:
                    server._answer(self, body)
                except (BrokenPipeError, ConnectionResetError):  # a client that gave up waiting
                    self.close_connection = True
                finally:
                    with server._lock:
                        server.running -= 1

            def do_GET(self) -> None:
                with server._lock:
                    server.off_list.append(f"GET {self.path}")
                self.send_error(405)

            do_PUT = do_DELETE = do_PATCH = do_HEAD = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                return

        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        service, operation, asked = _read(handler.headers.get("X-Amz-Target", ""), body)
        name = f"{service}:{operation}"
        with self._lock:
            self.calls[name] += 1
            self.asked.append((name, asked))
            trouble = self._trouble(name, operation)
        kind = trouble.get("kind", "")
        if kind == "slow":
            time.sleep(trouble.get("seconds", 1))
        elif kind == "broken":
            return _break(handler)
        elif kind == "garbage":
            return _send(handler, 200, "text/html", b"<html><body>Sign in to the guest network</body></html>")
        xml = service in ("ec2", "sts")
        try:
            if kind in ERRORS:
                code, xml_code, status, text = ERRORS[kind]
                text = trouble.get("message", text.format(who=f"User: {ROLE}", action=name))
                raise Refused(xml_code if xml else code, text, status)
            if name not in self.operations:
                with self._lock:
                    self.off_list.append(name)
                raise Refused("UnknownOperationException", f"{name} is not on the read list")
            answer = self.operations[name](asked)
            if kind == "empty":
                answer = {}
            if kind == "repeat_token" and "NextToken" in answer:
                answer["NextToken"] = "0:same"
        except Refused as error:
            if xml:
                text = (
                    f"<Response><Errors><Error><Code>{error.code}</Code><Message>{escape(str(error))}</Message>"
                    "</Error></Errors><RequestID>0</RequestID></Response>"
                    if service == "ec2"
                    else f"<ErrorResponse><Error><Code>{error.code}</Code><Message>{escape(str(error))}</Message>"
                    "</Error></ErrorResponse>"
                )
                return _send(handler, error.status, "text/xml", text.encode())
            document = json.dumps({"__type": error.code, "message": str(error)})
            return _send(handler, error.status, "application/x-amz-json-1.1", document.encode())
        if xml:
            return _send(handler, 200, "text/xml", _xml(operation, answer).encode())
        return _send(handler, 200, "application/x-amz-json-1.1", json.dumps(answer).encode())

    def _trouble(self, name: str, operation: str) -> dict[str, Any]:
        for row in self.scenario.trouble:
            if row["operation"] in (operation, name, "*"):
                row["seen"] = row.get("seen", 0) + 1
                after, times = row.get("after", 0), row.get("times")
                if after < row["seen"] and (times is None or row["seen"] <= after + times):
                    return row
        return {}

    # sagemaker

    def _named(self, asked: dict[str, Any]) -> dict[str, Any]:
        cluster = self.scenario.cluster
        if asked.get("ClusterName") not in (cluster["ClusterName"], cluster["ClusterArn"]):
            raise Refused("ResourceNotFound", f"Cluster with name {asked.get('ClusterName')} is not found")
        return cluster

    def _page(self, items: list[Any], key: str, asked: dict[str, Any]) -> dict[str, Any]:
        size = min(int(asked.get("MaxResults") or 10), self.scenario.page)
        # Tokens hold characters that are no base64: a client has to take them as they are.
        begin = int(str(asked.get("NextToken") or "0:").split(":")[0])
        answer: dict[str, Any] = {key: items[begin : begin + size]}
        if begin + size < len(items):
            answer["NextToken"] = f"{begin + size}:¶ äö/+=="
        return answer

    def _list_clusters(self, asked: dict[str, Any]) -> dict[str, Any]:
        cluster = self.scenario.cluster
        rows = [
            {key: cluster[key] for key in ("ClusterArn", "ClusterName", "CreationTime", "ClusterStatus")},
            *(
                {
                    "ClusterArn": cluster["ClusterArn"][:-12] + f"other{number:07d}",
                    "ClusterName": name,
                    "CreationTime": cluster["CreationTime"],
                    "ClusterStatus": "InService",
                }
                for number, name in enumerate(self.scenario.others)
            ),
        ]
        if not cluster["InstanceGroups"]:
            rows.pop(0)
        return self._page(rows, "ClusterSummaries", asked)

    def _describe_cluster(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._named(asked)

    def _list_nodes(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._named(asked)
        wanted = asked.get("InstanceGroupNameContains", "")
        logical = bool(asked.get("IncludeNodeLogicalIds"))
        rows = [
            {key: value for key, value in node.items() if logical or key != "NodeLogicalId"}
            for node in self.scenario.nodes
            if wanted in node["InstanceGroupName"] and (logical or "InstanceId" in node)
        ]
        return self._page(rows, "ClusterNodeSummaries", asked)

    def _list_events(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._named(asked).get("NodeProvisioningMode") != "Continuous":
            raise Refused("ValidationException", "The operation is not supported for the cluster")
        after = asked.get("EventTimeAfter", 0)
        rows = [event for event in self.scenario.events if event["EventTime"] > after]
        rows.sort(key=lambda event: -event["EventTime"])
        public = [{key: value for key, value in row.items() if key[0] != "_"} for row in rows]
        return self._page(public, "Events", asked)

    def _describe_event(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._named(asked)
        for event in self.scenario.events:
            if event["EventId"] == asked.get("EventId"):
                branch = event["ResourceType"]
                about = {key: value for key, value in event.items() if key[0] != "_"}
                about["EventDetails"] = {
                    "EventMetadata": event["_about"]
                    or {branch: {"FailureMessage": event["_failure"]}}  # one member only
                }
                return {"EventDetails": about}
        raise Refused("ResourceNotFound", "Event is not found")

    def _list_operations(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._named(asked)
        rows = [row for row in self.scenario.operations if asked.get("Status") in (None, row["Status"])]
        rows.sort(key=lambda row: -row["CreationTime"])
        return self._page(rows, "ClusterOperationSummaries", asked)

    # ssm

    def _start_session(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {
            "SessionId": f"session-{self.calls['ssm:StartSession']}",
            "TokenValue": "secret",
            "StreamUrl": "wss://x",
        }

    # logs

    def _filter_log_events(self, asked: dict[str, Any]) -> dict[str, Any]:
        scenario = self.scenario
        if not scenario.has_log_group or asked.get("logGroupName") != scenario.log_group:
            raise Refused("ResourceNotFoundException", "The specified log group does not exist.")
        wanted = _pattern(asked.get("filterPattern", ""))
        rows = [
            line
            for line in scenario.logs
            if line["logStreamName"].startswith(asked.get("logStreamNamePrefix", ""))
            and asked.get("startTime", 0) <= line["timestamp"] <= asked.get("endTime", 1 << 62)
            and wanted(line["message"])
        ]
        if asked.get("startFromHead") is False:
            rows.reverse()
        empty, begin = (int(part) for part in str(asked.get("nextToken") or "0/0").split("/"))
        if empty < scenario.empty_log_pages:
            return {"events": [], "searchedLogStreams": [], "nextToken": f"{empty + 1}/0"}
        size = min(int(asked.get("limit") or 10000), scenario.log_page)
        answer: dict[str, Any] = {"events": rows[begin : begin + size], "searchedLogStreams": []}
        if begin + size < len(rows):
            answer["nextToken"] = f"{empty}/{begin + size}"
        return answer

    # ec2 and sts: keys are the names in the XML

    def _pick(self, rows: list[dict[str, Any]], asked: dict[str, Any], key: str) -> dict[str, Any]:
        names = {"group-id": "groupId", "subnet-id": "subnetId", "private-ip-address": "privateIpAddress"}
        names["service-name"] = "serviceName"
        for wanted in asked.get("Filter", []):
            field = names[wanted["Name"]]
            if len(wanted["Value"]) > 200:
                raise Refused("FilterLimitExceeded", "The maximum number of filter values is 200")
            rows = [row for row in rows if row[field] in wanted["Value"]]
        size = int(asked.get("MaxResults") or 1000)
        begin = int(asked.get("NextToken") or 0)
        answer: dict[str, Any] = {key: rows[begin : begin + size]}
        if begin + size < len(rows):
            answer["nextToken"] = str(begin + size)
        return answer

    def _rules(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._pick(self.scenario.rules, asked, "securityGroupRuleSet")

    def _subnets(self, asked: dict[str, Any]) -> dict[str, Any]:
        known = {row["subnetId"] for row in self.scenario.subnets}
        wanted = asked.get("SubnetId", [])
        if strange := [item for item in wanted if item not in known]:
            raise Refused("InvalidSubnetID.NotFound", f"The subnet ID '{strange[0]}' does not exist")
        rows = [row for row in self.scenario.subnets if not wanted or row["subnetId"] in wanted]
        return self._pick(rows, asked, "subnetSet")

    def _interfaces(self, asked: dict[str, Any]) -> dict[str, Any]:
        return self._pick(self.scenario.interfaces, asked, "networkInterfaceSet")

    def _identity(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {"Arn": ROLE, "UserId": "AROA:somebody", "Account": ACCOUNT}


def _pattern(pattern: str) -> Callable[[str], bool]:
    """CloudWatch's plain patterns: all bare terms, none with a minus; one of those with a ?, where no bare one is."""
    terms = re.findall(r'[?-]?"[^"]*"|\S+', pattern)
    needed, any_of, none_of = (
        [term.lstrip("?-").strip('"') for term in terms if (term[0] if term[0] in "?-" else "") == sign]
        for sign in ("", "?", "-")
    )

    def matches(text: str) -> bool:
        some = bool(needed) or not any_of or any(term in text for term in any_of)
        return some and all(term in text for term in needed) and not any(term in text for term in none_of)

    return matches


def _read(target: str, body: bytes) -> tuple[str, str, dict[str, Any]]:
    """Service, operation and parameters of a request of either protocol."""
    if target:
        prefix, _, operation = target.rpartition(".")
        return PREFIXES.get(prefix, prefix), operation, json.loads(body or b"{}")
    flat = dict(parse_qsl(body.decode(), keep_blank_values=True))
    operation, version = flat.pop("Action", "?"), flat.pop("Version", "?")
    service = {"2016-11-15": "ec2", "2011-06-15": "sts"}.get(version, version)
    return service, operation, _nested(flat)


def _nested(flat: dict[str, str]) -> dict[str, Any]:
    """``Filter.1.Value.2=x`` as lists and dicts."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *way, last = key.split(".")
        here = tree
        for part in way:
            here = here.setdefault(part, {})
        here[last] = value

    def listed(item: Any) -> Any:
        if not isinstance(item, dict):
            return item
        if item and all(key.isdigit() for key in item):
            return [listed(item[key]) for key in sorted(item, key=int)]
        return {key: listed(value) for key, value in item.items()}

    nested: dict[str, Any] = listed(tree)
    return nested


def _xml(operation: str, answer: dict[str, Any]) -> str:
    def element(name: str, value: Any) -> str:
        if isinstance(value, dict):
            inner = "".join(element(key, item) for key, item in value.items())
        elif isinstance(value, list):
            inner = "".join(element("item", item) for item in value)
        elif isinstance(value, bool):
            inner = "true" if value else "false"
        else:
            inner = escape(str(value))
        return f"<{name}>{inner}</{name}>"

    body = "".join(element(key, value) for key, value in answer.items())
    if operation == "GetCallerIdentity":
        body = f"<{operation}Result>{body}</{operation}Result>"
    return f'<?xml version="1.0" encoding="UTF-8"?><{operation}Response>{body}</{operation}Response>'


def _send(handler: BaseHTTPRequestHandler, status: int, kind: str, body: bytes) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _break(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serve(source: str | dict[str, Any]) -> Iterator[Server]:
    """A running server, with this process's environment pointing at it.

    On the way out it fails if anything off the read list arrived.
    """
    server = Server(load(source))
    server.start()
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(server.environ)
    try:
        yield server
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.stop()
    assert [] == server.off_list, f"operations off the read list: {server.off_list}"
