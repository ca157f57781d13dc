"""The support case: what goes in, how it is masked, how it is packed."""
