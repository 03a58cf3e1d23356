"""Run the command line with `python -m alfa`, and in each process of `torchrun -m alfa`."""

from alfa._runtime import has_named_parent, leave_with_parent

if __name__ == "__main__":
    # Imports take seconds, and the parent process may die in the meantime.
    if has_named_parent():
        leave_with_parent()
    from alfa.cli.main import main

    main()
