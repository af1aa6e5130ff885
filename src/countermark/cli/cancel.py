"""``countermark cancel``: a run is over because a person said so."""

from countermark.cli.answers import Answer
from countermark.cli.options import ByOption, JsonOption, NoWaitOption, RunArgument, StoreOption


def cancel(
    run: RunArgument, by: ByOption = None, no_wait: NoWaitOption = False, store: StoreOption = None, as_json: JsonOption = False
) -> Answer:
    """End a run for good: nothing of it starts any more, and what lives of it here is stopped."""
    from countermark.app.deciding import cancel_run
    from countermark.cli.context import settings
    from countermark.cli.running import found, opened
    from countermark.cli.watching import decided, stops
    from countermark.verdict.kinds import Cancelled

    chosen = settings(requester=by, store_url=store)
    with opened(chosen) as ports:
        record = found(ports, run)
        acted = cancel_run(ports, record.run_id, chosen.requester)
        return decided(ports, record.run_id, acted, stops, chosen.warnings, (Cancelled,), wait=not no_wait)
