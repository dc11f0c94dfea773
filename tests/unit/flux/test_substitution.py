from __future__ import annotations

import pytest

from squall_flux.substitution import Filter, parse_properties, substitute

VALUES = Filter({"n": "3", "hosts": '["a:1", "b:2"]', "long": "x" * 20}, {"HOME_TOWN": "Ulm"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("parallelism: ${n}", "parallelism: 3"),
        ("${n}${n} ${ENV-HOME_TOWN}", "33 Ulm"),
        ("host: ${hosts[1]}", "host: b:2"),
        ("args: $${n}", "args: ${n}"),
        ("# ${unknown}", "# ${unknown}"),
        ("$n {n}", "$n {n}"),
    ],
)
def test_references_become_their_values(text: str, expected: str) -> None:
    found = substitute(text, VALUES)
    assert (found.text, found.problems) == (expected, [])


@pytest.mark.parametrize(
    ("text", "values", "problem"),
    [
        ("a\n  ${x}", VALUES, (1, 2, "${x}: the file of --filter has no property 'x'")),
        ("${n}", Filter(), (0, 0, "${n} needs --filter FILE, a file of properties")),
        ("${ENV-X}", Filter({}), (0, 0, "${ENV-X} needs --env-filter")),
        ("${ENV-X}", VALUES, (0, 0, "${ENV-X}: there is no environment variable 'X'")),
        ("${hosts[2]}", VALUES, (0, 0, "${hosts[2]}: the list has 2 elements")),
        ("${n[0]}", VALUES, (0, 0, '${n[0]}: the value is not a list such as ["a", "b"]')),
    ],
)
def test_a_reference_without_a_value_is_a_problem_at_its_place(
    text: str, values: Filter, problem: tuple[int, int, str]
) -> None:
    assert substitute(text, values).problems == [problem]


def test_a_value_cannot_add_lines() -> None:
    (problem,) = substitute("${x}", Filter({"x": "1\nbolts: []"})).problems
    assert "line break" in problem[2]


def test_columns_lead_back_to_the_file() -> None:
    line = "a: ${long} b: ${n} c"
    found = substitute(line, VALUES)
    for character in "abc":
        assert found.column(0, found.text.index(f"{character}")) == line.index(character)
    assert found.column(0, found.text.index("xxx") + 5) == line.index("${long}")


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! comment\n\nplain=1\ncolon: two words \nspace  3\n"
        "escaped\\ key\\:=a\\tb\\u00e9\\\\\nlist=a,\\\n   b\nempty=\nplain=4\n"
    )
    assert parse_properties(text) == {
        "plain": "4",
        "colon": "two words ",
        "space": "3",
        "escaped key:": "a\tbé\\",
        "list": "a,b",
        "empty": "",
    }
