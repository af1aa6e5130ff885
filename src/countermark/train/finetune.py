"""A whole training script: ``countermark run RECIPE -- python -m countermark.train.finetune``."""

from countermark.train.libraries import library
from countermark.train.training import Training


def main() -> None:
    """Fine-tune what the recipe pins, from the base or from the admitted checkpoint, and publish the adapter."""
    training = Training.from_environment()
    tokenizer = training.tokenizer()
    trainer = library("transformers").Trainer(
        model=training.adapted_model(),
        args=training.training_arguments(),
        train_dataset=training.dataset(tokenizer),
        data_collator=training.collator(tokenizer),
        processing_class=tokenizer,
    )
    training.run(trainer)


if __name__ == "__main__":
    main()
