"""The benchmark of Dask compares equal computations. No test asserts a time."""

from __future__ import annotations

import re

import numpy as np
import pytest
from click.testing import CliRunner

import lowtucker as lt
from lowtucker.cli.main import main
from lowtucker.lab.bench import cluster


@pytest.fixture
def small(monkeypatch):
    """The benchmark with a small tensor."""
    for name, value in {"SHAPE": (6, 5, 4), "RANK": (2, 2, 2), "N": 120, "CHUNK": 40}.items():
        monkeypatch.setattr(cluster, name, value)


def test_iteration_in_chunks_equals_that_of_the_matrix(small):
    matrix = np.concatenate([cluster.rows(k, 40) for k in range(3)])
    here = cluster.step_of(lt.DenseOperator(matrix, (6, 5, 4)))()
    there = cluster.step_of(lt.from_dask(cluster.lazily(3, 40), (6, 5, 4)))()
    np.testing.assert_allclose(there.X.full(), here.X.full(), atol=1e-12)
    assert here.t == there.t == 1


def test_loopback_counts_sent_bytes():
    import socket

    def send():
        server = socket.create_server(("127.0.0.1", 0))
        out = socket.create_connection(server.getsockname())
        end, _ = server.accept()
        with server, out, end:
            out.sendall(bytes(100_000))
            left = 100_000
            while left:
                left -= len(end.recv(left))

    assert cluster.moved_by(send) >= 100_000


def test_rows_have_ratios_and_details():
    few, many = {10: 2e6, 40: 2.1e6}, {1: 1e6, 4: 6e6}
    row = cluster._traffic("rows", few, "m = ", "<= 1.1")
    assert (row.ratio, row.met, row.detail) == (1.05, True, "m = 10 2.00 MB, m = 40 2.10 MB")
    assert not cluster._traffic("workers", many, "workers: ", "<= 5").met


WIDE = {"COLUMNS": "300"}  # no cell of the table is wrapped


def met_in(output):
    """Whether each row of the printed table meets its target."""
    return re.findall(r"[<>]= [\d.]+ +│ (yes|no) ", output)


@pytest.mark.parametrize(("moved", "met", "code"), [(5e6, "yes", 0), (6e6, "no", 3)])
def test_exit_code_is_3_if_a_target_is_missed(moved, met, code, monkeypatch):
    few = cluster._traffic("rows", {10: 1e6, 40: 1e6}, "m = ", "<= 1.1")
    many = cluster._traffic("workers", {1: 1e6, 4: moved}, "workers: ", "<= 5")
    monkeypatch.setattr(cluster, "overhead_rows", lambda chunks, repeats: [])
    monkeypatch.setattr(cluster, "traffic_rows", lambda chunks: [few, many])
    done = CliRunner().invoke(main, ["bench", "dask"], env=WIDE)
    assert done.exit_code == code, done.output
    assert met_in(done.output) == ["yes", met]


@pytest.mark.slow
def test_command_prints_rows_and_targets(monkeypatch):
    run = cluster.run
    monkeypatch.setattr(cluster, "run", lambda gigabytes: run(gigabytes / 4, repeats=1))
    done = CliRunner().invoke(main, ["bench", "dask", "--gigabytes", "0.5"], env=WIDE)
    met = met_in(done.output)
    assert len(met) == 3, done.output
    assert done.exit_code == (3 if "no" in met else 0)
    assert "2 workers / one process" in done.output
    assert "4 m rows / m" in done.output
    assert re.search(r"workers: 1 \d+\.\d\d MB", done.output)


def test_options_of_other_benchmarks_are_rejected():
    done = CliRunner().invoke(main, ["bench", "dask", "--trials", "3"])
    assert done.exit_code == 2
    assert "--trials is not an option of dask" in done.output
