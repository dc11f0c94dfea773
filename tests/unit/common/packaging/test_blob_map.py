"""Names from `topology.blobstore.map` become names in a worker's folder: only plain ones."""

import pytest

from squall_common.packaging.blob_map import BlobLink, parse_blob_map


def test_a_map_becomes_links() -> None:
    links, problems = parse_blob_map(
        {
            "words": None,
            "python": {"localname": "newPython", "uncompress": True, "workerRestart": True},
        }
    )
    assert links == [BlobLink("words", "words"), BlobLink("python", "newPython", True, True)]
    assert problems == []
    assert parse_blob_map(None) == ([], [])


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", "a\x00b", "a\\b", "tmp", "heartbeat",
             "launch.json", "x" * 201, 7, "a\nb", ".squall-x"],
)  # fmt: skip
def test_a_name_that_leads_elsewhere_is_refused(name: object) -> None:
    """CVE-2026-82427."""
    links, problems = parse_blob_map({"words": {"localname": name}})
    assert links == []
    assert len(problems) == 1


def test_a_value_that_is_not_a_map_is_reported() -> None:
    for value in ([], "x", {"k": []}, {"k": {"uncompress": "yes"}}):
        assert parse_blob_map(value)[1], value
    _, problems = parse_blob_map({"a": {"localname": "x"}, "b": {"localname": "x"}})
    assert "same localname" in problems[0]
