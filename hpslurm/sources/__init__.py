"""The doors: everything that talks to the outside, and decides nothing."""
