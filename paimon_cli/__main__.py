"""`python -m paimon_cli` is the `paimon-cli` script."""

from paimon_cli.cli.app import main

if __name__ == "__main__":
    main()
