"""What a node can run."""

import packaging.tags
import pytest

from squall_common.errors import SquallError
from squall_common.packaging.platforms import (
    META_KEY,
    Platform,
    common_platform,
    parse_platforms,
    platform_texts,
    this_platform,
)

OLD = "cp3.11 linux_x86_64 glibc2.31"
NEW = "cp3.11 linux_x86_64 glibc2.36"


def test_the_tags_of_this_machine_are_those_that_pip_sees():
    assert this_platform().tags() == frozenset(packaging.tags.sys_tags())


@pytest.mark.parametrize("text", [OLD, NEW, "cp3.13 linux_aarch64 musl1.2"])
def test_a_platform_is_its_text(text):
    assert str(Platform.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "cp3.11", "cp3.11 linux_x86_64 glibc2", "cp3.11 linux_x/86 glibc2.1", f"{NEW} "]
)
def test_another_text_is_none(text):
    with pytest.raises(ValueError):
        Platform.parse(text)


def test_old_names_of_tags_stand_where_they_belong():
    tags = Platform.parse("cp3.11 linux_x86_64 glibc2.18").platform_tags()
    assert tags[:4] == [
        "manylinux_2_18_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64",
        "manylinux_2_16_x86_64",
    ]  # fmt: skip
    assert tags[-2:] == ["manylinux1_x86_64", "linux_x86_64"]
    arm = Platform.parse("cp3.12 linux_aarch64 glibc2.17").platform_tags()
    assert arm == ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64"]
    musl = Platform.parse("cp3.12 linux_x86_64 musl1.2").platform_tags()
    assert musl == [
        "musllinux_1_2_x86_64", "musllinux_1_1_x86_64", "musllinux_1_0_x86_64", "linux_x86_64",
    ]  # fmt: skip


def test_a_cluster_can_run_what_its_oldest_node_can():
    assert common_platform(parse_platforms({"a": NEW, "b": OLD, "c": NEW})) == Platform.parse(OLD)
    assert common_platform({}) is None


@pytest.mark.parametrize(
    "other",
    ["cp3.12 linux_x86_64 glibc2.36", "cp3.11 linux_aarch64 glibc2.36",
     "cp3.11 linux_x86_64 musl1.2"],
)  # fmt: skip
def test_nodes_of_different_kinds_are_named(other):
    with pytest.raises(SquallError, match=r"a has .*, b has "):
        common_platform(parse_platforms({"a": NEW, "b": other}))


def test_the_platform_that_a_supervisor_reports_is_not_trusted():
    with pytest.raises(SquallError, match="supervisor b"):
        parse_platforms({"a": NEW, "b": "x" * 10_000})
    assert platform_texts([("a", "1", {META_KEY: NEW}), ("b", "2", {"zone": "1"})]) == {"a": NEW}


def test_supervisors_of_one_host_with_different_pythons_are_listed_one_by_one():
    other = NEW.replace("3.11", "3.13")
    reported = [("a", "1", {META_KEY: NEW}), ("a", "2", {META_KEY: other})]
    texts = platform_texts([*reported, ("b", "3", {META_KEY: NEW}), ("b", "4", {META_KEY: NEW})])
    assert texts == {"a (supervisor 1)": NEW, "a (supervisor 2)": other, "b": NEW}
    with pytest.raises(SquallError, match=r"supervisor 1\) has cp3\.11 .*2\) has cp3\.13 "):
        common_platform(parse_platforms(texts))
