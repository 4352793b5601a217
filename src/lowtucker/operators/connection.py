"""A Dask cluster: connect to its scheduler, and check its workers.

All that can go wrong before the work begins is found here, with a message that says what to do.
"""

from __future__ import annotations

import asyncio
import importlib.util
import pkgutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lowtucker._version import __version__

__all__ = ["check_workers", "connect"]

SCHEMES = ("tcp", "tls", "ws", "wss", "ucx")
EXAMPLE = "tcp://127.0.0.1:8786"
# Resolved on every worker. A name, not a function of this package, which could not be sent
# without lowtucker, or with one that is older than this module
QUESTION = "lowtucker._version:__version__"
CHECKED = "_lowtucker_checked"  # attribute of a client: the workers that gave a good answer
SHOWN = 3  # workers that a message names


def connect(address: str, timeout: float = 10.0) -> Any:
    """Client of the scheduler at ``address``, which does not become the default client.

    Parameters
    ----------
    address : str
        Such as "tcp://127.0.0.1:8786".
    timeout : float
        Seconds to wait for the scheduler.

    Returns
    -------
    distributed.Client

    Raises
    ------
    ConnectionError
        Nothing answers there, or something that is not a Dask scheduler.
    ValueError
        It is not an address.
    ImportError
        Dask is not installed here.

    Examples
    --------
    >>> connect("http://127.0.0.1:8787")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
        ...
    ValueError: address must be that of a scheduler, such as tcp://127.0.0.1:8786, ...
    """
    _check_address(address)
    if importlib.util.find_spec("distributed") is None:
        raise ImportError(
            "A Dask cluster needs distributed, not installed here. "
            'Try: pip install "lowtucker[dask]"'
        )
    from distributed import Client

    found = _role_at(address, timeout)
    if found != "Scheduler":
        raise ConnectionError(
            f"At {address} there is a {found}, expected a Dask scheduler. `dask scheduler` "
            "prints its address when it starts; or see client.scheduler.address."
        )
    try:
        return Client(address, timeout=timeout, set_as_default=False)
    except OSError as error:
        raise _unreachable(address, error) from error


def check_workers(client: Any, timeout: float = 10.0) -> None:
    """Check that there are workers, and that each has this version of lowtucker.

    Parameters
    ----------
    client : distributed.Client
    timeout : float
        Seconds to wait for a first worker.

    Raises
    ------
    TimeoutError
        No workers.
    ImportError
        Workers that cannot import lowtucker.
    ValueError
        Workers with another version of it.
    ConnectionError
        The scheduler has gone.

    Notes
    -----
    One message to the scheduler, and one to each worker that was not asked before: the client
    remembers them.
    """
    _check_client(client)
    try:
        workers = set(client.nthreads()) or _first_workers(client, timeout)
        checked: set[str] = getattr(client, CHECKED, set()) & workers
        answers = _ask(client, workers - checked)
    except TimeoutError:
        raise
    except OSError as error:
        raise _unreachable(client.scheduler.address, error) from error
    _check_answers(answers)
    setattr(client, CHECKED, checked | set(answers))


def _check_address(address: Any) -> None:
    if not isinstance(address, str):
        raise TypeError(
            f"address must be a string such as {EXAMPLE!r}, got {type(address).__name__}."
        )
    scheme, _, rest = address.rpartition("://")
    host, _, port = rest.rpartition(":")
    if not ((scheme or "tcp") in SCHEMES and host and port.strip("/").isdecimal()):
        raise ValueError(
            f"address must be that of a scheduler, such as {EXAMPLE}, got {address!r}. "
            "`dask scheduler` prints it when it starts; http://... is its web page."
        )


def _role_at(address: str, timeout: float) -> str:
    """Kind of the server at an address: "Scheduler", "Worker", ...

    Asked before a client is made: a client that cannot be made takes seconds to go away, and
    says so with a traceback.
    """
    from distributed.core import rpc
    from distributed.security import Security

    async def ask() -> str:
        arguments = Security().get_connection_args("client")
        async with rpc(address, timeout=timeout, connection_args=arguments) as server:
            identity = await asyncio.wait_for(server.identity(), timeout)
        return str(identity["type"])

    with ThreadPoolExecutor(1) as thread:  # there may be a running event loop in this one
        try:
            return thread.submit(asyncio.run, ask()).result()
        except OSError as error:
            raise _unreachable(address, error) from error
        except Exception as error:  # whatever reading the answer of some other service gives
            raise ConnectionError(
                f"The server at {address} does not respond as a Dask scheduler "
                f"({type(error).__name__}: {error!s:.120}). Check the address; a tls:// one needs "
                "distributed.comm.tls in the configuration of Dask."
            ) from error


def _unreachable(address: str, error: BaseException) -> ConnectionError:
    # Dask puts its own object before the reason, and where it gave up waiting there is none
    why = str(error.__cause__ or error).rpartition(">: ")[2] or "no answer"
    return ConnectionError(
        f"The Dask scheduler at {address} cannot be reached ({why:.160}). Start one with "
        "`dask scheduler`, use the address that it prints, and check for a firewall in "
        "between."
    )


def _check_client(client: Any) -> None:
    if not all(hasattr(client, name) for name in ("nthreads", "run", "asynchronous", "status")):
        raise TypeError(
            f"client must be a distributed.Client, got {type(client).__name__}. "
            f"Try distributed.Client({EXAMPLE!r})."
        )
    if client.asynchronous:
        raise TypeError(
            "client must be synchronous, got an asynchronous distributed.Client. "
            "Create one with asynchronous=False."
        )
    if client.status in ("closed", "closing"):
        raise ConnectionError("client is closed. Create another: distributed.Client(address).")


def _first_workers(client: Any, timeout: float) -> set[str]:
    try:
        client.wait_for_workers(1, timeout)
    except TimeoutError as error:
        address = client.scheduler.address
        raise TimeoutError(
            f"The Dask scheduler at {address} has no workers; none joined within {timeout:g} s. "
            f"Start some: `dask worker {address}`."
        ) from error
    return set(client.nthreads())


def _ask(client: Any, workers: Iterable[str]) -> dict[str, Any]:
    """Version of lowtucker on each worker, or what went wrong; those that died are left out."""
    wanted = sorted(workers)
    if not wanted:
        return {}
    answers = client.run(pkgutil.resolve_name, QUESTION, workers=wanted, on_error="return")
    return {name: found for name, found in answers.items() if not isinstance(found, OSError)}


def _check_answers(answers: Mapping[str, Any]) -> None:
    failed = {name: found for name, found in answers.items() if isinstance(found, Exception)}
    if failed:
        raise ImportError(
            f"{_count(failed)} cannot import lowtucker ({next(iter(failed.values()))!s:.160}). "
            f"Install lowtucker {__version__} on the workers, into the environment that "
            "`dask worker` runs in, and start them again."
        )
    others = {name: found for name, found in answers.items() if found != __version__}
    if others:
        versions = ", ".join(sorted(set(map(str, others.values()))))
        raise ValueError(
            f"{_count(others)} with lowtucker {versions}, but here it is {__version__}. "
            f"Install lowtucker {__version__} on the workers, and start them again."
        )


def _count(workers: Mapping[str, Any]) -> str:
    names = sorted(workers)
    more = ", ..." if len(names) > SHOWN else ""
    return f"{len(names)} Dask worker(s) ({', '.join(names[:SHOWN])}{more})"
