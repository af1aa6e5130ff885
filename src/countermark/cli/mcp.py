"""``countermark mcp``: the Model Context Protocol over standard input and output, or over HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import AllowHostOption, AllowOriginOption, StoreOption

if TYPE_CHECKING:
    from countermark.cli.settings import Settings
    from countermark.mcp.desk import Desk


def mcp(
    root: Annotated[
        list[str] | None,
        typer.Option("--root", metavar="DIR", help="A folder beside this one in which clients may name paths; repeatable."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve by HTTP, and not over standard input and output.")] = False,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="With --http, the address; one that other hosts reach asks for tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="With --http, the port; 0 takes any.")] = 4319,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    store: StoreOption = None,
) -> Answer:
    """Answer clients of the Model Context Protocol, which may read and change nothing."""
    from countermark.cli.context import existing_folder, settings
    from countermark.cli.serving import needed

    needed(("mcp", "uvicorn"), "MCP", "mcp")
    folders = tuple(Path(existing_folder(each, "a folder in which clients may name paths")) for each in root or ())
    chosen = settings(store_url=store)
    desk = _desk(chosen, folders)
    if http:
        _by_http(desk, chosen, host, port, tuple(allow_host or ()), tuple(allow_origin or ()))
    else:
        from countermark.mcp.stdio import serve_stdio

        serve_stdio(desk)
    return Answer(warnings=chosen.warnings)


def _desk(chosen: "Settings", folders: tuple[Path, ...]) -> "Desk":
    import os

    from countermark.cli.context import digest_cache
    from countermark.mcp.desk import Desk
    from countermark.mcp.places import Places

    # As ``countermark weights diff`` has it: the reading has two threads already.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    places = Places.of(Path.cwd(), folders)
    return Desk(chosen.store, chosen.database, places, lambda: digest_cache(False), chosen.session_idle_s)


def _by_http(desk: "Desk", chosen: "Settings", host: str, port: int, hosts: tuple[str, ...], origins: tuple[str, ...]) -> None:
    from countermark.cli.progress import say
    from countermark.cli.serving import tokens_of
    from countermark.cli.session_reading import of
    from countermark.mcp.serving import quiet_logs, server_of
    from countermark.server.over_mcp import McpSettings, serve_mcp

    quiet_logs()
    of(serve_mcp(server_of(desk), McpSettings(tokens_of(chosen), host, port, hosts, origins), say))
