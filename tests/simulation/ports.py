"""What an operation of the program reaches the outside through, for one actor of a simulated history."""

from countermark.lines.surface import CheckpointGone
from countermark.run.attempts import checkpoint_of
from countermark.run.checkpoint import AdmittedCheckpoint
from countermark.run.claims import ExecutionClaim
from countermark.run.records import RunRecord
from countermark.values import NonEmpty, Refused
from tests.simulation import clean
from tests.simulation.clean import GRACE_MS
from tests.simulation.hosts import Host
from tests.simulation.launcher import SimLauncher
from tests.simulation.observer import SimObserver
from tests.simulation.world import World


class SimPorts:
    """The simulated store, launcher and observer, as one actor has them."""

    folder = "simulated"
    grace_ms = GRACE_MS
    stop_grace_s = 0.1
    poll_s = 0.0

    def __init__(self, world: World, host: Host) -> None:
        self.world = world
        self.store = world.store
        self.launcher = SimLauncher(world, host)
        self.observer = SimObserver(world, host)
        self.host = world.place(host)
        self.now_ms = world.now_ms
        self.new_id = world.new_id
        self.new_nonce = world.new_nonce

    def load(self, run_id: str) -> RunRecord:
        return self.store.load_run(run_id)

    def beginning(self, record: RunRecord, claim: ExecutionClaim) -> str | None | Refused[CheckpointGone]:
        """The path of the checkpoint at which the claim's attempt begins."""
        wanted = checkpoint_of(claim.transition.cause)
        if wanted is None:
            return None
        self.world.pause("checkpoint looked for")
        members = frozenset(each.attempt.nonce.hex for each in record.ledger.claims)
        for folder in tuple(self.world.folders.values()):
            for step, whole in folder.checkpoints:
                seen = clean.checkpoint(folder.attempt, step, whole)
                answer = clean.admitted(seen.readback, record.ledger.desired.manifest, members)
                if isinstance(answer, AdmittedCheckpoint) and answer.identity == wanted:
                    return seen.path
        return Refused(NonEmpty(CheckpointGone(wanted.step, wanted.digest.spell())))
