"""Clients that are slow, many, or send files that are costly to read."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tempfile
import zipfile
from contextlib import suppress

import numpy as np
import psutil
import pytest
from scipy.io import savemat

from app.served import LONG, eventually, kept, playground
from lowtucker.lab.app.inspection import _check_members
from lowtucker.lab.app.memory import SLACK, bounded_memory
from lowtucker.lab.app.processes import BusyError
from lowtucker.lab.app.sharing import Patience, Shares, SlowError, TooManyError
from lowtucker.lab.app.uploads import Store
from robustness import faults

HEAD = "POST /api/uploads?name=x.npy HTTP/1.1\r\nHost: {}\r\nContent-Length: 4000000\r\n\r\n"


def npy():
    stream = io.BytesIO()
    np.save(stream, np.ones((3, 3, 3)))
    return stream.getvalue()


@pytest.fixture(scope="module")
def impatient():
    with playground("patience=1.0, files=2, runs=3, connections_each=5") as served:
        yield served


def rest(raw):
    """All that the server sends until it closes a connection."""
    said = b""
    while chunk := raw.recv(65536):
        said += chunk
    return said


def half_open(served, count, body=b"half"):
    host = served.url.removeprefix("http://").rstrip("/")
    raws = [served.raw() for _ in range(count)]
    for raw in raws:
        raw.sendall(HEAD.format(host).encode() + body)
    return raws


def test_half_open_uploads_take_no_file_and_end(impatient):
    _, found = impatient.upload("x.npy", npy())
    raws = half_open(impatient, 4)
    assert eventually(lambda: len(kept(impatient.process.pid)) == 5)  # four are being received
    assert impatient.upload("x.npy", npy())[0] == 200  # and keep nobody waiting
    for raw in raws:
        said = rest(raw)
        assert said.startswith(b"HTTP/1.1 408")
        assert b"Only 4 bytes of the request arrived in time" in said
        raw.close()
    assert eventually(lambda: len(kept(impatient.process.pid)) == 2)
    values = {"tab": "data", "file": found["key"], "rank": "1,1,1"}
    assert impatient.post("/api/describe", values)[0] == 200  # it was not removed


def test_few_large_files_are_received_at_a_time(impatient):
    large, answers = npy() + bytes(1_200_000), []

    def refused():
        raws = half_open(impatient, 2, bytes(1_500_000))  # they end soon
        answers.extend(impatient.upload("x.npy", large) for _ in range(5))
        for raw in raws:
            raw.close()
        return 503 in dict(answers)

    assert eventually(refused)
    assert "2 large uploads are in progress, which is the limit" in dict(answers)[503]["error"]
    assert eventually(lambda: impatient.upload("x.npy", large)[0] != 503)


def test_an_upload_that_was_fast_and_stops_is_refused():
    """What it has sent would allow it to wait for ten hours."""
    sent = iter([{"type": "http.request", "body": bytes(10**6), "more_body": True}] * 720)

    async def receive():
        return next(sent, None) or await asyncio.Event().wait()

    async def app(scope, receive, send):
        while True:
            await receive()

    async def served():
        await asyncio.wait_for(Patience(app, 0.01)({"type": "http"}, receive, None), 30)

    with pytest.raises(SlowError, match="Only 720000000 bytes of the request arrived in time"):
        asyncio.run(served())


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\nA: "])
def test_a_request_without_an_end_is_ended(impatient, sent):
    with impatient.raw() as raw:
        raw.sendall(sent)
        said = rest(raw)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"No complete request arrived in time. Send it again." in said


def test_a_head_that_trickles_is_ended(impatient):
    with impatient.raw() as raw:
        raw.settimeout(0.1)
        raw.sendall(b"GET / HTTP/1.1\r\n")
        said = b""
        while not said:
            raw.sendall(b"A: b\r\n")
            with suppress(TimeoutError):
                said = raw.recv(1000)
    assert said.startswith(b"HTTP/1.1 408")


def test_settings_that_trickle_are_refused(impatient):
    host = impatient.url.removeprefix("http://").rstrip("/")
    with impatient.raw() as raw:
        raw.sendall(
            f"POST /api/run HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
        assert rest(raw).startswith(b"HTTP/1.1 408")


def test_a_client_that_does_not_read_is_ended(impatient):
    assert eventually(lambda: not impatient.connections())
    host = impatient.url.removeprefix("http://").rstrip("/")
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        name, _, port = host.partition(":")
        raw.connect((name, int(port)))
        ask = f"GET /static/vendor/uPlot.iife.min.js HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        raw.sendall(200 * ask)
        assert eventually(lambda: impatient.connections() == 1)
        assert eventually(lambda: not impatient.connections(), 60)


def test_the_oldest_idle_connection_of_a_client_makes_room(impatient):
    assert eventually(lambda: not impatient.connections())
    raws = [impatient.raw() for _ in range(6)]
    assert rest(raws[0]).startswith(b"HTTP/1.1 408")
    assert impatient.ask("GET", "/api/about")[0] == 200
    for raw in raws:
        raw.close()


def test_a_client_with_too_many_requests_is_refused(impatient):
    assert eventually(lambda: not impatient.connections())
    runs = [impatient.start(LONG) for _ in range(3)]
    for _, events in runs:
        next(events)
    raws = half_open(impatient, 2)  # five requests are in progress
    assert eventually(lambda: impatient.connections() == 5)
    status, _, content = impatient.ask("GET", "/api/about")
    assert status == 429
    assert b"There are 5 connections from your address, which is the limit" in content
    for one in [*raws, *(connection for connection, _ in runs)]:
        one.close()
    assert eventually(lambda: impatient.ask("GET", "/api/about")[0] == 200)


def test_one_client_of_a_public_server_leaves_a_share_to_others():
    runs = Shares("runs", 4, 2)
    with runs.one("a"), runs.one("a"):
        with pytest.raises(TooManyError, match="2 runs from your address are in progress"):
            runs.require("a")
        with runs.one("b"), runs.one("b"), pytest.raises(BusyError, match="4 runs are in progress"):
            runs.require("c")
    assert not runs.taken


def test_a_client_with_many_files_loses_its_own():
    store = Store(4)
    try:
        others = [store.new("a"), store.new("b")]
        mine = [store.new("c") for _ in range(2)]
        assert store.new("c").key in store.items
        assert mine[0].key not in store.items
        assert not mine[0].folder.exists()
        assert all(item.key in store.items for item in others)
        store.get(mine[1].key)  # used: the other one is now the oldest
        store.new("b")
        assert mine[1].key in store.items
    finally:
        store.close()


# ---- files that are costly to read ----


def archive(count):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for k in range(count):
            made.writestr(f"a{k}.npy", npy())
    return stream.getvalue()


def test_an_archive_of_many_members_is_refused_before_they_are_read(server, tmp_path, monkeypatch):
    status, answer = server.upload("many.npz", archive(1001))
    assert status == 422
    assert "many.npz holds 1001 arrays or more; at most 1000 are allowed here" in answer["error"]
    (tmp_path / "some.npz").write_bytes(archive(20))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    _check_members(tmp_path / "some.npz", 20)
    with pytest.raises(ValueError, match="holds 20 arrays or more; at most 19"):
        _check_members(tmp_path / "some.npz", 19)


@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_AS"), reason="there are no such limits here")
def test_memory_for_reading_is_bounded():
    with (
        pytest.raises(ValueError, match=r"x\.npy takes more than 1 MB of memory to read"),
        bounded_memory("x.npy", 10**6),
    ):
        np.empty(10**6 + 2 * SLACK, dtype=np.uint8)
    assert np.empty(10**6 + 2 * SLACK, dtype=np.uint8).size  # no limit afterwards
    with bounded_memory("x.npy", 10**8):
        assert np.empty(10**8, dtype=np.uint8).size


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(psutil, "RLIMIT_AS"), reason="there are no such limits here")
def test_a_compressed_file_takes_no_more_memory_than_allowed(tmp_path):
    """875 kB that are 960 MB, of which a reader may take two copies."""
    savemat(tmp_path / "X.mat", {"X": np.zeros((500, 500, 480))}, do_compression=True)
    with playground("") as served:
        assert eventually(served.workers)
        status, answer = served.upload("X.mat", (tmp_path / "X.mat").read_bytes())
        assert status == 200 or "takes more than 1000 MB of memory" in answer["error"], answer
        for worker in served.workers():
            with open(f"/proc/{worker.pid}/status") as file:
                (peak,) = (int(line.split()[1]) for line in file if line.startswith("VmHWM"))
            assert 1024 * peak < 1.4e9


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_full_disk_of_the_server_is_said(tmp_path):
    def scenario():
        faults.mount(tmp_path, 4096)
        os.environ["TMPDIR"] = str(tmp_path)
        tempfile.tempdir = None
        with playground("") as served:
            assert eventually(lambda: served.workers() and served.at_rest())
            _, found = served.upload("x.npy", npy())
            asked = {"tab": "data", "file": found["key"], "rank": "1,1,1", "operator": "dct"}
            faults.fill(tmp_path)
            status, answer = served.upload("x.npy", npy())
            assert status == 507
            assert "cannot store this file: No space left on device" in answer["error"]
            events = served.run(**asked)
            assert events["result"][0]["success"]  # the page has it, but there is no file
            assert "cannot be written: No space left on device" in events["error"][0]["text"]
            assert str(tmp_path) not in events["error"][0]["text"]
            (tmp_path / "ballast").unlink()
            assert served.upload("x.npy", npy())[0] == 200
            assert len(served.run(**asked)["file"]) == 2
        assert not list(tmp_path.glob("lowtucker-app-*"))

    faults.in_child(scenario)
