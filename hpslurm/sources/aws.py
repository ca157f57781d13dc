"""The door to AWS: reads that are rows of a table, and nothing else.

Every client refuses, before anything is sent, an operation that is not in
``OPERATIONS``; ``hpslurm iam-policy`` prints the same rows. What AWS refuses, delays
or does not know becomes ``Unknown`` with the step that would help. boto3 costs 0.6 s
with the clients we need, so it is imported here only when a command asks for AWS.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from hpslurm import __version__
from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean
from hpslurm.core.values import dataclass
from hpslurm.sources import aws_access
from hpslurm.sources.aws_errors import IAM, Forbidden, NoAccess, NoAnswer, Silent, Unsupported, unknown

LOGS = "operations.md § 4"
CONNECT_SECONDS = 3  # without limits a private subnet that has no endpoint hangs for minutes
READ_SECONDS = 15
WHO_SECONDS = 8  # sts, once: it only tells as whom we ask, which is not worth a minute
ATTEMPTS = 3  # all of them; under constant throttling they take about 3 s
THREADS = 8
LOG_SHARE = 500  # lines of one stream: a machine that writes without end must not use up what may be read
LOG_ALIKE = 50  # lines of one stream that differ in times and long numbers only
_CHANGES = re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\d{4,}")
LOG_PAUSE = 0.25  # seconds between reads of CloudWatch: its quota can be 5 a second for the account
CLUSTER_ARN = re.compile(r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):\d{12}:cluster/(?P<id>[a-zA-Z0-9-]{1,63})")
CLUSTER_NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
REGION = re.compile(r"[a-z]{2,4}(-[a-z]{1,12}){1,4}-\d{1,2}")
_CLUSTER = "arn:{partition}:sagemaker:{region}:{account}:cluster/*"
_SESSION = f"{_CLUSTER} arn:{{partition}}:ssm:{{region}}::document/AWS-StartNonInteractiveCommand"
_OWN_SESSION = "arn:{partition}:ssm:{region}:{account}:session/*"
_LOG_GROUP = "arn:{partition}:logs:{region}:{account}:log-group:/aws/sagemaker/Clusters/*"


@dataclass(frozen=True)
class Operation:
    """One thing we may ask; ``free`` needs no permission at all. ``resource`` holds one or more, by blanks."""

    service: str
    name: str
    why: str
    resource: str = "*"
    free: bool = False

    @property
    def action(self) -> str:
        """The IAM action, which for all of ours is spelled like the operation."""
        return f"{self.service}:{self.name}"


OPERATIONS = (
    Operation("ec2", "DescribeNetworkInterfaces", "security groups and zone that a node's interface really has"),
    Operation("ec2", "DescribeSecurityGroupRules", "whether EFA traffic may pass between the instance groups"),
    Operation("ec2", "DescribeSubnets", "zones and free addresses of the cluster's subnets"),
    Operation("ec2", "DescribeVpcEndpoints", "whether S3 can be reached; only when a lifecycle script could not"),
    Operation(
        "logs",
        "FilterLogEvents",
        "health agent, deep checks, lifecycle scripts, and what jobs printed",
        _LOG_GROUP,
    ),
    Operation("sagemaker", "DescribeCluster", "status, instance groups, network and recovery mode", _CLUSTER),
    Operation("sagemaker", "DescribeClusterEvent", "why something failed; for errors and warnings only", _CLUSTER),
    Operation("sagemaker", "ListClusterEvents", "what HyperPod did to the cluster", _CLUSTER),
    Operation("sagemaker", "ListClusterNodes", "every instance, its state and its host name", _CLUSTER),
    Operation("sagemaker", "ListClusterOperations", "scaling and deep health checks that are under way", _CLUSTER),
    Operation("sagemaker", "ListClusters", "which clusters there are, when none or a wrong one was named"),
    Operation("sts", "GetCallerIdentity", "whose permissions these are", free=True),
)
# Only after --probe ssm asked for it: a session starts a program on a node.
SESSION_OPERATIONS = (
    Operation("ssm", "StartSession", "run hpslurm-check on a node that Slurm cannot reach", _SESSION),
    Operation("ssm", "TerminateSession", "end a session that took too long", _OWN_SESSION),
)


# Fields that we cannot do without, by their shapes in botocore's model; all of them from 1.43 on.
NEEDED = (
    ("ClusterNodeSummary", ("PrivateDnsHostname",)),
    ("DescribeClusterResponse", ("NodeRecovery", "NodeProvisioningMode")),
    ("ClusterInstanceGroupDetails", ("SlurmConfig", "OverrideVpcConfig")),
)


@dataclass(frozen=True)
class Listing:
    """Items of a paged list; ``trouble`` says why it is not all of them, else empty."""

    items: tuple[dict[str, Any], ...]
    trouble: str = ""


class Aws:
    """One account and region. ``seconds`` bounds everything together, counted from now.

    Raises NoAccess when the profile does not exist. Clients are shared by threads,
    which they allow; they are built one at a time, because sessions do not.
    """

    def __init__(
        self,
        region: str,
        profile: str = "",
        *,
        seconds: float = 120.0,
        sessions: bool = False,
    ) -> None:
        self.region = region
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds
        self.requests: Counter[str] = Counter()  # sent, retries counted
        self.allowed = {operation.action for operation in OPERATIONS}
        if sessions:
            self.allowed |= {operation.action for operation in SESSION_OPERATIONS}
        self._clients: dict[str, Any] = {}
        self._building = threading.Lock()
        self._counting = threading.Lock()
        self.profile = profile
        self._silent: dict[str, str] = {}  # services that let us wait in vain, and how
        self._session = aws_access.session(region, profile)

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(0.0, self.deadline - time.monotonic())

    def log_in(self) -> None:
        """Get credentials now, once, instead of in eight threads. Raises NoAccess."""
        aws_access.check(self._session, self.profile)

    def client(self, service: str) -> Any:
        """The service's client, with the list of allowed operations in front of it."""
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        with self._building:
            if service not in self._clients:
                try:
                    made = self._session.client(
                        service,
                        config=Config(
                            connect_timeout=CONNECT_SECONDS,
                            read_timeout=WHO_SECONDS if service == "sts" else READ_SECONDS,
                            retries={"mode": "standard", "total_max_attempts": 1 if service == "sts" else ATTEMPTS},
                            max_pool_connections=THREADS,
                            user_agent_extra=f"hpslurm/{__version__}",
                        ),
                    )
                except (BotoCoreError, ValueError) as error:
                    raise NoAccess(f"no client for {service}: {clean(str(error))}, {IAM}") from error
                made.meta.events.register("before-call", self._refuse)
                made.meta.events.register("before-send", self._count)
                made.meta.events.register("response-received", _whole)
                self._clients[service] = made
            return self._clients[service]

    def _refuse(self, model: Any, **_: Any) -> None:
        action = f"{model.service_model.service_name}:{model.name}"
        if action not in self.allowed:
            raise Forbidden(f"{action} is not on the list of operations that hpslurm may call")

    def _count(self, request: Any, event_name: str, **_: Any) -> None:
        service, operation = event_name.split(".")[1:3]
        with self._counting:
            self.requests[f"{'logs' if service == 'cloudwatch-logs' else service}:{operation}"] += 1

    def knows(self, service: str, operation: str, parameter: str = "") -> bool:
        """Whether the installed botocore has the operation, and the parameter."""
        model = self.client(service).meta.service_model
        if operation not in model.operation_names:
            return False
        return not parameter or parameter in model.operation_model(operation).input_shape.members

    def old(self) -> str:
        """What the installed botocore drops from answers without a word, and the remedy; empty where nothing.

        botocore returns only fields that its own model has, so an old one makes a cluster
        look as if it had no recovery mode, and its nodes no names.
        """
        import botocore

        model = self.client("sagemaker").meta.service_model
        missing = [
            f"{shape}.{field}"
            for shape, fields in NEEDED
            for field in fields
            if shape not in model.shape_names or field not in model.shape_for(shape).members
        ]
        if not missing:
            return ""
        return f"botocore {botocore.__version__} drops {', '.join(missing)} from answers; pip install -U boto3"

    def read(self, service: str, operation: str, **asked: Any) -> dict[str, Any]:
        """One answer. Raises Denied, NotFound, Unsupported, NoAccess or NoAnswer."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        action = f"{service}:{operation}"
        if not self.left:
            raise NoAnswer(f"no time left for {action}")
        if service in self._silent:
            raise NoAnswer(self._silent[service])
        client = self.client(service)
        if not self.knows(service, operation):
            import botocore

            raise Unsupported(f"botocore {botocore.__version__} does not know {action}; upgrade boto3")
        for attempt in range(ATTEMPTS):
            try:
                answer: dict[str, Any] = getattr(client, _snake(operation))(**asked)
                break
            except _Cut as error:
                if attempt + 1 == ATTEMPTS:
                    raise NoAnswer(f"no answer to {action}: {error}") from None
            except (BotoCoreError, ClientError, ResponseParserError) as error:
                raise self._noted(unknown(error, action), service) from error
        self._hold_to_model(client, operation, answer, action)
        return answer

    def _noted(self, why: Unknown, service: str) -> Unknown:
        """Whoever let us wait in vain is not asked again: each time costs most of a minute."""
        if isinstance(why, Silent):
            self._silent[service] = str(why)
        return why

    def _hold_to_model(self, client: Any, operation: str, answer: dict[str, Any], action: str) -> None:
        """An answer without what AWS always sends is none of AWS's, whatever its status says."""
        shape = client.meta.service_model.operation_model(operation).output_shape
        missing = [name for name in (shape.required_members if shape else ()) if name not in answer]
        if missing:
            raise NoAnswer(f"no answer to {action}: what came lacks {', '.join(missing)}, so it is not AWS's")

    def listed(
        self,
        service: str,
        operation: str,
        key: str,
        *,
        token: str = "NextToken",
        most: int = 1_000_000,
        pages: int = 1000,
        pause: float = 0.0,
        keep: Callable[[dict[str, Any]], bool] | None = None,
        **asked: Any,
    ) -> Listing:
        """All pages, until ``most`` items. Raises as ``read`` when even the first page fails.

        ``keep`` drops items at once. Written out here because a paginator of botocore
        loses the pages it has when a later one fails.
        """
        items: list[dict[str, Any]] = []
        seen: set[str] = set()
        more: dict[str, Any] = {}
        for page in range(pages):
            if page and pause:
                time.sleep(pause)
            try:
                answer = self.read(service, operation, **asked, **more)
            except Unknown as error:
                if not page:
                    raise
                return Listing(tuple(items), f"only {len(items)} read, then: {error}")
            items += answer.get(key, []) if keep is None else filter(keep, answer.get(key, []))
            following = answer.get(token)
            if not following:
                return Listing(tuple(items))
            if following in seen:
                return Listing(tuple(items), f"only {len(items)} read: {service}:{operation} repeats a page token")
            if len(items) >= most:
                return Listing(tuple(items[:most]), f"only the first {most} read")
            seen.add(following)
            more = {token: following}
        return Listing(tuple(items), f"only the first {len(items)} read: stopped after {pages} pages")

    def log_lines(
        self,
        group: str,
        prefix: str,
        pattern: str,
        since: float,
        *,
        most: int = 2000,
        pages: int = 40,
        without: tuple[str, ...] = (),
    ) -> Listing:
        """Newest lines of all streams under the prefix; ``since`` in seconds since the epoch.

        Streams that begin with one of ``without`` do not count.

        Filtering by stream prefix reads a thousand nodes at once and, unlike Insights,
        costs nothing. Empty pages with a token are normal.
        """
        asked: dict[str, Any] = {
            "logGroupName": group,
            "startTime": int(since * 1000),
            "filterPattern": pattern,
        }
        if prefix:
            asked["logStreamNamePrefix"] = prefix
        if self.knows("logs", "FilterLogEvents", "startFromHead"):
            asked["startFromHead"] = False
        share = _Share(without)
        listing = self.listed(
            "logs",
            "FilterLogEvents",
            "events",
            token="nextToken",
            most=most,
            pages=pages,
            pause=LOG_PAUSE,
            keep=share.keep,
            **asked,
        )
        if not share.noisy or not listing.trouble:  # what is left out of a stream that was read is more of the same
            return listing
        return Listing(listing.items, f"{listing.trouble}; most lines are of {', '.join(share.noisy[:3])}")


class _Share:
    """Which log lines to keep, so that no stream, and no line that comes again and again, uses up what may be read."""

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        self._without = without
        self._streams: Counter[str] = Counter()
        self._alike: Counter[tuple[str, str]] = Counter()

    def keep(self, line: dict[str, Any]) -> bool:
        stream = str(line.get("logStreamName"))
        if stream.startswith(self._without):
            return False
        kind = (stream, _CHANGES.sub("0", str(line.get("message"))[:1000]))
        self._alike[kind] += 1
        if self._alike[kind] > LOG_ALIKE:
            return False
        self._streams[stream] += 1
        return self._streams[stream] <= LOG_SHARE

    @property
    def noisy(self) -> list[str]:
        """Streams of which lines were left out, those with the most lines first."""
        lines: Counter[str] = Counter()
        for (stream, _), number in self._alike.items():
            lines[stream] += number
        over = {stream for (stream, _), number in self._alike.items() if number > LOG_ALIKE}
        over |= {stream for stream, number in self._streams.items() if number > LOG_SHARE}
        return [clean(stream, 120) for stream, _ in lines.most_common() if stream in over]


class _Cut(Exception):
    """An answer that ended early, or that is none of AWS's."""


def _whole(response_dict: dict[str, Any] | None = None, **_: Any) -> None:
    """Raise _Cut for an answer that botocore would take for an empty one.

    botocore does not compare the length, and reads JSON that it cannot parse as an
    object without members: a cut connection or a proxy's page would be an empty list.
    """
    if not response_dict or response_dict["status_code"] != 200:
        return
    headers, body = response_dict["headers"], response_dict["body"]
    promised = headers.get("content-length", "")
    if promised.isdigit() and int(promised) > len(body):
        raise _Cut(f"the connection ended after {len(body)} of {promised} bytes")
    if not _is_answer(body):
        kind = clean(headers.get("content-type", ""), 40)
        raise _Cut(f"not AWS but something between answered (content type {kind or 'none'})")


def _is_answer(body: bytes) -> bool:
    """By what it is, not by what its header calls it: servers that speak AWS's protocol send JSON as text/html.

    >>> _is_answer(b'{"Clusters": []}'), _is_answer(b"<DescribeSubnetsResponse/>"), _is_answer(b"<html>Sign in</html>")
    (True, True, False)
    """
    head = body[:200].lstrip().lower()
    if head.startswith(b"{"):
        try:
            return isinstance(json.loads(body), dict)
        except ValueError:
            return False
    return head.startswith(b"<") and not re.match(rb"<(?:!doctype\s+)?html", re.sub(rb"^<\?xml[^>]*>\s*", b"", head))


def _snake(operation: str) -> str:
    from botocore import xform_name

    name: str = xform_name(operation)
    return name
