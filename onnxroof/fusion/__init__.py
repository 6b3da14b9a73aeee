"""Kernels: which nodes a runtime does in one launch, and why it does not do more."""
