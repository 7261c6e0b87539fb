"""`python -m outpace_command` is the command `outpace`."""

from outpace_command import main

main()
