"""Evidence: what a run's observers may claim, and how it is bound together before anything is concluded."""
