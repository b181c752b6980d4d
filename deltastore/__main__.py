"""`python -m deltastore`: the command line, where its script is not on the path."""

import sys

from deltastore.cli.program import main

if __name__ == "__main__":
    sys.exit(main())
