"""Which requirements are all that a resolution depends on."""

import pytest

from squall_common.packaging.requirements_text import of_lines, read_requirements


def test_a_file_is_its_lines_and_those_of_the_files_it_includes(tmp_path):
    (tmp_path / "more").mkdir()
    file = tmp_path / "requirements.txt"
    file.write_text("# ours\none==1.0  # pinned\ntwo \\\n  >=2\n-r more/base.txt\n--pre\n")
    (tmp_path / "more" / "base.txt").write_text("-c limits.txt\nThree_Four===4 --hash=sha256:00\n")
    (tmp_path / "more" / "limits.txt").write_text("five==5.*\nsix==6\n")
    said = read_requirements(file)
    assert set(said.lines) == {
        "one==1.0", "two    >=2", "--pre", "Three_Four===4 --hash=sha256:00", "five==5.*", "six==6",
    }  # fmt: skip
    assert said.pinned == {"one", "three-four", "six"}


def test_a_change_in_an_included_file_is_another_text(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("-rbase.txt\n")
    (tmp_path / "base.txt").write_text("one\n")
    before = read_requirements(file)
    (tmp_path / "base.txt").write_text("one<2\n")
    assert before is not None
    assert read_requirements(file) != before


@pytest.mark.parametrize(
    "line",
    ["./local", "/srv/wheels/one.whl", "-e .", "one @ file:///srv/one.whl",
     "one @ https://example.org/one.whl", "git+https://example.org/one", "one${SUFFIX}",
     "--find-links shelf", "-r https://example.org/base.txt", "-r ${BASE}", "-r missing.txt"],
)  # fmt: skip
def test_what_leads_to_other_content_is_not_text_alone(tmp_path, line):
    file = tmp_path / "requirements.txt"
    file.write_text(f"two\n{line}\n")
    assert read_requirements(file) is None


def test_files_that_include_each_other_end(tmp_path):
    file = tmp_path / "requirements.txt"
    file.write_text("-r requirements.txt\none\n")
    assert read_requirements(file) == of_lines(["one"])


def test_a_missing_file_has_no_text(tmp_path):
    assert read_requirements(tmp_path / "none.txt") is None
