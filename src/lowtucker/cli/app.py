"""``lowtucker app``: the playground in the browser."""

from __future__ import annotations

import click

from lowtucker.cli.common import check_extras

__all__ = ["app"]


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="Port to listen on; 0 picks a free port.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on; any but the default admits other machines.")  # fmt: skip
@click.option("--open/--no-open", "opens", default=False, help="Open the page in a browser.")
def app(port: int, host: str, opens: bool) -> None:
    """Serve a page for trying recoveries: synthetic tensors, your data, phase diagrams.

    Everything is computed on this machine, without network access. Press Ctrl-C to stop.
    """
    check_extras("starlette", "uvicorn", "av", "jinja2", "matplotlib", extra="app")
    from lowtucker.lab.app.server import listen, serve

    listening = listen(host, port)
    number = listening.getsockname()[1]
    url = f"http://{f'[{host}]' if ':' in host else host}:{number}/"
    if host not in ("127.0.0.1", "localhost", "::1"):
        click.echo(
            f"Warning: --host {host} lets anyone who can reach this machine run computations "
            "and upload files. There is no password.",
            err=True,
        )

    def ready() -> None:
        click.echo(f"The playground is at {url}  (press Ctrl-C to stop)")
        if opens:
            click.launch(url)

    serve(listening, host, ready=ready)
