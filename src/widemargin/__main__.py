"""`python -m widemargin`, for whoever has no command of that name on the path."""

from widemargin.cli import main

if __name__ == "__main__":
    main()
