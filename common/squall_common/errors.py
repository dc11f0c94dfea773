"""Errors that reach a person: what happened, to what, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

# A client may send a topology with any number of faults, each as long as it likes.
PROBLEMS_MAX = 100
_PROBLEM_CHARS_MAX = 1_000


class SquallError(Exception):
    """An expected failure with one clear message. Commands print it and exit with status 1.

    `hint` says what to do about it, when there is something to do.

        try:
            builder.build()
        except SquallError as error:
            print(error.message, error.hint)
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __repr__(self) -> str:
        hint = "" if self.hint is None else f", hint={self.hint!r}"
        return f"{type(self).__name__}({self.message!r}{hint})"

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


def describe(error: BaseException) -> str:
    """Any exception in a few words: its class and its message, if it has one."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def describe_fully(error: BaseException, chars_max: int | None = None) -> str:
    """The same with the error's notes, which say where a value of a stream failed. Of more than
    `chars_max` characters, the message is cut first.

        error = ValueError("it is negative")
        error.add_note("in map(check), orders.py:12, for the value -1")
        describe_fully(error)  # ValueError: it is negative (in map(check), orders.py:12, for ...)
    """
    said = describe(error)
    # The same error may be raised, and noted, several times.
    notes = "; ".join(dict.fromkeys(map(str, getattr(error, "__notes__", ()))))
    if chars_max is not None:
        notes = notes[: chars_max // 2]
        said = said[: chars_max - (len(notes) + 3 if notes else 0)]
    return f"{said} ({notes})" if notes else said


def note_once(error: BaseException, note: str) -> None:
    """Add a note to an error, unless it has it: the same error may be raised again and again."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def missing_package(error: BaseException | None) -> str | None:
    """For an import of users' code that failed because a package is missing: which one, and how to
    ship it. None for any other error."""
    seen = set()  # users' code may have made a circle of causes
    while error is not None and id(error) not in seen:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return (
                f"{error.name!r} is neither in the package nor among its "
                "dependencies: ship it with --requirements FILE"
            )
        seen.add(id(error))
        error = error.__cause__
    return None


class ConfigError(SquallError):
    """A configuration value of the wrong type or range, or a file that cannot be read."""


class IdentityTokenError(SquallError):
    """A component has no identity token for an audience: its topology does not declare it, Nimbus
    has issued none yet, or none after the last one ended.

        class Stores(Bolt):
            def execute(self, tup):
                try:
                    token = self.context.identity_token("https://vault.example.org")
                except IdentityTokenError:
                    self.fail(tup)  # its spout may send it again
    """


class InvalidTopologyError(SquallError):
    """A topology that cannot run; the message names the component and what is wrong. `problems`
    holds everything that is wrong, one line for each problem.

        builder.bolt("split", Split()).shuffle("sentence")
        try:
            builder.build()
        except InvalidTopologyError as error:
            assert any("'sentence'" in problem for problem in error.problems)
    """

    def __init__(
        self, message: str, *, hint: str | None = None, problems: Sequence[str] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.problems: tuple[str, ...] = tuple(problems) or (message,)

    @classmethod
    def listing(cls, problems: Sequence[str]) -> InvalidTopologyError:
        """One error for all of `problems`, without duplicates. If there are more than PROBLEMS_MAX,
        it lists the first ones and says how many more there are."""
        each = list(dict.fromkeys(problems))
        shown = [_cut(problem) for problem in each[:PROBLEMS_MAX]]
        if len(each) == 1:
            return cls(shown[0], problems=shown)
        if len(each) > len(shown):
            shown.append(f"and {len(each) - len(shown)} more")
        lines = "".join(f"\n  - {problem}" for problem in shown)
        message = f"{len(each)} things are wrong with this topology:{lines}"
        return cls(message, problems=shown)


def _cut(problem: str) -> str:
    if len(problem) <= _PROBLEM_CHARS_MAX:
        return problem
    return problem[: _PROBLEM_CHARS_MAX - 3] + "..."


class PackageError(SquallError):
    """A package that cannot be used: not an archive, unsafe members, no such entry point ..."""


class NimbusError(SquallError):
    """Nimbus cannot be reached, or refused a call."""


class NimbusConnectionError(NimbusError):
    """The connection broke during a call, or no answer came in time."""
