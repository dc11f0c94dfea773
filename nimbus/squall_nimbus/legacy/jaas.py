"""JAAS files, as Java's `com.sun.security.auth.login.ConfigFile` reads them:

    StormServer {
        org.apache.zookeeper.server.auth.DigestLoginModule required
        user_alice="secret"
        user_bob="another";
    };

An entry has a name and modules; a module its class, a flag and options. Comments are those of Java.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | "(?P<quoted>(?:[^"\\\n]|\\.)*)"
  | (?P<word>[^\s{}=;"/]+(?:/(?![/*])[^\s{}=;"/]*)*|/(?![/*])[^\s{}=;"]*)
  | (?P<mark>[{}=;])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


class JaasError(ValueError):
    """A file is not a JAAS file. The text names a line, and quotes nothing: it may be a secret."""


@dataclass(frozen=True, slots=True, repr=False)
class Module:
    """A login module of an entry, with its options."""

    name: str
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_mark: bool
    line: int


def parse_jaas(text: str) -> dict[str, list[Module]]:
    """The modules by the names of their entries. Raises JaasError.

    >>> found = parse_jaas('StormServer { a.Digest required user_bob="secret"; };')
    >>> found["StormServer"][0].options
    {'user_bob': 'secret'}
    """
    tokens = _Tokens(text)
    entries: dict[str, list[Module]] = {}
    while not tokens.at_end:
        line = tokens.line
        name = tokens.word("the name of an entry")
        if name in entries:
            raise JaasError(f"line {line}: there are two entries of this name")
        tokens.mark("{")
        modules = []
        while not tokens.take("}"):
            modules.append(_module(tokens))
        tokens.mark(";")
        entries[name] = modules
    return entries


def _module(tokens: _Tokens) -> Module:
    module = Module(tokens.word("the class of a module"))
    line = tokens.line
    if tokens.word("a flag such as required").lower() not in _FLAGS:
        raise JaasError(f"line {line}: a flag is one of {', '.join(sorted(_FLAGS))}")
    while not tokens.take(";"):
        line = tokens.line
        key = tokens.word("an option or ;")
        tokens.mark("=")
        if key in module.options:
            raise JaasError(f"line {line}: the module has two options of this name")
        module.options[key] = tokens.word("the option's value")
    return module


class _Tokens:
    """A file's tokens, one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_scan(text))
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    @property
    def line(self) -> int:
        """Of the next token; of the last one at the end."""
        return self._tokens[min(self._next, len(self._tokens) - 1)].line if self._tokens else 1

    def word(self, what: str) -> str:
        if self.at_end or self._tokens[self._next].is_mark:
            raise JaasError(f"line {self.line}: {what} is missing")
        self._next += 1
        return self._tokens[self._next - 1].text

    def take(self, mark: str) -> bool:
        if self.at_end:
            raise JaasError(f"line {self.line}: it ends too early")
        token = self._tokens[self._next]
        if not (token.is_mark and token.text == mark):
            return False
        self._next += 1
        return True

    def mark(self, mark: str) -> None:
        if not self.take(mark):
            raise JaasError(f"line {self.line}: {mark} is missing")


def _scan(text: str) -> Iterator[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise JaasError(f"line {line}: a quote or a comment does not end")
        if found["quoted"] is not None:
            unescaped = _ESCAPE.sub(lambda one: _ESCAPED.get(one[1], one[1]), found["quoted"])
            yield _Token(unescaped, False, line)
        elif found["word"] is not None:
            yield _Token(found["word"], False, line)
        elif found["mark"] is not None:
            yield _Token(found["mark"], True, line)
        line += found[0].count("\n")
        at = found.end()
