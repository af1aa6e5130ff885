"""A whole training script: ``countermark run RECIPE -- python -m countermark.train.finetune``."""

import sys

from countermark.files.publishing import PublishFailed
from countermark.train.failures import CannotTrain
from countermark.train.libraries import library
from countermark.train.training import Training


def main() -> int:
    """Fine-tune what the recipe pins, from the base or from the admitted checkpoint, and publish the adapter; 1 where that cannot be."""
    try:
        training = Training.from_environment()
        transformers = library("transformers")
        transformers.utils.logging.disable_progress_bar()
        tokenizer = training.tokenizer()
        trainer = transformers.Trainer(
            model=training.adapted_model(),
            args=training.training_arguments(),
            train_dataset=training.dataset(tokenizer),
            data_collator=training.collator(tokenizer),
            processing_class=tokenizer,
        )
        training.run(trainer)
    except (CannotTrain, PublishFailed) as stopped:
        print(stopped, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
