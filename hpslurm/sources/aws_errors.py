"""What a failed call to AWS means for a person: what is missing, and what to do next, in one line."""

from __future__ import annotations

import os
import re

from hpslurm.core.probe import Unknown
from hpslurm.core.text import clean

IAM = "operations.md § 2"
LOG_IN = "log in or pass --profile"


class Forbidden(RuntimeError):
    """A programming mistake: an operation off the list was about to be sent."""


class NoAccess(Unknown):
    """No usable credentials, or no region."""


class Denied(Unknown):
    """A permission is missing; the text names it."""


class NotFound(Unknown):
    """The thing asked for does not exist."""


class Unsupported(Unknown):
    """AWS does not do this for this cluster; no fault by itself."""


class NoAnswer(Unknown):
    """Throttled, timed out, cut off, or an answer that makes no sense."""


class Silent(NoAnswer):
    """Nothing came back at all: who asks again waits again."""


_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "NotAuthorized",
    "UnauthorizedOperation",
}
_THROTTLED = {
    "LimitExceededException",
    "RequestLimitExceeded",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_CREDENTIALS = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "OptInRequired",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_MISSING = {"ResourceNotFound", "ResourceNotFoundException"}
_UNSUPPORTED = {
    "InvalidParameterException",
    "UnknownOperationException",  # an operation that the service does not have there, or not yet
    "UnsupportedOperation",
    "ValidationError",
    "ValidationException",
}
_NO_CLUSTER = re.compile(r"(?i)\b(?:not found|does not exist|could not find|no such)\b")


def unknown(error: Exception, action: str) -> Unknown:
    """What this failure of that call means."""
    from botocore import exceptions as known

    if isinstance(error, known.ClientError):
        return _refused(error, action)
    if isinstance(error, (known.HTTPClientError, known.ConnectionError)):
        return _unreached(error, action)
    if isinstance(error, known.BotoCoreError) and _of_credentials(error):
        return NoAccess(f"{told(error)}; {LOG_IN}, {IAM}")
    return NoAnswer(f"{action} failed: {told(error)}")


def told(error: BaseException) -> str:
    return mask(clean(str(error) or type(error).__name__, 300))


def _of_credentials(error: Exception) -> bool:
    from botocore import exceptions as known

    return isinstance(
        error,
        (
            known.NoCredentialsError,
            known.PartialCredentialsError,
            known.CredentialRetrievalError,
            known.TokenRetrievalError,
            known.SSOError,
            known.NoRegionError,
            known.ProfileNotFound,
        ),
    )


def _refused(error: Exception, action: str) -> Unknown:
    """AWS answered, and the answer is no."""
    about = getattr(error, "response", {}).get("Error", {})
    code = str(about.get("Code", ""))
    message = mask(clean(str(about.get("Message", "")), 200))
    asked = str(getattr(error, "operation_name", ""))
    if asked.startswith("AssumeRole") and not action.endswith(asked):
        return NoAccess(
            f"the role of this profile may not be assumed (sts:{asked}: {code}); its trust policy must name you, or "
            f"{LOG_IN}, {IAM}"
        )
    if code in _DENIED:
        return Denied(f"grant {action}, {IAM}")
    if code in _THROTTLED:
        return NoAnswer(f"AWS throttled {action}; run again in a minute")
    if code in _CREDENTIALS:
        return NoAccess(f"AWS does not take the credentials ({code}: {message}); log in again, {IAM}")
    if code in _MISSING or code.endswith(".NotFound") or _is_missing(code, message, action):
        return NotFound(f"{action}: {message or code}")
    if code in _UNSUPPORTED:
        return Unsupported(f"{action} refused: {message or code}")
    if code.isdigit():
        return NoAnswer(f"no answer to {action}: HTTP {code}, which is not AWS's: a proxy or a portal is in between")
    return NoAnswer(f"{action} failed: {clean(code, 60)} {message}".rstrip())


def _is_missing(code: str, message: str, action: str) -> bool:
    """An unknown cluster is an invalid value for some servers that speak AWS's protocol."""
    return code in _UNSUPPORTED and action == "sagemaker:DescribeCluster" and bool(_NO_CLUSTER.search(message))


def _unreached(error: Exception, action: str) -> NoAnswer:
    """AWS was not reached: by name, by proxy, by certificate, or not in time."""
    from botocore import exceptions as known

    bundle = os.environ.get("AWS_CA_BUNDLE") or os.environ.get("REQUESTS_CA_BUNDLE") or ""
    text = told(error)
    if bundle and not os.path.exists(bundle):
        why = f"AWS_CA_BUNDLE names {clean(bundle, 120)}, which does not exist"
    elif isinstance(error, known.ProxyConnectionError):
        why = f"{text}: the proxy of HTTPS_PROXY does not answer; correct it, or name AWS's hosts in NO_PROXY"
    elif isinstance(error, known.SSLError):
        why = f"{text}: its certificate is not trusted; a proxy that ends TLS needs its own in AWS_CA_BUNDLE"
    elif isinstance(error, known.ConnectTimeoutError):
        why = f"{text} (a private subnet needs NAT or a VPC endpoint, {IAM})"
    elif isinstance(error, known.ReadTimeoutError):
        why = f"{text}: connected, and nothing came back; run again in a minute"
    elif isinstance(error, known.EndpointConnectionError):
        why = f"{text}: is the region right, does the name resolve, and is there NAT or a VPC endpoint? {IAM}"
    else:
        why = text
    return Silent(f"no answer to {action}: {why}")


def mask(text: str) -> str:
    """Account ids with their first eight digits hidden: an ARN in a report travels far.

    >>> mask("arn:aws:sagemaker:us-west-2:123456789012:cluster/abc of 123456789012")
    'arn:aws:sagemaker:us-west-2:********9012:cluster/abc of 123456789012'
    """
    return re.sub(r"(?<!\d)\d{8}(\d{4})(?=:|\b)(?!\d)", _mask_one, text)


def _mask_one(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 40) : match.start()]
    inside_arn = re.search(r"arn:aws[a-z-]*:[a-z0-9-]*:[a-z0-9-]*:$", before)
    return f"********{match[1]}" if inside_arn else match[0]
