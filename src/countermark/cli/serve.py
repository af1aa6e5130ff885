"""``countermark serve``: take events by HTTP, and answer for what the store holds."""

from typing import Annotated

import typer

from countermark.cli.answers import Answer
from countermark.cli.options import AllowHostOption, AllowOriginOption, StoreOption


def serve(
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address to serve at; other hosts reach one that is not loopback.")
    ] = ("127.0.0.1"),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, metavar="PORT", help="The port; 0 takes any that is free.")] = 4318,
    allow_host: AllowHostOption = None,
    allow_origin: AllowOriginOption = None,
    store: StoreOption = None,
) -> Answer:
    """Take events by HTTP and OpenTelemetry, and answer for sessions, until Ctrl-C."""
    from countermark.cli.context import settings
    from countermark.cli.progress import say
    from countermark.cli.serving import needed, tokens_of
    from countermark.cli.session_reading import of, opened

    needed()
    from countermark.app.forwarding import Forward
    from countermark.server import ServerSettings
    from countermark.server import serve as serve_until

    chosen = settings(store_url=store)
    of(
        serve_until(
            ServerSettings(
                lambda: opened(chosen, create=True),
                tokens_of(chosen),
                host,
                port,
                tuple(allow_host or ()),
                tuple(allow_origin or ()),
                keep_days=chosen.session_keep_days,
                idle_s=round(chosen.session_idle_s),
                forward=Forward(chosen.forward_endpoint, chosen.forward_mode, chosen.forward_headers) if chosen.forward_endpoint else None,
            ),
            say,
        )
    )
    return Answer(warnings=chosen.warnings)
