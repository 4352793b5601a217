"""A Dask cluster with TLS, as on the page "Running on a Dask cluster"."""

from __future__ import annotations

import re
import shutil
import subprocess
import warnings
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

import lowtucker as lt

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
SHAPE = (4, 4, 3)
X = lt.random_tucker(SHAPE, (1, 1, 1), seed=0)
MATRIX = lt.gaussian(SHAPE, 60, seed=1).matrix
ROWS = da.from_array(MATRIX, chunks=(20, -1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Certificates by the commands of the page, with shorter keys, which are made faster."""
    made = tmp_path_factory.mktemp("tls")
    commands = re.findall(r"^openssl .*", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = command.replace("rsa:4096", "rsa:2048")
        subprocess.run(words, shell=True, cwd=made, check=True, capture_output=True)
    return made


@pytest.fixture
def address(folder, monkeypatch):
    """Scheduler of a cluster, in a folder with the certificates."""
    monkeypatch.chdir(folder)
    roles = ("client", "scheduler", "worker")
    files = {f"tls_{role}_{what}": f"{what}.pem" for role in roles for what in ("cert", "key")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's, as a cluster starts and stops
        with LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tls",
            dashboard_address=None,
            security=Security(tls_ca_file="ca.pem", **files),
        ) as cluster:
            yield cluster.scheduler_address


def test_a_client_with_a_certificate_computes_and_others_are_refused(address):
    assert address.startswith("tls://")
    security = Security(tls_ca_file="ca.pem", tls_client_cert="cert.pem", tls_client_key="key.pem")
    with Client(address, security=security, set_as_default=False) as client:
        A = lt.from_dask(ROWS, SHAPE, client=client)
        assert lt.recover(A, A.forward(X), (1, 1, 1)).success
    with pytest.raises(ConnectionError, match=r"needs distributed\.comm\.tls in the config"):
        lt.from_dask(ROWS, SHAPE, client=address)
    with pytest.raises(ConnectionError):
        lt.from_dask(ROWS, SHAPE, client=address.replace("tls", "tcp"))


def test_an_address_takes_certificates_from_the_configuration(address):
    names = ("ca-file", "client.cert", "client.key")
    files = ("ca.pem", "cert.pem", "key.pem")
    tls = {f"distributed.comm.tls.{name}": file for name, file in zip(names, files, strict=True)}
    with dask.config.set(tls):
        A = lt.from_dask(ROWS, SHAPE, client=address)
        np.testing.assert_allclose(A.forward(X), MATRIX @ X.full().ravel(), atol=1e-12)
        A.engine.client.close()
