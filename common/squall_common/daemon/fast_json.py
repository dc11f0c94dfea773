"""JSON where its speed counts, by orjson, with what the standard library's `json` would give.

For what each launch of a worker reads (its topology's configuration, the arguments of its
components) and what daemons read or answer for each of thousands of workers. orjson differs:

    what                                    orjson            here
    integers beyond 64 bits, read           a rounded float   exact, as json
    integers beyond 64 bits, written        TypeError         exact, as json
    NaN, Infinity, read                     refused           read, as json
    NaN, Infinity, written                  null              null: JSON has no word for them
    a lone surrogate                        refused           kept, as json
    keys that are numbers, None, a bool     refused           written as text, as json
    more than some 250 levels, written      refused           as deep as the stack allows, as json

So what orjson refuses, or would round, is left to `json`. The text differs: without spaces, and
UTF-8 as it is. Configuration holds no NaN (`config` refuses it).
"""

from __future__ import annotations

import json
from typing import Any

import orjson

# Digits that may be an integer of more than 64 bits, which orjson reads as a float.
_LONG = b"0" * 19
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"0" * 9)  # several times faster than `re`
_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)  # fmt: skip


def loads(data: bytes | str) -> Any:
    """The value of a JSON text. Raises ValueError."""
    text = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    if _LONG not in text.translate(_DIGITS_AS_0):
        try:
            return orjson.loads(text)
        except ValueError:
            pass  # json decides, and says why
    return json.loads(data)


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """A value of dicts, lists, tuples, texts, numbers, bools and None as JSON. Raises TypeError for
    an object that is not one of these."""
    try:
        return orjson.dumps(value, None, _OPTIONS | (orjson.OPT_SORT_KEYS if sort_keys else 0))
    except TypeError:
        return json.dumps(value, sort_keys=sort_keys).encode()
