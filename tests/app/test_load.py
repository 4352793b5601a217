"""Two hundred clients, some of them misbehaving: every request is answered, and nothing grows.

The full minute: LOWTUCKER_LOAD_SECONDS=60 pytest -m slow -s tests/app/test_load.py
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.parse import urlsplit

import numpy as np
import psutil
import pytest

from app.served import LONG, eventually, kept, playground

SECONDS = float(os.environ.get("LOWTUCKER_LOAD_SECONDS", "12"))
CLIENTS, ADDRESSES = 200, 20
SMALL = {"tab": "synthetic", "shape": "6,6,6", "rank": "1,1,1", "solvers": "auto", "seed": "3"}
REFUSALS = {403, 404, 408, 422, 429, 503}
pytestmark = pytest.mark.slow


def npy():
    stream = io.BytesIO()
    np.save(stream, np.ones((3, 3, 3)))
    return stream.getvalue()


class Client:
    """A client with an address of its own, which does something at random until the time is up."""

    def __init__(self, number, url, counts):
        self.random, self.counts = random.Random(number), counts
        found = urlsplit(url)
        self.where, self.host = (found.hostname, found.port), found.netloc
        own = f"127.0.{1 + number % ADDRESSES}.1" if sys.platform == "linux" else "127.0.0.1"
        self.local = (own, 0)

    async def work(self, until):
        loop = asyncio.get_running_loop()
        actions = [self.page, self.about, self.describe, self.upload, self.run, self.cancelled,
                   self.half_open, self.slow_body, self.slow_head, self.rebound]  # fmt: skip
        while loop.time() < until:
            action = self.random.choice(actions)
            try:
                async with asyncio.timeout(90):
                    await action()
            except (OSError, asyncio.IncompleteReadError, TimeoutError, ValueError) as error:
                self.counts[f"unanswered: {action.__name__} {type(error).__name__}"] += 1
            await asyncio.sleep(self.random.uniform(0, 0.3))

    async def opened(self):
        return await asyncio.open_connection(*self.where, local_addr=self.local)

    def head(self, method, path, length=0, host=None):
        return (f"{method} {path} HTTP/1.1\r\nHost: {host or self.host}\r\nConnection: close\r\n"
                f"Content-Length: {length}\r\n\r\n").encode()  # fmt: skip

    async def ask(self, method, path, body=b"", host=None):
        """Status and content of an answer; a refusal has words."""
        reader, writer = await self.opened()
        try:
            writer.write(self.head(method, path, len(body), host) + body)
            status, content = await self.answer(reader)
        finally:
            writer.close()
        self.counts[status] += 1
        assert status in {200, 204} | REFUSALS, (status, content)
        if status in REFUSALS:
            assert len(content.split()) > 3, (status, content)
        return status, content

    async def answer(self, reader):
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), await reader.read()

    async def page(self):
        await self.ask("GET", "/")

    async def about(self):
        await self.ask("GET", "/api/about")

    async def describe(self):
        await self.ask("POST", "/api/describe", json.dumps(SMALL).encode())

    async def rebound(self):
        status, _ = await self.ask("GET", "/", host="[::1]evil.com")
        assert status in (403, 429)

    async def upload(self):
        status, content = await self.ask("POST", "/api/uploads?name=x.npy", npy())
        if status == 200:
            await self.ask("DELETE", f"/api/uploads/{json.loads(content)['key']}")

    async def run(self):
        status, content = await self.ask("POST", "/api/run", json.dumps(SMALL).encode())
        if status == 200:
            last = json.loads(content.split(b"data: ")[-1].split(b"\n")[0].strip())
            self.counts[f"run: {last['event']}"] += 1
            assert last["event"] in ("end", "error"), last

    async def cancelled(self):
        """Leave an event stream after its first event."""
        reader, writer = await self.opened()
        body = json.dumps(LONG).encode()
        writer.write(self.head("POST", "/api/run", len(body)) + body)
        await reader.readuntil(b"\r\n\r\n")
        await reader.read(100)
        writer.close()
        self.counts["cancelled"] += 1

    async def half_open(self):
        await self.misbehave(self.head("POST", "/api/uploads?name=x.npy", 900) + b"half", b"")

    async def slow_body(self):
        await self.misbehave(self.head("POST", "/api/uploads?name=x.npy", 900), b"x")

    async def slow_head(self):
        await self.misbehave(b"GET / HTTP/1.1\r\n", b"A: b\r\n")

    async def misbehave(self, first, more):
        """Send something slowly until the server ends it."""
        reader, writer = await self.opened()
        self.counts["misbehaved"] += 1
        with suppress(OSError):
            writer.write(first)
            while not reader.at_eof():
                writer.write(more)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        head = await reader.readuntil(b"\r\n\r\n")
                        status = int(head.split()[1])
                        assert status in (408, 429, 503), head
                        self.counts[f"ended by {status}"] += 1
                        break
        writer.close()


def used(served):
    """Memory (MB) of the server and of its tree; processes, open files, threads."""
    server = psutil.Process(served.process.pid)
    tree = [server, *server.children(recursive=True)]
    memory = []
    for process in tree:
        with suppress(psutil.NoSuchProcess):
            memory.append(process.memory_info().rss / 1e6)
    return {"server MB": memory[0], "tree MB": sum(memory), "processes": len(tree),
            "files": server.num_fds(), "threads": server.num_threads()}  # fmt: skip


async def load(served, seconds, counts, seen):
    until = asyncio.get_running_loop().time() + seconds
    clients = [Client(k, served.url, counts) for k in range(CLIENTS)]

    async def watch():
        while True:
            seen.append(used(served))
            await asyncio.sleep(0.5)

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(client.work(until) for client in clients))
    watching.cancel()


def settled(served):
    """What is used when all is quiet."""
    assert eventually(lambda: not served.connections(), 120)
    assert eventually(lambda: served.workers() and served.at_rest(), 120)
    return used(served)


def in_a_thread(work):
    """Run a coroutine where no other loop runs: a browser of other tests leaves one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


def test_two_hundred_clients():
    counts, seen = Counter(), []
    with playground("patience=2.0") as served:
        settled(served)
        in_a_thread(load(served, 4, Counter(), []))  # buffers grow to their size
        before = settled(served)
        in_a_thread(load(served, SECONDS, counts, seen))
        after = settled(served)
        assert len(kept(served.process.pid)) <= 12
        assert served.ask("GET", "/api/about")[0] == 200
    peak = {name: max(one[name] for one in seen) for name in before}
    print("", before, peak, after, dict(counts), sep="\n")  # noqa: T201 - the numbers, with -s
    assert not [name for name in counts if str(name).startswith("unanswered")], counts
    assert counts[200] > CLIENTS
    assert counts["run: end"] > 0
    assert after["server MB"] < before["server MB"] + 20
    assert after["processes"] <= 1 + 2 + 1  # the server, its idle workers
    assert after["files"] <= before["files"] + 6  # pipes of one more idle worker
    assert after["threads"] <= before["threads"] + 2
    assert after["tree MB"] < before["tree MB"] + 200  # one more idle worker
    assert peak["processes"] <= 1 + 4 + 4  # runs, and those that are ending
