"""`python -m onnxroof`: the command line."""

from onnxroof.cli import main

main()
