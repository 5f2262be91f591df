"""`python -m searchrl`: the same as the `searchrl` command."""

from searchrl.cli import main

if __name__ == "__main__":
    main()
