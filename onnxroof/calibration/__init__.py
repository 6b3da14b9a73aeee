"""Figures from measurements: of this machine, of a run, of models."""
