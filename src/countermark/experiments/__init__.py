"""Experiments: samples, the arms that answered them, the weights that ran, and what two arms' numbers say of each other."""
