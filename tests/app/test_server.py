"""The server: responses, rejected requests, and cancellation of runs."""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import signal
import socket
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner
from scipy.io import savemat

import lowtucker as lt
from app.hostile import FILES, content
from app.served import LONG, ended, eventually, folders, kept, playground
from lowtucker import datasets
from lowtucker.cli import main
from lowtucker.lab.app.guard import host_allowed
from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.photo import photo
from lowtucker.lab.app.problems import load
from lowtucker.lab.app.processes import BusyError
from lowtucker.lab.app.settings import parsed
from lowtucker.lab.app.uploads import Store
from lowtucker.lab.video import save_gif

STATIC = Path(lt.__file__).parent / "lab" / "app" / "static"
SMALL = {"tab": "synthetic", "shape": "8,8,6", "rank": "2,2,2", "solvers": "auto", "seed": "3"}


def executed(code):
    """Namespace after running Python code."""
    names = {}
    exec(code, names)
    return names


def same(told, result):
    """Assert that a run on the server and a local one have equal numbers."""
    assert told["status"] == result.status.name
    assert told["epochs"] == result.epochs
    assert told["passes"] == pytest.approx(result.passes)
    assert told["history"]["residual"] == pytest.approx(result.history["residual"], rel=1e-6)
    assert told["error"] == pytest.approx(result.error, rel=1e-6)


def folders_of_workers(server):
    return [p for root in folders(server.process.pid) for p in root.glob("worker-*")]


# ---- the page ----


def test_page_has_a_strict_content_security_policy(server):
    status, headers, content = server.ask("GET", "/")
    assert status == 200
    assert b"lowtucker" in content
    policy = headers["Content-Security-Policy"]
    sources = set(re.findall(r"'[^']+'|\b\w+:", policy))
    assert sources == {"'none'", "'self'", "data:"}
    assert headers["X-Content-Type-Options"] == "nosniff"
    for name in ("app.js", "style.css", "vendor/uPlot.iife.min.js", "vendor/uPlot.LICENSE"):
        assert server.ask("GET", f"/static/{name}")[0] == 200


def test_page_has_no_external_links():
    paths = list(STATIC.glob("*.*"))
    assert paths
    for path in paths:
        urls = set(re.findall(r"https?://[^\s\"'<>]+", path.read_text()))
        assert urls <= {"http://www.w3.org/2000/svg"}, path
        assert "style=" not in path.read_text() or path.suffix != ".html"  # forbidden by the policy


@pytest.mark.parametrize("path", ["/static/../server.py", "/static/%2e%2e/server.py", "/nothing"])
def test_nothing_else_is_served(server, path):
    assert server.ask("GET", path)[0] == 404


def test_leading_patterns_are_the_truncated_hosvd(server):
    status, _, body = server.ask("GET", "/api/patterns")
    assert status == 200
    told = json.loads(body)

    def array(text, shape):
        return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)

    rank, X = told["rank"], photo()
    assert told["shape"] == list(X.shape)
    assert told["norm"] == pytest.approx(np.linalg.norm(X))
    core = array(told["core"], rank)
    factors = [array(U, (-1, r)) for U, r in zip(told["factors"], rank, strict=True)]
    for r in (1, 2, 9):
        few = (r, r, min(r, 3))
        parts = [U[:, :k] for U, k in zip(factors, few, strict=True)]
        made = np.einsum("abc,ia,jb,kc->ijk", core[:r, :r, : few[2]], *parts)
        assert np.abs(made - lt.hosvd(X, few).full()).max() < 1e-5


# ---- settings ----


def test_diagrams_fill_coarse_to_fine_with_the_transition_last():
    cells = parsed({"tab": "phase"}, Limits()).cells()
    assert len(set(cells)) == 36
    corners = {(rank, ratio) for rank, ratio, _ in cells[:4]}
    assert corners == {((r,) * 3, q) for r in (1, 4) for q in (0.5, 2.0)}
    assert {ratio for _, ratio, _ in cells[-4:]} == {1.062}  # takes as long as all others


def test_settings_are_described(server):
    status, facts = server.post("/api/describe", SMALL | {"ratio": "5"})
    dof = lt.degrees_of_freedom((8, 8, 6), (2, 2, 2))
    assert status == 200
    assert (facts["m"], facts["dof"], facts["entries"]) == (5 * dof, dof, 384)


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"rank": "9,2,2"}, "rank", "The rank (9, 2, 2) is larger than the shape (8, 8, 6)"),
        ({"rank": "2,2"}, "rank", "rank has 2 numbers; expected 3"),
        ({"shape": "8,8,x"}, "shape", "expected a whole number, 2 to 200"),
        ({"shape": "200,200,200"}, "shape", "8000000 entries are too many for this page"),
        ({"shape": "70,70,70", "ratio": "9"}, "ratio", "MB; at most 400 here"),
        (
            {"shape": "79,79,79", "rank": "79,79,79", "ratio": "100", "operator": "rank-one"},
            "ratio",
            "The vectors of 49303900 x 237 numbers take 93480 MB; at most 400 here",
        ),
        ({"operator": "entries", "ratio": "50"}, "ratio", "more than the 384 entries"),
        ({"ratio": "nan"}, "ratio", "expected a number, 0.2 to 100"),
        ({"noise": "-1"}, "noise", "expected a number, 0 to 0.5"),
        ({"operator": "magic"}, "operator", "expected gaussian, rank-one, entries, dct"),
        ({"solvers": ""}, "solvers", "Choose one or more of the solvers"),
        ({"block": "0"}, "block", "expected a whole number, 1 to"),
        ({"step": "-1"}, "step", "expected a number"),
        ({"tab": "data"}, "file", "Drop it on the page again"),
        ({"tab": "phase", "trials": "1000"}, "trials", "1 to 100"),
        ({"tab": "phase", "largest": "40", "shape": "30,30,30"}, "largest", "1 to 30"),
        ({"tab": "other"}, "tab", "expected picture, synthetic, data, phase"),
        ({"seed": ["a", "list"]}, "seed", "must be a short text"),
    ],
)
def test_invalid_settings_are_rejected(server, change, field, text):
    for path in ("/api/describe", "/api/run"):
        status, answer = server.post(path, SMALL | change)
        assert status == 422
        assert answer["field"] == field
        assert text in answer["error"]


@pytest.mark.parametrize(
    "body",
    [b"", b"[1]", b"{", b"[" * 19_999, b'{"a": "' + b"x" * 30_000 + b'"}'],
    ids=["empty", "list", "open", "deep", "long"],
)
def test_malformed_settings_are_rejected(server, body):
    status, _, content = server.ask("POST", "/api/run", body)
    assert status == 422
    assert "Settings" in json.loads(content)["error"]


# ---- runs and their Python code ----


@pytest.mark.parametrize(
    "change",
    [
        {"solvers": "tiht,stotiht,auto", "signal": "random"},
        {"solvers": "stotiht", "block": "60", "step": "0.4", "ratio": "6"},
        {"operator": "rank-one", "signal": "random"},
        {"operator": "entries", "signal": "random", "ratio": "5"},
        {"operator": "dct", "noise": "0.05", "signal": "random", "seed": "4"},
    ],
    ids=lambda change: "-".join(change.values()),
)
def test_code_reproduces_the_numbers_of_the_run(server, change):
    events = server.run(**SMALL | change)
    assert "error" not in events
    results = executed(events["code"][0]["code"])["results"]
    assert [told["solver"] for told in events["result"]] == list(results)
    for told in events["result"]:
        same(told, results[told["solver"]])
    assert events["end"]


@pytest.mark.parametrize("change", [{}, {"missing": "90", "scratches": "0"}])
def test_code_completes_the_same_photograph(server, change):
    events = server.run(tab="picture", **change)
    assert "error" not in events
    (told,) = events["result"]
    result = executed(events["code"][0]["code"])["result"]
    assert told["epochs"] == result.epochs
    assert told["error"] == pytest.approx(result.error, rel=1e-6)
    before = events["problem"][0]["before"]
    assert before["what"] == "holes"
    bits = np.unpackbits(np.frombuffer(base64.b64decode(before["picture"]["known"]), np.uint8))
    assert bits.sum() == events["problem"][0]["m"]


def test_least_norm_answer_stands_beside_the_recovery(server):
    events = server.run(**SMALL | {"ratio": "4"})
    before = events["problem"][0]["before"]
    names = executed(events["code"][0]["code"])
    A, y, X = names["A"], names["y"], names["X_true"].full()
    M = A.to_matrix() if hasattr(A, "to_matrix") else lt.to_scipy(A) @ np.eye(X.size)
    found = np.linalg.pinv(M) @ y
    assert before["what"] == "least norm"
    expected = np.linalg.norm(found - X.ravel()) / np.linalg.norm(X)
    assert before["error"] == pytest.approx(expected, abs=0.01)


def test_points_are_sent_during_the_run_and_reach_the_tolerance(server):
    events = server.run(**SMALL | {"shape": "16,16,8", "solvers": "tiht", "ratio": "4"})
    (told,) = events["result"]
    assert told["success"]
    assert told["history"]["residual"][-1] <= 1e-6
    epochs = [point[0] for event in events["points"] for point in event["points"]]
    assert epochs == list(range(1, len(epochs) + 1))
    live = [point[3] for event in events["points"] for point in event["points"]]
    assert live == told["history"]["residual"][1 : len(live) + 1]
    truth, found = events["problem"][0]["truth"], told["recovered"]
    assert truth["shape"] == [16, 16, 8]
    assert truth["data"] == found["data"]  # equal in 256 levels
    assert told["difference"]["high"] < 1e-5


def test_warnings_and_advice_reach_the_page(server):
    events = server.run(**SMALL | {"ratio": "0.8"})
    assert "32 measurements cannot determine a tensor" in events["notice"][0]["text"]
    assert len(events["notice"]) == 1
    (told,) = events["result"]
    assert not told["success"]
    assert told["headline"] == "not recovered: underdetermined"
    assert "Set “m, per degree of freedom” to 2.8 or more (112 measurements)." in told["advice"]
    assert "lt." not in told["advice"]


def test_phase_diagram_has_the_rates_of_its_code(server):
    grid = {"tab": "phase", "shape": "5,5,5", "largest": "1", "columns": "3", "trials": "2"}
    events = server.run(**grid)
    rates = executed(events["code"][0]["code"])["rates"]
    cells = {(tuple(c["rank"]), c["m"]): c["rate"] for c in events["cell"]}
    assert cells == rates
    assert len(cells) == 3
    assert {0.0, 1.0} <= set(cells.values())


def test_phase_diagram_omits_cells_with_too_many_measurements(server):
    _, facts = server.post(
        "/api/describe", {"tab": "phase", "shape": "3,3,3", "operator": "entries", "most": "6",
                          "columns": "2", "largest": "2"},
    )  # fmt: skip
    assert facts["cells"] == 2  # of 4: ranks 1 and 2 have 7 and 20 degrees of freedom


# ---- files ----


@pytest.fixture(scope="module")
def flame():
    stream = io.BytesIO()
    np.save(stream, datasets.flame((20, 24, 8)).values)
    return stream.getvalue()


def test_recovery_of_a_file_without_a_rank(server, flame, tmp_path, monkeypatch):
    _, found = server.upload("flame.npy", flame)
    asked = {"tab": "data", "file": found["key"], "rows": "3:12", "columns": "5:12",
             "frames": "2:5", "known": "none", "share": "60", "operator": "entries"}  # fmt: skip
    status, facts = server.post("/api/describe", asked)
    assert (status, facts["dof"], facts["ratio"]) == (200, None, None)
    events = server.run(**asked)
    assert "error" not in events
    assert events["result"][0]["best"] is None
    assert [event["name"] for event in events["file"]] == ["result.npz", "report.html"]
    (tmp_path / "flame.npy").write_bytes(flame)
    monkeypatch.chdir(tmp_path)
    same(events["result"][0], executed(events["code"][0]["code"])["result"])
    status, refused = server.post("/api/describe", asked | {"solver": "tiht"})
    assert (status, refused["field"]) == (422, "solver")
    assert "TIHT needs a rank" in refused["error"]


@pytest.mark.parametrize("operator", [pytest.param("gaussian", marks=pytest.mark.slow), "entries"])
def test_recovery_of_a_file(server, flame, tmp_path, monkeypatch, operator):
    status, found = server.upload("flame.npy", flame)
    assert status == 200
    assert found["arrays"] == [{"name": None, "shape": [20, 24, 8]}]
    events = server.run(tab="data", file=found["key"], rows="3:14", columns="5:16", frames="2:7",
                        rank="3,3,2", share="60", operator=operator)  # fmt: skip
    assert "error" not in events
    assert [event["name"] for event in events["file"]] == ["result.npz", "report.html"]
    assert "the best approximation of this rank" in events["summary"][0]["lines"]["relative error"]
    key = events["code"][0]["result"]
    status, headers, content = server.ask("GET", f"/api/results/{key}/result.npz")
    assert status == 200
    assert "attachment" in headers["Content-Disposition"]
    (tmp_path / "fetched.npz").write_bytes(content)
    (tmp_path / "flame.npy").write_bytes(flame)
    monkeypatch.chdir(tmp_path)
    result = executed(events["code"][0]["code"])["result"]
    same(events["result"][0], result)
    fetched = lt.load("fetched.npz")
    np.testing.assert_allclose(fetched.X.full(), result.X.full(), atol=1e-5)
    page = server.ask("GET", f"/api/results/{key}/report.html")[2].decode()
    assert "flame.npy, rows 3:14, columns 5:16, frames 2:7" in page
    assert "<script" not in page
    assert "In this folder" not in page


def test_tensor_in_its_own_units(server, tmp_path, monkeypatch):
    """Negative numbers; several arrays in a file, one of which has exactly the rank."""
    monkeypatch.chdir(tmp_path)
    X = 40 * lt.random_tucker((12, 10, 9), (2, 2, 2), seed=0).full()
    np.savez("both.npz", Y=np.ones((3, 3, 3)), X=X, z=np.ones(3))
    status, found = server.upload("both.npz", Path("both.npz").read_bytes())
    assert status == 200
    assert [one["name"] for one in found["arrays"]] == ["Y", "X"]
    events = server.run(tab="data", file=found["key"], array="X", rows="1:12", columns="1:10",
                        frames="1:9", rank="2,2,2", share="40", operator="dct")  # fmt: skip
    (told,) = events["result"]
    assert told["success"]
    assert told["error"] < 1e-5
    same(told, executed(events["code"][0]["code"])["result"])
    assert len(events["file"]) == 2


@pytest.fixture(params=["npz", "mat"])
def mixed(request, server, tmp_path, monkeypatch):
    """Description of an uploaded file with one tensor among other arrays."""
    monkeypatch.chdir(tmp_path)
    X, name = lt.random_tucker((8, 7, 6), (1, 1, 1), seed=0).full(), f"mixed.{request.param}"
    if request.param == "npz":
        np.savez(name, meta=np.arange(3), clip=X)
    else:
        savemat(name, {"clip": X, "n": 3.0})
    _, found = server.upload(name, Path(name).read_bytes())
    return found


def test_the_only_tensor_among_other_arrays_is_found_and_read_by_the_code(server, mixed):
    assert mixed["arrays"] == [{"name": "clip", "shape": [8, 7, 6]}]
    wanted = {"tab": "data", "file": mixed["key"], "rank": "1,1,1", "operator": "dct"}
    _, facts = server.post("/api/describe", wanted)
    names = executed(facts["code"].split("result =")[0])
    assert any(np.shape(value) == (8, 7, 6) for value in names.values())


@pytest.mark.slow
def test_the_only_tensor_among_other_arrays_is_recovered(server, mixed):
    found = mixed
    events = server.run(tab="data", file=found["key"], rank="1,1,1", share="50", operator="dct")
    assert "error" not in events
    same(events["result"][0], executed(events["code"][0]["code"])["result"])


def test_arrays_that_cannot_be_recovered_are_not_offered(server, tmp_path):
    X = np.ones((3, 4, 5))
    np.savez(
        tmp_path / "x.npz", wave=1j * X, thin=X[:1], X=X, none=X[:, :0], last=np.ones((2, 2, 2))
    )
    status, found = server.upload("x.npz", (tmp_path / "x.npz").read_bytes())
    assert status == 200
    assert [one["name"] for one in found["arrays"]] == ["X", "last"]
    assert [seen["shape"] for seen in found["previews"]] == [[3, 4, 1], [2, 2, 1]]
    for name in ("wave", "none"):
        values = {"tab": "data", "file": found["key"], "array": name}
        status, answer = server.post("/api/run", values)
        assert status == 422
        assert f"has no array {name!r}" in answer["error"]


def test_complex_numbers_are_rejected(tmp_path):
    np.save(tmp_path / "x.npy", 1j * np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="complex numbers; expected real ones"):
        load(tmp_path / "x.npy", "array", None, ((1, 2),) * 3, 10**6)


def test_code_generates_the_example(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # without flame.npy
    _, _, content = server.ask("POST", "/api/uploads?example=flame", b"")
    events = server.run(tab="data", file=json.loads(content)["key"], rows="9:20", columns="9:20",
                        frames="2:7", rank="2,2,2", operator="dct")  # fmt: skip
    assert "lt.datasets.flame((48, 48, 16)).values[8:20, 8:20, 1:7]" in events["code"][0]["code"]
    same(events["result"][0], executed(events["code"][0]["code"])["result"])
    assert events["result"][0]["best"] <= events["result"][0]["error"]


def test_float32_rows_give_no_notices(server):
    _, _, content = server.ask("POST", "/api/uploads?example=flame", b"")
    events = server.run(tab="data", file=json.loads(content)["key"], rows="9:20", columns="9:20",
                        frames="2:7", rank="2,2,2")  # fmt: skip
    assert "notice" not in events
    assert events["problem"][0]["before"]["what"] == "least norm"


def test_clip_in_colour_and_a_gif(server, tmp_path):
    colour = np.random.default_rng(0).integers(0, 256, (6, 16, 20, 3)).astype(np.uint8)
    np.save(tmp_path / "colour.npy", colour)
    save_gif(tmp_path / "clip.gif", datasets.flame((16, 20, 6)).values)
    for name in ("colour.npy", "clip.gif"):
        status, found = server.upload(name, (tmp_path / name).read_bytes())
        assert status == 200, found
        assert found["reader"] == "video"
        assert found["arrays"][0]["shape"] == [16, 20, 6]


@pytest.mark.parametrize("name", FILES)
def test_hostile_files_are_rejected_and_removed(server, name):
    text = FILES[name][1]
    before = kept(server.process.pid)
    status, answer = server.upload(name, content(name))
    assert status == 422
    assert text in answer["error"]
    assert name in answer["error"]
    assert "/tmp" not in answer["error"]  # without the folders of the server
    assert not Path("ran-by-pickle").exists()
    assert kept(server.process.pid) <= before


@pytest.mark.parametrize(
    ("name", "safe", "own"),
    [("../../x.npy", "x.npy", "x.npy"), ("C:\\a b%0a.NPY", "a_b_0a.npy", "a b%0a.NPY")],
)
def test_file_names_cannot_escape_the_folder(server, flame, name, safe, own):
    quoted = name.replace("\\", "%5C").replace(" ", "%20").replace("%0a", "%250a")
    status, found = server.upload(quoted, flame)
    assert (status, found["file"]) == (200, safe)
    _, facts = server.post("/api/describe", {"tab": "data", "file": found["key"]})
    assert f"load_array({own!r})" in facts["code"]  # the original name


def test_unsupported_files_are_rejected(server):
    status, answer = server.upload("run.sh", b"rm")
    assert status == 422
    assert "'run.sh' is not a supported file; expected one of .npy" in answer["error"]


def test_unknown_keys_are_rejected(server):
    assert server.ask("GET", "/api/results/..%2F..%2Fetc/passwd")[0] == 404
    assert server.ask("GET", "/api/results/nothing/report.html")[0] == 404
    status, answer = server.post("/api/run", {"tab": "data", "file": "nothing"})
    assert status == 422
    assert "Drop it on the page again" in answer["error"]


def test_deleted_files_are_removed(server, flame):
    _, found = server.upload("flame.npy", flame)
    folder = next(p for root in folders(server.process.pid) for p in root.glob(found["key"]))
    assert server.ask("DELETE", f"/api/uploads/{found['key']}")[0] == 204
    assert not folder.exists()


def test_folders_in_use_are_kept():
    store = Store(2)
    try:
        first, second = store.new(), store.new()
        with store.hold(first):
            assert store.new().key in store.items  # replaces the second
            assert store.get(second.key) is None
            assert first.folder.exists()
            store.remove(first.key)  # deleted by the page, but in use
            assert first.folder.exists()
        assert not first.folder.exists()
        store.new()
        for item in store.items.values():
            item.users = 1
        with pytest.raises(BusyError, match="All 2 stored files are in use"):
            store.new()
    finally:
        store.close()


# ---- limits ----


@pytest.fixture(scope="module")
def limited():
    limits = "upload_bytes=2000, runs=2, files=2, long_seconds=0.5, grace=0.5"
    with playground(limits) as served:
        yield served


def test_too_large_files_are_rejected_during_upload(limited):
    before = kept(limited.process.pid)  # other tests send files that fit
    status, answer = limited.upload("x.npy", bytes(3000))
    assert status == 413
    assert "The file is larger than 0.002 MB" in answer["error"]
    connection = limited.connect()  # chunked, without a length
    connection.request("POST", "/api/uploads?name=x.npy", iter([bytes(1500)] * 2))
    answer = connection.getresponse()
    assert answer.status == 413
    answer.close()
    connection.close()
    status, _, content = limited.ask(  # rejected by the announced length
        "POST", "/api/uploads?name=x.npy", b"", {"Content-Length": "3000"}
    )
    assert status == 413
    assert "larger than 0.002 MB" in json.loads(content)["error"]
    assert kept(limited.process.pid) <= before


def test_only_the_latest_files_are_kept(limited):
    stream = io.BytesIO()
    np.save(stream, np.ones((3, 3, 3)))
    keys = [limited.upload("x.npy", stream.getvalue())[1]["key"] for _ in range(3)]
    names = {path.name for path in kept(limited.process.pid)}
    assert keys[0] not in names
    assert set(keys[1:]) <= names


def test_runs_beyond_the_time_limit_are_stopped(limited):
    events = limited.run(**LONG)
    assert "Time limit of 1 s reached" in events["error"][0]["text"]
    assert "end" not in events


@contextmanager
def held(served, count):
    """A number of runs whose processes are suspended."""
    long = {"tab": "synthetic", "shape": "79,79,79", "solvers": "stotiht", "operator": "dct",
            "ratio": "3"}  # fmt: skip
    with ExitStack() as stack:
        stack.callback(each, served.workers, psutil.Process.resume)  # processes not killed
        for _ in range(count):
            connection, events = served.start(long)
            stack.callback(connection.close)
            assert [next(events)["event"] for _ in range(2)] == ["code", "problem"]
        each(served.workers, psutil.Process.suspend)
        yield


def each(processes, action):
    for process in processes():
        with suppress(psutil.NoSuchProcess):
            action(process)


def test_no_more_runs_at_once_than_allowed(limited):
    stream = io.BytesIO()
    np.save(stream, np.ones((3, 3, 3)))
    with held(limited, 2):
        status, answer = limited.post("/api/run", SMALL)
        assert status == 503
        assert "2 runs are in progress" in answer["error"]
        status, answer = limited.upload("x.npy", stream.getvalue())  # reading counts as a run
        assert status == 503
        assert "2 runs are in progress" in answer["error"]
    assert eventually(lambda: limited.ask("POST", "/api/run", json.dumps(SMALL))[0] == 200)


# ---- simultaneous runs and cancellation ----


def test_runs_are_simultaneous(server):
    connection, events = server.start(LONG)
    names = [next(events)["event"] for _ in range(2)]
    assert names == ["code", "problem"]
    assert server.run(**SMALL)["end"]  # a second run completes
    assert server.ask("GET", "/api/about")[0] == 200
    assert next(events)["event"] == "cell"  # the first continues
    connection.close()


def test_disconnecting_stops_the_run(server):
    assert eventually(lambda: server.workers() and server.at_rest())  # after earlier runs
    connection, events = server.start(LONG)
    assert [next(events)["event"] for _ in range(3)] == ["code", "problem", "cell"]
    there = server.workers()
    connection.close()
    assert eventually(lambda: any(map(ended, there)))
    assert eventually(lambda: server.workers() and server.at_rest())
    # folders of ended processes are removed
    assert eventually(lambda: len(folders_of_workers(server)) == len(server.workers()))
    assert folders_of_workers(server)


def test_dead_worker_is_reported_and_replaced(server):
    connection, events = server.start(LONG)
    assert [next(events)["event"] for _ in range(3)][-1] == "cell"
    for process in server.workers():
        with suppress(psutil.NoSuchProcess):
            process.kill()
    rest = list(events)
    assert "The process of this run ended unexpectedly" in rest[-1]["text"]
    connection.close()
    assert eventually(lambda: "end" in server.run(**SMALL))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGKILL],
)
def test_all_processes_end_with_the_server(how):
    with playground() as served:
        connection, events = served.start(LONG)
        assert next(events)["event"] == "code"
        assert next(events)["event"] == "problem"
        assert eventually(lambda: len(served.workers()) == 2)  # one running, one idle
        children = served.workers()
        served.process.send_signal(how)
        assert served.process.wait(90) == {signal.SIGINT: 130}.get(how, -how)
        assert eventually(lambda: all(map(ended, children)))
        connection.close()
        left = folders(served.process.pid)
        assert bool(left) == (how == signal.SIGKILL)  # not removed after SIGKILL
        for folder in left:
            shutil.rmtree(folder)


# ---- allowed hosts and origins ----


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_host_names_are_rejected(server, host):
    status, _, content = server.ask("GET", "/", headers={"Host": host})
    assert status == 403
    assert b"is not allowed" in content


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
def test_requests_from_other_origins_are_rejected(server, origin):
    for method, path in (
        ("POST", "/api/run"),
        ("POST", "/api/uploads"),
        ("DELETE", "/api/uploads/x"),
    ):
        status, _, content = server.ask(method, path, b"{}", {"Origin": origin})
        assert status == 403
        assert b"are rejected" in content


@pytest.mark.parametrize(
    "host",
    [
        "[::1]evil.com", "[::1].evil.com", "[::1]:80evil.com", "[::1]:", "[::1", "::1]", "[]", "[",
        "[::1]:8000:9", "[::1]@evil.com", "[evil.com]", "[localhost]", "[127.0.0.1]", "::1",
        "localhost:", "localhost:80x", "localhost:99999", "localhost:-1", "localhost:80:80",
        "localhost@evil.com", "evil.com@localhost", "localhost#evil.com", "localhost/evil.com",
        "localhost?x", "localhost\\evil.com", "localhost.", "localhost.evil.com", "localhost evil",
        " localhost", "localhost ", "localhost\tx", "localhost\n", "localhost,evil.com",
        "user:pass@localhost", "127.0.0.1.", "127.0.0.1evil", "127.1", "0x7f.0.0.1", "2130706433",
        "127.0.0.1, evil.com", "0.0.0.0", "[::]", "[::1%25lo]", "[0:0:0:0:0:0:0:1%lo]",
        "http://localhost", "%6cocalhost", "localhost\x00", "*", ".", "-", "\u2488",
        "localhost:\u0661", "loc\u0430lhost",
    ],
)  # fmt: skip
def test_malformed_hosts_are_rejected(host):
    assert not host_allowed(host, "127.0.0.1")
    assert not host_allowed(host, "localhost")
    if host not in ("0.0.0.0", "[::]"):  # addresses
        assert not host_allowed(host, "lab.example")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:8000"]
)
def test_hosts_of_this_machine_are_allowed(host):
    assert host_allowed(host, "127.0.0.1")


@pytest.mark.parametrize(
    "origin",
    [
        "http://{}@evil.com", "http://{}.evil.com", "https://{}", "http://{}/", "HTTP://{}", "{}",
        " ", "http://{}, http://evil.com", "file://", "http://[::1]",
    ],
)  # fmt: skip
def test_origins_that_resemble_the_page_are_rejected(server, origin):
    host = server.url.removeprefix("http://").rstrip("/")
    status, _, content = server.ask("POST", "/api/run", b"{}", {"Origin": origin.format(host)})
    assert status == 403, content


def test_several_headers_of_a_kind_are_rejected(server):
    host = server.url.removeprefix("http://").rstrip("/")
    for lines in (
        f"Host: {host}\r\nHost: evil.com",
        f"Host: evil.com\r\nHost: {host}",
        f"Host: {host}\r\nOrigin: http://evil.com\r\nOrigin: http://{host}",
    ):
        with server.raw() as raw:
            raw.sendall(
                f"POST /api/run HTTP/1.1\r\n{lines}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
            )
            assert raw.recv(100).split()[1] in (b"400", b"403")
    with server.raw() as raw:  # no Host at all
        raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert raw.recv(100).split()[1] in (b"400", b"403")


def test_host_names_of_a_public_server():
    assert host_allowed("[::1]:8000", "::1")
    assert host_allowed("10.0.0.7:8000", "0.0.0.0")
    assert host_allowed("lab.example:8000", "lab.example")
    assert not host_allowed("evil.example", "lab.example")
    assert not host_allowed("10.0.0.7:8000", "127.0.0.1")


# ---- the command ----


def test_port_in_use_is_reported():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["app", "--port", str(port)])
    assert done.exit_code == 2
    assert f"Port {port} of 127.0.0.1 cannot be used" in done.output
    assert "--port 0 for a free port" in done.output


def test_missing_extra_is_reported(monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name)
    )
    done = CliRunner().invoke(main, ["app"])
    assert done.exit_code == 2
    assert (
        'This needs uvicorn, which is not installed. Try: pip install "lowtucker[app]"'
        in done.output
    )


def test_public_host_is_warned_about(monkeypatch):
    served = []
    monkeypatch.setattr("lowtucker.lab.app.server.listen", lambda host, port: socket.socket())
    monkeypatch.setattr(
        "lowtucker.lab.app.server.serve", lambda *a, ready: (served.append(a), ready())
    )
    done = CliRunner().invoke(main, ["app", "--host", "0.0.0.0", "--port", "0"])
    assert done.exit_code == 0, done.output
    assert "Warning: --host 0.0.0.0 lets anyone" in done.stderr
    assert "The playground is at http://0.0.0.0:" in done.stdout
    served[0][0].close()
    done = CliRunner().invoke(main, ["app", "--port", "0"])
    assert "Warning" not in done.output
    served[1][0].close()
