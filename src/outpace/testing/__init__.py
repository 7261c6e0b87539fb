"""What tests, examples and users' own tests stand on: oracles, strategies and generated data."""
