"""`python -m aptinfer`: the command line."""

from aptinfer.cli import main

if __name__ == "__main__":
    main()
