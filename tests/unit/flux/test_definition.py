from __future__ import annotations

from pathlib import Path

import pytest

from squall_common.errors import InvalidTopologyError, SquallError
from squall_flux.definition import Definition, load_definition
from squall_flux.substitution import Filter


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)


def load(folder: Path, name: str = "main") -> Definition:
    return load_definition(str(folder / f"{name}.yaml"), Filter(), folder)


BOLT = "{id: b, className: 'm:B', parallelism: %d}"


@pytest.mark.parametrize(("override", "parallelism", "name"), [("false", 1, "x"), ("true", 2, "y")])
def test_includes_win_only_if_they_override(
    tmp_path: Path, override: str, parallelism: int, name: str
) -> None:
    write(
        tmp_path,
        main=f"name: x\nconfig: {{a: 1}}\nincludes: [{{file: other.yaml, override: {override}}}]\n"
        f"bolts: [{BOLT % 1}]\nstreams: [{{from: s, to: b, grouping: {{type: ALL}}}}]\n",
        other=f"name: y\nconfig: {{a: 2, c: 3}}\nbolts: [{BOLT % 2}]\n"
        "streams: [{from: t, to: b, grouping: {type: ALL}}]\n",
    )
    found = load(tmp_path)
    assert found.bolts["b"].value.parallelism == parallelism
    assert found.name is not None
    assert found.name.value == name
    assert {key: option.value for key, option in found.config.items()} == {"a": parallelism, "c": 3}
    assert [stream.value.source for stream in found.streams] == ["s", "t"]


def test_an_ignored_part_of_an_include_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        tmp_path,
        main=f"includes: [{{file: other.yaml}}]\nbolts: [{BOLT % 1}]\n",
        other=f"bolts: [{BOLT % 2}]\n",
    )
    load(tmp_path)
    assert "note: other.yaml:1:9: bolt 'b' is ignored" in capsys.readouterr().err


def test_parts_of_an_include_have_its_places(tmp_path: Path) -> None:
    write(
        tmp_path, main="includes: [{file: other.yaml}]\n", other=f"name: y\nbolts: [{BOLT % 2}]\n"
    )
    assert load(tmp_path).bolts["b"].where("className") == "other.yaml:2:28"


def test_resources_are_in_the_package_and_nowhere_else(tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "resources").mkdir(parents=True)
    write(tmp_path, secret="name: secret\n")
    write(code / "resources", inner="name: inner\n")
    found = load_definition("/inner.yaml", Filter(), code, resource=True)
    assert found.name is not None
    assert found.name.value == "inner"
    with pytest.raises(SquallError, match="the package has no file"):
        load_definition("../secret.yaml", Filter(), code, resource=True)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"main": "includes: [{file: main.yaml}]"}, "main.yaml:1:19: main.yaml includes itself"),
        (
            {"main": "includes: [{file: a.yaml}]", "a": "includes: [{file: main.yaml}]"},
            "a.yaml:1:19: main.yaml includes itself",
        ),
        ({"main": "includes: [{file: none.yaml}]"}, "main.yaml:1:19: "),
        ({"main": "includes: [{file: /dev/zero}]"}, "main.yaml:1:19: "),
        ({"main": "includes: [{file: ''}]"}, "expected str of length >= 1"),
        ({"main": "includes: text"}, "main.yaml:1:11: expected list | null, got str"),
        ({"main": "nme: x"}, "main.yaml:1:1: unknown key 'nme'; did you mean 'name'?"),
        ({"main": "[a]"}, "main.yaml:1:1: expected a mapping"),
        (
            {"main": f"bolts:\n- {BOLT % 1}\n- {BOLT % 1}\n"},
            "main.yaml:3:8: the id 'b' is taken",
        ),
    ],
)
def test_wrong_files_are_refused_with_their_place(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    write(tmp_path, **files)
    with pytest.raises(InvalidTopologyError) as raised:
        load(tmp_path)
    assert expected in raised.value.message


def test_all_that_is_wrong_in_a_file_is_listed(tmp_path: Path) -> None:
    write(tmp_path, main="bolts:\n- {id: a}\n- {id: b, className: c, x: 1}\nspout: []\n")
    with pytest.raises(InvalidTopologyError) as raised:
        load(tmp_path)
    assert [problem.partition(": ")[2] for problem in raised.value.problems] == [
        "bolts[0]: the key 'className' is missing",
        "bolts[1]: unknown key 'x'; expected className, constructorArgs, factory, factoryArgs, "
        "properties, configMethods, id, parallelism, numTasks, onHeapMemoryLoad, "
        "offHeapMemoryLoad, cpuLoad, config",
        "unknown key 'spout'; did you mean 'spouts'?",
    ]


def test_includes_that_multiply_are_refused(tmp_path: Path) -> None:
    for i in range(8):
        below = ", ".join([f"{{file: f{i + 1}.yaml}}"] * 10)
        write(tmp_path, **{f"f{i}": f"includes: [{below}]\n"})
    write(tmp_path, f8="name: x\n")
    with pytest.raises(SquallError, match="includes more than 100 files"):
        load(tmp_path, "f0")
