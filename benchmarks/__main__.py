"""`python -m benchmarks` is `make bench`."""

from benchmarks.run import main

main()
