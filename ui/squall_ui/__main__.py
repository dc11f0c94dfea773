"""`python -m squall_ui`: SQUALL_DAEMON_CONF names a JSON file with the merged configuration."""

import sys

from squall_ui.daemon import main

if __name__ == "__main__":
    sys.exit(main())
