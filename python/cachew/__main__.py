"""`python -m cachew` is the command `cachew`."""

from _cachew_command import main

main()
