"""Makes `python -m cachew` run the command `cachew`."""

from _cachew_command import main

main()
