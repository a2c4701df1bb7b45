"""URLs in names and errors, without passwords, tokens and signatures."""

from __future__ import annotations

import re
from typing import Final

_SHOWN: Final = frozenset(("generation", "versionid"))
"""Parameters of a query that only select a version of an object."""
_USER: Final = re.compile(r"(?<=://)[^/?#\s'\"]*@")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
_SECRET_LEN: Final = 6
"""Length in characters of the shortest secret that is removed from texts."""


def redact(url: str) -> str:
    """Returns a URL, or a chain of them, with `***` for user, password, and the values in its
    query.

    >>> redact("simplecache::https://user:secret@host/x.erofs?X-Amz-Signature=ab12&versionId=7")
    'simplecache::https://***@host/x.erofs?X-Amz-Signature=***&versionId=7'
    """
    if "://" not in url:
        return url
    place, mark, query = _USER.sub("***@", url).partition("?")
    return place + mark + "&".join(map(_parameter, query.split("&"))) if mark else place


def _parameter(parameter: str) -> str:
    name, equals, value = parameter.partition("=")
    _, follows, rest = value.partition("::")
    if "://" in rest:
        # In a chain, another URL follows.
        return f"{name}=***{follows}{redact(rest)}"
    return f"{name}={value if name.lower() in _SHOWN else '***'}" if equals else "***" * bool(name)


class Redaction:
    """Removal of the secrets of one URL, and of those in all other URLs, from texts."""

    def __init__(self, url: str) -> None:
        user = [part.rstrip("@") for part in _USER.findall(url)]
        query = [parameter.partition("=") for parameter in url.partition("?")[2].split("&")]
        hidden = [value or name for name, _, value in query if name.lower() not in _SHOWN]
        words = {*user, *(word for each in user for word in each.split(":")), *hidden}
        self._secrets = sorted((word for word in words if len(word) >= _SECRET_LEN), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Returns the text without secrets.

        >>> Redaction("https://host/x?sig=0123456789").text("refused: 'https://a:b@host/y?t=1', 0123456789")
        "refused: 'https://***@host/y?t=***', ***"
        """
        text = _URL.sub(lambda found: redact(found[0]), text)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def cause(self, error: BaseException) -> BaseException | None:
        """Returns the error, to be shown as the cause of another one; None if it, or its own cause,
        contains a secret."""
        seen: list[BaseException] = []
        todo: list[BaseException | None] = [error]
        while todo:
            each = todo.pop()
            if each is None or each in seen:
                continue
            text = f"{each} {each!r}"
            if self.text(text) != text:
                return None
            seen.append(each)
            todo += [each.__cause__, each.__context__]
        return error
