"""`python -m ephemera`: the command line, where its script is not on the path."""

from ephemera.cli import main

if __name__ == "__main__":
    main()
