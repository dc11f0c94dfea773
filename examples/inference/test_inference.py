import json
from pathlib import Path

from inference import Messages, Score, Store, build
from spam import Model, accuracy, messages
from squall import LocalCluster
from squall.testing import TopologyTest


def test_the_model_learns_and_survives_a_file(tmp_path):
    model = Model.train(messages(3_000, seed=1))
    assert accuracy(model, messages(1_000, seed=2)) > 0.9
    model.save(tmp_path / "model.json")
    loaded = Model.load(tmp_path / "model.json")
    assert loaded.predict(["win a prize"]) == model.predict(["win a prize"])
    assert loaded.predict(["win a prize"])[0] > 0.9 > 0.1 > loaded.predict(["lunch tomorrow"])[0]


class ScoreHere(Score):
    blocking = False  # on the test's clock


def test_the_model_is_loaded_once_and_scores_every_message(tmp_path, monkeypatch):
    Model.train(messages(1_000, seed=1)).save(tmp_path / "model.json")
    loads = []
    load = Model.load
    monkeypatch.setattr(Model, "load", lambda path: loads.append(path) or load(path))
    output = str(tmp_path / "scores.jsonl")
    with LocalCluster() as cluster:
        cluster.submit_topology("t", {}, build(str(tmp_path / "model.json"), output, count=200))
        cluster.wait_drained("t")
        assert cluster.errors("t") == []
        cluster.kill_topology("t")
    assert len(loads) == 1  # for four tasks
    found = [json.loads(line) for line in Path(output).read_text().splitlines()]
    assert sorted(one["id"] for one in found) == list(range(200))
    right = sum((one["score"] > 0.5) == one["is_spam"] for one in found)
    assert right / len(found) > 0.9


def test_it_works_in_batches(tmp_path, monkeypatch):
    Model.train(messages(1_000, seed=1)).save(tmp_path / "model.json")
    sizes = []
    predict = Model.predict
    monkeypatch.setattr(Model, "predict", lambda self, t: sizes.append(len(t)) or predict(self, t))
    topology = build(str(tmp_path / "model.json"), str(tmp_path / "out"), count=200)
    objects = {
        "messages": Messages(200),
        "score": ScoreHere(str(tmp_path / "model.json")),
        "store": Store(str(tmp_path / "out")),
    }
    with TopologyTest(topology, objects=objects) as test:
        test.run_until_idle()
        assert not test.errors
    assert sum(sizes) == 200
    assert len(sizes) < 100
