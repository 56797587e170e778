"""`python -m isfl.cli`."""

from isfl.cli import main

if __name__ == "__main__":  # a worker process that imports this module must not run it
    main()
