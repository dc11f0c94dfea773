import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from mix import LINES, build
from squall import LocalCluster

MISSING = [program for program in ("node", "ruby") if shutil.which(program) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {', '.join(MISSING)}")
def test_three_languages_count_the_words(tmp_path):
    output = tmp_path / "counts.json"
    with LocalCluster(code_dir=Path(__file__).parent) as cluster:
        cluster.submit_topology("mix", {}, build(str(output), repeat=5))
        cluster.wait_drained("mix", timeout_secs=60)
        assert cluster.errors("mix") == []
        assert cluster.failed_messages("mix") == 0
    expected = Counter(" ".join(LINES).split())
    assert json.loads(output.read_text()) == {word: 5 * n for word, n in expected.items()}
