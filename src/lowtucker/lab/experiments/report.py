"""Self-contained HTML reports with embedded images."""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from lowtucker.io import replacing
from lowtucker.simulation.base import Highlights

__all__ = ["Section", "csv_bytes", "data_url", "png", "render", "write_bytes"]

DPI = 110


@dataclass(frozen=True)
class Section:
    """A section of a report: an image as a data URL, a caption, and numbers to print."""

    name: str
    label: str
    title: str
    caption: str
    picture: str
    width: int
    highlights: Highlights


def render(template: str, context: Mapping[str, Any]) -> str:
    """Render a template of this package; values are escaped."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise ImportError(
            'The report needs Jinja2. Try: pip install "lowtucker[experiments]"'
        ) from error
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(context)


def csv_bytes(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return a table as CSV; floats have nine digits."""
    file = StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(f"{v:.9g}" if isinstance(v, float) else v for v in row)
    return file.getvalue().encode()


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as file:
        file.write(data)


def png(figure: Any) -> bytes:
    """Return a Matplotlib figure as PNG; equal figures give equal bytes."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    """Return an image as a data URL."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
