"""Streams in files: numbers and JSON, no pickle."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import numpy as np

from lowtucker._array import Array, like, to_numpy
from lowtucker._array.errors import FileFormatError
from lowtucker._version import __version__
from lowtucker.run.codec import Codec, check_members
from lowtucker.streams.averages import Averages
from lowtucker.streams.blocks import Block
from lowtucker.streams.intact import check_intact
from lowtucker.streams.recursion import Recent, Recursion, Tally
from lowtucker.streams.state import FirstFit, Past, Settings, State
from lowtucker.tensor.tangent import TangentSpace

__all__ = ["load_state", "save_state"]

FORMAT = "lowtucker stream 1"
# Bytes of the text in a file, beside its arrays
LONGEST_META = 1 << 24
CODEC = Codec(Averages, Block, Past, Recent, Settings, FirstFit, Tally)
FIELDS = [f.name for f in fields(State) if f.name != "filter"]
# Parts of a recursion; its tangent space is computed from the tensor
PARTS = ("gram", "gradient", "squares", "tally", "recent", "rows")


def save_state(state: State, path: str | os.PathLike[str], *, overwrite: bool) -> None:
    """Write a state to an .npz file."""
    import json

    from lowtucker.io import save_arrays

    for block in state.kept:
        if block.operator is not None:
            raise ValueError(
                f"the stream still keeps a {type(block.operator).__name__} of its first blocks, "
                "which cannot be written to a file. Save it after the warm-up "
                "(online.warming_up is then False), or give blocks as arrays or sampled entries."
            )
    arrays: dict[str, Any] = {}
    content = {name: CODEC.encode(getattr(state, name), arrays, name) for name in FIELDS}
    now: Any = state.filter
    if isinstance(state.filter, Recursion):
        now = {"X": state.filter.T.X, **{name: getattr(state.filter, name) for name in PARTS}}
    content["filter"] = CODEC.encode(now, arrays, "filter")
    text = {"format": FORMAT, "version": __version__, "stream": content}
    packed = {name: to_numpy(array) for name, array in arrays.items()}
    packed["meta"] = np.frombuffer(json.dumps(text).encode(), dtype=np.uint8)
    save_arrays(path, packed, overwrite=overwrite)


def load_state(path: str | os.PathLike[str], example: Array | None) -> State:
    """Read a state, with arrays of the kind of an example."""
    import json

    from lowtucker.io import describe
    from lowtucker.io.arrays import load_members

    infos = {info.name: info for info in describe(path)}
    if "meta" not in infos or not 0 < infos["meta"].nbytes <= LONGEST_META:
        raise FileFormatError(
            f"{path} is not a stream: expected a file written by online.save(path). Try "
            "lowtucker.load for results, lowtucker.io.load_array for arrays."
        )
    try:
        meta = json.loads(load_members(path, [infos.pop("meta")])["meta"].tobytes())
        if meta["format"] != FORMAT:
            raise FileFormatError(
                f"{path} has the format {meta['format']!r}, expected {FORMAT!r}. Try "
                "lowtucker.load for results."
            )
        check_members(meta["stream"], set(infos))
        arrays = load_members(path, list(infos.values()))
        return _unpacked(meta["stream"], arrays, example)
    except FileFormatError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FileFormatError(
            f"{path} is a damaged stream ({error}). Start over, or use another copy."
        ) from error


def _unpacked(content: dict[str, Any], arrays: dict[str, Any], example: Array | None) -> State:
    if example is not None:
        arrays = {  # indices stay what they are
            name: x if name.endswith(".indices") else like(x, example) for name, x in arrays.items()
        }
    made = {name: CODEC.decode(content[name], arrays) for name in FIELDS}
    now = CODEC.decode(content["filter"], arrays)
    if isinstance(now, dict):
        now = Recursion(TangentSpace(now.pop("X").validated()), **now)
    state = State(**made, filter=now)
    check_intact(state)
    return state
