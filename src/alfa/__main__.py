"""`python -m alfa` is `alfa`; so is every process of `torchrun -m alfa`."""

from alfa.cli.main import main

if __name__ == "__main__":
    main()
