"""`python -m alfa` is `alfa`; so is every process of `torchrun -m alfa`."""

from alfa._runtime import has_named_parent, leave_with_parent

if __name__ == "__main__":
    # Before the seconds that imports take, in which it may be left alone.
    if has_named_parent():
        leave_with_parent()
    from alfa.cli.main import main

    main()
