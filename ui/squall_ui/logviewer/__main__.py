"""`python -m squall_ui.logviewer`: SQUALL_DAEMON_CONF names a JSON file with the configuration."""

import sys

from squall_ui.logviewer.daemon import main

if __name__ == "__main__":
    sys.exit(main())
