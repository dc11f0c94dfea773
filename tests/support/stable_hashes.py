"""The stable hashes of some values, written as Python. The table must never change: workers of
different Python versions and runs must agree on it."""

from __future__ import annotations

TABLE = {
    "None": 1130791706,
    '""': 453955339,
    '"word"': 2598749967,
    '"wörd"': 2239471468,
    '"\\ud800"': 3125521492,
    'b"word"': 3345316157,
    "0": 1923632792,
    "1": 3187822086,
    "-1": 4200877683,
    "2**61 - 1": 1923632792,
    "2**64": 2706199853,
    "10**40": 705622166,
    "True": 3187822086,
    "0.5": 1864326908,
    "-0.0": 1923632792,
    "1e300": 2549736595,
    'float("inf")': 125155077,
    'float("nan")': 1810114945,
    'Decimal("0.1")': 3384002717,
    "()": 2517025534,
    '(1, "a")': 1820962230,
    "[[1], [2]]": 1974821538,
    "{1, 2}": 2695228834,
    '{"a": 1, "b": [2]}': 1716427954,
    "dt.datetime(2026, 1, 2, 3, 4, 5, 6)": 2333066525,
    "dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc)": 2463446616,
    "dt.date(2026, 1, 2)": 2959507843,
    "dt.time(1, 2, 3)": 2648920397,
    "dt.timedelta(days=-1, seconds=5)": 1002119879,
    "uuid.UUID(int=7)": 3348186849,
}
