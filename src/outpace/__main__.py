"""`python -m outpace` is the command `outpace`."""

from outpace_command import main

if __name__ == "__main__":
    main()
