"""One self-contained HTML page: pictures inside, no network."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from lowtucker.experiments.base import Highlights

__all__ = ["Section", "data_url", "png", "render"]

DPI = 110


@dataclass(frozen=True)
class Section:
    """A part of a report: a picture as a data URL, what it shows, the numbers to print."""

    name: str
    label: str
    title: str
    caption: str
    picture: str
    width: int
    highlights: Highlights


def render(template: str, context: Mapping[str, Any]) -> str:
    """Fill in a template of this package; what is filled in is escaped."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise ImportError(
            'The report needs Jinja2. Try: pip install "lowtucker[experiments]"'
        ) from error
    loader = FileSystemLoader(Path(__file__).parent / "templates")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    return environment.get_template(template).render(context)


def png(figure: Any) -> bytes:
    """Picture of a Matplotlib figure, the same bytes for the same figure."""
    file = BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return file.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    """Bytes of a picture, to put inside a page."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
