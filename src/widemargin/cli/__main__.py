"""`python -m widemargin.cli`: for launchers such as torchrun."""

from widemargin.cli import main

main()
