"""Retries after temporary errors of a store."""

from __future__ import annotations

import errno
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeVar

    T = TypeVar("T")

RETRIES = 3
"""Default number of attempts after the first one."""
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))
"""HTTP statuses of temporary errors."""
_ERRNOS = frozenset(
    (
        *(errno.EAGAIN, errno.EBUSY, errno.ECONNABORTED, errno.ECONNREFUSED, errno.ECONNRESET, errno.EPIPE),
        *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENETUNREACH, errno.ETIMEDOUT),
    )
)
_CLASSES = frozenset(
    (
        *("ConnectionError", "ChunkedEncodingError", "IncompleteRead", "Timeout", "TimeoutError"),  # Python, requests
        *("ClientPayloadError", "ServerDisconnectedError", "FSTimeoutError"),  # aiohttp, fsspec
        *("ConnectionClosedError", "ConnectTimeoutError", "ReadTimeoutError", "ResponseParserError"),  # botocore
        *("ServiceRequestError", "ServiceResponseError"),  # Azure
    )
)
"""Names of classes of temporary errors, whose modules may not be installed."""


def status_of(error: BaseException) -> int | None:
    """Returns the HTTP status of an error of aiohttp, requests, botocore, gcsfs or Azure.

    >>> from urllib.error import HTTPError
    >>> status_of(HTTPError("http://host", 503, "later", None, None)), status_of(OSError(5, "x"))
    (503, None)
    """
    each: BaseException | None = error
    while each is not None:
        response: Any = getattr(each, "response", None)
        if isinstance(response, dict):
            found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        else:
            found = getattr(response, "status_code", None)
        for name in ("status", "status_code", "code"):
            found = getattr(each, name, None) if found is None else found
        if isinstance(found, int) and 100 <= found < 600:
            return found
        each = each.__cause__
    return None


def may_pass(error: BaseException) -> bool:
    """Returns true for a temporary error: the server is busy, or the connection was lost.

    >>> [may_pass(error) for error in (ConnectionResetError("lost"), FileNotFoundError("x"), OSError(5, "x"))]
    [True, False, False]
    """
    if isinstance(error, FileNotFoundError):
        return False
    status = status_of(error)
    if status is not None:
        return status in _STATUSES
    names = {base.__name__ for base in type(error).__mro__}
    if any("SSL" in name or "Certificate" in name for name in names):
        return False
    return bool(names & _CLASSES) or (isinstance(error, OSError) and error.errno in _ERRNOS)


def pauses(retries: int) -> Iterator[float]:
    """Yields the pauses in seconds before each further attempt: 0.5, 1, 2, … up to 30, each up to a
    quarter longer or shorter, so that clients that failed together do not retry together."""
    import random

    for attempt in range(retries):
        yield min(_FIRST_PAUSE * 2.0**attempt, _LONGEST_PAUSE) * random.uniform(0.75, 1.25)


def wait(pause: float, error: BaseException) -> None:
    """Waits for the pause, or as long as the server has asked for, at most 30 s."""
    headers: Any = getattr(error, "headers", None)
    try:
        asked = float(headers["Retry-After"])
    except (TypeError, KeyError, ValueError):
        asked = 0.0
    time.sleep(min(max(pause, asked), _LONGEST_PAUSE))


def retried(work: Callable[[], T], retries: int) -> T:
    """Returns the result of `work`, after at most `retries` further attempts for temporary
    errors."""
    for pause in pauses(retries):
        try:
            return work()
        except Exception as error:
            if not may_pass(error):
                raise
            wait(pause, error)
    return work()
