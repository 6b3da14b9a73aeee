"""Pricing many candidates: `CostFunction`, and the pieces of graphs it plans only once."""
