"""What a training script imports: ``Training``, and ``observe_live`` for objects that a script built by itself.

A whole script::

    from transformers import Trainer
    from countermark.train import Training

    training = Training.from_environment()
    tokenizer = training.tokenizer()
    trainer = Trainer(
        model=training.adapted_model(),
        args=training.training_arguments(),
        train_dataset=training.dataset(tokenizer),
        data_collator=training.collator(tokenizer),
        processing_class=tokenizer,
    )
    training.run(trainer)

Importing this module imports nothing of the training stack.
"""

from countermark.train.failures import CannotTrain
from countermark.train.live_objects import observe_live
from countermark.train.training import Training

__all__ = ["CannotTrain", "Training", "observe_live"]
