"""A playground in a separate process, and a client for it."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

COMMAND = "from lowtucker.cli import main; main(['app', '--port', '0'])"
LIMITED = """
from lowtucker.lab.app.limits import Limits
from lowtucker.lab.app.server import listen, serve
listening = listen("127.0.0.1", 0)
url = f"http://127.0.0.1:{{listening.getsockname()[1]}}/"
serve(listening, "127.0.0.1", Limits({}), lambda: print(url, flush=True))
"""


@dataclass
class _Both:
    """A response and its connection, which share a socket."""

    answer: http.client.HTTPResponse
    connection: http.client.HTTPConnection

    def close(self):
        self.answer.close()
        self.connection.close()


@dataclass
class Served:
    """Address and process of a server."""

    url: str
    process: subprocess.Popen

    def connect(self):
        return http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)

    def raw(self):
        """A socket."""
        found = urlsplit(self.url)
        return socket.create_connection((found.hostname, found.port), timeout=60)

    def connections(self):
        """Number of open connections."""
        found = psutil.Process(self.process.pid).net_connections("tcp")
        return sum(one.status == psutil.CONN_ESTABLISHED for one in found)

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and content of a response."""
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def post(self, path, values):
        status, _, content = self.ask("POST", path, json.dumps(values))
        return status, json.loads(content)

    def upload(self, name, data):
        status, _, content = self.ask("POST", f"/api/uploads?name={name}", data)
        return status, json.loads(content)

    def start(self, values):
        """Connection to a run, and an iterator over its events."""
        connection = self.connect()
        connection.request("POST", "/api/run", json.dumps(values))
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        events = (json.loads(line[6:]) for line in answer if line.startswith(b"data: "))
        return _Both(answer, connection), events

    def run(self, **values):
        """All events of a run, grouped by name."""
        connection, events = self.start({k: str(v) for k, v in values.items()})
        found = {}
        for event in events:
            found.setdefault(event["event"], []).append(event)
        connection.close()
        return found

    def workers(self):
        """Its worker processes."""
        found = set()
        for process in psutil.Process(self.process.pid).children():
            with suppress(psutil.NoSuchProcess):  # it has ended
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process)
        return found

    def at_rest(self):
        """Whether all its processes are idle."""
        processes = self.workers()
        before = _used(processes)
        time.sleep(0.3)
        return _used(processes) == before and self.workers() == processes


@contextmanager
def playground(limits=None):
    """A server that is stopped at the end; ``limits`` are arguments of ``Limits``."""
    code = COMMAND if limits is None else LIMITED.format(limits)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as made:
        try:
            url = re.search(r"http://\S+", made.stdout.readline()).group()
            yield Served(url, made)
        finally:
            if made.poll() is None:
                made.terminate()
            made.wait(90)


def _used(processes):
    """CPU seconds and number of processes."""
    seconds = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            seconds.append(sum(process.cpu_times()[:2]))
    return seconds


def ended(process):
    """Whether a process has ended."""
    with suppress(psutil.NoSuchProcess):
        return process.status() == psutil.STATUS_ZOMBIE or not process.is_running()
    return True


def eventually(condition, seconds=90):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


def folders(process_id):
    """Temporary folders of a server."""
    return set(Path(tempfile.gettempdir()).glob(f"lowtucker-app-{process_id}-*"))


def kept(process_id):
    """Folders of files and results, without those of workers."""
    found = {path for root in folders(process_id) for path in root.iterdir()}
    return {path for path in found if not path.name.startswith("worker-")}


# Long enough to be stopped by any test
LONG = {
    "tab": "phase", "shape": "6,6,6", "largest": "6", "columns": "20", "most": "20", "trials": "12",
}  # fmt: skip
