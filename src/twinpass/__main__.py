"""`python -m twinpass` is the command `twinpass`."""

from twinpass.cli.main import main

if __name__ == "__main__":
    main()
